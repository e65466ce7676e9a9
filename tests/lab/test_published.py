"""Published values: complete, under linkcal's names, and one place in the paper for each sheet."""

import pytest

from linkcal.calibrators import CALIBRATORS
from linkcal.metrics import METRICS
from linkcal.models import MODELS
from linkcal_lab.patterns import CalibrationPattern
from linkcal_lab.published import published_patterns, published_sheet, published_values


@pytest.mark.parametrize(
    ("name", "rows", "methods"),
    [
        ("table1_ece", 45, 6),
        ("table2_hits20", 9, 6),
        ("table3_ablation_ece", 15, 3),
        ("table8_gnn_performance", 45, 3),
        ("table9_hits20_all", 45, 6),
    ],
)
def test_every_value_of_a_table_is_there(name, rows, methods):
    values = published_values(name)
    assert len(values) == rows * methods
    assert values.notna().all(axis=None)
    assert not values.duplicated(["dataset", "model", "calibrator", "metric"]).any()
    assert set(values["calibrator"]) <= set(CALIBRATORS)
    assert set(values["metric"]) <= set(METRICS)
    assert set(values["model"]) <= set(MODELS)
    assert values["mean"].between(0, 100).all()


def test_some_values_as_printed():
    ece = published_values("table1_ece").set_index(["dataset", "model", "calibrator"])
    assert ece.loc[("cora", "vgae", "uncalibrated"), ["mean", "std"]].tolist() == [15.02, 0.76]
    assert ece.loc[("ogbl-collab", "peg", "in-n-out"), ["mean", "std"]].tolist() == [1.42, 0.35]
    ablation = published_values("table3_ablation_ece").set_index(["dataset", "model", "calibrator"])
    assert ablation.loc[("citeseer", "sage", "embedding-mlp"), "mean"] == 2.62
    models = published_values("table8_gnn_performance").set_index(["dataset", "model", "metric"])
    assert models.loc[("twitch-pt", "vgae", "acc"), "mean"] == 16.3


def test_other_sheets_are_complete():
    assert published_sheet("wilcoxon").shape == (5, 8)
    marks = published_sheet("wilcoxon").set_index("model").to_numpy().ravel().tolist()
    assert {mark: marks.count(mark) for mark in ("yes", "no", "")} == {"yes": 23, "no": 6, "": 6}
    assert len(published_sheet("datasets")) == 9
    assert len(published_sheet("hyperparameters")) == 6
    assert published_patterns() == {"over-positive-under-negative": 58.0, "u-shaped": 25.0}
    assert set(published_patterns()) <= {pattern.label for pattern in CalibrationPattern}
