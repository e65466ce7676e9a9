"""Synthetic records of a small sweep: every number follows from a seed."""

import itertools
from functools import cache

import numpy as np
import pandas as pd

from linkcal_lab.formats import Table
from linkcal_lab.patterns import measure_completely
from linkcal_lab.records import RECORD_COLUMNS
from linkcal_lab.tables import build_tables

CALIBRATORS = ("uncalibrated", "temperature", "isotonic", "histogram", "bbq", "embedding-mlp", "in-n-out")


def record(**values: object) -> dict[str, object]:
    """One record; what is not given has a default."""
    default = {
        "dataset": "cora", "model": "gcn", "protocol": "default", "negatives": "uniform", "settings": "",
        "train_seed": 0, "calibration_seed": 0, "fit_on": "val", "calibrator": "platt", "part": "test",
        "metric": "ece", "value": 0.1,
    }  # fmt: skip
    unknown = set(values) - set(default)
    assert not unknown, unknown
    return default | values


def frame(*rows: dict[str, object]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=list(RECORD_COLUMNS))


def tables_of(records: pd.DataFrame, **options: bool) -> dict[str, Table]:
    """Tables of records that share protocol, negatives and settings, by name."""
    (found,) = build_tables(records, **options).values()
    return {table.name: table for table in found}


@cache
def sweep() -> pd.DataFrame:
    """All metrics of every calibrator for every cell, measured on 200 simulated test links."""
    rows = []
    cells = itertools.product(("cora", "citeseer"), ("vgae", "sage"), ("train", "val"), range(3), range(2))
    for number, (dataset, model, fit_on, train_seed, calibration_seed) in enumerate(cells):
        rng = np.random.default_rng(number)
        truth = rng.random(200)
        label = (rng.random(200) < truth).astype(int)
        for strength, calibrator in enumerate(CALIBRATORS):
            prob = np.clip(truth + 0.06 * (6 - strength) * (truth - 0.3), 0.001, 0.999)
            measured = measure_completely(label, prob, prob)
            for metric, value in measured.items():
                rows.append(
                    record(
                        dataset=dataset, model=model, fit_on=fit_on, train_seed=train_seed,
                        calibration_seed=calibration_seed, calibrator=calibrator, metric=metric, value=value,
                    )
                )  # fmt: skip
    return frame(*rows)
