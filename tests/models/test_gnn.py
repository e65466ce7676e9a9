"""Each of linkcal's own models: shapes, symmetry, repeatability, reset, config, inputs untouched."""

import copy

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import VGAE as PygVGAE

from linkcal.exceptions import InputError
from linkcal.models import GCN, MODELS, PEG, SAGE, SEAL, VGAE, LinkPredictor
from refusals import refuses

CLASSES = [spec.cls for spec in MODELS.values() if issubclass(spec.cls, LinkPredictor)]
N, F, D = 7, 5, 3
# Of the F columns of x, PEG reads the last two as positions.
OWN = {PEG: {"in_channels": F - 2, "position_channels": 2}}


@pytest.fixture
def x() -> Tensor:
    return torch.rand(N, F, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def edge_index() -> Tensor:
    # Node 6 is isolated.
    row = torch.tensor([0, 0, 1, 2, 3, 4])
    col = torch.tensor([1, 2, 2, 3, 4, 5])
    return torch.stack([torch.cat([row, col]), torch.cat([col, row])])


@pytest.fixture
def pairs() -> Tensor:
    return torch.triu_indices(N, N, offset=1)


def build(cls: type[LinkPredictor], **options: object) -> LinkPredictor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        arguments = {"in_channels": F, "hidden_channels": 8, "out_channels": D, **OWN.get(cls, {}), **options}
        model = cls(**arguments).eval()  # type: ignore[arg-type]
        if isinstance(model, PEG) and model.positions is not None:
            model.positions = torch.rand_like(model.positions)
        return model


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_shapes(cls, num_layers, x, edge_index, pairs):
    model = build(cls, num_layers=num_layers)
    z = model.encode(x, edge_index)
    h = model.link_embedding(z, pairs)
    assert z.shape == (N, D)
    assert h.shape == (pairs.size(1), D)
    for count in (pairs.size(1), 1, 0):
        assert model.decode(z, pairs[:, :count]).shape == (count,)
    torch.testing.assert_close(model(x, edge_index, pairs), model.head(h), rtol=0, atol=0)


@pytest.mark.parametrize("cls", CLASSES)
def test_case_21_scores_are_repeatable_symmetric_and_independent_of_the_batch(cls, x, edge_index, pairs):
    model = build(cls, dropout=0.5)
    with torch.no_grad():
        first, second = model(x, edge_index, pairs), model(x, edge_index, pairs)
        turned = model(x, edge_index, pairs.flip(0))
        order = torch.randperm(pairs.size(1), generator=torch.Generator().manual_seed(0))
        shuffled = torch.empty_like(first)
        shuffled[order] = model(x, edge_index, pairs[:, order])
        z = model.encode(x, edge_index)
        alone = torch.cat([model.decode(z, pair) for pair in pairs.split(1, dim=1)])
        embedding = [model.link_embedding(model.encode(x, edge_index), pairs) for _ in range(2)]
    assert torch.equal(first, second)
    assert torch.equal(embedding[0], embedding[1])
    torch.testing.assert_close(turned.sigmoid(), first.sigmoid(), rtol=0, atol=1e-7)
    torch.testing.assert_close(shuffled.sigmoid(), first.sigmoid(), rtol=0, atol=1e-6)
    torch.testing.assert_close(alone.sigmoid(), first.sigmoid(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("cls", CLASSES)
def test_node_numbering_does_not_matter(cls, x, edge_index, pairs):
    model = build(cls).double()
    order = torch.randperm(N, generator=torch.Generator().manual_seed(5))
    new_number = torch.empty_like(order)
    new_number[order] = torch.arange(N)
    expected = model(x.double(), edge_index, pairs)
    got = model(x.double()[order], new_number[edge_index], new_number[pairs])
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("cls", [*CLASSES, SEAL])
def test_reset_parameters_draws_everything_anew_and_reproducibly(cls, x, edge_index, pairs):
    model = build(cls)
    states = []
    for seed in (0, 0, 1):
        model.train()(x, edge_index, pairs)  # moves batch statistics, which a reset must undo
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model.reset_parameters()
        states.append(copy.deepcopy(model.state_dict()))
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    weights = [key for key in states[0] if states[0][key].ndim == 2]
    assert weights
    assert not any(torch.equal(states[0][key], states[2][key]) for key in weights)


@pytest.mark.parametrize("cls", CLASSES)
def test_graph_without_features_uses_a_learned_embedding(cls, edge_index, pairs):
    model = build(cls, num_nodes=N)
    ids = torch.arange(N)
    model(ids, edge_index, pairs).sum().backward()
    assert model.embedding is not None
    assert float(model.embedding.weight.grad.abs().sum()) > 0
    with pytest.raises(InputError, match=r"x must hold int64 node ids \[N\].*got torch.float32 \[7, 5\]"):
        model.encode(torch.zeros(N, F), edge_index)
    for wrong, came in ((ids + 1, "1 to 7"), (ids - 1, "-1 to 5")):  # of a graph with other nodes
        refuses(rf"ids in \[0, 7\), the model's num_nodes, got {came}: bui", model.encode, wrong, edge_index)


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden_channels": 2.5}, "hidden_channels must be a whole number >= 1, got 2.5"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\), got 1.0"),
    ],
)
def test_bad_arguments(cls, options, message):
    refuses(message, cls, **{"in_channels": F, **options})


@pytest.mark.parametrize("cls", CLASSES)
def test_wrong_feature_width(cls, edge_index):
    refuses(r"x must have shape \[N, 5\].* got \[7, 4\]", build(cls).encode, torch.zeros(N, 4), edge_index)


def test_gcn_by_hand():
    # One edge, two nodes: both degrees are 2 with self-loops, so every coefficient is 1/2.
    model = GCN(1, out_channels=1, num_layers=1)
    with torch.no_grad():
        model.gnn.convs[0].lin.weight.fill_(2.0)
        model.gnn.convs[0].bias.fill_(1.0)
    z = model.encode(torch.tensor([[3.0], [5.0]]), torch.tensor([[0, 1], [1, 0]]))
    assert z.flatten().tolist() == pytest.approx([9.0, 9.0], rel=1e-6)  # 2 * (3 + 5) / 2 + 1
    assert model.decode(z, torch.tensor([[0], [1]])).tolist() == pytest.approx([81.0], rel=1e-6)


def test_sage_by_hand():
    model = SAGE(1, out_channels=2, num_layers=1)
    with torch.no_grad():
        model.gnn.convs[0].lin_l.weight.copy_(torch.tensor([[1.0], [0.0]]))
        model.gnn.convs[0].lin_l.bias.zero_()
        model.gnn.convs[0].lin_r.weight.copy_(torch.tensor([[0.0], [1.0]]))
        model.lin.weight.copy_(torch.tensor([[1.0, 10.0]]))
        model.lin.bias.fill_(0.5)
    # Path 0 - 1 - 2 with x = 1, 2, 4: means of neighbours 2, 2.5, 2.
    z = model.encode(torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
    assert z.tolist() == [[2.0, 1.0], [2.5, 2.0], [2.0, 4.0]]
    # 2 * 2.5 + 10 * 1 * 2 + 0.5
    assert model.decode(z, torch.tensor([[0], [1]])).tolist() == [25.5]


def test_vgae_samples_in_training_mode_and_takes_the_mean_otherwise(x, edge_index):
    model = build(VGAE)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        samples = torch.stack([model.train().encode(x, edge_index).detach() for _ in range(500)])
    mean = model.eval().encode(x, edge_index)
    spread = samples.std(dim=0)
    assert float(spread.min()) > 0
    # 5 standard errors: 21 coordinates are compared.
    assert bool(((samples.mean(dim=0) - mean).abs() < 5 * spread / 500**0.5).all())


def test_vgae_auxiliary_loss_is_pygs_kl_over_the_nodes_and_handed_out_once(x, edge_index):
    model = build(VGAE)
    assert model.auxiliary_loss() is None
    model.eval().encode(x, edge_index)
    assert model.auxiliary_loss() is None
    model.train().encode(x, edge_index)
    loss = model.auxiliary_loss()
    hidden = model.convs[0](x, edge_index).relu()
    reference = PygVGAE(torch.nn.Identity()).kl_loss(
        model.conv_mu(hidden, edge_index), model.conv_logstd(hidden, edge_index)
    )
    torch.testing.assert_close(loss, reference / N, rtol=1e-5, atol=1e-7)
    assert model.auxiliary_loss() is None
    copy.deepcopy(model)


@pytest.mark.parametrize("name", ["decode", "head", "link_embedding"])
def test_a_replaced_decoder_has_no_product_form(name):
    replaced = type("Replaced", (GCN,), {name: lambda self, *tensors: tensors[0]})
    assert replaced(F).product_form() is None


def test_link_embedding_has_one_gradient_however_many_threads_sum_it():
    # 20,000 links on 50 nodes: every row of the gradient is a sum of hundreds of terms.
    generator = torch.Generator().manual_seed(0)
    pairs = torch.randint(50, (2, 20_000), generator=generator)
    z = torch.randn(50, 16, generator=generator, requires_grad=True)
    weight = torch.randn(20_000, 16, generator=generator)
    model = GCN(4, 8)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        gradients = [
            torch.autograd.grad((weight * model.link_embedding(z, pairs)).sum(), z)[0] for _ in range(10)
        ]
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(gradient, gradients[0]) for gradient in gradients)


@pytest.mark.parametrize("cls", [spec.cls for spec in MODELS.values()])
def test_features_of_another_dtype_are_named(cls, edge_index, pairs):
    model = cls(**OWN.get(cls, {"in_channels": F}))
    with pytest.raises(InputError, match=r"x must have the dtype of .*, torch\.float32, got torch\.float64"):
        model(torch.rand(N, F).double(), edge_index, pairs)
    with pytest.raises(InputError, match=r"torch\.float32, got torch\.int64"):
        model(torch.ones(N, F, dtype=torch.int64), edge_index, pairs)
    assert model.double().eval()(torch.rand(N, F).double(), edge_index, pairs).dtype == torch.float64
