"""Positional encodings of nodes, computed once and kept in the user's cache folder."""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_matrix, diags_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import eigsh
from torch import Tensor

from linkcal._core.compiled import compiled
from linkcal._core.files import written_whole
from linkcal._core.random import numpy_stream
from linkcal._core.validation import check_edge_index, check_positive_int
from linkcal.data._raw import user_cache
from linkcal.data._tables import plain_arrays
from linkcal.data.graph import neighbour_rows
from linkcal.exceptions import InputError

__all__ = ["cached_positions", "deepwalk_positions", "laplacian_eigenmaps", "simple_adjacency"]


# Positions of a graph's nodes on disk, by what they are, the graph's edges and how they were computed.


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


# Positional encodings of nodes: Laplacian eigenmaps of the message-passing graph, kept on disk once computed.

FloatArray = NDArray[np.float64]

#: Part of the cache's key: raised whenever the same graph would get other numbers.
_VERSION = 1
#: Up to this many nodes a component is solved as a dense matrix.
_DENSE_NODES = 400
#: Whether SciPy takes the generator of ARPACK's restarts.
_SEEDED = "rng" in inspect.signature(eigsh).parameters


def laplacian_eigenmaps(edge_index: Tensor, num_nodes: int, num_dims: int, *, cache: bool = True) -> Tensor:
    """Positions Z [N, p] of the nodes: the smoothest non-constant functions on each component of the graph.

    Each connected component gets its own eigenmap, scaled to a mean square of 1 per column, and zeros in the
    columns that exceed its size less one; so disconnected graphs work, isolated nodes stand at the origin,
    and many small components do not use up the dimensions. The direction of edges is ignored.

    Parameters
    ----------
    edge_index : Tensor [2, E], int
        Message-passing edges: of a split, the training edges alone.
    num_nodes : int
        N.
    num_dims : int
        p.
    cache : bool
        Whether to look for the result in the user's cache folder (``linkcal/positions`` in it) and to keep it
        there. A damaged file is computed anew; a folder that cannot be written to is done without.

    Returns
    -------
    Tensor [N, p], float32, on the device of `edge_index`
        Equal graphs give equal positions: start vectors and signs are fixed. (SciPy before 1.17 lets nobody
        fix the vectors with which ARPACK starts anew, as it does for a star, whose eigenvalues are few.)

    Raises
    ------
    InputError
        If `edge_index` is no integer [2, E] tensor of nodes below `num_nodes`, or `num_dims` is below 1.

    Notes
    -----
    With adjacency A and degrees D of one component, the columns are the solutions y of the generalised
    problem ``(D - A) y = lambda D y`` with the smallest ``lambda > 0``, found as ``y = D^(-1/2) v`` from the
    largest eigenvalues of ``D^(-1/2) A D^(-1/2)`` (``scipy.sparse.linalg.eigsh``; dense below 400 nodes).
    The sign of each column is that which makes its sum of cubes positive. Within a component, signs and
    rotations of an eigenspace do not move distances.

    References
    ----------
    Belkin and Niyogi, Neural Computation 15(6), 2003, section 2.

    Examples
    --------
    >>> import torch
    >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> z = laplacian_eigenmaps(path, num_nodes=4, num_dims=1, cache=False)
    >>> [round(abs(value), 3) for value in z.flatten().tolist()]
    [1.225, 0.0, 1.225, 0.0]
    """
    num_nodes = check_positive_int(num_nodes, "num_nodes")
    num_dims = check_positive_int(num_dims, "num_dims")
    edge_index = check_edge_index(edge_index, num_nodes)
    adjacency = simple_adjacency(edge_index, num_nodes)
    positions = cached_positions(
        "eigenmaps", _VERSION, adjacency, num_dims, lambda: _eigenmaps(adjacency, num_dims), cache=cache
    )
    return torch.from_numpy(positions).to(edge_index.device)


def _eigenmaps(adjacency: csr_matrix, num_dims: int) -> FloatArray:
    num_nodes = adjacency.shape[0]
    positions = np.zeros((num_nodes, num_dims))
    _, component = connected_components(adjacency, directed=False)
    order = np.argsort(component, kind="stable")
    for nodes in np.split(order, np.cumsum(np.bincount(component))[:-1]):
        if nodes.size > 1:
            part = adjacency[nodes][:, nodes]
            wanted = min(num_dims, nodes.size - 1)
            positions[nodes, :wanted] = _component_eigenmap(part, wanted)
    return positions


def _component_eigenmap(adjacency: csr_matrix, wanted: int) -> FloatArray:
    """Columns [n, wanted] of one connected component with at least two nodes."""
    n = adjacency.shape[0]
    root = np.sqrt(np.asarray(adjacency.sum(axis=1)).ravel())
    scale = diags_array(1.0 / root)
    operator = scale @ adjacency @ scale
    if n <= _DENSE_NODES or 2 * wanted >= n:
        _, vectors = eigh(operator.toarray(), subset_by_index=[n - 1 - wanted, n - 1])
    else:
        # ARPACK's own start vector would be random. Full accuracy (tol=0) makes it find both vectors
        # of a double eigenvalue: with 1e-8 it answers a ring with the next value's vector instead.
        start = np.random.default_rng(0).standard_normal(n)
        seeded: dict[str, Any] = {"rng": np.random.default_rng(1)} if _SEEDED else {}
        values, vectors = eigsh(
            operator, k=wanted + 1, which="LA", v0=start, tol=0, ncv=min(n, 2 * wanted + 40), **seeded
        )
        vectors = vectors[:, np.argsort(values, kind="stable")]
    smooth_first = vectors[:, ::-1][:, 1:] / root[:, None]
    smooth_first /= np.sqrt((smooth_first**2).mean(axis=0))
    return np.asarray(smooth_first * np.where((smooth_first**3).sum(axis=0) < 0.0, -1.0, 1.0))


# Positional encodings of nodes from random walks (DeepWalk), kept on disk once computed.
#
# PyG's ``Node2Vec`` (p = q = 1) has the same objective, but cannot be built without the compiled extension
# ``pyg-lib``, which the package index does not hold. So walks and updates are done here in one compiled loop.

Array = Any

#: Part of the cache's key: raised whenever the same graph and seed would get other numbers.
#: Step size at the first and the last update; falls linearly in between, as in word2vec.
_RATES = (0.05, 0.0005)


def deepwalk_positions(
    edge_index: Tensor,
    num_nodes: int,
    num_dims: int,
    *,
    walk_length: int = 20,
    context_size: int = 10,
    walks_per_node: int = 20,
    seed: int = 0,
    cache: bool = True,
) -> Tensor:
    """Positions Z [N, p] of the nodes: nodes that meet on random walks are near each other.

    Walks stay inside a connected component, so disconnected graphs work; isolated nodes stand at the origin.
    The direction of edges is ignored.

    Parameters
    ----------
    edge_index : Tensor [2, E], int
        Message-passing edges: of a split, the training edges alone.
    num_nodes : int
        N.
    num_dims : int
        p.
    walk_length : int
        Nodes of a walk.
    context_size : int, at least 2
        A node is drawn towards the next ``context_size - 1`` nodes of its walk.
    walks_per_node : int
        Walks that start at each node.
    seed : int
        Walks, non-neighbours and start values follow the stream ``"positions"``.
    cache : bool
        Whether to look for the result in the user's cache folder and to keep it there, as
        :func:`linkcal.data.laplacian_eigenmaps` does.

    Returns
    -------
    Tensor [N, p], float32, on the device of `edge_index`
        Scaled to a mean square of 1 per coordinate over the nodes with edges. Equal graphs and seeds give
        equal positions.

    Raises
    ------
    InputError
        If `edge_index` is no integer [2, E] tensor of nodes below `num_nodes`, or a number is out of range.

    Notes
    -----
    For each node u of a walk, each of the following nodes v and one random node w, a stochastic gradient step
    lowers ``-log sigmoid(z_u . z_v) - log sigmoid(-z_u . z_w)``: the objective of PyG's ``Node2Vec`` with
    p = q = 1, one negative and one table of embeddings. A walk that comes back to u gives no step. Time grows
    with ``N walks_per_node walk_length context_size p``.

    References
    ----------
    Perozzi, Al-Rfou and Skiena, "DeepWalk", KDD 2014, arXiv 1403.6652; Grover and Leskovec, "node2vec",
    KDD 2016, arXiv 1607.00653, whose walks with p = q = 1 are DeepWalk's.

    Examples
    --------
    >>> import torch
    >>> ring = torch.stack([torch.arange(30), (torch.arange(30) + 1) % 30])
    >>> z = deepwalk_positions(ring, num_nodes=31, num_dims=4, cache=False)
    >>> bool((z[0] - z[1]).norm() < (z[0] - z[15]).norm()), z[30].tolist()
    (True, [0.0, 0.0, 0.0, 0.0])
    """
    num_nodes = check_positive_int(num_nodes, "num_nodes")
    num_dims = check_positive_int(num_dims, "num_dims")
    settings = (
        check_positive_int(walk_length, "walk_length", minimum=2),
        check_positive_int(context_size, "context_size", minimum=2),
        check_positive_int(walks_per_node, "walks_per_node"),
    )
    seed = check_positive_int(seed, "seed", minimum=0)
    adjacency = simple_adjacency(check_edge_index(edge_index, num_nodes), num_nodes)
    version = f"{_VERSION} {settings} {seed}"
    positions = cached_positions(
        "deepwalk",
        version,
        adjacency,
        num_dims,
        lambda: _deepwalk(adjacency, num_dims, *settings, numpy_stream(seed, "positions")),
        cache=cache,
    )
    return torch.from_numpy(positions).to(edge_index.device)


def _deepwalk(
    adjacency: csr_matrix, num_dims: int, length: int, context: int, walks: int, rng: np.random.Generator
) -> NDArray[np.float32]:
    num_nodes = adjacency.shape[0]
    indptr = adjacency.indptr.astype(np.int64)
    connected = np.flatnonzero(np.diff(indptr) > 0)
    z = np.zeros((num_nodes, num_dims), dtype=np.float32)
    if not connected.size:
        return z
    z[connected] = rng.normal(scale=1.0 / math.sqrt(num_dims), size=(connected.size, num_dims))
    for number in range(walks):
        rates = np.interp([number / walks, (number + 1) / walks], [0.0, 1.0], _RATES)
        starts = rng.permutation(connected)
        _walk_and_update(
            z, indptr, adjacency.indices, connected, starts, length, context, rates[0], rates[1], rng
        )
    z /= math.sqrt(float((z[connected].astype(np.float64) ** 2).mean()))
    return z


@compiled()
def _walk_and_update(
    z: Array, indptr: Array, neighbors: Array, connected: Array, starts: Array, length: int, context: int,
    first_rate: float, last_rate: float, rng: Any,
) -> None:  # fmt: skip
    """One walk from each of `starts`, with gradient steps on `z` (written) as it goes."""
    walk = np.empty(length, dtype=np.int64)
    for number in range(starts.size):
        rate = first_rate + (last_rate - first_rate) * number / starts.size
        walk[0] = starts[number]
        for step in range(1, length):
            row = indptr[walk[step - 1]]
            degree = indptr[walk[step - 1] + 1] - row
            # Multiplying a double is several times faster than a bounded integer, and as good at these sizes.
            walk[step] = neighbors[row + np.int64(rng.random() * degree)]
        for i in range(length - 1):
            for j in range(i + 1, min(i + context, length)):
                _step(z, walk[i], walk[j], 1.0, rate)
                _step(z, walk[i], connected[np.int64(rng.random() * connected.size)], 0.0, rate)


@compiled()
def _step(z: Array, u: int, v: int, label: float, rate: float) -> None:
    """Move two different nodes uphill on the log-likelihood of `label` under ``sigmoid(z_u . z_v)``."""
    if u == v:
        return
    product = 0.0
    for k in range(z.shape[1]):
        product += z[u, k] * z[v, k]
    gain = np.float32(rate * (label - 1.0 / (1.0 + math.exp(-product))))
    for k in range(z.shape[1]):
        old = z[u, k]
        z[u, k] += gain * z[v, k]
        z[v, k] += gain * old
