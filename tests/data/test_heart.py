"""HeaRT candidates against dense algebra, sets and a slow ranking."""

from collections import Counter

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching
from scipy.stats import chisquare
from sklearn.metrics.pairwise import cosine_similarity

from linkcal._core.random import numpy_stream
from linkcal.data import Graph, pair_keys, sample_negatives, simulate_graph, split_links
from linkcal.data._heart import Heuristics, candidate_keys, hardest
from linkcal.exceptions import InputError, ShortageError

from .strategies import non_edges, pair_set


def candidates(graph, links, rng, half=250, exclude=None):
    """Candidates [2, M] of both ends of links [2, P], and the place of each one's link."""
    place, side = np.arange(2 * links.size(1)) // 2, np.arange(2 * links.size(1)) % 2
    known = [graph.pairs, links] if exclude is None else [graph.pairs, links, exclude]
    keys = pair_keys(torch.cat(known, dim=1), graph.num_nodes, directed=graph.directed)
    closed = torch.unique(keys).numpy()
    tie = rng.permutation(graph.num_nodes)
    lists = list(candidate_keys(graph, links.numpy()[:, place], side, half, tie, closed))
    pairs = torch.from_numpy(np.stack(np.divmod(np.concatenate(lists), graph.num_nodes)))
    return graph.source_first(pairs), torch.from_numpy(np.repeat(place, [len(part) for part in lists]))


def made(seed, *, directed=False, nodes=40, edges=70, features=True):
    """A random graph with isolated nodes, edges in both directions if directed, and rows of zeros."""
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.normal(size=(nodes, 5)) * (rng.random((nodes, 1)) < 0.9))
    index = rng.integers(nodes - 3, size=(2, edges))
    if directed:
        index = np.concatenate([index, index[::-1, :10]], axis=1)
    return Graph.from_edges(index, nodes, directed=directed, x=x if features else None)


def mixed_links(graph, seed):
    """Edges of the graph, and pairs that are none."""
    rng = np.random.default_rng(seed)
    pairs = sorted(non_edges(graph))
    others = [pairs[i] for i in rng.choice(len(pairs), 12, replace=False)]
    return torch.cat([graph.pairs[:, ::3], torch.tensor(others).T], dim=1)


def slow_scores(graph, link, kept, other):
    """The three scores [N] of a kept end, in the graph without the link, by dense algebra and sets."""
    edges = {tuple(e) for e in graph.edge_index.T.tolist()} - {link}
    edges -= set() if graph.directed else {link[::-1]}
    n = graph.num_nodes
    near = {u: {v for v in range(n) if (u, v) in edges or (v, u) in edges} for u in range(n)}
    walk = np.zeros((n, n))
    for u in range(n):
        walk[u, list(near[u])] = 1.0 / max(len(near[u]), 1)
    rank = np.linalg.solve(np.eye(n) - 0.85 * walk.T, 0.15 * np.eye(n)[kept])
    allocation = [sum(1.0 / len(near[w]) for w in near[kept] & near[a]) for a in range(n)]
    scores = [np.array(allocation), rank]
    return scores if graph.x is None else [*scores, cosine_similarity(graph.x[[kept]], graph.x)[0]]


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_scores_are_those_of_the_graph_without_the_link(seed, directed):
    graph = made(seed, directed=directed)
    links = mixed_links(graph, seed)
    own = graph.has_pairs(links) & ~(graph.directed & graph.has_pairs(links.flip(0)))
    assert 0 < own.sum() < links.size(1)
    if directed:  # edges whose reverse is an edge, and missing pairs whose reverse is one
        back = graph.has_pairs(links.flip(0))
        assert (graph.has_pairs(links) & back).any()
    for side in (0, 1):
        ends = links.numpy()[[side, 1 - side]]
        found = Heuristics(graph).scores(*ends, own.numpy())
        assert len(found) == 3
        for column, (kept, other) in enumerate(ends.T.tolist()):
            expected = slow_scores(graph, tuple(links[:, column].tolist()), kept, other)
            rest = np.setdiff1d(np.arange(graph.num_nodes), [kept, other])
            for score, wanted in zip(found, expected, strict=True):
                np.testing.assert_allclose(score[rest, column], wanted[rest], rtol=2e-5, atol=2e-7)


def test_cosine_of_very_large_features_is_finite():
    graph = made(0)
    large = Graph.from_edges(graph.edge_index, graph.num_nodes, x=graph.x * 1e200)
    ends, own = np.array([[0, 1], [2, 3]]), np.zeros(2, dtype=bool)
    few, many = (Heuristics(g).scores(*ends, own)[2] for g in (graph, large))
    np.testing.assert_allclose(few, many, atol=1e-6)


def bounds(score, free):
    """Smallest and largest rank of each node, 0 first, where scores within rounding may be equal."""
    value = np.where(free & (score > 1e-9), score, -np.inf)
    near = 1e-5 * np.abs(np.where(np.isfinite(value), value, 0.0))
    low = np.array([(value > v + e).sum() for v, e in zip(value, near, strict=True)])
    high = np.array([(value >= v - e).sum() - 1 for v, e in zip(value, near, strict=True)])
    unranked = ~np.isfinite(value)
    low[unranked] = high[unranked] = len(score)
    return low, high


@pytest.mark.parametrize(("directed", "features"), [(False, True), (False, False), (True, True)])
@pytest.mark.parametrize("half", [2, 4, 100])
def test_candidates_have_the_smallest_ranks(directed, features, half):
    graph = made(half, directed=directed, features=features)
    links, exclude = mixed_links(graph, half), torch.tensor([[0, 1, 2], [5, 6, 7]])
    pairs, place = candidates(graph, links, np.random.default_rng(1), half=half, exclude=exclude)
    known = torch.cat([graph.pairs, links, exclude], dim=1)
    known = pair_set(known, directed=directed)
    for i, link in enumerate(map(tuple, links.T.tolist())):
        drawn = [tuple(p) for p in pairs[:, place == i].T.tolist()]
        assert len(set(drawn)) == len(drawn)
        for side in (0, 1):
            kept, other = link[side], link[1 - side]
            by_node = [(kept, a) if side == 0 else (a, kept) for a in range(graph.num_nodes)]
            by_node = [p if directed else tuple(sorted(p)) for p in by_node]
            free = np.array([p not in known and p[0] != p[1] for p in by_node])
            chosen = np.array([p in drawn for p in by_node])
            assert chosen.sum() == min(half, free.sum())
            assert not (chosen & ~free).any()
            ranks = [bounds(s, free) for s in slow_scores(graph, link, kept, other)]
            low, high = (np.min([r[j] for r in ranks], axis=0) for j in (0, 1))
            if (rest := free & ~chosen).any():
                assert low[chosen].max() <= high[rest].min()


def test_smallest_rank_by_hand():
    free = np.array([True, True, True, True, False, True])
    first = np.array([5.0, 3.0, 0.0, 1.0, 9.0, 0.0], dtype=np.float32)
    second = np.array([0.0, 0.0, -1.0, 7.0, 9.0, 0.5], dtype=np.float32)
    # Ranks: first 0, 1, 3; second 3, 5. Smallest: 0 and 3 have 1, 1 and 5 have 2, node 2 none.
    tie = np.array([5, 0, 2, 3, 1, 4])
    assert hardest([first, second], free, 3, tie).tolist() == [3, 0, 1]
    assert hardest([first, second], free, 9, tie).tolist() == [3, 0, 1, 5, 2]
    assert hardest([first, second], free, 1, np.arange(6)).tolist() == [0]


def test_equal_scores_are_taken_at_random():
    # A star: all leaves are equal, and every pair of leaves is a candidate.
    star = Graph.from_edges([[0] * 9, range(1, 10)], 10)
    taken = Counter()
    for seed in range(240):
        pairs, _ = candidates(star, star.pairs[:, :1], np.random.default_rng(seed), half=1)
        taken[int(pairs.max())] += 1  # the hub has no candidate
    assert set(taken) == set(range(2, 10))
    assert chisquare(list(taken.values())).pvalue > 1e-3


@pytest.mark.parametrize("directed", [False, True])
def test_a_link_keeps_either_end_and_draws_uniformly(directed):
    # Source 0 has two free pairs, target 9 eight.
    graph = Graph.from_edges([[0] * 7, [1, 2, 3, 4, 5, 6, 9]], 10, directed=directed)
    link, rng = torch.tensor([[0], [9]]), np.random.default_rng(3)
    possible = sorted(pair_set(candidates(graph, link, rng)[0], directed=directed))
    assert len(possible) == 10
    counts = Counter()
    for _ in range(600):
        pair = sample_negatives(graph, 1, rng, kind="heart", links=link)
        counts[next(iter(pair_set(pair, directed=directed)))] += 1
    assert set(counts) <= set(possible)
    expected = [600 / 2 / (2 if 0 in pair else 8) for pair in possible]
    assert chisquare([counts[pair] for pair in possible], expected).pvalue > 1e-3


def test_links_take_turns():
    graph = simulate_graph(300, num_edges=900, seed=1)
    links = graph.pairs[:, :40]
    pairs = sample_negatives(graph, 120, np.random.default_rng(0), kind="heart", links=links, half=10)
    listed, place = candidates(graph, links, np.random.default_rng(0), half=10)
    keys = [pair_keys(part, 300, directed=False).numpy() for part in (listed, pairs)]
    assert len(set(keys[1].tolist())) == 120
    # The same stream orders ties the same way: all come from the lists, those of each round from all links.
    of_link = {key: set() for key in keys[0].tolist()}
    for key, i in zip(keys[0].tolist(), place.tolist(), strict=True):
        of_link[key].add(i)
    for turn in np.array_split(keys[1], 3):
        shared = csr_matrix([[i in of_link[key] for i in range(40)] for key in turn.tolist()])
        assert (maximum_bipartite_matching(shared) >= 0).all()
    again = sample_negatives(graph, 120, np.random.default_rng(0), kind="heart", links=links, half=10)
    assert torch.equal(pairs, again)


def test_used_up_lists_are_filled_from_those_of_other_links():
    graph = made(4, nodes=30, edges=40)
    links = graph.pairs[:, :6]
    every = pair_set(candidates(graph, links, np.random.default_rng(2), half=3)[0])
    options = {"kind": "heart", "links": links, "half": 3}
    drawn = sample_negatives(graph, len(every), np.random.default_rng(2), **options)
    assert pair_set(drawn) == every
    message = rf"^num must be at most .* candidates of the links, {len(every)}, got {len(every) + 1}$"
    with pytest.raises(ShortageError, match=message):
        sample_negatives(graph, len(every) + 1, np.random.default_rng(2), **options)


def test_parts_are_drawn_for_their_links_on_the_message_passing_graph():
    graph = simulate_graph(600, num_edges=1500, num_features=8, seed=2)
    split, rng = split_links(graph, negatives="heart", seed=5), numpy_stream(5, "negatives")
    taken = graph.pairs
    for name in ("test", "val", "train"):
        part = split.part(name)
        links, negatives = (part.edge_label_index[:, part.edge_label == y] for y in (1, 0))
        assert links.shape == negatives.shape
        options = {"kind": "heart", "exclude": taken, "links": links}
        assert torch.equal(negatives, sample_negatives(split.graph, links.size(1), rng, **options))
        taken = torch.cat([taken, negatives], dim=1)
        assert np.isin(negatives.numpy(), links.numpy()).any(axis=0).all()
    assert split.negatives == "heart"
    assert split.test.negative_rate is None


def test_directed_negatives_keep_a_source_or_a_target():
    graph = made(6, directed=True, nodes=60, edges=150)
    drawn = sample_negatives(graph, 100, np.random.default_rng(0), kind="heart", half=2)
    sources, targets = (set(ends.tolist()) for ends in graph.edge_index)
    assert all(u in sources or v in targets for u, v in drawn.T.tolist())
    assert not graph.has_pairs(drawn).any()


def test_bipartite_negatives_join_the_types():
    rng = np.random.default_rng(0)
    index = np.stack([rng.integers(30, size=150), rng.integers(30, 70, size=150)])
    graph = Graph.from_edges(index, 70, node_type=[0] * 30 + [1] * 40)
    links = graph.pairs[:, ::4]
    pairs, place = candidates(graph, links, rng, half=3)
    assert bool(((pairs[0] < 30) & (pairs[1] >= 30)).all())
    assert not graph.has_pairs(pairs).any()
    same = (pairs == links[:, place]).sum(dim=0)
    assert bool((same == 1).all())
    # One in three steps of a walk reaches a target from a source: PageRank ranks them, nothing else does.
    for i in range(links.size(1)):
        kept = int(links[0, i])
        wanted = slow_scores(graph, tuple(links[:, i].tolist()), kept, 0)[1]
        free = [v for v in range(30, 70) if not graph.has_pairs(torch.tensor([[kept], [v]]))]
        found = pairs[1, (place == i) & (pairs[0] == kept)].tolist()
        assert min(wanted[found]) >= sorted(wanted[free])[-3] * (1 - 1e-4)
    split = split_links(graph, negatives="heart")
    assert all(split.graph.node_type[split.val.edge_label_index[0]] == 0)


def test_bad_arguments():
    graph, options = made(0), {"num": 1, "generator": np.random.default_rng(0), "kind": "heart"}
    with pytest.raises(InputError, match="half must be a whole number >= 1, got 0"):
        sample_negatives(graph, **options, half=0)
    with pytest.raises(InputError, match="links must hold node indices < num_nodes = 40, got 40"):
        sample_negatives(graph, **options, links=torch.tensor([[0], [40]]))
    with pytest.raises(InputError, match="exclude must hold node indices < num_nodes = 40, got 41"):
        sample_negatives(graph, **options, exclude=torch.tensor([[0], [41]]))


def test_no_links_have_no_candidates():
    empty = Graph.from_edges(torch.empty(2, 0, dtype=torch.int64), 5)
    assert sample_negatives(empty, 0, np.random.default_rng(0), kind="heart").shape == (2, 0)
    with pytest.raises(ShortageError, match="candidates of the links, 0, got 1"):
        sample_negatives(empty, 1, np.random.default_rng(0), kind="heart")
