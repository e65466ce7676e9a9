"""Saving and loading linkcal's own models: weights as safetensors, the rest as JSON, no pickle."""

from __future__ import annotations

import hashlib
import json
import os
from itertools import chain
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors import torch as safetensors

from linkcal._core.files import written_whole
from linkcal._core.random import torch_streams_forked
from linkcal.exceptions import ArtifactError, InputError, UnsupportedModelError
from linkcal.models.base import GraphModel
from linkcal.models.registry import MODELS

__all__ = ["MODEL_FORMAT_VERSION", "load_model", "save_model"]


#: Raised whenever files of an older version can no longer be read.
MODEL_FORMAT_VERSION = 1

_FORMAT = "linkcal-model"
_CONFIG_FILE = "model.json"
_WEIGHTS_FILE = "model.safetensors"


def save_model(model: GraphModel, folder: str | os.PathLike[str]) -> None:
    """Write ``model.safetensors`` and ``model.json`` into `folder`, which is made if it is not there.

    Each file is written whole or not at all, and the JSON file, written last, holds the weights' SHA-256: a
    mixture of two savings does not load.

    Parameters
    ----------
    model : LinkPredictor or PairPredictor
        One of the classes in ``MODELS``.
    folder : path

    Raises
    ------
    UnsupportedModelError
        If the model is of another class: keep its ``state_dict()`` with your own code.

    Examples
    --------
    >>> import tempfile
    >>> from linkcal.models import make_model
    >>> model = make_model("gcn", 8)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(model, folder)
    ...     load_model(folder).config == model.config
    True
    """
    names = {spec.cls: name for name, spec in MODELS.items()}
    if type(model) not in names:
        raise UnsupportedModelError(
            f"model must be one of {', '.join(cls.__name__ for cls in names)} to be saved, "
            f"got {type(model).__name__}"
        )
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    state = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    weights = safetensors.save(state)
    description = {
        "format": _FORMAT,
        "format_version": MODEL_FORMAT_VERSION,
        "model": names[type(model)],
        "config": model.config,
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
    }
    with written_whole(target / _WEIGHTS_FILE) as path:
        path.write_bytes(weights)
    with written_whole(target / _CONFIG_FILE) as path:
        path.write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")


def load_model(folder: str | os.PathLike[str]) -> GraphModel:
    """Load a model written by :func:`save_model`, on the CPU and in evaluation mode.

    Parameters
    ----------
    folder : path

    Returns
    -------
    LinkPredictor or PairPredictor
        Bit-equal weights, in the dtype in which they were saved.

    Raises
    ------
    ArtifactError
        If a file is missing, truncated or altered, of another version, or names an unknown model.

    Examples
    --------
    >>> import tempfile
    >>> from linkcal.models import make_model
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(make_model("sage", 8), folder)
    ...     type(load_model(folder)).__name__
    'SAGE'
    """
    source = Path(folder)
    description = _read_description(source / _CONFIG_FILE)
    weights = _read(source / _WEIGHTS_FILE)
    digest = hashlib.sha256(weights).hexdigest()
    if digest != description["weights_sha256"]:
        raise ArtifactError(
            f"{source / _WEIGHTS_FILE} must be the file that {_CONFIG_FILE} was written with, "
            f"got {len(weights)} bytes with another SHA-256 (truncated or altered)"
        )
    name = description["model"]
    if not isinstance(name, str) or name not in MODELS:
        raise ArtifactError(f"{source / _CONFIG_FILE} must name a model of {', '.join(MODELS)}, got {name!r}")
    try:
        # The constructor draws weights that are overwritten; the caller's random state must not feel it.
        with torch_streams_forked(0, "initialisation"):
            model = MODELS[name].cls(**description["config"])
        state = safetensors.load(weights)
        # Layers are built in float32, into which float64 weights would be rounded; each has its own dtype.
        for key, value in chain(model.named_parameters(), model.named_buffers()):
            if key in state and state[key].is_floating_point():
                value.data = value.data.to(state[key].dtype)
        model.load_state_dict(state)
    except (InputError, SafetensorError, TypeError, RuntimeError) as error:
        raise ArtifactError(
            f"{source} must hold weights that fit the model {name} as {_CONFIG_FILE} describes it, "
            f"got {_one_line(error)}"
        ) from error
    return model.eval()


def _read_description(path: Path) -> dict[str, Any]:
    try:
        description = json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{path} must be a JSON file, got {_one_line(error)}") from error
    if not isinstance(description, dict) or description.get("format") != _FORMAT:
        raise ArtifactError(f'{path} must have "format": "{_FORMAT}", got another content')
    version = description.get("format_version")
    if version != MODEL_FORMAT_VERSION:
        raise ArtifactError(f"{path} must have format_version {MODEL_FORMAT_VERSION}, got {version!r}")
    missing = [key for key in ("model", "config", "weights_sha256") if key not in description]
    if missing:
        raise ArtifactError(f"{path} must have the key {missing[0]!r}, got {sorted(description)}")
    return description


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ArtifactError(f"{path} must be a readable file, got {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
