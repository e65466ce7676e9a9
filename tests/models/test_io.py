import hashlib
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import torch as safetensors

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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"format": "linkcal-model", "for', "must be a JSON file"),
        (b"\xff\xfe\x00", "must be a JSON file"),
        (b"[" * 50_000, "must be a JSON file, got maximum recursion depth"),
        (b"[1, 2]", 'must have "format": "linkcal-model"'),
    ],
)
def test_other_descriptions(saved, text, message):
    (saved / "model.json").write_bytes(text)
    assert message in refused(saved)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format_version": 2}, "must have format_version 1, got 2"),
        ({"model": "gat"}, "must name a model of gcn, sage, gin, vgae, peg, seal, got 'gat'"),
        ({"model": ["gcn"]}, "must name a model of gcn, sage, gin, vgae, peg, seal, got ['gcn']"),
    ],
)
def test_another_version_or_model(saved, changes, message):
    edit(saved, **changes)
    assert message in refused(saved)


@pytest.mark.parametrize(
    "config",
    [
        {"in_channels": 4, "hidden_channels": 3, "width": 1},
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
    assert "must fit the SHA-256" in refused(saved)


def forged(folder: Path, config: dict, state: dict[str, torch.Tensor]) -> str:
    """Refusal of a folder whose files fit each other by their hash."""
    weights = safetensors.save(state)
    (folder / "model.safetensors").write_bytes(weights)
    edit(folder, config=config, weights_sha256=hashlib.sha256(weights).hexdigest())
    return refused(folder)


@pytest.mark.parametrize(
    ("change", "came"),
    [
        ({"num_layers": 10**7}, "num_layers = 10000000 with 4 tensors"),
        ({"hidden_channels": 10**9}, "size mismatch for gnn.convs.0.bias"),
        ({"num_nodes": 10**12}, "Missing key(s) in state_dict"),
        ({"hidden_channels": 10**40}, ""),
        ({"in_channels": [[[4]]]}, "in_channels must be a whole number >= 1"),
    ],
)
def test_forged_sizes_are_refused_before_memory_is_taken(saved, change, came):
    model = load_model(saved)
    tracemalloc.start()
    assert came in forged(saved, {**model.config, **change}, model.state_dict())
    assert tracemalloc.get_traced_memory()[1] < 50e6
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("weight", "came"),
    [
        (torch.zeros(3, 4, dtype=torch.int64), "gnn.convs.0.lin.weight of dtype torch.int64"),
        (torch.zeros(3, 4, dtype=torch.float8_e5m2), "gnn.convs.0.lin.weight of dtype torch.float8_e5m2"),
        (torch.zeros(12), "size mismatch for gnn.convs.0.lin.weight"),
    ],
)
def test_forged_weights(saved, weight, came):
    model = load_model(saved)
    assert came in forged(saved, model.config, {**model.state_dict(), "gnn.convs.0.lin.weight": weight})


def test_a_compiled_model_is_saved_as_itself(tmp_path):
    model = make_model("gcn", 4, hidden_channels=3)
    save_model(torch.compile(model), tmp_path)
    assert load_model(tmp_path).state_dict().keys() == model.state_dict().keys()


def test_numpy_numbers_as_arguments(tmp_path):
    model = make_model("seal", 4, feature_channels=np.int64(2), max_neighbors=np.int64(3))
    save_model(model, tmp_path)
    assert load_model(tmp_path).config == model.config


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_weights_keep_their_dtype(tmp_path, dtype):
    model = make_model("gin", 4, hidden_channels=3).to(dtype)  # normalisation also counts, in integers
    save_model(model, tmp_path)
    expected, got = model.state_dict(), load_model(tmp_path).state_dict()
    assert {key: value.dtype for key, value in expected.items()} == {key: v.dtype for key, v in got.items()}
    assert all(torch.equal(expected[key], got[key]) for key in expected)
