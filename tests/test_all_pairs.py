"""The most probable missing pairs: case 08, exact against brute force, the same for every chunk size."""

import itertools
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.nn import GAE

from linkcal import CalibratedLinkPredictor, Platt, StructuralCalibrator
from linkcal import all_pairs as products
from linkcal.all_pairs import Best, most_probable_pairs, top_paths, top_products
from linkcal.data import Graph, LinkPairs, LinkSplit, pair_keys, simulate_graph, split_links
from linkcal.exceptions import FewLinksWarning, InputError, LinkcalWarning, NotFittedError
from linkcal.features import STRUCTURAL_COLUMNS
from linkcal.models import GCN, PEG, SAGE, TrainingConfig, make_model, train_link_predictor
from refusals import refuses, unsupported


def brute_force(z, graph, k, weight=None):
    """All missing pairs by falling score, ties by (u, v)."""
    z = z.numpy().astype(np.float64)
    right = z if weight is None else z * weight.numpy().astype(np.float64)
    n = graph.num_nodes
    edges = set(map(tuple, graph.edge_index.T.tolist()))
    pairs = [
        (u, v)
        for u in range(n)
        for v in range(n)
        if u != v and (u, v) not in edges and (graph.directed or u < v)
    ]
    score = {(u, v): float((z[u] * right[v]).sum()) for u, v in pairs}
    return sorted(pairs, key=lambda pair: (-score[pair], pair))[:k]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_equals_brute_force_with_ties_for_any_chunk(data):
    n = data.draw(st.integers(2, 12))
    rng = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    z = torch.from_numpy(rng.integers(-1, 2, (n, 2)).astype(np.float32))  # many ties
    z *= torch.from_numpy(rng.choice([1.0, 3.0, 100.0], (n, 1)).astype(np.float32))  # and long nodes
    directed = data.draw(st.booleans())
    graph = Graph.from_edges(torch.from_numpy(rng.integers(0, n, (2, 8))), n, directed=directed)
    k = data.draw(st.integers(1, 80))
    weight = data.draw(st.sampled_from([None, torch.tensor([2.0, -0.5])]))
    pairs, score = top_products(z, graph, k, weight=weight, chunk_size=data.draw(st.integers(1, 150)))
    assert list(map(tuple, pairs.T.tolist())) == brute_force(z, graph, k, weight)
    assert score.tolist() == sorted(score.tolist(), reverse=True)


@pytest.mark.parametrize("weight", [None, torch.linspace(-2, 2, 4)])
def test_blocks_of_short_nodes_are_skipped(weight, monkeypatch):
    computed = []
    original = products._keys
    monkeypatch.setattr(products, "_keys", lambda *all_of: computed.append(0) or original(*all_of))
    rng = np.random.default_rng(4)
    z = torch.from_numpy(rng.standard_normal((300, 4)) / np.arange(1, 301)[:, None])
    graph = Graph.from_edges(torch.from_numpy(rng.integers(0, 300, (2, 400))), 300)
    pairs, _ = top_products(z, graph, 10, weight=weight, chunk_size=100)
    assert list(map(tuple, pairs.T.tolist())) == brute_force(z, graph, 10, weight)
    assert len(computed) < 0.2 * (30 * 31 / 2)


def test_both_directions_of_a_pair_score_alike_and_stand_in_order():
    generator = torch.Generator().manual_seed(0)
    z, weight = (torch.randn(*size, generator=generator, dtype=torch.float64) for size in ((40, 16), (16,)))
    graph = Graph.from_edges(torch.empty(2, 0), 40, directed=True)
    pairs, score = top_products(z, graph, 2000, weight=weight)
    assert torch.equal(score[::2], score[1::2])
    assert torch.equal(pairs[:, ::2], pairs[:, 1::2].flip(0))
    assert (pairs[0, ::2] < pairs[1, ::2]).all()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_best_of_any_offers_equals_sorting_all(data):
    """Ties by key, whatever the sizes of the offers and however often the buffer is cut."""
    rng = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    number, k = data.draw(st.integers(0, 300)), data.draw(st.integers(1, 60))
    score = rng.integers(0, data.draw(st.sampled_from([1, 3, 1000])), number).astype(np.float64)
    key = rng.permutation(number).astype(np.int64)
    best = Best(k, 0.0)
    start = 0
    while start < number:
        stop = start + data.draw(st.integers(1, 80))
        best.offer(score[start:stop], key[start:stop])
        start = stop
    order = np.lexsort([key, -score])[:k]
    got = best.answer()
    np.testing.assert_array_equal(got[0], score[order])
    np.testing.assert_array_equal(got[1], key[order])


def test_order_is_that_of_the_reported_scores_with_a_bias_that_swallows_differences():
    """Scores that differ by less than the bias resolves are ties, and stand by (u, v)."""
    rng = np.random.default_rng(7)
    z = torch.from_numpy(rng.standard_normal((40, 4)) * 1e-8)
    graph = Graph.from_edges(torch.tensor([[0], [1]]), 40)
    pairs, score = top_products(z, graph, 500, bias=1.0, chunk_size=70)
    key = (pairs[0] * 40 + pairs[1]).numpy()
    assert np.unique(score).size < 40
    np.testing.assert_array_equal(np.lexsort([key, -score.numpy()]), np.arange(500))
    missing = brute_force(z, graph, 10_000)
    expected = {pair: 1.0 + float(z[list(pair)].prod(dim=0).sum()) for pair in missing}
    best = sorted(expected, key=lambda pair: (-expected[pair], pair))[:500]
    assert list(map(tuple, pairs.T.tolist())) == best


@pytest.mark.slow
def test_case_08_twenty_thousand_nodes_in_bounded_memory():
    rng = np.random.default_rng(1)
    n = 20_000
    z = torch.from_numpy(rng.standard_normal((n, 16)).astype(np.float32))
    graph = Graph.from_edges(torch.from_numpy(rng.integers(0, n, (2, 100_000))), n)
    answers = []
    for chunk_size in (10_000, 250_000):
        tracemalloc.start()
        answers.append(top_products(z, graph, 100, chunk_size=chunk_size))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 100e6  # N x N scores would be 3.2 GB
    assert torch.equal(answers[0][0], answers[1][0])
    assert torch.equal(answers[0][1], answers[1][1])
    assert not graph.has_pairs(answers[0][0]).any()
    assert (answers[0][0][0] < answers[0][0][1]).all()


@pytest.fixture(scope="module")
def split():
    return split_links(simulate_graph(200, num_edges=900, num_features=12, seed=0), seed=0)


def fitted(name, split, **options):
    model = make_model(name, 12, **options)
    if name != "seal":
        train_link_predictor(model, split, TrainingConfig(epochs=5), seed=0)
    return CalibratedLinkPredictor(model, Platt()).fit(split)


@pytest.mark.parametrize("name", ["vgae", "sage"])
def test_probabilities_equal_those_of_each_pair_alone(name, split):
    clp = fitted(name, split)
    ranked = most_probable_pairs(clp, 20, chunk_size=777, exclude=split.held_out_edges())
    alone = torch.cat([clp.predict_proba(ranked.edge_label_index[:, [i]]) for i in range(20)])
    torch.testing.assert_close(ranked.probability, alone.double(), rtol=0, atol=1e-6)
    assert (ranked.logit.dtype, ranked.probability.dtype) == (torch.float64, torch.float64)
    # Who sorts by what is reported finds the same order.
    key = pair_keys(ranked.edge_label_index, 200, directed=False).numpy()
    assert np.lexsort([key, -ranked.logit.numpy()]).tolist() == list(range(20))
    assert (ranked.probability.diff() <= 0).all()
    assert ranked.negatives_per_positive == 1.0
    assert (ranked.sources, ranked.num_held_out) == (("score",), 0)
    # No missing pair outside the list has a larger logit.
    every = torch.triu_indices(200, 200, 1)
    known = torch.cat([split.graph.pairs, split.held_out_edges()], dim=1)
    missing = every[:, ~torch.isin(*(pair_keys(p, 200, directed=False) for p in (every, known)))]
    assert ranked.num_candidates == missing.size(1)
    logit = clp.score(missing).logit
    torch.testing.assert_close(ranked.logit, logit.topk(20).values.double(), rtol=1e-5, atol=1e-5)


def joined_by_paths(graph, length):
    """Weighted numbers of paths between pairs of `graph` without their link, walked one by one."""
    near = {u: set() for u in range(graph.num_nodes)}
    for u, v in graph.edge_index.T.tolist():
        near[u].add(v), near[v].add(u)
    kind = None if graph.node_type is None else graph.node_type.tolist()
    found = {}
    for u, v in itertools.permutations(range(graph.num_nodes), 2):
        wrong = u > v if kind is None else (kind[u], kind[v]) != (0, 1)
        if wrong and not (graph.directed and kind is None):
            continue
        middle = [(w, w) for w in near[u] & near[v]]
        if length == 3:
            middle = [(a, b) for a in near[u] - {v} for b in near[v] - {u} if b in near[a]]
        if middle:
            found[u, v] = sum((len(near[a]) * len(near[b])) ** -0.5 for a, b in middle)
    return found


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_paths_equal_walks_one_by_one(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    directed, length = data.draw(st.booleans()), data.draw(st.sampled_from([2, 3]))
    types = torch.tensor([0, 1] * 6) if length == 3 and data.draw(st.booleans()) else None
    edges = torch.from_numpy(rng.integers(0, 12, (2, 20)))
    if types is not None:
        edges = torch.stack([edges[0] // 2 * 2, edges[1] // 2 * 2 + 1])
    graph = Graph.from_edges(edges, 12, directed=directed, node_type=types)
    known = products.known_pair_keys(graph)
    k, chunk_size = data.draw(st.integers(1, 150)), data.draw(st.integers(1, 200))
    keys = top_paths(graph, k, length, known=known, chunk_size=chunk_size)
    pairs = graph.source_first(torch.from_numpy(np.stack(np.divmod(keys, 12))))
    weight = joined_by_paths(graph, length)
    free = {pair: x for pair, x in weight.items() if not graph.has_pairs(torch.tensor([pair]).T)}
    assert len(keys) == min(k, len(free)) == len(set(keys.tolist()))
    # Equal up to rounding: sums of different orders tie.
    found = [free[pair] for pair in map(tuple, pairs.T.tolist())]
    np.testing.assert_allclose(found, sorted(free.values(), reverse=True)[: len(keys)], rtol=1e-12)


@pytest.mark.parametrize("length", [2, 3])
def test_paths_over_the_largest_hubs_are_left_out_first(length, monkeypatch):
    """A star of 30 leaves, joined by one leaf to a path of 4."""
    edges = torch.tensor([[0, v] for v in range(1, 31)] + [[1, 31], [31, 32], [32, 33], [33, 34]]).T
    graph = Graph.from_edges(edges, 35)
    every = top_paths(graph, 10_000, length, known=products.known_pair_keys(graph))
    monkeypatch.setattr(products, "_MOST_PATHS", 30)
    share = {2: "3.2% of 946", 3: "1.5% of 1,888"}[length]
    with pytest.warns(LinkcalWarning, match=f"walked {share} paths of length {length}: those"):
        fewer = top_paths(graph, 10_000, length, known=products.known_pair_keys(graph))
    hub = {u * 35 + v for u in range(1, 31) for v in range(u + 1, 32)}
    assert set(every.tolist()) & hub
    assert set(fewer.tolist()) < set(every.tolist()) - (hub if length == 2 else set())


def structural(split, cls=SAGE):
    torch.manual_seed(0)
    model = cls(12)
    train_link_predictor(model, split, TrainingConfig(epochs=5), seed=0)
    return CalibratedLinkPredictor(model, StructuralCalibrator()).fit(split)


@pytest.mark.parametrize("chunk_size", [37, 100_000])
def test_candidates_are_ordered_by_a_fit_to_held_out_links_among_them(split, chunk_size):
    clp = structural(split)
    ranked = most_probable_pairs(clp, 40, chunk_size=chunk_size, candidates=400, base_rate=0.01)
    assert ranked.sources == ("score", "resource allocation", "paths of length three")
    # The same candidates from all missing pairs, then a calibrator of one's own.
    missing = torch.triu_indices(200, 200, 1)
    missing = missing[:, ~split.graph.has_pairs(missing)]
    scores = clp.score(missing)
    chosen = set(scores.logit.topk(400).indices.tolist())
    at, known = pair_keys(missing, 200, directed=False).numpy(), products.known_pair_keys(split.graph)
    for length in (2, 3):
        chosen |= set(np.searchsorted(at, top_paths(split.graph, 400, length, known=known)).tolist())
    candidates = missing[:, sorted(chosen)]
    held_out = Graph.from_edges(clp.held_out_, 200).has_pairs(candidates)
    assert (ranked.num_candidates, ranked.num_held_out) == (int((~held_out).sum()), int(held_out.sum()))
    X = clp.score(candidates).to_matrix("structural")
    own = StructuralCalibrator(feature_names=STRUCTURAL_COLUMNS).fit(X, held_out.numpy().astype(int))
    logit = torch.from_numpy(own.decision_function(X))
    best = logit.masked_fill(held_out, -torch.inf).topk(40).values
    number = clp.held_out_.size(1)
    expected = (best.exp() * (missing.size(1) - number) / number * 0.01).clamp(max=1)
    torch.testing.assert_close(ranked.probability, expected, rtol=1e-4, atol=0)
    listed = pair_keys(ranked.edge_label_index, 200, directed=False).numpy()
    place = torch.from_numpy(np.searchsorted(at[sorted(chosen)], listed))
    assert not held_out[place].any()
    torch.testing.assert_close(logit[place], best, rtol=0, atol=1e-4)
    # The predictor itself would order them otherwise.
    assert (clp(ranked.edge_label_index).diff() > 0.1).any()


def test_probabilities_add_up_to_the_links_of_a_simulated_graph():
    """An edge of probability q that the graph lacks is a test link with odds 0.4 q to 1 - q."""
    graph = simulate_graph(300, num_edges=4000, num_features=10, seed=0)
    split = split_links(graph, val_fraction=0.2, test_fraction=0.4, seed=0)
    clp = CalibratedLinkPredictor(make_model("gcn", 10, seed=0), StructuralCalibrator()).fit(split)
    links = int((split.test.edge_label == 1).sum())
    rate = links / (graph.num_possible_pairs - graph.num_pairs + links)
    ranked = most_probable_pairs(clp, 200, candidates=2500, base_rate=rate)
    q = graph.truth.edge_probability(ranked.edge_label_index).double()
    true = 0.4 * q / (0.4 * q + 1 - q)
    assert true.sum() > 75
    torch.testing.assert_close(ranked.probability.sum(), true.sum(), rtol=0.12, atol=0)
    # Without a base rate: as many links as pairs that are none. An error of 12 % in the odds moves a
    # probability near 0.93 by 0.008, and what the fit smooths away raises the mean of a concave function.
    plain = most_probable_pairs(clp, 200, candidates=2500)
    assert torch.equal(plain.edge_label_index, ranked.edge_label_index)
    assert plain.base_rate == 0.5
    ratio = true / (1 - true) * (1 - rate) / rate
    torch.testing.assert_close(plain.probability.mean(), (ratio / (1 + ratio)).mean(), rtol=0, atol=0.02)


def test_few_held_out_links_leave_the_order_to_the_calibrator(split):
    clp = structural(split)
    clp.held_out_ = clp.held_out_[:, :5]
    with pytest.warns(FewLinksWarning, match="needs 20 held-out links and as many other pairs, got "):
        ranked = most_probable_pairs(clp, 30, candidates=300)
    assert ranked.num_held_out == 0
    torch.testing.assert_close(
        ranked.probability.float(), clp.predict_proba(ranked.edge_label_index), rtol=0, atol=1e-6
    )
    assert (ranked.probability.diff() <= 0).all()


def test_excluded_held_out_links_stay_in_the_fit(split):
    clp = structural(split)
    ranked = most_probable_pairs(clp, 20, candidates=400, base_rate=0.01)
    # Edges of the graph and held-out links are no answer anyway: to exclude them changes nothing.
    known = torch.cat([split.graph.pairs, clp.held_out_.flip(0)], dim=1)
    excluded = most_probable_pairs(clp, 20, candidates=400, base_rate=0.01, exclude=known)
    assert excluded.num_held_out == ranked.num_held_out >= 20
    assert torch.equal(excluded.edge_label_index, ranked.edge_label_index)
    assert torch.equal(excluded.probability, ranked.probability)


def test_held_out_and_excluded_edges_are_left_out(split):
    clp = fitted("gcn", split)
    validation = split.val.edge_label_index[:, split.val.edge_label == 1]
    assert torch.equal(clp.held_out_, validation)
    number = 200 * 199 // 2 - split.graph.num_pairs - validation.size(1)
    ranked = most_probable_pairs(clp, 100_000)
    assert ranked.logit.numel() == number
    first = ranked.edge_label_index[:, :3]
    fewer = most_probable_pairs(clp, 100_000, exclude=first.flip(0))
    assert torch.equal(fewer.edge_label_index, ranked.edge_label_index[:, 3:])


class Scaled(GCN):
    def decode(self, z, edge_label_index):
        return 2 * super().decode(z, edge_label_index)


@pytest.mark.parametrize("name", ["seal", "scaled"])
@pytest.mark.parametrize("chunk_size", [70, 100_000])
def test_models_without_a_product_form_order_what_paths_nominate(split, name, chunk_size):
    model = make_model("seal", 12, sort_k=10) if name == "seal" else Scaled(12)
    clp = CalibratedLinkPredictor(model, Platt()).fit(split)
    more = split.held_out_edges()
    ranked = most_probable_pairs(clp, 15, candidates=60, chunk_size=chunk_size, exclude=more)
    assert ranked.sources == ("resource allocation", "paths of length three")
    known = products.known_pair_keys(split.graph, more)
    keys = np.union1d(*(top_paths(split.graph, 60, length, known=known) for length in (2, 3)))
    candidates = torch.from_numpy(np.stack(np.divmod(keys, 200)))
    assert ranked.num_candidates == candidates.size(1)
    expected = clp.score(candidates).logit.topk(15).values.double()
    torch.testing.assert_close(ranked.logit, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("directed", [False, True])
def test_all_pairs_and_none(directed):
    graph = simulate_graph(60, num_edges=200, num_features=6, seed=0)
    graph = Graph.from_edges(graph.edge_index, 60, x=graph.x, directed=directed)
    split = split_links(graph, seed=0, symmetric=directed)
    clp = CalibratedLinkPredictor(make_model("sage", 6), StructuralCalibrator()).fit(split)
    ranked = most_probable_pairs(clp, 10_000, chunk_size=97)
    assert (ranked.probability.diff() <= 0).all()
    known = split.graph.num_pairs + clp.held_out_.size(1)
    assert ranked.num_candidates == ranked.logit.numel() == graph.num_possible_pairs - known
    nothing = most_probable_pairs(clp, 5, exclude=ranked.edge_label_index)
    assert nothing.edge_label_index.shape == (2, 0)
    assert (nothing.logit.numel(), nothing.probability.numel(), nothing.num_candidates) == (0, 0, 0)


def test_fewer_candidates_than_k_are_refused(split):
    with pytest.raises(InputError, match="candidates must be at least k = 5, got 4"):
        most_probable_pairs(fitted("gcn", split), 5, candidates=4)
    with pytest.raises(InputError, match="candidates must be a whole number >= 1, got 0"):
        most_probable_pairs(fitted("gcn", split), 5, candidates=0)


def test_unfitted_predictors_are_refused():
    with pytest.raises(NotFittedError, match="Predictor must be fitted first"):
        most_probable_pairs(CalibratedLinkPredictor(GCN(12), Platt()), 3)


class Doubled:
    def head(self, h):
        return 2 * super().head(h)


class SharpSAGE(Doubled, SAGE):
    pass


class ShiftedPEG(PEG):
    decode_returns = "logits"

    def decode(self, z, edge_label_index):
        return super().decode(z, edge_label_index) - z[edge_label_index[0], 0] * z[edge_label_index[1], 0]


class OwnForm(SAGE):
    def head(self, h):
        return 3 * super().head(h)

    def product_form(self):
        return 3 * self.lin.weight[0], 3 * self.lin.bias[0]


def ranked_or_refused(model, split):
    model = model.eval()
    prepared = replace(split, graph=model.prepare(split.graph))
    clp = CalibratedLinkPredictor(model, Platt()).fit(prepared)
    return clp, lambda: most_probable_pairs(clp, 3, candidates=9)


@pytest.mark.parametrize("cls", [SharpSAGE, ShiftedPEG])
def test_a_subclass_does_not_inherit_the_form_of_a_decoder_it_replaced(split, cls):
    torch.manual_seed(0)
    model = cls(12)
    assert model.product_form() is None
    assert "score" not in ranked_or_refused(model, split)[1]().sources


def test_a_form_of_its_own_is_used(split):
    torch.manual_seed(0)
    clp, rank = ranked_or_refused(OwnForm(12), split)
    ranked = rank()
    found = clp.score(ranked.edge_label_index).logit.double()
    torch.testing.assert_close(ranked.logit, found, rtol=0, atol=1e-4)


@pytest.mark.parametrize("what", ["hook", "instance", "class"])
def test_a_form_that_the_model_does_not_follow_is_refused(split, what, monkeypatch):
    """A hook of the last layer, a method of the instance, and a class changed after it was made."""
    torch.manual_seed(0)
    model = SAGE(12)
    if what == "hook":
        model.lin.register_forward_hook(lambda _module, _inputs, out: out**3)
    elif what == "instance":
        model.head = lambda h: model.lin(h).squeeze(-1) ** 3
    else:
        monkeypatch.setattr(SAGE, "head", lambda self, h: self.lin(h).squeeze(-1) ** 3)
    unsupported("decode a pair as its product_form says", ranked_or_refused(model, split)[1])


def test_probabilities_of_a_subclass_are_declared(split):
    class Sigmoid(SAGE):
        def head(self, h):
            return super().head(h).sigmoid()

    class Declared(Sigmoid):
        decode_returns = "probabilities"

    torch.manual_seed(0)
    model, given = Sigmoid(12), split.test.edge_label_index
    refuses("Sigmoid must declare decode_returns", CalibratedLinkPredictor(model, Platt()).fit, split)
    declared, logits = Declared(12), SAGE(12)
    for other in (declared, logits):
        other.load_state_dict(model.state_dict())
    found, expected = (
        CalibratedLinkPredictor(m, Platt()).fit(split).score(given) for m in (declared, logits)
    )
    torch.testing.assert_close(found.logit, expected.logit, rtol=0, atol=1e-5)


@pytest.mark.parametrize("options", [{"k": 0}, {"k": 1, "chunk_size": 0}])
def test_bad_arguments(split, options):
    refuses("must be a whole number >= 1, got 0", most_probable_pairs, fitted("gcn", split), **options)


def test_excluded_pairs_are_checked(split):
    with pytest.raises(InputError, match="exclude must hold node indices < num_nodes = 200, got 200"):
        most_probable_pairs(fitted("gcn", split), 1, exclude=torch.tensor([[0], [200]]))


class ByDistance(GAE):
    """Not an inner product, although its decoder is PyG's."""

    decode_returns = "logits"

    def decode(self, z, edge_label_index, sigmoid=True):
        return -(z[edge_label_index[0]] - z[edge_label_index[1]]).square().sum(dim=1)


class Features(torch.nn.Module):
    def forward(self, x, edge_index):
        return x[:, :3]


def test_an_autoencoder_with_a_decoder_of_its_own_is_not_ranked_by_products(split):
    clp = CalibratedLinkPredictor(ByDistance(Features()), Platt()).fit(split)
    assert "score" not in most_probable_pairs(clp, 3).sources
    ranked = most_probable_pairs(CalibratedLinkPredictor(GAE(Features()), Platt()).fit(split), 3)
    assert ranked.logit.tolist() == sorted(ranked.logit.tolist(), reverse=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"z": torch.full((5, 2), torch.nan)}, "z must be finite, got 10 NaN or infinite values"),
        ({"z": torch.full((5, 2), 1e155, dtype=torch.float64)}, "z must have inner products below 1.8e308"),
        ({"weight": torch.tensor([1.0, torch.nan])}, "weight must be finite, got 1 NaN or infinite value"),
        ({"bias": float("nan")}, "bias must be finite, got 1 NaN or infinite value"),
    ],
)
def test_products_of_wrong_arguments(change, message):
    graph = Graph.from_edges(torch.tensor([[0], [1]]), 5)
    arguments = {"z": torch.ones(5, 2), "graph": graph, "k": 2, **change}
    with pytest.raises(InputError, match=message):
        top_products(arguments.pop("z"), arguments.pop("graph"), arguments.pop("k"), **arguments)


@pytest.mark.parametrize("directed", [False, True])
def test_complete_graph_and_tie_at_the_last_place(directed):
    every = torch.tensor([(u, v) for u in range(5) for v in range(5) if u != v]).T
    complete = Graph.from_edges(every, 5, directed=directed)
    assert top_products(torch.ones(5, 2), complete, 3)[0].shape == (2, 0)
    # All scores are equal: the first pairs by (u, v) win, whatever the chunks.
    fewer = Graph.from_edges(torch.tensor([[0], [1]]), 5, directed=directed)
    for chunk_size in (1, 3, 1000):
        pairs, _ = top_products(torch.ones(5, 2), fewer, 3, chunk_size=chunk_size)
        assert pairs.T.tolist() == [[0, 2], [0, 3], [0, 4]]


# Eight scores may happen to be separated by their labels; what is asked here is which pairs are ranked.
@pytest.mark.filterwarnings("ignore::linkcal.exceptions.BoundReachedWarning")
@pytest.mark.parametrize("name", ["gcn", "seal"])
@pytest.mark.parametrize("edges", [torch.triu_indices(8, 8, 1), torch.empty(2, 0)])
def test_graphs_that_are_almost_complete_or_empty(name, edges):
    asked = LinkPairs(torch.triu_indices(8, 8, 1)[:, :24:3], torch.tensor([1.0, 0.0] * 4))
    held_out = Graph.from_edges(asked.edge_label_index, 8)
    graph = Graph.from_edges(edges[:, ~held_out.has_pairs(edges)], 8, x=torch.rand(8, 12))
    nothing = LinkPairs(torch.empty(2, 0, dtype=torch.int64), torch.empty(0))
    split = LinkSplit(graph, nothing, asked, nothing)
    clp = CalibratedLinkPredictor(make_model(name, 12), Platt()).fit(split)
    ranked = most_probable_pairs(clp, 50)
    # The held-out links are no answer; in an empty graph nothing is at distance 2, which SEAL ranks.
    missing = 4 if graph.num_pairs else 0 if name == "seal" else 28 - 4
    assert ranked.edge_label_index.shape == (2, missing)
    assert ranked.probability.shape == (missing,)


def test_logits_that_are_not_finite_are_refused(split, monkeypatch):
    model = make_model("seal", split.graph.x.size(1), sort_k=10)
    clp = CalibratedLinkPredictor(model, Platt()).fit(split)
    monkeypatch.setattr(type(model), "head", lambda self, h: torch.full((len(h),), torch.nan))
    refuses("logits of the model must be finite, got", most_probable_pairs, clp, 3, candidates=9)


@pytest.mark.parametrize("directed", [False, True])
def test_known_edges_are_message_passing_and_held_out_ones(directed):
    graph = simulate_graph(40, num_edges=120, num_features=4, seed=2)
    graph = Graph.from_edges(graph.pairs, 40, x=graph.x, directed=directed)
    split = split_links(graph, seed=1)
    clp = CalibratedLinkPredictor(make_model("gcn", 4), Platt()).fit(split)
    held_out = split.val.edge_label_index[:, split.val.edge_label == 1]
    known = {tuple(pair) for pair in torch.cat([split.graph.pairs, held_out], dim=1).T.tolist()}
    if not directed:
        known |= {(v, u) for u, v in known}
    every = torch.cartesian_prod(torch.arange(40), torch.arange(40)).T
    expected = [pair in known for pair in map(tuple, every.T.tolist())]
    assert clp.known_edges(every).tolist() == expected
    assert sum(expected) == (1 if directed else 2) * (split.graph.num_pairs + held_out.size(1))
