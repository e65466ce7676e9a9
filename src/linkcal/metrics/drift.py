"""Whether probabilities still hold: for labels as they come in, and for pairs without labels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import comb
from scipy.stats import ks_2samp

from linkcal._core.maths import FloatArray, bernoulli_nll, logit
from linkcal._core.validation import check_binary_labels, check_fraction, check_probabilities, to_numpy
from linkcal.exceptions import InputError
from linkcal.metrics.groups import segment_members

#: Recalibrations a + b logit(p) that the test bets on: wrong base rates, over- and underconfidence.
_BETS = ((0.5, 1.0), (-0.5, 1.0), (1.0, 1.0), (-1.0, 1.0), (0.0, 0.5), (0.0, 2.0))
#: Fewer new pairs can hardly look unlike others.
_FEW = 50
#: The share of the bet on each.
_STAKES = np.array([0.35, 0.35, 0.075, 0.075, 0.075, 0.075])
#: One class before the other is no accident where chance orders labels so with a smaller probability.
_BY_CHANCE = 1e-4


@dataclass(frozen=True)
class CalibrationAlarm:
    """Evidence that probabilities do not hold, after each label; ``str`` says it in a sentence.

    Parameters
    ----------
    e_value : float64 (L,)
        Evidence after each label: 1 at the start, and above ``1 / alpha`` at any time with probability
        `alpha` at most if the probabilities hold.
    alpha : float
        That probability, in (0, 1).
    segment, segment_e_value : tuple of str and float64 (S,)
        Segments, ``"all"`` first, and the evidence of each after the last label.
    observed, expected : float
        Links among the labels, and the sum of their probabilities.
    """

    e_value: FloatArray
    alpha: float
    segment: tuple[str, ...]
    segment_e_value: FloatArray
    observed: float
    expected: float

    @property
    def alarm(self) -> bool:
        """Whether the alarm was raised."""
        return self.first is not None

    @property
    def first(self) -> int | None:
        """Number of labels after which the alarm was raised; None without an alarm."""
        beyond = np.flatnonzero(self.e_value >= 1.0 / self.alpha)
        return int(beyond[0]) + 1 if beyond.size else None

    def __str__(self) -> str:
        largest = float(self.e_value.max(initial=1.0))
        found = (
            f"{self.observed:g} links where {self.expected:.1f} are expected; the evidence reached "
            f"{largest:.3g}, the alarm is at {1.0 / self.alpha:.3g}"
        )
        if not self.alarm:
            return f"No alarm after {self.e_value.size:,} labels: {found}."
        where = self.segment[int(np.argmax(self.segment_e_value))]
        if self.observed == self.e_value.size:
            return (
                f"All {self.e_value.size:,} labels are links, where {self.expected:.1f} are expected: if "
                "negatives are never labelled, these labels say nothing about the probabilities."
            )
        return (
            f"The probabilities do not hold: alarm after {self.first:,} of {self.e_value.size:,} labels "
            f"({found}); the evidence is largest in {where}. Refresh or refit the calibrator."
        )


def calibration_alarm(
    y_true: ArrayLike,
    y_prob: ArrayLike,
    groups: Mapping[str, ArrayLike] | None = None,
    *,
    alpha: float = 0.05,
) -> CalibrationAlarm:
    """Test that probabilities hold for labels in the order in which they came, at any time.

    One may look after every label and stop at will: the chance of an alarm is at most `alpha` over all times
    together, for labels that are drawn one by one with exactly these probabilities. Those of a fitted
    calibrator are never exact: many labels find small errors too, so read the size of the deviation.

    Parameters
    ----------
    y_true, y_prob : array-like (L,)
        Labels in their order, and the probabilities that were given for them before they were known.
    groups : mapping of str to array-like (L,), optional
        Groupings as in :func:`group_calibration`; half of the bet is on all links, half on the segments.
    alpha : float in (0, 1)
        Probability of an alarm at any time if the probabilities hold.

    Returns
    -------
    CalibrationAlarm
        InputError if an argument has the wrong shape, range or content, or the labels are sorted by class.

    Notes
    -----
    The evidence of a segment is a weighted mean, over six recalibrations ``q = sigmoid(a + b logit p)``, of
    the likelihood ratios of q to p for its labels so far. Each ratio is a martingale of mean 1 if the labels
    are Bernoulli(p), and so are their means: by Ville's inequality they reach ``1 / alpha`` with probability
    `alpha` at most (Arnold, Henzi, Ziegel, arXiv 2109.11761; Vovk, Wang, arXiv 1912.06116).

    Examples
    --------
    >>> y = np.arange(300) % 4 == 0
    >>> calibration_alarm(y, np.full(300, 0.25)).first is None
    True
    >>> print(calibration_alarm(y, np.full(300, 0.5)))              # doctest: +ELLIPSIS
    The probabilities do not hold: alarm after 39 of 300 labels (75 links where 150.0 are expected; ...
    """
    prob = check_probabilities(y_prob)
    label = check_binary_labels(y_true, prob.size)
    check_fraction(alpha, "alpha")
    links, others = prob[label == 1.0], prob[label == 0.0]
    is_sorted = np.count_nonzero(np.diff(label)) == 1 and 2.0 / comb(prob.size, links.size) < _BY_CHANCE
    # Probabilities that separate the classes may come in any order.
    if is_sorted and links.min() <= others.max():
        raise InputError(
            "labels (y_true) must be in the order in which they came, got one class before the other: where "
            "the order is lost, shuffle the links"
        )
    z = logit(prob)
    step = np.array([bernoulli_nll(z, label) - bernoulli_nll(a + b * z, label) for a, b in _BETS])
    names, member = ["all"], np.ones((1, prob.size))
    if groups:
        parts, members = segment_members(groups, prob.size)
        names, member = [*names, *parts], np.vstack([member, members.toarray()])
    weight = np.full(len(names), 0.5 / max(len(names) - 1, 1))
    weight[0] = 0.5 if groups else 1.0
    total, last = np.zeros(prob.size), np.ones(len(names))
    for number, inside in enumerate(member):
        with np.errstate(over="ignore"):  # infinite evidence is an alarm
            evidence = _STAKES @ np.exp(np.cumsum(step * inside, axis=1))
        total += weight[number] * evidence
        last[number] = evidence[-1] if prob.size else 1.0
    return CalibrationAlarm(total, float(alpha), tuple(names), last, float(label.sum()), float(prob.sum()))


@dataclass(frozen=True)
class PopulationTest:
    """Whether new pairs look like those of the calibration; ``str`` says it in a sentence.

    Parameters
    ----------
    p_value : float
        Upper bound on the chance of a largest difference at least as large between two samples of one
        population.
    column : str
        The column that differs most.
    distance : float
        Largest difference of the two distribution functions of that column, in [0, 1].
    num_pairs : int
        New pairs.
    alpha : float
        Probability of an alarm if new pairs are drawn like those of the calibration.
    """

    p_value: float
    column: str
    distance: float
    num_pairs: int
    alpha: float = 0.05

    @property
    def alarm(self) -> bool:
        """Whether the p-value is at most `alpha`."""
        return self.p_value <= self.alpha

    def __str__(self) -> str:
        shown = f"{self.column} differs most (by {self.distance:.2f} of 1, p-value {self.p_value:.2g})"
        if not self.alarm and self.num_pairs < _FEW:
            return f"{self.num_pairs:,} pairs are too few to tell; at least {_FEW} are needed."
        if not self.alarm:
            return f"The {self.num_pairs:,} pairs look like those of the calibration: {shown}."
        return (
            f"The {self.num_pairs:,} pairs do not look like those of the calibration: {shown}. Probabilities "
            "may not hold for them: were they chosen like the calibration links and negatives, with the same "
            "share of links (else state their base rate)?"
        )


def same_population(
    reference: ArrayLike, new: ArrayLike, names: Sequence[str], *, alpha: float = 0.05
) -> PopulationTest:
    """Test that pairs without labels are drawn like those of the calibration.

    Parameters
    ----------
    reference, new : array-like (R, k) and (L, k)
        What is known of the pairs: the logit and structural columns.
    names : sequence of str (k,)
        Names of the columns.
    alpha : float in (0, 1)
        Probability of an alarm if the pairs are drawn alike.

    Returns
    -------
    PopulationTest
        InputError if a shape is wrong, a sample is empty or a value is not finite.

    Notes
    -----
    A Kolmogorov-Smirnov test for each column, conservative where values are tied; the p-value is that of the
    smallest, times k (Bonferroni).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> seen, moved = rng.normal(size=(500, 2)), rng.normal(size=(200, 2)) + [0.0, 1.0]
    >>> same_population(seen, moved, ["degree", "logit"]).column
    'logit'
    """
    level = check_fraction(alpha, "alpha")
    samples = [np.asarray(to_numpy(values), dtype=np.float64) for values in (reference, new)]
    for name, values in zip(("reference", "new"), samples, strict=True):
        if values.ndim != 2 or values.shape[1] != len(names) or not values.size:
            raise InputError(f"{name} must have shape (pairs, {len(names)}), got {list(values.shape)}")
        if not np.isfinite(values).all():
            raise InputError(f"{name} must be finite, got {int((~np.isfinite(values)).sum())} other values")
    found: list[Any] = [ks_2samp(a, b, method="asymp") for a, b in zip(*(s.T for s in samples), strict=True)]
    worst = min(range(len(found)), key=lambda k: (found[k].pvalue, -found[k].statistic))
    p_value = min(1.0, len(found) * float(found[worst].pvalue))
    return PopulationTest(p_value, names[worst], float(found[worst].statistic), len(samples[1]), level)
