"""What looks like a known encoder and is not: every number is the naive one, whatever method is chosen."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.nn.utils import parametrizations
from torch_geometric import nn as pyg

from linkcal.exceptions import UnsupportedModelError
from linkcal.models import GCN
from linkcal.toggle import _engine as engine
from linkcal.toggle import toggle_edges
from linkcal.toggle._recognise import recognise
from refusals import unsupported
from users import DotProduct

from .cases import assert_equals_naive, assert_same, build_case, features, seeded

CASE = build_case(20, ["random", "star", "clique"], 6, undirected=True, loops=False, repeats=False)
DIRECTED = build_case(20, ["random", "star", "clique"], 6, undirected=False, loops=False, repeats=False)
NO_EDGES = build_case(6, [], 0, undirected=True, loops=False, repeats=False)


def auto(model, case=CASE):
    x = features(case.num_nodes, 4, torch.float64)
    assert_equals_naive(model, x, case, "auto")
    return toggle_edges(model, x, case.edge_index, case.pairs, undirected=case.undirected).method


def gcn(**options):
    return GCN(4, 5, 3, **options)


# --- adversaries ------------------------------------------------------------------------------------------


class LoRA(nn.Module):
    """A linear map with a low-rank addition, under the names of the map that it wraps."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.weight, self.bias = inner, inner.weight, inner.bias
        self.down, self.up = nn.Linear(inner.weight.size(1), 1), nn.Linear(1, inner.weight.size(0))

    def forward(self, x):
        return self.inner(x) + self.up(self.down(x))


class NormalisedLinear(pyg.Linear):
    def forward(self, x):
        out = super().forward(x)
        return out / out.norm(dim=1, keepdim=True).clamp(min=1e-3)


class MonteCarloDropout(nn.Dropout):
    """Active in evaluation mode, with one fixed mask."""

    def forward(self, x):
        generator = torch.Generator().manual_seed(3)
        return x * (torch.rand(x.shape, generator=generator, dtype=x.dtype) > 0.5)


class OwnMessage(pyg.GCNConv):
    def message(self, x_j, edge_weight):
        return super().message(x_j, edge_weight).relu()


class ByOutDegree(pyg.MessagePassing):
    """Each message over the number of arcs that leave its sender."""

    def __init__(self):
        super().__init__(aggr="sum")
        self.lin = nn.Linear(4, 4)

    def forward(self, x, edge_index):
        leaving = edge_index[0].bincount(minlength=x.size(0)).clamp(min=1)
        return self.propagate(edge_index, x=self.lin(x) / leaving.unsqueeze(1))


class Users(DotProduct):
    """A user's encoder from any functions of x and the arcs; dot-product decoder."""

    def __init__(self, *steps):
        super().__init__()
        self.layers = nn.ModuleList(step for step in steps if isinstance(step, nn.Module))
        self.steps = steps
        self.calls = 0

    def encode(self, x, edge_index):
        for layer in self.layers:
            x = layer(x, edge_index).tanh()
        for step in self.steps:
            if not isinstance(step, nn.Module):
                x = step(self, x)
        return x


def counted(model, x):
    model.calls += 1
    return x * (1.0 + 0.01 * model.calls)


def with_lin(make):
    def build():
        model = gcn()
        model.gnn.convs[1].lin = make(model.gnn.convs[1].lin)
        return model

    return build


def with_dropout(make):
    def build():
        model = gcn()
        model.gnn.dropout = make()
        return model

    return build


def with_conv(make):
    def build():
        model = gcn()
        model.gnn.convs[1] = make()
        return model

    return build


def with_bias_in_lin():
    model = gcn()
    model.gnn.convs[1].lin = nn.Linear(5, 3)
    return model


def shared_weights():
    model = GCN(4, 4, 4, num_layers=3)
    model.gnn.convs[1] = model.gnn.convs[0]
    return model


ADVERSARIES = {
    "LoRA in a convolution": with_lin(LoRA),
    "normalised linear": with_lin(lambda lin: NormalisedLinear(lin.in_channels, lin.out_channels)),
    "weight norm": with_lin(parametrizations.weight_norm),
    "spectral norm": with_lin(lambda lin: parametrizations.spectral_norm(lin, n_power_iterations=15)),
    "orthogonal": with_lin(parametrizations.orthogonal),
    "Sequential in a convolution": with_lin(lambda lin: nn.Sequential(lin, nn.Tanh())),
    "bias in a convolution's linear": with_bias_in_lin,
    "PairNorm for dropout": with_dropout(pyg.PairNorm),
    "linear for dropout": with_dropout(lambda: nn.Linear(5, 5)),
    "Monte Carlo dropout": with_dropout(MonteCarloDropout),
    "own message": with_conv(lambda: OwnMessage(5, 3)),
    "shared weights": shared_weights,
    "out-degrees": lambda: Users(ByOutDegree(), pyg.GATConv(4, 3)),
    "out-degrees between layers": lambda: Users(pyg.GATConv(4, 4), ByOutDegree(), pyg.SAGEConv(4, 3)),
    "global mean": lambda: Users(pyg.GCNConv(4, 3), lambda _, x: x - x.mean(dim=0)),
    "sorted": lambda: Users(pyg.GCNConv(4, 3), lambda _, x: x.sort(dim=0).values),
    "ranked": lambda: Users(pyg.GCNConv(4, 3), lambda _, x: x.argsort(dim=0).argsort(dim=0).to(x)),
    "stateful": lambda: Users(pyg.GCNConv(4, 3), counted),
}


#: What treats every node alone after all.
FOLLOWED = {"shared weights", "linear for dropout", "Monte Carlo dropout"}


@pytest.mark.parametrize("case", [CASE, DIRECTED], ids=["undirected", "directed"])
@pytest.mark.parametrize("large", [True, False])
@pytest.mark.parametrize("name", ADVERSARIES)
def test_every_adversary_is_exact_or_refused(name, large, case, monkeypatch):
    if large:
        monkeypatch.setattr(engine, "LARGE_MESSAGES", -1)
    model = seeded(ADVERSARIES[name], 1).double().eval()
    x, given = features(20, 4, torch.float64), (case.edge_index.int(), case.pairs)
    if name == "stateful":
        unsupported("deterministic", toggle_edges, model, x, *given, undirected=case.undirected)
        return
    naive = toggle_edges(model, x, *given, undirected=case.undirected, method="naive")
    for method in ("auto", "fast", "delta", "khop"):
        try:
            toggled = toggle_edges(model, x, *given, undirected=case.undirected, method=method)
        except UnsupportedModelError:
            assert method != "auto"
            continue
        assert_same(toggled, naive)
        assert name in FOLLOWED or toggled.method in ("khop", "naive")


@pytest.mark.parametrize("register", ["register_module_forward_hook", "register_module_forward_pre_hook"])
def test_global_hooks_count(register):
    def scaled(module, given, out=None):
        if isinstance(module, pyg.GCNConv):
            return 2 * out if out is not None else (2 * given[0], *given[1:])
        return None

    handle = getattr(torch_module, register)(scaled)
    try:
        assert auto(seeded(gcn, 0).double()) == "khop"
    finally:
        handle.remove()


# --- hooks, replaced parts --------------------------------------------------------------------------------


@pytest.mark.parametrize("aggr", ["max", "mean"])
@pytest.mark.parametrize("case", [CASE, NO_EDGES])
def test_gcn_that_does_not_add_its_messages(aggr, case):
    """Without edges the maximum is the sum: the untouched graph alone does not tell them apart."""
    model = seeded(lambda: pyg.GAE(pyg.GCN(4, 5, 2, 3, aggr=aggr)), 0).double()
    assert auto(model, case) == "khop"


def test_an_aggregation_that_was_replaced():
    model = seeded(lambda: pyg.GAE(pyg.GraphSAGE(4, 5, 2, 3)), 0).double()
    for conv in model.encoder.convs:
        conv.aggr_module = pyg.MaxAggregation()
    assert auto(model) == "khop"


@pytest.mark.parametrize("encoder", [pyg.GCN, pyg.GraphSAGE, pyg.GIN])
def test_activation_given_as_a_function(encoder):
    model = seeded(lambda: pyg.GAE(encoder(4, 5, 2, 3, act=torch.relu)), 0).double()
    assert auto(model) == "kernel"
    model.encoder.act = lambda x: x - x.mean(dim=0)
    assert auto(model) == "naive"
    with pytest.raises(UnsupportedModelError, match="the function mean, as it is called, is not known to"):
        toggle_edges(model, features(20, 4, torch.float64), CASE.edge_index, CASE.pairs, method="fast")


class ByMode(Users):
    """Another encoder in training mode, with a branch on the mode and in-place operations."""

    def encode(self, x, edge_index):
        first, second = self.layers
        h = first(x, edge_index)
        h = h * 3 if self.training else h.relu_()
        h += x
        return second(h, edge_index).mul_(2.0)


@pytest.mark.parametrize("conv", [pyg.GCNConv, pyg.SAGEConv, pyg.GATConv])
def test_evaluation_mode_is_what_is_recorded(conv):
    model = seeded(lambda: ByMode(conv(4, 4), conv(4, 4)), 0).double().train()
    assert auto(model) == ("delta" if conv is pyg.GATConv else "kernel")
    assert model.training


class InPlaceOfAView(Users):
    def encode(self, x, edge_index):
        h = self.layers[0](x, edge_index)
        h[:, :2].relu_()  # changes h, too
        return h


class Swallowing(Users):
    """Catches what a recorder refuses, and goes another way then."""

    def encode(self, x, edge_index):
        h = self.layers[0](x, edge_index)
        try:
            return h - h.mean(dim=0)
        except UnsupportedModelError:
            return h


class Changing(Users):
    """Changes a tensor after it was used."""

    def encode(self, x, edge_index):
        shift = torch.zeros_like(x)
        h = self.layers[0](x, edge_index) + shift
        shift += 1.0
        return h


class OtherEdges(Users):
    def encode(self, x, edge_index):
        return self.layers[0](self.layers[0](x, edge_index), CASE.edge_index)


@pytest.mark.parametrize("cls", [InPlaceOfAView, Swallowing, Changing, OtherEdges])
def test_what_recorders_refuse(cls):
    model = seeded(lambda: cls(pyg.GCNConv(4, 4)), 0).double()
    assert auto(model) in ("khop", "naive")


def test_compiled_parts_are_refused():
    model = gcn()
    model.gnn.convs[1].compile(backend="eager")
    unsupported("GCNConv is compiled", recognise, model, features(20, 4, torch.float32), CASE.edge_index)


def test_another_thread_sees_no_recorder():
    """Nothing is patched while an encoder is recorded: a second thread runs the same modules meanwhile."""
    model, x = seeded(gcn, 0), features(20, 4, torch.float32)
    with torch.no_grad(), ThreadPoolExecutor(2) as pool:
        expected = model.eval().encode(x, CASE.edge_index)
        recorded = pool.submit(lambda: [recognise(model, x, CASE.edge_index) for _ in range(30)])
        with torch.no_grad():
            found = [model.encode(x, CASE.edge_index) for _ in range(60)]
        assert all(each.chain is not None for each in recorded.result())
    assert all(torch.equal(each, expected) for each in found)


def test_activation_inside_an_mlp_that_mixes_the_nodes():
    model = seeded(lambda: pyg.GAE(pyg.GIN(4, 5, 1, 3, act=lambda x: x - x.mean(dim=0))), 0).double()
    assert auto(model) == "naive"


def scaled_output(model):
    model.gnn.register_forward_hook(lambda _module, _arguments, z: 2 * z)


def scaled_input(model):
    model.gnn.convs[1].register_forward_pre_hook(lambda _module, given: (2 * given[0], *given[1:]))


def scaled_messages(model):
    model.gnn.convs[1].register_message_forward_hook(lambda _module, _arguments, messages: 3 * messages)


def replaced_forward(model):
    convolution = model.gnn.convs[1]
    convolution.forward = lambda x, edge_index, **_: 2 * convolution.lin(x)


@pytest.mark.parametrize("large", [True, False])
@pytest.mark.parametrize("change", [scaled_output, scaled_input, scaled_messages, replaced_forward])
def test_hooks_and_replaced_methods_count(change, large, monkeypatch):
    if large:
        monkeypatch.setattr(engine, "LARGE_MESSAGES", -1)
    model = seeded(gcn, 0).double()
    change(model)
    assert auto(model) == "khop"
    with pytest.raises(UnsupportedModelError, match="hooks or methods replaced on the instance"):
        toggle_edges(model, features(20, 4, torch.float64), CASE.edge_index, CASE.pairs, method="fast")


def test_hooks_that_tell_the_toggled_graph_from_the_given_one():
    def hook(_module, given, z):
        return z if given[1].size(1) == CASE.edge_index.size(1) else 2 * z

    model = seeded(gcn, 0).double()
    model.gnn.convs[1].register_forward_hook(hook)
    assert auto(model) == "naive"


def test_hooks_that_no_forward_pass_runs_do_not_count():
    model = seeded(gcn, 0).double()
    model.gnn.register_full_backward_hook(lambda *_: None)
    assert auto(model) == "kernel"


class RelativeToTheHub(nn.Module):
    """Reads a column as a share of its largest value, which a hub holds."""

    def __init__(self):
        super().__init__()
        self.one, self.two = pyg.GCNConv(4, 6), pyg.GCNConv(6, 5)

    def encode(self, x, edge_index):
        x = torch.cat([x[:, :3], x[:, 3:] / x[:, 3].max()], dim=1)
        return self.two(self.one(x, edge_index).relu(), edge_index)

    def decode(self, z, edge_label_index):
        return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(dim=1)


def test_a_batch_with_a_hub_does_not_stand_for_batches_without():
    ring, leaves = torch.arange(300), torch.arange(3, 200)
    one_way = torch.cat(
        [torch.stack([ring, (ring + 1) % 300]), torch.stack([torch.zeros_like(leaves), leaves])], dim=1
    )
    edges = torch.cat([one_way, one_way.flip(0)], dim=1)
    x = torch.randn(300, 4)
    x[:, 3] = torch.bincount(edges[0]).float()
    pairs = torch.stack([torch.arange(220, 225), torch.arange(250, 255)])
    model = RelativeToTheHub()
    naive = toggle_edges(model, x, edges, pairs, method="naive", decode_returns="logits")
    found = toggle_edges(model, x, edges, pairs, decode_returns="logits")
    torch.testing.assert_close(found.logit_present, naive.logit_present, rtol=1e-4, atol=1e-5)
