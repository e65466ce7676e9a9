"""Records of a sweep: from its store, from exported files, from several of them."""

import shutil

import numpy as np
import pandas as pd
import pytest
from tests.lab.sample import frame, record

from linkcal.exceptions import InputError
from linkcal_lab.cells import SweepPlan
from linkcal_lab.records import export_records, read_records, write_record_file
from linkcal_lab.store import Predictions, read_predictions, write_predictions
from linkcal_lab.sweep import SweepOptions, run_sweep
from refusals import refuses


@pytest.fixture(scope="module")
def stores(tmp_path_factory, small_graph):
    """One sweep of two trainings, and the same in two stores of one training each."""
    root = tmp_path_factory.mktemp("stores")
    settings = {"epochs": 2, "calibrators": ("uncalibrated", "platt")}
    plan = SweepPlan(["own"], ["gcn"], [0, 1], [0], ["val"], settings)
    run_sweep(plan, root / "both", SweepOptions(graphs={"own": small_graph}))
    for name, other in (("first", "train-1"), ("second", "train-0")):
        shutil.copytree(root / "both", root / name, ignore=shutil.ignore_patterns(other))
    return root


@pytest.mark.parametrize("ending", [".csv.gz", ".csv.xz"])
def test_export_reads_back_bit_for_bit(stores, tmp_path, ending):
    records = read_records(stores / "both")
    number = export_records(stores / "both", tmp_path / f"a{ending}")
    export_records(stores / "both", tmp_path / f"b{ending}")
    assert (tmp_path / f"a{ending}").read_bytes() == (tmp_path / f"b{ending}").read_bytes()
    again = read_records(tmp_path / f"a{ending}")
    assert again.equals(records)
    assert list(again.dtypes) == list(records.dtypes)
    assert number == len(records)
    assert (set(records["settings"]), set(records["protocol"])) == ({"epochs=2"}, {"default"})
    records.to_csv(tmp_path / "long.csv", index=False)
    assert read_records(tmp_path / "long.csv").equals(records)


def test_an_export_may_hold_the_test_links_only(stores, tmp_path):
    records = read_records(stores / "both")
    number = export_records(stores / "both", tmp_path / "a.csv.xz", parts=["test"])
    expected = records[records["part"] == "test"].reset_index(drop=True)
    assert 0 < number == len(expected) < len(records)
    assert read_records(tmp_path / "a.csv.xz").equals(expected)
    for parts, message in (((), "got none"), (("all",), "got 'all'"), (("val",), "hold values of val, got")):
        refuses(message, export_records, tmp_path / "a.csv.xz", tmp_path / "b.csv.xz", parts=parts)
    with pytest.raises(InputError, match=r"out must end in \.csv\.gz or \.csv\.xz, got b\.csv"):
        export_records(stores / "both", tmp_path / "b.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv.xz"]


def test_parts_of_one_experiment_make_a_whole(stores, tmp_path):
    export_records(stores / "second", tmp_path / "second.csv.gz")
    whole = read_records(stores / "both")
    assert read_records(tmp_path / "second.csv.gz", stores / "first").equals(whole)
    export_records(tmp_path / "second.csv.gz", tmp_path / "joined.csv.xz", more=[stores / "first"])
    export_records(stores / "both", tmp_path / "whole.csv.xz")
    assert (tmp_path / "joined.csv.xz").read_bytes() == (tmp_path / "whole.csv.xz").read_bytes()
    with pytest.raises(InputError, match=r"records must hold each value once, got \d+ again, first own, gcn"):
        read_records(stores / "both", tmp_path / "second.csv.gz")


def test_missing_values_and_values_that_are_nan_are_told_apart(tmp_path):
    records = frame(record(metric="ece", value=np.nan), record(metric="nll", value=0.1 + 0.2))
    records = pd.concat([records, frame(record(metric="nll", train_seed=1, value=-np.inf))])
    write_record_file(records, tmp_path / "a.csv.xz")
    again = read_records(tmp_path / "a.csv.xz")
    assert again["metric"].tolist() == ["ece", "nll", "nll"]
    assert np.isnan(again["value"][0])
    assert again["value"].tolist()[1:] == [0.1 + 0.2, -np.inf]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "must have the columns dataset, model"),
        ("{keys}\n", "must have one column for each metric, got none"),
        ("{keys},metric:ece,metric:ece\n{row},0.1,0.2\n", "must have one column for each metric"),
        ("{keys},ece\n{row},0.1\n", "must have one column for each metric, got ece"),
        ("{keys},metric:ece\n{row},much\n", "must be a whole file of measured values, got could not convert"),
        ("{keys},metric:ece\n{row},0.1,0.2,0.3\n", "must be a whole file of measured values"),
    ],
)
def test_a_wrong_file_is_an_error(tmp_path, text, message):
    keys = [name for name in frame(record()).columns if name not in ("metric", "value")]
    row = ",".join(str(value) for value in frame(record())[keys].iloc[0])
    (tmp_path / "wrong.csv").write_text(text.format(keys=",".join(keys), row=row))
    refuses(message, read_records, tmp_path / "wrong.csv")


@pytest.mark.parametrize("ending", [".csv.gz", ".csv.xz"])
def test_a_file_cut_off_is_an_error(stores, tmp_path, ending):
    path = tmp_path / f"half{ending}"
    export_records(stores / "both", path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    refuses(r"half.* must be a whole file of measured values, got", read_records, path)


# Files of predictions: read back bit for bit, and nothing half is read.


@pytest.fixture
def predictions():
    rng = np.random.default_rng(0)
    links = {"val": 30, "test": 50}
    rows = {part: rng.normal(size=(2, n)) for part, n in links.items()}
    return Predictions(
        ("uncalibrated", "platt"),
        label={part: (rng.random(n) < 0.5).astype(np.int8) for part, n in links.items()},
        logit=rows,
        probability={part: 1 / (1 + np.exp(-values)) for part, values in rows.items()},
        truth={"test": rng.random(50)},
    )


def test_what_is_read_is_what_was_written(predictions, tmp_path):
    write_predictions(predictions, tmp_path / "p.npz")
    again = read_predictions(tmp_path / "p.npz")
    assert again.calibrators == ("uncalibrated", "platt")
    assert set(again.truth) == {"test"}
    for kind in ("label", "logit", "probability", "truth"):
        for part, values in getattr(predictions, kind).items():
            read = getattr(again, kind)[part]
            assert read.dtype == values.dtype
            assert np.array_equal(read, values)
