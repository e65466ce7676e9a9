"""Calibrators by bins and steps: histogram, BBQ, isotonic regression."""

from typing import Any, ClassVar, Literal, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, softmax
from sklearn.isotonic import IsotonicRegression

from linkcal._core.maths import clip_probability, sigmoid
from linkcal._core.validation import check_choice, check_flag, check_positive_int
from linkcal.calibrators.base import Calibrator, FloatArray, StateKind
from linkcal.exceptions import InputError
from linkcal.metrics.calibration import bin_index, uniform_edges


def quantile_edges(values: FloatArray, weight: FloatArray, n_bins: int) -> FloatArray:
    """Edges (used + 1,) from 0 to 1 of at most `n_bins` occupied bins of about equal weight.

    `values` (m,) are different and increase. A value belongs to bin ``floor(B W_before / W)``, W_before being
    the weight of all smaller values, so that k copies equal weight k; edges lie halfway between values.
    """
    before = np.cumsum(weight) - weight
    # The small shift keeps sums of fractional weights from falling just short of a whole number.
    group = np.floor(n_bins * before / weight.sum() + 1e-9)
    last = np.flatnonzero(np.diff(group))
    return np.concatenate(([0.0], 0.5 * (values[last] + values[last + 1]), [1.0]))


def bin_sums(index: NDArray[np.intp], values: FloatArray, n_bins: int) -> FloatArray:
    """Sum (n_bins,) of `values` in each bin."""
    return np.asarray(np.bincount(index, weights=values, minlength=n_bins), dtype=np.float64)


@final
class Histogram(Calibrator):
    """Histogram binning: the share of links in the bin of ``sigmoid(s)``.

    Robust, but coarse: all links of a bin get the same probability, its centre if it is empty. Hits@K counts
    such ties against a method: rank by the logit. Columns 1.. of X are ignored. Zadrozny, Elkan: Obtaining
    calibrated probability estimates from decision trees and naive Bayesian classifiers, ICML 2001.

    Parameters
    ----------
    n_bins : int, default=15
    strategy : {"uniform", "quantile"}, default="uniform"
        Bins of equal width, or of about equal numbers of calibration links (equal scores stay together, so
        fewer bins may be used).
    smooth : bool, default=True
        Bins whose n links are of one class predict ``(k + 1/2) / (n + 1)`` with k = 0 or n positives, the
        mean under Jeffreys' prior (Krichevsky, Trofimov, IEEE Trans. Information Theory 27, 1981). ``False``
        is the textbook estimator, whose 0 and 1 no base rate can move.

    Attributes
    ----------
    bin_edges_ : ndarray of shape (B + 1,)
        From 0 to 1. Bins are closed on the right; 0 belongs to the first.
    bin_probability_, bin_weight_ : ndarray of shape (B,)
        Probability of each bin, and weight of its calibration links (0 for an empty bin).

    Examples
    --------
    >>> X, y = [[1.0]] * 10, [1] * 3 + [0] * 7
    >>> Histogram(n_bins=10).fit(X, y).predict_proba([[1.0], [0.1]])[:, 1].round(6)
    array([0.3 , 0.55])
    """

    name = "histogram"
    description = "share of links in each bin of the probability"
    search: ClassVar[dict[str, list[Any]]] = {
        "n_bins": [5, 10, 15, 20, 30],
        "strategy": ["uniform", "quantile"],
    }
    _state: ClassVar[dict[str, StateKind]] = {"bin_edges_": 1, "bin_probability_": 1, "bin_weight_": 1}

    def __init__(
        self, *, n_bins: int = 15, strategy: Literal["uniform", "quantile"] = "uniform", smooth: bool = True
    ) -> None:
        self.n_bins = n_bins
        self.strategy = strategy
        self.smooth = smooth

    def _fit(self, X: FloatArray, y: FloatArray, weight: FloatArray) -> None:
        n_bins = check_positive_int(self.n_bins, "n_bins")
        p = sigmoid(X[:, 0])
        if check_choice(self.strategy, "strategy", ("uniform", "quantile")) == "uniform":
            edges = uniform_edges(n_bins)
        else:
            values, position = np.unique(p, return_inverse=True)
            edges = quantile_edges(values, bin_sums(position, weight, len(values)), n_bins)
        index, used = bin_index(p, edges), len(edges) - 1
        total, links = bin_sums(index, weight, used), bin_sums(index, weight * y, used)
        centre = 0.5 * (edges[:-1] + edges[1:])
        self.bin_edges_, self.bin_weight_ = edges, total
        self.bin_probability_ = np.divide(links, total, out=centre, where=total > 0.0)
        if check_flag(self.smooth, "smooth"):
            one_class = (total > 0.0) & ((links == 0.0) | (links == total))
            self.bin_probability_[one_class] = (links[one_class] + 0.5) / (total[one_class] + 1.0)

    def _probability(self, X: FloatArray) -> FloatArray:
        return np.take(self.bin_probability_, bin_index(sigmoid(X[:, 0]), self.bin_edges_))


# N' and C of the paper: the weight of the prior, in links, and the factor of the range of sizes.
_PRIOR_LINKS, _RANGE_FACTOR = 2.0, 10.0
# Binnings of smaller relative weight change no probability beyond rounding and are left out.
_NEGLIGIBLE = 1e-16
# Weights beyond are no counts, and their binnings would not end.
_MOST_LINKS = 1e9


@final
class BBQ(Calibrator):
    """Bayesian binning into quantiles (BBQ): histogram binnings averaged by their Bayesian score.

    Smoother than one histogram and without a number of bins to choose. Columns 1.. of X are ignored.

    Attributes
    ----------
    bin_edges_, bin_probability_ : ndarray of shape (m + 1,) and (m,)
        Union of the edges of all binnings of non-negligible weight, and averaged probability between them.
    binning_sizes_, binning_weights_ : ndarray of shape (r,)
        Requested number of bins of each binning (of equal binnings the smallest), and weights, of sum 1.

    Notes
    -----
    With N links (sum of weights, up to 1e9) the binnings have ``floor(N^(1/3) / 10)`` to ``ceil(10 N^(1/3))``
    bins, at least 1 and at most one per five links, with equal prior weights. With N_b links, m_b of them
    positive, ``alpha_b = N' mid_b / B`` and ``beta_b = N' (1 - mid_b) / B`` (N' = 2, mid_b the middle of the
    bin, which an empty bin predicts), a binning of B bins has the score

        prod_b Gamma(N'/B) / Gamma(N_b + N'/B) * Gamma(m_b + alpha_b) / Gamma(alpha_b)
               * Gamma(N_b - m_b + beta_b) / Gamma(beta_b)

    and predicts ``(m_b + alpha_b) / (N_b + N'/B)``. Naeini, Cooper, Hauskrecht: Obtaining Well Calibrated
    Probabilities Using Bayesian Binning, AAAI 2015.

    Examples
    --------
    >>> X, y = [[-2.0]] * 50 + [[2.0]] * 50, [0] * 40 + [1] * 10 + [0] * 10 + [1] * 40
    >>> BBQ().fit(X, y).predict_proba([[-2.0], [2.0]])[:, 1].round(2)
    array([0.2, 0.8])
    """

    name = "bbq"
    description = "Bayesian average of histograms (binning into quantiles)"
    _state: ClassVar[dict[str, StateKind]] = dict.fromkeys(
        ("bin_edges_", "bin_probability_", "binning_sizes_", "binning_weights_"), 1
    )

    def _fit(self, X: FloatArray, y: FloatArray, weight: FloatArray) -> None:
        n_links = float(weight.sum())
        if n_links > _MOST_LINKS:
            raise InputError(f"sample_weight must sum to at most {_MOST_LINKS:g} links, got {n_links:g}")
        # Everything depends on the links only through these sums per distinct probability.
        values, position = np.unique(sigmoid(X[:, 0]), return_inverse=True)
        total = bin_sums(position, weight, len(values))
        links = bin_sums(position, weight * y, len(values))

        # Many sizes can give the same binning: it counts once.
        distinct: dict[bytes, tuple[int, FloatArray]] = {}
        root = np.cbrt(n_links)
        # The small shifts undo roots of cubes that fall a rounding beside the whole number.
        fewest = max(1, int(np.floor(root / _RANGE_FACTOR + 1e-9)))
        most = max(fewest, int(min(np.ceil(n_links / 5.0), np.ceil(root * _RANGE_FACTOR - 1e-9))))
        for size in range(fewest, most + 1):
            cut = quantile_edges(values, total, size)
            distinct.setdefault(cut.tobytes(), (size, cut))
        edges = [cut for _, cut in distinct.values()]
        fits = [_fit_binning(e, values, total, links) for e in edges]
        self.binning_sizes_ = np.array([size for size, _ in distinct.values()], dtype=np.float64)
        self.binning_weights_ = softmax([log_score for log_score, _ in fits])

        kept = np.flatnonzero(self.binning_weights_ > _NEGLIGIBLE)
        self.bin_edges_ = np.unique(np.concatenate([edges[i] for i in kept]))
        # An interval of the union lies in the bin of its right (closed) end.
        right = self.bin_edges_[1:]
        average = np.zeros(len(right))
        for i in kept:
            average += self.binning_weights_[i] * fits[i][1][bin_index(right, edges[i])]
        self.bin_probability_ = np.clip(average / self.binning_weights_[kept].sum(), 0.0, 1.0)

    def _probability(self, X: FloatArray) -> FloatArray:
        return np.take(self.bin_probability_, bin_index(sigmoid(X[:, 0]), self.bin_edges_))


def _fit_binning(
    edges: FloatArray, values: FloatArray, total: FloatArray, links: FloatArray
) -> tuple[float, FloatArray]:
    """Log score of one binning and the probability of each of its bins."""
    n_bins = len(edges) - 1
    index = bin_index(values, edges)
    n, m = bin_sums(index, total, n_bins), bin_sums(index, links, n_bins)
    middle, prior = clip_probability(0.5 * (edges[:-1] + edges[1:])), _PRIOR_LINKS / n_bins
    alpha, beta = prior * middle, prior * (1.0 - middle)
    log_score = betaln(m + alpha, n - m + beta) - betaln(alpha, beta)
    return float(log_score.sum()), (m + alpha) / (n + prior)


@final
class Isotonic(Calibrator):
    """Isotonic regression of the label on the logit: the best increasing map, linear between its knots.

    Needs some hundreds of links. It makes ties: rank by the logit. Outside the range of the calibration
    logits the end values continue. Columns 1.. of X are ignored. Zadrozny, Elkan: Transforming Classifier
    Scores into Accurate Multiclass Probability Estimates, KDD 2002.

    Parameters
    ----------
    smooth : bool, default=True
        An outermost step of exactly 0 or 1 becomes ``(k + 1/2) / (n + 1)`` as in :class:`Histogram`, n being
        the links of the step, but never passes the next step. ``False`` is the textbook estimator.

    Attributes
    ----------
    logit_thresholds_, probability_thresholds_ : ndarray of shape (m,)
        Increasing knots, and the probability at each, in [0, 1], never decreasing.

    Examples
    --------
    >>> X, y = [[-1.0], [-1.0], [0.0], [1.0], [1.0]], [0, 1, 0, 1, 1]
    >>> Isotonic().fit(X, y).predict_proba([[-5.0], [1.0]])[:, 1].round(6)  # 1 / 3 and 2.5 / 3
    array([0.333333, 0.833333])
    """

    name = "isotonic"
    description = "best increasing map of the logit"
    _state: ClassVar[dict[str, StateKind]] = {"logit_thresholds_": 1, "probability_thresholds_": 1}

    def __init__(self, *, smooth: bool = True) -> None:
        self.smooth = smooth

    def _fit(self, X: FloatArray, y: FloatArray, weight: FloatArray) -> None:
        regression = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
        regression.fit(X[:, 0], y, sample_weight=weight)
        self.logit_thresholds_ = regression.X_thresholds_
        self.probability_thresholds_ = regression.y_thresholds_
        if check_flag(self.smooth, "smooth"):
            self._smooth_ends(X[:, 0], weight)

    def _smooth_ends(self, s: FloatArray, weight: FloatArray) -> None:
        knots, p = self.logit_thresholds_, self.probability_thresholds_
        low, high = p == 0.0, p > 1.0 - 1e-12  # the mean of ones can round to less
        if low.any():
            n = weight[s <= knots[low].max()].sum()
            p[low] = min(0.5 / (n + 1.0), p[~low].min())
        if high.any():
            n = weight[s >= knots[high].min()].sum()
            p[high] = max((n + 0.5) / (n + 1.0), p[~high].max())

    def _probability(self, X: FloatArray) -> FloatArray:
        return np.asarray(np.interp(X[:, 0], self.logit_thresholds_, self.probability_thresholds_))
