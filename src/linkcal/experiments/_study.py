"""An Optuna study on disk that one process owns, and that goes on where it was however it ended."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linkcal._random import stream_seed
from linkcal.exceptions import DataNotFoundError, InputError

if TYPE_CHECKING:
    import optuna

__all__ = ["next_trial", "open_study"]

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
