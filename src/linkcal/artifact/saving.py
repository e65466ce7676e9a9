"""Writing an artifact: every part beside the target first, then one exchange of folders."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save as save_arrays
from safetensors.torch import save as save_tensors

from linkcal.artifact.layout import (
    ARTIFACT_FORMAT_VERSION,
    EVIDENCE,
    FORMAT,
    HEAD,
    NODES,
    Artifact,
    check_artifact_folder,
    sha256,
)
from linkcal.calibrators import Calibrator, calibrator_name
from linkcal.evidence import Evidence
from linkcal.exceptions import InputError
from linkcal.models import GraphModel, save_model

__all__ = ["save_artifact"]


def save_artifact(artifact: Artifact, folder: str | os.PathLike[str]) -> None:
    """Write the artifact; `folder` is replaced as a whole, or left as it was if anything fails.

    Parameters
    ----------
    artifact : Artifact
    folder : path

    Raises
    ------
    UnsupportedModelError
        If a calibrator is not one of linkcal's own.
    InputError
        If `folder` exists and is no artifact.
    """
    target = Path(folder)
    check_artifact_folder(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        _write_parts(artifact, staging)
        files = {path.name: sha256(path.read_bytes()) for path in sorted(staging.iterdir())}
        head = {
            "format": FORMAT,
            "format_version": ARTIFACT_FORMAT_VERSION,
            "graph": {
                "num_nodes": artifact.graph.num_nodes,
                "directed": artifact.graph.directed,
                "name": artifact.graph.name,
                "features_from_edges": artifact.graph.features_from_edges,
            },
            "info": artifact.info,
            "files": files,
        }
        (staging / HEAD).write_text(json.dumps(head, indent=2) + "\n", encoding="utf-8")
        staging.chmod(0o755)
        _replace_folder(staging, target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _write_parts(artifact: Artifact, folder: Path) -> None:
    model = artifact.model
    if isinstance(model, GraphModel):
        save_model(model, folder)
    else:
        # Tied weights share memory, which safetensors refuses: each name gets its own copy.
        state = {
            name: value.detach().cpu().clone().contiguous() for name, value in model.state_dict().items()
        }
        (folder / "model.safetensors").write_bytes(save_tensors(state))
    tensors = {"edge_index": artifact.graph.edge_index.cpu().contiguous()}
    x, attributes = artifact.graph.x, artifact.graph.attributes
    if x is not None:
        tensors["x"] = x.cpu().contiguous()
    if attributes is not None:
        tensors["attributes"] = attributes.cpu().contiguous()
        if (
            x is not None
            and tensors["x"].untyped_storage().data_ptr() == attributes.untyped_storage().data_ptr()
        ):
            tensors["attributes"] = tensors["attributes"].clone()  # safetensors refuses shared memory
    if artifact.held_out is not None:
        tensors["held_out"] = artifact.held_out.cpu().contiguous()
    (folder / "graph.safetensors").write_bytes(save_tensors(tensors))
    _write_calibrators(artifact.calibrators, folder)
    if artifact.evidence is not None:
        _write_evidence(artifact.evidence, folder)
    if artifact.node_ids is not None:
        artifact.node_ids.save(folder / NODES)


def _write_calibrators(calibrators: Mapping[str, Calibrator], folder: Path) -> None:
    described: dict[str, Any] = {}
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for name, calibrator in calibrators.items():
        state = calibrator.get_state()
        own = {key: value for key, value in state.items() if isinstance(value, np.ndarray)}
        arrays |= {f"{name}/{key}": np.ascontiguousarray(value) for key, value in own.items()}
        described[name] = {
            "calibrator": calibrator_name(calibrator),
            "params": calibrator.get_params(),
            "state": {key: value for key, value in state.items() if key not in own},
            "arrays": sorted(own),
        }
    try:
        text = json.dumps(described, indent=2)
    except TypeError as error:
        raise InputError(
            f"calibrator must have JSON values as parameters to be saved, got {error}"
        ) from error
    (folder / "calibrators.json").write_text(text + "\n", encoding="utf-8")
    (folder / "calibrators.safetensors").write_bytes(save_arrays(arrays))


def _write_evidence(evidence: Evidence, folder: Path) -> None:
    tensors = {
        "calibration_pairs": evidence.calibration.edge_label_index,
        "calibration_label": evidence.calibration.edge_label,
        "null_pairs": evidence.null_pairs,
    }
    tensors = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    (folder / EVIDENCE).write_bytes(save_tensors(tensors))


def _replace_folder(new: Path, target: Path) -> None:
    """Put `new` in the place of `target`; the old content stays until the new one is in place."""
    if not target.exists():
        new.rename(target)
        return
    old = new.with_name(new.name + "-old")
    target.rename(old)
    try:
        new.rename(target)
    except OSError:
        old.rename(target)
        raise
    shutil.rmtree(old)
