"""Which non-edges stand against the links: uniform ones, degree-matched ones, or pairs two steps apart."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from linkcal._validation import check_choice, check_edge_index, check_positive_int
from linkcal.data.degree_negatives import degree_negatives
from linkcal.data.graph import Graph, pair_keys
from linkcal.data.negatives import NegativeSampler
from linkcal.data.two_hop_negatives import two_hop_negatives
from linkcal.exceptions import InputError

__all__ = ["NEGATIVE_KINDS", "NegativeKind", "sample_negatives"]

#: Kinds of non-edges by name; see :func:`sample_negatives`.
NegativeKind = Literal["uniform", "degree", "two-hop"]
NEGATIVE_KINDS: tuple[str, ...] = get_args(NegativeKind)


def sample_negatives(
    graph: Graph,
    num: int,
    generator: np.random.Generator,
    *,
    kind: NegativeKind = "uniform",
    exclude: Tensor | None = None,
) -> Tensor:
    """Draw `num` distinct non-edges of `graph`.

    For repeated uniform draws from one graph keep a :class:`NegativeSampler`, which sorts the edges once.

    Parameters
    ----------
    graph : Graph
    num : int
        L, at least 0.
    generator : numpy.random.Generator
    kind : {"uniform", "degree", "two-hop"}
        ``"uniform"``: every non-edge equally likely. ``"degree"``: endpoints in proportion to their degrees
        (out-degree of the source, in-degree of the target in a directed graph), one pair after the other
        from those left over. ``"two-hop"``: every non-edge with a common neighbour (in any direction) equally
        likely, however many common neighbours it has.
    exclude : Tensor [2, K], optional
        More pairs never to draw, in either orientation if the graph is undirected.

    Returns
    -------
    Tensor [2, L], int64
        On the graph's device; smaller index first in an undirected graph. Never an edge, a reversed edge of
        an undirected graph, a self-pair, an excluded pair or a repeat.

    Raises
    ------
    InputError
        If `kind` is unknown.
    ShortageError
        If there are fewer than `num` such pairs.

    Notes
    -----
    Memory is O(E + N + L). Time is O(L log E) for uniform and degree-matched pairs; two-hop pairs cost
    up to one walk over all paths of two edges in small graphs, and some searches of neighbour lists for each
    pair in large ones.

    Examples
    --------
    >>> import numpy as np, torch
    >>> path = Graph.from_edges(torch.tensor([[0, 1, 2], [1, 2, 3]]), num_nodes=4)
    >>> sorted(map(tuple, sample_negatives(path, 2, np.random.default_rng(0), kind="two-hop").T.tolist()))
    [(0, 2), (1, 3)]
    >>> triangle = Graph.from_edges(torch.tensor([[0, 1, 2], [1, 2, 0]]), num_nodes=3)
    >>> sample_negatives(triangle, 1, np.random.default_rng(0))
    Traceback (most recent call last):
    linkcal.exceptions.ShortageError: num must be at most the number of non-edges that can be drawn, 0, got 1
    """
    check_choice(kind, "kind", NEGATIVE_KINDS)
    if kind == "uniform":
        return NegativeSampler(graph, exclude=exclude).sample(num, generator)
    num = check_positive_int(num, "num", minimum=0)
    if not isinstance(generator, np.random.Generator):
        raise InputError(f"generator must be a numpy.random.Generator, got {type(generator).__name__}")
    taken = graph.pairs
    if exclude is not None:
        exclude = check_edge_index(exclude, graph.num_nodes, "exclude").to(taken.device)
        taken = torch.cat([taken, exclude[:, exclude[0] != exclude[1]]], dim=1)
    keys = torch.unique(pair_keys(taken, graph.num_nodes, directed=graph.directed)).cpu().numpy()
    draw = degree_negatives if kind == "degree" else two_hop_negatives
    return draw(graph, num, generator, keys).to(graph.edge_index.device)
