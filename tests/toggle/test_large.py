"""Known encoders that are not run on the whole graph: their own sums, confirmed by the model on subgraphs."""

import pytest
import torch
from hypothesis import given, settings

from linkcal.models import GCN
from linkcal.toggle import _engine as engine
from linkcal.toggle import toggle_edges

from .cases import MODELS, assert_equals_naive, assert_same, build_case, features, path, seeded, toggle_cases

CASE = build_case(40, ["random", "star", "clique", "path"], 3, undirected=True, loops=False, repeats=False)
X = features(40, 3, torch.float64)


@pytest.fixture
def every_graph_is_large(monkeypatch):
    monkeypatch.setattr(engine, "LARGE_MESSAGES", -1)


def whole_passes(model: torch.nn.Module, monkeypatch) -> list[int]:
    """Numbers of nodes on which the class's encode runs from now on, recorders left out."""
    sizes: list[int] = []
    given_encode = type(model).encode

    def encode(self, x, edge_index):
        if type(edge_index) is torch.Tensor:
            sizes.append(x.size(0))
        return given_encode(self, x, edge_index)

    monkeypatch.setattr(type(model), "encode", encode)
    return sizes


@settings(max_examples=30)
@given(toggle_cases())
def test_equals_one_pass_per_pair(case):
    names = sorted(MODELS)
    model = seeded(
        lambda: MODELS[names[case.seed % 4]](3, 4, 2, num_layers=1 + case.seed % 3), case.seed
    ).double()
    before = engine.LARGE_MESSAGES
    engine.LARGE_MESSAGES = -1
    try:
        x = features(case.num_nodes, 3, torch.float64, case.seed)
        assert_equals_naive(model, x, case, "fast", "delta")
    finally:
        engine.LARGE_MESSAGES = before


@pytest.mark.usefixtures("every_graph_is_large")
def test_the_whole_graph_is_not_run(monkeypatch):
    """Two far pairs of a long path: the model sees their subgraphs alone."""
    arcs = path(100)
    model, x = seeded(lambda: GCN(3, 4, 2), 0), features(100, 3, torch.float32)
    pairs = torch.tensor([[3, 60], [4, 80]])
    naive = toggle_edges(model, x, arcs, pairs, method="naive")
    sizes = whole_passes(model, monkeypatch)
    fast = toggle_edges(model, x, arcs, pairs, method="fast")
    assert sizes
    assert max(sizes) < 50
    assert_same(fast, naive)


@pytest.mark.usefixtures("every_graph_is_large")
def test_one_pair_is_enough_where_it_sees_the_whole_graph(monkeypatch):
    arcs = torch.tensor([(i, j) for i in range(40) for j in range(40) if i != j]).T
    model = seeded(lambda: GCN(3, 4, 2), 0).double()
    naive = toggle_edges(model, X, arcs, CASE.pairs, method="naive")
    sizes = whole_passes(model, monkeypatch)
    assert_same(toggle_edges(model, X, arcs, CASE.pairs), naive)
    assert sizes == [40, 40]  # as given and toggled


@pytest.mark.usefixtures("every_graph_is_large")
def test_layers_that_the_subgraphs_contradict_are_not_used(monkeypatch):
    """An encode that tells recorders from edges, and gives another output then."""
    given_encode = GCN.encode

    def encode(self, x, edge_index):
        return given_encode(self, x, edge_index) * (2 if type(edge_index) is torch.Tensor else 1)

    monkeypatch.setattr(GCN, "encode", encode)
    model = seeded(lambda: GCN(3, 4, 2), 0).double()
    toggled = toggle_edges(model, X, CASE.edge_index, CASE.pairs)
    assert toggled.method == "khop"
    assert_same(toggled, toggle_edges(model, X, CASE.edge_index, CASE.pairs, method="naive"))
