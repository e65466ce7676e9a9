"""What held-out folds of the calibration links decide: the ridge penalty and the slope of the final logit."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from linkcal.calibrators._logistic import fit_logistic
from linkcal.calibrators._ridge import RidgeProblem, cross_validated

__all__ = ["HeldOutChoice", "choose_held_out"]

FloatArray = NDArray[np.float64]

# Candidates for the penalty, from strong to weak: each solution starts the next.
PENALTIES = tuple(float(f"{10.0**e:.3g}") for e in np.arange(3.0, -2.25, -0.5))

_FOLDS = 5

# Rows that choose. The penalty is the precision of a prior, the same for more rows, so that more of them
# would cost time and change little.
_SELECTION_ROWS = 10_000

# Bounds of the slope. Held-out logits without use would ask for 0, which would tie all links; a threshold
# that separates them would ask for an infinite one.
_SLOPES = (0.01, 2.0)


@dataclass(frozen=True)
class HeldOutChoice:
    """Penalty, and what the fitted logit is multiplied by."""

    penalty: float
    slope: float


def choose_held_out(
    problem: RidgeProblem, strength: FloatArray, start: FloatArray, penalty: float | None
) -> HeldOutChoice:
    """Penalty with the lowest held-out loss, and the slope of Platt scaling on its held-out logits.

    The loss that is minimised in the fit sees its own links, so that its logits are a little too bold or,
    where the penalty is strong, too timid; held-out logits show by how much.

    Parameters
    ----------
    problem : RidgeProblem
    strength : ndarray of shape (m,)
        Relative penalties.
    start : ndarray of shape (m,)
    penalty : float, optional
        Given penalty: only the slope is chosen.

    Returns
    -------
    HeldOutChoice
        With a single link of a class nothing can be held out: the strongest penalty, and slope 1.
    """
    candidates = PENALTIES if penalty is None else (penalty,)
    held_out = _held_out(problem)
    if held_out is None:
        return HeldOutChoice(candidates[0], 1.0)
    links, fold = held_out
    path = cross_validated(links, [value * strength for value in candidates], fold, start)
    return HeldOutChoice(candidates[path.best], _platt_slope(path.logit, links.y, links.weight))


def _platt_slope(logit: FloatArray, y: FloatArray, weight: FloatArray) -> float:
    deviation = float(np.sqrt(np.average((logit - np.average(logit, weights=weight)) ** 2, weights=weight)))
    if deviation == 0.0:
        return 1.0
    # fit_logistic bounds the slope of the standardised logit.
    low, high = (bound * deviation for bound in _SLOPES)
    return float(fit_logistic(logit[:, None], y, weight, lower=low, upper=high).slope[0])


def _held_out(problem: RidgeProblem) -> tuple[RidgeProblem, NDArray[np.intp]] | None:
    """Links that choose and their stratified folds; None if a class has a single link.

    A link of weight w > 1 is split into up to five equal parts in different folds, as its copies would be.
    """
    y = problem.y
    parts = np.clip(np.ceil(problem.weight - 1e-9), 1, _FOLDS).astype(np.intp)
    n_folds = min(_FOLDS, int(parts[y == 0.0].sum()), int(parts[y == 1.0].sum()))
    if n_folds < 2:
        return None
    # A fixed seed: the links come sorted, so that the folds depend on nothing but the links.
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
