"""Bins on [0, 1] that histogram binning and BBQ share; those of equal width are also the metrics'."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from linkcal.metrics._binning import bin_index, uniform_edges

__all__ = ["bin_index", "bin_sums", "quantile_edges", "uniform_edges"]

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.intp]


def quantile_edges(values: FloatArray, weight: FloatArray, n_bins: int) -> FloatArray:
    """Edges of at most `n_bins` occupied bins of about equal weight; equal values stay in one bin.

    Parameters
    ----------
    values : ndarray of shape (m,)
        Different probabilities in increasing order.
    weight : ndarray of shape (m,)
        Weight of each.
    n_bins : int

    Returns
    -------
    ndarray of shape (used + 1,)
        From 0 to 1, halfway between neighbouring values of different bins.

    Notes
    -----
    A value belongs to bin ``floor(B W_before / W)``, where W_before is the weight of all smaller values:
    for distinct values of equal weight the usual split, and k copies equal weight k. The metrics' bins of
    equal mass go by the middle of a value's mass instead; ``linkcal.metrics._binning`` says why.
    """
    before = np.cumsum(weight) - weight
    # The small shift keeps sums of fractional weights from falling just short of a whole number.
    group = np.floor(n_bins * before / weight.sum() + 1e-9)
    last = np.flatnonzero(np.diff(group))
    return np.concatenate(([0.0], 0.5 * (values[last] + values[last + 1]), [1.0]))


def bin_sums(index: IndexArray, values: FloatArray, n_bins: int) -> FloatArray:
    """Sum (n_bins,) of `values` in each bin."""
    return np.asarray(np.bincount(index, weights=values, minlength=n_bins), dtype=np.float64)
