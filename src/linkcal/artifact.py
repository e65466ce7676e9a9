"""A fitted link predictor on disk: weights, message-passing graph, calibrators, evidence."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from linkcal._core.random import numpy_stream
from linkcal._core.validation import check_edge_index, check_positive_int
from linkcal.calibrators import Calibrator, calibrator_name, make_calibrator
from linkcal.data import Graph, LinkPairs, LinkSplit, NodeIds, sample_negatives
from linkcal.exceptions import ArtifactError, InputError, ShortageError
from linkcal.features import calibration_part
from linkcal.models import GraphModel, load_model, save_model

__all__ = [
    "ARTIFACT_FORMAT_VERSION",
    "EVIDENCE",
    "FILES",
    "FORMAT",
    "HEAD",
    "NODES",
    "NUM_NULL_PAIRS",
    "REQUIRED",
    "Artifact",
    "Evidence",
    "check_artifact_folder",
    "gather_evidence",
    "load_artifact",
    "save_artifact",
    "sha256",
]


# What decisions and intervals are based on: the calibration links, and pairs that nothing was fitted on.

#: Null pairs drawn unless the caller says otherwise: no conformal p-value is below one in as many, and the
#: relative error of a false discovery rate is about one in the root of the number above the threshold.
NUM_NULL_PAIRS = 10_000


@dataclass(frozen=True, eq=False)
class Evidence:
    """Pairs, not scores: scores follow from the model, the graph and the calibrator.

    Parameters
    ----------
    calibration : LinkPairs
        The links that the calibrators were fitted on.
    null_pairs : Tensor [2, m], int64
        Of the kind of the split's negatives (uniform unless it says otherwise), among the pairs that are no
        known edge and no negative of training or calibration.
    """

    calibration: LinkPairs
    null_pairs: Tensor

    def to(self, device: torch.device | str) -> Evidence:
        """Copy with tensors on `device`."""
        return Evidence(self.calibration.to(device), self.null_pairs.to(device))


def gather_evidence(
    split: LinkSplit,
    fit_on: str,
    *,
    num_null: int = NUM_NULL_PAIRS,
    seed: int | None = None,
    spare_test: bool = False,
) -> Evidence:
    """Calibration links of a split and a fresh draw of null pairs.

    Parameters
    ----------
    split : LinkSplit
    fit_on : {"val", "stacked", "train-loo", "train"}
    num_null : int
        m at most; fewer where the graph has fewer such pairs.
    seed : int, optional
        The stream ``"null pairs"`` is read; by default the split's seed, or 0.
    spare_test : bool
        Whether test pairs are left out too. Without it they are not read, so that a test link can be drawn as
        a null pair, as any link that nobody knows of can: with the chance of the graph's density, and then a
        selection is a little too careful.

    Returns
    -------
    Evidence
        On the split's device.
    """
    num_null = check_positive_int(num_null, "num_null", minimum=0)
    calibration = split.part(calibration_part(fit_on))
    parts = [split.train, split.val] + ([split.test] if spare_test else [])
    taken = torch.cat([part.edge_label_index for part in parts], dim=1)
    # Degrees and common neighbours of all edges that may be read, as for the split's own negatives.
    links = [part.edge_label_index[:, part.edge_label == 1] for part in parts]
    known = Graph.from_edges(
        torch.cat([split.graph.pairs, *links], dim=1), split.graph.num_nodes, directed=split.graph.directed
    )
    draw = partial(
        sample_negatives,
        known,
        generator=numpy_stream((split.seed or 0) if seed is None else seed, "null pairs"),
        kind=split.negatives or "uniform",  # type: ignore[arg-type]
        exclude=taken,
    )
    try:
        null_pairs = draw(num_null)
    except ShortageError as shortage:
        null_pairs = draw(shortage.available)
    return Evidence(replace(calibration, positive_rate=None, negative_rate=None), null_pairs)


# A fitted link predictor on disk: weights and arrays as safetensors, the rest as JSON. Nothing is unpickled.
#
# Scores depend on the graph that messages pass over, so the message-passing graph belongs to the artifact.
# Files:
#
#     artifact.json            format, version, what the calibrators were fitted on, SHA-256 of every other
# file
#     graph.safetensors        message-passing edges, node features as the model reads them and as given,
# held-out edges
#     evidence.safetensors     calibration links and held-out pairs without an edge, for decisions and
# intervals
#     calibrators.json         class, hyper-parameters and scalars of every calibrator
#     calibrators.safetensors  their arrays
#     nodes.parquet            the user's node ids, where they are not 0 .. N-1
#     model.json               how to build the model, if it is one of linkcal's own
#     model.safetensors        its weights

#: Raised whenever artifacts of an older version can no longer be read.
ARTIFACT_FORMAT_VERSION = 2

FORMAT = "linkcal-artifact"
HEAD = "artifact.json"
NODES = "nodes.parquet"
EVIDENCE = "evidence.safetensors"
REQUIRED = {"graph.safetensors", "calibrators.json", "calibrators.safetensors", "model.safetensors"}
FILES = REQUIRED | {"model.json", NODES, EVIDENCE}


@dataclass(frozen=True)
class Artifact:
    """What an artifact folder holds.

    Parameters
    ----------
    model : nn.Module
        In evaluation mode, on the CPU.
    graph : Graph
        The message-passing graph that the calibrators were fitted with.
    calibrators : dict of str to Calibrator
        Fitted, by name.
    info : dict
        JSON values: ``fit_on``, ``selected``, ``negatives_per_positive`` and whatever the writer added.
    node_ids : NodeIds, optional
        The user's names of the nodes.
    held_out : Tensor [2, H], optional
        Known edges that are not in the message-passing graph: the split's validation and test links.
    evidence : Evidence, optional
        Calibration links and null pairs; artifacts written before there was any do not have it.
    """

    model: nn.Module
    graph: Graph
    calibrators: dict[str, Calibrator]
    info: dict[str, Any] = field(default_factory=dict)
    node_ids: NodeIds | None = None
    held_out: Tensor | None = None
    evidence: Evidence | None = None


def check_artifact_folder(folder: str | os.PathLike[str]) -> None:
    """Refuse to replace what is not an artifact.

    Parameters
    ----------
    folder : path

    Raises
    ------
    InputError
        If `folder` is a file, or holds files and is no artifact.
    """
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise InputError(f"folder must be new, empty or an artifact, got the file {target}")
    if target.exists() and any(target.iterdir()) and not (target / HEAD).is_file():
        raise InputError(f"folder must be new, empty or an artifact, got {target} with other files")


def sha256(content: bytes) -> str:
    """SHA-256 of a file's content, as hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


# Writing an artifact: every part beside the target first, then one exchange of folders.


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


# Reading an artifact: nothing is unpickled, and every file must be as it was saved.

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
    """Message-passing graph and, where they were saved, the held-out edges [2, P]."""
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
