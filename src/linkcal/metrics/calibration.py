"""Calibration errors, the reliability curve, and the noise floor: the error of a calibrated predictor."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from linkcal._core.maths import FloatArray
from linkcal._core.validation import check_choice, check_fraction, check_positive_int, check_probabilities
from linkcal.exceptions import InputError
from linkcal.metrics._inputs import probability_links

Variant = Literal["positive", "top-label"]
Strategy = Literal["uniform", "quantile"]

# Random numbers per chunk: 1 MB of float64 stays in a core's cache.
_CHUNK = 1 << 17


class BinnedLinks(NamedTuple):
    """Links (L,) and their occupied bins (B,), in increasing order of probability.

    `happened` is 1 where the event was observed, `confidence` its predicted probability, `bin_of` in 0..B-1.
    """

    happened: FloatArray
    confidence: FloatArray
    weight: FloatArray
    bin_of: NDArray[np.int64]
    lower: FloatArray
    upper: FloatArray

    def sums(self, values: FloatArray) -> FloatArray:
        """Sum (B,) of a value (L,) over each bin."""
        return np.bincount(self.bin_of, weights=values).astype(np.float64)


def binned_links(
    y_true: Any, y_prob: Any, n_bins: int, variant: str, strategy: str, sample_weight: Any
) -> BinnedLinks:
    """Check and bin links, by the probabilities alone.

    Event: the pair is a link (``positive``), or the prediction, link if p > 0.5, is right (``top-label``).
    """
    check_choice(variant, "variant", ("positive", "top-label"))
    check_choice(strategy, "strategy", ("uniform", "quantile"))
    n_bins = check_positive_int(n_bins, "n_bins")
    happened, confidence, weight = probability_links(y_true, y_prob, sample_weight)
    if variant == "top-label":
        happened = (happened == (confidence > 0.5)).astype(np.float64)
        confidence = np.maximum(confidence, 1.0 - confidence)
    if strategy == "quantile":
        return BinnedLinks(happened, confidence, weight, *_equal_mass(confidence, weight, n_bins))
    edges = uniform_edges(n_bins)
    used, index = np.unique(bin_index(confidence, edges), return_inverse=True)
    return BinnedLinks(happened, confidence, weight, index.astype(np.int64), edges[used], edges[used + 1])


def uniform_edges(n_bins: int) -> FloatArray:
    """Edges (n_bins + 1,) of bins of equal width."""
    # i / B is the float nearest to the edge, so that p = 0.6 lies ON the edge 9/15; linspace can be off.
    return np.arange(n_bins + 1) / n_bins


def bin_index(prob: FloatArray, edges: FloatArray) -> NDArray[np.intp]:
    """Index (L,) of the bin of each probability; bins are closed on the right, 0 belongs to the first."""
    # Number of inner edges strictly below p.
    return np.searchsorted(edges[1:-1], prob, side="left")


def _equal_mass(
    prob: FloatArray, weight: FloatArray, n_bins: int
) -> tuple[NDArray[np.int64], FloatArray, FloatArray]:
    """Bin of each link, and bounds: a group of identical values goes to the bin of the middle of its mass.

    So groups of at least 1 / n_bins of the mass never share a bin, and both ends of [0, 1] are alike.
    """
    values, group = np.unique(prob, return_inverse=True)
    if values.size <= n_bins:
        return group.astype(np.int64), values, values
    mass = np.bincount(group, weights=weight)
    after = np.cumsum(mass)
    middle = (after - 0.5 * mass) * n_bins / after[-1]
    used, bin_of_group = np.unique(np.minimum(middle.astype(np.int64), n_bins - 1), return_inverse=True)
    first = np.searchsorted(bin_of_group, np.arange(used.size), side="left")
    last = np.searchsorted(bin_of_group, np.arange(used.size), side="right") - 1
    return bin_of_group[group].astype(np.int64), values[first], values[last]


@dataclass(frozen=True, eq=False)
class ReliabilityCurve:
    """Predicted probability and observed frequency in each occupied bin; made by :func:`reliability_curve`.

    Parameters
    ----------
    mean_prob, frequency : ndarray (B,), float64, in [0, 1]
        Weighted mean of the event's predicted probability, and weighted share of links where it happened.
    weight, count : ndarray (B,), float64 and int64
        Total weight of each bin, and number of its links of positive weight.
    n_effective : ndarray (B,), float64
        ``(sum w)^2 / sum w^2``: the number of equally weighted links that would be as noisy.
    lower, upper : ndarray (B,), float64
        Bounds of each bin: its edges (equal width), or its smallest and largest probability (equal mass).
    variant : {"positive", "top-label"}
    """

    mean_prob: FloatArray
    frequency: FloatArray
    weight: FloatArray
    count: NDArray[np.int64]
    n_effective: FloatArray
    lower: FloatArray
    upper: FloatArray
    variant: Variant

    @property
    def expected_calibration_error(self) -> float:
        """Mean of ``|frequency - mean_prob|`` over bins, weighted by `weight`."""
        gap = np.abs(self.frequency - self.mean_prob)
        return float(self.weight @ gap / self.weight.sum())

    def null_band(self, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Bounds (B,) of each bin's frequency that hold with probability `level` if calibrated.

        Quantiles of a binomial with `n_effective` trials (rounded) and chance `mean_prob`. The exact law is
        Poisson-binomial; the band is too wide by a few percent for 15 bins (Hoeffding 1956).
        """
        tail = (1.0 - check_fraction(level, "level")) / 2.0
        trials = np.maximum(np.rint(self.n_effective), 1.0)
        # A weighted mean of probabilities can leave [0, 1] by one unit in the last place.
        chance = np.minimum(self.mean_prob, 1.0)
        return binom.ppf(tail, trials, chance) / trials, binom.ppf(1.0 - tail, trials, chance) / trials


def reliability_curve(
    y_true: Any,
    y_prob: Any,
    *,
    n_bins: int = 15,
    variant: Variant = "positive",
    strategy: Strategy = "uniform",
    sample_weight: Any = None,
) -> ReliabilityCurve:
    """Predicted probability against observed frequency, in the occupied bins.

    Parameters
    ----------
    y_true : array-like (L,), values 0 and 1
        One class is enough.
    y_prob : array-like (L,), (L, 1) or (L, 2), in [0, 1]
    n_bins : int
        B, at least 1.
    variant : {"positive", "top-label"}
        The event: "the pair is a link" with probability p, or "the prediction (link if p > 0.5) is right"
        with probability ``max(p, 1 - p)``.
    strategy : {"uniform", "quantile"}
        Bins of equal width over [0, 1], closed on the right, with 0 in the first; or of about equal weight,
        never splitting identical probabilities or merging two groups of ``1 / n_bins`` of the weight or more.
    sample_weight : array-like (L,), >= 0, optional

    Examples
    --------
    >>> curve = reliability_curve([0, 1, 1, 1], [0.2, 0.3, 0.8, 0.9], n_bins=2)
    >>> curve.mean_prob.tolist(), curve.frequency.tolist()
    ([0.25, 0.8500000000000001], [0.5, 1.0])
    """
    links = binned_links(y_true, y_prob, n_bins, variant, strategy, sample_weight)
    total = links.sums(links.weight)
    share = links.weight / links.weight.max()  # squares of very small or large weights overflow
    return ReliabilityCurve(
        mean_prob=links.sums(links.weight * links.confidence) / total,
        frequency=links.sums(links.weight * links.happened) / total, weight=total,
        count=np.bincount(links.bin_of).astype(np.int64),
        n_effective=links.sums(share) ** 2 / links.sums(share**2), lower=links.lower, upper=links.upper,
        variant=variant,
    )  # fmt: skip


def expected_calibration_error(
    y_true: Any,
    y_prob: Any,
    *,
    n_bins: int = 15,
    variant: Variant = "positive",
    strategy: Strategy = "uniform",
    sample_weight: Any = None,
) -> float:
    """Measure the expected calibration error (ECE) of link probabilities.

    Variants can differ tenfold on the same numbers: state which one you report. With few links a perfectly
    calibrated predictor has an ECE well above zero (:func:`calibration_floor`). Not a proper score:
    predicting the base rate has an ECE of zero.

    ``ECE = sum_b |sum_{i in b} w_i (y_i - p_i)| / sum_i w_i`` (arXiv 2403.04605, weights 1). Top-label ECE
    replaces y by correctness and p by ``max(p, 1 - p)``, with bins over the whole of [0, 1].

    Parameters
    ----------
    y_true, y_prob, n_bins, variant, strategy, sample_weight
        As in :func:`reliability_curve`.

    Returns
    -------
    float in [0, 1], smaller is better

    Examples
    --------
    >>> y, p = [1] * 5 + [0] * 5 + [1] * 9 + [0], [0.3] * 10 + [0.7] * 10
    >>> round(expected_calibration_error(y, p), 6)
    0.2
    >>> round(expected_calibration_error(y, p, variant="top-label"), 6)
    0.0
    """
    return reliability_curve(
        y_true, y_prob, n_bins=n_bins, variant=variant, strategy=strategy, sample_weight=sample_weight
    ).expected_calibration_error


def debiased_calibration_error(
    y_true: Any,
    y_prob: Any,
    *,
    n_bins: int = 15,
    variant: Variant = "positive",
    strategy: Strategy = "uniform",
    sample_weight: Any = None,
) -> float:
    """Squared (L2) calibration error without the bias that label noise adds.

    It averages exactly zero for a perfectly calibrated predictor, so test sets of different size can be
    compared. A negative value means "indistinguishable from zero". With residuals ``r_i = y_i - p_i``,
    ``W_b = sum_{i in b} w_i`` and bins with at least two links

        sum_b (W_b / W)  sum_{i != j in b} w_i w_j r_i r_j / sum_{i != j in b} w_i w_j,   W = sum_b W_b

    With unit weights and one value of p in each bin this is the debiased estimator of Kumar, Liang and Ma
    (arXiv 1909.10155), which over-corrects where p differs inside a bin.

    Parameters
    ----------
    y_true, y_prob, n_bins, variant, strategy
        As in :func:`reliability_curve`.
    sample_weight : array-like (L,), >= 0, optional
        Importance of each link, which still counts as ONE observation: unlike elsewhere, weight k is not k
        copies, as these are not independent. The scale does not matter; weight 0 leaves a link out.

    Returns
    -------
    float in [-1, 1]
        A squared error: the best value is 0. InputError also if no bin holds two links.

    Examples
    --------
    >>> round(debiased_calibration_error([1, 1, 1, 0], [0.5] * 4), 12)  # (3/4 - 1/2)^2 - (3/4)(1/4) / 3
    0.0
    """
    links = binned_links(y_true, y_prob, n_bins, variant, strategy, sample_weight)
    share = links.weight / links.weight.max()  # the scale cancels; squares of small weights would underflow
    residual = share * (links.happened - links.confidence)
    total = links.sums(share)
    pairs = total**2 - links.sums(share**2)
    # Zero for a single link; rounding noise where all other links of the bin weigh next to nothing.
    enough = pairs > 1e-12 * total**2
    if not enough.any():
        raise InputError("y_prob must put at least two links into one bin, got fewer: take a smaller n_bins")
    products = links.sums(residual) ** 2 - links.sums(residual**2)
    mass = total[enough]
    return float(mass @ (products[enough] / pairs[enough]) / mass.sum())


class CalibrationFloor(NamedTuple):
    """Mean and 95 % quantile of the ECE that the same probabilities have when they are right.

    Parameters
    ----------
    mean, q95 : float in [0, 1]
        An observed ECE above `q95` is evidence of miscalibration at the 5 % level.
    """

    mean: float
    q95: float


def of_resamples(
    chance: FloatArray, n_resamples: int, rng: np.random.Generator, statistic: Callable[[Any], Any]
) -> FloatArray:
    """Statistic (R,) of R label vectors y_i ~ Bernoulli(p_i); it is given a few of them at once, (r, L)."""
    out, rows = np.empty(n_resamples), max(1, _CHUNK // chance.size)
    for first in range(0, n_resamples, rows):
        part = out[first : first + rows]
        # A uniform number in [0, 1) is below p with probability p: exact also for p = 0 and p = 1.
        part[:] = statistic(rng.random((part.size, chance.size)) < chance)
    return out


def generator_of(random_state: Any) -> np.random.Generator:
    """Generator of a seed, of another generator, or of fresh entropy."""
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        text = "random_state must be a whole number >= 0, a numpy Generator or None"
        raise InputError(f"{text}, got {random_state!r}") from error


def calibration_floor(
    y_prob: Any,
    *,
    n_bins: int = 15,
    variant: Variant = "positive",
    strategy: Strategy = "uniform",
    sample_weight: Any = None,
    n_resamples: int = 1000,
    random_state: int | np.random.Generator | None = 0,
) -> CalibrationFloor:
    """ECE that these probabilities would have, on as few links, if they were perfectly calibrated.

    Each predictor has its own floor, from independent ``y_i ~ Bernoulli(p_i)`` (consistency resampling;
    Vaicenavicius et al., arXiv 1902.06977).

    Parameters
    ----------
    y_prob : array-like (L,), (L, 1) or (L, 2), in [0, 1]
    n_bins, variant, strategy, sample_weight
        As in :func:`reliability_curve`; give those of the ECE. A weighted link is one observation.
    n_resamples : int
        Label vectors drawn. The standard error of `mean` is about 1 % of it for 1,000.
    random_state : int, Generator or None

    Returns
    -------
    CalibrationFloor, which unpacks as ``(mean, q95)``

    Examples
    --------
    >>> mean, q95 = calibration_floor([(i + 0.5) / 200 for i in range(200)])
    >>> round(mean, 2), round(q95, 2)
    (0.09, 0.12)
    """
    check_positive_int(n_resamples, "n_resamples")
    rng = generator_of(random_state)
    labels = np.zeros(check_probabilities(y_prob).size)  # bins and draws do not depend on them
    links = binned_links(labels, y_prob, n_bins, variant, strategy, sample_weight)
    order = np.argsort(links.bin_of, kind="stable")
    # For the top label too: if y ~ Bernoulli(p), the prediction is right with probability max(p, 1 - p).
    chance, weight = links.confidence[order], links.weight[order]
    starts = np.searchsorted(links.bin_of[order], np.arange(links.lower.size))
    expected = np.add.reduceat(weight * chance, starts)

    def error(happened: NDArray[np.bool_]) -> FloatArray:
        observed = np.add.reduceat(happened * weight, starts, axis=1)
        return np.asarray(np.abs(observed - expected).sum(axis=1))

    errors = of_resamples(chance, n_resamples, rng, error) / weight.sum()
    return CalibrationFloor(float(errors.mean()), float(np.quantile(errors, 0.95)))
