"""Calibration errors: how far predicted probabilities are from observed frequencies."""

from __future__ import annotations

from typing import Any

import numpy as np

from linkcal.exceptions import InputError
from linkcal.metrics._binning import Strategy, Variant
from linkcal.metrics.curve import binned_events, reliability_curve

__all__ = ["debiased_calibration_error", "expected_calibration_error"]


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

    ECE is a family, and two members can differ tenfold on the same numbers: say which one you report. The
    default is the paper's. Read it beside :func:`linkcal.metrics.calibration_floor`: with few links even a
    perfectly calibrated predictor has an ECE well above zero.

    Parameters
    ----------
    y_true : array-like (L,), values 0 and 1
        One class is enough.
    y_prob : array-like (L,), (L, 1) or (L, 2), in [0, 1]
        Link probability; two columns are ``(1 - p, p)``.
    n_bins : int
        B, at least 1.
    variant : {"positive", "top-label"}
        Compare p with the share of links, or ``max(p, 1 - p)`` with the share of right predictions.
    strategy : {"uniform", "quantile"}
        Bins of equal width (closed on the right, 0 in the first, 1 in the last) or of equal mass; see
        :func:`reliability_curve`.
    sample_weight : array-like (L,), >= 0, optional
        Weight k counts a link k times; weight 0 leaves it out.

    Returns
    -------
    float in [0, 1]
        Smaller is better.

    Raises
    ------
    InputError
        If an argument has the wrong shape, range or content, or there is no link.

    Notes
    -----
    ``ECE = sum_b |sum_{i in b} w_i (y_i - p_i)| / sum_i w_i`` (the ECE equation of arXiv 2403.04605 with
    weights 1). The top-label variant puts correctness in the place of y and ``max(p, 1 - p)`` in the place of
    p, with bins over the whole of [0, 1], as torchmetrics does.

    Not a proper score: the constant prediction of the base rate has an ECE of zero.

    References
    ----------
    arXiv 2403.04605 (In-n-Out).

    Examples
    --------
    >>> y, p = [1] * 5 + [0] * 5 + [1] * 9 + [0], [0.3] * 10 + [0.7] * 10
    >>> round(expected_calibration_error(y, p), 6)
    0.2
    >>> round(expected_calibration_error(y, p, variant="top-label"), 6)
    0.0
    """
    curve = reliability_curve(
        y_true, y_prob, n_bins=n_bins, variant=variant, strategy=strategy, sample_weight=sample_weight
    )
    return curve.expected_calibration_error


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

    The plug-in squared error of a perfectly calibrated predictor is positive, the more so the fewer links a
    bin has. This estimate averages exactly zero there, so it can be compared between test sets of different
    size. It can be negative; that means no more than "indistinguishable from zero".

    Parameters
    ----------
    y_true : array-like (L,), values 0 and 1
    y_prob : array-like (L,), (L, 1) or (L, 2), in [0, 1]
    n_bins : int
    variant : {"positive", "top-label"}
    strategy : {"uniform", "quantile"}
        As in :func:`expected_calibration_error`.
    sample_weight : array-like (L,), >= 0, optional
        Importance of each link, which still counts as ONE observation: unlike in the other metrics, weight k
        is not the same as k copies, because copies are not independent and the noise of k copies is
        larger than that of k links. The scale of the weights does not matter; weight 0 leaves a link out.

    Returns
    -------
    float in [-1, 1]
        A squared error. Smaller is better, but not below zero.

    Raises
    ------
    InputError
        If an argument has the wrong shape, range or content, or no bin holds two links.

    Notes
    -----
    With residuals ``r_i = y_i - p_i``, ``W_b = sum_{i in b} w_i`` and bins with at least two links

        sum_b (W_b / W)  sum_{i != j in b} w_i w_j r_i r_j / sum_{i != j in b} w_i w_j,   W = sum_b W_b

    With unit weights a bin's term is ``(mean y - mean p)^2 - s^2 / n`` with s^2 the sample variance of the
    residuals. For a predictor with one value in each bin this is
    ``(mean y - p)^2 - (mean y)(1 - mean y) / (n - 1)``, the debiased estimator of Kumar, Liang and Ma; their
    label variance would over-correct where the probabilities differ inside a bin.

    References
    ----------
    Kumar, Liang, Ma: Verified Uncertainty Calibration, 2019, arXiv 1909.10155 (debiased estimator).

    Examples
    --------
    >>> round(debiased_calibration_error([1, 1, 1, 0], [0.5] * 4), 12)  # (3/4 - 1/2)^2 - (3/4)(1/4) / 3
    0.0
    """
    happened, confidence, weight, bins = binned_events(
        y_true, y_prob, n_bins, variant, strategy, sample_weight
    )
    shares = weight / weight.max()  # the scale cancels; squares of very small weights would underflow
    residual = shares * (happened - confidence)
    total = np.bincount(bins.bin_of, weights=shares)
    pairs = total**2 - np.bincount(bins.bin_of, weights=shares**2)
    # Zero for a single link; rounding noise where all other links of the bin weigh next to nothing.
    enough = pairs > 1e-12 * total**2
    if not enough.any():
        raise InputError("y_prob must put at least two links into one bin, got at most one link in each")
    products = np.bincount(bins.bin_of, weights=residual) ** 2 - np.bincount(bins.bin_of, weights=residual**2)
    mass = total[enough]
    return float(mass @ (products[enough] / pairs[enough]) / mass.sum())
