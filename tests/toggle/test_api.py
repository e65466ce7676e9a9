"""The public function: what it refuses, what it leaves alone, and what must not change its result."""

import copy

import numba
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

from linkcal.exceptions import InputError, SlowToggleWarning, UnsupportedModelError
from linkcal.models import GCN, GIN, SAGE, VGAE
from linkcal.toggle import ToggledEmbeddings, _engine, toggle_edges
from linkcal.toggle._engine import embed_and_score
from refusals import refuses, unsupported

from .cases import assert_same, build_case, features, seeded

CASE = build_case(30, ["random", "star", "clique", "twins"], 11, undirected=True, loops=False, repeats=False)
X = features(30, 4, torch.float32)
FAST = [GCN, SAGE, GIN, VGAE]


def model_of(cls: type, **options) -> nn.Module:
    return seeded(lambda: cls(4, hidden_channels=5, out_channels=3, **options), 5)


def toggle(model: nn.Module, pairs: torch.Tensor = CASE.pairs, **options) -> ToggledEmbeddings:
    return toggle_edges(model, X, CASE.edge_index, pairs, **options)


def assert_identical(a: ToggledEmbeddings, b: ToggledEmbeddings) -> None:
    for name in ("absent", "present", "logit_absent", "logit_present", "in_graph"):
        assert torch.equal(getattr(a, name), getattr(b, name)), name


class AllNodes(GCN):
    """Each embedding also holds the mean of all: any link changes every node."""

    def encode(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        z = super().encode(x, edge_index)
        return z + z.mean(dim=0)


def test_whole_passes_that_take_long_are_announced(monkeypatch, recwarn):
    """Once, with the time, where the caller did not choose them."""
    model = seeded(lambda: AllNodes(4), 0)
    assert toggle(model).method == "naive"
    assert not recwarn
    monkeypatch.setattr(_engine, "LONG", 0.0)
    with pytest.warns(SlowToggleWarning, match=rf"AllNodes has no exact .* {CASE.pairs.size(1)} pairs take"):
        toggle(model)
    assert [warning.category for warning in recwarn] == []
    toggle(model, method="naive")
    toggle(model_of(GCN))


# --- refusals ---------------------------------------------------------------------------------------------


def test_refuses_self_pairs():
    with pytest.raises(InputError, match=r"edge_label_index must join two different nodes, got \(3, 3\)"):
        toggle(model_of(GCN), torch.tensor([[0, 3], [1, 3]]))


def test_refuses_an_edge_in_one_direction_only():
    one_way = torch.tensor([[0, 1, 1], [1, 0, 2]])
    with pytest.raises(InputError, match=r"got \(1, 2\) without \(2, 1\); pass undirected=False"):
        toggle_edges(model_of(GCN), X, one_way, CASE.pairs)
    assert len(toggle_edges(model_of(GCN), X, one_way, CASE.pairs, undirected=False)) == len(CASE.pairs.T)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("edge_index", torch.zeros(3, 2, dtype=torch.int64), r"edge_index must have shape \[2, L\]"),
        ("edge_index", torch.tensor([[0], [30]]), r"edge_index must hold .* < num_nodes = 30, got 30"),
        ("pairs", torch.tensor([[0], [-1]]), r"edge_label_index must hold node indices >= 0, got -1"),
        ("pairs", torch.tensor([[0.5], [1.0]]), r"edge_label_index must hold integers"),
        ("x", torch.zeros(30, 2, 2), r"x must be a tensor of shape \[N, F\] or \[N\], got \[30, 2, 2\]"),
    ],
)
def test_refuses_wrong_shapes(field, value, message):
    given = {"x": X, "edge_index": CASE.edge_index, "pairs": CASE.pairs, field: value}
    refuses(message, toggle_edges, model_of(GCN), given["x"], given["edge_index"], given["pairs"])


def test_refuses_unknown_method():
    with pytest.raises(
        InputError, match=r"method must be one of auto, naive, .* got 'fats'.*did you mean 'fast'"
    ):
        toggle(model_of(GCN), method="fats")


def test_refuses_a_model_that_caches_its_graph():
    model = seeded(lambda: pyg.GAE(pyg.GCN(4, 5, 2, 3, cached=True)), 0)
    for method in ("auto", "naive"):
        unsupported(r"GCNConv\(cached=True\) at .*convs\.0", toggle, model, method=method)


def test_refuses_a_model_that_draws_at_random():
    """Dropout that is not told the mode stays on in evaluation mode, too."""

    class Dropping(Halved):
        def encode(self, x, edge_index):
            return nn.functional.dropout(super().encode(x, edge_index), 0.5)

    model = seeded(Dropping, 0)
    for method in ("auto", "naive"):
        with pytest.raises(UnsupportedModelError, match="must be deterministic in evaluation mode"):
            toggle(model, method=method, decode_returns="probabilities")


def test_a_model_whose_output_is_not_finite_is_still_deterministic():
    model = model_of(GCN)
    nn.init.constant_(model.gnn.convs[0].bias, float("nan"))
    assert bool(toggle(model, method="naive").absent.isnan().all())


@pytest.mark.parametrize("method", ["fast", "delta"])
def test_fast_methods_say_why_a_model_is_not_theirs(method):
    model = seeded(lambda: pyg.GAE(pyg.GraphSAGE(4, 6, 2, 3, aggr="max")), 0)
    unsupported(f"got '{method}': the layer SAGEConv", toggle, model, method=method)


# --- what is left alone -----------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", FAST)
def test_inputs_and_model_are_unchanged(cls):
    model = model_of(cls)
    inputs = (X, CASE.edge_index, CASE.pairs)
    before = [tensor.clone() for tensor in inputs]
    state, kinds = copy.deepcopy(model.state_dict()), [type(module) for module in model.modules()]
    for method in ("auto", "delta", "naive"):
        toggle(model, method=method)
    assert all(torch.equal(a, b) for a, b in zip(inputs, before, strict=True))
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    assert [type(module) for module in model.modules()] == kinds


def test_the_mode_of_every_submodule_is_restored():
    model = model_of(GIN).train()
    model.gnn.norms[0].eval()
    modes = [module.training for module in model.modules()]
    toggle(model)
    assert [module.training for module in model.modules()] == modes
    with pytest.raises(InputError):
        toggle(model, torch.tensor([[1], [1]]))
    assert [module.training for module in model.modules()] == modes


@pytest.mark.parametrize("cls", FAST)
@pytest.mark.parametrize("method", ["auto", "delta", "naive"])
def test_training_mode_makes_no_difference(cls, method):
    """Dropout, sampling (VGAE) and batch statistics (GIN) are off while toggling."""
    model = model_of(cls, dropout=0.5)
    assert_identical(toggle(model.eval(), method=method), toggle(model.train(), method=method))


def test_untouched_state_is_the_models_own_output():
    model = model_of(GCN).eval()
    with torch.no_grad():
        plain = model(X, CASE.edge_index, CASE.pairs)
    toggled = toggle(model)
    as_given = torch.where(toggled.in_graph, toggled.logit_present, toggled.logit_absent)
    torch.testing.assert_close(as_given, plain, atol=1e-6, rtol=1e-6)


# --- what must not change the result ----------------------------------------------------------------------


@pytest.mark.parametrize("cls", FAST)
@pytest.mark.parametrize("method", ["fast", "delta"])
def test_order_and_repeats_of_pairs(cls, method):
    order = torch.tensor([5, 0, 3, 3, 1, 7, 2, 4, 6, 0])
    all_at_once = toggle(model_of(cls), method=method)
    assert_same(toggle(model_of(cls), CASE.pairs[:, order], method=method), all_at_once.take(order))


@pytest.mark.parametrize("cls", FAST)
@pytest.mark.parametrize("method", ["fast", "delta"])
def test_relabelled_nodes_edges_in_another_order_and_turned_pairs(cls, method):
    model, new = model_of(cls), torch.randperm(30, generator=torch.Generator().manual_seed(1))
    x = torch.empty_like(X)
    x[new] = X
    order = torch.randperm(CASE.edge_index.size(1), generator=torch.Generator().manual_seed(2))
    edges, pairs = new[CASE.edge_index[:, order]], new[CASE.pairs.flip(0)]
    relabelled = toggle_edges(model, x, edges, pairs, method=method)
    assert_same(relabelled, toggle(model, method=method))


@pytest.mark.parametrize("cls", FAST)
@pytest.mark.parametrize("undirected", [True, False])
def test_number_of_threads(cls, undirected):
    """Bit for bit, on a graph large enough that the compiled loops are shared out."""
    if numba.config.NUMBA_NUM_THREADS < 2:
        pytest.skip("needs two Numba threads")
    generator = torch.Generator().manual_seed(0)
    arcs = torch.randint(300, (2, 3000), generator=generator)
    arcs = torch.cat([arcs, arcs.flip(0)], dim=1) if undirected else arcs
    pairs = torch.combinations(torch.arange(300)).T[:, ::7]
    x = features(300, 4, torch.float32)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(toggle_edges(model_of(cls), x, arcs, pairs, undirected=undirected))
    finally:
        torch.set_num_threads(before)
    assert results[0].method == "kernel"
    for name in ("absent", "present", "in_graph"):
        assert torch.equal(getattr(results[0], name), getattr(results[1], name)), name
    assert_same(*results)


def test_int32_indices():
    narrow = toggle_edges(model_of(GCN), X, CASE.edge_index.int(), CASE.pairs.int())
    assert_identical(narrow, toggle(model_of(GCN)))


# --- other people's models --------------------------------------------------------------------------------


class Halved(nn.Module):
    """A user's model with a link embedding of its own, that decodes to probabilities."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GCNConv(4, 3)

    def encode(self, x, edge_index):
        return self.conv(x, edge_index)

    def link_embedding(self, z, edge_label_index):
        return (z[edge_label_index[0]] - z[edge_label_index[1]]).abs()

    def decode(self, z, edge_label_index):
        return torch.sigmoid(self.link_embedding(z, edge_label_index).sum(dim=-1) / 2)


def test_probabilities_become_logits():
    toggled = toggle(seeded(Halved, 3), decode_returns="probabilities")
    torch.testing.assert_close(toggled.logit_absent, toggled.absent.sum(dim=-1) / 2, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(toggled.logit_present, toggled.present.sum(dim=-1) / 2, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("method", ["auto", "naive"])
def test_a_decode_replaced_on_the_instance_is_the_one_that_counts(method):
    model = model_of(GCN)
    model.decode = lambda z, edge_label_index: torch.full((edge_label_index.size(1),), 7.0)
    assert toggle(model, method=method).logit_absent.tolist() == [7.0] * CASE.pairs.size(1)


class Sums(GCN):
    """Embeds a pair in another way."""

    def link_embedding(self, z, edge_label_index):
        return z[edge_label_index[0]] + z[edge_label_index[1]]


@pytest.mark.parametrize("where", ["class", "instance"])
def test_a_link_embedding_of_its_own_is_asked(where):
    rows, index = features(10, 5, torch.float32), torch.tensor([[0, 3, 3, 9], [1, 2, 2, 0]])
    model = seeded(lambda: (Sums if where == "class" else GCN)(3, 4, 5), 0)
    if where == "instance":
        model.link_embedding = lambda z, index: z[index[0]] + z[index[1]]
    h, logit = embed_and_score(model, rows, index)
    expected = rows[index[0]] + rows[index[1]]
    assert torch.equal(h, expected)
    assert torch.equal(logit, expected.sum(dim=-1))
