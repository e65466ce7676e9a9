"""Data sets by name, from raw files that are checked against their checksums."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from linkcal._core.files import damage_named, read_arrays
from linkcal._core.validation import check_choice
from linkcal.data._raw import RawFiles, find_data_root
from linkcal.data.graph import Graph
from linkcal.data.node_features import structural_node_features
from linkcal.data.ogb import OFFICIAL_SPLITS
from linkcal.data.simulated import simulate_graph
from linkcal.exceptions import InputError

__all__ = ["DATASETS", "DatasetInfo", "load_dataset"]


@dataclass(frozen=True)
class DatasetInfo:
    """What is known about a named data set before it is loaded.

    Parameters
    ----------
    name, description, source : str
        `source` is the class or site that its files come from.
    num_nodes, num_edges, num_features : int
        N, unordered pairs, F; of ``simulated`` the defaults (its number of edges is an expectation).

    Examples
    --------
    >>> DATASETS["cora"].num_nodes, DATASETS["cora"].num_edges
    (2708, 5278)
    """

    name: str
    description: str
    source: str
    num_nodes: int
    num_edges: int
    num_features: int


#: Name, description, source, nodes, edges, features.
_ROWS: tuple[tuple[str, str, str, int, int, int], ...] = (
    (
        "simulated",
        "block model with known link probabilities",
        "linkcal.data.simulate_graph",
        2708,
        5278,
        1433,
    ),
    ("cora", "citations, bag of words", "PyG Planetoid", 2708, 5278, 1433),
    ("citeseer", "citations, bag of words", "PyG Planetoid", 3327, 4552, 3703),
    ("pubmed", "citations, TF-IDF", "PyG Planetoid", 19717, 44324, 500),
    ("twitch-pt", "mutual follows of Twitch streamers", "PyG Twitch", 1912, 31299, 128),
    ("chameleon", "links between Wikipedia articles", "PyG WikipediaNetwork", 2277, 31371, 2325),
    ("bitcoin-alpha", "who-trusts-whom, structural features", "SNAP", 3783, 14124, 8),
    ("bitcoin-otc", "who-trusts-whom, structural features", "SNAP", 5881, 21492, 8),
    ("ogbl-ddi", "drug interactions, official split", "ogb (extra 'ogb')", 4267, 1334889, 0),
    ("ogbl-collab", "co-authors by time, official split", "ogb (extra 'ogb')", 235868, 1285465, 128),
)
DATASETS: dict[str, DatasetInfo] = {row[0]: DatasetInfo(*row) for row in _ROWS}


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
        Keep only the stored edges with row < column, as the splits behind the paper's numbers do. Chameleon
        then has 23,370 edges instead of 31,371; PyG's other sets lose nothing. Only for PyG's sets.
    **simulation
        For ``simulated`` only: arguments of :func:`~linkcal.data.simulate_graph`.

    Returns
    -------
    Graph
        The Bitcoin graphs have a ``feature_builder`` (:func:`structural_node_features`) instead of ``x``.

    Raises
    ------
    InputError, DataNotFoundError
        If the name is unknown or a file is not the published one; if a file is missing and cannot be fetched.

    Examples
    --------
    >>> load_dataset("simulated", num_nodes=100, num_edges=300, seed=1).num_nodes
    100
    """
    check_choice(name, "dataset", DATASETS)
    if forward_only and name not in _PYG:
        raise InputError(
            f"forward_only must be False for dataset {name!r} (only {', '.join(_PYG)} have it), got True"
        )
    if name == "simulated":
        return simulate_graph(**simulation)
    if simulation:
        raise InputError(
            f"options must be those of dataset {name!r}, which has none, got {', '.join(simulation)} "
            "(of 'simulated')"
        )
    if name in OFFICIAL_SPLITS:
        raise InputError(
            f"dataset must be one without an official split, got {name!r} (load it by load_official_split)"
        )
    root, files = find_data_root(data_root), _FILES[name]
    folder = files.ensure(root)
    if name not in _PYG:
        return read_bitcoin(folder / files.names[0], name=name)
    # PyG writes `processed` beside `raw`: in a temporary copy runs never race and no stale pickle is read.
    with TemporaryDirectory(prefix="linkcal-") as temporary:
        copy = Path(temporary, files.folder)
        copy.mkdir(parents=True)
        for file_name in files.names:
            shutil.copyfile(folder / file_name, copy / file_name)
            if file_name.endswith(".npz"):
                # PyG's Twitch class would unpickle objects, so they are refused before it sees them.
                read_arrays(folder / file_name, f"data of {name}")
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            data = _pyg_dataset(Path(temporary), name)[0]
    return Graph.from_edges(
        data.edge_index, int(data.num_nodes), x=data.x, name=name, forward_only=forward_only
    )


# The raw files of Cora, CiteSeer and PubMed are pickles, which can run code: PyG's class opens them only if
# their SHA-256 is that of the published file. PyG's ``processed`` folder is never kept or read back.

_PYG: dict[str, tuple[str, str, dict[str, Any]]] = {
    "cora": ("Planetoid", "Cora", {}),
    "citeseer": ("Planetoid", "CiteSeer", {}),
    "pubmed": ("Planetoid", "PubMed", {}),
    "twitch-pt": ("Twitch", "PT", {}),
    "chameleon": ("WikipediaNetwork", "chameleon", {"geom_gcn_preprocess": True}),
}


def _pyg_dataset(root: Path, name: str, *, download_only: bool = False) -> Any:
    """Instance of PyG's class for `name` on the folder `root`."""
    from torch_geometric import datasets  # slow to import, and needed by these data sets only

    class_name, argument, options = _PYG[name]
    cls = getattr(datasets, class_name)
    if download_only:
        # Keeps PyG from opening what it has just fetched: the files' checksums come first.
        nothing = {method: lambda *_: None for method in ("process", "load")}
        cls = type(f"Download{class_name}", (cls,), nothing)
    return cls(str(root), argument, **options)


def _pyg_files(name: str, folder: str, *names: str) -> RawFiles:
    return RawFiles(folder, names, lambda staging: _pyg_dataset(staging, name, download_only=True))


def _planetoid_files(name: str, folder: str) -> RawFiles:
    parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    return _pyg_files(name, folder, *(f"ind.{name}.{part}" for part in parts))


# Bitcoin Alpha and OTC of SNAP, as unsigned links (Kumar et al., ICDM 2016).

_SNAP = "https://snap.stanford.edu/data"


def _bitcoin_files(market: str) -> RawFiles:
    folder, name = f"bitcoin_{market}/raw", f"soc-sign-bitcoin{market}.csv.gz"

    def download(staging: Path) -> None:
        target = staging / folder / name
        target.parent.mkdir(parents=True)
        with urllib.request.urlopen(f"{_SNAP}/{name}") as answer, target.open("wb") as file:  # noqa: S310
            shutil.copyfileobj(answer, file)

    return RawFiles(folder=folder, names=(name,), download=download)


def read_bitcoin(path: Path, *, name: str) -> Graph:
    """Undirected graph of a file of ratings (SOURCE, TARGET, ...); nodes are in the order of user ids."""
    with damage_named(path, "file", "a table of lines SOURCE,TARGET,RATING,TIME"):
        table = pd.read_csv(path, header=None, usecols=[0, 1], dtype=np.int64)
    users, index = np.unique(table.to_numpy().T, return_inverse=True)
    return Graph.from_edges(
        index.reshape(2, -1), len(users), name=name, feature_builder=structural_node_features
    )


_FILES: dict[str, RawFiles] = {
    "cora": _planetoid_files("cora", "Cora/raw"),
    "citeseer": _planetoid_files("citeseer", "CiteSeer/raw"),
    "pubmed": _planetoid_files("pubmed", "PubMed/raw"),
    "twitch-pt": _pyg_files("twitch-pt", "PT/raw", "PT.npz"),
    "chameleon": _pyg_files(
        "chameleon",
        "chameleon/geom_gcn/raw",
        "out1_node_feature_label.txt",
        "out1_graph_edges.txt",
        *(f"chameleon_split_0.6_0.2_{i}.npz" for i in range(10)),
    ),
    "bitcoin-alpha": _bitcoin_files("alpha"),
    "bitcoin-otc": _bitcoin_files("otc"),
}
