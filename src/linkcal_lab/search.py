"""Search of hyper-parameters by validation AUC; the test links are not there."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from linkcal._core.files import require_writable, written_whole
from linkcal._core.random import stream_seed
from linkcal._core.validation import check_choice, check_device, check_positive_int
from linkcal.data import Graph, LinkPairs, LinkSplit
from linkcal.exceptions import DataNotFoundError, InputError, TrainingDivergedError
from linkcal.models import TrainingResult, train_link_predictor
from linkcal.workflow import PresetFile, RunConfig, Step, split_graph
from linkcal.workflow._steps import build_model

#: How a search goes through its space: every point once in a random order, or tree-structured Parzen
#: estimators, which prefer points near good ones.
SAMPLERS = ("grid", "tpe")

#: The paper's grid (arXiv 2403.04605, appendix).
PAPER_GRID: dict[str, list[Any]] = {
    "lr": [0.1, 0.01, 0.001],
    "num_layers": [1, 2, 3],
    "hidden_channels": [16, 32, 64, 128],
    "out_channels": [16, 32, 64, 128],
    "epochs": [400, 600, 800, 1000],
}
#: Its hyper-parameters that cost trainings of their own.
SEARCHED = tuple(name for name in PAPER_GRID if name != "epochs")

# Trials of a TPE search by default: about a third of the grid's 144.
_TPE_TRIALS = 50

_FORMAT = "linkcal search 1"


@dataclass(frozen=True)
class SearchTrial:
    """One training: its number, its hyper-parameters with ``epochs``, and its AUC, None if it diverged."""

    number: int
    values: dict[str, Any]
    val_auc: float | None


@dataclass(frozen=True)
class SearchResult:
    """Finished trials of a search, by number, and the settings that they had in common."""

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
        """Trial with the highest validation AUC; an error if all trainings diverged."""
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

    Every trial is kept in `storage` as soon as it ends. The same call goes on with what is there. However
    often a search is cut off, its outcome is that of an unbroken one.

    Parameters
    ----------
    config : RunConfig
        What all trials share: data set, model, seed, preset (everything that is not searched). ``epochs``
        bounds the searched epochs. Calibrators and ``fit_on`` play no part.
    graph : Graph or LinkSplit
        A graph is split as `config` says; an official split is used as it is. The test pairs are removed
        before the first training.
    storage : path
        JSON file of the trials; made if it is not there, for one search and one process at a time.
    sampler : {"grid", "tpe"}
    trials : int, optional
        Trials in all, those in `storage` included. By default the whole grid, or 50 for ``"tpe"``.
    space : mapping of str to list, optional
        Values of ``SEARCHED`` hyper-parameters and ``epochs``; by default ``PAPER_GRID``.
    device : torch.device or str
    progress : callable, optional
        Called with a :class:`Step` after each trial.

    Returns
    -------
    SearchResult

    Raises
    ------
    InputError
        If a setting is out of range, or `storage` holds a search with other settings, is no such file, is in
        use, or cannot be written.
    DataNotFoundError
        If Optuna (extra ``lab``) is not installed.

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
    ...     result = search_hyperparameters(RunConfig("toy", "gcn"), graph, f"{folder}/s.json", space=space)
    >>> len(result.trials), sorted(result.best.values)
    (2, ['epochs', 'lr'])
    """
    check_choice(sampler, "sampler", SAMPLERS)
    space, epochs = _space(config, space)
    total = _total(sampler, trials, space)
    place = check_device(device)
    split = split_graph(config, graph)
    # What is not there cannot be scored.
    split = replace(split, test=LinkPairs(torch.empty(2, 0, dtype=torch.int64), torch.empty(0))).to(place)
    file = Path(storage)
    with _owned(file):
        settings = _settings(config, sampler, space, epochs)
        found = _read(file, settings)
        while len(found) < total:
            if progress is not None:
                progress(Step("search", len(found), total))
            values = next_values(found, sampler, space, config.seed)
            known = (trial for trial in found if _searched(trial) == values)
            # A second training with the same values would give the same.
            earlier = next(known, None)
            if earlier is None:
                val_auc, best = _train(config, split, values, epochs, place)
            else:
                val_auc, best = earlier.val_auc, earlier.values["epochs"]
            found.append(SearchTrial(len(found), {**values, "epochs": best}, val_auc))
            _write(file, settings, found)
        if progress is not None:
            progress(Step("search", total, total))
    return SearchResult(config, sampler, tuple(found[:total]))


def _space(
    config: RunConfig, space: Mapping[str, list[Any]] | None
) -> tuple[dict[str, list[Any]], list[int]]:
    """Searched values but for the epochs, and the epochs, ascending."""
    space = PAPER_GRID if space is None else space
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
    size = math.prod(len(values) for values in space.values())
    if trials is not None:
        trials = check_positive_int(trials, "trials")
    if sampler == "grid":
        return size if trials is None else min(trials, size)
    return trials or _TPE_TRIALS


def next_values(
    found: list[SearchTrial], sampler: str, space: Mapping[str, list[Any]], seed: int
) -> dict[str, Any]:
    """Hyper-parameters of the trial after those in `found`, which alone it depends on.

    Optuna proposes them in a study in memory that holds the earlier trials. Every value of a TPE search is
    picked by a sampler of its own, seeded with the trial's number.
    """
    try:
        import optuna
    except ImportError as error:
        raise DataNotFoundError(
            "package optuna must be installed for a search (pip install 'linkcal[lab]'), got none"
        ) from error
    number = len(found)

    def seeded(stream: str) -> Any:
        if sampler == "tpe":
            return optuna.samplers.TPESampler(seed=stream_seed(seed, stream) % 2**32)
        # One seed for all trials: it orders the points, and a trial's number is its place in that order.
        return optuna.samplers.GridSampler(dict(space), seed=stream_seed(seed, "search") % 2**32)

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        study = optuna.create_study(direction="maximize", sampler=seeded(f"search {number}"))
        distributions: dict[str, Any] = {
            name: optuna.distributions.CategoricalDistribution(list(values)) for name, values in space.items()
        }
        state = optuna.trial.TrialState
        for trial in found:
            finished = state.PRUNED if trial.val_auc is None else state.COMPLETE
            study.add_trial(
                optuna.trial.create_trial(
                    state=finished, value=trial.val_auc, params=_searched(trial), distributions=distributions
                )
            )
        asked, values = study.ask(), {}
        for name, choices in space.items():
            study.sampler = seeded(f"search {number} {name}")
            values[name] = asked.suggest_categorical(name, choices)
    finally:
        optuna.logging.set_verbosity(verbosity)
    return values


def _searched(trial: SearchTrial) -> dict[str, Any]:
    return {name: value for name, value in trial.values.items() if name != "epochs"}


def _train(
    config: RunConfig, split: LinkSplit, values: dict[str, Any], epochs: list[int], device: torch.device
) -> tuple[float | None, int]:
    """Validation AUC of one training (None if it diverged) and the number of epochs that has it."""
    hyperparameters = tuple({**dict(config.hyperparameters), **values}.items())
    longest = replace(config, hyperparameters=hyperparameters, epochs=epochs[-1])
    model, prepared, training = build_model(longest, split)
    try:
        result = train_link_predictor(model, prepared, training, seed=config.seed, device=device)
    except TrainingDivergedError:
        return None, epochs[-1]
    return _chosen_epochs(result, epochs, keep_best=training.keep_best)


def _chosen_epochs(result: TrainingResult, epochs: list[int], *, keep_best: bool) -> tuple[float, int]:
    if keep_best:
        return result.best_val_auc, next(number for number in epochs if number >= result.best_epoch)
    curve = dict(result.val_auc)
    missing = [number for number in epochs if number not in curve]
    if missing:
        raise InputError(f"eval_every must divide every searched number of epochs, got {missing[0]}")
    best = max(epochs, key=lambda number: (curve[number], -number))
    return curve[best], best


# The file of trials: written whole after each, owned by one process.


def _settings(
    config: RunConfig, sampler: str, space: Mapping[str, list[Any]], epochs: list[int]
) -> dict[str, Any]:
    """What must be equal for trials to belong to one search, as JSON gives it back."""
    apart = ("calibrators", "calibrator_params", "fit_on", "epochs")
    common = {name: value for name, value in config.to_dict().items() if name not in apart}
    settings = {**common, "sampler": sampler, "space": dict(space), "epochs": epochs}
    return dict(json.loads(json.dumps(settings)))


@contextmanager
def _owned(file: Path) -> Iterator[None]:
    """Keep other processes out; the operating system lifts the lock of a process that dies."""
    if not file.parent.is_dir() or file.is_dir():
        raise InputError(f"storage must be a file in an existing folder, got {file}")
    require_writable(file.parent, "storage")
    lock = FileLock(file.with_name(f".{file.name}.lock"), timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise InputError(f"storage {file} must be used by one search at a time, got another one") from error
    try:
        yield
    finally:
        lock.release()


def _read(file: Path, settings: Mapping[str, Any]) -> list[SearchTrial]:
    """Trials that the file holds, none without a file; a file of another program or search is an error."""
    if not file.exists():
        return []
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        if record["format"] != _FORMAT:
            raise ValueError(f"format {record['format']!r}")
        before, trials = dict(record["settings"]), [SearchTrial(**trial) for trial in record["trials"]]
    except (KeyError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"storage {file} must be a file of an earlier search, got {reason}") from error
    for name, value in settings.items():
        if before.get(name) != value:
            raise InputError(
                f"storage {file} must hold a search with the same settings, got {name} = "
                f"{before.get(name)!r} there and {value!r} here"
            )
    return trials


def _write(file: Path, settings: Mapping[str, Any], trials: list[SearchTrial]) -> None:
    record = {"format": _FORMAT, "settings": settings, "trials": [asdict(trial) for trial in trials]}
    with written_whole(file) as temporary:
        temporary.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
