from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch_geometric.nn import GAE
from torch_geometric.nn import GCN as PygGCN

from linkcal.data import Graph, LinkPairs, LinkSplit, split_links
from linkcal.exceptions import InputError, TrainingDivergedError
from linkcal.models import MODELS, TrainingConfig, make_model, train_link_predictor
from refusals import refuses

NAMES = list(MODELS)


def planted_graph(*, features: bool = True) -> Graph:
    """Two groups of 20 nodes, dense inside and sparse between, with noisy features of the group."""
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1], 20)
    u, v = np.triu_indices(40, 1)
    edge = rng.random(len(u)) < np.where(group[u] == group[v], 0.5, 0.03)
    x = None
    if features:
        x = torch.from_numpy(np.eye(2)[group] + rng.normal(0, 0.5, (40, 2))).float()
    return Graph.from_edges(torch.tensor(np.stack([u[edge], v[edge]])), 40, x=x)


@pytest.fixture(scope="module")
def split() -> LinkSplit:
    return split_links(planted_graph(), seed=0)


def small(name: str, seed: int = 0, **overrides: object) -> nn.Module:
    return make_model(name, 2, seed=seed, **{"hidden_channels": 8, "out_channels": 4, **overrides})


def auc(model: nn.Module, split: LinkSplit, part: LinkPairs) -> float:
    with torch.no_grad():
        logit = model(split.graph.node_input, split.graph.edge_index, part.edge_label_index)
    return float(roc_auc_score(part.edge_label, logit))


class Unreadable:
    """Stands in for the test pairs: any look at it fails."""

    def __getattribute__(self, name: str) -> object:
        raise AssertionError(f"the trainer read test.{name}")


def prepared(model, split):
    """The split with the message-passing graph as the model reads it."""
    return replace(split, graph=model.prepare(split.graph))


@pytest.mark.parametrize(
    ("name", "features"), [*((name, True) for name in NAMES), ("gcn", False), ("peg", False), ("seal", False)]
)
def test_learns_a_planted_graph(name, features):
    split = split_links(planted_graph(features=features), seed=0)
    nodes = {} if features else {"num_nodes": 40}
    model = make_model(name, 2 if features else 8, **nodes, hidden_channels=16, out_channels=8)
    split, losses = prepared(model, split), []
    config = TrainingConfig(epochs=100, lr=0.01, patience=None, eval_every=10)
    result = train_link_predictor(model, split, config, progress=lambda report: losses.append(report.loss))
    assert np.mean(losses[-10:]) < np.mean(losses[:10])
    assert result.best_val_auc > 0.6
    assert auc(model, split, split.test) > 0.55


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_numbers(name, split):
    config = TrainingConfig(epochs=8, eval_every=2)
    models = [small(name, dropout=0.5) for _ in range(3)]
    results = [
        train_link_predictor(model, prepared(model, split), config, seed=seed)
        for model, seed in zip(models, (4, 4, 5), strict=True)
    ]
    assert results[0] == results[1]
    assert results[0].final_loss != results[2].final_loss
    states = [model.state_dict() for model in models]
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


def test_random_state_and_the_split_are_left_as_they_were(split):
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    pairs = [split.train.edge_label_index, split.val.edge_label_index]
    tensors = [split.graph.x, split.graph.edge_index, *pairs]
    before = [t.clone() for t in tensors]
    train_link_predictor(small("vgae", dropout=0.5), split, TrainingConfig(epochs=3, batch_size=16))
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002
    assert all(torch.equal(a, b) for a, b in zip(before, tensors, strict=True))


@pytest.mark.parametrize("batch_size", [None, 16])
def test_test_pairs_are_never_read(split, batch_size):
    blind = replace(split, test=Unreadable())
    result = train_link_predictor(small("gcn"), blind, TrainingConfig(epochs=4, batch_size=batch_size))
    assert result.epochs_run == 4


def test_validation_pairs_only_choose_the_epoch(split):
    # Other validation pairs: other AUCs, but the same losses, so no gradient came from them.
    val, test = split.val, split.test
    swapped = replace(split, val=test, test=val)
    losses: list[list[float]] = [[], []]
    for part, store in zip((split, swapped), losses, strict=True):
        train_link_predictor(
            small("gcn"), part, TrainingConfig(epochs=6), progress=lambda r, s=store: s.append(r.loss)
        )
    assert losses[0] == losses[1]


class Recorder(nn.Module):
    """Keeps every batch of pairs that it is trained on."""

    decode_returns = "logits"

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))
        self.seen: list[Tensor] = []

    def encode(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return x

    def decode(self, z: Tensor, edge_label_index: Tensor) -> Tensor:
        if self.training:
            self.seen.append(edge_label_index.clone())
        return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(dim=-1) * self.weight


def as_set(pairs: Tensor) -> set[tuple[int, int]]:
    return {(min(u, v), max(u, v)) for u, v in pairs.t().tolist()}


@pytest.mark.parametrize("batch_size", [None, 7])
def test_each_epoch_takes_all_positives_once_and_fresh_non_edges(split, batch_size):
    model = Recorder()
    config = TrainingConfig(epochs=3, batch_size=batch_size)
    train_link_predictor(model, split, config)
    positives = as_set(split.train.edge_label_index[:, split.train.edge_label == 1])
    steps = 1 if batch_size is None else -(-len(positives) // batch_size)
    assert len(model.seen) == 3 * steps
    negatives = []
    for start in range(0, len(model.seen), steps):
        pairs = torch.cat(model.seen[start : start + steps], dim=1)
        unordered = as_set(pairs)
        assert pairs.size(1) == 2 * len(positives) == len(unordered)
        assert positives < unordered
        negatives.append(unordered - positives)
        assert not negatives[-1] & as_set(split.graph.edge_index)
    assert negatives[0] != negatives[1] != negatives[2]


def test_best_weights_come_back(split):
    model = small("gcn")
    config = TrainingConfig(epochs=40, lr=0.05, patience=None, eval_every=1)
    result = train_link_predictor(model, split, config)
    best_epoch, best = max(result.val_auc, key=lambda entry: entry[1])
    assert (result.best_epoch, result.best_val_auc) == (best_epoch, best)
    assert [epoch for epoch, _ in result.val_auc] == list(range(1, 41))
    assert auc(model, split, split.val) == best
    assert not model.training


def test_early_stopping(split):
    class Constant(Recorder):
        def decode(self, z: Tensor, edge_label_index: Tensor) -> Tensor:
            return self.weight.expand(edge_label_index.size(1))

    result = train_link_predictor(Constant(), split, TrainingConfig(epochs=100, patience=10, eval_every=4))
    # Best at epoch 4 (AUC 0.5 throughout); 14 - 4 >= 10 is first seen at the look after epoch 16.
    assert (result.best_epoch, result.epochs_run, result.stopped_early) == (4, 16, True)
    assert result.best_val_auc == 0.5


def test_models_from_elsewhere(split):
    torch.manual_seed(0)
    config = TrainingConfig(epochs=40, lr=0.02)
    assert train_link_predictor(GAE(PygGCN(2, 8, 2, 4)), split, config).best_val_auc > 0.6

    class Probabilities(GAE):
        def decode(self, z: Tensor, edge_label_index: Tensor) -> Tensor:
            return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(dim=-1).sigmoid()

    model = Probabilities(PygGCN(2, 8, 2, 4))
    assert train_link_predictor(model, split, config, decode_returns="probabilities").best_val_auc > 0.6
    refuses("decode_returns must be declared", train_link_predictor, model, split, config)


@pytest.mark.parametrize(
    ("in_training", "message"),
    [
        (True, "loss must stay finite, got nan in epoch 1 .* lr = 0.01"),
        (False, "validation logits must stay finite, got inf in epoch 2"),
    ],
)
def test_diverging_training_stops_with_a_clear_error(split, in_training, message):
    class Infinite(Recorder):
        def decode(self, z: Tensor, edge_label_index: Tensor) -> Tensor:
            logit = super().decode(z, edge_label_index)
            return logit + float("inf") if self.training == in_training else logit

    with pytest.raises(TrainingDivergedError, match=message):
        train_link_predictor(Infinite(), split, TrainingConfig(epochs=4, eval_every=2))


def test_parts_of_one_class(split):
    def only(part: LinkPairs, label: int) -> LinkPairs:
        kept = part.edge_label == label
        return LinkPairs(part.edge_label_index[:, kept], part.edge_label[kept])

    with pytest.raises(InputError, match=r"split.val must hold links and negatives .* and 0 negatives"):
        train_link_predictor(small("gcn"), replace(split, val=only(split.val, 1)))
    with pytest.raises(InputError, match=r"split.train must hold at least one link, got 0"):
        train_link_predictor(small("gcn"), replace(split, train=only(split.train, 0)))


def test_dense_graph_trains_with_the_non_edges_that_there_are():
    # 6 nodes, 15 pairs, 12 training links: 3 non-edges of the message-passing graph.
    graph = Graph.from_edges(torch.triu_indices(6, 6, offset=1)[:, 3:], 6)
    everything = LinkPairs(graph.pairs, torch.ones(12))
    val = LinkPairs(torch.tensor([[0, 0], [1, 2]]), torch.tensor([0.0, 1.0]))
    nothing = LinkPairs(torch.empty(2, 0, dtype=torch.int64), torch.empty(0))
    split = LinkSplit(graph=graph, train=everything, val=val, test=nothing)
    model = make_model("gcn", 4, num_nodes=6)
    result = train_link_predictor(model, split, TrainingConfig(epochs=3, batch_size=2))
    assert result.epochs_run == 3
    assert np.isfinite(result.final_loss)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": float("nan")}, "lr must be a finite number > 0, got nan"),
        ({"eval_every": 1.5}, "eval_every must be a whole number >= 1, got 1.5"),
        ({"keep_best": False}, "patience must be None with keep_best=False, got 100"),
        ({"keep_best": 1}, "keep_best must be True or False, got 1"),
    ],
)
def test_bad_settings(options, message):
    refuses(message, TrainingConfig, **options)


def test_last_epoch_is_kept_where_asked(small_split):
    def trained(epochs, keep_best):
        model = make_model("gcn", 24, hidden_channels=8, out_channels=6, seed=3)
        config = TrainingConfig(epochs=epochs, lr=0.3, patience=None, keep_best=keep_best)
        return model, train_link_predictor(model, small_split, config, seed=3)

    best, result = trained(60, keep_best=True)
    last, result_last = trained(60, keep_best=False)
    assert result.best_epoch < result_last.best_epoch == 60
    assert result.best_val_auc > result_last.best_val_auc == result_last.val_auc[-1][1]
    # The same training, another look at it.
    assert result.val_auc == result_last.val_auc
    weights = zip(best.parameters(), last.parameters(), strict=True)
    assert not all(torch.equal(a, b) for a, b in weights)
