"""The predictions of a cell as an npz file without pickle: later metrics and figures need no training."""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linkcal.exceptions import InputError

__all__ = ["MEASURED_PARTS", "PREDICTIONS_FILE", "Predictions", "read_predictions", "write_predictions"]

PREDICTIONS_FILE = "predictions.npz"
#: Parts of the split that every calibrator is measured on.
MEASURED_PARTS = ("val", "test")

FloatArray = NDArray[np.float64]
#: numpy and zipfile tell of a damaged file by any of these.
_DAMAGED = (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error)


@dataclass(frozen=True, eq=False)
class Predictions:
    """What C calibrators say of a cell's links.

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
    """Write an npz file with the arrays ``calibrator`` and ``<part>_label``, ``_logit``, ``_probability``,
    and ``_truth`` where there is one.

    Examples
    --------
    >>> import tempfile
    >>> label = {part: np.ones(1, dtype=np.int8) for part in MEASURED_PARTS}
    >>> rows = {part: np.zeros((1, 1)) for part in MEASURED_PARTS}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_predictions(Predictions(("platt",), label, rows, rows), Path(folder, "p.npz"))
    ...     read_predictions(Path(folder, "p.npz")).calibrators
    ('platt',)
    """
    arrays: dict[str, NDArray[Any]] = {"calibrator": np.array(predictions.calibrators)}
    for part in MEASURED_PARTS:
        arrays[f"{part}_label"] = predictions.label[part]
        arrays[f"{part}_logit"] = predictions.logit[part]
        arrays[f"{part}_probability"] = predictions.probability[part]
    arrays |= {f"{part}_truth": truth for part, truth in predictions.truth.items()}
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]


def read_predictions(path: Path) -> Predictions:
    """Read what :func:`write_predictions` wrote.

    Raises
    ------
    InputError
        If the file is not there, is damaged, lacks an array, or its arrays do not fit together.
    """
    try:
        # numpy leaves a damaged file open if it opened it itself.
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            names = tuple(file["calibrator"].tolist())
            label, logit, probability = (
                {part: file[f"{part}_{kind}"] for part in MEASURED_PARTS}
                for kind in ("label", "logit", "probability")
            )
            truth = {part: file[f"{part}_truth"] for part in MEASURED_PARTS if f"{part}_truth" in file}
    except _DAMAGED as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path} must hold a cell's predictions, got {reason}") from error
    for part in MEASURED_PARTS:
        expected = (len(names), label[part].size)
        for rows in (logit[part], probability[part]):
            if rows.shape != expected:
                raise InputError(
                    f"{path} must hold arrays {expected} of calibrators and {part} links, got {rows.shape}"
                )
    return Predictions(names, label, logit, probability, truth)
