"""Tables of a small sweep: entries by hand, missing cells, marks, tests, files."""

from pathlib import Path

import numpy as np
import pytest
from tests.lab.sample import CALIBRATORS, frame, record, sweep, tables_of

from linkcal_lab.formats import MISSING, SUFFIXES, Table, render
from linkcal_lab.published import published_values
from linkcal_lab.records import read_records
from linkcal_lab.tables import build_tables, choose_tables, write_tables
from refusals import refuses

#: Records and the tables made from them.
FOLDER = Path(__file__).parents[2] / "docs" / "reproduction"


@pytest.fixture(scope="module")
def tables() -> dict[str, Table]:
    return tables_of(sweep())


def cells(table: Table, *labels: str) -> list[str]:
    (line,) = [row for row in table.rows if tuple(c.text for c in row[: len(labels)]) == labels]
    return [cell.text for cell in line[len(labels) :]]


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
    table = tables_of(frame(*rows))["ece-val"]
    line = dict(zip(table.header[4:], cells(table, "cora", "gcn", "ours")[1:], strict=True))
    assert line["uncalibrated"] == "32.00 \N{PLUS-MINUS SIGN} 2.00 [3.00]"
    assert line["in-n-out"] == "12.00 \N{PLUS-MINUS SIGN} 2.00 [3.00]"
    assert line["temperature"] == MISSING
    # All differences are 0.2 but for rounding: certain.
    assert line["p, best vs second"] == "0.000"
    data = table.data.set_index(["dataset", "model", "calibrator"]).loc[("cora", "gcn", "in-n-out")]
    assert data["difference"] == pytest.approx(0.12 - 0.069, abs=1e-12)
    assert (data["n"], data["best"]) == (3, True)


def test_best_of_a_row_is_bold_and_ties_share_it():
    values = {"uncalibrated": 0.5, "temperature": 0.5, "isotonic": 0.4}
    rows = [record(calibrator=n, metric="hits@20", value=v) for n, v in values.items()]
    table = tables_of(frame(*rows))["hits20-all-val"]
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
    found = tables_of(frame(*rows))
    for name in ("ece-val", "ece-top-label-val", "nll-val"):
        assert found[name].header[3] == "links"
        line = next(row for row in found[name].rows if [c.text for c in row[:2]] == ["cora", "gcn"])
        assert line[3].text == "527 + 527-528"


def test_performance_counts_each_training_once(tables):
    table = tables["gnn-performance"]
    text = dict(zip(table.header[2:], cells(table, "cora", "vgae"), strict=True))
    assert text["auc, paper"] == "89.79 \N{PLUS-MINUS SIGN} 0.50"
    assert table.data.query("dataset == 'cora' and model == 'sage'")["n_train_seeds"].tolist() == [3] * 3


def test_a_training_made_anew_with_other_numbers_is_told():
    same = [record(calibrator="uncalibrated", metric="auc", value=0.9, fit_on=on) for on in ("train", "val")]
    again = [
        record(calibrator="uncalibrated", metric="auc", value=value, fit_on=on, train_seed=1)
        for on, value in (("train", 0.8), ("val", 0.7))
    ]
    assert "made anew" not in tables_of(frame(*same))["gnn-performance"].caption
    table = tables_of(frame(*same, *again))["gnn-performance"]
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
    table = tables_of(frame(*rows))["wilcoxon-in-n-out-val"]
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


@pytest.fixture(scope="module")
def shuffled() -> dict[str, Table]:
    return tables_of(sweep().sample(frac=1.0, random_state=1))


@pytest.mark.parametrize("format_", SUFFIXES)
def test_the_same_records_give_the_same_bytes(shuffled, tables, format_):
    assert [render(t, format_) for t in shuffled.values()] == [render(t, format_) for t in tables.values()]


def test_files(tmp_path):
    built = build_tables(frame(record(), record(protocol="paper")))
    chosen = choose_tables(built, ["ranking", "ece-val"])
    paths = write_tables(chosen, tmp_path / "out", format="csv")
    names = sorted(str(path.relative_to(tmp_path / "out")) for path in paths)
    assert names == [
        "default-uniform/ece-val.csv", "default-uniform/ranking.csv",
        "paper-uniform/ece-val.csv", "paper-uniform/ranking.csv",
    ]  # fmt: skip
    assert b"\r" not in paths[0].read_bytes()
    (tmp_path / "file").write_text("")
    refuses("out must be a folder, got the file", write_tables, chosen, tmp_path / "file")
    refuses(r"table must be one of .*did you mean 'ece-val'", choose_tables, built, ["ece-vall"])


def test_hits_with_too_few_negatives_are_not_told_in_silence():
    """Case 16 (c): with fewer than 20 negatives Hits@20 is 1 whatever the model is."""
    few = [record(metric="negatives", value=19.0), record(metric="hits@20", value=1.0)]
    enough = [record(metric="negatives", value=20.0, model="sage"), record(metric="hits@20", model="sage")]
    note = "Hits@20 is 100 % by definition with fewer than 20 test negatives: cora gcn."
    for rows, told in ((few + enough, True), (enough, False)):
        found = tables_of(frame(*rows))
        for name in ("hits20-val", "hits20-all-val", "overview", "gnn-performance"):
            assert (note in found[name].caption) is told, name


def test_a_code_of_no_pattern_is_refused():
    for code in (7.0, 0.5, -1.0):
        rows = frame(record(calibrator="uncalibrated", metric="pattern", value=code))
        refuses("pattern must be a whole number from 0 to 6, got", build_tables, rows)


# The overview: every row counts once.


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
    table = tables_of(frame(*rows))["overview"]
    found = table.data.set_index(["fit_on", "calibrator", "metric"])["mean"]
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


# Agreement with the published values.


def published(dataset, model, calibrator):
    sheet = published_values("table1_ece").set_index(["dataset", "model", "calibrator"])
    return sheet["mean"][dataset, model, calibrator] / 100


def test_differences_by_hand():
    # Means over seeds: 1 and 5 points above the paper, 2 points below, and a row that it lacks.
    shifts = {("cora", "gcn"): (0.00, 0.02), ("cora", "gin"): (0.05,), ("pubmed", "vgae"): (-0.02,)}
    rows = [
        record(
            dataset=d, model=m, train_seed=seed, calibrator="in-n-out", metric="ece",
            value=published(d, m, "in-n-out") + shift,
        )
        for (d, m), values in shifts.items()
        for seed, shift in enumerate(values)
    ]  # fmt: skip
    rows.append(record(dataset="mine", model="gcn", calibrator="in-n-out", metric="ece", value=0.9))
    table = tables_of(frame(*rows))["agreement"]
    entry = table.data.set_index(["metric", "calibrator"]).loc[("ece", "in-n-out")]
    assert entry["n_rows"] == 3
    assert entry[["median", "lower", "upper"]].tolist() == pytest.approx([0.01, -0.005, 0.03])
    assert entry[["near", "ours_lower"]].tolist() == pytest.approx([2 / 3, 1 / 3])
    names = list(dict.fromkeys(published_values("table1_ece")["calibrator"]))
    assert [row[2].text for row in table.rows] == names * 2
    lines = {tuple(cell.text for cell in row[1:3]): [cell.text for cell in row[3:]] for row in table.rows}
    assert lines["ece", "in-n-out"] == ["3", "+1.0", "-0.5 to +3.0", "67 %", "33 %"]
    assert lines["ece_top_label", "in-n-out"] == ["0", *[MISSING] * 4]
    assert lines["ece", "isotonic"] == ["0", *[MISSING] * 4]


def test_rows_by_hand():
    plain, ours = {"calibrator": "uncalibrated"}, {"calibrator": "in-n-out"}
    performance = published_values("table8_gnn_performance").set_index(["dataset", "model", "metric"])
    auc, ece = performance["mean"]["cora", "gcn", "auc"] / 100, published("cora", "gcn", "in-n-out")
    rows = [
        record(metric="auc", value=auc - 0.05, **plain),
        record(metric="auc", value=auc - 0.03, train_seed=1, **plain),
        record(metric="ece", value=ece + 0.10, **ours),
        record(metric="ece", value=ece + 0.08, train_seed=1, **ours),
        record(metric="ece_top_label", value=ece + 0.02, **ours),
        record(dataset="mine", metric="auc", value=0.9, **plain),
        record(dataset="mine", model="gin", fit_on="train", metric="auc", value=0.9, **plain),
    ]
    table = tables_of(frame(*rows))["agreement-rows-val"]
    cora, mine = table.rows
    found = dict(zip(table.header, cora, strict=True))
    shown = {name: (cell.text, cell.strong) for name, cell in found.items() if cell.text != MISSING}
    assert shown == {
        "data set": ("cora", False), "model": ("gcn", False), "auc uncalibrated": ("-4.0", False),
        "ece in-n-out": ("+9.0", False), "ece_top_label in-n-out": ("+2.0", True),
    }  # fmt: skip
    assert [cell.text for cell in mine] == ["mine", "gcn", *[MISSING] * 8]
    data = table.data.set_index(["dataset", "metric", "calibrator"])
    assert data.loc[("cora", "ece", "in-n-out"), "difference"] == pytest.approx(0.09)
    assert data.loc[("cora", "ece", "in-n-out"), "published_mean"] == ece
    assert data.groupby("dataset")["near"].sum().to_dict() == {"cora": 1, "mine": 0}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("records", "tables"), [("records.csv.xz", "tables"), ("records-seal.csv.xz", "seal")], ids=str
)
def test_tables_are_made_from_the_records(records, tables, tmp_path):
    write_tables(build_tables(read_records(FOLDER / records)), tmp_path, format="markdown")
    committed = sorted((FOLDER / tables).glob("*.md"))
    assert len(committed) > 5
    for path in committed:
        assert path.read_text() == (tmp_path / path.name).read_text(), path.name
    if tables == "tables":
        assert {path.name for path in committed} == {path.name for path in tmp_path.glob("*.md")}
