"""In-n-Out as a convex additive model of the target link's effect, structure and features."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import clone

from linkcal._core.columns import COLUMN_GROUPS
from linkcal._core.validation import check_choice, check_positive_float, check_positive_int
from linkcal.calibrators._additive import AdditiveBasis, AdditiveModel, Term, merged_links
from linkcal.calibrators._held_out import Tails, choose_held_out
from linkcal.calibrators._newton import RidgeProblem, fit_ridge
from linkcal.calibrators.base import (
    Calibrator,
    FloatArray,
    LinkFeatures,
    StateKind,
    known_labels,
    unchanged_if_refused,
    validated,
    warn_caller,
)
from linkcal.exceptions import ConvergenceWarning, InputError

# What ``features`` names, beside "all".
_GROUPS = ("logit", *COLUMN_GROUPS)
# Names of the first term if it is that of the base, or 0 in place of a logit that is not read.
_BASE_TERM, _UNREAD = "base", "no logit"
# Prefix of the base's fitted attributes in a state.
_PREFIX = "base_."
# Columns with long tails, which pass through asinh.
_LONG_TAILS = (_BASE_TERM, "logit", "logit_change")
# Names in ``contributions`` that no column may have.
_RESERVED = ("intercept", "logit", _BASE_TERM, "limit", _UNREAD)


class StructuralCalibrator(Calibrator):
    """Additive logistic model of the logit, the target link's effect, degrees and feature similarity.

    ``p = sigmoid(a(gamma, sign s) s + b(gamma))``: the temperature of In-n-Out becomes a free slope, by sign
    of the logit, and an offset is added, so that the map can move base rates and cross 0.5. It can rank links
    better than the predictor did. The fit is convex and deterministic.

    Parameters
    ----------
    features : str or sequence of str, default="all"
        Groups of columns that are read, one name or several: ``"logit"`` (column 0), ``"toggle"`` (what the
        target link does to its own score and embeddings), ``"degrees"``, ``"paths"`` (common neighbours,
        Adamic-Adar, resource allocation, paths of length three), ``"attributes"`` (feature similarity); or
        ``"all"`` columns. All groups but "logit" need names of columns.
    feature_names : sequence of str, optional
        Names of columns 1.. of X, by default those of the fitted DataFrame, if X is one.
        :class:`linkcal.CalibratedLinkPredictor` gives ``linkcal.features.STRUCTURAL_COLUMNS`` itself. Only
        ``"logit_change"`` is treated differently: it passes through asinh.
    n_knots : int, default=4
        Inner knots of each curve, at quantiles.
    penalty : float, optional
        Ridge penalty; by default the one with the lowest 5-fold held-out NLL inside the calibration links.

    Attributes
    ----------
    base_ : StructuralCalibrator or None
        Fitted on ``X_base`` and ``y_base`` if they were given.
    terms_, columns_ : list of str, list of int
        ``base`` if there is one, ``logit`` (without both ``no logit``, which is 0), then the columns used, by
        names or as ``feature_1``, ...; their columns in X (the base has none).
    scale_, mean_, deviation_, knots_, values_, starts_, products_, pairs_ : ndarray
        A column enters as ``asinh(x / scale)``, scale being the median of |x|, or as it is where scale is 0;
        mean and deviation standardise it in products. Knots and values of all curves, where each curve begins
        in them; slopes of ``max(t_logit, 0) z`` and ``min(t_logit, 0) z`` of each standardised column z, and
        half of the coefficients of ``z_i z_j``.
    intercept_, penalty_, slope_, prior_, lost_, stray_ : float
        Intercept and penalty; slope (already in the terms), log odds of a link among the calibration links,
        and the two shares that limit logits.
    n_iter_, converged_ : int, bool
        Newton steps of the final fit, and whether it and the search for slope and limits converged
        (``ConvergenceWarning`` if not).

    Notes
    -----
    Every column has a curve, piecewise linear with knots at quantiles (and at 0 for the logit). There are
    products of each column with both sides of the logit, and products of pairs of the other columns if at
    most 12 vary. All columns but the logit are clipped at their 0.2 and 99.8 % quantiles; the logit's curve
    goes on straight, so that the ends of the ranking keep their order. The fit minimises the summed negative
    log-likelihood plus ``penalty / 2`` times the squared coefficients (of columns of unit deviation; lines
    count 0.1, bends 1, products 3). (Hastie, Tibshirani, 1986.)

    **Slope and limits.** The logits of 5 held-out folds at the chosen penalty determine a slope in [0.01, 2]
    and the shares of links that look like negatives (lost) and of negatives that look like links (stray).
    With r = exp(logit - prior) the odds become
    ``exp(prior) ((1 - lost) r + lost) / ((1 - stray) + stray r)``. Half a link more than was seen counts for
    each share: n links without an exception do not show that none in 10 n is one, and a probability at a base
    rate of 1 in 1,000 rests on just that. A hundredth of the slope stays beyond, which keeps the order. The
    mean probability is the base rate of the calibration links. At most 10,000 or so links choose.

    **Stacked.** Training links scored leave-one-out are many, but the model was fitted to them. As ``X_base``
    and ``y_base`` they get a model of their own, ``base_``, whose logit takes the logit's part in the model
    of (X, y), where the logit becomes one of the other columns.

    The form, penalties, knots and limits were chosen inside validation links of Cora, CiteSeer, Chameleon,
    Bitcoin Alpha, Bitcoin OTC and Twitch PT (the limits beside fresh negatives); no test link was read.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> s, common = rng.normal(size=500), rng.poisson(1.0, size=500)
    >>> y = rng.random(500) < 1 / (1 + np.exp(-s - common + 1))
    >>> X = np.column_stack((s, np.log1p(common)))
    >>> calibrator = StructuralCalibrator(feature_names=["common_neighbours"]).fit(X, y)
    >>> sorted(calibrator.contributions(X))
    ['common_neighbours', 'intercept', 'limit', 'logit']
    """

    name = "in-n-out-plus"
    description = "additive model of the logit, of what the target link does, and of its place in the graph"
    search: ClassVar[dict[str, list[Any]]] = {"n_knots": [2, 4, 8]}
    link_features: ClassVar[LinkFeatures] = "structural"
    _state: ClassVar[dict[str, StateKind]] = {
        "terms_": list, "columns_": list,
        **dict.fromkeys(("scale_", "mean_", "deviation_", "knots_", "values_", "starts_"), 1),
        **dict.fromkeys(("products_", "pairs_"), 2),
        **dict.fromkeys(("intercept_", "penalty_", "slope_", "prior_", "lost_", "stray_"), float),
        "n_iter_": int, "converged_": bool,
    }  # fmt: skip
    base_: Self | None

    def __init__(
        self,
        *,
        features: str | Sequence[str] = "all",
        feature_names: Sequence[str] | None = None,
        n_knots: int = 4,
        penalty: float | None = None,
    ) -> None:
        self.features = features
        self.feature_names = feature_names
        self.n_knots = n_knots
        self.penalty = penalty

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, X_base: Any = None, y_base: Any = None
    ) -> Self:
        """Fit on calibration links, as :meth:`Calibrator.fit` states.

        Parameters
        ----------
        X, y, sample_weight : array-like
        X_base, y_base : array-like, optional
            Many links of another kind, as training links scored leave-one-out; the logit fitted on them
            becomes an input. InputError if only one is given, or `y_base` lacks a label of `y`.
        """
        with unchanged_if_refused(self):
            X, y, weight = self._check_fit(X, y, sample_weight)
            given = X_base is not None or y_base is not None
            self.base_ = self._fitted_base(X_base, y_base) if given else None
            self._fit(X, y, weight)
        return self

    def refitted(self, X: Any, y: Any) -> Self:
        """A copy fitted on other links on top of the same base, with the same names of columns."""
        fresh = self.clone_for(self._frame_names())
        X, y, weight = fresh._check_fit(X, y, None)
        fresh.base_ = getattr(self, "base_", None)
        fresh._fit(X, y, weight)
        return fresh

    def contributions(self, X: Any) -> dict[str, FloatArray]:
        """Why each link of X (n, 1 + k) has its probability: terms (n,) of its calibrated logit, by name.

        They add up to :meth:`decision_function`: ``intercept`` (with the offset of ``refresh``), a term of
        mean 0 over the calibration links for each of ``terms_``, half of a product of two columns in each,
        and ``limit``, what the limits take off.
        """
        X = self._check_predict(X)
        columns = self._model().contributions(self._inputs(X))
        terms = {name: columns[:, j] for j, name in enumerate(self.terms_) if name != _UNREAD}
        total = self.intercept_ + columns.sum(axis=1)
        return {
            "intercept": np.full(len(X), self.intercept_ + getattr(self, "offset_", 0.0)),
            **terms,
            "limit": Tails(self.prior_, self.lost_, self.stray_)(total) - total,
        }

    def get_state(self) -> dict[str, Any]:
        """Fitted attributes, those of the base among them."""
        state = super().get_state()
        base = {} if self.base_ is None else self.base_.get_state()
        return state | {_PREFIX + name: value for name, value in base.items()}

    def set_state(self, state: dict[str, Any]) -> Self:
        """Restore what :meth:`get_state` returned."""
        own = {name: value for name, value in state.items() if not str(name).startswith(_PREFIX)}
        base = {str(name).removeprefix(_PREFIX): state[name] for name in state if name not in own}
        with unchanged_if_refused(self):
            self.base_ = clone(self).set_state(base) if base else None
            return super().set_state(own)

    def _fitted_base(self, X_base: Any, y_base: Any) -> Self:
        if X_base is None or y_base is None:
            raise InputError("X_base and y_base must be given together, got only one of them")
        try:
            X, y = validated(self, X_base, y_base, reset=False)
        except InputError as error:
            raise InputError(f"X_base and y_base must be links as X and y are: {error}") from error
        label = known_labels(y, len(X), self.classes_, "y_base")
        if label.min() == label.max():
            raise InputError(f"y_base must hold both labels {self.classes_.tolist()}, got only {y[0]}")
        return self.clone_for(self._frame_names()).fit(X, y)

    def _frame_names(self) -> list[str] | None:
        """Names of columns 1.. of the DataFrame of the fit; None if it was none."""
        return list(self.feature_names_in_[1:]) if hasattr(self, "feature_names_in_") else None

    def _column_names(self) -> list[str] | None:
        """Names of columns 1.. from `feature_names` or the DataFrame of the fit; None without either."""
        framed = self._frame_names()
        names = framed if self.feature_names is None else list(self.feature_names)
        if names is None:
            return None
        if framed not in (None, names):
            raise InputError(f"feature_names must be the columns of X after column 0, {framed}, got {names}")
        k = self.n_features_in_ - 1
        if len(names) != k:
            raise InputError(f"feature_names must hold {k} names, of columns 1.. of X, got {len(names)}")
        if not all(isinstance(name, str) for name in names) or len({*names, *_RESERVED}) < k + len(_RESERVED):
            others = ", ".join(_RESERVED)
            raise InputError(f"feature_names must be different strings other than {others}, got {names}")
        return names

    def _select(self) -> tuple[list[str], list[int]]:
        """Names of the terms without a base, and their columns in X."""
        wanted: Any = self.features
        groups = list(wanted) if isinstance(wanted, list | tuple) else [wanted]
        for group in groups or [""]:
            check_choice(group, "features", _GROUPS if len(groups) > 1 else ("all", *_GROUPS))
        selected = [name for group in groups for name in COLUMN_GROUPS.get(group, ())]
        names = self._column_names()
        if not set(selected) <= set(names or ()):
            needed = (
                f"feature_names must hold {', '.join(selected)} for features={self.features!r}, got {names}"
            )
            raise InputError(f"{needed}; give feature_names, or X as a DataFrame with these columns")
        names = names or [f"feature_{j}" for j in range(1, self.n_features_in_)]
        every = groups == ["all"]
        used = [(j, name) for j, name in enumerate(names, start=1) if every or name in selected]
        first = "logit" if every or "logit" in groups else _UNREAD
        return [first, *(name for _, name in used)], [0, *(j for j, _ in used)]

    def _fit(self, X: FloatArray, y: FloatArray, weight: FloatArray) -> None:
        n_knots = check_positive_int(self.n_knots, "n_knots", minimum=0)
        self.terms_, self.columns_ = self._select()
        if self.base_ is not None:
            kept = int(self.terms_[0] == _UNREAD)
            self.terms_, self.columns_ = [_BASE_TERM, *self.terms_[kept:]], self.columns_[kept:]
        X, y, weight = merged_links(self._inputs(X), y, weight)
        squeezed = np.array([name in _LONG_TAILS for name in self.terms_])
        basis = AdditiveBasis.of(X, weight, squeezed, n_knots)
        terms = basis.terms(basis.columns(X))
        problem, deviation, strength, start = _ridge_problem(terms, y, weight)
        given = None if self.penalty is None else check_positive_float(self.penalty, "penalty")
        self.penalty_, self.slope_, tails, found = choose_held_out(problem, strength, start, given)
        solution = fit_ridge(problem, self.penalty_ * strength, start)
        theta = self.slope_ * solution.theta[1:]
        tails = replace(tails, prior=float(np.log(weight @ y) - np.log(weight @ (1.0 - y))))
        self.prior_, self.lost_, self.stray_ = tails.prior, tails.lost, tails.stray
        # Last, so that the mean probability is the share of links.
        self.intercept_ = tails.intercept(problem.design[:, 1:] @ theta, weight)
        self._keep(AdditiveModel.from_coefficients(basis, terms, theta / deviation, X, weight))
        self.n_iter_, self.converged_ = solution.n_iter, solution.converged and found
        if not self.converged_:
            what = "slope and limits" if solution.converged else f"{solution.n_iter} steps"
            warn_caller(f"{self._shown_name} did not converge in {what}", ConvergenceWarning)

    def _inputs(self, X: FloatArray) -> FloatArray:
        """Columns of the terms: the base's logit if there is one, then those of X that are used."""
        if self.base_ is None:
            used = X[:, self.columns_]
            used[:, 0] *= self.terms_[0] != _UNREAD
            return used
        return np.column_stack((self.base_._decision(X), X[:, self.columns_]))

    def _keep(self, model: AdditiveModel) -> None:
        basis = model.basis
        self.scale_, self.mean_, self.deviation_ = basis.scale, basis.mean, basis.deviation
        self.knots_, self.values_ = np.concatenate(basis.knots), np.concatenate(model.curves)
        self.starts_ = np.cumsum([0.0, *map(len, basis.knots)])
        self.products_, self.pairs_ = model.products, model.pairs

    def _model(self) -> AdditiveModel:
        inner = self.starts_[1:-1].astype(np.intp)
        knots, values = np.split(self.knots_, inner), np.split(self.values_, inner)
        basis = AdditiveBasis(self.scale_, self.mean_, self.deviation_, tuple(knots))
        return AdditiveModel(basis, tuple(values), self.products_, self.pairs_)

    def _decision(self, X: FloatArray) -> FloatArray:
        total = np.full(len(X), self.intercept_)
        for column in self._model().contributions(self._inputs(X)).T:
            total += column
        return Tails(self.prior_, self.lost_, self.stray_)(total)

    def _check_together(self) -> None:
        stacked = self.base_ is not None
        if self.base_ and self.base_.n_features_in_ != self.n_features_in_:
            raise ValueError(f"a base of {self.base_.n_features_in_} columns under {self.n_features_in_}")
        if len({name for name in self.terms_ if isinstance(name, str)}) < len(self.terms_):
            raise ValueError(f"terms_ {self.terms_}, which must be different names")
        if self.terms_[:1] not in ([[_BASE_TERM]] if stacked else [["logit"], [_UNREAD]]):
            raise ValueError(f"terms_ {self.terms_} {'with' if stacked else 'without'} a base")
        c, m = len(self.terms_), len(self.knots_)
        shapes = {"columns_": (c - stacked,), "starts_": (c + 1,), "products_": (2, c), "pairs_": (c, c)}
        shapes |= dict.fromkeys(("scale_", "mean_", "deviation_"), (c,)) | {"values_": (m,)}
        for name, shape in shapes.items():
            if np.shape(getattr(self, name)) != shape:
                raise ValueError(f"{name} of shape {np.shape(getattr(self, name))} with {c} terms, {m} knots")
        # Above 1 together they would turn the ranking round.
        if not (self.lost_ > 0.0 and self.stray_ > 0.0 and self.lost_ + self.stray_ <= 1.0):
            raise ValueError(f"lost_ {self.lost_} and stray_ {self.stray_}, not above 0 with a sum up to 1")
        super()._check_together()


class StructureOnly(StructuralCalibrator):
    """The same model of degrees, paths and feature similarity alone: what is known without the predictor.

    It reads no logit. Its NLL is what a predictor has to fall below to add anything: see
    :func:`linkcal.metrics.model_value`.

    Parameters
    ----------
    feature_names, n_knots, penalty
        As in :class:`StructuralCalibrator`. All columns but column 0 are read; those that
        :class:`linkcal.CalibratedLinkPredictor` gives are ``linkcal.features.STRUCTURE_COLUMNS``.

    Examples
    --------
    >>> import numpy as np
    >>> common = np.arange(400) % 4
    >>> y = np.random.default_rng(0).random(400) < (1 + common) / 5
    >>> X = np.column_stack((np.zeros(400), common))
    >>> StructureOnly().fit(X, y).predict_proba([[0.0, 3.0], [-9.0, 3.0]])[:, 1].round(1)
    array([0.8, 0.8])
    """

    name = "structure-only"
    description = "the same without the model: degrees, paths and feature similarity, no logit"
    link_features: ClassVar[LinkFeatures] = "structure"

    def __init__(
        self, *, feature_names: Sequence[str] | None = None, n_knots: int = 4, penalty: float | None = None
    ) -> None:
        self.feature_names = feature_names
        self.n_knots = n_knots
        self.penalty = penalty

    def _select(self) -> tuple[list[str], list[int]]:
        names = self._column_names() or [f"feature_{j}" for j in range(1, self.n_features_in_)]
        return [_UNREAD, *names], list(range(self.n_features_in_))


def _ridge_problem(
    terms: list[Term], y: FloatArray, weight: FloatArray
) -> tuple[RidgeProblem, FloatArray, FloatArray, FloatArray]:
    """The penalised fit, its columns' deviations (m,), relative penalties (1 + m,), and a start."""
    design = np.column_stack((np.ones(len(weight)), *(term.block for term in terms)))
    body = design[:, 1:]
    average = np.average(body, axis=0, weights=weight)
    body -= average
    deviation = np.sqrt(np.average(body**2, axis=0, weights=weight))
    # A constant column keeps its rounding noise, which the penalty holds at coefficient 0.
    deviation[deviation <= 1e-12 * np.maximum(1.0, np.abs(average))] = 1.0
    body /= deviation
    strength = np.concatenate(([0.0], *(term.penalty for term in terms)))
    # Below 1, to which weights of 1 and 1e-17 round: the start must be finite.
    share = min(float(weight @ y / weight.sum()), float(np.nextafter(1.0, 0.0)))
    start = np.zeros(design.shape[1])
    start[0] = np.log(share) - np.log1p(-share)
    free = np.full(len(start), np.inf)
    return RidgeProblem(design, y, weight, -free, free), deviation, strength, start
