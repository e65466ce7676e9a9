"""Edge weights are handed to the model, through every step, or refused in one line; never dropped."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GAE, GCNConv, GraphSAGE
from torch_geometric.transforms import RandomLinkSplit

from linkcal import CalibratedLinkPredictor, Platt
from linkcal.data import Graph, from_pyg, graph_from_hetero, read_edges, simulate_graph, split_links
from linkcal.exceptions import LinkcalWarning, UnsupportedModelError
from linkcal.features import score_links
from linkcal.models import TrainingConfig, make_model, train_link_predictor
from refusals import refuses, unsupported
from users import DotProduct


class Weighted(DotProduct):
    """Two layers that read weights by the name of the argument."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = GCNConv(4, 8), GCNConv(8, 4)

    def encode(self, x, edge_index, edge_weight=None):
        return self.second(self.first(x, edge_index, edge_weight).relu(), edge_index, edge_weight)


@pytest.fixture(scope="module")
def graph() -> Graph:
    plain = simulate_graph(40, num_edges=100, num_features=4, seed=0)
    weight = np.random.default_rng(0).uniform(0.1, 5.0, plain.num_pairs)
    return Graph.from_edges(plain.pairs, 40, x=plain.x, edge_weight=weight)


def weight_table(graph):
    return dict(zip(map(tuple, graph.edge_index.T.tolist()), graph.edge_weight.tolist(), strict=True))


def test_case_a4_scores_are_those_of_the_weighted_model(graph):
    split, model = split_links(graph, seed=0), Weighted()
    table, message = weight_table(graph), split.graph
    assert weight_table(message) == {edge: table[edge] for edge in weight_table(message)}
    scores = score_links(model, message, split.train)
    for place, (u, v) in list(enumerate(split.train.edge_label_index.T.tolist()))[::15]:
        for insert, logit in ((False, scores.toggled.logit_absent), (True, scores.toggled.logit_present)):
            kept = {edge: w for edge, w in weight_table(message).items() if set(edge) != {u, v}}
            own = weight_table(message).get((u, v), float(message.edge_weight.median()))
            kept |= {(u, v): own, (v, u): own} if insert else {}
            arcs, weight = torch.tensor(list(kept)).T, torch.tensor(list(kept.values()))
            with torch.no_grad():
                z = model.eval().encode(message.x, arcs, weight)
            assert float(logit[place]) == pytest.approx(float(z[u] @ z[v]), abs=1e-5)


@pytest.mark.parametrize("name", ["gcn", "vgae"])
def test_trained_calibrated_saved_and_loaded_with_weights(graph, tmp_path, name):
    split, model = split_links(graph, seed=0), make_model(name, 4, seed=0)
    train_link_predictor(model, split, TrainingConfig(epochs=2, eval_every=1))
    clp = CalibratedLinkPredictor(model, Platt()).fit(split)
    pairs = split.test.edge_label_index
    with torch.no_grad():
        z = model.eval().encode(split.graph.x, split.graph.edge_index, split.graph.edge_weight)
    assert torch.allclose(clp.node_embeddings(), z)
    assert torch.allclose(clp.score(pairs).logit, (z[pairs[0]] * z[pairs[1]]).sum(dim=1), atol=1e-5)
    clp.save(tmp_path / "out")
    loaded = CalibratedLinkPredictor.load(tmp_path / "out")
    assert torch.equal(loaded.graph_.edge_weight, split.graph.edge_weight)
    assert torch.equal(loaded.predict_proba(pairs), clp.predict_proba(pairs))
    loaded.graph_.edge_weight.mul_(2.0)
    refuses("message-passing graph must be as when", loaded.predict_proba, pairs)


@pytest.mark.parametrize("name", ["sage", "gin", "seal"])
def test_models_without_weights_refuse_them(graph, name):
    options = {"sort_k": 10} if name == "seal" else {}
    split, model = split_links(graph, seed=0), make_model(name, 4, **options)
    for use in (
        lambda: train_link_predictor(model, split),
        lambda: CalibratedLinkPredictor(model, Platt()).fit(split),
    ):
        unsupported(r"encode must take edge_weight to use it, .*'s does", use)


def test_a_model_that_takes_weights_and_ignores_them_is_refused(graph):
    torch.manual_seed(0)
    model = GAE(GraphSAGE(4, 8, 2, 4))  # PyG passes the weights on, and this encoder drops them
    with pytest.raises(
        UnsupportedModelError, match="must read edge_weight, got GAE's, which ignores it: leave out"
    ):
        CalibratedLinkPredictor(model, Platt()).fit(split_links(graph, seed=0))


def test_a_model_that_needs_what_a_graph_does_not_have_is_refused(graph):
    class Needs(Weighted):
        def encode(self, x, edge_index, edge_weight):
            return super().encode(x, edge_index, edge_weight)

    class Attributes(Weighted):
        def encode(self, x, edge_index, edge_attr):
            return super().encode(x, edge_index)

    plain = split_links(Graph.from_edges(graph.pairs, 40, x=graph.x))
    assert len(score_links(Needs(), graph, graph.pairs[:, :3])) == 3
    for model, split in ((Needs(), plain), (Attributes(), plain)):
        with pytest.raises(UnsupportedModelError, match=r"callable as encode\(x, edge_index\).*which needs"):
            score_links(model, split.graph, split.val)
    with pytest.warns(LinkcalWarning, match=r"Weighted.encode takes edge_weight, which is left out: the"):
        CalibratedLinkPredictor(Weighted(), Platt()).fit(plain)


@pytest.mark.parametrize(
    ("weight", "text"),
    [
        ([1, 2, 3, 4.0], r"the same wherever .* got 1 edges with two weights, such as \(0, 1\) with 1 and 4"),
        ([1, -2, 0, float("nan")], r"got 3 of 4 that are not \(1 NaN, 1 zero, 1 negative\), the first -2"),
        ([1.0, 2.0], r"a number per edge \[4\], got .* \[2\]"),
    ],
)
def test_wrong_weights_are_refused_with_their_count(weight, text):
    refuses(text, Graph.from_edges, [[0, 1, 2, 1], [1, 2, 3, 0]], 4, edge_weight=weight)


@pytest.mark.parametrize("ending", ["csv", "parquet", "npz"])
def test_files_with_a_column_of_weights(tmp_path, ending):
    columns = {"source": ["a", "b", "c"], "target": ["b", "c", "d"], "weight": [0.5, 2.0, 4.0]}
    path = tmp_path / f"edges.{ending}"
    if ending == "csv":
        rows = zip(*columns.values(), strict=True)
        path.write_text("source,target,weight\n" + "".join(f"{u},{v},{w}\n" for u, v, w in rows))
    elif ending == "parquet":
        pq.write_table(pa.table(columns), path)
    else:
        np.savez(path, **columns)
    graph = read_edges(path, weight="weight").graph
    table = {(0, 1): 0.5, (1, 2): 2.0, (2, 3): 4.0}
    assert weight_table(graph) == table | {(v, u): w for (u, v), w in table.items()}
    with pytest.warns(
        LinkcalWarning, match=r"column 'weight' of .* is not read: weight='weight' \(--weight\)"
    ):
        assert read_edges(path).graph.edge_weight is None
    refuses("must have the column 'w' once, got 'source', 'target', 'weight'", read_edges, path, weight="w")


@pytest.mark.filterwarnings("ignore:dropped:linkcal.exceptions.LinkcalWarning")  # PyG may repeat negatives
def test_splits_of_pyg_keep_weights_and_refuse_attributes(graph):
    data = Data(x=graph.x, edge_index=graph.edge_index, edge_weight=graph.edge_weight, num_nodes=40)
    torch.manual_seed(0)
    parts = RandomLinkSplit(is_undirected=True, add_negative_train_samples=False)(data)
    split = from_pyg(*parts)
    table = weight_table(graph)
    assert weight_table(split.graph) == {edge: table[edge] for edge in weight_table(split.graph)}
    for part in parts:
        part.edge_attr = part.edge_weight[:, None]
    refuses(r"train.edge_attr must be left out.*train.edge_weight", from_pyg, *parts)


def hetero(**more):
    data = HeteroData({"user": {"x": torch.rand(30, 2)}, "item": {"x": torch.rand(20, 3)}})
    torch.manual_seed(0)
    pairs = torch.unique(torch.stack([torch.randint(30, (200,)), torch.randint(20, (200,))]), dim=1)
    data["user", "rates", "item"].edge_index = pairs
    data["item", "rev_rates", "user"].edge_index = pairs.flip(0)
    for kind, store in more.items():
        data["user", kind, "item"].edge_index = store
    return data, pairs


@pytest.mark.filterwarnings("ignore:dropped:linkcal.exceptions.LinkcalWarning")
def test_hetero_data_of_two_types_becomes_a_bipartite_graph():
    data, pairs = hetero()
    graph = graph_from_hetero(data)
    assert torch.equal(graph.pairs, pairs + torch.tensor([[0], [30]]))
    assert graph.num_possible_pairs == 600
    assert torch.equal(graph.x[:30, :2], data["user"].x)
    assert torch.equal(graph.x[30:, 2:5], data["item"].x)
    assert graph.x[:, 5].tolist() == [0.0] * 30 + [1.0] * 20
    kinds = {"edge_types": [("user", "rates", "item")], "rev_edge_types": [("item", "rev_rates", "user")]}
    parts = RandomLinkSplit(**kinds, add_negative_train_samples=False)(data)
    split = from_pyg(*parts)
    assert split.graph.node_type.tolist() == [0] * 30 + [1] * 20
    wanted = parts[1]["user", "rates", "item"]
    links = wanted.edge_label_index[:, wanted.edge_label == 1] + torch.tensor([[0], [30]])
    assert torch.equal(split.val.edge_label_index[:, split.val.edge_label == 1], links)
    # One homogeneous Data with node types is read alike.
    shared = {"x": split.graph.x, "edge_index": split.graph.edge_index, "node_type": split.graph.node_type}
    alike = [
        Data(**shared, num_nodes=50, edge_label=part.edge_label, edge_label_index=part.edge_label_index)
        for part in (split.train, split.val, split.test)
    ]
    assert torch.equal(from_pyg(*alike).val.edge_label_index, split.val.edge_label_index)
    leaky = RandomLinkSplit(edge_types=kinds["edge_types"], add_negative_train_samples=False)(data)
    refuses("must have the same edges in item-rev_rates-user as in user-rates-item", from_pyg, *leaky)


def test_other_hetero_data_is_refused_in_one_line():
    data, pairs = hetero(views=torch.tensor([[0], [1]]))
    refuses(r"two node types and one edge type .*user-views-item; keep one", graph_from_hetero, data)
    refuses(r"graph must be a linkcal.data.Graph, got HeteroData.*graph_from_hetero", split_links, data)
    data, _ = hetero()
    del data["item"].x
    data["item"].num_nodes = 20
    refuses("features x of both node types or of none", graph_from_hetero, data)
    both = Data(edge_index=pairs, num_nodes=30, edge_type=torch.arange(pairs.size(1)) % 2)
    both.edge_label_index, both.edge_label = pairs[:, :1], torch.ones(1)
    refuses(r"train must have edges of one type, got 2 in train.edge_type", from_pyg, both, both, both)
