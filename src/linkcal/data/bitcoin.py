"""Bitcoin Alpha and OTC: who-trusts-whom networks of SNAP, as unsigned links.

Kumar, Spezzano, Subrahmanian, Faloutsos, "Edge Weight Prediction in Weighted Signed Networks", ICDM 2016.
"""

from __future__ import annotations

import shutil
import urllib.request
import zlib
from pathlib import Path

import numpy as np
import pandas as pd

from linkcal.data.graph import Graph
from linkcal.data.raw import RawFiles
from linkcal.data.structural import structural_node_features
from linkcal.exceptions import InputError

__all__ = ["bitcoin_files", "read_bitcoin"]

_SNAP = "https://snap.stanford.edu/data"


def bitcoin_files(market: str) -> RawFiles:
    """Describe the raw file of `market`, ``"alpha"`` or ``"otc"``."""
    folder, name = f"bitcoin_{market}/raw", f"soc-sign-bitcoin{market}.csv.gz"

    def download(staging: Path) -> None:
        target = staging / folder / name
        target.parent.mkdir(parents=True)
        with urllib.request.urlopen(f"{_SNAP}/{name}") as answer, target.open("wb") as file:  # noqa: S310
            shutil.copyfileobj(answer, file)

    return RawFiles(folder=folder, names=(name,), download=download)


def read_bitcoin(path: Path, *, name: str) -> Graph:
    """Read one rating a line (SOURCE, TARGET, RATING, TIME, no header) as an undirected graph.

    Two users are linked if either rated the other; signs, weights and times are left out. Users are numbered
    in the order of their ids. The file has no node features: the graph carries
    :func:`~linkcal.data.structural.structural_node_features` as its ``feature_builder``.

    Raises
    ------
    InputError
        If the file is no such table.
    """
    try:
        table = pd.read_csv(path, header=None, usecols=[0, 1], dtype=np.int64)
    except (ValueError, OSError, EOFError, zlib.error) as error:
        raise InputError(
            f"file {path} must hold lines SOURCE,TARGET,RATING,TIME, got {str(error).splitlines()[0]}"
        ) from error
    users, index = np.unique(table.to_numpy().T, return_inverse=True)
    return Graph.from_edges(
        index.reshape(2, -1), len(users), name=name, feature_builder=structural_node_features
    )
