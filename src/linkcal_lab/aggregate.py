"""From records in long form to values by seed, means and standard deviations. Missing stays visible."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from linkcal.calibrators import CALIBRATORS
from linkcal_lab.published import published_sheet
from linkcal_lab.records import SEEDS, check_records

_SEEDS = list(SEEDS)
_ROW = ["dataset", "model"]
_FIT_ON = ("train", "train-loo", "val", "stacked")


@dataclass(frozen=True, order=True)
class Scope:
    """What must be equal for two values to stand in one table.

    Parameters
    ----------
    protocol, negatives, settings : str
        As in the columns of the records.
    """

    protocol: str
    negatives: str
    settings: str

    @property
    def label(self) -> str:
        """Words for a caption."""
        settings = f", settings {self.settings}" if self.settings else ""
        return f"protocol {self.protocol}, {self.negatives} negatives{settings}"

    @property
    def slug(self) -> str:
        """Name for a folder."""
        parts = [self.protocol, self.negatives, self.settings]
        return re.sub(r"[^A-Za-z0-9.+=~-]+", "-", "-".join(part for part in parts if part))


def join_settings(records: pd.DataFrame) -> pd.DataFrame:
    """Checked records with settings as part of the model's name (``vgae~preset=paper``), for one table."""
    differs = records["settings"] != ""
    model = records["model"].where(~differs, records["model"] + "~" + records["settings"])
    return check_records(records.assign(model=model, settings=""))


def base_model(model: str) -> str:
    """Name of a model without joined settings.

    Examples
    --------
    >>> base_model("vgae~preset=paper")
    'vgae'
    """
    return model.partition("~")[0]


def scopes(records: pd.DataFrame) -> list[Scope]:
    """Every combination of protocol, share of negatives and settings in checked records, sorted."""
    found = records[["protocol", "negatives", "settings"]].drop_duplicates()
    return sorted(Scope(str(p), str(n), str(s)) for p, n, s in found.itertuples(index=False))


def in_scope(records: pd.DataFrame, scope: Scope) -> pd.DataFrame:
    """Those of checked records that belong to a scope."""
    keep = (
        (records["protocol"] == scope.protocol)
        & (records["negatives"] == scope.negatives)
        & (records["settings"] == scope.settings)
    )
    return records[keep]


def seed_values(
    records: pd.DataFrame, metric: str, *, fit_on: str | None = None, part: str = "test"
) -> pd.DataFrame:
    """Values of one metric, a row for each trained and calibrated model, a column for each calibrator.

    Parameters
    ----------
    records : DataFrame
        Checked records of one scope.
    metric : str
    fit_on : str, optional
        Required if the records hold several.
    part : {"test", "val"}

    Returns
    -------
    DataFrame
        Index dataset, model, train_seed, calibration_seed: every combination for which any calibrator has a
        value of any metric. Columns: calibrators in table order. NaN where there is no value.

    Examples
    --------
    >>> from linkcal_lab.records import RECORD_COLUMNS
    >>> record = ("cora", "gcn", "default", "uniform", "", 0, 0, "val", "platt", "test", "ece", 0.25)
    >>> records = check_records(pd.DataFrame([record], columns=list(RECORD_COLUMNS)))
    >>> seed_values(records, "ece").loc[("cora", "gcn", 0, 0), "platt"]
    np.float64(0.25)
    """
    chosen = records[records["part"] == part]
    if fit_on is not None:
        chosen = chosen[chosen["fit_on"] == fit_on]
    index = pd.MultiIndex.from_frame(chosen[_ROW + _SEEDS].drop_duplicates())
    calibrators = in_order(chosen["calibrator"].unique(), CALIBRATORS)
    values = chosen[chosen["metric"] == metric].pivot(
        index=_ROW + _SEEDS, columns="calibrator", values="value"
    )
    return values.reindex(index=index, columns=pd.Index(calibrators, name="calibrator")).sort_index()


def values_of_row(values: pd.DataFrame, row: tuple[str, str]) -> pd.DataFrame:
    """Those of :func:`seed_values` that belong to one row (data set, model); empty if there are none."""
    index = values.index
    here = (index.get_level_values("dataset") == row[0]) & (index.get_level_values("model") == row[1])
    return values[here]


def summarise(values: pd.DataFrame) -> pd.DataFrame:
    """Mean and spread over seeds of what :func:`seed_values` gave.

    Parameters
    ----------
    values : DataFrame

    Returns
    -------
    DataFrame
        Index dataset, model, calibrator. Columns: mean; std (of the sample, ``ddof=1``; NaN for one value); n
        (values that are there); n_train (training seeds among them).
    """
    long = values.reset_index().melt(id_vars=[*_ROW, *_SEEDS], var_name="calibrator").dropna(subset="value")
    groups = long.groupby([*_ROW, "calibrator"], sort=True)
    return pd.DataFrame(
        {
            "mean": groups["value"].mean(),
            "std": groups["value"].std(ddof=1),
            "n": groups["value"].count(),
            "n_train": groups["train_seed"].nunique(),
        }
    )


def in_order(names: Iterable[str], order: Iterable[str]) -> list[str]:
    """Sort names by a given order; those that it lacks come last, alphabetically.

    Examples
    --------
    >>> in_order({"mine", "bbq", "platt"}, ["platt", "bbq"])
    ['platt', 'bbq', 'mine']
    """
    place = {name: i for i, name in enumerate(order)}
    return sorted(names, key=lambda name: (place.get(name, len(place)), name))


def row_order(*frames: pd.DataFrame) -> list[tuple[str, str]]:
    """Rows (data set, model) of several frames in the paper's order, others after them alphabetically."""
    return row_order_of(
        {(str(d), str(m)) for frame in frames for d, m in zip(frame["dataset"], frame["model"], strict=True)}
    )


def row_order_of(rows: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Sort rows (data set, model) by the paper's order, others after them alphabetically.

    Examples
    --------
    >>> row_order_of([("mine", "gcn"), ("cora", "gin"), ("cora", "vgae")])
    [('cora', 'vgae'), ('cora', 'gin'), ('mine', 'gcn')]
    """
    published = published_sheet("table1_ece")
    datasets = {name: i for i, name in enumerate(dict.fromkeys(published["dataset"]))}
    models = {name: i for i, name in enumerate(dict.fromkeys(published["model"]))}

    def key(row: tuple[str, str]) -> tuple[float, str, float, str]:
        dataset, model = row
        return datasets.get(dataset, np.inf), dataset, models.get(base_model(model), np.inf), model

    return sorted(rows, key=key)


def fit_on_order(records: pd.DataFrame) -> list[str]:
    """What calibrators were fitted on, in table order."""
    return in_order(records["fit_on"].unique(), _FIT_ON)
