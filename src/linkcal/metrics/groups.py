"""Calibration by group: the segments in which probabilities are too high or too low."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, vstack

from linkcal._core.maths import FloatArray
from linkcal._core.validation import (
    check_binary_labels,
    check_fraction,
    check_positive_int,
    check_probabilities,
    is_missing,
    to_numpy,
)
from linkcal.exceptions import InputError
from linkcal.metrics.calibration import generator_of, of_resamples


@dataclass(frozen=True)
class GroupCalibration:
    """Observed less expected links by segment, and how large the largest deviation would be by chance.

    Parameters
    ----------
    segment, count, observed, expected : tuple of str, int64 and float64 (S,)
        ``"name=value"`` of each segment, its links, its positives, and the sum of its probabilities.
    z : float64 (S,)
        ``(observed - expected) / sqrt(sum p (1 - p))``; infinite where probabilities of 0 and 1 are wrong.
    bound, level : float
        The largest ``|z|`` of calibrated probabilities stays below `bound` with probability `level`.
    p_value : float
        Chance of a largest ``|z|`` at least as large as the observed one, if they are calibrated.
    """

    segment: tuple[str, ...]
    count: NDArray[np.int64]
    observed: FloatArray
    expected: FloatArray
    z: FloatArray
    bound: float
    p_value: float
    level: float

    @property
    def worst(self) -> int:
        """Index of the segment with the largest ``|z|``."""
        return int(np.argmax(np.abs(self.z)))

    @property
    def is_consistent(self) -> bool:
        """Whether no segment deviates more than calibrated probabilities would."""
        return bool(abs(self.z[self.worst]) <= self.bound)


def group_calibration(
    y_true: ArrayLike,
    y_prob: ArrayLike,
    groups: Mapping[str, ArrayLike],
    *,
    level: float = 0.95,
    n_resamples: int = 1000,
    random_state: int | np.random.Generator | None = 0,
) -> GroupCalibration:
    """Compare observed and expected positives in every segment, with one bound for all of them.

    Probabilities too high for hubs and too low for others can have an ECE of 0: name the segments you use.
    The bound is the `level` quantile of the largest ``|z|`` for independent ``y_i ~ Bernoulli(p_i)``. A
    segment whose probabilities are all 0 or 1 has z 0 if every label agrees, else infinite. Compare
    multicalibration, arXiv 1711.08513.

    Parameters
    ----------
    y_true, y_prob
        As in :func:`reliability_curve`.
    groups : mapping of str to array-like (L,)
        Groupings by name; each different value is a segment. Segments may overlap.
    level, n_resamples, random_state
        Probability of the bound; label vectors drawn for it, and seed, as in :func:`calibration_floor`.

    Examples
    --------
    >>> import numpy as np
    >>> hub = np.arange(400) < 200
    >>> y = np.where(hub, np.arange(400) % 4 > 0, np.arange(400) % 4 == 0)      # 75 % and 25 %, 50 % in all
    >>> found = group_calibration(y, np.full(400, 0.5), {"hub": hub})
    >>> found.segment, found.z.round(2).tolist(), found.is_consistent
    (('hub=False', 'hub=True'), [-7.07, 7.07], False)
    """
    prob = check_probabilities(y_prob)
    label = check_binary_labels(y_true, prob.size)
    check_fraction(level, "level")
    check_positive_int(n_resamples, "n_resamples")
    rng = generator_of(random_state)
    if not prob.size or not groups:
        raise InputError(f"groups must name at least one grouping of links, got {len(groups)} of {prob.size}")
    segment, member = segment_members(groups, prob.size)
    variance = member @ (prob * (1.0 - prob))
    expected = member @ prob

    def z_of(labels: FloatArray) -> FloatArray:
        """(R, S) from labels (R, L)."""
        residual = (member @ labels.T).T - expected
        with np.errstate(divide="ignore", invalid="ignore"):
            # Sums of zeros and ones are exact, so that 0 / 0 is agreement, not rounding.
            return np.where((variance == 0) & (residual == 0), 0.0, residual / np.sqrt(variance))

    z = z_of(label[None])[0]
    largest = of_resamples(prob, n_resamples, rng, lambda y: np.abs(z_of(y.astype(np.float64))).max(axis=1))
    beyond = int((largest >= np.abs(z).max()).sum())
    return GroupCalibration(
        segment=segment, count=np.asarray(member.sum(axis=1)).astype(np.int64), observed=member @ label,
        expected=expected, z=z, bound=float(np.quantile(largest, level, method="higher")),
        p_value=(1 + beyond) / (1 + n_resamples), level=float(level),
    )  # fmt: skip


def segment_members(groups: Mapping[str, ArrayLike], num_links: int) -> tuple[tuple[str, ...], csr_array]:
    """Names (S,) of the segments and which links they hold, (S, L) of zeros and ones."""
    names: list[str] = []
    members = []
    for name, values in groups.items():
        value = to_numpy(values)
        if value.shape != (num_links,):
            raise InputError(f"groups[{name!r}] must have shape ({num_links},), got {value.shape}")
        if is_missing(value).any():
            raise InputError(f"groups[{name!r}] must name a segment for each link, got missing values")
        try:
            different, segment = np.unique(value, return_inverse=True)
        except TypeError as error:
            raise InputError(f"groups[{name!r}] must hold values of one kind, got {error}") from error
        members.append(csr_array((np.ones(num_links), (segment, np.arange(num_links)))))
        names += [f"{name}={each}" for each in different.tolist()]
    return tuple(names), vstack(members, format="csr")
