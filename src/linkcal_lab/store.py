"""The folder that a sweep fills, and the arrays in it.

    train-0/.lock                        held by the process that works on this training
    train-0/training/                    the trained model and its link scores
    train-0/val/cal-0/                   a finished cell
    train-0/val/cal-0.2/                 calibrators that were added later
    train-0/failed-val-cal-1.json        why a cell is missing; removed when it succeeds
    train-0/failed-val-cal-1-platt.json  the same for one calibrator of a cell
    train-0/.writing-...                 unfinished; the next holder of the lock removes it

A finished folder appears by one rename, after its files have reached the disk, and is never written to again.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout
from numpy.typing import NDArray
from torch import Tensor

from linkcal._core.files import read_arrays, written_whole
from linkcal.exceptions import InputError
from linkcal.features import LinkScores
from linkcal.toggle import ToggledEmbeddings
from linkcal.workflow import RunConfig, to_json
from linkcal_lab.cells import Cell, TrainingJob
from linkcal_lab.protocols import find_protocol

CONFIG_FILE = "config.json"
_LOCK = ".lock"
_WRITING = ".writing-"
#: Files that this program may have been writing when it was killed (see ``written_whole``).
_UNFINISHED = (f"{_WRITING}*", ".failed-*.json", ".metrics-*.csv")
_REMEDY = "remove its folder, which is made anew then"
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


class BusyError(Exception):
    """Another process works on the training."""


class Store:
    """A sweep's folder; made when something is written."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)
        if self.root.exists() and not self.root.is_dir():
            raise InputError(f"store must be a folder, got the file {self.root}")

    def training_folder(self, job: TrainingJob) -> Path:
        """Where the training of `job` lies or will lie."""
        return self.root / job.folder / "training"

    def has_training(self, job: TrainingJob) -> bool:
        """Whether the training is there."""
        return self.training_folder(job).is_dir()

    def cell_folders(self, job: TrainingJob, cell: Cell) -> list[Path]:
        """Finished folders of a cell: none, one, or more if calibrators were added."""
        folder = self.root / job.folder / cell.name
        return [path for path in (folder, *sorted(folder.parent.glob(f"{folder.name}.*"))) if path.is_dir()]

    def new_cell_folder(self, job: TrainingJob, cell: Cell) -> Path:
        """Where the next folder of a cell goes."""
        folder = self.root / job.folder / cell.name
        if not folder.exists():
            return folder
        # Not by their count: one that was damaged and removed leaves a gap among the others.
        number = 2
        while folder.with_name(f"{folder.name}.{number}").exists():
            number += 1
        return folder.with_name(f"{folder.name}.{number}")

    def missing(self, job: TrainingJob, cell: Cell) -> tuple[str, ...]:
        """Calibrators of `job` that no folder of the cell has."""
        done: set[str] = set()
        for folder in self.cell_folders(job, cell):
            done |= set(read_cell(folder)[2]["calibrators"])
        return tuple(name for name in job.config.calibrators if name not in done)

    @contextmanager
    def locked(self, job: TrainingJob, *, wait: bool) -> Iterator[None]:
        """Hold the training's lock; what an earlier holder left unfinished is removed first.

        The system frees the lock when its holder dies, however it dies.

        Raises
        ------
        BusyError
            If somebody else holds it and `wait` is false.
        """
        folder = self.root / job.folder
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / _LOCK, timeout=-1 if wait else 0)
        try:
            lock.acquire()
        except Timeout as error:
            raise BusyError(job.title) from error
        try:
            _clean(folder)
            yield
        finally:
            lock.release()

    @contextmanager
    def new_folder(self, target: Path) -> Iterator[Path]:
        """Give a temporary folder beside `target`; make it `target` when the block ends well.

        The caller holds the training's lock.
        """
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f"{_WRITING}{target.name}")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        try:
            yield temporary
            _flush_folder(temporary)
            temporary.rename(target)
            _flush(target.parent)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise

    def record_failure(self, job: TrainingJob, name: str, error: Exception) -> None:
        """Keep why ``"training"``, a cell (``"val/cal-1"``) or a calibrator of a cell could not be made."""
        record = {
            "what": f"{job.title} {name}",
            "error": type(error).__name__,
            "message": " ".join(str(error).split()),
            "protocol": job.protocol,
            "config": job.config.to_dict(),
            "traceback": traceback.format_exception(error),
        }
        with written_whole(self._failure(job, name)) as path:
            path.write_text(to_json(record) + "\n", encoding="utf-8")

    def clear_failure(self, job: TrainingJob, name: str) -> None:
        """Forget an earlier failure."""
        self._failure(job, name).unlink(missing_ok=True)

    def failures(self) -> list[dict[str, Any]]:
        """Records of everything that failed and has not succeeded since, in a fixed order."""
        return [read_json(path) for path in sorted(self.root.glob("*/*/train-*/failed-*.json"))]

    def trainings(self) -> list[Path]:
        """Folders ``training`` that are finished, in a fixed order."""
        return sorted(self.root.glob("*/*/train-*/training"))

    def cells(self) -> list[Path]:
        """Folders of finished cells, in a fixed order."""
        return sorted(path for path in self.root.glob("*/*/train-*/*/cal-*") if path.is_dir())

    def _failure(self, job: TrainingJob, name: str) -> Path:
        return self.root / job.folder / f"failed-{name.replace('/', '-')}.json"


def read_json(path: Path) -> Any:
    """Content of a JSON file; a store's files are whole unless somebody changed them."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path} must be a JSON file, got {' '.join(str(error).split())}") from error


def read_record(folder: Path, **kinds: type) -> dict[str, Any]:
    """``config.json`` of a finished training or cell, which must have these keys with values of these kinds.

    Raises
    ------
    InputError
        If the file is not there, is no JSON object, or lacks a key or its kind: somebody changed it.
    """
    path = folder / CONFIG_FILE
    if not path.is_file():
        raise InputError(f"{path} must be there, got a folder without it; {_REMEDY}")
    record = read_json(path)
    if not isinstance(record, dict):
        raise InputError(f"{path} must have an object, got {type(record).__name__}; {_REMEDY}")
    for key, kind in kinds.items():
        if key not in record:
            raise InputError(f"{path} must have {', '.join(kinds)}, got no {key}; {_REMEDY}")
        if not isinstance(record[key], kind):
            raise InputError(
                f"{path} must have {key} of kind {kind.__name__}, got {record[key]!r}; {_REMEDY}"
            )
    return record


def read_cell(folder: Path, **kinds: type) -> tuple[TrainingJob, Cell, dict[str, Any]]:
    """Training and cell that a finished folder belongs to, and its :func:`read_record`.

    Raises
    ------
    InputError
        As there, or if the settings are none, or not those of the folder that they lie in.
    """
    record = read_record(folder, config=dict, protocol=str, calibration_seed=int, calibrators=dict, **kinds)
    job = _job(folder, record)
    cell = Cell(job.config.fit_on, record["calibration_seed"])
    found = f"{folder.parent.name}/{folder.name.partition('.')[0]}"
    _check_place(folder, folder.parent.parent, job, cell.name, found)
    return job, cell, record


def read_training(folder: Path, **kinds: type) -> tuple[TrainingJob, dict[str, Any]]:
    """The same of a finished training."""
    record = read_record(folder, config=dict, protocol=str, **kinds)
    job = _job(folder, record)
    _check_place(folder, folder.parent, job, "training", folder.name)
    return job, record


def _job(folder: Path, record: dict[str, Any]) -> TrainingJob:
    try:
        config = RunConfig.from_dict(record["config"])
        return TrainingJob(config, (config.fit_on,), (), find_protocol(record["protocol"]).name)
    except (TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        path = folder / CONFIG_FILE
        raise InputError(f"{path} must have the settings of a run, got: {reason}; {_REMEDY}") from error


def _check_place(folder: Path, training: Path, job: TrainingJob, expected: str, found: str) -> None:
    """Refuse a folder that lies where another one belongs; `training` is the one named after the seed.

    Settings in the model's name are not compared: a default may have changed since they were written.
    """
    dataset, _, seed = job.folder.parts
    model = training.parent.name.partition("~")[0]
    here = "/".join((training.parent.parent.name, model, training.name, found))
    right = "/".join((dataset, job.config.model, seed, expected))
    if here != right:
        raise InputError(f"{folder / CONFIG_FILE} must be that of {here}, got that of {right}; {_REMEDY}")


def is_disk_full(error: BaseException) -> bool:
    """Whether an error says that nothing more can be written."""
    return isinstance(error, OSError) and error.errno in _DISK_FULL


def _clean(folder: Path) -> None:
    """Remove what this program was writing when it died; other hidden files are somebody else's."""
    for path in sorted(path for pattern in _UNFINISHED for path in folder.rglob(pattern)):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _flush_folder(folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        _flush(path)
    _flush(folder)


def _flush(path: Path) -> None:
    """Bring a file or the names in a folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# Link scores as npz files, float32 and without pickle.

_TENSORS = ("absent", "present", "logit_absent", "logit_present", "in_graph")
_REST = ("label", "structure", "attributes")
#: Kind and number of dimensions of each array.
_SCORES = {
    "absent": ("f", 2), "present": ("f", 2), "logit_absent": ("f", 1), "logit_present": ("f", 1),
    "in_graph": ("b", 1), "label": ("f", 1), "structure": ("f", 2), "attributes": ("f", 2),
    "edge_label_index": ("i", 2), "method": ("U", 0),
}  # fmt: skip


def save_scores(scores: LinkScores, edge_label_index: Tensor, path: Path) -> None:
    """Write pairs [2, L] and their scores with labels, structure and attributes to `path` (``.npz``).

    Both states of the target link are in the file, so that edges of the message-passing graph can be read
    leave-one-out and as given.
    """
    arrays = {name: getattr(scores.toggled, name) for name in _TENSORS}
    arrays |= {name: _given(getattr(scores, name)) for name in _REST} | {"edge_label_index": edge_label_index}
    plain = {name: tensor.detach().cpu().numpy() for name, tensor in arrays.items()}
    np.savez(path, **plain, method=np.array(scores.toggled.method))


def load_scores(path: Path) -> tuple[LinkScores, Tensor]:
    """Scores, target links absent, and pairs [2, L] that :func:`save_scores` wrote, bit for bit."""
    arrays = read_arrays(path, "link scores", _SCORES)
    method = str(arrays.pop("method"))
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    toggled = ToggledEmbeddings(**{name: tensors[name] for name in _TENSORS}, method=method)
    scores = LinkScores(toggled, "absent", *(tensors[name] for name in _REST))
    return scores, tensors["edge_label_index"]


def join_scores(first: LinkScores, second: LinkScores) -> LinkScores:
    """Links of `first`, then those of `second`, on the CPU, target link as in `first`; both have labels."""
    a, b = first.toggled, second.toggled
    joined = {name: torch.cat([getattr(a, name).cpu(), getattr(b, name).cpu()]) for name in _TENSORS}
    return LinkScores(
        ToggledEmbeddings(**joined, method=a.method),
        first.target_link,
        *(torch.cat([_given(getattr(part, name)).cpu() for part in (first, second)]) for name in _REST),
    )


def _given(tensor: Tensor | None) -> Tensor:
    if tensor is None:
        raise TypeError("scores must have labels, structure and attributes, got None")
    return tensor


# The predictions of a cell as an npz file without pickle: later metrics and figures need no training.

PREDICTIONS_FILE = "predictions.npz"
#: Parts of the split that every calibrator is measured on.
MEASURED_PARTS = ("val", "test")

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Predictions:
    """Calibrated logits and probabilities of a cell's L links by C calibrators.

    Parameters
    ----------
    calibrators : tuple of str
        C names, in the order of the rows of `logit` and `probability`.
    label : dict of str to ndarray (L,), int8, values 0 and 1
        By part of the split (``MEASURED_PARTS``).
    logit, probability : dict of str to ndarray (C, L), float64
        Calibrated logits, and probabilities in [0, 1].
    truth : dict of str to ndarray (L,), float64
        Probability that a pair is positive, for the parts where it is known.
    """

    calibrators: tuple[str, ...]
    label: dict[str, NDArray[np.int8]]
    logit: dict[str, FloatArray]
    probability: dict[str, FloatArray]
    truth: dict[str, FloatArray] = field(default_factory=dict)


def write_predictions(predictions: Predictions, path: Path) -> None:
    """Write ``calibrator``, ``<part>_label``, ``<part>_logit``, ``<part>_probability``, ``<part>_truth``."""
    arrays: dict[str, NDArray[Any]] = {"calibrator": np.array(predictions.calibrators)}
    for part in MEASURED_PARTS:
        arrays[f"{part}_label"] = predictions.label[part]
        arrays[f"{part}_logit"] = predictions.logit[part]
        arrays[f"{part}_probability"] = predictions.probability[part]
    arrays |= {f"{part}_truth": truth for part, truth in predictions.truth.items()}
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]


def read_predictions(path: Path) -> Predictions:
    """Read what :func:`write_predictions` wrote; arrays that do not fit together are an error."""
    kinds = {"label": ("i", 1), "logit": ("f", 2), "probability": ("f", 2)}
    expected = {f"{part}_{kind}": form for kind, form in kinds.items() for part in MEASURED_PARTS}
    arrays = read_arrays(path, "predictions", {"calibrator": ("U", 1), **expected})
    names = tuple(arrays["calibrator"].tolist())
    label, logit, probability, truth = (
        {part: arrays[f"{part}_{kind}"] for part in MEASURED_PARTS if f"{part}_{kind}" in arrays}
        for kind in (*kinds, "truth")
    )
    for part in MEASURED_PARTS:
        shape = (len(names), label[part].size)
        for rows in (logit[part], probability[part]):
            if rows.shape != shape:
                raise InputError(
                    f"{path} must hold arrays {shape} of calibrators and {part} links, got {rows.shape}"
                )
    return Predictions(names, label, logit, probability, truth)
