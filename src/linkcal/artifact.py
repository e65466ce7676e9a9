"""A fitted link predictor on disk: weights, message-passing graph, calibrators, evidence.

Weights and arrays are safetensors files, the rest is JSON; nothing is unpickled::

    artifact.json            format, versions, description of graph and fit, SHA-256 of every file
    graph.safetensors        message-passing edges and their weights, node features and types, held-out edges
    evidence.safetensors     calibration links and null pairs, for decisions and intervals
    calibrators.json         class, hyper-parameters and scalars of every calibrator
    calibrators.safetensors  their arrays
    nodes.parquet            the user's node ids, where they are not 0 .. N-1; those of source nodes alone
    target-nodes.parquet     and of target nodes, in a bipartite graph
    model.json               how to build the model, if it is one of linkcal's own
    model.safetensors        its weights
"""

from __future__ import annotations

import os
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from linkcal import _folder
from linkcal._core.files import read_saved, refusing
from linkcal._core.validation import check_edge_index, check_positive_int
from linkcal._folder import check_artifact_folder
from linkcal._scoring import Evidence, Fingerprint, plain_state
from linkcal.calibrators import Calibrator
from linkcal.data import BipartiteIds, Graph, LinkPairs, NodeIds
from linkcal.data.graph import GRAPH_TENSORS
from linkcal.exceptions import ArtifactError, InputError
from linkcal.models import GraphModel, load_model, save_model

__all__ = [
    "ARTIFACT_FORMAT_VERSION",
    "Artifact",
    "Evidence",
    "check_artifact_folder",
    "load_artifact",
    "save_artifact",
]

#: Raised whenever artifacts of an older version can no longer be read.
ARTIFACT_FORMAT_VERSION = 4

_FORMAT = "linkcal-artifact"
_NODES, _EVIDENCE, _MODEL = "nodes.parquet", "evidence.safetensors", "model.json"
_TARGET_NODES = "target-nodes.parquet"
_REQUIRED = {"graph.safetensors", *_folder.CALIBRATOR_FILES, "model.safetensors"}
_GRAPH_KEYS = ("num_nodes", "directed", "name", "features_from_edges")
_INFO_KEYS = ("fit_on", "selected", "negatives_per_positive")


@dataclass(frozen=True)
class Artifact:
    """What an artifact folder holds.

    Parameters
    ----------
    model : nn.Module
    graph : Graph
        The message-passing graph that the calibrators were fitted with.
    calibrators : dict of str to Calibrator
        Fitted, by name.
    info : dict
        JSON values: ``fit_on``, ``selected``, ``negatives_per_positive`` and whatever the writer added.
    node_ids : NodeIds or BipartiteIds, optional
    held_out : Tensor [2, H], optional
        Known edges that are not in the message-passing graph: the split's validation and test links.
    evidence : Evidence, optional
    """

    model: nn.Module
    graph: Graph
    calibrators: dict[str, Calibrator]
    info: dict[str, Any] = field(default_factory=dict)
    node_ids: NodeIds | BipartiteIds | None = None
    held_out: Tensor | None = None
    evidence: Evidence | None = None


def save_artifact(artifact: Artifact, folder: str | os.PathLike[str]) -> None:
    """Write the artifact; `folder` is replaced as a whole, or stays as it was if anything fails.

    Parameters
    ----------
    artifact : Artifact
        With calibrators of linkcal's own only.
    folder : path
        As in :func:`check_artifact_folder`.
    """
    fingerprint = Fingerprint(artifact.model, artifact.graph)
    head = {
        "graph": {name: getattr(artifact.graph, name) for name in _GRAPH_KEYS},
        "info": artifact.info,
        "fingerprint": {"weights": fingerprint.weights, "graph": fingerprint.graph},
    }
    with _folder.signed_folder(folder, _FORMAT, ARTIFACT_FORMAT_VERSION, **head) as staging:
        _write_parts(artifact, staging)


def _write_parts(artifact: Artifact, folder: Path) -> None:
    if isinstance(artifact.model, GraphModel):
        save_model(artifact.model, folder)
    else:
        _write_tensors(folder / "model.safetensors", plain_state(artifact.model))
    graph = {name: getattr(artifact.graph, name) for name in GRAPH_TENSORS}
    _write_tensors(folder / "graph.safetensors", {**graph, "held_out": artifact.held_out})
    _folder.write_calibrators(artifact.calibrators, folder)
    if artifact.evidence is not None:
        links, null_pairs = artifact.evidence.calibration, artifact.evidence.null_pairs
        pairs = {"calibration_pairs": links.edge_label_index, "calibration_label": links.edge_label}
        _write_tensors(folder / _EVIDENCE, {**pairs, "null_pairs": null_pairs})
    ids = artifact.node_ids
    if ids is not None:
        (ids.source if isinstance(ids, BipartiteIds) else ids).save(folder / _NODES)
    if isinstance(ids, BipartiteIds):
        ids.target.save(folder / _TARGET_NODES)


def _write_tensors(path: Path, tensors: Mapping[str, Tensor | None]) -> None:
    # Tied weights share memory, which safetensors refuses: each name has its own copy.
    copies = {name: t.detach().cpu().clone().contiguous() for name, t in tensors.items() if t is not None}
    path.write_bytes(save_tensors(copies))


def load_artifact(folder: str | os.PathLike[str], model: nn.Module | None = None) -> Artifact:
    """Read an artifact written by :func:`save_artifact`.

    Parameters
    ----------
    folder : path
        The artifact, or the folder of a run that holds it.
    model : nn.Module, optional
        Needed for a model that is not one of linkcal's own, built as when saved; it receives the saved
        weights.

    Returns
    -------
    Artifact
        With the model in evaluation mode, on the CPU.

    Raises
    ------
    ArtifactError
        If a file is missing, truncated, altered or of another version, or the weights do not fit `model`.
    """
    objects = {"graph": (), "info": _INFO_KEYS, "fingerprint": ()}
    files = _REQUIRED, {_MODEL, _NODES, _TARGET_NODES, _EVIDENCE}
    source, head = _folder.read_manifest(folder, _FORMAT, ARTIFACT_FORMAT_VERSION, objects, *files)
    names = head["files"]
    graph, held_out = _read_graph(source, head["graph"])
    if model is None and _MODEL not in names:
        raise ArtifactError(
            f"{source} must be loaded with the model that it was saved with (none of linkcal's own), got None"
        )
    model = load_model(source) if model is None else _with_weights(model, source / "model.safetensors")
    found = Fingerprint(model, graph)
    if head["fingerprint"] != {"weights": found.weights, "graph": found.graph}:
        raise ArtifactError(
            f"{source} must hold the weights and graph that it was fitted with, got others: fit again"
        )
    return Artifact(
        model=model,
        graph=graph,
        calibrators=_folder.read_calibrators(source),
        info=head["info"],
        node_ids=_read_ids(source, names),
        held_out=held_out,
        evidence=_read_evidence(source / _EVIDENCE, graph.num_nodes) if _EVIDENCE in names else None,
    )


def _read_ids(source: Path, names: Container[str]) -> NodeIds | BipartiteIds | None:
    if _NODES not in names:
        return None
    ids = NodeIds.load(source / _NODES)
    return BipartiteIds(ids, NodeIds.load(source / _TARGET_NODES)) if _TARGET_NODES in names else ids


def _read_graph(source: Path, description: dict[str, Any]) -> tuple[Graph, Tensor | None]:
    """Message-passing graph and held-out edges [2, H], where they were saved."""
    with refusing(source / "graph.safetensors", f"hold a graph as {_folder.MANIFEST} describes it"):
        tensors = load_tensors(read_saved(source / "graph.safetensors"))
        features = {name: tensors.get(name) for name in GRAPH_TENSORS if name != "edge_index"}
        graph = Graph(tensors["edge_index"], **features, **description)
        check_edge_index(graph.edge_index, check_positive_int(graph.num_nodes, "num_nodes"))
        for name, rows in features.items():
            expected = graph.edge_index.size(1) if name == "edge_weight" else graph.num_nodes
            if rows is not None and rows.size(0) != expected:
                raise InputError(f"{name} must have {expected} rows, got {rows.size(0)}")
    return graph, tensors.get("held_out")


def _with_weights(model: nn.Module, path: Path) -> nn.Module:
    """The model with the saved weights, in evaluation mode."""
    with refusing(path, f"hold weights of {type(model).__name__}"):
        saved = load_tensors(read_saved(path))
        # Names as the model has them: parts of it may be compiled.
        own = {name.replace("_orig_mod.", ""): name for name in model.state_dict()}
        state = {own.get(name, name): tensor for name, tensor in saved.items()}
        for name, tensor in model.state_dict(keep_vars=True).items():
            if name in state and state[name].is_floating_point():
                tensor.data = tensor.data.to(state[name].dtype)  # else copied values would be rounded to it
        model.load_state_dict(state)
    return model.eval()


def _read_evidence(path: Path, num_nodes: int) -> Evidence:
    with refusing(path, "hold calibration links and null pairs"):
        tensors = load_tensors(read_saved(path))
        pairs = check_edge_index(tensors["calibration_pairs"], num_nodes, "calibration_pairs")
        links = LinkPairs(pairs, tensors["calibration_label"])
        return Evidence(links, check_edge_index(tensors["null_pairs"], num_nodes, "null_pairs"))
