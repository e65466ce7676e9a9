"""Plans: order of work, folder names, and what is refused."""

from pathlib import Path

import pytest

from linkcal.workflow import RunConfig
from linkcal_lab.cells import SweepPlan, TrainingJob, parse_seeds
from linkcal_lab.protocols import run_config
from refusals import refuses


def test_every_data_set_comes_before_the_second_seed():
    jobs = SweepPlan(["cora", "pubmed"], ["gcn", "sage"], [0, 1], [0], ["val"]).jobs()
    assert [job.config.seed for job in jobs] == [0] * 4 + [1] * 4
    assert {job.config.dataset for job in jobs[:2]} == {"cora", "pubmed"}


def test_folder_names_tell_the_settings():
    plain = TrainingJob(RunConfig("cora", "vgae", seed=2), ("val",), (0,))
    assert plain.folder == Path("cora/vgae/train-2")
    assert [cell.name for cell in plain.cells()] == ["val/cal-0"]
    config = RunConfig("a/../b", "vgae", negatives_per_positive=2.0, calibrators=("platt",))
    folder = TrainingJob(config, ("val",), (0,)).folder
    assert folder == Path("a_.._b/vgae~negatives_per_positive=2.0/train-0")
    assert TrainingJob(RunConfig("cora", "gcn", epochs=3), ("val",), (0,)).suffix == "~epochs=3"
    paper = run_config("paper", "cora", "vgae", hyperparameters={"lr": 0.1})
    assert TrainingJob(paper, ("val",), (0,), "paper").suffix == "~hyperparameters=lr-0.1~protocol=paper"
    assert TrainingJob(RunConfig(".hidden", "gcn"), ("val",), (0,)).folder.parts[0] == "_.hidden"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models": ["gcn", "gcn"]}, "models must hold one value or more, each once"),
        ({"models": ["gnc"]}, "model must be one of"),
        ({"fit_on": ["test"]}, "fit_on must be one of"),
        ({"train_seeds": [-1]}, "seed must be"),
        ({"settings": {"epoch": 3}}, "setting must be one of"),
        ({"settings": {"epochs": 0}}, "epochs must be"),
        ({"settings": {"seed": 3}}, "setting must be one of"),
        # The cells are measured at the share of links among the test links.
        ({"settings": {"base_rate": 0.01}}, "setting must be one of"),
        # It would lie in the folder of "a_b".
        ({"datasets": ["a b"]}, "datasets must be named by"),
        ({"datasets": [""]}, "datasets must be named by"),
    ],
)
def test_a_bad_plan_is_refused(changes, message):
    refuses(message, SweepPlan, **{"datasets": ["cora"], "models": ["gcn"]} | changes)


@pytest.mark.parametrize(
    "text", ["", "0", "x", "3-1", "1,1", "1,,2", "-1", "9223372036854775807", "0-999999999999", "99999"]
)
def test_bad_seeds_are_refused(text):
    refuses("seeds must", parse_seeds, text)
