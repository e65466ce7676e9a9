"""Extraction and labels of enclosing subgraphs: by hand, and against SciPy's shortest paths."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import shortest_path

from linkcal.models._enclosing import MAX_LABEL, EnclosingSubgraphs, _drnl


def expected(edges: set[tuple[int, int]], n: int, u: int, v: int, hops: int) -> tuple[dict[int, int], set]:
    """Label of each node, and the edges, by the definition."""
    adjacency = np.zeros((n, n), dtype=bool)
    for a, b in edges:
        adjacency[a, b] = adjacency[b, a] = True
    distance = shortest_path(csr_matrix(adjacency), unweighted=True)
    nodes = np.flatnonzero(np.minimum(distance[u], distance[v]) <= hops)
    adjacency[u, v] = adjacency[v, u] = False
    inside = adjacency[np.ix_(nodes, nodes)]

    def from_end(end: int, barred: int) -> np.ndarray:
        cut = inside.copy()
        cut[nodes == barred, :] = cut[:, nodes == barred] = False
        return shortest_path(csr_matrix(cut), unweighted=True)[np.flatnonzero(nodes == end)[0]]

    to_u, to_v = from_end(u, v), from_end(v, u)
    label = {}
    for node, a, b in zip(nodes.tolist(), to_u, to_v, strict=True):
        if node in (u, v):
            label[node] = 1
        elif np.isinf(a + b):
            label[node] = 0
        else:
            s = int(a + b)
            label[node] = 1 + int(min(a, b)) + (s // 2) * (s // 2 + s % 2 - 1)
    return label, {(int(nodes[i]), int(nodes[j])) for i, j in zip(*np.nonzero(inside), strict=True)}


def read(batch, pair: int) -> tuple[dict[int, int], set, list[int]]:
    first, stop = batch.start[pair : pair + 2].tolist()
    nodes = batch.nodes.tolist()
    arcs = {
        (nodes[i], nodes[j])
        for i in range(first, stop)
        for j in batch.neighbors[batch.indptr[i] : batch.indptr[i + 1]].tolist()
        if i != j
    }
    label = dict(zip(nodes[first:stop], batch.label[first:stop].tolist(), strict=True))
    return label, arcs, nodes[first : first + 2]


def tensor(edges) -> torch.Tensor:
    return torch.tensor(sorted(edges), dtype=torch.int64).reshape(-1, 2).T


@st.composite
def graphs(draw: st.DrawFn) -> tuple[set[tuple[int, int]], int]:
    n = draw(st.integers(2, 14))
    pair = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))
    return draw(st.sets(pair, max_size=30)), n


@settings(max_examples=80, deadline=None)
@given(graphs(), st.integers(1, 2))
def test_equals_the_definition_for_every_pair(graph, hops):
    edges, n = graph
    pairs = np.array([(u, v) for u in range(n) for v in range(n) if u != v]).T
    subgraphs = EnclosingSubgraphs(tensor(edges), n, hops)
    absent, present = (subgraphs.extract(pairs, target_link=own) for own in (False, True))
    simple = {(a, b) for a, b in edges if a != b}
    for number, (u, v) in enumerate(pairs.T.tolist()):
        label, arcs = expected(simple, n, u, v, hops)
        assert read(absent, number) == (label, arcs, sorted([u, v]))
        assert read(present, number) == (label, arcs | {(u, v), (v, u)}, sorted([u, v]))


def test_rows_are_symmetric_with_one_self_loop_each():
    triangle_with_tail = tensor({(0, 1), (1, 2), (2, 0), (2, 3)})
    batch = EnclosingSubgraphs(triangle_with_tail, 4, 2).extract(np.array([[0, 0], [1, 3]]))
    dense = torch.zeros(8, 8)
    for i, (first, stop) in enumerate(pairwise(batch.indptr.tolist())):
        dense[i, batch.neighbors[first:stop]] += 1
    assert torch.equal(dense, dense.T)
    assert torch.equal(dense.diagonal(), torch.ones(8))
    assert batch.start.tolist() == [0, 4, 8]


def test_batches_and_threads_do_not_matter():
    rng = np.random.default_rng(0)
    edges = torch.from_numpy(rng.integers(0, 60, (2, 150)))
    pairs = rng.integers(0, 30, (2, 50))
    pairs[1] += 30
    subgraphs = EnclosingSubgraphs(edges, 60, 2)
    subgraphs.workspace = np.full((5, 3, 60), -1, dtype=np.int32)
    whole = EnclosingSubgraphs(edges, 60, 2).extract(pairs)
    for number in range(50):
        alone = subgraphs.extract(pairs[:, [number]])
        assert read(alone, 0) == read(whole, number)


@pytest.mark.parametrize("hops", [1, 2])
def test_cap_is_kept_and_independent_of_other_pairs(hops):
    star = tensor({(0, leaf) for leaf in range(1, 40)} | {(1, leaf) for leaf in range(20, 40)})
    pairs = np.array([[0, 1, 0], [1, 0, 39]])
    leaves = np.stack([np.zeros(10, dtype=np.int64), np.arange(2, 12)])  # of the hub 0 alone

    def nodes(asked=pairs):
        batch = EnclosingSubgraphs(star, 40, hops, max_neighbors=5).extract(asked)
        return [sorted(read(batch, i)[0]) for i in range(asked.shape[1])]

    assert all(len(each) <= 2 + 5 * hops for each in nodes())
    assert nodes()[0] == nodes()[1] == nodes(pairs[:, :1])[0]
    # Pairs with the same neighbours get different ones of them.
    assert len({frozenset(each) - {0, leaf} for leaf, each in enumerate(nodes(leaves), 2)}) > 5


@pytest.mark.parametrize(
    ("a", "b", "label"),
    [
        (1, 1, 2),
        (1, 2, 3),
        (2, 1, 3),
        (1, 3, 4),
        (2, 2, 5),
        (2, 3, 7),
        (-1, 2, 0),
        (1, -1, 0),
        (80, 80, MAX_LABEL),
    ],
)
def test_drnl_as_in_figure_3_of_the_seal_paper(a, b, label):
    assert _drnl(a, b) == label
