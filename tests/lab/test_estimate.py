"""Time estimates from made-up timings."""

import json
import math

import pytest

from linkcal_lab.cells import SweepPlan
from linkcal_lab.estimate import estimate_jobs, wall_seconds
from linkcal_lab.store import Store

EDGES = {"cora": 5000, "pubmed": 45000}
CALIBRATORS = ("uncalibrated", "platt")


def plan(datasets, models=("gcn",), seeds=(0, 1)):
    return SweepPlan(datasets, models, seeds, [0, 1], ["val"], {"calibrators": CALIBRATORS})


@pytest.fixture
def store(tmp_path):
    """Cora and gcn, training seed 0: 10 s of training, and two cells of 0.5 + 1 + 2 + 2 * 3 s."""
    store = Store(tmp_path)
    job = plan(["cora"]).jobs()[0]
    config = job.config_for("val").to_dict()
    here = {"environment": {"cuda": None}, "protocol": "default"}
    training = {"config": config, "counts": {"edges": EDGES["cora"]}, "seconds": {"total": 10.0}, **here}
    seconds = {"score": 0.5, "fit uncalibrated": 1.0, "fit platt": 2.0, "evaluate": 6.0, "total": 9.5}
    cell = {"config": config, "calibrators": dict.fromkeys(CALIBRATORS), "seconds": seconds, **here}
    folders = {store.training_folder(job): training}
    folders |= {
        store.new_cell_folder(job, one): cell | {"calibration_seed": one.calibration_seed}
        for one in job.cells()
    }
    for folder, record in folders.items():
        record["processor_seconds"] = dict(record["seconds"])
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(record))
    return store


def test_extrapolated_in_proportion_to_edges(store):
    (estimate,) = estimate_jobs(plan(["pubmed"], seeds=[0]), store)
    # The published number of edges: pubmed is not in the store.
    assert estimate.seconds == pytest.approx(29 * 44324 / 5000)
    assert estimate.basis == "extrapolated"
    (other,) = estimate_jobs(plan(["cora"], models=["sage"], seeds=[0]), store)
    assert (other.seconds, other.basis) == (pytest.approx(29), "extrapolated")


def test_nothing_known(store, tmp_path):
    (estimate,) = estimate_jobs(plan(["cora"], seeds=[0]), Store(tmp_path / "empty"))
    assert estimate.basis == "unknown"
    assert math.isnan(estimate.seconds)
    assert math.isnan(wall_seconds([estimate], 2))


def test_a_missing_calibrator_is_all_that_is_estimated(store):
    more = SweepPlan(["cora"], ["gcn"], [0], [0, 1], ["val"], {"calibrators": ("platt", "beta")})
    (estimate,) = estimate_jobs(more, store)
    assert (estimate.train, estimate.cells, estimate.basis) == (False, 2, "unknown")


@pytest.mark.parametrize(
    ("cuda", "processor", "expected"),
    [
        (None, 10.0, 10.0),
        (None, 4.0, 4.0),  # the rest of 10 s belonged to other programs
        (None, 17.0, 10.0),  # two threads
        ("a GPU", 4.0, 10.0),  # which was waited for
    ],
)
def test_what_other_programs_took_is_not_estimated(store, cuda, processor, expected):
    job = plan(["cora"]).jobs()[0]
    path = store.training_folder(job) / "config.json"
    record = json.loads(path.read_text())
    record |= {"processor_seconds": {"total": processor}, "environment": {"cuda": cuda}}
    path.write_text(json.dumps(record))
    (estimate,) = estimate_jobs(plan(["cora"]), store)
    assert (estimate.train, estimate.cells, estimate.basis) == (True, 2, "measured")
    assert estimate.seconds == pytest.approx(expected + 2 * 9.5)
