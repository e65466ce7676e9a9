"""The shape of a reliability curve in one word."""

from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from linkcal._core.maths import FloatArray
from linkcal.metrics._inputs import probability_links
from linkcal.metrics.calibration import calibration_floor, reliability_curve

# Level of every test below.
_ALPHA = 0.05
# Fewer links than this in a group, and the normal approximation to its share of links is poor.
_SMALLEST_GROUP = 10


class CalibrationPattern(IntEnum):
    """Shapes of reliability curves. The integer is what result tables store; it never changes its meaning.

    Confidence is p in a positive prediction (p > 0.5), else 1 - p. :func:`calibration_pattern` has the rules.

    Examples
    --------
    >>> CalibrationPattern(4), CalibrationPattern.U_SHAPED.label
    (<CalibrationPattern.OVERCONFIDENT: 4>, 'u-shaped')
    """

    CALIBRATED = 0
    OVER_POSITIVE_UNDER_NEGATIVE = 1
    UNDER_POSITIVE_OVER_NEGATIVE = 2
    U_SHAPED = 3
    OVERCONFIDENT = 4
    UNDERCONFIDENT = 5
    OTHER = 6

    @property
    def label(self) -> str:
        """The name for tables, such as ``over-positive-under-negative``."""
        return self.name.lower().replace("_", "-")


def calibration_pattern(
    y_true: Any, y_prob: Any, *, floor_q95: float | None = None, n_bins: int = 15, random_state: int = 0
) -> CalibrationPattern:
    """Classify the reliability curve of link probabilities.

    Parameters
    ----------
    y_true, y_prob
        As in :func:`reliability_curve`.
    floor_q95 : float in [0, 1], optional
        ``calibration_floor(y_prob, n_bins=n_bins).q95``; computed if not given.
    n_bins, random_state : int
        Bins of equal width, and seed of the noise floor.

    Returns
    -------
    CalibrationPattern
        The first that applies of

        - CALIBRATED: the positive-class ECE is at most `floor_q95`.
        - U_SHAPED: the occupied bins can be cut into a left, a middle and a right group of neighbours, of at
          least 10 links each, of which the middle has a lower share of links than both others (one-sided z
          tests of two proportions at 5 % divided by the number of ways to cut).
        - OVER_POSITIVE_UNDER_NEGATIVE, UNDER_POSITIVE_OVER_NEGATIVE: probabilities are too high (too low) on
          both sides of 0.5.
        - OVERCONFIDENT, UNDERCONFIDENT: at least one side is so, and none the reverse.
        - OTHER: the ECE is beyond noise, but errors cancel within each side.

        A side (p > 0.5, or p <= 0.5) counts as over- or underconfident if ``|sum (y - p)|`` is beyond the
        95 % band of calibrated probabilities, ``1.96 sqrt(sum p (1 - p))``.

    Examples
    --------
    >>> y = [1] * 40 + [0] * 60 + [1] * 5 + [0] * 95
    >>> calibration_pattern(y, [0.9] * 100 + [0.4] * 100).label
    'over-positive-under-negative'
    >>> calibration_pattern(y, [0.4] * 100 + [0.05] * 100).label
    'calibrated'
    """
    label, prob, _ = probability_links(y_true, y_prob)
    curve = reliability_curve(label, prob, n_bins=n_bins)
    if floor_q95 is None:
        floor_q95 = calibration_floor(prob, n_bins=n_bins, random_state=random_state).q95
    if curve.expected_calibration_error <= floor_q95:
        return CalibrationPattern.CALIBRATED
    if _is_u_shaped(curve.frequency * curve.count, curve.count.astype(np.float64)):
        return CalibrationPattern.U_SHAPED
    positive, negative = (_excess(label, prob, side) for side in (prob > 0.5, prob <= 0.5))
    if positive == negative:
        return _EQUAL_EXCESS[positive]
    # Overconfidence: too many links among negative predictions, or too few among positive ones.
    return CalibrationPattern.OVERCONFIDENT if negative > positive else CalibrationPattern.UNDERCONFIDENT


#: Pattern if both sides of 0.5 have more links than predicted (1), fewer (-1), or neither.
_EQUAL_EXCESS = {
    1: CalibrationPattern.UNDER_POSITIVE_OVER_NEGATIVE,
    0: CalibrationPattern.OTHER,
    -1: CalibrationPattern.OVER_POSITIVE_UNDER_NEGATIVE,
}


def _excess(label: FloatArray, prob: FloatArray, side: NDArray[np.bool_]) -> int:
    """1 if a side has more links than predicted, -1 if fewer, 0 within the 95 % band or without links."""
    y, p = label[side], prob[side]
    gap, band = (y - p).sum(), norm.isf(_ALPHA / 2) * np.sqrt((p * (1.0 - p)).sum())
    return int(np.sign(gap)) if abs(gap) > band + 1e-9 else 0


def _is_u_shaped(links: FloatArray, pairs: FloatArray) -> bool:
    """Whether bins (B,) with `links` of `pairs` fall and rise again beyond noise."""
    if pairs.size < 3:
        return False
    # first, last: the middle group is bins first..last - 1, with at least one bin on each side.
    first, last = (i + 1 for i in np.triu_indices(pairs.size - 1, 1))
    threshold = norm.isf(_ALPHA / first.size)
    all_links, all_pairs = (np.concatenate([[0.0], np.cumsum(v)]) for v in (links, pairs))
    middle = all_links[last] - all_links[first], all_pairs[last] - all_pairs[first]
    left = all_links[first], all_pairs[first]
    right = all_links[-1] - all_links[last], all_pairs[-1] - all_pairs[last]
    enough = np.minimum(np.minimum(left[1], right[1]), middle[1]) >= _SMALLEST_GROUP
    higher = (_z(*left, *middle) > threshold) & (_z(*right, *middle) > threshold)
    return bool((enough & higher).any())


def _z(links_a: FloatArray, pairs_a: FloatArray, links_b: FloatArray, pairs_b: FloatArray) -> FloatArray:
    """Pooled z statistic of ``share a - share b``; 0 where the pooled share is 0 or 1: the shares agree."""
    share = (links_a + links_b) / (pairs_a + pairs_b)
    variance = share * (1.0 - share) * (1.0 / pairs_a + 1.0 / pairs_b)
    difference = links_a / pairs_a - links_b / pairs_b
    return np.divide(difference, np.sqrt(variance), out=np.zeros_like(difference), where=variance > 1e-15)
