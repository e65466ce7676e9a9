"""Reading an artifact: nothing is unpickled, and every file must be as it was saved."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.torch import load as load_tensors
from torch import Tensor, nn

from linkcal._validation import check_edge_index, check_positive_int
from linkcal.artifact.layout import (
    ARTIFACT_FORMAT_VERSION,
    EVIDENCE,
    FILES,
    FORMAT,
    HEAD,
    NODES,
    REQUIRED,
    Artifact,
    sha256,
)
from linkcal.calibrators import Calibrator, make_calibrator
from linkcal.data import Graph, LinkPairs, NodeIds
from linkcal.evidence import Evidence
from linkcal.exceptions import ArtifactError, InputError
from linkcal.models import load_model

__all__ = ["load_artifact"]

_INFO_KEYS = ("fit_on", "selected", "negatives_per_positive")


def load_artifact(folder: str | os.PathLike[str], model: nn.Module | None = None) -> Artifact:
    """Read an artifact written by :func:`save_artifact`.

    Parameters
    ----------
    folder : path
        The artifact, or the folder of a run that holds it.
    model : nn.Module, optional
        Needed for a model that is not one of linkcal's own: built as it was when saved; its weights are
        replaced by the saved ones.

    Returns
    -------
    Artifact
        With the model in evaluation mode, on the CPU.

    Raises
    ------
    ArtifactError
        If a file is missing, truncated, altered or of another version, or the weights do not fit `model`.
    """
    source = Path(folder)
    if not (source / HEAD).exists() and (source / "artifact" / HEAD).exists():
        source = source / "artifact"  # the folder of `linkcal run` or `linkcal fit`
    head = _read_head(source)
    names = {path for path in head["files"] if path in FILES}
    if names != set(head["files"]) or not names >= REQUIRED:
        raise ArtifactError(f"{source / HEAD} must list the artifact's files, got {sorted(head['files'])}")
    for name, digest in head["files"].items():
        if sha256(_read(source / name)) != digest:
            raise ArtifactError(f"{source / name} must be as it was saved, got a truncated or altered file")
    graph, held_out = _read_graph(source, head["graph"])
    return Artifact(
        model=_load_weights(source, model),
        graph=graph,
        calibrators=_read_calibrators(source),
        info=head["info"],
        held_out=held_out,
        node_ids=NodeIds.load(source / NODES) if NODES in head["files"] else None,
        evidence=_read_evidence(source, graph.num_nodes) if EVIDENCE in head["files"] else None,
    )


def _read_head(source: Path) -> dict[str, Any]:
    if not source.is_dir():
        raise ArtifactError(f"artifact must be a folder, got {source}")
    if not (source / HEAD).is_file():
        raise ArtifactError(f"artifact must be a folder with {HEAD}, got {source} without it")
    try:
        head = json.loads(_read(source / HEAD))
    except ValueError as error:
        raise ArtifactError(f"{source / HEAD} must be a JSON file, got {error}") from error
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise ArtifactError(f'{source / HEAD} must have "format": "{FORMAT}", got another content')
    if head.get("format_version") != ARTIFACT_FORMAT_VERSION:
        raise ArtifactError(
            f"{source / HEAD} must have format_version {ARTIFACT_FORMAT_VERSION}, "
            f"got {head.get('format_version')!r}"
        )
    for key in ("graph", "info", "files"):
        if not isinstance(head.get(key), dict):
            raise ArtifactError(f"{source / HEAD} must have the object {key!r}, got {sorted(head)}")
    missing = [key for key in _INFO_KEYS if key not in head["info"]]
    if missing:
        raise ArtifactError(f"{source / HEAD} must have info.{missing[0]}, got {sorted(head['info'])}")
    return head


def _read_graph(source: Path, description: dict[str, Any]) -> tuple[Graph, Tensor | None]:
    """Message graph and, where they were saved, the held-out edges [2, P]."""
    try:
        tensors = load_tensors(_read(source / "graph.safetensors"))
        features = {name: tensors.get(name) for name in ("x", "attributes")}
        graph = Graph(tensors["edge_index"], **features, **description)
        check_edge_index(graph.edge_index, check_positive_int(graph.num_nodes, "num_nodes"))
        for name, rows in features.items():
            if rows is not None and rows.size(0) != graph.num_nodes:
                raise InputError(f"{name} must have {graph.num_nodes} rows, got {rows.size(0)}")
    except (SafetensorError, KeyError, TypeError, InputError) as error:
        raise ArtifactError(f"{source} must hold a graph as {HEAD} describes it, got {error}") from error
    return graph, tensors.get("held_out")


def _load_weights(source: Path, model: nn.Module | None) -> nn.Module:
    if model is None:
        if not (source / "model.json").is_file():
            raise ArtifactError(
                f"{source} must be loaded with the model that it was saved with (none of linkcal's own), "
                "got None"
            )
        return load_model(source)
    try:
        state = load_tensors(_read(source / "model.safetensors"))
        model.load_state_dict(state)
    except (SafetensorError, RuntimeError) as error:
        first_line = " ".join(str(error).split())
        raise ArtifactError(
            f"{source / 'model.safetensors'} must hold weights of {type(model).__name__}, got {first_line}"
        ) from error
    return model.eval()


def _read_calibrators(source: Path) -> dict[str, Calibrator]:
    try:
        described = json.loads(_read(source / "calibrators.json"))
        arrays = load_arrays(_read(source / "calibrators.safetensors"))
        out = {}
        for name, entry in described.items():
            state = entry["state"] | {key: arrays[f"{name}/{key}"] for key in entry["arrays"]}
            out[name] = make_calibrator(entry["calibrator"], **entry["params"]).set_state(state)
    except ArtifactError:
        raise
    except (SafetensorError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise ArtifactError(
            f"{source / 'calibrators.json'} must describe calibrators, got {error}"
        ) from error
    return out


def _read_evidence(source: Path, num_nodes: int) -> Evidence:
    try:
        tensors = load_tensors(_read(source / EVIDENCE))
        pairs = check_edge_index(tensors["calibration_pairs"], num_nodes, "calibration_pairs")
        links = LinkPairs(pairs, tensors["calibration_label"])
        return Evidence(links, check_edge_index(tensors["null_pairs"], num_nodes, "null_pairs"))
    except (SafetensorError, KeyError, InputError) as error:
        raise ArtifactError(
            f"{source / EVIDENCE} must hold calibration links and null pairs, got {error}"
        ) from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ArtifactError(f"{path} must be a readable file, got {error.strerror}") from error
