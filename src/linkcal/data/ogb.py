"""Link data sets of the Open Graph Benchmark with their official splits.

The split files are pickles: torch's ``weights_only`` loader, restricted to arrays, reads them, so no code in
them can run.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from linkcal._core.files import damage_named
from linkcal._core.random import numpy_stream
from linkcal._core.validation import check_choice, check_edge_index, check_positive_int
from linkcal.data._raw import RawFiles, find_data_root
from linkcal.data.graph import Graph, pair_keys
from linkcal.data.negatives import NegativeSampler, in_sorted
from linkcal.data.split import LinkPairs, LinkSplit

IntArray = NDArray[np.int64]

#: Data sets that come with a split, and the folder of that split in ogb's layout.
OFFICIAL_SPLITS: dict[str, str] = {"ogbl-ddi": "target", "ogbl-collab": "time"}

_NODES, _FEATURES = "raw/num-node-list.csv.gz", "raw/node-feat.csv.gz"
_RAW = {"ogbl-ddi": (_NODES,), "ogbl-collab": (_NODES, _FEATURES)}
#: Names of the parts here and in ogb's files, and the arrays of pairs that are read of each.
_KEYS = {"train": "train", "val": "valid", "test": "test"}
_KINDS = {"train": ("edge",), "val": ("edge", "edge_neg"), "test": ("edge", "edge_neg")}


def load_official_split(
    name: str, *, data_root: str | os.PathLike[str] | None = None, seed: int = 0
) -> LinkSplit:
    """Load an ogb link data set with its official split (Hu et al., arXiv 2005.00687).

    Parameters
    ----------
    name : {"ogbl-ddi", "ogbl-collab"}
    data_root : path, optional
        Folder of the raw files in ogb's layout; else as in :func:`linkcal.data.load_dataset`, errors too.
    seed : int
        For the training negatives, as many as links: the official training part has none.

    Returns
    -------
    LinkSplit
        Official validation and test links and negatives. A pair of several parts stays in the first only, and
        negatives that are edges are dropped; ``counts_full`` has the number of each. The ratio of negatives
        to links differs from part to part.

    Examples
    --------
    >>> load_official_split("cora")
    Traceback (most recent call last):
    linkcal.exceptions.InputError: dataset must be one of ogbl-ddi, ogbl-collab; got 'cora'
    """
    check_choice(name, "dataset", OFFICIAL_SPLITS)
    seed = check_positive_int(seed, "seed", minimum=0)
    places = {part: f"split/{OFFICIAL_SPLITS[name]}/{key}.pt" for part, key in _KEYS.items()}
    archive = f"https://snap.stanford.edu/ogb/data/linkproppred/{name.removeprefix('ogbl-')}.zip"
    files = RawFiles(name.replace("-", "_"), (*_RAW[name], *places.values()), archive)
    folder = files.ensure(find_data_root(data_root))
    with damage_named(folder, f"data of {name}", "as ogb publishes it"):
        num_nodes = int(pd.read_csv(folder / _NODES, header=None).to_numpy()[0, 0])
        table = pd.read_csv(folder / _FEATURES, header=None) if _FEATURES in files.names else None
        x = None if table is None else torch.from_numpy(table.to_numpy().astype(np.float32))
        links = {part: _read_part(folder / places[part], part, num_nodes) for part in places}
    return _build(name, num_nodes, x, links, seed)


def _read_part(path: Path, part: str, num_nodes: int) -> dict[str, Tensor]:
    """Pairs [2, L] of a part by kind; torch's loader may build arrays of numbers and nothing else."""
    reconstruct = np._core.multiarray._reconstruct  # type: ignore[attr-defined]
    allowed: list[Any] = [
        reconstruct,
        (reconstruct, "numpy.core.multiarray._reconstruct"),  # its name in files written with NumPy 1
        np.ndarray,
        np.dtype,
        *(type(np.dtype(kind)) for kind in (np.int64, np.int32, np.float32, np.float64)),
    ]
    with torch.serialization.safe_globals(allowed):
        # ogb publishes its splits as pickles alone; with weights_only nothing but the types above is built.
        content = torch.load(path, weights_only=True)
    pairs = {kind: torch.as_tensor(content[kind]).mT for kind in _KINDS[part]}
    return {kind: check_edge_index(found, num_nodes, f"{kind!r} of {path}") for kind, found in pairs.items()}


def _build(
    name: str, num_nodes: int, x: Tensor | None, links: dict[str, dict[str, Tensor]], seed: int
) -> LinkSplit:
    used, counts = np.empty(0, dtype=np.int64), {}
    kept: dict[str, Tensor] = {}
    # Each pair stays where it stands first: links of all parts before negatives.
    for kind, word in (("edge", "positives"), ("edge_neg", "negatives")):
        for part in (part for part in _KEYS if kind in links[part]):
            found = np.unique(pair_keys(links[part][kind], num_nodes, directed=False).numpy())
            found = found[(found // num_nodes != found % num_nodes) & ~in_sorted(used, found)]
            counts[f"{part}_{word}_dropped"] = links[part][kind].size(1) - found.size
            used = np.union1d(used, found)
            kept[f"{part} {word}"] = torch.from_numpy(np.stack(np.divmod(found, num_nodes)))
    full = Graph.from_edges(torch.cat([kept[f"{part} positives"] for part in _KEYS], dim=1), num_nodes)
    official = torch.cat([kept["val negatives"], kept["test negatives"]], dim=1)
    sampler = NegativeSampler(full, exclude=official)
    number = min(kept["train positives"].size(1), sampler.num_available)
    kept["train negatives"] = sampler.sample(number, numpy_stream(seed, "negatives"))
    train, val, test = (LinkPairs.of(kept[f"{p} positives"], kept[f"{p} negatives"]) for p in _KEYS)
    return LinkSplit(
        Graph.from_edges(kept["train positives"], num_nodes, x=x, name=name), train, val, test, seed=seed,
        counts_full={**full.counts(), "features": 0 if x is None else x.size(1), **counts},
    )  # fmt: skip
