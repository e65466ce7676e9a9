"""Artifacts whose checksums were made to fit: what is read is checked as strictly as a user's input."""

import json
import re
import shutil
import tracemalloc
from hashlib import sha256

import pytest
import torch
from safetensors.torch import load_file, save_file

from linkcal import CalibratedLinkPredictor, StructuralCalibrator
from linkcal.exceptions import ArtifactError


@pytest.fixture(scope="module")
def saved(small_split, trained_gcn, tmp_path_factory):
    folder = tmp_path_factory.mktemp("artifact") / "saved"
    CalibratedLinkPredictor(trained_gcn, StructuralCalibrator()).fit(small_split).save(folder)
    return folder


def signed(folder):
    """Checksums that fit the files, as somebody who knows the format makes them."""
    model = json.loads((folder / "model.json").read_text())
    model["weights_sha256"] = sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    (folder / "model.json").write_text(json.dumps(model))
    head = json.loads((folder / "artifact.json").read_text())
    there = [name for name in head["files"] if (folder / name).exists()]
    head["files"] |= {name: sha256((folder / name).read_bytes()).hexdigest() for name in there}
    text = json.dumps(head | {"sha256": "0" * 64}, indent=2)
    (folder / "artifact.json").write_text(text.replace("0" * 64, sha256(text.encode()).hexdigest()))


def set_value(folder, file, keys, value):
    record = json.loads((folder / file).read_text())
    place = record
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    (folder / file).write_text(json.dumps(record))


def set_tensor(folder, file, name, change):
    tensors = load_file(folder / file)
    tensors[name] = change(tensors[name])
    save_file({key: value.contiguous() for key, value in tensors.items()}, folder / file)


GRAPH, EVIDENCE, WEIGHTS = "graph.safetensors", "evidence.safetensors", "model.safetensors"
TENSORS = [
    (GRAPH, "edge_index", lambda e: e.int(), "edge_index must hold int64"),
    (GRAPH, "edge_index", lambda e: e.T, r"edge_index must have shape \[2, L\]"),
    (GRAPH, "edge_index", lambda e: torch.cat([e, e[:, :2]], 1), "each edge once"),
    (GRAPH, "edge_index", lambda e: e[:, 1:], "each edge once"),
    (GRAPH, "edge_index", lambda e: torch.cat([e, e[:1, :1].repeat(2, 1)], 1), "two different nodes"),
    (GRAPH, "edge_index", lambda e: torch.cat([e[:, 1:], e[:1, :1].repeat(2, 1)], 1), "two different nodes"),
    (GRAPH, "edge_index", lambda e: -e, "node indices >= 0"),
    (GRAPH, "held_out", lambda e: e.T, r"held_out must have shape \[2, L\]"),
    (GRAPH, "held_out", lambda e: e + 10**6, "held_out must hold node indices"),
    (GRAPH, "held_out", lambda e: e.double(), "held_out must hold int64"),
    (GRAPH, "x", lambda x: x.half(), "dtype of the weights"),
    (GRAPH, "x", lambda x: (2 * x).long(), "weights and graph of the fit"),
    (GRAPH, "x", lambda x: x[0], "x must have shape"),
    (GRAPH, "x", lambda x: x / 0, "x must be finite"),
    (EVIDENCE, "calibration_label", torch.ones_like, "both classes"),
    (EVIDENCE, "calibration_label", lambda y: y.double(), "calibration_label must hold float32"),
    (EVIDENCE, "calibration_label", lambda y: y + 0.5, "only 0 and 1"),
    (EVIDENCE, "calibration_label", lambda y: y[1:], "edge_label must have shape"),
    (EVIDENCE, "calibration_pairs", lambda e: e[:1].repeat(2, 1), "two different nodes"),
    (EVIDENCE, "null_pairs", lambda e: e.short(), "null_pairs must hold int64"),
    (EVIDENCE, "null_pairs", lambda e: e[:1].repeat(2, 1), "two different nodes"),
    (WEIGHTS, "gnn.convs.0.bias", lambda w: w.half(), "more than one dtype"),
    (WEIGHTS, "gnn.convs.0.bias", lambda w: w[None], "size mismatch"),
    (WEIGHTS, "gnn.convs.0.bias", lambda w: w + 1, "weights and graph of the fit"),
]
DEEP = json.loads("[" * 900 + "]" * 900)
HEAD, MODEL, CALIBRATORS = "artifact.json", "model.json", "calibrators.json"
VALUES = [
    (MODEL, ["config", "num_layers"], 10**7, "num_layers = 10000000"),
    (MODEL, ["config", "hidden_channels"], 10**19, "hidden_channels must be"),
    (MODEL, ["config", "in_channels"], 10**9, "size mismatch"),
    (MODEL, ["config"], DEEP, "must hold weights"),
    (HEAD, ["graph", "num_nodes"], 10**19, "num_nodes must be"),
    (HEAD, ["graph", "num_nodes"], 3 * 10**9, "x must have shape .* 3000000000"),
    (HEAD, ["graph", "num_nodes"], True, "num_nodes must be"),
    (HEAD, ["graph", "directed"], "no", "directed must be"),
    (HEAD, ["graph", "name"], DEEP, "graph must have"),
    (HEAD, ["graph", "truth"], 1, "graph must have"),
    (HEAD, ["info", "negatives_per_positive"], 10**400 - 1, "negatives_per_positive must be"),
    (HEAD, ["info", "negatives_per_positive"], 0, "negatives_per_positive must be"),
    (HEAD, ["info", "negatives_per_positive"], DEEP, "negatives_per_positive must be"),
    (HEAD, ["info", "fit_on"], "test", "fit_on must be one of"),
    (HEAD, ["info", "selected"], ["platt"], "selected must be one of"),
    (HEAD, ["info", "base_rate"], 1, "base_rate must be"),
    (HEAD, ["info", "symmetrise"], "yes", "symmetrise must be"),
    (HEAD, ["info", "negatives"], DEEP, "negatives must be"),
    (HEAD, ["files", "more.json"], "", "list the artifact's files"),
    (CALIBRATORS, ["in-n-out-plus", "state", "n_features_in_"], 10**20, "fit together"),
    (CALIBRATORS, ["in-n-out-plus", "state"], DEEP, "describe calibrators"),
    (CALIBRATORS, ["in-n-out-plus", "params"], DEEP, "describe calibrators"),
]


def refusal(folder):
    signed(folder)
    tracemalloc.start()
    try:
        with pytest.raises(ArtifactError) as caught:
            CalibratedLinkPredictor.load(folder)
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 1100
    return message


@pytest.mark.parametrize(("file", "name", "change", "expected"), TENSORS)
def test_forged_tensors(saved, tmp_path, file, name, change, expected):
    folder = shutil.copytree(saved, tmp_path / "forged")
    set_tensor(folder, file, name, change)
    assert re.search(expected, refusal(folder))


@pytest.mark.parametrize(("file", "keys", "value", "expected"), VALUES)
def test_forged_values(saved, tmp_path, file, keys, value, expected):
    folder = shutil.copytree(saved, tmp_path / "forged")
    set_value(folder, file, keys, value)
    assert re.search(expected, refusal(folder))


@pytest.mark.parametrize("file", [HEAD, MODEL, CALIBRATORS])
def test_json_nested_too_deep(saved, tmp_path, file):
    folder = shutil.copytree(saved, tmp_path / "forged")
    signed(folder)
    (folder / file).write_text("[" * 10**6)
    if file != HEAD:
        head = json.loads((folder / HEAD).read_text())
        head["files"][file] = sha256((folder / file).read_bytes()).hexdigest()
        text = json.dumps(head | {"sha256": "0" * 64}, indent=2)
        (folder / HEAD).write_text(text.replace("0" * 64, sha256(text.encode()).hexdigest()))
    with pytest.raises(ArtifactError, match="recursion depth"):
        CalibratedLinkPredictor.load(folder)


def test_what_was_saved_loads(saved, tmp_path, small_split):
    folder = shutil.copytree(saved, tmp_path / "forged")
    signed(folder)
    pairs = small_split.test.edge_label_index
    loaded = [CalibratedLinkPredictor.load(place).predict_proba(pairs) for place in (saved, folder)]
    assert torch.equal(*loaded)
