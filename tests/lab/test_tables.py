"""Tables of a small sweep: entries by hand, missing cells, marks, tests, files."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from tests.lab.sample import CALIBRATORS, frame, record, sweep

from linkcal.exceptions import InputError
from linkcal.metrics import CalibrationPattern
from linkcal_lab.formats import MISSING, SUFFIXES, Table, render
from linkcal_lab.tables import build_tables, choose_tables, write_tables


@pytest.fixture(scope="module")
def records() -> pd.DataFrame:
    return sweep()


@pytest.fixture(scope="module")
def tables(records) -> dict[str, Table]:
    (found,) = build_tables(records).values()
    return {table.name: table for table in found}


def cells(table: Table, *labels: str) -> list[str]:
    (line,) = [row for row in table.rows if tuple(c.text for c in row[: len(labels)]) == labels]
    return [cell.text for cell in line[len(labels) :]]


def only(rows: list[dict[str, object]]) -> dict[str, Table]:
    (found,) = build_tables(frame(*rows)).values()
    return {table.name: table for table in found}


def test_all_tables_are_there(tables):
    per_fit = ["ece", "ece-top-label", "hits20", "ablation", "hits20-all", "nll", "brier"]
    names = ["overview", "agreement", "agreement-rows-train", "agreement-rows-val"]
    names += [*(f"{name}-{on}" for name in per_fit for on in ("train", "val"))]
    names += ["gnn-performance", "ranking", "wilcoxon-in-n-out-train", "wilcoxon-in-n-out-val"]
    assert list(tables) == [*names, "patterns", "patterns-by-row"]


def test_every_row_of_the_paper_is_shown_measured_or_not(tables):
    table = tables["ece-val"]
    assert sum(row[2].text == "ours" for row in table.rows) == 45
    assert sum(row[2].text == "paper" for row in table.rows) == 45
    assert set(cells(table, "pubmed", "gcn", "ours")) == {MISSING}
    assert "rows mix two metrics" in table.caption
    assert "rows mix two metrics" in tables["ablation-val"].caption
    assert "rows mix two metrics" not in tables["hits20-val"].caption
    assert len(tables["hits20-val"].rows) == 18
    assert len(tables["ablation-val"].rows) == 30
    assert len(tables["nll-val"].rows) == 4
    assert all(len(row) == len(table.header) for table in tables.values() for row in table.rows)


def test_an_entry_by_hand():
    rows = [
        record(train_seed=i, calibrator=name, metric=metric, value=value)
        for name, eces in {"uncalibrated": (0.30, 0.32, 0.34), "in-n-out": (0.10, 0.12, 0.14)}.items()
        for i, ece in enumerate(eces)
        for metric, value in (("ece", ece), ("ece_floor", 0.03))
    ]
    table = only(rows)["ece-val"]
    line = dict(zip(table.header[4:], cells(table, "cora", "gcn", "ours")[1:], strict=True))
    assert line["uncalibrated"] == "32.00 \N{PLUS-MINUS SIGN} 2.00 [3.00]"
    assert line["in-n-out"] == "12.00 \N{PLUS-MINUS SIGN} 2.00 [3.00]"
    assert line["temperature"] == MISSING
    # All differences are 0.2 but for rounding: certain.
    assert line["p, best vs second"] == "0.000"
    data = table.data.set_index(["dataset", "model", "calibrator"]).loc[("cora", "gcn", "in-n-out")]
    assert data["difference"] == pytest.approx(0.12 - 0.069, abs=1e-12)
    assert (data["n"], data["best"]) == (3, True)


def test_published_values_stand_under_ours(tables):
    table = tables["ece-val"]
    above = next(i for i, row in enumerate(table.rows) if [c.text for c in row[:2]] == ["cora", "gin"])
    line = {name: cell.text for name, cell in zip(table.header, table.rows[above + 1], strict=True)}
    assert line["source"] == "paper"
    assert line["in-n-out"] == "4.05 \N{PLUS-MINUS SIGN} 1.31"
    assert line["embedding-mlp"] == MISSING


def test_best_of_a_row_is_bold_and_ties_share_it():
    values = {"uncalibrated": 0.5, "temperature": 0.5, "isotonic": 0.4}
    table = only([record(calibrator=n, metric="hits@20", value=v) for n, v in values.items()])[
        "hits20-all-val"
    ]
    (line,) = [row for row in table.rows if [c.text for c in row[:3]] == ["cora", "gcn", "ours"]]
    bold = [name for name, cell in zip(table.header, line, strict=True) if cell.strong]
    assert bold == ["uncalibrated", "temperature"]
    assert line[-1].text == "one seed"


def test_test_links_stand_beside_each_row():
    """Cases 06 and 14: no calibration error without the number of links and their ratio."""
    rows = [
        record(train_seed=i, calibrator=name, metric=metric, value=value)
        for name in ("platt", "beta")
        for i in range(2)
        for metric, value in (("ece", 0.1), ("positives", 527), ("negatives", 527 + i))
    ]
    found = only(rows)
    for name in ("ece-val", "ece-top-label-val", "nll-val"):
        assert found[name].header[3] == "links"
        line = next(row for row in found[name].rows if [c.text for c in row[:2]] == ["cora", "gcn"])
        assert line[3].text == "527 + 527-528"


def test_a_calibrator_that_lacks_seeds_is_named_and_not_best():
    rows = [record(train_seed=i, calibrator="platt", value=0.2 + i / 100) for i in range(3)]
    rows.append(record(train_seed=0, calibrator="beta", value=0.1))
    table = only(rows)["ece-val"]
    line = dict(zip(table.header[4:], cells(table, "cora", "gcn", "ours")[1:], strict=True))
    assert line["beta"] == "10.00 (n = 1)"
    best = table.data[table.data["best"]]
    assert best["calibrator"].tolist() == ["platt"]
    assert "over 3 values" in table.caption


def test_indistinguishable_rows_are_marked():
    rows = [
        record(train_seed=i, calibrator=name, value=0.1 + noise)
        for name, noises in {"platt": (0, 0.02, 0), "beta": (0.01, 0, 0.02)}.items()
        for i, noise in enumerate(noises)
    ]
    assert cells(only(rows)["ece-val"], "cora", "gcn", "ours")[-1].endswith(" \N{ALMOST EQUAL TO}")


def test_rows_measured_with_another_fit_on_are_missing_not_dropped():
    rows = [record(dataset="mine", fit_on="train"), record(dataset="yours", fit_on="val")]
    table = only(rows)["nll-val"]
    assert [row[0].text for row in table.rows] == ["mine", "yours"]


def test_performance_counts_each_training_once(tables, records):
    text = dict(
        zip(
            tables["gnn-performance"].header[2:],
            cells(tables["gnn-performance"], "cora", "vgae"),
            strict=True,
        )
    )
    assert text["auc, paper"] == "89.79 \N{PLUS-MINUS SIGN} 0.50"
    data = tables["gnn-performance"].data
    assert (
        data.loc[data["dataset"].eq("cora") & data["model"].eq("sage"), "n_train_seeds"].tolist() == [3] * 3
    )


def test_a_training_made_anew_with_other_numbers_is_told():
    same = [record(calibrator="uncalibrated", metric="auc", value=0.9, fit_on=on) for on in ("train", "val")]
    again = [
        record(calibrator="uncalibrated", metric="auc", value=value, fit_on=on, train_seed=1)
        for on, value in (("train", 0.8), ("val", 0.7))
    ]
    assert "made anew" not in only(same)["gnn-performance"].caption
    table = only(same + again)["gnn-performance"]
    assert "since they were made anew: 1; their mean counts once" in table.caption
    # The mean of 0.9 and 0.75, each training once.
    assert cells(table, "cora", "gcn")[0].startswith("82.50 ")


def test_ranking(tables):
    data = tables["ranking"].data
    ece = data[(data["fit_on"] == "val") & (data["metric"] == "ece")]
    assert ece["calibrator"].tolist() == list(CALIBRATORS)
    assert ece["mean_rank"].mean() == pytest.approx((len(CALIBRATORS) + 1) / 2)
    assert ece["share_won"].sum() == pytest.approx(1.0)
    assert ece["n_rows"].unique().tolist() == [4]
    lines = [row[1].text for row in tables["ranking"].rows if row[0].text == "val"]
    assert lines == [*CALIBRATORS, "Friedman p", "critical difference"]


def test_wilcoxon_of_five_and_twenty_five():
    """Case 03: five trained models with five calibrations each are five observations."""
    rng = np.random.default_rng(0)
    rows = [
        record(train_seed=i, calibration_seed=j, calibrator=name, value=base + rng.random() / 100)
        for name, base in (("histogram", 0.2), ("isotonic", 0.3), ("in-n-out", 0.1), ("platt", 0.01))
        for i in range(5)
        for j in range(5)
    ]
    table = only(rows)["wilcoxon-in-n-out-val"]
    line = dict(zip(table.header[2:], cells(table, "cora", "gcn"), strict=True))
    # Platt scaling is none of the paper's baselines.
    assert line["best baseline"] == "histogram"
    assert (line["n averaged"], line["n nested"]) == ("5", "25")
    assert line["averaged, two-sided"] == "0.0625 no"
    assert line["averaged, one-sided (lower)"] == "0.0312 yes"
    assert line["nested, two-sided"].endswith(" yes")
    assert line["paper"] == "yes"
    data = table.data[table.data["dataset"].eq("cora") & table.data["model"].eq("gcn")]
    assert data["alternative"].tolist() == ["two-sided", "greater"] * 2
    assert data["nested"].tolist() == [False, False, True, True]
    assert set(cells(table, "cora", "vgae")[:-1]) == {MISSING}


def test_a_significantly_worse_method_is_called_so():
    rows = [
        record(train_seed=i, calibrator=name, value=base + i * slope)
        for name, base, slope in (("bbq", 0.1, 0.0), ("in-n-out", 0.2, 0.001))
        for i in range(6)
    ]
    line = cells(only(rows)["wilcoxon-in-n-out-val"], "cora", "gcn")
    assert line[5] == "0.0312 yes (worse)"
    assert line[6] == "1 no"


def test_pattern_shares():
    over, calibrated = CalibrationPattern.OVER_POSITIVE_UNDER_NEGATIVE, CalibrationPattern.CALIBRATED
    rows = [
        record(train_seed=i, calibrator="uncalibrated", metric="pattern", value=float(code))
        for i, code in enumerate([over, over, over, calibrated])
    ]
    found = only(rows)
    assert cells(found["patterns"], "val", "over-positive-under-negative") == ["75 %", "58 %"]
    assert cells(found["patterns"], "val", "u-shaped") == ["0 %", "25 %"]
    assert cells(found["patterns"], "val", "calibrated") == ["25 %", MISSING]
    expected = ["over-positive-under-negative 3/4, calibrated 1/4"]
    assert cells(found["patterns-by-row"], "cora", "gcn") == expected


def test_records_without_patterns_and_floors_show_them_as_missing():
    found = only([record(calibrator="uncalibrated")])
    assert cells(found["patterns"], "val", "u-shaped") == [MISSING, "25 %"]
    assert cells(found["patterns-by-row"], "cora", "gcn") == [MISSING]
    assert cells(found["ece-val"], "cora", "gcn", "ours")[:2] == [MISSING, "10.00"]


@pytest.mark.parametrize("format_", SUFFIXES)
def test_the_same_records_give_the_same_bytes(records, tables, format_):
    shuffled = records.sample(frac=1.0, random_state=1)
    (again,) = build_tables(shuffled).values()
    assert [render(t, format_) for t in again] == [render(t, format_) for t in tables.values()]


def test_joined_settings_are_rows_with_the_published_values():
    rows = [record(), record(settings="preset=paper", value=0.3)]
    (found,) = build_tables(frame(*rows), join_other_settings=True).values()
    (table,) = (each for each in found if each.name == "ece-val")
    texts = [[cell.text for cell in row] for row in table.rows]
    place = next(i for i, row in enumerate(texts) if row[1] == "gcn~preset=paper")
    assert "30.00" in texts[place]
    assert "6.90 \N{PLUS-MINUS SIGN} 0.79" in texts[place + 1]


def test_files(records, tmp_path):
    both = pd.concat([records, records.assign(protocol="paper")])
    built = build_tables(both)
    chosen = choose_tables(built, ["ranking", "ece-val"])
    paths = write_tables(chosen, tmp_path / "out", format="csv")
    names = sorted(str(path.relative_to(tmp_path / "out")) for path in paths)
    assert names == [
        "default-uniform/ece-val.csv", "default-uniform/ranking.csv",
        "paper-uniform/ece-val.csv", "paper-uniform/ranking.csv",
    ]  # fmt: skip
    assert b"\r" not in paths[0].read_bytes()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="out must be a folder, got the file"):
        write_tables(chosen, tmp_path / "file")
    with pytest.raises(InputError, match=r"table must be one of .*did you mean 'ece-val'"):
        choose_tables(built, ["ece-vall"])


def test_hits_with_too_few_negatives_are_not_told_in_silence():
    """Case 16 (c): with fewer than 20 negatives Hits@20 is 1 whatever the model is."""
    few = [record(metric="negatives", value=19.0), record(metric="hits@20", value=1.0)]
    enough = [record(metric="negatives", value=20.0, model="sage"), record(metric="hits@20", model="sage")]
    note = "Hits@20 is 100 % by definition with fewer than 20 test negatives: cora gcn."
    for rows, told in ((few + enough, True), (enough, False)):
        (found,) = build_tables(frame(*rows)).values()
        captions = {table.name: table.caption for table in found}
        for name in ("hits20-val", "hits20-all-val", "overview", "gnn-performance"):
            assert (note in captions[name]) is told, name


def test_a_code_of_no_pattern_is_refused():
    for code in (7.0, 0.5, -1.0):
        rows = frame(record(calibrator="uncalibrated", metric="pattern", value=code))
        with pytest.raises(InputError, match="pattern must be a whole number from 0 to 6, got"):
            build_tables(rows)
