"""Which bin a link belongs to. The bins depend on the probabilities alone, never on the labels."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from linkcal._validation import check_choice, check_positive_int

__all__ = [
    "Bins",
    "Strategy",
    "Variant",
    "assign_bins",
    "bin_index",
    "check_binning",
    "event_probability",
    "uniform_edges",
]

FloatArray = NDArray[np.float64]
Variant = Literal["positive", "top-label"]
Strategy = Literal["uniform", "quantile"]


class Bins(NamedTuple):
    """Occupied bins only, in increasing order: `bin_of` (L,) in 0..B-1 and the bounds (B,) of each."""

    bin_of: NDArray[np.int64]
    lower: FloatArray
    upper: FloatArray


def check_binning(n_bins: int, variant: str, strategy: str) -> int:
    """Check the three options that define an ECE; return `n_bins`."""
    check_choice(variant, "variant", ("positive", "top-label"))
    check_choice(strategy, "strategy", ("uniform", "quantile"))
    return check_positive_int(n_bins, "n_bins")


def event_probability(prob: FloatArray, variant: str) -> FloatArray:
    """Predicted probability of the event whose calibration is asked for.

    ``positive``: that the pair is a link, p. ``top-label``: that the prediction (link if p > 0.5) is right,
    max(p, 1 - p).
    """
    return prob if variant == "positive" else np.maximum(prob, 1.0 - prob)


def assign_bins(prob: FloatArray, weight: FloatArray, n_bins: int, strategy: str) -> Bins:
    """Bins of equal width over [0, 1], or of equal mass. Only occupied bins are returned."""
    if strategy == "uniform":
        edges = uniform_edges(n_bins)
        used, index = np.unique(bin_index(prob, edges), return_inverse=True)
        return Bins(index.astype(np.int64), edges[used], edges[used + 1])
    return _equal_mass(prob, weight, n_bins)


def uniform_edges(n_bins: int) -> FloatArray:
    """Edges (n_bins + 1,) of bins of equal width."""
    # i / B is the float nearest to the edge, so that p = 0.6 lies ON the edge 9/15; the i * (1 / B) of
    # linspace can be one unit in the last place off and would move such links to the next bin.
    return np.arange(n_bins + 1) / n_bins


def bin_index(prob: FloatArray, edges: FloatArray) -> NDArray[np.intp]:
    """Index (L,) of the bin of each probability; bins are closed on the right, 0 belongs to the first."""
    # Number of inner edges strictly below p.
    return np.searchsorted(edges[1:-1], prob, side="left")


def _equal_mass(prob: FloatArray, weight: FloatArray, n_bins: int) -> Bins:
    """Bins of about equal weight that never split links of identical probability.

    A group of identical values goes to the bin in which the middle of its mass falls. Two groups that each
    hold at least 1 / n_bins of the mass therefore never share a bin; cutting at quantiles instead gives
    repeated edges there and merges such groups.

    Not the rule of equal-mass bins in ``linkcal.calibrators``, which goes by the mass BELOW a value: those
    bins are a fitted map, which needs edges for values not seen yet and the usual even split. A metric needs
    neither, but its bins should not depend on which class is called positive: the middle of the mass treats
    the two ends of [0, 1] alike (but for a middle exactly on a boundary), the mass below does not.
    """
    values, group = np.unique(prob, return_inverse=True)
    if values.size <= n_bins:
        return Bins(group.astype(np.int64), values, values)
    mass = np.bincount(group, weights=weight)
    after = np.cumsum(mass)
    middle = (after - 0.5 * mass) * n_bins / after[-1]
    used, bin_of_group = np.unique(np.minimum(middle.astype(np.int64), n_bins - 1), return_inverse=True)
    first = np.searchsorted(bin_of_group, np.arange(used.size), side="left")
    last = np.searchsorted(bin_of_group, np.arange(used.size), side="right") - 1
    return Bins(bin_of_group[group].astype(np.int64), values[first], values[last])
