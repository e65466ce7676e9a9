"""The noise floor: the calibration error of a perfectly calibrated predictor on as many links."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from linkcal._core.validation import check_fraction, check_positive_int
from linkcal.exceptions import InputError
from linkcal.metrics._inputs import FloatArray
from linkcal.metrics.calibration import Strategy, Variant, binned_links

__all__ = ["CalibrationFloor", "NullBand", "calibration_floor", "calibration_null_band"]

# Random numbers per chunk: 1 MB of float64 stays in a core's cache.
_CHUNK = 1 << 17


class CalibrationFloor(NamedTuple):
    """Mean and 95 % quantile of the ECE that the same probabilities have when they are right.

    Parameters
    ----------
    mean, q95 : float in [0, 1]
        An observed ECE above `q95` is evidence of miscalibration at the 5 % level.

    Examples
    --------
    >>> calibration_floor([0.0] * 5 + [1.0] * 5)  # certain and right: no draw differs
    CalibrationFloor(mean=0.0, q95=0.0)
    """

    mean: float
    q95: float


class NullBand(NamedTuple):
    """Mean and two-sided band of the ECE that the same probabilities have when they are right.

    Parameters
    ----------
    mean, lower, upper : float in [0, 1]

    Examples
    --------
    >>> band = NullBand(mean=0.09, lower=0.06, upper=0.12)
    >>> band.is_consistent(0.10), band.is_consistent(0.20)
    (True, False)
    """

    mean: float
    lower: float
    upper: float

    def is_consistent(self, ece: float) -> bool:
        """Whether an observed ECE is at most `upper`: no evidence against calibration.

        A value below `lower` is a sign that the probabilities were fitted to these labels.
        """
        return bool(ece <= self.upper)


def _null_errors(y_prob: Any, n_resamples: int, random_state: Any, *binning: Any) -> FloatArray:
    """ECE (R,) of R label vectors drawn as y_i ~ Bernoulli(p_i), independently."""
    n_resamples = check_positive_int(n_resamples, "n_resamples")
    rng = generator_of(random_state)
    links = binned_links(None, y_prob, *binning)
    order = np.argsort(links.bin_of, kind="stable")
    # For the top label too: if y ~ Bernoulli(p), the prediction is right with probability max(p, 1 - p).
    chance, weight = links.confidence[order], links.weight[order]
    starts = np.searchsorted(links.bin_of[order], np.arange(links.lower.size))
    expected = np.add.reduceat(weight * chance, starts)
    errors = np.empty(n_resamples)
    rows = max(1, _CHUNK // chance.size)
    for first in range(0, n_resamples, rows):
        last = min(first + rows, n_resamples)
        # A uniform number in [0, 1) is below p with probability p: exact also for p = 0 and p = 1.
        happened = rng.random((last - first, chance.size)) < chance
        observed = np.add.reduceat(happened * weight, starts, axis=1)
        errors[first:last] = np.abs(observed - expected).sum(axis=1)
    errors /= weight.sum()
    return errors


def generator_of(random_state: Any) -> np.random.Generator:
    if isinstance(random_state, np.random.Generator):
        return random_state
    if random_state is not None and (
        isinstance(random_state, bool) or not isinstance(random_state, (int, np.integer)) or random_state < 0
    ):
        raise InputError(
            f"random_state must be a whole number >= 0, a numpy Generator or None, got {random_state!r}"
        )
    return np.random.default_rng(random_state)


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
    """ECE that these probabilities would have if they were perfectly calibrated.

    An ECE above `q95` is evidence of miscalibration at the 5 % level; one near `mean` is what a calibrated
    predictor has on as few links. Each predictor has its own floor, from independent ``y_i ~ Bernoulli(p_i)``
    (consistency resampling; Vaicenavicius et al., arXiv 1902.06977).

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
    errors = _null_errors(y_prob, n_resamples, random_state, n_bins, variant, strategy, sample_weight)
    return CalibrationFloor(float(errors.mean()), float(np.quantile(errors, 0.95)))


def calibration_null_band(
    y_prob: Any,
    *,
    level: float = 0.95,
    n_bins: int = 15,
    variant: Variant = "positive",
    strategy: Strategy = "uniform",
    sample_weight: Any = None,
    n_resamples: int = 1000,
    random_state: int | np.random.Generator | None = 0,
) -> NullBand:
    """Band in which the ECE of these probabilities lies with probability `level` if they are right.

    Parameters
    ----------
    y_prob, n_bins, variant, strategy, sample_weight, n_resamples, random_state
        As in :func:`calibration_floor`.
    level : float in (0, 1)
        Probability of the band; half of the rest lies on each side.

    Returns
    -------
    NullBand
        Unpacks as ``(mean, lower, upper)``; ``is_consistent(ece)`` compares an observed ECE with it.

    Examples
    --------
    >>> band = calibration_null_band([(i + 0.5) / 200 for i in range(200)])
    >>> round(band.lower, 2), round(band.upper, 2), band.is_consistent(0.087)
    (0.06, 0.12, True)
    """
    tail = (1.0 - check_fraction(level, "level")) / 2.0
    errors = _null_errors(y_prob, n_resamples, random_state, n_bins, variant, strategy, sample_weight)
    lower, upper = np.quantile(errors, [tail, 1.0 - tail])
    return NullBand(float(errors.mean()), float(lower), float(upper))
