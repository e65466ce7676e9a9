"""Hypothesis strategies of small graphs, shared by the data tests."""

import torch
from hypothesis import strategies as st

from linkcal.data import Graph


@st.composite
def graphs(draw, *, min_nodes=1, max_nodes=9):
    """Any simple graph of so many nodes, complete and empty ones included."""
    num_nodes = draw(st.integers(min_nodes, max_nodes))
    directed = draw(st.booleans())
    pairs = [(u, v) for u in range(num_nodes) for v in range(num_nodes) if u < v or (directed and u != v)]
    density = draw(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]))
    kept = [pair for pair in pairs if density == 1.0 or (density > 0 and draw(st.floats(0, 1)) < density)]
    edge_index = torch.tensor(kept, dtype=torch.int64).reshape(-1, 2).T
    return Graph.from_edges(edge_index, num_nodes, directed=directed)


def pair_set(pairs, *, directed=False):
    """Set of the columns of [2, L], unordered unless `directed`."""
    columns = pairs.T.tolist()
    return {tuple(c) if directed else tuple(sorted(c)) for c in columns}


def non_edges(graph):
    """All non-edges by brute force."""
    edges = pair_set(graph.edge_index, directed=graph.directed)
    nodes = range(graph.num_nodes)
    every = {(u, v) for u in nodes for v in nodes if (u != v if graph.directed else u < v)}
    return every - edges
