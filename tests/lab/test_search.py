"""Search: deterministic, resumable after a kill at any moment, blind to the test links."""

from dataclasses import replace
from pathlib import Path

import pytest

from linkcal.data import LinkPairs
from linkcal.exceptions import InputError, TrainingDivergedError
from linkcal.models import TrainingConfig, TrainingResult, make_model, train_link_predictor
from linkcal.workflow import RunConfig, run_experiment, split_graph
from linkcal_lab import search as module
from linkcal_lab.search import search_hyperparameters

CONFIG = RunConfig("small", "gcn", seed=2)
SPACE = {"lr": [0.1, 0.01], "hidden_channels": [4, 8], "epochs": [5, 10, 20]}


def search(graph, path, **options):
    return search_hyperparameters(CONFIG, graph, path, **{"space": SPACE, **options})


@pytest.fixture(scope="module")
def whole(small_graph, tmp_path_factory):
    return search(small_graph, tmp_path_factory.mktemp("search") / "s.json")


def test_the_grid_is_visited_once_and_the_best_is_the_best(whole):
    points = [(trial.values["lr"], trial.values["hidden_channels"]) for trial in whole.trials]
    assert sorted(points) == [(0.01, 4), (0.01, 8), (0.1, 4), (0.1, 8)]
    assert whole.best.val_auc == max(trial.val_auc for trial in whole.trials)
    assert [trial.number for trial in whole.trials] == [0, 1, 2, 3]


def test_trials_are_real_trainings(whole, small_graph):
    """What a trial reports is what a run with its values as a preset reaches."""
    best, preset = whole.best, whole.preset("best")
    values = {"preset": preset.base, "hyperparameters": preset.hyperparameters}
    config = replace(CONFIG, **values, calibrators=("uncalibrated",))
    result = run_experiment(config, small_graph).trained.result
    assert result.best_val_auc == best.val_auc
    assert result.best_epoch <= best.values["epochs"]


@pytest.mark.parametrize("keep_best", [True, False])
def test_one_training_answers_for_all_epochs(small_split, keep_best):
    """The grid over epochs without a training each: equal to one with."""

    def trained(epochs):
        model = make_model("gcn", 24, hidden_channels=4, seed=2)
        config = TrainingConfig(epochs=epochs, lr=0.1, patience=None, keep_best=keep_best)
        return train_link_predictor(model, small_split, config, seed=2)

    singly = {epochs: trained(epochs).best_val_auc for epochs in (5, 15, 40)}
    chosen = module._chosen_epochs(trained(40), [5, 15, 40], keep_best=keep_best)
    best = max(singly.values())
    assert chosen == (best, min(epochs for epochs, auc in singly.items() if auc == best))


def test_epochs_that_were_not_looked_at_are_refused():
    result = TrainingResult(12, 0.8, ((6, 0.7), (12, 0.8)), 12, False, 0.1, 0.0)
    with pytest.raises(InputError, match="eval_every must divide every searched number of epochs, got 5"):
        module._chosen_epochs(result, [5, 12], keep_best=False)


class Untouchable(LinkPairs):
    """Test pairs that nobody may look at."""

    def __getattribute__(self, name):
        if name.startswith("edge_label"):
            raise AssertionError("test pairs were read")
        return super().__getattribute__(name)


def untouchable():
    pairs = object.__new__(Untouchable)
    assert isinstance(pairs, LinkPairs)
    with pytest.raises(AssertionError, match="test pairs were read"):
        len(pairs)
    return pairs


@pytest.mark.parametrize("sampler", ["grid", "tpe"])
def test_test_links_are_never_read(whole, small_graph, tmp_path, sampler):
    split = replace(split_graph(CONFIG, small_graph), test=untouchable())
    result = search(split, tmp_path / "s.json", sampler=sampler, trials=4)
    assert len(result.trials) == 4
    if sampler == "grid":
        assert result.trials == whole.trials


class Killed(BaseException):
    """A process ends between two instructions."""


@pytest.mark.parametrize("sampler", ["grid", "tpe"])
@pytest.mark.parametrize("at", ["_train", "_write"])
def test_cut_off_search_ends_as_one_that_ran_through(small_graph, tmp_path, monkeypatch, sampler, at):
    straight = search(small_graph, tmp_path / "a.json", sampler=sampler, trials=3)
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
            search(small_graph, tmp_path / "b.json", sampler=sampler, trials=3)
    assert search(small_graph, tmp_path / "b.json", sampler=sampler, trials=3).trials == straight.trials


def test_finished_trials_are_not_trained_again(small_graph, tmp_path, monkeypatch):
    first = search(small_graph, tmp_path / "s.json", trials=2)
    counted, train = [], module._train
    monkeypatch.setattr(module, "_train", lambda *a: counted.append(1) or train(*a))
    more = search(small_graph, tmp_path / "s.json")
    assert more.trials[:2] == first.trials
    assert len(counted) == 2
    # TPE may ask for a point again; its outcome is known.
    counted.clear()
    result = search(small_graph, tmp_path / "t.json", sampler="tpe", trials=9)
    assert len(result.trials) == 9
    assert len(counted) == len({tuple(t.values[n] for n in ("lr", "hidden_channels")) for t in result.trials})


def test_another_search_is_refused(small_graph, tmp_path):
    search(small_graph, tmp_path / "s.json", trials=1)
    with pytest.raises(InputError, match="the same settings, got sampler = 'grid' there and 'tpe' here"):
        search(small_graph, tmp_path / "s.json", trials=1, sampler="tpe")
    with pytest.raises(InputError, match="got seed = 2 there and 5 here"):
        search_hyperparameters(replace(CONFIG, seed=5), small_graph, tmp_path / "s.json", space=SPACE)


def test_one_process_at_a_time(small_graph, tmp_path):
    def second(step):
        with pytest.raises(InputError, match="must be used by one search at a time"):
            search(small_graph, tmp_path / "s.json", trials=1)
        asked.append(step)

    asked = []
    search(small_graph, tmp_path / "s.json", trials=1, progress=second)
    assert [(step.done, step.total) for step in asked] == [(0, 1), (1, 1)]


def test_a_storage_without_a_folder_is_refused(small_graph, tmp_path):
    with pytest.raises(InputError, match="storage must be a file in an existing folder"):
        search(small_graph, tmp_path / "none" / "s.json")


def test_a_diverged_training_is_recorded_and_loses(small_graph, tmp_path, monkeypatch):
    train = module.train_link_predictor

    def sometimes(model, split, config, **options):
        if config.lr == 0.1:
            raise TrainingDivergedError("loss must stay finite")
        return train(model, split, config, **options)

    monkeypatch.setattr(module, "train_link_predictor", sometimes)
    result = search(small_graph, tmp_path / "s.json")
    assert sum(trial.val_auc is None for trial in result.trials) == 2
    assert len(result.ranked) == 2
    assert result.best.values["lr"] == 0.01
    with pytest.raises(InputError, match="got 1 that diverged"):
        _ = search(small_graph, tmp_path / "t.json", space={"lr": [0.1], "epochs": [5]}).best


def test_default_space_is_the_papers_grid_and_epochs_bound_it():
    space, epochs = module._space(RunConfig("small", "sage"), None)
    assert {**space, "epochs": epochs} == module.PAPER_GRID
    assert module._total("grid", None, space) == 144
    assert module._space(RunConfig("small", "sage", epochs=700), None)[1] == [400, 600]
    assert module._space(RunConfig("small", "sage", epochs=30), None)[1] == [30]


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
def test_bad_settings(small_graph, tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        search(small_graph, tmp_path / "s.json", **options)
    assert not (tmp_path / "s.json").exists()


def test_preset_says_where_it_comes_from(whole):
    preset = whole.preset("best")
    assert dict(preset.hyperparameters) == whole.best.values
    assert preset.origin == {
        "dataset": "small", "seed": 2, "sampler": "grid", "trials": 4,
        "val_auc": whole.best.val_auc,
    }  # fmt: skip


@pytest.mark.parametrize("content", ["", "x", "[]", '{"format": "linkcal preset 1"}', "no JSON " * 100])
def test_a_file_of_another_program_stays_as_it_is(small_graph, tmp_path, content):
    path = tmp_path / "s.json"
    path.write_text(content)
    with pytest.raises(
        InputError, match=r"storage .*s\.json must be a file of an earlier search, got"
    ) as caught:
        search(small_graph, path, trials=1)
    assert "\n" not in str(caught.value)
    assert path.read_text() == content


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder that cannot be written to")
def test_a_folder_that_cannot_be_written_to_is_refused_in_one_line(small_graph):
    with pytest.raises(InputError, match="storage must be in a folder that can be written to"):
        search(small_graph, "/proc/self/s.json", trials=1)
