"""Saving and loading linkcal's own models: weights as safetensors, the rest as JSON, no pickle."""

import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import torch as safetensors

from linkcal._core.files import one_line, read_description, read_saved, refusing, sha256, written_whole
from linkcal.exceptions import ArtifactError, UnsupportedModelError
from linkcal.models.base import GraphModel
from linkcal.models.registry import MODELS

#: Raised whenever files of an older version can no longer be read.
MODEL_FORMAT_VERSION = 1

_FORMAT = "linkcal-model"
_CONFIG_FILE = "model.json"
_WEIGHTS_FILE = "model.safetensors"
_WEIGHT_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def save_model(model: GraphModel, folder: str | os.PathLike[str]) -> None:
    """Write ``model.safetensors`` and ``model.json`` into `folder`, which is made if it is not there.

    The JSON file holds the weights' SHA-256, so that files of two savings do not load together.

    Parameters
    ----------
    model : LinkPredictor or PairPredictor
        One of the classes in ``MODELS`` (else UnsupportedModelError), also compiled by ``torch.compile``.
    folder : path

    Examples
    --------
    >>> import tempfile
    >>> from linkcal.models import GCN
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(GCN(8), folder)
    ...     load_model(folder).config["in_channels"]
    8
    """
    model = getattr(model, "_orig_mod", model)  # what torch.compile wraps; its keys begin with this name
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
        "format": _FORMAT, "format_version": MODEL_FORMAT_VERSION, "model": names[type(model)],
        "config": model.config, "weights_sha256": sha256(weights),
    }  # fmt: skip
    with written_whole(target / _WEIGHTS_FILE) as path:
        path.write_bytes(weights)
    with written_whole(target / _CONFIG_FILE) as path:
        path.write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")


def load_model(folder: str | os.PathLike[str]) -> GraphModel:
    """Load a model written by :func:`save_model`, on the CPU and in evaluation mode.

    ArtifactError if a file is missing, truncated or altered, of another version, or names an unknown model.

    Parameters
    ----------
    folder : path

    Returns
    -------
    LinkPredictor or PairPredictor
        Bit-equal weights, in the dtype in which they were saved.

    Examples
    --------
    >>> load_model("nowhere")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    linkcal.exceptions.ArtifactError: nowhere/model.json must be a readable file, got [Errno 2] ...
    """
    source = Path(folder)
    head, file = source / _CONFIG_FILE, source / _WEIGHTS_FILE
    description = read_description(head, _FORMAT, MODEL_FORMAT_VERSION)
    for key in ("model", "config", "weights_sha256"):
        if key not in description:
            raise ArtifactError(f"{head} must have the key {key!r}, got {sorted(description)}")
    weights = read_saved(file)
    if sha256(weights) != description["weights_sha256"]:
        raise ArtifactError(f"{file} must fit the SHA-256 in {_CONFIG_FILE}, got a truncated or altered file")
    name = description["model"]
    if not isinstance(name, str) or name not in MODELS:
        raise ArtifactError(f"{head} must name a model of {', '.join(MODELS)}, got {one_line(repr(name))}")
    with refusing(source, f"hold weights that fit the model {name} as {_CONFIG_FILE} describes it"):
        return _build(MODELS[name].cls, description["config"], safetensors.load(weights))


def _build(cls: type[GraphModel], config: Any, state: dict[str, torch.Tensor]) -> GraphModel:
    """Model of an untrusted description: no memory is allocated before the weights fit it."""
    layers = config.get("num_layers")
    if isinstance(layers, int) and layers > len(state):
        raise ValueError(f"num_layers = {layers} with {len(state)} tensors")
    with torch.device("meta"):  # shapes alone; draws no random numbers either
        model = cls(**config)
    for key, expected in model.state_dict().items():
        allowed = _WEIGHT_DTYPES if expected.is_floating_point() else (expected.dtype,)
        if key in state and state[key].dtype not in allowed:
            raise ValueError(f"{key} of dtype {state[key].dtype}")
    kinds = {str(part.dtype) for part in state.values() if part.is_floating_point()}
    if len(kinds) > 1:
        raise ValueError(f"weights of more than one dtype, {', '.join(sorted(kinds))}")
    # Cloned: safetensors gives views of the file's bytes, at addresses where kernels may round otherwise.
    model.load_state_dict({key: value.clone() for key, value in state.items()}, assign=True)
    return model.eval()
