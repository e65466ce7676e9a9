"""The default presets on Cora: what a stranger's first run must show."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from sklearn.metrics import roc_auc_score

from linkcal.data import LinkSplit, load_dataset, split_links
from linkcal.metrics import expected_calibration_error
from linkcal.models import MODELS, make_model, train_link_predictor

pytestmark = [pytest.mark.realdata, pytest.mark.slow]


@pytest.fixture(scope="module")
def split() -> LinkSplit:
    if not os.environ.get("LINKCAL_DATA_ROOT"):
        pytest.skip("needs the raw data sets: set LINKCAL_DATA_ROOT")
    return split_links(load_dataset("cora", data_root=Path(os.environ["LINKCAL_DATA_ROOT"])), seed=0)


@pytest.mark.parametrize(
    ("name", "lowest"), [("vgae", 0.87), ("gcn", 0.87), ("sage", 0.87), ("gin", 0.85), ("peg", 0.86)]
)
def test_default_preset_reaches_the_expected_auc(name, lowest, split):
    graph, test = split.graph, split.test
    model = make_model(name, graph.x.size(1), seed=0)
    graph = model.prepare(graph)
    split = replace(split, graph=graph)
    train_link_predictor(model, split, MODELS[name].presets["default"].training, seed=0)
    with torch.no_grad():
        logit = model(graph.node_input, graph.edge_index, test.edge_label_index)
    assert roc_auc_score(test.edge_label, logit) >= lowest
    if name == "vgae":
        ece = expected_calibration_error(test.edge_label.numpy(), logit.double().sigmoid().numpy())
        assert 0.12 <= ece <= 0.18
