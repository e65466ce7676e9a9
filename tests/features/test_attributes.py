"""Feature similarity of nodes' own features: against plain loops, and no trace of a pair's target link."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linkcal.data import Graph, simulate_graph, split_links
from linkcal.features import _attributes, attribute_similarity, score_links
from linkcal.features._attributes import attribute_directions
from linkcal.models import make_model
from refusals import refuses


def brute_force(graph: Graph, pairs) -> torch.Tensor:
    z = attribute_directions(graph.given_features).double()
    edges = set(map(tuple, graph.edge_index.T.tolist()))
    rows = []
    for u, v in pairs.T.tolist():
        left = edges - ({(u, v)} if graph.directed else {(u, v), (v, u)})

        def around(node, left=left):
            near = {a for a, b in left if b == node} | {b for a, b in left if a == node}
            return z[node] + sum((z[other] for other in near), torch.zeros_like(z[node]))

        both = torch.stack([around(u), around(v)])
        length = both.norm(dim=1).prod()
        # Sums that cancel out leave rounding noise of no direction in float32.
        together = float(both[0] @ both[1] / length) if length > 1e-4 else None
        rows.append((float(z[u] @ z[v]), together))
    return rows


@st.composite
def graphs(draw):
    num_nodes = draw(st.integers(2, 12))
    num_edges = draw(st.integers(0, 30))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    edges = torch.randint(num_nodes, (2, num_edges), generator=generator)
    x = torch.randn(num_nodes, draw(st.integers(1, 6)), generator=generator)
    return Graph.from_edges(edges, num_nodes, x=x, directed=draw(st.booleans()))


@given(graphs())
def test_equals_plain_loops(graph):
    every = torch.cartesian_prod(torch.arange(graph.num_nodes), torch.arange(graph.num_nodes)).T
    pairs = every[:, every[0] != every[1]]
    found = attribute_similarity(graph, pairs)
    for row, (own, together) in zip(found.tolist(), brute_force(graph, pairs), strict=True):
        assert row[0] == pytest.approx(own, abs=1e-5)
        assert together is None or row[1] == pytest.approx(together, abs=1e-3)


def test_a_path_by_hand():
    # Three nodes in a row, one feature, standardised to -s, -s, 2s: directions -1, -1, 1.
    x = torch.tensor([[0.0], [0.0], [3.0]])
    graph = Graph.from_edges(torch.tensor([[0, 1], [1, 2]]), 3, x=x)
    pairs = torch.tensor([[0, 0, 1], [1, 2, 2]])
    # (0, 1): alone -1 against -1 + 1. (0, 2): -2 against 0. (1, 2): -2 against 1.
    assert attribute_similarity(graph, pairs).tolist() == [[1.0, 0.0], [-1.0, 0.0], [-1.0, -1.0]]


def test_the_reverse_edge_is_another_pair():
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    both = Graph.from_edges(torch.tensor([[0, 1], [1, 0]]), 3, x=x, directed=True)
    one = Graph.from_edges(torch.tensor([[1], [0]]), 3, x=x, directed=True)
    none = Graph.from_edges(torch.empty((2, 0), dtype=torch.int64), 3, x=x, directed=True)
    pair = torch.tensor([[0], [1]])
    assert torch.equal(attribute_similarity(both, pair), attribute_similarity(one, pair))
    forward = Graph.from_edges(pair, 3, x=x, directed=True)
    assert torch.equal(attribute_similarity(forward, pair), attribute_similarity(none, pair))


@pytest.fixture(scope="module")
def split():
    return split_links(simulate_graph(120, num_edges=400, num_features=200, seed=0), seed=0)


def test_target_links_block_size_and_order_change_nothing(split, monkeypatch):
    graph = split.graph
    pairs = graph.pairs[:, :50]
    found = attribute_similarity(graph, pairs)
    assert torch.equal(found, attribute_similarity(graph, pairs.flip(0)))
    monkeypatch.setattr("linkcal.features._attributes._BLOCK", 7 * 128)
    assert torch.equal(found[::3], attribute_similarity(graph, pairs[:, ::3]))
    for column in (0, 7):
        edges = graph.edge_index
        same = (edges == pairs[:, [column]]).all(0) | (edges == pairs[:, [column]].flip(0)).all(0)
        without = Graph(edges[:, ~same], graph.num_nodes, x=graph.x)
        unknown = attribute_similarity(without, pairs[:, [column]])
        assert found[[column]].numpy() == pytest.approx(unknown.numpy(), abs=1e-5)


def test_without_given_features_both_are_zero(split):
    pairs = torch.tensor([[0, 1], [1, 2]])
    plain = Graph.from_edges(pairs, 3)
    built = Graph(plain.edge_index, 3, x=torch.randn(3, 2), features_from_edges=True)
    constant = Graph.from_edges(pairs, 3, x=torch.ones(3, 2))
    empty = Graph.from_edges(pairs, 3, x=torch.ones(3, 0))
    for graph in (plain, built, constant, empty):
        assert attribute_similarity(graph, pairs).tolist() == [[0.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize(("name", "options"), [("peg", {}), ("seal", {"feature_channels": 16})])
def test_what_a_model_makes_of_the_features_does_not_count(split, name, options):
    model = make_model(name, 200, seed=0, **options).eval()
    prepared = model.prepare(split.graph)
    assert prepared.x is not split.graph.x
    scores = score_links(model, prepared, split.val)
    assert torch.equal(scores.attributes, attribute_similarity(split.graph, split.val.edge_label_index))


def test_features_changed_in_place_are_read_anew():
    x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    graph = Graph.from_edges(torch.tensor([[0], [2]]), 4, x=x)
    pair = torch.tensor([[0], [1]])
    before = attribute_similarity(graph, pair)[0, 0].item()
    x[1] = x[2]
    assert attribute_similarity(graph, pair)[0, 0].item() == pytest.approx(-1.0) != pytest.approx(before)


def test_pairs_are_checked(split):
    refuses("edge_label_index", attribute_similarity, split.graph, torch.tensor([[0], [120]]))
    refuses("two different nodes", attribute_similarity, split.graph, torch.tensor([[3], [3]]))


def _topics(num_nodes=600, words=200):
    """Nodes of four topics: each word is five times as common in one of them."""
    generator = torch.Generator().manual_seed(1)
    topic = torch.arange(num_nodes) % 4
    rate = torch.where(topic[:, None] == torch.arange(words) % 4, 0.25, 0.05)
    return topic, torch.bernoulli(rate, generator=generator)


def test_directions_are_those_of_the_topics():
    topic, x = _topics()
    z = attribute_directions(x)
    assert z.size(1) == 4  # three stand out, and four are kept at least
    assert z.norm(dim=1).numpy() == pytest.approx(1.0, abs=1e-6)
    similarity = z @ z.T
    same = topic[:, None] == topic
    assert similarity[same].mean() > 0.5 > 0.0 > similarity[~same].mean()


def test_units_of_features_do_not_matter():
    _, x = _topics()
    unit = torch.logspace(-15, 15, x.size(1))
    similarity, scaled = (z @ z.T for z in (attribute_directions(x), attribute_directions(x * unit - unit)))
    assert scaled.numpy() == pytest.approx(similarity.numpy(), abs=1e-3)


def test_unrelated_features_are_all_kept_up_to_the_most(monkeypatch):
    # All points of a cube's corners: no direction stands out.
    corners = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 6)
    assert attribute_directions(corners).shape == (64, 6)
    monkeypatch.setattr(_attributes, "MOST_DIRECTIONS", 5)
    assert attribute_directions(corners).shape == (64, 5)


def test_a_sample_of_the_nodes_finds_the_same_directions(monkeypatch):
    _, x = _topics(3000)
    z = attribute_directions(x)
    monkeypatch.setattr("linkcal.features._attributes._SAMPLED_NODES", 1500)
    sampled = attribute_directions(x)
    assert torch.equal(sampled, attribute_directions(x))
    both = (similarity @ similarity.T for similarity in (z, sampled))
    assert torch.corrcoef(torch.stack([part.flatten() for part in both]))[0, 1] > 0.9


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_dtypes(dtype):
    _, x = _topics(50, 20)
    found = attribute_directions(x.to(dtype)).numpy()
    assert found == pytest.approx(attribute_directions(x).numpy(), abs=1e-6)


def test_nodes_filled_with_the_means_are_average():
    """Means in float32 are a little off: their rounding is no direction, and finds none for the others."""
    _, x = _topics()
    x[300:] = x[:300].mean(0)
    z = attribute_directions(x)
    assert not z[300:].any()
    alone = attribute_directions(x[:300])
    assert (z[:300] @ z[:300].T).numpy() == pytest.approx((alone @ alone.T).numpy(), abs=1e-3)


def test_a_neighbourhood_that_cancels_out_is_zero_with_and_without_the_target_link():
    # Node 0 and its neighbours 1 and 2 are of three kinds, whose directions sum to 0. Beside them it may have
    # the target link: what rounding leaves of the sum must not tell it apart.
    x = torch.eye(3)[torch.arange(9) % 3]
    for other in range(3, 9):
        pair = torch.tensor([[0], [other]])
        for own in (pair[:, :0], pair):
            graph = Graph.from_edges(torch.cat([torch.tensor([[0, 0], [1, 2]]), own], dim=1), 9, x=x)
            assert attribute_similarity(graph, pair)[0, 1] == 0.0


def test_edges_changed_in_place_are_read_anew():
    graph = Graph.from_edges(torch.tensor([[0, 1], [1, 2]]), 4, x=torch.eye(4)[:, :3])
    pair = torch.tensor([[0], [3]])
    before = attribute_similarity(graph, pair)
    graph.edge_index.copy_(torch.tensor([[0, 2, 2, 3], [2, 0, 3, 2]]))
    anew = attribute_similarity(Graph(graph.edge_index.clone(), 4, x=graph.x), pair)
    assert torch.equal(attribute_similarity(graph, pair), anew)
    assert not torch.equal(anew, before)


def test_in_inference_mode():
    pairs = torch.tensor([[0, 1], [1, 2]])
    x = torch.eye(4)[:, :3]
    expected = attribute_similarity(Graph.from_edges(pairs, 4, x=x), pairs)
    with torch.inference_mode():
        graph = Graph.from_edges(pairs, 4, x=x + 0.0)
        assert torch.equal(attribute_similarity(graph, pairs), expected)


def test_a_very_large_feature_of_a_node_beside_the_sample(monkeypatch):
    monkeypatch.setattr("linkcal.features._attributes._SAMPLED_NODES", 1000)
    x = torch.randn(1100, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[::2, 0] *= 1e250  # nodes of the sample and others
    x[1::200, 1] = 1e300
    assert attribute_directions(x).norm(dim=1).numpy() == pytest.approx(1.0, abs=1e-6)
