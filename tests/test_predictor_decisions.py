"""The wrapper's decisions: realised rates where the truth is known, and their way to disk."""

import numpy as np
import pytest
import torch

from linkcal import CalibratedLinkPredictor, Platt, StructuralCalibrator
from linkcal._scoring import Evidence, calibrated_logits, gather_evidence
from linkcal.calibrators import Histogram
from linkcal.data import LinkPairs, pair_keys, split_links
from linkcal.decisions import certified_threshold, conformal_p_values
from linkcal.exceptions import InputError
from linkcal.features import LinkScorer
from refusals import refuses, unfitted


@pytest.fixture(scope="module", params=[Platt, StructuralCalibrator])
def fitted(trained_gcn, small_split, request):
    return CalibratedLinkPredictor(trained_gcn, request.param()).fit(small_split)


class World:
    """Pairs outside the message-passing graph whose links are drawn anew from their true probabilities."""

    def __init__(self, graph, split):
        pairs = torch.combinations(torch.arange(graph.num_nodes)).T.contiguous()
        self.pairs = pairs[:, ~split.graph.has_pairs(pairs)]
        edge = graph.truth.edge_probability(self.pairs).numpy()
        # An edge is in the message-passing graph with chance 0.6, and this pair is not.
        self.p = 0.4 * edge / (1 - 0.6 * edge)

    def draw(self, rng, links, others):
        drawn = rng.random(self.p.size) < self.p
        rows = [
            rng.choice(np.flatnonzero(of), n, replace=False) for of, n in ((drawn, links), (~drawn, others))
        ]
        return np.concatenate(rows), np.repeat([1.0, 0.0], [links, others])


@pytest.fixture(scope="module")
def world(small_graph, small_split):
    return World(small_graph, small_split)


@pytest.mark.parametrize("calibrator", [Platt(), StructuralCalibrator()], ids=["platt", "in-n-out-plus"])
def test_realised_false_discovery_rate_over_200_draws(world, trained_gcn, small_split, calibrator):
    """Null pairs (unknown links among them) and query pairs are drawn anew each time."""
    rng = np.random.default_rng(0)
    rates, found = [], 0
    clp = CalibratedLinkPredictor(trained_gcn, calibrator).fit(small_split, num_null=0)
    for _ in range(200):
        null = rng.choice(world.p.size, 2000, replace=False)
        clp.evidence_ = Evidence(small_split.val, world.pairs[:, null])
        rows, y = world.draw(rng, 60, 140)
        chosen = clp.select(world.pairs[:, rows], fdr=0.2).selected.numpy()
        rates.append((1 - y)[chosen].sum() / max(chosen.sum(), 1))
        found += y[chosen].sum()
    assert np.mean(rates) <= 0.2 + 2 * np.std(rates) / np.sqrt(200)
    assert found > 50


def test_tested_precision_over_200_draws(world, trained_gcn, small_split):
    rng = np.random.default_rng(0)
    negative = (1 - world.p) * world.p.sum() / (1 - world.p).sum()
    mass, true = world.p + negative, world.p / (world.p + negative)
    clp = CalibratedLinkPredictor(trained_gcn, StructuralCalibrator()).fit(small_split)
    z_all = calibrated_logits(clp.calibrator_, LinkScorer(trained_gcn, small_split.graph).score(world.pairs))
    failed, made = 0, 0
    for _ in range(200):
        rows, y = world.draw(rng, 150, 150)
        try:
            found = certified_threshold(z_all[rows], y, precision=0.7, confidence=0.9)
        except InputError:
            continue
        made += 1
        above = z_all >= found.logit
        failed += np.average(true[above], weights=mass[above]) < 0.7
    assert made > 100
    assert failed / 200 <= 0.1 + 2 * np.sqrt(0.1 * 0.9 / 200)


def test_selection_is_that_of_the_scores(fitted, small_split):
    pairs = small_split.test.edge_label_index
    asked = torch.cat([pairs, pairs[:, :3].flip(0), small_split.graph.pairs[:, :2]], dim=1)
    found = fitted.select(asked, fdr=0.3)
    # Known edges take no part, doubles are tested once.
    assert found.known.tolist() == [False] * (asked.size(1) - 2) + [True] * 2
    assert not found.selected[found.known].any()
    assert found.p_value[found.known].isnan().all()
    assert torch.equal(found.selected[pairs.size(1) : -2], found.selected[:3])
    null = fitted(fitted.evidence_.null_pairs).numpy()
    expected = conformal_p_values(fitted(pairs).numpy(), null)
    np.testing.assert_allclose(found.p_value[: pairs.size(1)], expected, atol=2 / len(null))
    alone = fitted.select(pairs, fdr=0.3)
    assert torch.equal(alone.selected, found.selected[: pairs.size(1)])
    assert found.num_null == 10_000
    stricter = fitted.select(pairs, fdr=0.05)
    assert not (stricter.selected & ~alone.selected).any()


def test_given_null_pairs_are_used(fitted, small_split):
    null = small_split.test.edge_label_index[:, small_split.test.edge_label == 0]
    found = fitted.select(small_split.test.edge_label_index, null_pairs=null)
    assert found.num_null == null.size(1)
    with pytest.raises(InputError, match="null_pairs must hold at least one pair, got none: fit with"):
        fitted.select(null, null_pairs=null[:, :0])
    assert fitted.select(null[:, :0]).selected.shape == (0,)


def test_null_pairs_are_fresh(small_graph, small_split):
    evidence = gather_evidence(small_split, "val", num_null=3000, seed=0)
    again = gather_evidence(small_split, "val", num_null=3000, seed=0)
    assert torch.equal(evidence.null_pairs, again.null_pairs)
    used = [small_split.graph.pairs, small_split.train.edge_label_index, small_split.val.edge_label_index]
    keys = pair_keys(torch.cat(used, dim=1), 300, directed=False)
    drawn = pair_keys(evidence.null_pairs, 300, directed=False)
    assert drawn.unique().numel() == 3000
    assert not torch.isin(drawn, keys).any()
    spared = gather_evidence(small_split, "train", num_null=10**6, seed=0, spare_test=True)
    every = 300 * 299 // 2
    used.append(small_split.test.edge_label_index)
    taken = pair_keys(torch.cat(used, dim=1), 300, directed=False).unique().numel()
    assert spared.null_pairs.size(1) == every - taken
    assert torch.equal(spared.calibration.edge_label_index, small_split.train.edge_label_index)


@pytest.mark.parametrize("kind", ["degree", "two-hop", "heart"])
def test_null_pairs_are_of_the_kind_of_the_calibration_negatives(small_graph, kind):
    split = split_links(small_graph, negatives=kind, seed=0)
    null = gather_evidence(split, "val", num_null=10**6, seed=0, spare_test=True).null_pairs
    assert 0 < null.size(1) < 10**6
    assert not bool(small_graph.has_pairs(null).any())
    known = torch.cat([part.edge_label_index for part in (split.train, split.val, split.test)], dim=1)
    keys = {frozenset(pair) for pair in known.T.tolist()}
    assert not any(frozenset(pair) in keys for pair in null.T.tolist())
    neighbours = [set() for _ in range(small_graph.num_nodes)]
    for u, v in small_graph.pairs.T.tolist():
        neighbours[u].add(v)
        neighbours[v].add(u)
    if kind == "two-hop":
        assert all(neighbours[u] & neighbours[v] for u, v in null.T.tolist())
    elif kind == "heart":
        links = set(split.val.edge_label_index[:, split.val.edge_label == 1].flatten().tolist())
        assert all(u in links or v in links for u, v in null.T.tolist())
    else:
        assert all(neighbours[u] and neighbours[v] for u, v in null.T.tolist())


def test_threshold_on_asked_pairs_and_on_calibration_links(fitted, small_split):
    pairs = small_split.test.edge_label_index
    found = fitted.threshold_for(pairs, precision=0.7)
    z = fitted(pairs)
    p, above = torch.sigmoid(z), z >= found.logit
    assert p[above].mean().item() == pytest.approx(found.precision)
    assert found.precision >= 0.7
    assert p[p >= p[~above].max()].mean() < 0.7
    default = fitted.threshold_for(recall=0.9)
    assert default.recall >= 0.9
    assert default.base_rate == pytest.approx(0.5)
    rare = fitted.threshold_for(precision=0.7, base_rate=0.2)
    assert rare.base_rate == 0.2
    # A rarer link needs more evidence: the threshold on the calibration logit is higher.
    assert rare.logit - np.log(0.2 / 0.8) > fitted.threshold_for(precision=0.7).logit


@pytest.mark.parametrize("base_rate", [0.02, 0.3, 0.8])
def test_threshold_on_calibration_links_weighs_classes_by_the_base_rate(fitted, small_split, base_rate):
    """Every threshold tried in turn, on the links repeated as often as their class weighs."""
    links = small_split.val
    z = fitted(links.edge_label_index, base_rate=base_rate).numpy()
    y, p = links.edge_label.numpy(), 1 / (1 + np.exp(-z))
    assert y.mean() == 0.5  # so that these weights make base_rate the share of links
    weight = np.where(y == 1, base_rate, 1 - base_rate)
    total = float((weight * p).sum())
    recall = {at: float((weight * p)[z >= at].sum()) / total for at in z}
    expected = max(at for at in z if recall[at] >= 0.6)
    found = fitted.threshold_for(recall=0.6, base_rate=base_rate)
    assert found.logit == pytest.approx(expected, abs=1e-9)
    assert found.recall == pytest.approx(recall[expected], abs=1e-9)
    above = z >= expected
    assert found.precision == pytest.approx(np.average(p[above], weights=weight[above]), abs=1e-9)


def test_threshold_tested_on_labels_moves_with_the_base_rate(fitted, small_split):
    found = fitted.threshold_for(small_split.test, precision=0.55, confidence=0.9)
    assert (found.confidence, found.base_rate) == (pytest.approx(0.9), 0.5)
    assert found.precision >= 0.55
    z, y = fitted(small_split.test.edge_label_index), small_split.test.edge_label
    share = y[z >= found.logit].mean().item()
    assert share > found.precision
    with pytest.raises(
        InputError, match=r"precision must be .* at best about .* with 234 links and 234 negatives"
    ):
        fitted.threshold_for(small_split.test, precision=0.99, base_rate=0.001)


def test_interval_holds_the_probability_and_moves_with_the_base_rate(fitted, small_split):
    pairs = small_split.test.edge_label_index
    low, high = fitted.predict_interval(pairs, level=0.9).T
    p = fitted.predict_proba(pairs).double()
    assert ((low <= p + 1e-6) & (p <= high + 1e-6)).all()
    rare = fitted.predict_interval(pairs, level=0.9, base_rate=0.01)
    odds = (low / (1 - low)) * 0.01 / 0.99
    np.testing.assert_allclose(rare[:, 0], odds / (1 + odds), rtol=1e-6, atol=1e-12)
    assert (fitted.predict_interval(pairs, level=0.99)[:, 0] <= low + 1e-12).all()
    refuses(r"level must be in \(0, 1\), got 0", fitted.predict_interval, pairs, level=0)


def test_everything_survives_the_way_to_disk(trained_gcn, small_split, tmp_path):
    clp = CalibratedLinkPredictor(trained_gcn, StructuralCalibrator()).fit(small_split, base_rate=0.1)
    pairs = small_split.test.edge_label_index
    clp.refresh(pairs[:, ::3], small_split.test.edge_label[::3].numpy())
    clp.save(tmp_path / "run")
    loaded = CalibratedLinkPredictor.load(tmp_path / "run")
    assert loaded.info_ == clp.info_
    assert loaded.calibrator_.offset_ == clp.calibrator_.offset_
    assert torch.equal(loaded.predict_proba(pairs), clp.predict_proba(pairs))
    assert torch.equal(loaded.predict_interval(pairs), clp.predict_interval(pairs))
    assert torch.equal(loaded.select(pairs, fdr=0.2).p_value, clp.select(pairs, fdr=0.2).p_value)
    assert loaded.threshold_for(recall=0.5) == clp.threshold_for(recall=0.5)


def test_folder_without_evidence_still_gives_probabilities(trained_gcn, small_split, tmp_path):
    clp = CalibratedLinkPredictor(trained_gcn, Platt()).fit(small_split)
    clp.evidence_ = None
    clp.save(tmp_path / "old")
    assert not (tmp_path / "old" / "evidence.safetensors").exists()
    loaded = CalibratedLinkPredictor.load(tmp_path / "old")
    pairs = small_split.test.edge_label_index
    assert torch.equal(loaded.predict_proba(pairs), clp.predict_proba(pairs))
    for call in (loaded.select, loaded.predict_interval, lambda _: loaded.threshold_for(precision=0.5)):
        refuses("got an artifact without: fit and save it again", call, pairs)
    assert loaded.select(pairs, null_pairs=pairs[:, -50:]).num_null == 50


def test_refresh_moves_the_share_and_keeps_the_ranking(trained_gcn, small_split):
    clp = CalibratedLinkPredictor(trained_gcn, Platt()).fit(small_split)
    test = small_split.test
    before, interval = clp(test.edge_label_index), clp.predict_interval(test.edge_label_index)
    kept = torch.cat([torch.arange(50), torch.arange(234, 234 + 200)])
    fresh = LinkPairs(test.edge_label_index[:, kept], test.edge_label[kept])
    clp.refresh(fresh)
    assert clp.calibration_rate == pytest.approx(0.2)
    record = clp.info_["refresh"]
    assert (record["links"], record["positives"]) == (250, 50)
    assert clp.predict_proba(fresh.edge_label_index).mean().item() == pytest.approx(0.2, abs=1e-5)
    np.testing.assert_allclose(clp(test.edge_label_index) - before, record["offset"], rtol=1e-9)
    # The interval moves along and is wider, in logits, by the doubt about the offset.
    moved = clp.predict_interval(test.edge_label_index)
    inner = ((interval > 1e-9) & (interval < 1 - 1e-9)).all(dim=1)
    width = [torch.logit(ends[inner]).diff(dim=1).mean().item() for ends in (interval, moved)]
    assert width[1] > width[0] + 2 * record["standard_error"]
    refuses("labels must be given with a tensor of pairs, got None", clp.refresh, test.edge_label_index)
    refuses("labels must be left out with LinkPairs", clp.refresh, test, [1])


def test_base_rate_given_to_fit_is_the_default_everywhere(trained_gcn, small_split):
    plain = CalibratedLinkPredictor(trained_gcn, Histogram()).fit(small_split)
    rare = CalibratedLinkPredictor(trained_gcn, Histogram()).fit(small_split, base_rate=0.05)
    pairs = small_split.test.edge_label_index
    assert (rare.base_rate, rare.calibration_rate) == (0.05, 0.5)
    assert rare.info_["base_rate_origin"] == "given"
    torch.testing.assert_close(rare.predict_proba(pairs), plain.predict_proba(pairs, base_rate=0.05))
    torch.testing.assert_close(rare(pairs), plain(pairs, base_rate=0.05))
    torch.testing.assert_close(rare.predict_proba(pairs, base_rate=0.5), plain.predict_proba(pairs))
    assert torch.equal(rare.predict_interval(pairs), plain.predict_interval(pairs, base_rate=0.05))
    for links in (None, pairs, small_split.test):
        assert rare.threshold_for(links, recall=0.5) == plain.threshold_for(links, recall=0.5, base_rate=0.05)
        assert rare.threshold_for(links, recall=0.5).base_rate == 0.05
    density = CalibratedLinkPredictor(trained_gcn, Histogram()).fit(small_split, base_rate="density")
    assert density.base_rate == small_split.graph.num_pairs / (300 * 299 / 2)
    assert density.info_["base_rate_origin"] == "density of the message-passing graph"
    with pytest.raises(InputError, match=r"base_rate must be in \(0, 1\), got 1\.2"):
        CalibratedLinkPredictor(trained_gcn, Histogram()).fit(small_split, base_rate=1.2)


def test_the_graph_is_encoded_once_for_many_chunks(trained_gcn, small_split, monkeypatch):
    clp = CalibratedLinkPredictor(trained_gcn, Platt()).fit(small_split)
    calls = []
    encode = type(trained_gcn).encode
    monkeypatch.setattr(
        type(trained_gcn), "encode", lambda self, *args: calls.append(1) or encode(self, *args)
    )
    pairs = small_split.test.edge_label_index
    once = clp.predict_proba(pairs)
    passes = len(calls)  # one, one that records the layers, one for each toggled pair that is verified
    assert 1 <= passes <= 7
    torch.testing.assert_close(clp.predict_proba(pairs, batch_size=50), once)
    assert len(calls) == 2 * passes


# What decisions refuse.


def test_used_up_labels_are_refused(fitted, small_split):
    val = small_split.val
    with pytest.raises(InputError, match=r"links must be new, got (\d+) of \1 of the fit: give other ones"):
        fitted.threshold_for(val, precision=0.55)
    # Either orientation of a pair is the same link.
    turned = LinkPairs(val.edge_label_index.flip(0), val.edge_label)
    refuses("links must be new", fitted.threshold_for, turned, precision=0.55)
    # A few that were drawn again by chance are no mistake.
    some = torch.cat([val.edge_label_index[:, :20], small_split.test.edge_label_index], dim=1)
    label = torch.cat([val.edge_label[:20], small_split.test.edge_label])
    assert fitted.threshold_for(LinkPairs(some, label), recall=0.5).confidence == pytest.approx(0.95)
    with pytest.raises(InputError, match="y must hold both classes, got 0 links among 0 labels"):
        fitted.threshold_for(LinkPairs(some[:, :0], label[:0]), precision=0.5)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a", "b"], "labels must be numeric, got list"),
        ([np.nan, 1.0], "labels must be finite, got 1 NaN or infinite value"),
        ([-1, 1], r"labels must hold only 0 and 1, got -1\.0"),
        ([0, 1, 1], "labels must have one label per link, 2, got 3"),
    ],
)
def test_labels_of_a_refresh_are_checked(fitted, small_split, labels, message):
    refuses(message, fitted.refresh, small_split.test.edge_label_index[:, :2], labels)


@pytest.mark.parametrize(
    "bad", [{"num_null": -1}, {"fit_on": "test"}, {"base_rate": 1.2}, {"base_rate": "dense"}]
)
def test_a_refused_fit_changes_nothing(trained_gcn, small_split, bad):
    clp = CalibratedLinkPredictor(trained_gcn, Platt())
    with pytest.raises(InputError):
        clp.fit(small_split, **bad)
    unfitted("must be fitted first", clp.select, small_split.test.edge_label_index)
    clp.fit(small_split)
    before = dict(vars(clp))
    with pytest.raises(InputError):
        clp.fit(split_links(small_split.graph, seed=3), **bad)
    assert all(vars(clp)[name] is value for name, value in before.items())
