"""Graphs of users and items: every pair that is drawn, scored, selected or listed joins the two types."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from linkcal import CalibratedLinkPredictor, Platt, StructuralCalibrator
from linkcal.all_pairs import most_probable_pairs, top_products
from linkcal.cli import main
from linkcal.data import (
    Graph,
    LinkPairs,
    LinkSplit,
    NegativeSampler,
    read_edges,
    sample_negatives,
    split_links,
)
from linkcal.exceptions import InputError, LinkcalWarning
from linkcal.metrics import expected_calibration_error
from linkcal.models import TrainingConfig, make_model, train_link_predictor
from refusals import refuses

USERS = 200


def ratings(items: int, count: int, seed: int = 0):
    """Links (user, item), drawn by a softmax of inner products of hidden vectors, and these vectors."""
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(USERS + items, 3))
    score = 1.2 * hidden[:USERS] @ hidden[USERS:].T + rng.normal(size=items)
    chosen = np.argsort(-(score + rng.gumbel(size=score.shape)).ravel())[:count]
    users, places = np.divmod(chosen, items)
    return np.stack([users, places]), hidden


@pytest.fixture(scope="module", params=[100, 160])
def rated(request) -> Graph:
    """200 users and 100 or 160 items (case A5), 3,000 ratings."""
    links, hidden = ratings(request.param, 3000)
    kind = np.arange(USERS + request.param) >= USERS
    x = torch.from_numpy(np.c_[hidden + np.random.default_rng(1).normal(size=hidden.shape), kind]).float()
    return Graph.from_edges(links + np.array([[0], [USERS]]), len(kind), x=x, node_type=kind)


@pytest.fixture
def mixed() -> Graph:
    """Types in no order of the numbers: 0, 2, 5 are sources, 1, 3, 4, 6 targets."""
    edges = [[0, 0, 3, 2, 6], [1, 4, 0, 3, 5]]
    return Graph.from_edges(edges, 7, node_type=[0, 1, 0, 1, 1, 0, 1])


ALLOWED = {(u, v) for u in (0, 2, 5) for v in (1, 3, 4, 6)}
LINKS = {(0, 1), (0, 4), (0, 3), (2, 3), (5, 6)}


def as_set(pairs):
    listed = list(map(tuple, pairs.T.tolist()))
    assert len(set(listed)) == len(listed)
    return set(listed)


def test_only_pairs_of_both_types_are_possible(mixed):
    assert mixed.num_possible_pairs == len(ALLOWED) == 12
    assert as_set(mixed.pairs) == LINKS
    assert mixed.counts()["non_edges"] == 7
    assert (mixed.counts()["source_nodes"], mixed.counts()["target_nodes"]) == (3, 4)
    directed = Graph.from_edges(mixed.pairs, 7, node_type=mixed.node_type, directed=True)
    assert directed.num_possible_pairs == 12
    assert as_set(sample_negatives(directed, 7, np.random.default_rng(0))) == ALLOWED - LINKS


@pytest.mark.parametrize("exclude", [None, [[6, 2, 0, 1], [0, 1, 2, 4]]])  # the last two are of one type
def test_all_negatives_are_the_pairs_without_an_edge_listed_by_hand(mixed, exclude):
    free = ALLOWED - LINKS - (set() if exclude is None else {(0, 6), (2, 1)})
    sampler = NegativeSampler(mixed, exclude=None if exclude is None else torch.tensor(exclude))
    assert sampler.num_available == len(free)
    rng = np.random.default_rng(0)
    assert as_set(sampler.sample(len(free), rng)) == free
    options = {"exclude": None if exclude is None else torch.tensor(exclude)}
    assert as_set(sample_negatives(mixed, len(free), rng, kind="degree", **options)) == free


@pytest.mark.parametrize("kind", ["uniform", "degree"])
def test_negatives_have_the_stated_chances(mixed, kind):
    degree = dict(zip(*np.unique(mixed.pairs.numpy(), return_counts=True), strict=True))
    weight = {(u, v): degree[u] * degree[v] if kind == "degree" else 1 for u, v in ALLOWED - LINKS}
    rng, count, draws = np.random.default_rng(0), dict.fromkeys(weight, 0), 4000
    for _ in range(draws):
        count[tuple(sample_negatives(mixed, 1, rng, kind=kind).flatten().tolist())] += 1
    for pair, number in count.items():
        chance = weight[pair] / sum(weight.values())
        assert abs(number / draws - chance) < 4 * (chance * (1 - chance) / draws) ** 0.5


def test_many_degree_matched_draws_join_the_types(rated, monkeypatch):
    monkeypatch.setattr("linkcal.data.negatives._LISTED", 1)  # drawn one by one, not listed
    drawn = sample_negatives(rated, 2000, np.random.default_rng(0), kind="degree")
    assert bool(((drawn[0] < USERS) & (drawn[1] >= USERS)).all())
    assert not as_set(drawn) & as_set(rated.pairs)


@pytest.mark.parametrize("make", [sample_negatives, split_links])
def test_two_hop_negatives_are_refused(rated, make):
    options = {"kind": "two-hop", "num": 5, "generator": np.random.default_rng(0)}
    with pytest.raises(InputError, match=r"must be 'uniform', 'degree' or 'heart', got 'two-hop': no source"):
        make(rated, **(options if make is sample_negatives else {"negatives": "two-hop"}))


@pytest.mark.parametrize("kind", ["uniform", "degree"])
def test_splits_hold_source_and_target_pairs_only(rated, kind):
    split = split_links(rated, negatives=kind, seed=3)
    items = rated.num_nodes - USERS
    for part in (split.train, split.val, split.test):
        pairs = part.edge_label_index
        assert bool(((pairs[0] < USERS) & (pairs[1] >= USERS)).all())
    if kind == "uniform":
        assert split.val.negative_rate == pytest.approx(300 / (USERS * items - 3000), rel=1e-12)
    assert torch.equal(split.graph.node_type, rated.node_type)
    assert split.counts()["target_nodes"] == items


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"node_type": [0, 0, 1]}, "must join a source node .* with a target .*, got 1 between nodes of one"),
        ({"node_type": [0, 1, 2]}, r"must hold 0 .* and 1 .*, got \[0, 1, 2\]; of a graph with more types"),
        ({"node_type": [0, 0, 0]}, r"both and nothing else, got \[0\]"),
        ({"node_type": [0, 1]}, r"node_type must hold integers \[num_nodes = 3\], got .* \[2\]"),
        ({"node_type": [1, 0, 1], "directed": True}, r"got 1 from a target node, such as \(0, 1\)"),
    ],
)
def test_wrong_types_are_refused(change, text):
    refuses(text, Graph.from_edges, [[0, 1], [1, 2]], 3, **change)


def test_pairs_of_the_wrong_types_are_refused_with_an_example(rated):
    split = split_links(rated)
    clp = CalibratedLinkPredictor(make_model("gcn", 4), Platt()).fit(split)
    text = r"got 1 of 2 pairs that do not, such as \(3, 5\) of types \(0, 0\)"
    wrong = torch.tensor([[3, 3], [5, USERS]])
    for ask in (clp.predict_proba, clp.select, clp.known_edges, clp.score):
        refuses(text, ask, wrong)
    refuses(text, clp.select, split.test.edge_label_index, null_pairs=wrong)
    refuses(r"\(200, 3\) of types \(1, 0\)", clp.predict_proba, torch.tensor([[USERS], [3]]))
    with pytest.raises(InputError, match=r"test pairs of a bipartite graph.*such as \(3, 5\)"):
        LinkSplit(split.graph, split.train, split.val, LinkPairs(wrong, torch.zeros(2)))


@pytest.mark.parametrize("chunk_size", [1, 3, 1000])
def test_top_equals_brute_force(mixed, chunk_size):
    rng = np.random.default_rng(0)
    z, weight = torch.from_numpy(rng.integers(-2, 3, (7, 2))).float(), torch.tensor([2.0, -0.5])
    score = {(u, v): float((z[u] * weight * z[v]).sum()) for u, v in ALLOWED - LINKS}
    pairs, found = top_products(z, mixed, 20, weight=weight, chunk_size=chunk_size)
    best = sorted(score, key=lambda pair: (-score[pair], min(pair), max(pair)))
    assert list(map(tuple, pairs.T.tolist())) == best
    assert found.tolist() == [score[pair] for pair in best]


def test_folder_keeps_the_types_and_the_density_is_of_such_pairs(rated, tmp_path):
    split = split_links(rated)
    clp = CalibratedLinkPredictor(make_model("gcn", 4), Platt()).fit(split)
    clp.save(tmp_path / "out")
    loaded = CalibratedLinkPredictor.load(tmp_path / "out")
    assert torch.equal(loaded.graph_.node_type, rated.node_type)
    items = rated.num_nodes - USERS
    assert loaded.resolve_base_rate("density") == pytest.approx(2400 / (USERS * items), rel=1e-12)
    ranked = most_probable_pairs(loaded, 50, base_rate="density")
    assert bool(((ranked.edge_label_index[0] < USERS) & (ranked.edge_label_index[1] >= USERS)).all())
    null = clp.evidence_.null_pairs
    assert bool(((null[0] < USERS) & (null[1] >= USERS)).all())


def test_candidates_of_a_bipartite_graph_join_the_types(rated):
    """Paths of two edges join nodes of one type, paths of three a source with a target."""
    split = split_links(rated)
    clp = CalibratedLinkPredictor(make_model("gcn", 4), StructuralCalibrator()).fit(split)
    ranked = most_probable_pairs(clp, 50, candidates=200, base_rate="density")
    assert ranked.sources == ("score", "paths of length three")
    assert ranked.num_held_out > 0
    assert bool(((ranked.edge_label_index[0] < USERS) & (ranked.edge_label_index[1] >= USERS)).all())
    assert not clp.known_edges(ranked.edge_label_index).any()


class TwoTowers(nn.Module):
    """Users and items have weights of their own: the order of a pair matters."""

    decode_returns = "logits"

    def __init__(self) -> None:
        super().__init__()
        self.user, self.item = nn.Linear(4, 3), nn.Linear(4, 3)

    def encode(self, x, edge_index):
        return x

    def decode(self, z, edge_label_index):
        return (self.user(z[edge_label_index[0]]) * self.item(z[edge_label_index[1]])).sum(dim=1)


def test_a_decoder_with_a_weight_for_each_type_is_right_as_it_is(rated):
    torch.manual_seed(0)
    model, split = TwoTowers(), split_links(rated, val_fraction=0.02, test_fraction=0.02)
    pairs = split.test.edge_label_index
    for symmetrise in (False, True):  # averaging both orders would read users as items
        clp = CalibratedLinkPredictor(model, Platt(), symmetrise=symmetrise).fit(split)
        assert torch.equal(clp.score(pairs).logit, model.decode(rated.x, pairs).detach())


def own_ece(label, prob, bins: int = 15):
    """Equal-width ECE of the positive class, written anew."""
    place = np.minimum((prob * bins).astype(int), bins - 1)
    gaps = [abs(label[place == b].sum() - prob[place == b].sum()) for b in range(bins)]
    return sum(gaps) / len(label)


def own_negatives(graph: Graph, number: int, rng, known: set) -> torch.Tensor:
    pairs = set()
    while len(pairs) < number:
        pairs.add((int(rng.integers(USERS)), int(rng.integers(USERS, graph.num_nodes))))
        pairs -= known
    return torch.tensor(sorted(pairs)).T


@pytest.mark.slow
def test_reported_ece_and_false_discoveries_hold_for_user_item_pairs(rated):
    config = TrainingConfig(epochs=60)
    first = split_links(rated, val_fraction=0.2, test_fraction=0.2)
    model = make_model("gcn", 4, seed=0)
    train_link_predictor(model, first, config)
    rng, links, proportion, gap = np.random.default_rng(0), as_set(rated.pairs), [], []
    for seed in range(20):
        # The negatives of one and the same model: calibrated on drawn ones, asked about own ones.
        split = split_links(rated, val_fraction=0.2, test_fraction=0.2, seed=seed)
        clp = CalibratedLinkPredictor(model, Platt()).fit(split, num_null=3000)
        positives = split.test.edge_label_index[:, split.test.edge_label == 1]
        used = as_set(clp.evidence_.null_pairs) | as_set(split.val.edge_label_index)
        pairs = torch.cat([positives, own_negatives(rated, positives.size(1), rng, links | used)], dim=1)
        label = np.r_[np.ones(positives.size(1)), np.zeros(positives.size(1))]
        prob = clp.predict_proba(split.test.edge_label_index)
        reported = expected_calibration_error(split.test.edge_label, prob)
        assert reported == pytest.approx(own_ece(split.test.edge_label.numpy(), prob.numpy()), abs=1e-6)
        gap.append(own_ece(label, clp.predict_proba(pairs).numpy()) - reported)
        selected = clp.select(pairs, fdr=0.16).selected.numpy()
        proportion.append((selected & (label == 0)).sum() / max(selected.sum(), 1))
    assert abs(np.mean(gap)) < 4 * np.std(gap) / len(gap) ** 0.5 + 0.005
    assert np.mean(proportion) < 0.16 + 3 * np.std(proportion) / len(proportion) ** 0.5
    assert np.mean(proportion) > 0.02  # some pairs are selected


def test_a_bipartite_graph_without_types_is_reported(rated):
    plain = Graph.from_edges(rated.pairs, rated.num_nodes, x=rated.x)
    with pytest.warns(LinkcalWarning, match="joins two groups of nodes: if they are of two types.*node_type"):
        split_links(plain)
    triangle = torch.cat([rated.pairs, torch.tensor([[0], [1]])], dim=1)
    split_links(Graph.from_edges(triangle, rated.num_nodes))  # an odd cycle


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A fitted folder: users and items have the same ids 1, 2, ...; 200 and 100 of them."""
    folder = tmp_path_factory.mktemp("bipartite")
    links, _ = ratings(100, 3000)
    rows = "".join(f"{u + 1},{i + 1}\n" for u, i in links.T)
    (folder / "edges.csv").write_text("user,item\n" + rows)
    options = ("--source", "user", "--target", "item", "--bipartite", "--model", "gcn", "--epochs", "60")
    edges, out = folder / "edges.csv", folder / "out"
    assert main(["fit", str(edges), "--out", str(out), *options]) == 0
    return folder


def test_files_with_two_id_spaces(folder, capsys):
    metrics = json.loads((folder / "out" / "metrics.json").read_text())
    assert metrics["counts"]["nodes"] == 300
    assert metrics["counts"]["non_edges"] == 200 * 100 - 3000
    graph = CalibratedLinkPredictor.load(folder / "out").graph_
    assert graph.node_type.tolist() == [0] * 200 + [1] * 100
    links = set(map(tuple, ratings(100, 3000)[0].T.tolist()))
    capsys.readouterr()
    assert main(["top", str(folder / "out"), "-k", "50", "--base-rate", "density"]) == 0
    for row in capsys.readouterr().out.splitlines()[1:]:
        user, item = map(int, row.split(",")[:2])
        assert 1 <= user <= 200
        assert 1 <= item <= 100
        assert (user - 1, item - 1) not in links


@pytest.mark.parametrize("command", ["score", "select"])
def test_pairs_are_source_and_target(folder, capsys, command):
    links = ratings(100, 3000)[0]
    pairs = folder / "pairs.csv"
    pairs.write_text(
        "user,item\n"
        + "".join(f"{u},{i % 100 + 1}\n" for u, i in zip(range(1, 201), range(200), strict=True))
    )
    ask = [command, str(folder / "out"), str(pairs), "--source", "user", "--target", "item"]
    assert main(ask) == 0
    rows = [row.split(",") for row in capsys.readouterr().out.splitlines()[1:]]
    known = set(map(tuple, links.T.tolist()))
    if command == "score":
        assert len(rows) == 200
        for u, i, _, _, in_graph in rows:
            assert in_graph == str((int(u) - 1, int(i) - 1) in known).lower()
    pairs.write_text("user,item\n7,7\n5,150\n")  # the pair (7, 7) is a user and an item; there is no item 150
    assert main(ask) == 1
    error = capsys.readouterr().err
    assert "got 1 unknown ids" in error
    assert "the first '150' in line 3, as a target node, where it is none: the source comes first" in error


def test_a_list_with_nothing_in_common_asks_for_the_option(tmp_path, capsys):
    edges = tmp_path / "edges.csv"
    edges.write_text("source,target\n" + "".join(f"u{i % 7},m{i % 5}\n" for i in range(30)))
    assert main(["fit", str(edges), "--out", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert "--bipartite or --no-bipartite" in error
    assert "got 7 ids and 5 others in" in error
    assert read_edges(edges, bipartite=False).graph.node_type is None
    refuses("directed must be False", read_edges, edges, bipartite=True, directed=True)


def test_two_feature_files_become_blocks_and_a_type_column(tmp_path):
    edges, users, items = (tmp_path / name for name in ("edges.csv", "users.csv", "items.csv"))
    edges.write_text("source,target\n1,1\n2,1\n")
    users.write_text("id,age\n2,20\n1,10\n")
    items.write_text("id,price,size\n1,5,6\n9,7,8\n")
    graph = read_edges(edges, features=users, bipartite=True, target_features=items).graph
    assert graph.x.tolist() == [[10, 0, 0, 0], [20, 0, 0, 0], [0, 5, 6, 1], [0, 7, 8, 1]]
    for options in ({"features": users, "bipartite": True}, {"target_features": items}):
        refuses("features and target_features must be given together", read_edges, edges, **options)
