"""What held-out folds of the calibration links decide: ridge penalty, slope and limits of the logit."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from linkcal.calibrators._ridge import RidgeProblem, cross_validated
from linkcal.calibrators._tails import Tails, fit_tails

__all__ = ["HeldOutChoice", "choose_held_out"]

FloatArray = NDArray[np.float64]

# Candidates for the penalty, from strong to weak: each solution starts the next.
PENALTIES = tuple(float(f"{10.0**e:.3g}") for e in np.arange(3.0, -2.25, -0.5))

_FOLDS = 5

# Rows that choose. The penalty is the precision of a prior, the same for more rows, so that more of them
# would cost time and change little.
_SELECTION_ROWS = 10_000


@dataclass(frozen=True)
class HeldOutChoice:
    """Penalty, what the fitted logit is multiplied by, how it is limited then; whether these converged."""

    penalty: float
    slope: float
    tails: Tails
    converged: bool


def choose_held_out(
    problem: RidgeProblem, strength: FloatArray, start: FloatArray, penalty: float | None
) -> HeldOutChoice:
    """Penalty with the lowest held-out loss, and the slope and limits that its held-out logits ask for.

    The loss that is minimised in the fit sees its own links, so that its logits are a little too bold or,
    where the penalty is strong, too timid; held-out logits show by how much.

    Parameters
    ----------
    problem : RidgeProblem
    strength : ndarray of shape (m,)
        Relative penalties.
    start : ndarray of shape (m,)
    penalty : float, optional
        Given penalty: only slope and limits are chosen.

    Returns
    -------
    HeldOutChoice
        With a single link of a class nothing can be held out: the strongest penalty, slope 1, and the
        limits of links that none of the other class looks like.
    """
    candidates = PENALTIES if penalty is None else (penalty,)
    held_out = _held_out(problem)
    if held_out is None:
        nothing_told = np.zeros_like(problem.y)
        return HeldOutChoice(candidates[0], *fit_tails(nothing_told, problem.y, problem.weight))
    links, fold = held_out
    path = cross_validated(links, [value * strength for value in candidates], fold, start)
    return HeldOutChoice(candidates[path.best], *fit_tails(path.logit, links.y, links.weight))


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
