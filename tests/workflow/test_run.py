"""A whole run on a small simulated graph: contents, repeatability, one look at the test links."""

import errno
import itertools
import json
import os
import random
import shutil
import signal
import sys
import time
import warnings
from dataclasses import replace
from importlib.metadata import version

import numpy as np
import pytest
import torch

from linkcal._core.files import written_whole
from linkcal.artifact import load_artifact
from linkcal.calibrators import CALIBRATORS
from linkcal.data import Graph, simulate_graph
from linkcal.exceptions import (
    BaseRateWarning,
    EdgeFeaturesWarning,
    FewNegativesWarning,
    InputError,
    RareClassWarning,
    ShortageError,
    SymmetricDecoderWarning,
)
from linkcal.features import calibration_links
from linkcal.metrics import EVALUATION_KEYS
from linkcal.predictor import CalibratedLinkPredictor
from linkcal.workflow import RunConfig, check_output_folder, run_experiment, to_json, write_outputs
from linkcal.workflow._run import select_calibrator

#: Of a process that replaces a run; more by the environment.
KILLS = int(os.environ.get("LINKCAL_KILLS", "6"))
FAST = ("uncalibrated", "temperature", "platt", "beta", "isotonic", "histogram", "bbq")


def run(graph, **changes):
    settings = {"dataset": "small", "model": "gcn", "epochs": 15, "calibrators": FAST, "seed": 1} | changes
    with warnings.catch_warnings():
        # Tiny test sets and a model that was hardly trained: both are the point here.
        warnings.simplefilter("ignore", BaseRateWarning)
        warnings.simplefilter("ignore", FewNegativesWarning)
        return run_experiment(RunConfig(**settings), graph)


@pytest.fixture(scope="module")
def outcome(small_graph):
    return run(small_graph)


def test_metrics_have_the_agreed_form(outcome, small_graph):
    metrics = outcome.metrics
    known = {"dataset", "model", "seed", "fit_on", "negatives_per_positive", "counts", "results"}
    assert known <= set(metrics)
    assert list(metrics["results"]) == list(FAST)
    for row in metrics["results"].values():
        assert set(row) == {*EVALUATION_KEYS, "group_z", "group_bound", "seconds_fit", "true_error"}
        assert row["group_z"] > 0.0 < row["group_bound"]
    assert set(metrics["worst_segment"]) == set(FAST)
    assert "model_value" not in metrics
    counts = metrics["counts"]
    assert counts["nodes"] == 300
    assert counts["test_positives"] == counts["test_negatives"] == small_graph.num_pairs // 10


@pytest.mark.slow
def test_all_calibrators_run_by_default(small_graph):
    outcome = run(small_graph, calibrators=tuple(CALIBRATORS), epochs=3)
    assert list(outcome.metrics["results"]) == [
        "uncalibrated", "temperature", "platt", "beta", "isotonic", "histogram", "bbq", "embedding-mlp",
        "in-n-out", "in-n-out-plus", "structure-only",
    ]  # fmt: skip


def test_what_the_model_adds_is_the_difference_of_two_rows(small_graph):
    names = ("structure-only", "in-n-out-plus")
    outcome = run(small_graph, calibrators=names)
    results, value = outcome.metrics["results"], outcome.metrics["model_value"]
    assert value["gain"] == pytest.approx(results[names[0]]["nll"] - results[names[1]]["nll"], abs=1e-9)
    assert value["num_links"] == len(outcome.test_label)
    assert value["sentence"].startswith("Beyond degrees, paths and feature similarity the model")
    weighted = run(small_graph, calibrators=names, base_rate=0.1).metrics
    gain = weighted["results"][names[0]]["nll"] - weighted["results"][names[1]]["nll"]
    assert weighted["model_value"]["gain"] == pytest.approx(gain, abs=1e-9)
    assert "worst_segment" not in weighted


def test_the_calibrator_without_the_model_is_never_selected_for_it(small_graph):
    both = run(small_graph, calibrators=("structure-only", "in-n-out-plus"))
    assert both.metrics["selected"] == "in-n-out-plus"
    assert run(small_graph, calibrators=("structure-only",)).metrics["selected"] == "structure-only"


def test_same_seed_same_numbers(outcome, small_graph):
    again = run(small_graph)
    for name in FAST:
        assert np.array_equal(again.test_probability[name], outcome.test_probability[name])
    assert run(small_graph, seed=2).metrics["results"] != outcome.metrics["results"]


def test_leaving_calibrators_out_changes_nothing_else(outcome, small_graph):
    fewer = run(small_graph, calibrators=("beta", "platt"))
    assert np.array_equal(fewer.test_probability["platt"], outcome.test_probability["platt"])


def test_global_random_state_is_left_alone(small_graph):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    np_before = np.random.get_state()[1].copy()  # noqa: NPY002
    run(small_graph, epochs=2)
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(np.random.get_state()[1], np_before)  # noqa: NPY002


def test_true_error_is_the_distance_to_the_known_probability(outcome, small_graph):
    error = {name: row["true_error"] for name, row in outcome.metrics["results"].items()}
    assert all(0.0 < value < 1.0 for value in error.values())
    # The truth itself has the smallest expected loss, and ranks at least as well as a model can.
    oracle = outcome.metrics["oracle"]
    assert oracle["nll"] < min(row["nll"] for row in outcome.metrics["results"].values())
    assert oracle["ece"] < oracle["ece_floor_q95"] + 0.02


def test_unknown_truth_leaves_true_error_out(small_graph):
    plain = Graph(small_graph.edge_index, small_graph.num_nodes, x=small_graph.x)
    metrics = run(plain, epochs=2).metrics
    assert "true_error" not in metrics["results"]["platt"]
    assert "oracle" not in metrics


def test_graph_without_features_learns_an_embedding(small_graph):
    bare = Graph(small_graph.edge_index, small_graph.num_nodes)
    outcome = run(bare, model="sage", epochs=2)
    assert outcome.metrics["counts"]["features"] == 0
    assert outcome.artifact.model.num_nodes == 300


@pytest.mark.parametrize("fit_on", ["stacked", "train-loo", "train"])
def test_other_protocols(small_graph, fit_on):
    outcome = run(small_graph, fit_on=fit_on, epochs=3)
    assert outcome.metrics["fit_on"] == outcome.artifact.info["fit_on"] == fit_on


def test_directed_graph_warns_of_symmetric_decoder(small_graph):
    directed = Graph(small_graph.pairs, 300, x=small_graph.x, directed=True)
    config = RunConfig("d", "gcn", epochs=2, calibrators=("platt",))
    with pytest.warns(SymmetricDecoderWarning, match="gcn gives both directions of a pair the same score"):
        run_experiment(config, directed)


def test_complete_graph_has_no_non_edges():
    complete = torch.ones(12, 12).triu(1).nonzero().T
    with pytest.raises(ShortageError, match="complete graph"):
        run(Graph.from_edges(complete, 12, x=torch.eye(12)))


def test_selection_prefers_the_better_held_out_likelihood(outcome, trained_gcn, small_split):
    scores = calibration_links(trained_gcn, small_split)
    fitted = outcome.artifact.calibrators
    # A model trained one to one is overconfident: the uncalibrated map cannot win by cross-validation.
    chosen = select_calibrator(fitted, scores, None, seed=0)
    assert chosen in ("platt", "beta", "isotonic", "histogram", "bbq")
    assert chosen == select_calibrator(fitted, scores, None, seed=0)


def test_outputs_on_disk(outcome, tmp_path):
    paths = write_outputs(outcome, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "artifact", "config.json", "metrics.json", "reliability.png", "report.html",
    ]  # fmt: skip
    assert json.loads(paths["metrics"].read_text()) == json.loads(to_json(outcome.metrics))
    config = json.loads(paths["config"].read_text())
    assert RunConfig.from_dict(config["config"]) == outcome.config
    assert config["environment"]["versions"]["torch"] == version("torch")
    assert paths["figure"].read_bytes().startswith(b"\x89PNG")
    assert paths["report"].read_text().count("<html") == 1
    loaded = CalibratedLinkPredictor.load(paths["artifact"], calibrator="isotonic")
    assert loaded.predict_proba(torch.tensor([[0], [1]])).shape == (1,)


def whole(folder):
    """Seed in metrics, settings and artifact of a finished run, which must agree."""
    seed = json.loads((folder / "metrics.json").read_text())["seed"]
    assert json.loads((folder / "config.json").read_text())["config"]["seed"] == seed
    assert load_artifact(folder).info["number"] == seed
    assert (folder / "reliability.png").read_bytes().endswith(b"IEND\xaeB`\x82")
    assert (folder / "report.html").read_text().rstrip().endswith("</html>")
    return seed


def numbered(outcome, seed):
    artifact = replace(outcome.artifact, info={**outcome.artifact.info, "number": seed})
    metrics = {**outcome.metrics, "seed": seed}
    return replace(outcome, artifact=artifact, metrics=metrics, config=replace(outcome.config, seed=seed))


@pytest.fixture
def quick(outcome, tmp_path, monkeypatch):
    """A figure that was drawn before, and no look at the commit: writing takes a tenth of a second."""
    drawn = write_outputs(outcome, tmp_path / "drawn")["figure"].read_bytes()
    shutil.rmtree(tmp_path / "drawn")

    def figure(*arguments, **options):
        with written_whole(arguments[2]) as path:
            path.write_bytes(drawn)

    monkeypatch.setattr("linkcal.report._page.reliability_figure", figure)
    monkeypatch.setattr("linkcal.workflow._run._git_commit", lambda: None)


class FullDisk:
    """Refuses the n-th new file, folder, name or link below a folder, as a full disk does."""

    def __init__(self):
        self.folder, self.left = None, -1
        sys.addaudithook(self)

    def __call__(self, event, arguments):
        if self.folder is None or event not in ("open", "os.mkdir", "os.rename", "os.link"):
            return
        path, mode = arguments[:2]
        writes = event != "open" or (isinstance(mode, str) and set(mode) & set("wxa+"))
        if writes and not isinstance(path, int) and os.fsdecode(path).startswith(self.folder):
            self.left -= 1
            if self.left < 0:
                raise OSError(errno.ENOSPC, "No space left on device", os.fsdecode(path))


def test_a_full_disk_at_any_file_leaves_the_old_run_whole(outcome, tmp_path, quick):
    disk, out = FullDisk(), tmp_path / "out"
    write_outputs(numbered(outcome, 1), out)
    (out / "mine.txt").write_text("kept")
    refused = 0
    while True:
        disk.folder, disk.left = str(tmp_path), refused
        try:
            write_outputs(numbered(outcome, 2), out)
            break
        except (OSError, InputError) as error:
            message = str(error)
            refused += 1
        finally:
            disk.folder = None
        assert "No space left on device" in message
        assert whole(out) == 1
        assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert refused > 10  # files, folders and names, each in turn
    assert whole(out) == 2
    assert (out / "mine.txt").read_text() == "kept"


def test_a_new_folder_looks_finished_only_when_it_is(outcome, tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr("linkcal.report._page.write_report", fail)
    with pytest.raises(OSError, match="disk full"):
        write_outputs(outcome, tmp_path / "out")
    assert not (tmp_path / "out" / "metrics.json").exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_kill_at_any_moment_leaves_a_whole_run(outcome, tmp_path, quick):
    """A forked child replaces a run again and again until it is killed."""
    out, draw, seeds = tmp_path / "out", random.Random(0), []
    write_outputs(numbered(outcome, 0), out)
    for kill in range(KILLS):
        ready, done = os.pipe()
        child = os.fork()
        if not child:
            try:
                for seed in itertools.count(100 * kill + 1):
                    os.write(done, b".")
                    write_outputs(numbered(outcome, seed), out)
            finally:
                os._exit(1)
        os.read(ready, 1)
        time.sleep(draw.uniform(0, 1.5))
        os.kill(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        os.close(ready), os.close(done)
        seeds.append(whole(out))
    assert len(set(seeds)) > 1
    write_outputs(numbered(outcome, 0), out)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]  # what the dead left is removed


def test_a_folder_with_a_run_is_not_taken_for_new(outcome, tmp_path, monkeypatch):
    check_output_folder(tmp_path / "out", new=True)
    write_outputs(outcome, tmp_path / "out")
    check_output_folder(tmp_path / "out")
    with pytest.raises(InputError, match=r"out must be a folder without a run, got .*--force"):
        check_output_folder(tmp_path / "out", new=True)
    monkeypatch.chdir(tmp_path / "out")
    with pytest.raises(InputError, match="out must not be a mount point or the current folder"):
        check_output_folder(".")


def test_json_has_no_nan():
    assert json.loads(to_json({"a": float("nan"), "b": [1.0, float("inf")]})) == {"a": None, "b": [1.0, None]}


def test_features_made_from_edges_warn_of_leave_one_out(small_graph):
    edges, build = small_graph.edge_index, lambda edges, n: torch.ones(n, 2)
    built = Graph(edges, small_graph.num_nodes, feature_builder=build)
    config = RunConfig("built", "gcn", epochs=2, fit_on="train-loo", calibrators=("platt",))
    with pytest.warns(EdgeFeaturesWarning, match="leave-one-out scores keep a trace of it"):
        outcome = run_experiment(config, built)
    assert outcome.artifact.graph.features_from_edges
    config = RunConfig("small", "peg", epochs=1, fit_on="train-loo", calibrators=("platt",))
    with pytest.warns(EdgeFeaturesWarning, match=r"node features \(positions\) of peg are computed from the"):
        run_experiment(config, small_graph)


def test_selection_without_links_to_choose_by_takes_the_first(outcome, trained_gcn, small_split):
    scores = calibration_links(trained_gcn, small_split)
    positive = torch.nonzero(scores.label == 1).flatten()[:1]
    few = scores.take(torch.cat([positive, torch.nonzero(scores.label == 0).flatten()]))
    with pytest.warns(RareClassWarning, match="at least 2 of each class to choose a calibrator by, got 1"):
        assert select_calibrator(outcome.artifact.calibrators, few, None, seed=0) == "uncalibrated"


def test_few_test_negatives_are_warned_of():
    graph = simulate_graph(60, num_edges=150, num_features=8, seed=0)
    config = RunConfig("small", "gcn", epochs=2, calibrators=("uncalibrated",))
    few = [pytest.warns(FewNegativesWarning, match=f"Hits@{k}") for k in (20, 50)]
    with few[0], few[1]:
        run_experiment(config, graph)
