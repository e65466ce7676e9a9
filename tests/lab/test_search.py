"""Search: deterministic, resumable after a kill at any moment, blind to the test links."""

from dataclasses import replace
from pathlib import Path

import pytest

from linkcal.data import LinkPairs, simulate_graph
from linkcal.exceptions import InputError, TrainingDivergedError
from linkcal.workflow import RunConfig, run_experiment, split_graph
from linkcal_lab import search as module
from linkcal_lab.protocols import run_config
from linkcal_lab.search import search_hyperparameters
from refusals import refuses

CONFIG = RunConfig("small", "gcn", seed=2)
SPACE = {"lr": [0.1, 0.01], "hidden_channels": [4, 8], "epochs": [5, 10, 20]}
GRAPH = simulate_graph(120, num_edges=400, num_features=8, seed=0)


def search(path, *, graph=GRAPH, config=CONFIG, **options):
    return search_hyperparameters(config, graph, path, **{"space": SPACE, **options})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return search(tmp_path_factory.mktemp("search") / "s.json")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "s.json"


def test_the_grid_is_visited_once_and_the_best_is_the_best(whole):
    points = [(trial.values["lr"], trial.values["hidden_channels"]) for trial in whole.trials]
    assert sorted(points) == [(0.01, 4), (0.01, 8), (0.1, 4), (0.1, 8)]
    assert whole.best.val_auc == max(trial.val_auc for trial in whole.trials)
    assert [trial.number for trial in whole.trials] == [0, 1, 2, 3]
    preset = whole.preset("best")
    assert dict(preset.hyperparameters) == whole.best.values
    assert preset.origin == {
        "dataset": "small", "seed": 2, "sampler": "grid", "trials": 4, "val_auc": whole.best.val_auc,
    }  # fmt: skip


@pytest.mark.filterwarnings("ignore::linkcal.exceptions.LinkcalWarning")
@pytest.mark.parametrize("protocol", ["default", "released-code"])
def test_one_training_answers_for_all_epochs(path, protocol):
    """The grid over epochs without a training each; the released code keeps the last epoch, not the best."""
    config = run_config(protocol, "small", "gcn", seed=2, calibrators=("uncalibrated",))
    (trial,) = search(path, config=config, space={"lr": [0.1], "epochs": [5, 15, 40]}).trials
    singly = {}
    for epochs in (5, 15, 40):
        run = replace(config, hyperparameters=(*config.hyperparameters, ("lr", 0.1)), epochs=epochs)
        singly[epochs] = run_experiment(run, GRAPH).trained.result.best_val_auc
    best = max(singly.values())
    assert trial.val_auc == best
    assert trial.values["epochs"] == min(epochs for epochs, auc in singly.items() if auc == best)


class Untouchable(LinkPairs):
    """Test pairs that nobody may look at."""

    def __getattribute__(self, name):
        if name.startswith("edge_label"):
            raise AssertionError("test pairs were read")
        return super().__getattribute__(name)


@pytest.mark.parametrize("sampler", ["grid", "tpe"])
def test_test_links_are_never_read(whole, path, sampler):
    pairs = object.__new__(Untouchable)
    with pytest.raises(AssertionError, match="test pairs were read"):
        len(pairs)
    split = replace(split_graph(CONFIG, GRAPH), test=pairs)
    result = search(path, graph=split, sampler=sampler, trials=4)
    assert len(result.trials) == 4
    if sampler == "grid":
        assert result.trials == whole.trials


class Killed(BaseException):
    """A process ends between two instructions."""


@pytest.mark.parametrize("sampler", ["grid", "tpe"])
@pytest.mark.parametrize("at", ["_train", "_write"])
def test_cut_off_search_ends_as_one_that_ran_through(tmp_path, monkeypatch, sampler, at):
    straight = search(tmp_path / "a.json", sampler=sampler, trials=3)
    calls = []

    def dies(*arguments, **keywords):
        calls.append(arguments)
        if len(calls) == 2:
            raise Killed
        return original(*arguments, **keywords)

    original = getattr(module, at)
    with monkeypatch.context() as patch:
        patch.setattr(module, at, dies)
        with pytest.raises(Killed):
            search(tmp_path / "b.json", sampler=sampler, trials=3)
    assert search(tmp_path / "b.json", sampler=sampler, trials=3).trials == straight.trials


def test_finished_trials_are_not_trained_again(tmp_path, path, monkeypatch):
    first = search(path, trials=2)
    counted, train = [], module._train
    monkeypatch.setattr(module, "_train", lambda *a: counted.append(1) or train(*a))
    assert search(path).trials[:2] == first.trials
    assert len(counted) == 2
    # TPE may ask for a point again; its outcome is known.
    counted.clear()
    result = search(tmp_path / "t.json", sampler="tpe", trials=9)
    assert len(result.trials) == 9
    assert len(counted) == len({tuple(t.values[n] for n in ("lr", "hidden_channels")) for t in result.trials})


def test_another_search_is_refused(path):
    search(path, trials=1)
    with pytest.raises(InputError, match="the same settings, got sampler = 'grid' there and 'tpe' here"):
        search(path, trials=1, sampler="tpe")
    refuses("got seed = 2 there and 5 here", search, path, config=replace(CONFIG, seed=5))


def test_one_process_at_a_time(path):
    def second(step):
        refuses("must be used by one search at a time", search, path, trials=1)
        asked.append(step)

    asked = []
    search(path, trials=1, progress=second)
    assert [(step.done, step.total) for step in asked] == [(0, 1), (1, 1)]


def test_a_diverged_training_is_recorded_and_loses(path, tmp_path, monkeypatch):
    train = module.train_link_predictor

    def sometimes(model, split, config, **options):
        if config.lr == 0.1:
            raise TrainingDivergedError("loss must stay finite")
        return train(model, split, config, **options)

    monkeypatch.setattr(module, "train_link_predictor", sometimes)
    result = search(path)
    assert sum(trial.val_auc is None for trial in result.trials) == 2
    assert len(result.ranked) == 2
    assert result.best.values["lr"] == 0.01
    with pytest.raises(InputError, match="got 1 that diverged"):
        _ = search(tmp_path / "t.json", space={"lr": [0.1], "epochs": [5]}).best


@pytest.mark.parametrize(
    ("epochs", "searched"), [(None, [400, 600, 800, 1000]), (700, [400, 600]), (30, [30])]
)
def test_default_space_is_the_papers_grid_and_epochs_bound_it(path, monkeypatch, epochs, searched):
    monkeypatch.setattr(module, "_train", lambda _config, _split, _values, epochs, _device: (0.5, epochs))
    result = search(path, config=RunConfig("small", "sage", epochs=epochs), space=None)
    assert len(result.trials) == 144
    for name in ("lr", "num_layers", "hidden_channels", "out_channels"):
        assert {trial.values[name] for trial in result.trials} == set(module.PAPER_GRID[name])
    assert result.best.values["epochs"] == searched


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampler": "random"}, "sampler must be one of grid, tpe"),
        ({"trials": 0}, "trials must be a whole number >= 1"),
        ({"space": {"lrr": [1], "epochs": [5]}}, "did you mean 'lr'"),
        ({"space": {"lr": [], "epochs": [5]}}, "space must hold values of lr, got none"),
        ({"space": {"lr": [0.1]}}, "space must hold values of epochs"),
    ],
)
def test_bad_settings(path, options, message):
    refuses(message, search, path, **options)
    assert not path.exists()


@pytest.mark.parametrize("content", ["", "[]", '{"format": "linkcal preset 1"}', "no JSON " * 100])
def test_a_file_of_another_program_stays_as_it_is(path, content):
    path.write_text(content)
    refuses(r"storage .*s\.json must be a file of an earlier search", search, path, trials=1)
    assert path.read_text() == content


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder that cannot be written to")
@pytest.mark.parametrize("folder", ["/proc/self", "/none"])
def test_a_folder_that_takes_no_files_is_refused(folder):
    refuses("storage must be", search, f"{folder}/s.json", trials=1)
