"""Compressed rows against sets and dictionaries."""

import pytest
import torch
from hypothesis import given

from linkcal.exceptions import InputError
from linkcal.toggle._graph import ToggleGraph

from .cases import toggle_cases


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
    back = graph.transposed
    assert sorted(arcs) == sorted(zip(back.senders.tolist(), back.receivers.tolist(), strict=True))
    every = torch.cartesian_prod(torch.arange(case.num_nodes), torch.arange(case.num_nodes)).T
    expected = [(t, s) in counts for s, t in every.T.tolist()] if case.num_nodes > 1 else [False]
    assert graph.contains(every.reshape(2, -1)).tolist() == expected


@pytest.mark.parametrize(
    "arcs", [[(0, 1), (0, 2), (2, 0)], [(0, 1), (1, 2), (2, 0)], [(1, 0), (0, 1), (3, 1)]]
)
def test_an_arc_in_one_direction_only(arcs):
    with pytest.raises(InputError, match="both directions of every edge"):
        ToggleGraph.from_edge_index(torch.tensor(arcs).T, 4, undirected=True)


@given(toggle_cases())
def test_rows_in_both_directions(case):
    graph = ToggleGraph.from_edge_index(case.edge_index, case.num_nodes, undirected=case.undirected)
    arcs = list(zip(graph.receivers.tolist(), graph.senders.tolist(), strict=True))
    where = {arc: position for position, arc in enumerate(arcs)}
    starts, nodes, arriving, leaving = graph.both_directions()
    for node in range(case.num_nodes):
        row = slice(starts[node], starts[node + 1])
        near = sorted({s for t, s in arcs if t == node} | {t for t, s in arcs if s == node})
        assert nodes[row].tolist() == near
        assert arriving[row].tolist() == [where.get((node, w), -1) for w in near]
        assert leaving[row].tolist() == [where.get((w, node), -1) for w in near]
