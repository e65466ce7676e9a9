"""Data sets by name, from raw files that are checked against their checksums."""

import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from linkcal._core.files import damage_named, read_arrays
from linkcal._core.validation import check_choice
from linkcal.data._raw import RawFiles, find_data_root
from linkcal.data.graph import Graph
from linkcal.data.node_features import structural_node_features
from linkcal.data.ogb import OFFICIAL_SPLITS
from linkcal.data.simulated import simulate_graph
from linkcal.exceptions import InputError


@dataclass(frozen=True)
class DatasetInfo:
    """What is known about a named data set before it is loaded.

    Parameters
    ----------
    name, description, source : str
        `source` is the class or site that its files come from.
    num_nodes, num_edges, num_features : int
        Unordered pairs; of ``simulated`` the defaults (its number of edges is an expectation).
    """

    name: str
    description: str
    source: str
    num_nodes: int
    num_edges: int
    num_features: int


DATASETS: dict[str, DatasetInfo] = {
    info.name: info
    for info in (
        DatasetInfo("simulated", "known link probabilities", "linkcal.data.simulate_graph", 2708, 5278, 1433),
        DatasetInfo("cora", "citations, bag of words", "PyG Planetoid", 2708, 5278, 1433),
        DatasetInfo("citeseer", "citations, bag of words", "PyG Planetoid", 3327, 4552, 3703),
        DatasetInfo("pubmed", "citations, TF-IDF", "PyG Planetoid", 19717, 44324, 500),
        DatasetInfo("twitch-pt", "mutual follows of Twitch streamers", "PyG Twitch", 1912, 31299, 128),
        DatasetInfo("chameleon", "Wikipedia links", "PyG WikipediaNetwork", 2277, 31371, 2325),
        DatasetInfo("bitcoin-alpha", "who-trusts-whom, structural features", "SNAP", 3783, 14124, 8),
        DatasetInfo("bitcoin-otc", "who-trusts-whom, structural features", "SNAP", 5881, 21492, 8),
        DatasetInfo("ogbl-ddi", "drug interactions, official split", "OGB", 4267, 1334889, 0),
        DatasetInfo("ogbl-collab", "co-authors by time, official split", "OGB", 235868, 1285465, 128),
    )
}


def load_dataset(
    name: str,
    *,
    data_root: str | os.PathLike[str] | None = None,
    forward_only: bool = False,
    **simulation: Any,
) -> Graph:
    """Load a named data set as a simple undirected graph.

    Parameters
    ----------
    name : str
        A key of ``DATASETS``; for those of ogb see :func:`~linkcal.data.load_official_split`.
    data_root : path, optional
        Folder of the raw files in PyG's layout (``Cora/raw/...``); missing files are fetched into it.
        Default: ``LINKCAL_DATA_ROOT``, else the user's cache folder.
    forward_only : bool
        For PyG's sets only: keep the stored edges with row < column, as the splits behind the paper's numbers
        do. Chameleon then has 23,370 edges instead of 31,371; the others lose nothing.
    **simulation
        For ``simulated`` only: arguments of :func:`~linkcal.data.simulate_graph`.

    Returns
    -------
    Graph
        The Bitcoin graphs have a ``feature_builder`` (:func:`structural_node_features`) instead of ``x``, and
        ``edge_time``, the second since 1970 in which either first rated the other.
        InputError if a file is not the published one, DataNotFoundError if one cannot be fetched.

    Examples
    --------
    >>> load_dataset("simulated", num_nodes=100, num_edges=300, seed=1).num_nodes
    100
    """
    check_choice(name, "dataset", DATASETS)
    if forward_only and name not in _STORED:
        known = ", ".join(_STORED)
        raise InputError(f"forward_only must be False for dataset {name!r} (only {known} have it), got True")
    if name == "simulated":
        return simulate_graph(**simulation)
    if simulation:
        given = ", ".join(simulation)
        raise InputError(f"options must be those of dataset {name!r}, which has none, got {given}")
    if name in OFFICIAL_SPLITS:
        raise InputError(f"dataset {name!r} must be loaded by load_official_split, got load_dataset")
    folder = _FILES[name].ensure(find_data_root(data_root))
    if name not in _STORED:
        return read_bitcoin(folder / _FILES[name].names[0], name=name)
    edge_index, x = _read(name, folder)
    return Graph.from_edges(edge_index, len(x), x=x, name=name, forward_only=forward_only)


def _read(name: str, folder: Path) -> tuple[Tensor, Tensor]:
    """Distinct edges [2, E] as they are stored, and features [N, F]: what PyG's data sets hold."""
    if name == "twitch-pt":
        expected = {"edges": ("iu", 2), "features": ("fiu", 2)}
        arrays = read_arrays(folder / "PT.npz", f"data of {name}", expected)
        return torch.from_numpy(arrays["edges"]).T, torch.from_numpy(arrays["features"]).float()
    if name == "chameleon":
        edges = pd.read_csv(folder / "out1_graph_edges.txt", sep="\t").to_numpy()
        rows = (folder / "out1_node_feature_label.txt").read_text(encoding="utf-8").replace("\t", ",")
        x = pd.read_csv(io.StringIO(rows), header=None, skiprows=1).iloc[:, 1:-1].to_numpy(np.float32)
        return torch.from_numpy(np.unique(edges, axis=0).T), torch.from_numpy(x)
    from torch_geometric.io import read_planetoid_data  # slow to import

    # These files are pickles, which can run code: their SHA-256 was compared with the published one.
    data = read_planetoid_data(str(folder), name)
    return data.edge_index, data.x


def read_bitcoin(path: Path, *, name: str) -> Graph:
    """Unsigned undirected graph of a file of ratings (Kumar et al., ICDM 2016); nodes by user id."""
    with damage_named(path, "file", "a table of lines SOURCE,TARGET,RATING,TIME"):
        kinds = {0: np.int64, 1: np.int64, 3: np.float64}
        table = pd.read_csv(path, header=None, usecols=[0, 1, 3], dtype=kinds)
    users, index = np.unique(table[[0, 1]].to_numpy().T, return_inverse=True)
    rest: dict[str, Any] = {"name": name, "feature_builder": structural_node_features}
    return Graph.from_edges(index.reshape(2, -1), len(users), edge_time=table[3].to_numpy(), **rest)


def _planetoid(name: str, folder: str) -> RawFiles:
    parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    return RawFiles(folder, tuple(f"ind.{name}.{part}" for part in parts), _PLANETOID)


_PLANETOID = "https://github.com/kimiyoung/planetoid/raw/master/data"
_SNAP = "https://snap.stanford.edu/data"
_GEOM_GCN = "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn"
_FILES: dict[str, RawFiles] = {
    "cora": _planetoid("cora", "Cora/raw"),
    "citeseer": _planetoid("citeseer", "CiteSeer/raw"),
    "pubmed": _planetoid("pubmed", "PubMed/raw"),
    "twitch-pt": RawFiles("PT/raw", ("PT.npz",), "https://graphmining.ai/datasets/ptg/twitch"),
    "chameleon": RawFiles(
        "chameleon/geom_gcn/raw",
        ("out1_node_feature_label.txt", "out1_graph_edges.txt"),
        f"{_GEOM_GCN}/f1fc0d14b3b019c562737240d06ec83b07d16a8f/new_data/chameleon",
    ),
    "bitcoin-alpha": RawFiles("bitcoin_alpha/raw", ("soc-sign-bitcoinalpha.csv.gz",), _SNAP),
    "bitcoin-otc": RawFiles("bitcoin_otc/raw", ("soc-sign-bitcoinotc.csv.gz",), _SNAP),
}
#: Those whose list of edges is kept as it was stored, with one or both directions of an edge.
_STORED = tuple(name for name in _FILES if not name.startswith("bitcoin"))
