"""Bayesian binning into quantiles."""

from __future__ import annotations

from typing import ClassVar, Literal, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, softmax, xlog1py, xlogy

from linkcal._math import clip_probability, logit, sigmoid
from linkcal._validation import check_choice, check_flag
from linkcal.calibrators._bins import bin_index, bin_sums, quantile_edges, uniform_edges
from linkcal.calibrators._ranking import ties_broken
from linkcal.calibrators.base import Calibrator, FloatArray, StateKind
from linkcal.exceptions import InputError

__all__ = ["BBQ"]

# N' of the paper: the weight of the prior, in links, spread over the bins of a binning.
_PRIOR_LINKS = 2.0

# C of the paper: binnings with N^(1/3) / C to C N^(1/3) bins are averaged.
_RANGE_FACTOR = 10.0

# Binnings of smaller relative weight change no probability beyond rounding and are left out.
_NEGLIGIBLE = 1e-16


# As many as any graph has pairs to offer; weights beyond are no counts, and their binnings would not end.
_MOST_LINKS = 1e9


@final
class BBQ(Calibrator):
    """Bayesian binning into quantiles (BBQ): histogram binnings averaged by their Bayesian score.

    Smoother than one histogram and without a number of bins to choose. Columns 1.. of X are ignored.

    Parameters
    ----------
    strategy : {"quantile", "uniform"}, default="quantile"
        Bins of about equal numbers of links (the method as published) or of equal width.
    criterion : {"bayes", "bic"}, default="bayes"
        ``"bayes"``: marginal likelihood under a Beta prior in each bin, and the posterior mean in each
        bin (the method as published). ``"bic"``: ``exp(-BIC / 2)`` and the plain share of links in each bin;
        with ``strategy="uniform"`` this is what the netcal library computes.
    preserve_ranking : bool, default=False
        Whether links of the same probability keep the order of their logits: probabilities then move by
        less than 1e-6. Without it Hits@K, which counts ties against a method, collapses. The order shows in
        float64: rounded to float32 most are equal again, so rank by the logits (``decision_function``, or
        calling the predictor).

    Attributes
    ----------
    bin_edges_ : ndarray of shape (m + 1,)
        Union of the edges of all binnings of non-negligible weight.
    bin_probability_ : ndarray of shape (m,)
        Averaged probability between neighbouring edges, in [0, 1].
    binning_sizes_ : ndarray of shape (r,)
        Number of bins asked of each binning; of equal binnings the smallest.
    binning_weights_ : ndarray of shape (r,)
        Weight of each binning; they sum to 1.
    classes_ : ndarray of shape (2,)
    n_features_in_ : int

    Notes
    -----
    With N links (sum of weights) the binnings have ``floor(N^(1/3) / 10)`` to ``ceil(10 N^(1/3))`` bins,
    at least 1 and at most one per five links; all different ones are equally likely beforehand. A binning of
    B bins with N_b links, m_b of them positive, and prior ``alpha_b = N' mid_b / B``,
    ``beta_b = N' (1 - mid_b) / B`` (N' = 2, mid_b the middle of the bin) has the score

        prod_b Gamma(N'/B) / Gamma(N_b + N'/B) * Gamma(m_b + alpha_b) / Gamma(alpha_b)
               * Gamma(N_b - m_b + beta_b) / Gamma(beta_b)

    and predicts ``(m_b + alpha_b) / (N_b + N'/B)``. The average of step functions is again a step function,
    which is what is stored. An empty bin predicts its middle. Weights count as links, of which there may be
    up to 1e9.

    References
    ----------
    Naeini, Cooper, Hauskrecht: Obtaining Well Calibrated Probabilities Using Bayesian Binning, AAAI 2015.

    Examples
    --------
    >>> X, y = [[-2.0]] * 50 + [[2.0]] * 50, [0] * 40 + [1] * 10 + [0] * 10 + [1] * 40
    >>> BBQ().fit(X, y).predict_proba([[-2.0], [2.0]])[:, 1].round(2)
    array([0.2, 0.8])
    """

    _state: ClassVar[dict[str, StateKind]] = {
        "bin_edges_": 1,
        "bin_probability_": 1,
        "binning_sizes_": 1,
        "binning_weights_": 1,
    }

    bin_edges_: FloatArray
    bin_probability_: FloatArray
    binning_sizes_: FloatArray
    binning_weights_: FloatArray

    def __init__(
        self,
        *,
        strategy: Literal["quantile", "uniform"] = "quantile",
        criterion: Literal["bayes", "bic"] = "bayes",
        preserve_ranking: bool = False,
    ) -> None:
        self.strategy = strategy
        self.criterion = criterion
        self.preserve_ranking = preserve_ranking

    def _fit(self, X: FloatArray, y: FloatArray, weight: FloatArray) -> None:
        check_choice(self.strategy, "strategy", ("quantile", "uniform"))
        check_choice(self.criterion, "criterion", ("bayes", "bic"))
        check_flag(self.preserve_ranking, "preserve_ranking")
        n_links = float(weight.sum())
        if n_links > _MOST_LINKS:
            raise InputError(f"sample_weight must sum to at most {_MOST_LINKS:g} links, got {n_links:g}")
        # Everything depends on the links only through these sums per distinct probability.
        values, position = np.unique(sigmoid(X[:, 0]), return_inverse=True)
        total = bin_sums(position, weight, len(values))
        links = bin_sums(position, weight * y, len(values))

        # Equal scores stay in one bin, so that many sizes can give the same binning: it counts once.
        distinct: dict[bytes, tuple[int, FloatArray]] = {}
        for size in _binning_sizes(n_links).tolist():
            cut = quantile_edges(values, total, size) if self.strategy == "quantile" else uniform_edges(size)
            distinct.setdefault(cut.tobytes(), (size, cut))
        sizes = np.array([size for size, _ in distinct.values()])
        edges = [cut for _, cut in distinct.values()]
        fits = [self._fit_binning(e, values, total, links) for e in edges]
        self.binning_sizes_ = sizes.astype(np.float64)
        self.binning_weights_ = softmax([log_score for log_score, _ in fits])

        kept = np.flatnonzero(self.binning_weights_ > _NEGLIGIBLE)
        self.bin_edges_ = np.unique(np.concatenate([edges[i] for i in kept]))
        # Each interval of the union lies inside one bin of every binning: ask at its right (closed) end.
        right = self.bin_edges_[1:]
        average = np.zeros(len(right))
        for i in kept:
            average += self.binning_weights_[i] * fits[i][1][bin_index(right, edges[i])]
        self.bin_probability_ = np.clip(average / self.binning_weights_[kept].sum(), 0.0, 1.0)

    def _fit_binning(
        self, edges: FloatArray, values: FloatArray, total: FloatArray, links: FloatArray
    ) -> tuple[float, FloatArray]:
        """Log score of one binning and the probability of each of its bins."""
        n_bins = len(edges) - 1
        index = bin_index(values, edges)
        n, m = bin_sums(index, total, n_bins), bin_sums(index, links, n_bins)
        middle = 0.5 * (edges[:-1] + edges[1:])
        if self.criterion == "bayes":
            return _bayes_binning(n, m, clip_probability(middle))
        share = np.divide(m, n, out=middle, where=n > 0.0)
        log_likelihood = float((xlogy(m, share) + xlog1py(n - m, -share)).sum())
        return log_likelihood - 0.5 * n_bins * np.log(n.sum()), share

    def _probability(self, X: FloatArray) -> FloatArray:
        p = self.bin_probability_[bin_index(sigmoid(X[:, 0]), self.bin_edges_)]
        return ties_broken(p, X[:, 0]) if self.preserve_ranking else p

    def _decision(self, X: FloatArray) -> FloatArray:
        return logit(self._probability(X))


def _binning_sizes(n: float) -> NDArray[np.intp]:
    root = np.cbrt(n)
    # The small shifts undo roots of cubes that fall a rounding beside the whole number.
    fewest = max(1, int(np.floor(root / _RANGE_FACTOR + 1e-9)))
    most = max(fewest, int(min(np.ceil(n / 5.0), np.ceil(root * _RANGE_FACTOR - 1e-9))))
    return np.arange(fewest, most + 1)


def _bayes_binning(n: FloatArray, m: FloatArray, middle: FloatArray) -> tuple[float, FloatArray]:
    prior = _PRIOR_LINKS / len(n)
    alpha, beta = prior * middle, prior * (1.0 - middle)
    log_score = betaln(m + alpha, n - m + beta) - betaln(alpha, beta)
    return float(log_score.sum()), (m + alpha) / (n + prior)
