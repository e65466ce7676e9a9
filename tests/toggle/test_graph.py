"""Compressed rows: the compiled sort and torch's give the same graph, and arcs are found."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linkcal.exceptions import InputError
from linkcal.toggle._compiled import both_directions, sort_pairs
from linkcal.toggle._graph import (
    ToggleGraph,
    _already_rows,
    _sort_by_torch,
    _sort_compiled,
    rows_are_symmetric,
)

from .cases import toggle_cases


@given(toggle_cases())
def test_both_sorts_agree(case):
    source, target = case.edge_index
    for ours, theirs in zip(
        _sort_compiled(source, target, case.num_nodes),
        _sort_by_torch(source, target, case.num_nodes),
        strict=True,
    ):
        assert torch.equal(ours, theirs)


@given(toggle_cases())
def test_rows_against_sets(case):
    """Senders, multiplicities, weights, opposite arcs and look-ups, against dictionaries."""
    weight = torch.arange(case.edge_index.size(1), dtype=torch.float64)
    graph = ToggleGraph.from_edge_index(
        case.edge_index, case.num_nodes, undirected=case.undirected, edge_weight=weight
    )
    counts: dict[tuple[int, int], list[float]] = {}
    for (s, t), w in zip(case.edge_index.T.tolist(), weight.tolist(), strict=True):
        if s != t:
            counts.setdefault((t, s), []).append(w)
    arcs = list(zip(graph.receivers.tolist(), graph.senders.tolist(), strict=True))
    assert arcs == sorted(counts)
    assert graph.weight.tolist() == [sum(counts[arc]) for arc in arcs]
    repeated = [len(counts[arc]) for arc in arcs]
    assert graph.multiplicity is None or graph.multiplicity.tolist() == repeated
    assert graph.multiplicity is not None or set(repeated) <= {1}
    where = {arc: position for position, arc in enumerate(arcs)}
    assert graph.opposite().tolist() == [where.get((s, t), -1) for t, s in arcs]
    every = torch.cartesian_prod(torch.arange(case.num_nodes), torch.arange(case.num_nodes)).T
    expected = [(t, s) in counts for s, t in every.T.tolist()] if case.num_nodes > 1 else [False]
    assert graph.contains(every.reshape(2, -1)).tolist() == expected


@given(toggle_cases(), st.integers(0, 99))
def test_rows_that_need_no_sort(case, seed):
    """A list that is sorted already gives the graph that the same arcs in any order give."""
    arcs = {(s, t) for s, t in case.edge_index.T.tolist() if s != t}
    both = torch.tensor(sorted(arcs | {(t, s) for s, t in arcs}), dtype=torch.int64).reshape(-1, 2).T
    shuffled = both[:, torch.randperm(both.size(1), generator=torch.Generator().manual_seed(seed))]
    ours = _already_rows(both[0], both[1], case.num_nodes)
    theirs = ToggleGraph.from_edge_index(shuffled, case.num_nodes, undirected=True)
    assert ours is not None
    assert torch.equal(ours.indptr, theirs.indptr)
    assert torch.equal(ours.senders, theirs.senders)
    assert torch.equal(ours.self_loops, theirs.self_loops)
    assert ours.multiplicity is theirs.multiplicity is None
    assert both.numel() == 0 or ours.senders.data_ptr() != both[1].data_ptr()


@pytest.mark.parametrize(
    "arcs",
    [
        [(0, 1), (1, 0), (1, 0)],  # repeated
        [(0, 0), (0, 1), (1, 0)],  # a self-loop
        [(1, 0), (0, 1)],  # not sorted
        [(0, 1), (0, 2), (2, 0)],  # 0 -> 1 alone
        [(0, 1), (1, 0), (2, 0)],  # 2 -> 0 alone
        [(0, 1), (1, 2), (2, 0)],  # a cycle: as many arcs up as down
        [(0, 1), (0, 2), (1, 2), (2, 0), (2, 1), (2, 3)],
    ],
)
def test_other_lists_are_sorted(arcs):
    edge_index = torch.tensor(arcs).T
    assert _already_rows(edge_index[0], edge_index[1], 4) is None
    if {(t, s) for s, t in arcs} <= set(arcs):
        graph = ToggleGraph.from_edge_index(edge_index, 4, undirected=True)
        assert graph.indptr.tolist() == [0, 1, 2, 2, 2]
    else:
        with pytest.raises(InputError, match="both directions of every edge"):
            ToggleGraph.from_edge_index(edge_index, 4, undirected=True)


@given(toggle_cases())
def test_rows_in_both_directions(case):
    graph = ToggleGraph.from_edge_index(case.edge_index, case.num_nodes, undirected=case.undirected)
    arcs = list(zip(graph.receivers.tolist(), graph.senders.tolist(), strict=True))
    where = {arc: position for position, arc in enumerate(arcs)}
    starts, nodes, arriving, leaving = both_directions(graph.indptr.numpy(), graph.senders.numpy())
    for node in range(case.num_nodes):
        row = slice(starts[node], starts[node + 1])
        near = sorted({s for t, s in arcs if t == node} | {t for t, s in arcs if s == node})
        assert nodes[row].tolist() == near
        assert arriving[row].tolist() == [where.get((node, w), -1) for w in near]
        assert leaving[row].tolist() == [where.get((w, node), -1) for w in near]


@given(toggle_cases(), st.integers(0, 99), st.integers(1, 4))
def test_pairs_sorted_by_longer_row(case, seed, parts):
    graph = ToggleGraph.from_edge_index(case.edge_index, case.num_nodes, undirected=case.undirected)
    shuffled = torch.randperm(case.pairs.size(1), generator=torch.Generator().manual_seed(seed))
    pairs, length = case.pairs[:, shuffled].int().numpy(), graph.indptr.diff().tolist()
    order, ends, swapped, cuts = sort_pairs(pairs, graph.indptr.diff().int().numpy(), parts)
    assert sorted(order.tolist()) == list(range(pairs.shape[1]))
    assert ends[0].tolist() == sorted(ends[0])
    for pair, long, short, second in zip(order, *ends, swapped, strict=True):
        assert pairs[:, pair].tolist() == ([short, long] if second else [long, short])
        assert length[long] >= length[short]
    assert cuts[0] == 0
    assert cuts[-1] == order.size
    assert cuts.tolist() == sorted(cuts)


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_symmetric_rows_are_told_from_others_however_they_are_parted(parts):
    rng = np.random.default_rng(0)
    matrix = np.triu(rng.random((40, 40)) < 0.2, 1)
    matrix |= matrix.T

    def symmetric(entries):
        starts = np.append(0, entries.sum(1).cumsum())
        columns = np.flatnonzero(entries) % 40
        return bool(rows_are_symmetric(starts, columns, np.empty((parts, 40), dtype=np.int64)))

    assert symmetric(matrix)
    assert symmetric(np.zeros_like(matrix))
    for row, column in zip(*matrix.nonzero(), strict=True):
        lacking, moved = matrix.copy(), matrix.copy()
        lacking[row, column] = False
        moved[row, column], moved[row, (~matrix[row] & (np.arange(40) != row)).argmax()] = False, True
        assert not symmetric(lacking)
        assert not symmetric(moved)
