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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from linkcal import _folder
from linkcal._core.files import read_saved, refusing
from linkcal._core.validation import (
    check_choice,
    check_edge_index,
    check_flag,
    check_fraction,
    check_no_self_pairs,
    check_positive_float,
    check_positive_int,
)
from linkcal._folder import check_artifact_folder
from linkcal._scoring import Evidence, Fingerprint, plain_state
from linkcal.calibrators import Calibrator
from linkcal.data import BipartiteIds, Graph, LinkPairs, NodeIds
from linkcal.data.graph import GRAPH_TENSORS
from linkcal.exceptions import ArtifactError, InputError
from linkcal.features._scores import FIT_ON
from linkcal.models import GraphModel, load_model, save_model

__all__ = [
    "ARTIFACT_FORMAT_VERSION", "Artifact", "Evidence", "check_artifact_folder", "load_artifact",
    "save_artifact",
]  # fmt: skip

#: Raised whenever artifacts of an older version can no longer be read.
ARTIFACT_FORMAT_VERSION = 4

_FORMAT = "linkcal-artifact"
_GRAPH, _EVIDENCE, _MODEL = "graph.safetensors", "evidence.safetensors", "model.json"
_NODES, _TARGET_NODES = ("nodes.parquet", "target-nodes.parquet")
_REQUIRED = {_GRAPH, *_folder.CALIBRATOR_FILES, "model.safetensors"}
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
        "graph": describe_graph(artifact.graph),
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
    write_graph(artifact.graph, artifact.node_ids, folder, artifact.held_out)
    _folder.write_calibrators(artifact.calibrators, folder)
    if artifact.evidence is not None:
        links, null_pairs = artifact.evidence.calibration, artifact.evidence.null_pairs
        pairs = {"calibration_pairs": links.edge_label_index, "calibration_label": links.edge_label}
        _write_tensors(folder / _EVIDENCE, {**pairs, "null_pairs": null_pairs})


def describe_graph(graph: Graph) -> dict[str, Any]:
    """What the manifest of a folder with a graph holds, JSON values."""
    return {name: getattr(graph, name) for name in _GRAPH_KEYS}


def write_graph(
    graph: Graph, ids: NodeIds | BipartiteIds | None, folder: Path, held_out: Tensor | None = None
) -> None:
    """Write a graph, its node ids and held-out edges, each where there are some."""
    tensors = {name: getattr(graph, name) for name in GRAPH_TENSORS}
    _write_tensors(folder / _GRAPH, {**tensors, "held_out": held_out})
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
    source, head = artifact_head(folder)
    names = head["files"]
    graph, held_out = read_graph(source, head["graph"])
    if model is None and _MODEL not in names:
        raise ArtifactError(f"{source} must be loaded with its model (none of linkcal's own), got None")
    model = load_model(source) if model is None else _with_weights(model, source / "model.safetensors")
    calibrators = _folder.read_calibrators(source)
    node_ids = read_ids(source, names)
    with refusing(source, "hold parts that belong together"):
        check_fits(model, graph, node_ids)
        _check_info(head["info"], calibrators)
    found = Fingerprint(model, graph)
    if head["fingerprint"] != {"weights": found.weights, "graph": found.graph}:
        raise ArtifactError(f"{source} must hold the weights and graph of the fit, got others: fit again")
    return Artifact(
        model=model,
        graph=graph,
        calibrators=calibrators,
        info=head["info"],
        node_ids=node_ids,
        held_out=held_out,
        evidence=_read_evidence(source / _EVIDENCE, graph.num_nodes) if _EVIDENCE in names else None,
    )


def artifact_head(folder: str | os.PathLike[str]) -> tuple[Path, dict[str, Any]]:
    """Absolute path and manifest of an artifact with all its files as they were written."""
    files = _REQUIRED, {_MODEL, _NODES, _TARGET_NODES, _EVIDENCE}
    objects = {"graph": (), "info": _INFO_KEYS, "fingerprint": ()}
    source, head = _folder.read_manifest(folder, _FORMAT, ARTIFACT_FORMAT_VERSION, objects, *files)
    return source.resolve(), head


def read_ids(source: Path, names: Container[str]) -> NodeIds | BipartiteIds | None:
    """Node ids of a folder with these files, where there are some."""
    if _NODES not in names:
        return None
    ids = NodeIds.load(source / _NODES)
    return BipartiteIds(ids, NodeIds.load(source / _TARGET_NODES)) if _TARGET_NODES in names else ids


def read_graph(source: Path, description: dict[str, Any]) -> tuple[Graph, Tensor | None]:
    """Message-passing graph and held-out edges [2, H], where they were saved; checked as a user's own."""
    with refusing(source / _GRAPH, f"hold a graph as {_folder.MANIFEST} describes it"):
        if set(description) != set(_GRAPH_KEYS) or not isinstance(description["name"], str):
            raise InputError(f"graph must have {', '.join(_GRAPH_KEYS)}, got {sorted(description)}")
        for flag in ("directed", "features_from_edges"):
            check_flag(description[flag], flag)
        tensors = load_tensors(read_saved(source / _GRAPH))
        num_nodes = check_positive_int(description["num_nodes"], "num_nodes")
        edges, attributes = _pairs_of(tensors, "edge_index", num_nodes), tensors.get("attributes")
        parts = {name: tensors.get(name) for name in ("x", "node_type", "edge_weight")}
        graph = Graph.from_edges(edges, num_nodes, directed=description["directed"], **parts)
        if not torch.equal(graph.edge_index, edges):
            raise InputError("edge_index must hold each edge once, sorted, undirected both ways, got others")
        Graph.from_edges(edges[:, :0], num_nodes, x=attributes)  # checked as features are
        held_out = _pairs_of(tensors, "held_out", num_nodes) if "held_out" in tensors else None
        return replace(graph, attributes=attributes, **description), held_out


def _pairs_of(tensors: Mapping[str, Tensor], name: str, num_nodes: int) -> Tensor:
    """Pairs [2, L] of different nodes, int64 as they were written."""
    if tensors[name].dtype != torch.int64:
        raise InputError(f"{name} must hold int64, got {tensors[name].dtype}")
    return check_no_self_pairs(check_edge_index(tensors[name], num_nodes, name), name)


def _check_info(info: dict[str, Any], calibrators: Mapping[str, Calibrator]) -> None:
    """Refuse a description of the fit that a fit cannot have written."""
    check_choice(info["fit_on"], "fit_on", FIT_ON)
    check_choice(info["selected"], "selected", calibrators)
    check_positive_float(info["negatives_per_positive"], "negatives_per_positive", maximum=1e12)
    if info.get("base_rate") is not None:
        check_fraction(info["base_rate"], "base_rate")
    check_flag(info.get("symmetrise", False), "symmetrise")
    for name in ("negatives", "base_rate_origin", "dataset", "model"):
        if not isinstance(info.get(name), str | None):
            raise InputError(f"{name} must be a text, got {type(info[name]).__name__}")


def check_ids(graph: Graph, node_ids: NodeIds | BipartiteIds | None) -> None:
    """Refuse ids that are not of the graph's nodes."""
    if node_ids is not None and len(node_ids) != graph.num_nodes:
        raise InputError(f"node ids must be as many as nodes, {graph.num_nodes}, got {len(node_ids)}")


def check_fits(model: nn.Module, graph: Graph, node_ids: NodeIds | BipartiteIds | None) -> None:
    """Refuse parts that do not belong together, before arrays of their sizes are made."""
    check_ids(graph, node_ids)
    if not isinstance(model, GraphModel):
        return
    if graph.x is None and model.num_nodes != graph.num_nodes:
        raise InputError(f"model must have num_nodes = {graph.num_nodes} without x, got {model.num_nodes}")
    weight = next(model.parameters(), graph.x)
    if graph.x is not None and weight is not None and graph.x.dtype != weight.dtype:
        raise InputError(f"x must have the dtype of the weights, {weight.dtype}, got {graph.x.dtype}")


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
        pairs, label = _pairs_of(tensors, "calibration_pairs", num_nodes), tensors["calibration_label"]
        if label.dtype != torch.float32:
            raise InputError(f"calibration_label must hold float32, got {label.dtype}")
        links = LinkPairs(pairs, label)
        if not (links.num_positives and links.num_negatives):
            raise InputError(f"calibration_label must hold both classes, got {len(links)} of one")
        return Evidence(links, _pairs_of(tensors, "null_pairs", num_nodes))
