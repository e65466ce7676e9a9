from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from linkcal.data import Graph
from linkcal.exceptions import ArtifactError, UnsupportedModelError
from linkcal.models import MODELS, LinkPredictor, load_model, make_model, save_model

NAMES = list(MODELS)
EDGES = torch.tensor([[0, 1, 1, 2, 3], [1, 0, 2, 1, 3]])
PAIRS = torch.tensor([[0, 1, 0], [1, 3, 4]])


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_model(make_model("gcn", 4, hidden_channels=3), tmp_path)
    return tmp_path


def edit(folder: Path, **changes: object) -> None:
    path = folder / "model.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("num_nodes", [None, 5])
def test_bit_equal_round_trip(name, num_nodes, tmp_path):
    model = make_model(name, 4, num_nodes=num_nodes, seed=3, hidden_channels=6, num_layers=3, dropout=0.25)
    features = torch.rand(5, 4) if num_nodes is None else None
    x = model.prepare(Graph.from_edges(EDGES, 5, x=features)).node_input
    model.train()(x, EDGES, PAIRS)  # moves batch statistics
    state = torch.get_rng_state()
    save_model(model, tmp_path / "new" / "folder")
    loaded = load_model(tmp_path / "new" / "folder")
    assert torch.equal(torch.get_rng_state(), state)
    assert type(loaded) is type(model)
    assert loaded.config == model.config
    assert not loaded.training
    assert model.training
    expected, got = model.state_dict(), loaded.state_dict()
    assert expected.keys() == got.keys()
    assert all(torch.equal(expected[key], got[key]) for key in expected)
    assert torch.equal(loaded(x, EDGES, PAIRS), model.eval()(x, EDGES, PAIRS))


def test_files(saved):
    assert sorted(path.name for path in saved.iterdir()) == ["model.json", "model.safetensors"]
    description = json.loads((saved / "model.json").read_text())
    assert description["format"] == "linkcal-model"
    assert (description["format_version"], description["model"]) == (1, "gcn")


def test_saving_again_replaces(saved):
    save_model(make_model("sage", 2), saved)
    assert type(load_model(saved)) is MODELS["sage"].cls


def test_other_classes_are_refused_before_anything_is_written(tmp_path):
    class Mine(LinkPredictor):
        def encode(self, x, edge_index):
            return x

    with pytest.raises(
        UnsupportedModelError, match="one of GCN, SAGE, GIN, VGAE, PEG, SEAL to be saved, got Mine"
    ):
        save_model(Mine(2), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def refused(folder: Path) -> str:
    with pytest.raises(ArtifactError) as caught:
        load_model(folder)
    message = str(caught.value)
    assert "\n" not in message
    assert str(folder) in message
    return message


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_missing_file(saved, name):
    (saved / name).unlink()
    assert f"{name} must be a readable file" in refused(saved)


@pytest.mark.parametrize("keep", [0, 5, 100, -1])
def test_truncated_weights(saved, keep):
    path = saved / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    assert "truncated or altered" in refused(saved)


@pytest.mark.parametrize("keep", [0, 40])
def test_truncated_json(saved, keep):
    path = saved / "model.json"
    path.write_text(path.read_text()[:keep])
    assert "must be a JSON file" in refused(saved)


def test_json_in_another_encoding(saved):
    (saved / "model.json").write_bytes(b"\xff\xfe\x00")
    assert "must be a JSON file" in refused(saved)


def test_another_json_file(saved):
    (saved / "model.json").write_text("[1, 2]")
    assert 'must have "format": "linkcal-model"' in refused(saved)


def test_another_version(saved):
    edit(saved, format_version=2)
    assert "must have format_version 1, got 2" in refused(saved)


def test_unknown_model(saved):
    edit(saved, model="gat")
    assert "must name a model of gcn, sage, gin, vgae, peg, seal, got 'gat'" in refused(saved)


def test_missing_key(saved):
    path = saved / "model.json"
    description = json.loads(path.read_text())
    del description["config"]
    path.write_text(json.dumps(description))
    assert "must have the key 'config'" in refused(saved)


@pytest.mark.parametrize(
    "config",
    [
        {"in_channels": 4, "hidden_channels": 5},
        {"in_channels": 4, "hidden_channels": 3, "width": 1},
        {"in_channels": 4, "hidden_channels": -3},
        {"in_channels": 4, "hidden_channels": 3, "num_nodes": 2},
        [4, 3],
    ],
)
def test_config_that_does_not_fit_the_weights(saved, config):
    edit(saved, config=config)
    assert "must hold weights that fit the model gcn" in refused(saved)


def test_weights_of_another_saving(saved, tmp_path):
    other = tmp_path / "other"
    save_model(make_model("gcn", 4, hidden_channels=3, seed=1), other)
    (other / "model.safetensors").replace(saved / "model.safetensors")
    assert "another SHA-256" in refused(saved)


@pytest.mark.parametrize("name", [["gcn"], {}, None])
def test_model_name_that_is_no_text(saved, name):
    edit(saved, model=name)
    with pytest.raises(ArtifactError, match="must name a model of gcn, sage, gin, vgae, peg, seal, got"):
        load_model(saved)


def test_json_nested_beyond_measure(saved):
    (saved / "model.json").write_text("[" * 50_000)
    with pytest.raises(ArtifactError, match="must be a JSON file, got maximum recursion depth"):
        load_model(saved)


def test_numpy_numbers_as_arguments(tmp_path):
    model = make_model("seal", 4, feature_channels=np.int64(2), max_neighbors=np.int64(3))
    save_model(model, tmp_path)
    assert load_model(tmp_path).config == model.config


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_weights_come_back_in_their_own_dtype(dtype, tmp_path):
    model = make_model("gin", 4, hidden_channels=3).to(dtype)  # batch normalisation also counts, in integers
    save_model(model, tmp_path)
    expected, got = model.state_dict(), load_model(tmp_path).state_dict()
    assert all(torch.equal(expected[key], got[key]) for key in expected)
    assert {key: value.dtype for key, value in expected.items()} == {key: v.dtype for key, v in got.items()}


def test_each_weight_keeps_its_own_dtype(tmp_path):
    model = make_model("gin", 4, hidden_channels=3).bfloat16()
    for name, child in model.named_modules():
        if name.endswith(("lin", "lins.1")):
            child.double()
    assert {torch.float64, torch.bfloat16} <= {value.dtype for value in model.state_dict().values()}
    save_model(model, tmp_path)
    expected, got = model.state_dict(), load_model(tmp_path).state_dict()
    assert {key: value.dtype for key, value in expected.items()} == {key: v.dtype for key, v in got.items()}
    assert all(torch.equal(expected[key], got[key]) for key in expected)
