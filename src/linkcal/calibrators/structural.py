"""In-n-Out as a convex additive model: what the own edge does, and where the link sits in the graph."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, Literal, final

import numpy as np

from linkcal._columns import STRUCTURAL_COLUMNS, TOGGLE_COLUMNS
from linkcal._validation import check_choice, check_flag, check_positive_float, check_positive_int
from linkcal.calibrators._additive import AdditiveBasis, AdditiveModel, Term, merged_links
from linkcal.calibrators._held_out import choose_held_out
from linkcal.calibrators._offset import fit_offset
from linkcal.calibrators._ridge import RidgeProblem, RidgeSolution, fit_ridge
from linkcal.calibrators.base import Calibrator, FloatArray, LinkFeatures, StateKind
from linkcal.exceptions import ConvergenceWarning, InputError

__all__ = ["StructuralCalibrator"]

FeatureSet = Literal["all", "toggle", "structure", "logit"]
_FEATURE_SETS: tuple[str, ...] = ("all", "toggle", "structure", "logit")


@final
class StructuralCalibrator(Calibrator):
    """Additive logistic model of the logit, of what the link's own edge does, and of its place in the graph.

    ``p = sigmoid(a(gamma, sign s) s + b(gamma))``: the temperature of In-n-Out becomes a free slope, by sign
    of the logit, and an offset is added, so that the map can move base rates and cross 0.5. Unlike maps of
    the logit alone it can rank links better than the predictor did. The fit is convex, has no random part and
    takes a fraction of a second for some thousands of links.

    Parameters
    ----------
    features : {"all", "toggle", "structure", "logit"}, default="all"
        Columns 1.. of X that are used: all; those that need toggling; degrees and common neighbours; none.
    n_knots : int, default=4
        Inner knots of each curve, at quantiles.
    penalty : float, optional
        Ridge penalty. By default chosen by 5-fold cross-validation of the negative log-likelihood inside the
        calibration links.
    monotone : bool, default=False
        Whether p may not fall with the logit while the other columns stay as they are.

    Attributes
    ----------
    intercept_ : float
        Mean calibrated logit of the calibration links.
    terms_ : list of str
        Names of the terms: ``logit``, then the columns used (``linkcal.features.STRUCTURAL_COLUMNS``).
    columns_ : list of int
        Their columns in X.
    scale_ : ndarray of shape (c,)
        A column x enters as ``t = asinh(x / scale)``, with the median of |x|; 0 where it enters as it is.
    mean_, deviation_ : ndarray of shape (c,)
        Standardise the clipped columns in products.
    knots_, values_ : ndarray of shape (m,)
        Knots and values of all curves, one after the other.
    starts_ : ndarray of shape (c + 1,)
        Where each curve begins in them.
    products_ : ndarray of shape (2, c)
        Slopes of ``max(t_logit, 0) z`` and ``min(t_logit, 0) z`` for each standardised column z.
    pairs_ : ndarray of shape (c, c)
        Half of the coefficient of ``z_i z_j``, symmetric; 0 for the logit and on the diagonal.
    penalty_ : float
    slope_ : float
        Slope of the final map, already in the values of the terms.
    n_iter_ : int
        Newton steps of the final fit.
    converged_ : bool
    classes_ : ndarray of shape (2,)
    n_features_in_ : int

    Warns
    -----
    ConvergenceWarning
        If the Newton steps ended before the tolerance.

    Notes
    -----
    The logit and the logit's change pass through asinh, because their tails are long. All columns but the
    logit are clipped at their 0.2 and 99.8 % quantiles; the logit's curve goes on straight, so that the ends
    of the ranking keep their order. Every column has a curve, piecewise linear with knots at quantiles (and
    at 0 for the logit); products with both sides of the logit play the part of the paper's two networks, and
    products of pairs of the other columns (of up to 10) let, say, a common neighbour count less between nodes
    of high degree. The sum of negative log-likelihoods plus ``penalty / 2`` times the squared coefficients
    (of columns scaled to unit deviation; straight lines count 0.1, bends 1, products 3) is minimised by
    damped Newton steps in float64. The fit has seen its own links, so a last step asks 5 held-out folds: the
    slope of Platt scaling on their logits at the chosen penalty, within 0.01 and 2, multiplies all terms, and
    the intercept then makes the mean probability the share of links. With ``monotone=True`` the logit's curve
    rises between its knots and products with it are built of factors that keep the sign, all with
    coefficients >= 0.

    With a single column, or ``features="logit"``, it is a smooth one-dimensional map. If X has not the seven
    columns of the feature kind ``"structural"``, every column after the logit is a feature of its own, and
    only ``"all"`` and ``"logit"`` can be asked for. With a single link of a class nothing can be held out and
    the strongest penalty is taken, with slope 1. Beyond 10,000 links, so many of them choose the penalty and
    the slope; all of them are fitted.

    The form, the relative penalties and the number of knots were chosen by cross-validation inside the
    validation links of Cora, CiteSeer, Bitcoin Alpha and Chameleon, the products of pairs also of Bitcoin OTC
    and Twitch PT; no test link was read.

    References
    ----------
    arXiv 2403.04605 (In-n-Out). Hastie, Tibshirani: Generalized Additive Models, 1986.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> s, common = rng.normal(size=500), rng.poisson(1.0, size=500)
    >>> y = rng.random(500) < 1 / (1 + np.exp(-s - common + 1))
    >>> X = np.column_stack((s, np.log1p(common)))
    >>> calibrator = StructuralCalibrator().fit(X, y)
    >>> sorted(calibrator.contributions(X))
    ['feature_1', 'intercept', 'logit']
    """

    link_features: ClassVar[LinkFeatures] = "structural"

    _state: ClassVar[dict[str, StateKind]] = {
        "intercept_": float,
        "terms_": list,
        "columns_": list,
        "scale_": 1,
        "mean_": 1,
        "deviation_": 1,
        "knots_": 1,
        "values_": 1,
        "starts_": 1,
        "products_": 2,
        "pairs_": 2,
        "penalty_": float,
        "slope_": float,
        "n_iter_": int,
        "converged_": bool,
    }

    intercept_: float
    terms_: list[str]
    columns_: list[int]
    scale_: FloatArray
    mean_: FloatArray
    deviation_: FloatArray
    knots_: FloatArray
    values_: FloatArray
    starts_: FloatArray
    products_: FloatArray
    pairs_: FloatArray
    penalty_: float
    slope_: float
    n_iter_: int
    converged_: bool

    def __init__(
        self,
        *,
        features: FeatureSet = "all",
        n_knots: int = 4,
        penalty: float | None = None,
        monotone: bool = False,
    ) -> None:
        self.features = features
        self.n_knots = n_knots
        self.penalty = penalty
        self.monotone = monotone

    def contributions(self, X: Any) -> dict[str, FloatArray]:
        """Why each link has its probability: terms of its calibrated logit, by name.

        Parameters
        ----------
        X : array-like of shape (n, 1 + k)

        Returns
        -------
        dict of str to ndarray of shape (n,)
            ``intercept`` (with the offset of ``refresh``), ``logit`` and a term for each column used
            (``terms_``); each but the intercept has mean 0 over the calibration links. A product of two
            columns counts half for each. Added up in this order they are :meth:`decision_function`.
        """
        X = self._check_predict(X)
        columns = self._model().contributions(X[:, self.columns_])
        terms = {name: columns[:, j] for j, name in enumerate(self.terms_)}
        return {"intercept": np.full(len(X), self.intercept_ + getattr(self, "offset_", 0.0)), **terms}

    def _fit(self, X: FloatArray, y: FloatArray, weight: FloatArray) -> None:
        n_knots = check_positive_int(self.n_knots, "n_knots", minimum=0)
        monotone = check_flag(self.monotone, "monotone")
        self.terms_, self.columns_ = self._named_columns(X.shape[1])
        X, y, weight = merged_links(X[:, self.columns_], y, weight)
        squeezed = np.array([name in ("logit", "logit_change") for name in self.terms_])
        basis = AdditiveBasis.of(X, weight, squeezed, n_knots)
        terms = basis.terms(basis.columns(X), monotone=monotone)
        design, deviation = _standardised(terms, weight)
        problem, strength, start = _problem(design, terms, y, weight)
        given = None if self.penalty is None else check_positive_float(self.penalty, "penalty")
        choice = choose_held_out(problem, strength, start, given)
        solution = fit_ridge(problem, choice.penalty * strength, start)
        theta = choice.slope * solution.theta[1:]
        self.penalty_, self.slope_ = choice.penalty, choice.slope
        # After the slope, so that the mean probability is the share of links.
        self.intercept_ = fit_offset(design[:, 1:] @ theta, y, weight)[0]
        self._keep(AdditiveModel.from_coefficients(basis, terms, theta / deviation, X, weight), solution)

    def _named_columns(self, n_columns: int) -> tuple[list[str], list[int]]:
        """Names of the terms and their columns in X."""
        chosen = check_choice(self.features, "features", _FEATURE_SETS)
        structural = n_columns == 1 + len(STRUCTURAL_COLUMNS)
        if not structural and chosen in ("toggle", "structure"):
            raise InputError(
                f"X must have {1 + len(STRUCTURAL_COLUMNS)} columns for features={chosen!r} (the logit and "
                f"{', '.join(STRUCTURAL_COLUMNS)}), got {n_columns}"
            )
        names = STRUCTURAL_COLUMNS if structural else [f"feature_{j}" for j in range(1, n_columns)]
        wanted = {
            "all": set(names),
            "logit": set(),
            "toggle": set(TOGGLE_COLUMNS),
            "structure": set(names) - set(TOGGLE_COLUMNS),
        }[chosen]
        columns = [0, *(j for j, name in enumerate(names, start=1) if name in wanted)]
        return ["logit", *(name for name in names if name in wanted)], columns

    def _keep(self, model: AdditiveModel, solution: RidgeSolution) -> None:
        basis = model.basis
        self.scale_, self.mean_, self.deviation_ = basis.scale, basis.mean, basis.deviation
        self.knots_, self.values_ = np.concatenate(basis.knots), np.concatenate(model.curves)
        self.starts_ = np.cumsum([0.0, *map(len, basis.knots)])
        self.products_, self.pairs_ = model.products, model.pairs
        self.n_iter_, self.converged_ = solution.n_iter, solution.converged
        if not solution.converged:
            warnings.warn(
                f"StructuralCalibrator did not converge in {solution.n_iter} steps",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _model(self) -> AdditiveModel:
        inner = self.starts_[1:-1].astype(np.intp)
        knots, values = np.split(self.knots_, inner), np.split(self.values_, inner)
        basis = AdditiveBasis(self.scale_, self.mean_, self.deviation_, tuple(knots))
        return AdditiveModel(basis, tuple(values), self.products_, self.pairs_)

    def _decision(self, X: FloatArray) -> FloatArray:
        total = np.full(len(X), self.intercept_)
        for column in self._model().contributions(X[:, self.columns_]).T:
            total += column
        return total


def _standardised(terms: list[Term], weight: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Design matrix (n, 1 + m) with a first column of ones, and the deviations (m,) it was divided by."""
    design = np.column_stack((np.ones(len(weight)), *(term.block for term in terms)))
    body = design[:, 1:]
    average = np.average(body, axis=0, weights=weight)
    body -= average
    deviation = np.sqrt(np.average(body**2, axis=0, weights=weight))
    # A constant column keeps its rounding noise, which the penalty holds at coefficient 0.
    deviation[deviation <= 1e-12 * np.maximum(1.0, np.abs(average))] = 1.0
    body /= deviation
    return design, deviation


def _problem(
    design: FloatArray, terms: list[Term], y: FloatArray, weight: FloatArray
) -> tuple[RidgeProblem, FloatArray, FloatArray]:
    """The penalised fit, the relative penalties (1 + m,), and a start that fits the share of links."""
    positive = np.concatenate([np.full(len(term.penalty), term.positive) for term in terms])
    lower = np.r_[-np.inf, np.where(positive, 0.0, -np.inf)]
    strength = np.concatenate(([0.0], *(term.penalty for term in terms)))
    share = float(weight @ y / weight.sum())
    start = np.zeros(design.shape[1])
    start[0] = np.log(share) - np.log1p(-share)
    return RidgeProblem(design, y, weight, lower, np.zeros_like(start)), strength, start
