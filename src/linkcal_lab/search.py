"""Search of hyper-parameters by validation AUC."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from linkcal._core.random import stream_seed
from linkcal._core.validation import check_choice, check_device, check_positive_int
from linkcal.data import Graph, LinkPairs, LinkSplit
from linkcal.exceptions import DataNotFoundError, InputError, TrainingDivergedError
from linkcal.models import MODELS, TrainingResult, train_link_predictor
from linkcal.workflow.config import PresetFile, RunConfig
from linkcal.workflow.steps import Step, build_model, split_graph

if TYPE_CHECKING:
    import optuna

__all__ = [
    "SAMPLERS",
    "SEARCHED",
    "SearchResult",
    "SearchTrial",
    "next_trial",
    "open_study",
    "search_hyperparameters",
]


# An Optuna study on disk that one process owns, and that goes on where it was however it ended.

_STUDY = "linkcal search"
#: First bytes of every SQLite file that is not empty.
_SQLITE = b"SQLite format 3\x00"


@contextmanager
def open_study(path: str | os.PathLike[str], settings: Mapping[str, Any]) -> Iterator[optuna.Study]:
    """Open or make the study in an SQLite file, for this process alone.

    Raises
    ------
    InputError
        If the file is no study, another process works on it, or it was made with other settings.
    DataNotFoundError
        If optuna is not installed.
    """
    optuna = _optuna()
    from sqlalchemy.exc import SQLAlchemyError

    file = Path(path)
    if not file.parent.is_dir() or file.is_dir():
        raise InputError(f"storage must be a file in an existing folder, got {file}")
    _refuse_foreign(file)
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with _owned(file):
            try:
                storage = optuna.storages.RDBStorage(f"sqlite:///{file.resolve()}")
            except (SQLAlchemyError, optuna.exceptions.OptunaError, RuntimeError) as error:
                reason = str(error).splitlines()[0]
                raise InputError(
                    f"storage {file} must be a file of an earlier search, got {reason}"
                ) from error
            try:
                study = optuna.create_study(
                    storage=storage, study_name=_STUDY, direction="maximize", load_if_exists=True
                )
                _check_settings(study, file, settings)
                yield study
            finally:
                storage.remove_session()
                storage.engine.dispose()
    finally:
        optuna.logging.set_verbosity(verbosity)


def next_trial(
    study: optuna.Study, sampler: str, space: Mapping[str, list[Any]], seed: int
) -> tuple[optuna.Trial, dict[str, Any]]:
    """Trial to run now, one that a killed process left unfinished or else a new one, and its values.

    Every value is picked by a sampler of its own, seeded with the trial's number, and an unfinished trial is
    run again under its number: a search that was killed goes through the same trials as one that was not.
    """
    optuna = _optuna()
    unfinished = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,))
    number = unfinished[0].number if unfinished else len(study.get_trials(deepcopy=False))
    study.sampler = _sampler(sampler, space, seed, f"search {number}")
    trial = optuna.Trial(study, unfinished[0]._trial_id) if unfinished else study.ask()
    values = {}
    for name, choices in space.items():
        study.sampler = _sampler(sampler, space, seed, f"search {number} {name}")
        values[name] = trial.suggest_categorical(name, choices)
    return trial, values


def _sampler(name: str, space: Mapping[str, list[Any]], seed: int, stream: str) -> Any:
    optuna = _optuna()
    if name == "tpe":
        return optuna.samplers.TPESampler(seed=stream_seed(seed, stream) % 2**32)

    base: Any = optuna.samplers.GridSampler

    class Grid(base):
        """Every point once; the caller counts, since a study can be stopped in ``optimize`` only."""

        def after_trial(self, *arguments: Any, **keywords: Any) -> None:
            """Do not stop the study."""

    # One seed for all trials: it orders the points, and a trial's number is its place in that order.
    return Grid(dict(space), seed=stream_seed(seed, "search") % 2**32)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise DataNotFoundError(
            "package optuna must be installed for a search (pip install 'linkcal[search]'), got none"
        ) from error
    return optuna


def _refuse_foreign(file: Path) -> None:
    """Leave a file of another program as it is: Optuna would put its tables into any SQLite file.

    A search that was killed at its very start leaves an empty file, or one with the first of the tables.
    """
    if not file.exists() or not file.stat().st_size:
        return
    try:
        # SQLite takes a file that is shorter than its header for an empty one.
        with file.open("rb") as opened:
            start = opened.read(len(_SQLITE))
        if start != _SQLITE:
            raise sqlite3.DatabaseError("file is not a database")
        with closing(sqlite3.connect(file, timeout=0.0)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    except sqlite3.OperationalError:
        return  # locked: by another search, which is told where the lock is taken
    except sqlite3.DatabaseError as error:
        raise InputError(f"storage {file} must be a file of an earlier search, got {error}") from error
    if tables and "studies" not in tables:
        raise InputError(
            f"storage {file} must be a file of an earlier search, got a database with {min(tables)}"
        )


@contextmanager
def _owned(file: Path) -> Iterator[None]:
    """Keep other processes out; the operating system lifts the lock of a process that dies."""
    lock = file.with_name(f"{file.name}.lock")
    with closing(sqlite3.connect(lock, timeout=0.0, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            raise InputError(
                f"storage {file} must be used by one search at a time, got another one"
            ) from error
        yield


def _check_settings(study: optuna.Study, file: Path, settings: Mapping[str, Any]) -> None:
    before = study.user_attrs.get("settings")
    if before is None:
        study.set_user_attr("settings", dict(settings))
        return
    for name, value in settings.items():
        if before.get(name) != value:
            raise InputError(
                f"storage {file} must hold a search with the same settings, got {name} = "
                f"{before.get(name)!r} there and {value!r} here"
            )


# Search of hyper-parameters by validation AUC; the test links are not there.

#: How a search goes through its space: every point once in a random order, or tree-structured Parzen
#: estimators, which prefer points near good ones.
SAMPLERS = ("grid", "tpe")

#: Hyper-parameters of the paper's grid; their values stand in ``ModelSpec.search``.
SEARCHED = ("lr", "num_layers", "hidden_channels", "out_channels")

# Trials of a TPE search where nothing is asked: about a third of the grid's 144.
_TPE_TRIALS = 50


@dataclass(frozen=True)
class SearchTrial:
    """One training.

    Parameters
    ----------
    number : int
    values : dict
        Hyper-parameters, ``epochs`` with them.
    val_auc : float or None
        None if the training diverged.
    """

    number: int
    values: dict[str, Any]
    val_auc: float | None


@dataclass(frozen=True)
class SearchResult:
    """Finished trials of a search, and the settings they had in common.

    Parameters
    ----------
    config : RunConfig
    sampler : str
    trials : tuple of SearchTrial
        By number.
    """

    config: RunConfig
    sampler: str
    trials: tuple[SearchTrial, ...]

    @property
    def ranked(self) -> list[SearchTrial]:
        """Trials that did not diverge, best validation AUC first, ties by number."""
        kept = [trial for trial in self.trials if trial.val_auc is not None]
        return sorted(kept, key=lambda trial: (-float(trial.val_auc or 0.0), trial.number))

    @property
    def best(self) -> SearchTrial:
        """Trial with the highest validation AUC.

        Raises
        ------
        InputError
            If all trainings diverged.
        """
        if not self.ranked:
            raise InputError(
                f"search must have a training that stays finite, got {len(self.trials)} that diverged"
            )
        return self.ranked[0]

    def preset(self, name: str) -> PresetFile:
        """Best hyper-parameters as a preset, with where they come from."""
        config, best = self.config, self.best
        origin = {
            "dataset": config.dataset,
            "seed": config.seed,
            "protocol": config.protocol,
            "sampler": self.sampler,
            "trials": len(self.trials),
            "val_auc": best.val_auc,
        }
        values = {**dict(config.hyperparameters), **best.values}
        return PresetFile(name, config.model, tuple(values.items()), config.preset, origin)


def search_hyperparameters(
    config: RunConfig,
    graph: Graph | LinkSplit,
    storage: str | os.PathLike[str],
    *,
    sampler: str = "grid",
    trials: int | None = None,
    space: Mapping[str, list[Any]] | None = None,
    device: torch.device | str = "cpu",
    progress: Callable[[Step], None] | None = None,
) -> SearchResult:
    """Train on many hyper-parameters and rank them by the AUC on validation links.

    Every trial is kept in `storage` as soon as it ends. The same call goes on with what is there; a trial
    that was cut off is run again. However often that happens, the outcome is that of an unbroken search.

    Parameters
    ----------
    config : RunConfig
        What all trials share: data set, model, seed, protocol, preset (everything that is not searched).
        ``epochs`` bounds the searched epochs. Calibrators and ``fit_on`` play no part.
    graph : Graph or LinkSplit
        A graph is split as `config` says; a split (an official one) is taken as it is. The test pairs are
        removed before the first training.
    storage : path
        SQLite file of Optuna; made if it is not there, for one search and one process at a time.
    sampler : {"grid", "tpe"}
    trials : int, optional
        Trials in all, those in `storage` included. By default the whole grid, or 50 for ``"tpe"``.
    space : mapping of str to list, optional
        Values of ``SEARCHED`` hyper-parameters and ``epochs``; by default the paper's grid
        (``MODELS[...].search``).
    device : torch.device or str
    progress : callable, optional
        Called with a :class:`Step` after each trial.

    Returns
    -------
    SearchResult

    Raises
    ------
    InputError
        If a setting is out of range, or `storage` holds a search with other settings, is no such file, or is
        in use.
    DataNotFoundError
        If Optuna (extra ``search``) is not installed.

    Notes
    -----
    The number of epochs costs no trainings of its own: one training to the largest number passes through all
    smaller ones, with the same random numbers. With ``keep_best`` a training of E epochs keeps the best
    epoch up to E, so the largest number wins and the smallest that holds the same epoch is reported; without,
    the AUC after exactly E epochs decides. So the paper's 576 points are 144 trainings.

    References
    ----------
    arXiv 2403.04605, appendix (the grid).

    Examples
    --------
    >>> import tempfile
    >>> from linkcal.data import simulate_graph
    >>> graph = simulate_graph(100, num_edges=300, num_features=5, seed=0)
    >>> space = {"lr": [0.1, 0.01], "epochs": [5, 10]}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = search_hyperparameters(RunConfig("toy", "gcn"), graph, f"{folder}/s.db", space=space)
    >>> len(result.trials), sorted(result.best.values)
    (2, ['epochs', 'lr'])
    """
    check_choice(sampler, "sampler", SAMPLERS)
    space, epochs = _space(config, space)
    total = _total(sampler, trials, space)
    place = check_device(device)
    split = _without_test(graph if isinstance(graph, LinkSplit) else split_graph(config, graph)).to(place)
    with open_study(storage, _settings(config, sampler, space, epochs)) as study:
        while (done := sum(trial.state.is_finished() for trial in study.get_trials(deepcopy=False))) < total:
            if progress is not None:
                progress(Step("search", done, total))
            trial, values = next_trial(study, sampler, space, config.seed)
            _finish(study, trial, _known(study, values) or _train(config, split, values, epochs, place))
        if progress is not None:
            progress(Step("search", total, total))
        records = tuple(_record(trial) for trial in study.get_trials(deepcopy=False)[:total])
    return SearchResult(config, sampler, records)


def _space(
    config: RunConfig, space: Mapping[str, list[Any]] | None
) -> tuple[dict[str, list[Any]], list[int]]:
    """Searched values but for the epochs, and the epochs, ascending."""
    if space is None:
        grid = MODELS[config.model].search
        space = {name: grid[name] for name in (*SEARCHED, "epochs")}
    for name, values in space.items():
        check_choice(name, "space", (*SEARCHED, "epochs"))
        if not values:
            raise InputError(f"space must hold values of {name}, got none")
    epochs = sorted(check_positive_int(value, "epochs") for value in space.get("epochs", []))
    if config.epochs is not None:
        epochs = [value for value in epochs if value <= config.epochs] or [config.epochs]
    if not epochs:
        raise InputError("space must hold values of epochs where config.epochs is None, got none")
    return {name: list(values) for name, values in space.items() if name != "epochs"}, epochs


def _total(sampler: str, trials: int | None, space: Mapping[str, list[Any]]) -> int:
    size = 1
    for values in space.values():
        size *= len(values)
    if trials is not None:
        trials = check_positive_int(trials, "trials")
    if sampler == "grid":
        return size if trials is None else min(trials, size)
    return trials or _TPE_TRIALS


def _without_test(split: LinkSplit) -> LinkSplit:
    """The split with no test pair in it: what is not there cannot be scored."""
    nothing = LinkPairs(torch.empty(2, 0, dtype=torch.int64), torch.empty(0))
    return replace(split, test=nothing)


def _settings(
    config: RunConfig, sampler: str, space: Mapping[str, list[Any]], epochs: list[int]
) -> dict[str, Any]:
    """What must be equal for trials to belong to one search, as JSON gives it back."""
    common = {
        name: value
        for name, value in config.to_dict().items()
        if name not in ("calibrators", "fit_on", "epochs")
    }
    return {**common, "sampler": sampler, "space": dict(space), "epochs": epochs}


def _train(
    config: RunConfig, split: LinkSplit, values: dict[str, Any], epochs: list[int], device: torch.device
) -> dict[str, Any]:
    """Outcome of one training: ``val_auc`` (None if it diverged) and ``epochs``."""
    hyperparameters = tuple({**dict(config.hyperparameters), **values}.items())
    asked = replace(config, hyperparameters=hyperparameters, epochs=epochs[-1])
    model, prepared, training = build_model(asked, split)
    try:
        result = train_link_predictor(model, prepared, training, seed=config.seed, device=device)
    except TrainingDivergedError:
        return {"val_auc": None, "epochs": epochs[-1]}
    return _chosen_epochs(result, epochs, keep_best=training.keep_best)


def _chosen_epochs(result: TrainingResult, epochs: list[int], *, keep_best: bool) -> dict[str, Any]:
    if keep_best:
        enough = next(number for number in epochs if number >= result.best_epoch)
        return {"val_auc": result.best_val_auc, "epochs": enough}
    curve = dict(result.val_auc)
    missing = [number for number in epochs if number not in curve]
    if missing:
        raise InputError(f"eval_every must divide every searched number of epochs, got {missing[0]}")
    best = max(epochs, key=lambda number: (curve[number], -number))
    return {"val_auc": curve[best], "epochs": best}


def _known(study: Any, values: dict[str, Any]) -> dict[str, Any] | None:
    """Outcome of an earlier trial with the same values: a second training would give the same."""
    for trial in study.get_trials(deepcopy=False):
        if trial.state.is_finished() and trial.params == values:
            return dict(trial.user_attrs["outcome"])
    return None


def _finish(study: Any, trial: Any, outcome: dict[str, Any]) -> None:
    trial.set_user_attr("outcome", outcome)
    if outcome["val_auc"] is None:
        study.tell(trial, state=_pruned())
    else:
        study.tell(trial, outcome["val_auc"])


def _pruned() -> Any:
    from optuna.trial import TrialState

    return TrialState.PRUNED


def _record(trial: Any) -> SearchTrial:
    outcome = trial.user_attrs["outcome"]
    return SearchTrial(trial.number, {**trial.params, "epochs": outcome["epochs"]}, outcome["val_auc"])
