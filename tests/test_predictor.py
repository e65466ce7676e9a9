"""CalibratedLinkPredictor: what it is fitted on, what it returns, and its way to disk and back."""

import copy
import json
import warnings
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.metrics import roc_auc_score
from torch import nn
from torch_geometric.nn import GCNConv, LightGCN

from linkcal import CalibratedLinkPredictor, InNOut, Isotonic, Platt, StructuralCalibrator
from linkcal.data import Graph, LinkPairs, split_links
from linkcal.exceptions import (
    ArtifactError,
    FewLinksWarning,
    InputError,
    RareClassWarning,
    UnsupportedModelError,
)
from linkcal.features import STRUCTURAL_COLUMNS, calibration_links, score_links
from linkcal.models import TrainingConfig, make_model, train_link_predictor
from refusals import damaged, refuses, unfitted, unsupported


class UserModel(nn.Module):
    """A stranger's model: one GCN layer, a bilinear decoder that returns probabilities."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = GCNConv(channels, 5)
        self.weight = nn.Parameter(torch.eye(5))

    def encode(self, x, edge_index):
        return self.conv(x, edge_index).relu() + x[:, :5]

    def decode(self, z, edge_label_index):
        left, right = z[edge_label_index[0]], z[edge_label_index[1]]
        return torch.sigmoid(((left @ self.weight) * right).sum(-1) - 1.0)


class Spy(LinkPairs):
    """Pairs that must not be read."""

    def __getattribute__(self, name):
        if name in ("edge_label", "edge_label_index"):
            raise AssertionError("test links were read")
        return super().__getattribute__(name)


@pytest.fixture(scope="module")
def fitted(trained_gcn, small_split):
    return CalibratedLinkPredictor(trained_gcn, Platt()).fit(small_split)


def test_probability_equals_calibrator_on_scores(fitted, trained_gcn, small_split):
    pairs = small_split.test.edge_label_index
    p = fitted.predict_proba(pairs)
    X = score_links(trained_gcn, small_split.graph, pairs).to_matrix()
    expected = fitted.calibrator_.predict_proba(X)[:, 1]
    assert p.shape == (pairs.size(1),)
    assert p.dtype == torch.float32
    np.testing.assert_allclose(p.numpy(), expected, rtol=1e-6)


def test_forward_is_the_logit_of_the_probability(fitted, small_split):
    pairs = small_split.test.edge_label_index
    expected = fitted.predict_proba(pairs).double()
    torch.testing.assert_close(torch.sigmoid(fitted(pairs)), expected, rtol=1e-5, atol=1e-6)


def test_batches_order_and_direction_change_nothing(fitted, small_split):
    pairs = small_split.test.edge_label_index
    p = fitted.predict_proba(pairs)
    assert torch.allclose(fitted.predict_proba(pairs, batch_size=7), p, atol=1e-6)
    assert torch.allclose(fitted.predict_proba(pairs.flip(0)), p, atol=1e-6)
    assert torch.allclose(fitted.predict_proba(pairs.flip(1)).flip(0), p, atol=1e-6)


def test_no_pairs_give_no_probabilities(fitted):
    assert fitted.predict_proba(torch.empty(2, 0, dtype=torch.int64)).shape == (0,)


def test_known_edge_is_scored_without_itself(fitted, small_split):
    edge = small_split.graph.pairs[:, :5]
    scores = fitted.score(edge)
    assert scores.toggled.in_graph.all()
    assert torch.equal(scores.logit, scores.toggled.logit_absent)


def test_known_edges_are_message_passing_and_held_out_ones(fitted, small_split):
    every = torch.combinations(torch.arange(300)).T
    held_out = small_split.val.edge_label_index[:, small_split.val.edge_label == 1]
    edges = torch.cat([small_split.graph.edge_index, held_out], dim=1)
    known = {frozenset(edge) for edge in edges.T.tolist()}
    for pairs in (every, every.flip(0)):
        expected = [frozenset(pair) in known for pair in pairs.T.tolist()]
        assert fitted.known_edges(pairs).tolist() == expected


def test_calibrator_given_is_not_fitted(trained_gcn, small_split):
    calibrator = Platt()
    CalibratedLinkPredictor(trained_gcn, calibrator).fit(small_split)
    assert not hasattr(calibrator, "classes_")


@pytest.mark.parametrize("fit_on", ["val", "stacked", "train-loo", "train"])
def test_fit_never_reads_test_links(trained_gcn, small_split, fit_on):
    hidden = replace(small_split)
    object.__setattr__(hidden, "test", object.__new__(Spy))
    clp = CalibratedLinkPredictor(trained_gcn, Isotonic()).fit(hidden, fit_on=fit_on)
    assert clp.info_["fit_on"] == fit_on
    assert clp.info_["negatives_per_positive"] == 1.0


# Five epochs leave the temperature where it started.
@pytest.mark.filterwarnings("ignore::linkcal.exceptions.BaseRateWarning")
def test_train_fit_hands_validation_links_to_in_n_out(trained_gcn, small_split, monkeypatch):
    seen = {}
    original = InNOut.fit

    def spy(self, X, y, sample_weight=None, *, X_val=None, y_val=None):
        seen["rows"], seen["val_rows"] = len(X), None if X_val is None else len(X_val)
        return original(self, X, y, X_val=X_val, y_val=y_val)

    monkeypatch.setattr(InNOut, "fit", spy)
    calibrator = InNOut(max_iter=5, learning_rate=0.01)
    CalibratedLinkPredictor(trained_gcn, calibrator).fit(small_split, fit_on="train-loo")
    assert seen == {"rows": len(small_split.train), "val_rows": len(small_split.val)}
    CalibratedLinkPredictor(trained_gcn, calibrator).fit(small_split)
    assert seen == {"rows": len(small_split.val), "val_rows": None}


def test_stacked_fit_builds_on_training_links(trained_gcn, small_split, tmp_path):
    clp = CalibratedLinkPredictor(trained_gcn, StructuralCalibrator()).fit(small_split, fit_on="stacked")
    base = calibration_links(trained_gcn, small_split, "train-loo").to_arrays("structural")
    links = calibration_links(trained_gcn, small_split, "val").to_arrays("structural")
    alone = StructuralCalibrator(feature_names=STRUCTURAL_COLUMNS).fit(*links, X_base=base[0], y_base=base[1])
    pairs = small_split.test.edge_label_index
    expected = alone.predict_proba(score_links(trained_gcn, small_split.graph, pairs).to_matrix("structural"))
    np.testing.assert_allclose(clp.predict_proba(pairs).numpy(), expected[:, 1], rtol=1e-6)
    assert clp.info_["calibration_positives"] == small_split.val.num_positives
    clp.save(tmp_path / "artifact")
    again = CalibratedLinkPredictor.load(tmp_path / "artifact", model=trained_gcn)
    assert torch.equal(again.predict_proba(pairs), clp.predict_proba(pairs))
    interval = again.predict_interval(pairs, level=0.9)
    assert ((interval[:, 0] <= interval[:, 1]) & (interval[:, 0] < 1)).all()


def test_before_fit(trained_gcn, tmp_path):
    clp = CalibratedLinkPredictor(trained_gcn, Platt())
    pairs = torch.tensor([[0], [1]])
    asks = [clp, clp.predict_proba, clp.select, clp.predict_interval, clp.threshold_for, clp.refresh]
    asks += [lambda _: clp.base_rate, lambda _: clp.calibration_rate, lambda _: clp.save(tmp_path / "a")]
    for ask in asks:
        unfitted("CalibratedLinkPredictor must be fitted first, call fit", ask, pairs)
    assert not (tmp_path / "a").exists()
    with pytest.raises(AttributeError, match="no attribute 'base'"):
        _ = clp.base


def test_bad_input(trained_gcn, fitted, small_split):
    refuses("calibrator must be a Calibrator, got str", CalibratedLinkPredictor, trained_gcn, "platt")
    refuses("split must be a LinkSplit", CalibratedLinkPredictor(trained_gcn, Platt()).fit, small_split.graph)
    refuses("num_nodes = 300, got 300", fitted.predict_proba, torch.tensor([[0], [300]]))
    refuses(r"two different nodes, got \(4, 4\)", fitted.predict_proba, torch.tensor([[4], [4]]))
    with pytest.raises(UnsupportedModelError, match=r"got Linear without encode\(x, edge_index\) and decode"):
        CalibratedLinkPredictor(nn.Linear(2, 2), Platt())


def test_one_class_calibration_set(trained_gcn, small_split):
    positives = small_split.val.edge_label == 1
    only = LinkPairs(small_split.val.edge_label_index[:, positives], small_split.val.edge_label[positives])
    with pytest.raises(InputError, match="y must hold two classes, got 1 class"):
        CalibratedLinkPredictor(trained_gcn, Platt()).fit(replace(small_split, val=only))


@pytest.mark.filterwarnings("ignore::linkcal.exceptions.BaseRateWarning")
@pytest.mark.parametrize("calibrator", [Platt(), Isotonic(), InNOut(max_iter=5, learning_rate=0.01)])
def test_save_and_load_give_equal_probabilities(trained_gcn, small_split, calibrator, tmp_path):
    clp = CalibratedLinkPredictor(trained_gcn, calibrator).fit(small_split)
    pairs = small_split.test.edge_label_index
    clp.save(tmp_path / "run")
    loaded = CalibratedLinkPredictor.load(tmp_path / "run")
    assert torch.equal(loaded.predict_proba(pairs), clp.predict_proba(pairs))
    assert loaded.info_ == clp.info_
    assert not any(path.suffix in (".pkl", ".pt", ".joblib") for path in (tmp_path / "run").iterdir())


def test_saving_again_replaces_the_folder(fitted, trained_gcn, small_split, tmp_path):
    fitted.save(tmp_path / "run")
    other = CalibratedLinkPredictor(trained_gcn, Isotonic()).fit(small_split)
    other.save(tmp_path / "run")
    assert isinstance(CalibratedLinkPredictor.load(tmp_path / "run").calibrator_, Isotonic)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_save_refuses_a_folder_of_other_files(fitted, tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    refuses("folder must be new, empty or an artifact", fitted.save, tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "precious"


def test_user_model_round_trip(small_split, tmp_path):
    model = UserModel(24)
    clp = CalibratedLinkPredictor(model, Platt(), decode_returns="probabilities").fit(small_split)
    pairs = small_split.test.edge_label_index[:, :20]
    clp.save(tmp_path / "run")
    damaged("none of linkcal's own", CalibratedLinkPredictor.load, tmp_path / "run")
    fresh = UserModel(24)
    nn.init.zeros_(fresh.weight)
    loaded = CalibratedLinkPredictor.load(tmp_path / "run", fresh)
    assert torch.equal(loaded.predict_proba(pairs), clp.predict_proba(pairs))


def test_user_model_must_declare_what_decode_returns(small_split):
    refuses("decode_returns must be declared", CalibratedLinkPredictor, UserModel(24), Platt())


def test_load_of_nothing_and_of_an_unknown_calibrator(fitted, tmp_path):
    damaged("artifact must be a folder", CalibratedLinkPredictor.load, tmp_path / "nowhere")
    fitted.save(tmp_path / "run")
    with pytest.raises(InputError, match="calibrator must be one of platt; got 'plat'"):
        CalibratedLinkPredictor.load(tmp_path / "run", calibrator="plat")


def test_inputs_are_not_modified(trained_gcn, small_split):
    before = small_split.graph.edge_index.clone(), small_split.test.edge_label_index.clone()
    weights = {name: value.clone() for name, value in trained_gcn.state_dict().items()}
    clp = CalibratedLinkPredictor(trained_gcn, Platt()).fit(small_split)
    clp.predict_proba(small_split.test.edge_label_index)
    assert torch.equal(small_split.graph.edge_index, before[0])
    assert torch.equal(small_split.test.edge_label_index, before[1])
    assert all(torch.equal(value, weights[name]) for name, value in trained_gcn.state_dict().items())


# What was fitted must be what is used: weights, graph, files.


def test_changed_weights_are_refused_until_fitted_again(small_split, tmp_path):
    model = make_model("gcn", 24, seed=0)
    train_link_predictor(model, small_split, TrainingConfig(epochs=2), seed=0)
    clp = CalibratedLinkPredictor(model, Platt()).fit(small_split)
    pairs = small_split.test.edge_label_index
    p = clp.predict_proba(pairs)
    clp.save(tmp_path / "kept")
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    train_link_predictor(model, small_split, TrainingConfig(epochs=1), seed=1)
    asks = [
        clp, clp.predict_proba, clp.select, clp.predict_interval, clp.score,
        lambda _: clp.node_embeddings(),
    ]  # fmt: skip
    message = "^weights of the model must be as when fitted, got changed values: call fit again$"
    for ask in (*asks, lambda _: clp.save(tmp_path / "new")):
        refuses(message, ask, pairs)
    assert not (tmp_path / "new").exists()
    # The folder's weights replace those of a model that is given.
    loaded = CalibratedLinkPredictor.load(tmp_path / "kept", model)
    assert torch.equal(loaded.predict_proba(pairs), p)
    assert all(torch.equal(value, kept[name]) for name, value in model.state_dict().items())
    assert torch.equal(clp.predict_proba(pairs), p)


@pytest.mark.parametrize("write", ["step", "data", "numpy", "buffer", "hidden buffer"])
def test_any_write_to_weights_is_seen(small_split, write):
    model = UserModel(24)
    model.register_buffer("scale", torch.ones(1), persistent=write != "hidden buffer")
    clp = CalibratedLinkPredictor(model, Platt(), decode_returns="probabilities", symmetrise=True)
    pairs = clp.fit(small_split).evidence_.null_pairs[:, :3]
    clp.predict_proba(pairs)
    if write == "step":
        model.weight.grad = torch.ones_like(model.weight)
        torch.optim.SGD([model.weight], lr=0.1).step()
    elif write == "data":
        model.weight.data[0, 0] += 1e-6
    elif write == "numpy":
        model.weight.detach().numpy()[0, 0] += 1e-6
    else:
        model.scale.mul_(2)
    refuses("weights of the model must be as when", clp.predict_proba, pairs)


def test_a_changed_graph_is_refused(trained_gcn, small_split):
    graph = replace(small_split.graph, x=small_split.graph.x.clone())
    clp = CalibratedLinkPredictor(trained_gcn, Platt()).fit(replace(small_split, graph=graph))
    pairs = small_split.test.edge_label_index
    p = clp.predict_proba(pairs)
    graph.x.mul_(1.0)  # written, but the same values
    assert torch.equal(clp.predict_proba(pairs), p)
    graph.x.numpy()[0] += 1.0  # counted by no version of the tensor
    refuses("message-passing graph must be as when fitted", clp.predict_proba, pairs)


def test_a_part_of_the_graph_in_the_same_memory_is_refused(trained_gcn, small_split):
    clp = CalibratedLinkPredictor(trained_gcn, Platt()).fit(small_split)
    for change in ({"edge_index": clp.graph_.edge_index[:, :60]}, {"directed": True}):
        graph = clp.graph_
        clp.graph_ = replace(graph, **change)
        refuses("message-passing graph must be as when", clp.predict_proba, small_split.test.edge_label_index)
        clp.graph_ = graph


def test_another_dtype_is_no_change(trained_gcn, small_split):
    clp = CalibratedLinkPredictor(copy.deepcopy(trained_gcn), Platt()).fit(small_split)
    pairs = small_split.test.edge_label_index
    p = clp.predict_proba(pairs)
    wide = clp.double().predict_proba(pairs)
    assert wide.dtype == torch.float64
    torch.testing.assert_close(wide.float(), p, rtol=1e-5, atol=1e-6)
    assert torch.equal(copy.deepcopy(clp).predict_proba(pairs), wide)


def test_a_flipped_byte_anywhere_is_refused(trained_gcn, small_split, tmp_path):
    CalibratedLinkPredictor(trained_gcn, Platt()).fit(small_split, num_null=10).save(tmp_path / "run")
    rng = np.random.default_rng(0)
    for path in sorted((tmp_path / "run").iterdir()):
        content = path.read_bytes()
        every = (
            range(0, len(content), 3) if path.name == "artifact.json" else rng.integers(0, len(content), 10)
        )
        for place in every:
            flipped = bytearray(content)
            flipped[place] ^= 1
            path.write_bytes(bytes(flipped))
            with pytest.raises(ArtifactError) as caught:
                CalibratedLinkPredictor.load(tmp_path / "run")
            assert "\n" not in str(caught.value)
        path.write_bytes(content[:-3])
        with pytest.raises(ArtifactError, match=f"{path.name} must be (as it was saved|a JSON file)"):
            CalibratedLinkPredictor.load(tmp_path / "run")
        path.unlink()
        with pytest.raises(ArtifactError, match=f"{path.name} must be a readable file|without it"):
            CalibratedLinkPredictor.load(tmp_path / "run")
        path.write_bytes(content)
    CalibratedLinkPredictor.load(tmp_path / "run")


def forged(folder, **changes):
    """The manifest with other values, signed as a saved one is."""
    head = folder / "artifact.json"
    values = json.loads(head.read_text()) | changes
    values["files"] = {name: sha256((folder / name).read_bytes()).hexdigest() for name in values["files"]}
    text = json.dumps(values | {"sha256": "0" * 64}, indent=2)
    signature = sha256(text.encode()).hexdigest()
    head.write_text(text.replace("0" * 64, signature))


def test_content_that_does_not_fit_is_refused(fitted, tmp_path):
    run = tmp_path / "run"
    for name, change, message in [
        ("evidence.safetensors", {"null_pairs": torch.full((2, 3), 300)}, "got null_pairs must hold node"),
        ("graph.safetensors", {"x": torch.ones(300, 24)}, "weights and graph of the fit"),
        ("graph.safetensors", {"x": torch.ones(7, 24)}, r"got x must have shape .* = 300, got \[7, 24\]"),
    ]:
        fitted.save(run)
        save_file(load_file(run / name) | change, run / name)
        forged(run)
        damaged(message, CalibratedLinkPredictor.load, run)
    fitted.save(run)
    forged(run, format_version=2)  # case A9: an older format
    damaged(
        r"format_version 4, got 2 \(written by linkcal 0.*\): fit again$", CalibratedLinkPredictor.load, run
    )


# Models of others: dtype, compiled, decoders with a direction.


def test_float64_user_model_is_loaded_as_float64(small_split, tmp_path):
    graph = replace(small_split.graph, x=small_split.graph.x.double())
    clp = CalibratedLinkPredictor(UserModel(24).double(), Platt(), decode_returns="probabilities")
    pairs = small_split.test.edge_label_index
    p = clp.fit(replace(small_split, graph=graph)).predict_proba(pairs)
    clp.save(tmp_path / "run")
    loaded = CalibratedLinkPredictor.load(tmp_path / "run", UserModel(24))
    assert {weight.dtype for weight in loaded.parameters()} == {torch.float64}
    assert torch.equal(loaded.predict_proba(pairs), p)


@pytest.mark.parametrize("part", ["model", "conv"])
def test_case_a8_compiled_models_are_used_and_saved_as_the_original(small_split, tmp_path, part):
    model, plain = UserModel(24), UserModel(24)
    given = torch.compile(model, backend="eager") if part == "model" else model
    if part == "conv":
        model.conv = torch.compile(model.conv, backend="eager")
    options = {"decode_returns": "probabilities"}
    clp = CalibratedLinkPredictor(given, Platt(), **options).fit(small_split)
    assert clp.model is model
    expected = CalibratedLinkPredictor(plain, Platt(), **options).fit(small_split)
    pairs = small_split.test.edge_label_index
    if part == "model":
        assert clp.score(pairs).toggled.method == expected.score(pairs).toggled.method
    torch.testing.assert_close(clp.predict_proba(pairs), expected.predict_proba(pairs))
    clp.save(tmp_path / "run")
    assert set(load_file(tmp_path / "run" / "model.safetensors")) == set(plain.state_dict())
    for fresh in (UserModel(24), torch.compile(UserModel(24), backend="eager"), model):
        loaded = CalibratedLinkPredictor.load(tmp_path / "run", fresh)
        torch.testing.assert_close(loaded.predict_proba(pairs), expected.predict_proba(pairs))


class Directed(nn.Module):
    """A decoder that reads the two ends of a pair differently."""

    decode_returns = "logits"

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(24, 4), nn.Linear(24, 4)

    def encode(self, x, edge_index):
        return x

    def decode(self, z, edge_label_index):
        u, v = edge_label_index
        return (self.first(z[u]) * self.second(z[v])).sum(dim=1)


def test_case_a3_a_decoder_with_a_direction_is_refused_or_averaged(small_split, tmp_path):
    model, pairs = Directed(), small_split.test.edge_label_index
    with pytest.raises(InputError, match=r"must score \(u, v\) and \(v, u\) of an undirected graph equally,"):
        CalibratedLinkPredictor(model, Platt()).fit(small_split)
    clp = CalibratedLinkPredictor(model, Platt(), symmetrise=True).fit(small_split)
    torch.testing.assert_close(clp(pairs), clp(pairs.flip(0)), rtol=1e-6, atol=1e-6)
    x = small_split.graph.x
    both = (model.decode(x, pairs) + model.decode(x, pairs.flip(0))).detach() / 2
    torch.testing.assert_close(clp.score(pairs).logit, both, rtol=1e-5, atol=1e-6)
    clp.save(tmp_path / "run")
    loaded = CalibratedLinkPredictor.load(tmp_path / "run", Directed())
    assert torch.equal(loaded.predict_proba(pairs), clp.predict_proba(pairs))
    # In a directed graph the two orders are two pairs.
    graph = Graph.from_edges(small_split.graph.pairs, 300, x=x, directed=True)
    directed = CalibratedLinkPredictor(model, Platt()).fit(split_links(graph, seed=0))
    assert not torch.allclose(directed(pairs), directed(pairs.flip(0)))


def test_intervals_and_selections_stay_on_the_device_of_the_scores(fitted, small_split, monkeypatch):
    seen = []
    moved = torch.Tensor.to
    monkeypatch.setattr(
        torch.Tensor, "to", lambda self, *args, **kw: seen.append(args) or moved(self, *args, **kw)
    )
    scores = fitted.score(small_split.test.edge_label_index)
    seen.clear()
    assert fitted.interval_of(scores).device == scores.logit.device
    assert (scores.logit.device,) in seen


def test_few_calibration_links_are_warned_of_once_at_the_callers_line(trained_gcn, small_split):
    kept = torch.cat([torch.arange(60), torch.arange(60) + small_split.val.num_positives])
    val = LinkPairs(small_split.val.edge_label_index[:, kept], small_split.val.edge_label[kept])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        CalibratedLinkPredictor(trained_gcn, Platt()).fit(replace(small_split, val=val))
    (one,) = [each for each in caught if issubclass(each.category, FewLinksWarning)]
    assert one.filename == __file__
    # 1.96 sqrt(0.25 / 120), and sqrt(2 / pi * 15 / 6 / 120).
    assert str(one.message) == (
        "60 links and 60 negatives to calibrate on, fewer than 100 of a class: a probability near the base "
        "rate is known to +- 9 points at best (95 %), and on as many test pairs calibrated probabilities "
        "show an ECE of about 12 %"
    )
    assert issubclass(FewLinksWarning, RareClassWarning)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FewLinksWarning)
        CalibratedLinkPredictor(trained_gcn, Platt()).fit(small_split)  # 300 of each


@pytest.mark.parametrize("rows", [250, 350])
def test_learned_embeddings_have_a_row_for_each_node(small_split, rows):
    class Rows(LightGCN):
        decode_returns = "logits"

        def encode(self, x, edge_index):
            return self.get_embedding(edge_index % rows)  # else PyG reads beyond the rows

        def decode(self, z, edge_label_index):
            return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(dim=-1)

    split = split_links(Graph.from_edges(small_split.graph.pairs, 300), seed=0)
    ours, users = make_model("gcn", 8, num_nodes=rows), Rows(rows, 8, 2)
    refuses(
        f"must have num_nodes = 300 without x, got {rows}", CalibratedLinkPredictor(ours, Platt()).fit, split
    )
    text = rf"encode must return a tensor of shape \[300, d\], a row per node, got .* \[{rows}, 8\]"
    unsupported(text, CalibratedLinkPredictor(users, Platt()).fit, split)


# A table and a page for a model of one's own.


def test_evaluation_has_the_numbers_of_the_probabilities(fitted, small_split, tmp_path):
    test = small_split.test
    y, p = test.edge_label.numpy(), fitted.predict_proba(test.edge_label_index).double().numpy()
    found = fitted.evaluate(test)
    name = fitted.calibrator_.name
    assert list(found.results) == ["uncalibrated", name]
    assert found.results[name]["brier"] == pytest.approx(np.mean((y - p) ** 2), rel=1e-6)
    raw = fitted.score(test.edge_label_index).logit.double().numpy()
    assert found.results["uncalibrated"]["auc"] == pytest.approx(roc_auc_score(y, raw), abs=1e-12)
    assert found.results[name]["nll"] < found.results["uncalibrated"]["nll"]
    text = repr(found)
    assert f"{found.results[name]['nll']:.4f}" in text
    assert f"<td>{found.results[name]['nll']:.4f}</td>" in found._repr_html_()
    page = found.write_report(tmp_path / "page.html").read_text()
    assert f"Calibrated link probabilities: GCN on {small_split.graph.name}" in page
    assert 'id="threshold"' in page


def test_evaluation_at_a_base_rate_weights_probabilities_alone(fitted, small_split):
    test, rate = small_split.test, 0.01
    pairs, y = test.edge_label_index, test.edge_label.numpy()
    plain, rare = fitted.evaluate(test), fitted.evaluate(pairs, test.edge_label, base_rate=rate)
    p = fitted.predict_proba(pairs, base_rate=rate).double().numpy()
    weight = np.where(y == 1, rate / y.mean(), (1 - rate) / (1 - y.mean()))
    name = fitted.calibrator_.name
    assert rare.results[name]["brier"] == pytest.approx(np.average((y - p) ** 2, weights=weight), rel=1e-6)
    for key in ("auc", "hits@20", "mrr"):
        assert rare.results[name][key] == plain.results[name][key]
    stated = CalibratedLinkPredictor(fitted.model, fitted.calibrator).fit(small_split, base_rate=rate)
    assert stated.evaluate(test).results == rare.results
    assert stated.evaluate(test).metrics["base_rate"] == rate
    refuses("links must be new, got", fitted.evaluate, small_split.val)


def test_objects_say_what_they_hold_in_one_line(fitted, small_split):
    pairs = small_split.test.edge_label_index
    graph, edges = small_split.graph, f"{small_split.graph.num_pairs:,}"
    assert repr(graph).startswith(f"Graph(name={graph.name!r}, nodes=300, edges={edges}, features=24, ")
    assert f"message_edges={edges}, train=" in repr(small_split)
    assert f"<th>message edges</th><td>{edges}</td>" in small_split._repr_html_()
    chosen = fitted.select(pairs)
    shown = f"SelectedLinks(pairs={pairs.size(1):,}, selected={int(chosen.selected.sum())}, known=0, "
    assert repr(chosen).startswith(shown)
    assert "method='kernel')" in repr(fitted.score(pairs).toggled)
    named = replace(graph, name="<b>")
    assert "&lt;b&gt;" in named._repr_html_()
