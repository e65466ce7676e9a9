"""The predictions of a cell as an npz file without pickle: later metrics and figures need no training."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linkcal.exceptions import InputError
from linkcal.experiments.npz import read_arrays

__all__ = ["MEASURED_PARTS", "PREDICTIONS_FILE", "Predictions", "read_predictions", "write_predictions"]

PREDICTIONS_FILE = "predictions.npz"
#: Parts of the split that every calibrator is measured on.
MEASURED_PARTS = ("val", "test")

FloatArray = NDArray[np.float64]


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
    """Write ``calibrator`` and, by part, ``<part>_label``, ``_logit``, ``_probability`` and any ``_truth``.

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
    kinds = ("label", "logit", "probability")
    required = ("calibrator", *(f"{part}_{kind}" for kind in kinds for part in MEASURED_PARTS))
    arrays = read_arrays(path, required, [f"{part}_truth" for part in MEASURED_PARTS])
    names = tuple(arrays["calibrator"].tolist())
    label, logit, probability, truth = (
        {part: arrays[f"{part}_{kind}"] for part in MEASURED_PARTS if f"{part}_{kind}" in arrays}
        for kind in (*kinds, "truth")
    )
    for part in MEASURED_PARTS:
        expected = (len(names), label[part].size)
        for rows in (logit[part], probability[part]):
            if rows.shape != expected:
                raise InputError(
                    f"{path} must hold arrays {expected} of calibrators and {part} links, got {rows.shape}"
                )
    return Predictions(names, label, logit, probability, truth)
