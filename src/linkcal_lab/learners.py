"""Learners by other people on equal terms: the columns that `in-n-out-plus` reads, or any other table.

>>> import numpy as np
>>> rng = np.random.default_rng(0)
>>> X = rng.normal(size=(200, 3))
>>> y = (rng.random(200) < 1 / (1 + np.exp(-X[:, 0]))).astype(int)
>>> LEARNERS["logistic"]().fit(X, y).predict_proba(X).shape
(200, 2)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer, SplineTransformer, StandardScaler

#: Ridge penalties, the inverse of scikit-learn's `C`, that cross-validation chooses from.
_PENALTIES = np.logspace(-2, 3, 11)


def _columns() -> ColumnTransformer:
    """The logit, in column 0, standardised; the others, whose tails are heavy, by their normal ranks."""
    ranks = QuantileTransformer(output_distribution="normal", n_quantiles=200, subsample=None, random_state=0)
    return ColumnTransformer([("logit", StandardScaler(), [0])], remainder=ranks)


def _ridge() -> LogisticRegressionCV:
    return LogisticRegressionCV(
        Cs=1.0 / _PENALTIES, l1_ratios=(0.0,), cv=5, scoring="neg_log_loss", max_iter=2000,
        use_legacy_attributes=False,
    )  # fmt: skip


def logistic() -> Any:
    """Logistic regression with a cross-validated ridge."""
    return make_pipeline(_columns(), _ridge())


def spline_gam() -> Any:
    """A generalised additive model: cubic splines of every column, and a cross-validated ridge."""
    splines = SplineTransformer(n_knots=8, extrapolation="linear", include_bias=False)
    return make_pipeline(_columns(), splines, StandardScaler(), _ridge())


def hist_gb() -> Any:
    """Gradient boosting of small trees, their number and size cross-validated."""
    trees = HistGradientBoostingClassifier(
        learning_rate=0.05, min_samples_leaf=10, early_stopping=False, random_state=0
    )
    grid = {"max_iter": (30, 80, 200), "max_leaf_nodes": (4, 16)}
    return GridSearchCV(trees, grid, scoring="neg_log_loss", cv=5)


def ebm() -> Any:
    """The explainable boosting machine of `interpret`: boosted curves and pairs (extra ``rivals``)."""
    from interpret.glassbox import ExplainableBoostingClassifier

    return ExplainableBoostingClassifier(n_jobs=1, random_state=0)


class MCGradLearner(ClassifierMixin, BaseEstimator):
    """Meta's multicalibration by boosting, with its defaults, on top of the model's own probability.

    Column 0 is the logit; all columns are numerical features (extra ``rivals``).
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Fit to X (n, c) and labels (n,)."""
        from mcgrad import methods

        self.classes_ = np.array([0, 1])
        self.names_ = [f"x{j}" for j in range(np.shape(X)[1])]
        self.model_ = methods.MCGrad()
        self.model_.fit(
            df_train=self._table(X).assign(label=np.asarray(y, dtype=int)),
            prediction_column_name="p", label_column_name="label",
            numerical_feature_column_names=self.names_,
        )  # fmt: skip
        return self

    def predict_proba(self, X: Any) -> Any:
        """Probabilities (n, 2) of 0 and 1."""
        p = self.model_.predict(
            df=self._table(X), prediction_column_name="p", numerical_feature_column_names=self.names_
        )
        return np.column_stack([1.0 - p, p])

    def _table(self, X: Any) -> pd.DataFrame:
        values = np.asarray(X, dtype=float)
        p = np.clip(1.0 / (1.0 + np.exp(-values[:, 0])), 1e-6, 1.0 - 1e-6)
        return pd.DataFrame(values, columns=self.names_).assign(p=p)


#: Makers of unfitted classifiers by name.
LEARNERS: Mapping[str, Callable[[], Any]] = {
    "logistic": logistic,
    "spline-gam": spline_gam,
    "hist-gb": hist_gb,
    "ebm": ebm,
    "mcgrad": MCGradLearner,
}
