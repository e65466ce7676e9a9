"""The values that the paper published, as package data with the table that each comes from.

arXiv 2403.04605 (In-n-Out). Numbers are percent, as printed; nothing is corrected.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import pandas as pd

from linkcal._core.validation import check_choice

_FOLDER = files("linkcal_lab") / "published"

#: Calibrator of each column of the data files.
_CALIBRATORS = {
    "uncalibrated": "uncalibrated",
    "isotonic": "isotonic",
    "temperature": "temperature",
    "bbq": "bbq",
    "histogram": "histogram",
    "in_n_out": "in-n-out",
    "emb_mlp": "embedding-mlp",
}

#: Metric of each table that has one column for each calibrator.
_METRICS = {
    "table1_ece": "ece",
    "table2_hits20": "hits@20",
    "table3_ablation_ece": "ece",
    "table9_hits20_all": "hits@20",
}

#: Metric of each column of the table of uncalibrated predictors.
_PERFORMANCE = {"auc": "auc", "hits20": "hits@20", "acc": "acc"}

#: Names of all published sheets.
PUBLISHED = (
    "table1_ece",
    "table2_hits20",
    "table3_ablation_ece",
    "table8_gnn_performance",
    "table9_hits20_all",
    "wilcoxon",
    "patterns",
    "datasets",
    "hyperparameters",
)


@cache
def _read(name: str) -> pd.DataFrame:
    with (_FOLDER / f"{name}.csv").open("r", encoding="utf-8") as file:
        return pd.read_csv(file, keep_default_na=name != "wilcoxon")


def published_sheet(name: str) -> pd.DataFrame:
    """Give one published table as it is printed.

    Parameters
    ----------
    name : str
        One of ``PUBLISHED``.

    Returns
    -------
    DataFrame
        A copy. Empty entries of ``wilcoxon`` are empty strings.

    Raises
    ------
    InputError
        If there is no such table.

    Examples
    --------
    >>> published_sheet("table1_ece").shape
    (45, 14)
    """
    return _read(check_choice(name, "name", PUBLISHED)).copy()


def published_origin(name: str) -> str:
    """Say where in the paper a sheet stands.

    Parameters
    ----------
    name : str
        One of ``PUBLISHED``.

    Returns
    -------
    str

    Raises
    ------
    InputError
        If there is no such table.

    Examples
    --------
    >>> published_origin("table1_ece")
    'Table 1'
    """
    check_choice(name, "name", PUBLISHED)
    return str(_read("origin").set_index("name").at[name, "origin"])


def published_values(name: str) -> pd.DataFrame:
    """Give a published table of metrics in long form, under linkcal's names.

    Parameters
    ----------
    name : str
        One of ``PUBLISHED`` that starts with "table".

    Returns
    -------
    DataFrame
        Columns dataset, model, calibrator, metric, mean, std; mean and std in percent.

    Raises
    ------
    InputError
        If there is no such table.

    Examples
    --------
    >>> values = published_values("table1_ece")
    >>> values.loc[(values.model == "gin") & (values.dataset == "citeseer")].tail(1).values.tolist()
    [['citeseer', 'gin', 'in-n-out', 'ece', 2.2, 0.86]]
    """
    check_choice(name, "name", (*_METRICS, "table8_gnn_performance"))
    sheet = _read(name)
    columns = _PERFORMANCE if name not in _METRICS else _CALIBRATORS
    parts = []
    for column, meaning in columns.items():
        if column in sheet:
            part = sheet[["dataset", "model"]].copy()
            part["calibrator"] = meaning if name in _METRICS else "uncalibrated"
            part["metric"] = _METRICS.get(name, meaning)
            part["mean"], part["std"] = sheet[column], sheet[f"{column}_std"]
            parts.append(part)
    return pd.concat(parts, ignore_index=True)


def published_patterns() -> dict[str, float]:
    """Share of uncalibrated reliability diagrams by pattern, in percent, as the paper's text states it.

    Returns
    -------
    dict of str to float
        By :class:`linkcal_lab.patterns.CalibrationPattern` label.

    Examples
    --------
    >>> published_patterns()["u-shaped"]
    25.0
    """
    sheet = _read("patterns")
    return {str(k): float(v) for k, v in zip(sheet["pattern"], sheet["share"], strict=True)}
