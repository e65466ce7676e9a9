"""Positions of a graph's nodes on disk, by what they are, the graph's edges and how they were computed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor

from linkcal._files import written_whole
from linkcal.data.neighbours import neighbour_rows
from linkcal.data.plain_arrays import plain_arrays
from linkcal.data.raw import user_cache
from linkcal.exceptions import InputError

__all__ = ["cached_positions", "simple_adjacency"]


def simple_adjacency(edge_index: Tensor, num_nodes: int) -> csr_matrix:
    """Simple symmetric adjacency, columns sorted."""
    starts, neighbours = neighbour_rows(edge_index, num_nodes)
    return csr_matrix((np.ones(neighbours.size), neighbours, starts), shape=(num_nodes, num_nodes))


def cached_positions(
    kind: str,
    version: int | str,
    adjacency: csr_matrix,
    num_dims: int,
    compute: Callable[[], NDArray[np.floating]],
    *,
    cache: bool,
) -> NDArray[np.float32]:
    """Positions (N, num_dims) from the user's cache folder, or computed and kept there.

    A damaged file is computed anew; a folder that cannot be written to is done without.

    Parameters
    ----------
    kind : str
        Start of the file name.
    version : int or str
        Everything beside the graph and `num_dims` that the numbers depend on.
    adjacency : csr_matrix
        Simple and symmetric, columns sorted.
    num_dims : int
    compute : callable
    cache : bool
        False neither reads nor writes.
    """
    path = _path(kind, version, adjacency, num_dims) if cache else None
    positions = None if path is None else _read(path, (adjacency.shape[0], num_dims))
    if positions is None:
        positions = compute().astype(np.float32)
        if path is not None:
            _write(path, positions)
    return positions


def _path(kind: str, version: int | str, adjacency: csr_matrix, num_dims: int) -> Path:
    digest = hashlib.sha256(f"{version} {adjacency.shape[0]} {num_dims}".encode())
    digest.update(adjacency.indptr.astype(np.int64).tobytes())
    digest.update(adjacency.indices.astype(np.int64).tobytes())
    return user_cache() / "linkcal" / "positions" / f"{kind}-{digest.hexdigest()[:40]}.npz"


def _read(path: Path, shape: tuple[int, int]) -> NDArray[np.float32] | None:
    try:
        positions = plain_arrays(path, "positions")["positions"]
    except (InputError, KeyError):
        return None
    good = positions.shape == shape and positions.dtype == np.float32 and np.isfinite(positions).all()
    return positions if good else None


def _write(path: Path, positions: NDArray[np.float32]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as temporary:
            np.savez(temporary, positions=positions)
    except OSError:
        # Only time is lost: the next call computes the same numbers.
        return
