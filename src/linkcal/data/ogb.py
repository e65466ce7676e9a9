"""Link data sets of the Open Graph Benchmark with their official splits, read by ogb's own class.

ogb's split files are pickles: torch's ``weights_only`` loader, restricted to a few types, reads them, so no
code in them can run. ogb's processed file goes to a temporary folder: the data root may be read-only.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from pickle import UnpicklingError
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linkcal._core.files import one_line
from linkcal._core.random import numpy_stream
from linkcal._core.validation import check_choice, check_edge_index, check_positive_int
from linkcal.data._raw import RawFiles, find_data_root
from linkcal.data.graph import Graph, pair_keys
from linkcal.data.negatives import NegativeSampler, in_sorted
from linkcal.data.split import LinkPairs, LinkSplit
from linkcal.exceptions import DataNotFoundError, InputError

__all__ = ["OFFICIAL_SPLITS", "load_official_split"]

IntArray = NDArray[np.int64]

#: Data sets that come with a split, and the folder of that split in ogb's layout.
OFFICIAL_SPLITS: dict[str, str] = {"ogbl-ddi": "target", "ogbl-collab": "time"}

_RAW = ("edge", "num-edge-list", "num-node-list")
_MORE_RAW = {"ogbl-ddi": (), "ogbl-collab": ("node-feat", "edge_weight", "edge_year")}
_ARCHIVES = {"ogbl-ddi": "ddi", "ogbl-collab": "collab"}
#: Names of the parts here and in ogb's files, and the arrays of pairs that are read of each.
_KEYS = {"train": "train", "val": "valid", "test": "test"}
_KINDS = {"train": ("edge",), "val": ("edge", "edge_neg"), "test": ("edge", "edge_neg")}
_RELEASE = "RELEASE_v1.txt"
#: What ogb, pandas, gzip and torch say of a damaged file.
_DAMAGED = (
    RuntimeError, ValueError, LookupError, TypeError, EOFError, OSError, zlib.error, UnpicklingError
)  # fmt: skip


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
    files = _raw_files(name)
    root = find_data_root(data_root)
    files.ensure(root)
    data, parts = _read(name, root, files)
    places = {part: f"{name}'s {OFFICIAL_SPLITS[name]}/{key}.pt" for part, key in _KEYS.items()}
    links = {
        part: {kind: _pairs(parts[_KEYS[part]], kind, int(data.num_nodes), places[part]) for kind in kinds}
        for part, kinds in _KINDS.items()
    }
    return _build(name, data, links, seed)


def _raw_files(name: str) -> RawFiles:
    folder = name.replace("-", "_")
    raw = [f"raw/{stem}.csv.gz" for stem in (*_RAW, *_MORE_RAW[name])]
    split = [f"split/{OFFICIAL_SPLITS[name]}/{part}.pt" for part in ("train", "valid", "test")]
    return RawFiles(folder, (_RELEASE, *raw, *split), lambda staging: _download(name, staging))


def _download(name: str, staging: Path) -> None:
    """Fetch ogb's archive and unpack it; nothing in it is read."""
    _require_ogb()
    from ogb.utils.url import download_url, extract_zip

    archive = _ARCHIVES[name]
    path = download_url(f"http://snap.stanford.edu/ogb/data/linkproppred/{archive}.zip", str(staging))
    extract_zip(path, str(staging))
    (staging / archive).rename(staging / name.replace("-", "_"))


def _require_ogb() -> None:
    try:
        import ogb  # noqa: F401
    except ImportError as error:
        raise DataNotFoundError(
            "package ogb must be installed for ogbl data sets (pip install 'linkcal[ogb]'), got none"
        ) from error


def _read(name: str, root: Path, files: RawFiles) -> tuple[Any, dict[str, Any]]:
    """PyG's data object and what the parts' files hold, by ogb's class on a copy of the raw files."""
    _require_ogb()
    with TemporaryDirectory(prefix="linkcal-") as folder:
        for file_name in files.names:
            copy = Path(folder, files.folder, file_name)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / files.folder / file_name, copy)
        quiet = io.StringIO()
        with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet), _allowed_types():
            from ogb.linkproppred import PygLinkPropPredDataset

            try:
                dataset = PygLinkPropPredDataset(name, root=folder)
                return dataset[0], dataset.get_edge_split()
            except _DAMAGED as error:
                raise InputError(
                    f"folder {root / files.folder} must hold {name} as ogb publishes it, got "
                    f"{one_line(error)}"
                ) from error


@contextlib.contextmanager
def _allowed_types() -> Iterator[None]:
    """Let torch's ``weights_only`` loader build arrays and PyG's data object inside the block, no longer."""
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    reconstruct = np._core.multiarray._reconstruct  # type: ignore[attr-defined]
    allowed: list[Any] = [
        reconstruct,
        (reconstruct, "numpy.core.multiarray._reconstruct"),  # its name in files written with NumPy 1
        np.ndarray,
        np.dtype,
        *(type(np.dtype(kind)) for kind in (np.int64, np.int32, np.float32, np.float64)),
        GlobalStorage,
        DataTensorAttr,
        DataEdgeAttr,
    ]
    with torch.serialization.safe_globals(allowed):
        yield


def _build(name: str, data: Any, links: dict[str, dict[str, Tensor]], seed: int) -> LinkSplit:
    num_nodes = int(data.num_nodes)
    used, counts = np.empty(0, dtype=np.int64), {}
    keys: dict[str, IntArray] = {}
    # Each pair stays where it stands first: links of all parts before negatives.
    for kind, word in (("edge", "positives"), ("edge_neg", "negatives")):
        for part in _KEYS:
            if kind in links[part]:
                pairs = links[part][kind]
                found = np.unique(pair_keys(pairs, num_nodes, directed=False).numpy())
                found = found[(found // num_nodes != found % num_nodes) & ~in_sorted(used, found)]
                counts[f"{part}_{word}_dropped"] = pairs.size(1) - found.size
                used = np.union1d(used, found)
                keys[f"{part} {word}"] = found
    unpacked = {key: torch.from_numpy(np.stack(np.divmod(value, num_nodes))) for key, value in keys.items()}
    full = Graph.from_edges(torch.cat([unpacked[f"{part} positives"] for part in _KEYS], dim=1), num_nodes)
    official = torch.cat([unpacked["val negatives"], unpacked["test negatives"]], dim=1)
    sampler = NegativeSampler(full, exclude=official)
    number = min(keys["train positives"].size, sampler.num_available)
    drawn = sampler.sample(number, numpy_stream(seed, "negatives"))
    message = Graph.from_edges(unpacked["train positives"], num_nodes, x=data.x, name=name)
    return LinkSplit(
        message,
        LinkPairs.of(unpacked["train positives"], drawn),
        LinkPairs.of(unpacked["val positives"], unpacked["val negatives"]),
        LinkPairs.of(unpacked["test positives"], unpacked["test negatives"]),
        seed=seed,
        counts_full={**full.counts(), "features": 0 if data.x is None else data.x.size(1), **counts},
    )


def _pairs(part: Any, kind: str, num_nodes: int, place: str) -> Tensor:
    """Pairs [2, L] of ogb's array `kind` [L, 2], checked."""
    found = part.get(kind) if isinstance(part, dict) else None
    if not isinstance(found, (Tensor, np.ndarray)):
        raise InputError(f"{place} must hold the array {kind!r}, got {type(found).__name__}")
    return check_edge_index(
        torch.as_tensor(found).mT if found.ndim == 2 else found, num_nodes, f"{kind!r} of {place}"
    )
