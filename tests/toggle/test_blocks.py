"""Blocks of pairs, put together or one by one."""

import pytest
import torch

from linkcal.exceptions import InputError
from linkcal.models import GCN
from linkcal.toggle import _kernel as fused
from linkcal.toggle import iter_toggled, toggle_edges

from .cases import MODELS, build_case, features, seeded

CASE = build_case(30, ["random", "star", "clique", "twins"], 21, undirected=True, loops=False, repeats=False)
X = features(30, 4, torch.float32)
FIELDS = ("absent", "present", "logit_absent", "logit_present", "in_graph")


def many_pairs() -> torch.Tensor:
    every = torch.combinations(torch.arange(30)).T
    return every[:, torch.randperm(every.size(1), generator=torch.Generator().manual_seed(0))]


def model_of(name: str) -> torch.nn.Module:
    return seeded(lambda: MODELS[name](4, 33, 7), 0)


@pytest.mark.parametrize("name", sorted(MODELS))
@pytest.mark.parametrize("block_size", [1, 7, 100])
def test_block_size_changes_nothing(name, block_size):
    """Bit for bit in the link embeddings; logits are the model's own head on blocks of another length."""
    pairs = many_pairs()
    whole = toggle_edges(model_of(name), X, CASE.edge_index, pairs)
    parts = toggle_edges(model_of(name), X, CASE.edge_index, pairs, block_size=block_size)
    for field in FIELDS:
        ours, theirs = getattr(parts, field), getattr(whole, field)
        if not field.startswith("logit"):
            assert torch.equal(ours, theirs), field
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("places", [1, 2, 8])
def test_nodes_that_share_a_mark_change_nothing(places, weighted, monkeypatch):
    """Common neighbours are found, bit for bit the same, where nearly all nodes share their mark."""
    model, pairs = model_of("gcn"), many_pairs()
    edges = torch.cat([CASE.edge_index, CASE.edge_index[:, :1]], dim=1) if weighted else CASE.edge_index
    options = {"undirected": not weighted}
    alone = toggle_edges(model, X, edges, pairs, **options)
    monkeypatch.setattr(fused, "MARKS", places)
    shared = toggle_edges(model, X, edges, pairs, **options)
    assert shared.method == "kernel"
    for field in FIELDS:
        assert torch.equal(getattr(shared, field), getattr(alone, field)), field


def test_iterator_gives_consecutive_blocks():
    pairs = many_pairs()
    whole = toggle_edges(model_of("gcn"), X, CASE.edge_index, pairs)
    stop = 0
    for rows, block in iter_toggled(model_of("gcn"), X, CASE.edge_index, pairs, block_size=100):
        assert rows.start == stop
        assert len(block) == rows.stop - rows.start
        assert torch.equal(block.absent, whole.absent[rows])
        stop = rows.stop
    assert stop == pairs.size(1)


def test_iterator_does_the_work_per_graph_once(monkeypatch):
    model = model_of("gcn")
    calls, given_encode = [], GCN.encode
    monkeypatch.setattr(GCN, "encode", lambda *given: (calls.append(1), given_encode(*given))[1])
    blocks = iter_toggled(model, X, CASE.edge_index, many_pairs(), block_size=50)
    passes = len(calls)  # z, and one for each pair that the kernel is verified on
    assert 1 < passes <= 6
    assert len(list(blocks)) == 9
    assert len(calls) == passes


def test_iterator_checks_at_the_call():
    with pytest.raises(InputError, match="block_size must be a whole number >= 1, got 0"):
        iter_toggled(model_of("gcn"), X, CASE.edge_index, CASE.pairs, block_size=0)
    with pytest.raises(InputError, match="two different nodes"):
        iter_toggled(model_of("gcn"), X, CASE.edge_index, torch.tensor([[1], [1]]))


def test_no_pairs():
    empty = torch.empty(2, 0, dtype=torch.int64)
    model = seeded(lambda: GCN(4, 5, 3), 0)
    assert toggle_edges(model, X, CASE.edge_index, empty).absent.shape == (0, 3)
    assert [rows for rows, _ in iter_toggled(model, X, CASE.edge_index, empty)] == [slice(0, 0)]
