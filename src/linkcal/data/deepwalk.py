"""Positional encodings of nodes from random walks (DeepWalk), kept on disk once computed.

PyG's ``Node2Vec`` (p = q = 1) has the same objective, but cannot be built without the compiled extension
``pyg-lib``, which the package index does not hold. So walks and updates are done here in one compiled loop.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor

from linkcal._random import numpy_stream
from linkcal._validation import check_edge_index, check_positive_int
from linkcal.data._positions_cache import cached_positions, simple_adjacency

__all__ = ["deepwalk_positions"]

Array = Any

#: Part of the cache's key: raised whenever the same graph and seed would get other numbers.
_VERSION = 1
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
        Message edges: of a split, the training edges alone.
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


@njit(cache=True)
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


@njit(cache=True)
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
