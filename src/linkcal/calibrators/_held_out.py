"""What held-out folds decide: ridge penalty, slope, and how far a logit may go."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, brentq, minimize
from scipy.special import expit, logit

from linkcal._core.maths import bernoulli_nll
from linkcal.calibrators._newton import FloatArray, RidgeProblem, cross_validated

# Bounds of slope and shares: a slope of 0 (of useless held-out logits) would tie all links.
_SLOPES, _SHARES = (0.01, 2.0), (1e-12, 0.5)
# Priors, without which few links could not separate shares and slope: links of each class that look like the
# other; rate of the exponential prior of a share; deviation of the normal prior of log slope.
_UNSEEN, _RARITY, _SPREAD = 0.5, 100.0, 0.25
# Largest gradient of the loss per unit of weight at which the search counts as done.
_STATIONARY = 1e-5
# Total weight beyond which the prior counts for nothing and the search would leave float64.
_MOST = 1e9
# Slope far beyond the limits, so that links keep their order there.
_REST = 0.01
# Candidates for the penalty, from strong to weak: each solution starts the next.
PENALTIES = tuple(float(f"{10.0**e:.3g}") for e in np.arange(3.0, -2.25, -0.5))
# Rows that choose; more would cost time and change little.
_FOLDS, _SELECTION_ROWS = 5, 10_000


@dataclass(frozen=True)
class Tails:
    """A map of logits that grows slowly where there are few links; it rises if ``lost + stray <= 1``.

    `lost` is the share of links that look like negatives, `stray` the reverse, `prior` the log odds of a
    link. With r = exp(logit - prior) the likelihood ratio becomes
    ``((1 - lost) r + lost) / ((1 - stray) + stray r)``, between ``lost / (1 - stray)`` and
    ``(1 - lost) / stray``. A hundredth of the slope stays everywhere.
    """

    prior: float
    lost: float
    stray: float

    def __call__(self, z: FloatArray) -> FloatArray:
        """Limited logits."""
        return self.of_ratio(z - self.prior)

    def of_ratio(self, ratio: FloatArray) -> FloatArray:
        """Limited logits where the logarithm of r is `ratio`."""
        above = np.logaddexp(np.log1p(-self.lost) + ratio, np.log(self.lost))
        below = np.logaddexp(np.log1p(-self.stray), np.log(self.stray) + ratio)
        return np.asarray(self.prior + (1.0 - _REST) * (above - below) + _REST * ratio)

    def intercept(self, logit_less_it: FloatArray, weight: FloatArray) -> float:
        """What has to be added to logits so that, limited, their mean probability is the share of links."""
        # Of the rarer class: a share near 1 would round, and no mean of probabilities might reach it.
        sign = -1.0 if self.prior > 0.0 else 1.0
        share, total = expit(sign * self.prior), weight.sum()

        def excess(intercept: float) -> float:
            mean = weight @ expit(sign * self(logit_less_it + intercept)) / total
            return float(sign * (mean - share))

        reach, low, high = 1.0, -logit_less_it.max(), -logit_less_it.min()
        while excess(low - reach) > 0.0 or excess(high + reach) < 0.0:
            reach *= 2.0
        return float(brentq(excess, low - reach, high + reach, xtol=1e-12, rtol=8.9e-16))


def fit_tails(z: FloatArray, y: FloatArray, weight: FloatArray) -> tuple[float, Tails, bool]:
    """Slope a and limits of ``limits(a z + b)`` for held-out logits z (n,); whether the search converged.

    Mode of the posterior under the priors above: a share unseen among n is about ``0.5 / (n + 100)``.
    """
    weight = weight * min(1.0, _MOST / float(weight.sum()))
    links, others = float(weight @ y), float(weight @ (1.0 - y))
    prior = float(np.log(links) - np.log(others))
    unseen = np.clip([_UNSEEN / (links + _UNSEEN), _UNSEEN / (others + _UNSEEN)], *_SHARES)
    mean = float(np.average(z, weights=weight))
    if float(np.ptp(z)) == 0.0:
        return 1.0, Tails(prior, *map(float, unseen)), True

    def loss(at: Any) -> tuple[float, FloatArray]:
        slope, shift, (lost, stray) = float(at[0]), float(at[1]), map(float, expit(at[2:]))
        ratio = slope * (z - mean) + shift
        limited = Tails(prior, lost, stray).of_ratio(ratio)
        # Shares of the terms with r in numerator and denominator.
        own_above, own_below = expit(ratio + np.log1p(-lost) - np.log(lost)), expit(ratio + at[3])
        pull = weight * (expit(limited) - y)
        by_ratio = pull * ((1.0 - _REST) * (own_above - own_below) + _REST)
        # By the log odds of each share, of the logarithms of numerator and denominator; then of the priors.
        by_lost = (1.0 - _REST) * pull @ ((1.0 - own_above) * (1.0 - lost) - own_above * lost)
        by_stray = -(1.0 - _REST) * pull @ (own_below * (1.0 - stray) - (1.0 - own_below) * stray)
        by_lost = by_lost - _UNSEEN * (1.0 - lost) + _RARITY * lost * (1.0 - lost)
        by_stray = by_stray - _UNSEEN * (1.0 - stray) + _RARITY * stray * (1.0 - stray)
        by_slope = by_ratio @ (z - mean) + np.log(slope) / (_SPREAD**2 * slope)
        value = weight @ bernoulli_nll(limited, y) - _UNSEEN * (np.log(lost) + np.log(stray))
        value += _RARITY * (lost + stray) + (np.log(slope) / _SPREAD) ** 2 / 2.0
        return float(value), np.array([by_slope, by_ratio.sum(), by_lost, by_stray])

    start = np.array([1.0, mean - prior, *logit(unseen)])
    low, high = map(float, logit(_SHARES))
    bounds = Bounds([_SLOPES[0], -np.inf, low, low], [_SLOPES[1], np.inf, high, high])
    found = minimize(
        loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-14, "gtol": 1e-8}
    )
    step = np.clip(found.x - loss(found.x)[1], bounds.lb, bounds.ub) - found.x
    converged = bool(np.abs(step).max() <= _STATIONARY * max(1.0, links + others))
    return float(found.x[0]), Tails(prior, *map(float, expit(found.x[2:]))), converged


def choose_held_out(
    problem: RidgeProblem, strength: FloatArray, start: FloatArray, penalty: float | None
) -> tuple[float, float, Tails, bool]:
    """Penalty of the lowest held-out loss (or the given one), and :func:`fit_tails` of held-out logits."""
    candidates = PENALTIES if penalty is None else (penalty,)
    held_out = _held_out(problem)
    if held_out is None:  # a single link of a class: strongest penalty, slope 1
        return candidates[0], *fit_tails(np.zeros_like(problem.y), problem.y, problem.weight)
    links, fold = held_out
    path = cross_validated(links, [value * strength for value in candidates], fold, start)
    return candidates[path.best], *fit_tails(path.logit, links.y, links.weight)


def _held_out(problem: RidgeProblem) -> tuple[RidgeProblem, NDArray[np.intp]] | None:
    """Links that choose and their stratified folds (None if a class has a single link).

    A link of weight w > 1 is split into up to five equal parts in different folds, as its copies would be.
    """
    y = problem.y
    parts = np.clip(np.ceil(problem.weight - 1e-9), 1, _FOLDS).astype(np.intp)
    n_folds = min(_FOLDS, int(parts[y == 0.0].sum()), int(parts[y == 1.0].sum()))
    if n_folds < 2:
        return None
    # A fixed seed: the links come sorted, so the folds depend on the links alone.
    order = np.random.default_rng(0).permutation(len(y))
    first_fold, chosen = np.zeros(len(y), dtype=np.intp), []
    for value in (0.0, 1.0):
        rows = order[y[order] == value]
        rows = rows[: max(n_folds, round(len(rows) * min(1.0, _SELECTION_ROWS / len(y))))]
        first_fold[rows] = np.arange(len(rows)) % n_folds
        chosen.append(rows)
    rows = np.sort(np.concatenate(chosen))
    parts = np.minimum(parts[rows], n_folds)
    copies = problem.take(np.repeat(rows, parts))
    number = np.arange(len(copies.y)) - np.repeat(np.cumsum(parts) - parts, parts)
    fold = (np.repeat(first_fold[rows], parts) + number) % n_folds
    return replace(copies, weight=copies.weight / np.repeat(parts, parts)), fold
