"""Records to means: hand-worked, and nothing missing disappears."""

import numpy as np
import pytest
from tests.lab.sample import frame, record

from linkcal.exceptions import InputError
from linkcal_lab.aggregate import (
    base_model,
    in_scope,
    join_settings,
    row_order_of,
    scopes,
    seed_values,
    summarise,
)
from linkcal_lab.records import check_records


def grid(values: list[list[float]], **fixed: object) -> list[dict[str, object]]:
    return [
        record(train_seed=i, calibration_seed=j, value=value, **fixed)
        for i, row in enumerate(values)
        for j, value in enumerate(row)
    ]


def test_mean_and_standard_deviation_by_hand():
    records = check_records(frame(*grid([[0.1, 0.3], [0.2, 0.4]]), *grid([[0.5], [0.7]], calibrator="beta")))
    summary = summarise(seed_values(records, "ece", fit_on="val"))
    platt, beta = summary.loc[("cora", "gcn", "platt")], summary.loc[("cora", "gcn", "beta")]
    assert platt["mean"] == pytest.approx(0.25, abs=1e-15)
    assert platt["std"] == pytest.approx(np.sqrt(0.05 / 3), rel=1e-12)
    assert (platt["n"], platt["n_train"]) == (4, 2)
    assert beta["mean"] == pytest.approx(0.6, abs=1e-15)
    assert beta["n"] == 2


def test_missing_values_stay_visible():
    rows = (
        grid([[0.1, 0.3]]) + grid([[0.2, np.nan]], calibrator="beta") + [record(metric="nll", train_seed=7)]
    )
    values = seed_values(check_records(frame(*rows)), "ece", fit_on="val")
    assert values.columns.tolist() == ["platt", "beta"]
    assert values.index.get_level_values("train_seed").tolist() == [0, 0, 7]
    assert values.isna().sum().tolist() == [1, 2]
    assert summarise(values)["n"].tolist() == [1, 2]


def test_scopes_are_kept_apart_or_joined():
    records = frame(record(), record(protocol="paper"), record(settings="preset=paper"))
    checked = check_records(records)
    found = scopes(checked)
    assert [scope.slug for scope in found] == [
        "default-uniform", "default-uniform-preset=paper", "paper-uniform",
    ]  # fmt: skip
    assert [len(in_scope(checked, scope)) for scope in found] == [1, 1, 1]
    joined = join_settings(checked)
    assert [scope.slug for scope in scopes(joined)] == ["default-uniform", "paper-uniform"]
    assert joined["model"].tolist() == ["gcn", "gcn", "gcn~preset=paper"]
    assert base_model("gcn~preset=paper") == "gcn"


def test_rows_stand_in_the_papers_order():
    rows = [("zoo", "gcn"), ("pubmed", "gcn"), ("cora", "gcn"), ("cora", "vgae"), ("cora", "mine")]
    assert row_order_of(rows) == [
        ("cora", "vgae"), ("cora", "gcn"), ("cora", "mine"), ("pubmed", "gcn"), ("zoo", "gcn"),
    ]  # fmt: skip


def test_wrong_records():
    with pytest.raises(InputError, match=r"records must have the columns .*, got none of name value"):
        check_records(frame(record()).drop(columns="value"))
    with pytest.raises(InputError, match="records must hold at least one value, got none"):
        check_records(frame())
    with pytest.raises(InputError, match=r"records must hold each value once, got 1 again, first cora, gcn"):
        check_records(frame(record(), record(value=0.2)))
