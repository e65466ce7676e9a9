import copy
import random

import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.transforms import RandomLinkSplit

from linkcal.data import from_pyg, simulate_graph
from linkcal.exceptions import InputError, LinkcalWarning
from refusals import refuses

from .strategies import pair_set

PARTS = ("train", "val", "test")


def _data(num_nodes=200, seed=0, **attributes):
    graph = simulate_graph(num_nodes, num_edges=600, num_features=6, seed=seed)
    return Data(x=graph.x, edge_index=graph.edge_index, num_nodes=num_nodes, **attributes), graph


def _pyg_split(data, seed=0, **options):
    torch.manual_seed(seed)
    random.seed(seed)
    options = {"num_val": 0.1, "num_test": 0.2, "is_undirected": True} | options
    return RandomLinkSplit(**options)(data)


def _tiny(**changes):
    """A hand-made split of the path 0-1-2-3-4-5: train 01 12 23, val 34, test 45."""
    train_edges = torch.tensor([[0, 1, 2], [1, 2, 3]])
    both = torch.cat([train_edges, train_edges.flip(0)], dim=1)
    label = torch.tensor([1.0, 1.0, 1.0, 0.0])
    parts = {
        "train": Data(
            edge_index=both,
            num_nodes=6,
            edge_label_index=torch.tensor([[0, 1, 2, 5], [1, 2, 3, 0]]),
            edge_label=label,
        ),
        "val": Data(
            edge_index=both,
            num_nodes=6,
            edge_label_index=torch.tensor([[3, 0], [4, 2]]),
            edge_label=torch.tensor([1.0, 0.0]),
        ),
        "test": Data(
            edge_index=torch.cat([both, torch.tensor([[3, 4], [4, 3]])], dim=1),
            num_nodes=6,
            edge_label_index=torch.tensor([[0, 4], [3, 5]]),
            edge_label=torch.tensor([0.0, 1.0]),
        ),
    }
    for key, value in changes.items():
        part, _, attribute = key.partition("__")
        setattr(parts[part], attribute, value)
    return tuple(parts.values())


def test_hand_made_split():
    split = from_pyg(*_tiny(), name="path")
    assert split.graph.pairs.tolist() == [[0, 1, 2], [1, 2, 3]]
    # The negative (5, 0) is written smaller index first; positives come first in every part.
    assert split.train.edge_label_index.tolist() == [[0, 1, 2, 0], [1, 2, 3, 5]]
    assert split.test.edge_label_index.tolist() == [[4, 0], [5, 3]]
    assert split.test.edge_label.tolist() == [1.0, 0.0]
    assert split.counts()["edges"] == 5
    assert split.counts()["message_edges"] == 3
    assert split.seed is None
    assert split.test.positive_rate is None


@pytest.mark.parametrize("split_labels", [False, True])
def test_random_link_split_is_taken_over(split_labels):
    data, graph = _data()
    parts = _pyg_split(data, split_labels=split_labels)
    with pytest.warns(LinkcalWarning, match="dropped [0-9]+ negatives that repeat another one, in either"):
        split = from_pyg(*parts)
    found = [pair_set(split.part(p).edge_label_index[:, split.part(p).edge_label == 1]) for p in PARTS]
    assert set().union(*found) == pair_set(graph.pairs)
    assert sum(map(len, found)) == graph.num_pairs
    assert pair_set(split.graph.pairs) == found[0]
    negatives = [split.part(p).edge_label_index[:, split.part(p).edge_label == 0] for p in PARTS]
    joined = torch.cat(negatives, dim=1)
    assert len(pair_set(joined)) == joined.size(1)
    assert not pair_set(joined) & pair_set(graph.pairs)
    assert torch.equal(split.graph.x, data.x)
    assert split.counts()["edges"] == graph.num_pairs


def test_directed_split_is_taken_over():
    edges = torch.tensor(
        [[u for u in range(30) for _ in range(3)], [(u + k) % 30 for u in range(30) for k in (1, 2, 29)]]
    )
    parts = _pyg_split(Data(edge_index=edges, num_nodes=30), is_undirected=False)
    split = from_pyg(*parts, directed=True)
    assert split.graph.directed
    assert pair_set(split.graph.pairs, directed=True) == pair_set(parts[0].edge_index, directed=True)


def test_int_labels_and_int32_indices():
    parts = _tiny()
    for data in parts:
        data.edge_label = data.edge_label.long()
        data.edge_index = data.edge_index.int()
        data.edge_label_index = data.edge_label_index.int()
    split = from_pyg(*parts)
    assert split.train.edge_label.dtype == torch.float32
    assert torch.equal(split.train.edge_label_index, from_pyg(*_tiny()).train.edge_label_index)


def test_shifted_labels_need_the_argument():
    # An edge_label of ones that existed before is shifted to 2 by PyG; nothing is guessed.
    data, _ = _data()
    data.edge_label = torch.ones(data.num_edges, dtype=torch.long)
    parts = _pyg_split(data, seed=1)
    refuses(r"edge_label must hold 0 and positive_label = 1 only, got 2", from_pyg, *parts)
    with pytest.warns(LinkcalWarning, match="dropped"):
        split = from_pyg(*parts, positive_label=2)
    assert set(split.train.edge_label.tolist()) == {0.0, 1.0}


def test_undirected_graph_split_as_directed_leaks():
    # One direction of an edge in training, the other in the test set: PyG's default is_undirected=False.
    data, _ = _data()
    parts = _pyg_split(data, is_undirected=False)
    advice = r".*RandomLinkSplit\(is_undirected=True\)"
    refuses(r"train\.edge_index must hold both directions of each edge" + advice, from_pyg, *parts)
    edges = set(map(tuple, parts[0].edge_index.T.tolist()))
    held_out = [p for part in parts[1:] for p in part.edge_label_index[:, part.edge_label == 1].T.tolist()]
    leaked = sum((v, u) in edges for u, v in held_out)
    assert leaked > 100
    with pytest.raises(
        InputError, match=f"holds the reverse of {leaked} of {len(held_out)} validation{advice}"
    ):
        from_pyg(*parts, directed=True)
    assert from_pyg(*parts, directed=True, symmetric=True).graph.directed
    for part in parts:
        part.edge_index = torch.cat([part.edge_index, part.edge_index.flip(0)], dim=1)
    refused = pytest.raises(
        InputError, match="val links must not be message-passing edges, in either direction"
    )
    with pytest.warns(LinkcalWarning, match="dropped"), refused:
        from_pyg(*parts)


def test_heterogeneous_data_is_refused():
    train, _, test = _tiny()
    with pytest.raises(InputError, match="val must be a HeteroData with two node types and one edge type"):
        from_pyg(train, HeteroData(), test)


def test_disjoint_training_links_are_refused():
    parts = _pyg_split(_data()[0], disjoint_train_ratio=0.3)
    refuses(r"train links must be message-passing edges \(PyG: disjoint_train_ratio=0\),", from_pyg, *parts)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"test__edge_label_index": torch.tensor([[0, 2], [3, 1]])},
            r"test links must not be message-passing edges, in either .* got 1 that are, such as \(1, 2\)",
        ),
        (
            {"test__edge_label_index": torch.tensor([[0, 4], [3, 3]])},
            r"hold each pair once, in either direction, got 1 repeated, such as \(3, 4\) in val and test",
        ),
        (
            {"val__edge_label_index": torch.tensor([[3, 5], [4, 4]])},
            r"one label, .* got 1 with both, such as \(4, 5\) a negative in val and a link in test",
        ),
        ({"val__edge_label": torch.ones(3)}, r"val\.edge_label must have shape \[2\], got \[3\]"),
        (
            {"val__edge_label": torch.tensor([1.0, 0.5])},
            r"val\.edge_label must hold 0 and positive_label = 1 only, got 0\.5",
        ),
        (
            {"val__edge_label_index": torch.tensor([[3, 2], [4, 2]])},
            r"val\.edge_label_index must join two different nodes, got \(2, 2\)",
        ),
        (
            {"test__edge_label_index": torch.tensor([[0, 4], [3, 9]])},
            r"test\.edge_label_index must hold node indices < num_nodes = 6, got 9",
        ),
    ],
)
def test_refused_splits(changes, message):
    refuses(message, from_pyg, *_tiny(**changes))


def test_repeated_negatives_are_kept_in_the_test_set():
    # (0, 3) is a test negative; (3, 0) in validation and training is the same pair.
    parts = _tiny(
        val__edge_label_index=torch.tensor([[3, 3], [4, 0]]),
        train__edge_label_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]),
    )
    with pytest.warns(LinkcalWarning, match="dropped 2 negatives"):
        split = from_pyg(*parts)
    assert (split.train.num_negatives, split.val.num_negatives, split.test.num_negatives) == (0, 0, 1)


def test_other_formats_are_refused():
    train, val, test = _tiny()
    del train.edge_label
    with pytest.raises(
        InputError,
        match="train must have edge_label_index and edge_label, got edge_index, edge_label_index, num_nodes",
    ):
        from_pyg(train, val, test)


def test_inputs_are_not_modified():
    parts = _tiny()
    copies = copy.deepcopy(parts)
    from_pyg(*parts)
    for data, before in zip(parts, copies, strict=True):
        for key in before.keys():  # noqa: SIM118 (Data iterates over pairs)
            assert torch.equal(torch.as_tensor(data[key]), torch.as_tensor(before[key]))
