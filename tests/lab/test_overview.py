"""The table of all metrics: entries by hand, rows of unequal size, cells that a calibrator lacks."""

from __future__ import annotations

import numpy as np
import pytest
from tests.lab.sample import frame, record, sweep

from linkcal.metrics.registry import COLUMNS
from linkcal_lab.formats import MISSING
from linkcal_lab.tables import OVERVIEW_METRICS, build_tables


def overview(records):
    (tables,) = build_tables(records).values()
    (found,) = (table for table in tables if table.name == "overview")
    return found


def entries(table):
    return table.data.set_index(["fit_on", "calibrator", "metric"])


def test_every_row_counts_once_and_a_cell_that_one_calibrator_lacks_for_none():
    values = {
        ("cora", "gcn", 0): (0.10, 0.30),
        ("cora", "gcn", 1): (0.20, 0.50),
        ("cora", "gcn", 2): (0.90, None),  # platt is missing here
        ("pubmed", "gin", 0): (0.30, 0.10),
    }
    rows = [
        record(dataset=d, model=m, train_seed=seed, calibrator=name, metric=metric, value=value)
        for (d, m, seed), pair in values.items()
        for name, value in zip(("uncalibrated", "platt"), pair, strict=True)
        for metric in ("ece", "nll")
        if value is not None
    ]
    table = overview(frame(*rows))
    found = entries(table)["mean"]
    assert found["val", "uncalibrated", "ece"] == pytest.approx((0.15 + 0.30) / 2)
    assert found["val", "platt", "ece"] == pytest.approx((0.40 + 0.10) / 2)
    assert np.isnan(found["val", "platt", "auc"])
    assert "val 2 rows, 3 cells" in table.caption
    plain, platt = table.rows
    assert [cell.text for cell in plain] == [
        "val", "uncalibrated", "22.50", MISSING, MISSING, "0.2250", MISSING, MISSING, MISSING,
    ]  # fmt: skip
    assert [cell.strong for cell in plain] == [False, False, True, False, False, True, False, False, False]
    assert not any(cell.strong for cell in platt)


def test_means_and_best_of_a_sweep():
    records = sweep()
    table = overview(records)
    found = entries(table)
    test = records[(records["fit_on"] == "val") & (records["part"] == "test")]
    for metric in OVERVIEW_METRICS:
        higher = COLUMNS[metric].higher_is_better
        here = test[test["metric"] == metric]
        rows = here.groupby(["calibrator", "dataset", "model"])["value"].mean()
        expected = rows.groupby("calibrator").mean()
        got = found.xs(("val", metric), level=("fit_on", "metric"))["mean"]
        assert got.to_dict() == pytest.approx(expected.to_dict(), nan_ok=True)
        column = 2 + list(OVERVIEW_METRICS).index(metric)
        strong = {row[1].text for row in table.rows if row[0].text == "val" and row[column].strong}
        if higher is None or expected.isna().all():
            assert strong == set()
        else:
            best = expected.max() if higher else expected.min()
            assert strong == set(expected.index[np.isclose(expected, best, rtol=0, atol=1e-15)])
