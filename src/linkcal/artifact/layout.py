"""A fitted link predictor on disk: weights and arrays as safetensors, the rest as JSON. Nothing is unpickled.

Scores depend on the graph that messages pass over, so the message graph belongs to the artifact. Files:

    artifact.json            format, version, what the calibrators were fitted on, SHA-256 of every other file
    graph.safetensors        message edges, node features as the model reads them and as given, held-out edges
    evidence.safetensors     calibration links and held-out pairs without an edge, for decisions and intervals
    calibrators.json         class, hyper-parameters and scalars of every calibrator
    calibrators.safetensors  their arrays
    nodes.parquet            the user's node ids, where they are not 0 .. N-1
    model.json               how to build the model, if it is one of linkcal's own
    model.safetensors        its weights
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from linkcal.calibrators import Calibrator
from linkcal.data import Graph, NodeIds
from linkcal.evidence import Evidence
from linkcal.exceptions import InputError

__all__ = [
    "ARTIFACT_FORMAT_VERSION",
    "EVIDENCE",
    "FILES",
    "FORMAT",
    "HEAD",
    "NODES",
    "REQUIRED",
    "Artifact",
    "check_artifact_folder",
    "sha256",
]

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
        The message graph that the calibrators were fitted with.
    calibrators : dict of str to Calibrator
        Fitted, by name.
    info : dict
        JSON values: ``fit_on``, ``selected``, ``negatives_per_positive`` and whatever the writer added.
    node_ids : NodeIds, optional
        The user's names of the nodes.
    held_out : Tensor [2, H], optional
        Known edges that are not in the message graph: the split's validation and test links.
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
