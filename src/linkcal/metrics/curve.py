"""Reliability curves: predicted probability and observed frequency, bin by bin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from linkcal._validation import check_fraction
from linkcal.metrics._binning import (
    Bins,
    Strategy,
    Variant,
    assign_bins,
    check_binning,
    event_probability,
)
from linkcal.metrics._inputs import labelled_links

__all__ = ["ReliabilityCurve", "binned_events", "reliability_curve"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ReliabilityCurve:
    """Predicted probability and observed frequency in each occupied bin; made by :func:`reliability_curve`.

    Parameters
    ----------
    mean_prob, frequency : ndarray (B,), float64, in [0, 1]
        Weighted mean of the predicted probability of the event, and weighted share of links where it
        happened. The event is "the pair is a link" (`variant` positive) or "the prediction is right"
        (top-label).
    weight : ndarray (B,), float64
        Total weight of each bin.
    count : ndarray (B,), int64
        Number of links (rows of positive weight) in each bin.
    n_effective : ndarray (B,), float64
        ``(sum w)^2 / sum w^2``: the number of equally weighted links that would be as noisy; `count` without
        weights.
    lower, upper : ndarray (B,), float64
        Bounds of each bin: its edges (equal width), or its smallest and largest probability (equal mass).
    n_bins : int
        Number of bins asked for; :attr:`n_bins_used` of them hold links.
    variant : {"positive", "top-label"}
    strategy : {"uniform", "quantile"}

    Examples
    --------
    >>> curve = reliability_curve([0, 1, 1, 1], [0.25, 0.25, 0.75, 0.75], n_bins=2)
    >>> curve.count.tolist(), curve.lower.tolist(), curve.upper.tolist()
    ([2, 2], [0.0, 0.5], [0.5, 1.0])
    >>> curve.expected_calibration_error
    0.25
    """

    mean_prob: FloatArray
    frequency: FloatArray
    weight: FloatArray
    count: NDArray[np.int64]
    n_effective: FloatArray
    lower: FloatArray
    upper: FloatArray
    n_bins: int
    variant: Variant
    strategy: Strategy

    @property
    def n_bins_used(self) -> int:
        """Number of bins that hold at least one link."""
        return self.count.size

    @property
    def n_links(self) -> int:
        """Number of links with positive weight."""
        return int(self.count.sum())

    @property
    def expected_calibration_error(self) -> float:
        """Mean of ``|frequency - mean_prob|`` over bins, weighted by `weight`."""
        gap = np.abs(self.frequency - self.mean_prob)
        return float(self.weight @ gap / self.weight.sum())

    def null_band(self, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Where each bin's frequency lies with probability `level` if the probabilities are right.

        Parameters
        ----------
        level : float in (0, 1)

        Returns
        -------
        lower, upper : ndarray (B,), float64, in [0, 1]

        Notes
        -----
        Quantiles of a binomial with `n_effective` trials (rounded) and success probability `mean_prob`. The
        exact law is Poisson-binomial; with the same mean its variance is smaller by the variance of the
        probabilities inside the bin, so the band is slightly too wide, never too narrow in that sense
        (Hoeffding 1956), by a few percent for 15 bins.
        """
        tail = (1.0 - check_fraction(level, "level")) / 2.0
        trials = np.maximum(np.rint(self.n_effective), 1.0)
        # A weighted mean of probabilities can leave [0, 1] by one unit in the last place.
        chance = np.minimum(self.mean_prob, 1.0)
        lower = np.asarray(binom.ppf(tail, trials, chance), dtype=np.float64) / trials
        upper = np.asarray(binom.ppf(1.0 - tail, trials, chance), dtype=np.float64) / trials
        return lower, upper


def binned_events(
    y_true: Any, y_prob: Any, n_bins: int, variant: str, strategy: str, sample_weight: Any
) -> tuple[FloatArray, FloatArray, FloatArray, Bins]:
    """Whether the event happened, its predicted probability, the weight (L,) each, and the bins."""
    n_bins = check_binning(n_bins, variant, strategy)
    label, prob, weight = labelled_links(y_true, y_prob, sample_weight)
    confidence = event_probability(prob, variant)
    happened = label if variant == "positive" else (label == (prob > 0.5)).astype(np.float64)
    return happened, confidence, weight, assign_bins(confidence, weight, n_bins, strategy)


def reliability_curve(
    y_true: Any,
    y_prob: Any,
    *,
    n_bins: int = 15,
    variant: Variant = "positive",
    strategy: Strategy = "uniform",
    sample_weight: Any = None,
) -> ReliabilityCurve:
    """Predicted probability against observed frequency, bin by bin.

    Use it to draw a reliability diagram or to see which probabilities are wrong and in which direction.

    Parameters
    ----------
    y_true : array-like (L,), values 0 and 1
        One class is enough.
    y_prob : array-like (L,), (L, 1) or (L, 2), in [0, 1]
        Link probability; two columns are ``(1 - p, p)``.
    n_bins : int
        B, at least 1.
    variant : {"positive", "top-label"}
        The event: "the pair is a link" with probability p, or "the prediction (link if p > 0.5) is right"
        with probability ``max(p, 1 - p)``.
    strategy : {"uniform", "quantile"}
        Bins of equal width over [0, 1], closed on the right, with 0 in the first bin and 1 in the last; or
        bins of about equal weight. The latter never split identical probabilities; up to `n_bins` distinct
        ones get a bin each, and two groups of identical ones with at least ``1 / n_bins`` of the weight are
        never merged.
    sample_weight : array-like (L,), >= 0, optional
        Weight k counts a link k times; weight 0 leaves it out.

    Returns
    -------
    ReliabilityCurve
        Occupied bins only.

    Raises
    ------
    InputError
        If an argument has the wrong shape, range or content, or there is no link.

    Examples
    --------
    >>> curve = reliability_curve([0, 1, 1, 1], [0.2, 0.3, 0.8, 0.9], n_bins=2)
    >>> curve.mean_prob.tolist(), curve.frequency.tolist()
    ([0.25, 0.8500000000000001], [0.5, 1.0])
    >>> curve.n_bins_used
    2
    """
    happened, confidence, weight, bins = binned_events(
        y_true, y_prob, n_bins, variant, strategy, sample_weight
    )
    total = np.bincount(bins.bin_of, weights=weight).astype(np.float64)
    share = weight / weight.max()  # squares of very small or large weights leave the range of floats
    return ReliabilityCurve(
        mean_prob=np.bincount(bins.bin_of, weights=weight * confidence) / total,
        frequency=np.bincount(bins.bin_of, weights=weight * happened) / total,
        weight=total,
        count=np.bincount(bins.bin_of).astype(np.int64),
        n_effective=np.bincount(bins.bin_of, weights=share) ** 2 / np.bincount(bins.bin_of, weights=share**2),
        lower=bins.lower,
        upper=bins.upper,
        n_bins=n_bins,
        variant=variant,
        strategy=strategy,
    )
