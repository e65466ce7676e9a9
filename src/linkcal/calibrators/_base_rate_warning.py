"""The warning of calibrators that cannot move the base rate."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from linkcal.exceptions import BaseRateWarning

__all__ = ["warn_base_rate"]

FloatArray = NDArray[np.float64]

# Gap between mean probability and share of links from which on the warning is given; the gap must also exceed
# this many standard errors, so that small calibration sets stay silent.
_GAP = 0.05
_STANDARD_ERRORS = 4.0


def warn_base_rate(name: str, p: FloatArray, y: FloatArray, weight: FloatArray) -> None:
    """Name a base-rate error that a temperature cannot repair, if there clearly is one.

    Clearly: mean p and the share of links differ by more than 0.05 and by more than four standard errors of
    the mean of ``y - p``; with weights n is Kish's effective number of rows.

    Parameters
    ----------
    name : str
        Of the calibrator, as users know it.
    p, y, weight : ndarray (n,)
        Calibrated probabilities, labels and weights of the calibration links.
    """
    # Shares of the weight: squares of huge or tiny weights would leave the range of float64.
    weight = weight / weight.max()
    mean_p, share = np.average(p, weights=weight), np.average(y, weights=weight)
    effective_n = weight.sum() ** 2 / (weight**2).sum()
    standard_error = np.sqrt(np.average((y - p) ** 2, weights=weight) / effective_n)
    gap = abs(mean_p - share)
    if gap > _GAP and gap > _STANDARD_ERRORS * standard_error:
        warnings.warn(
            f"the average probability {mean_p:.3g} differs from the observed share of links {share:.3g}: "
            f"{name} divides the logit by a temperature, which keeps its sign and cannot move the base rate; "
            "those with an intercept or bins can (platt, beta, isotonic, histogram, bbq, in-n-out-plus)",
            BaseRateWarning,
            stacklevel=4,
        )
