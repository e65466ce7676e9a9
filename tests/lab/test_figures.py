"""Figures of a small store: which there are, what is in them, and equal bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from linkcal.exceptions import InputError
from linkcal_lab.figures import _chosen, _plans, cell_predictions, draw_figures, find_predictions
from linkcal_lab.store import PREDICTIONS_FILE, Predictions, write_predictions

NAMES = ("uncalibrated", "in-n-out", "in-n-out-plus")


def write_cell(
    store: Path, place: str, names: tuple[str, ...] = NAMES, *, seed: int = 0, n: int = 80
) -> Path:
    rng = np.random.default_rng(seed)
    truth = rng.random(n)
    folder = store / place
    folder.mkdir(parents=True)
    probability = np.stack([truth ** (1 + i) for i in range(len(names))])
    label = (rng.random(n) < truth).astype(np.int8)
    nothing = np.zeros((len(names), 0))
    predictions = Predictions(
        names,
        label={"val": label[:0], "test": label},
        logit={"val": nothing, "test": np.zeros_like(probability)},
        probability={"val": nothing, "test": probability},
    )
    write_predictions(predictions, folder / PREDICTIONS_FILE)
    return folder / PREDICTIONS_FILE


@pytest.fixture
def store(tmp_path) -> Path:
    root = tmp_path / "store"
    for model in ("vgae", "gcn~preset=paper"):
        write_cell(root, f"cora/{model}/train-0/val/cal-0")
    write_cell(root, "cora/vgae/train-0/val/cal-1", seed=1)
    write_cell(root, "cora/vgae/train-1/val/cal-0", seed=2)
    write_cell(root, "pubmed/vgae/train-0/train-loo/cal-0", ("uncalibrated", "in-n-out"), seed=3)
    return root


def test_one_figure_for_each_data_set_and_fit_on(store, tmp_path):
    paths = list(draw_figures(store, tmp_path / "out"))
    names = ["uncalibrated", "cora-val", "pubmed-train-loo"]
    assert sorted(p.name for p in paths) == sorted(f"{n}.{s}" for n in names for s in ("svg", "png"))
    assert sorted(tmp_path.joinpath("out").iterdir()) == sorted(paths)


def test_each_adds_every_calibrator(store, tmp_path):
    paths = list(draw_figures(store, tmp_path / "out", each=True, formats=["svg"]))
    assert {"cora-vgae-val.svg", "cora-gcn~preset=paper-val.svg", "pubmed-vgae-train-loo.svg"} <= {
        p.name for p in paths
    }


def test_same_store_same_bytes(store, tmp_path):
    first = list(draw_figures(store, tmp_path / "a"))
    second = list(draw_figures(store, tmp_path / "b"))
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]
    svg = (tmp_path / "a" / "cora-val.svg").read_text(encoding="utf-8")
    assert "<dc:date>" not in svg


def test_seeds_choose_the_cell(store, tmp_path):
    by_seed = {
        seed: next(iter(draw_figures(store, tmp_path / str(seed), train_seed=seed, formats=["png"])))
        for seed in (0, 1)
    }
    assert by_seed[0].read_bytes() != by_seed[1].read_bytes()
    with pytest.raises(InputError, match="seeds must be those of a finished cell, got train 9"):
        next(draw_figures(store, tmp_path / "out", train_seed=9))


def test_added_calibrators_belong_to_their_cell(store):
    write_cell(store, "cora/vgae/train-0/val/cal-0.2", ("platt",))
    found = find_predictions(store)
    (key,) = [
        k
        for k in found
        if (k.model, k.train_seed, k.calibration_seed) == ("vgae", 0, 0) and k.dataset == "cora"
    ]
    assert len(found[key]) == 2
    assert list(cell_predictions(found[key]).probability) == [
        "uncalibrated",
        "platt",
        "in-n-out",
        "in-n-out-plus",
    ]


def test_damaged_and_foreign_files(store, tmp_path):
    foreign = write_cell(tmp_path, "other", ("platt",), n=7)
    first = next(iter(find_predictions(store).values()))
    with pytest.raises(InputError, match="must hold the cell's 80 test links, got 7 others"):
        cell_predictions([*first, foreign])
    foreign.write_bytes(foreign.read_bytes()[:100])
    with pytest.raises(InputError, match="predictions must be an npz file of plain arrays, got"):
        cell_predictions([foreign])


def test_settings_that_all_models_share_stand_in_the_heading(tmp_path):
    for model in ("vgae~epochs=3", "gcn~epochs=3"):
        write_cell(tmp_path, f"cora/{model}/train-0/val/cal-0")
    plans = dict(_plans(_chosen(find_predictions(tmp_path), None, None), ["uncalibrated"], each=False))
    assert plans["uncalibrated"]["title"] == "Uncalibrated predictors (epochs=3)"
    assert list(plans["uncalibrated"]["probabilities"]) == ["cora / vgae", "cora / gcn"]
    expected = "cora (epochs=3), fitted on val, training seed 0, calibration seed 0"
    assert plans["cora-val"]["title"] == expected
    assert list(plans["cora-val"]["probabilities"]) == ["vgae / uncalibrated", "gcn / uncalibrated"]


def test_rows_of_different_seeds_are_not_called_one_seed(tmp_path):
    write_cell(tmp_path, "cora/vgae/train-0/val/cal-0")
    write_cell(tmp_path, "cora/gcn/train-3/val/cal-0")
    plans = dict(_plans(_chosen(find_predictions(tmp_path), None, None), ["uncalibrated"], each=False))
    assert plans["cora-val"]["title"] == "cora, fitted on val, first seeds of each row"


def test_no_store(tmp_path):
    with pytest.raises(InputError, match="store must be a sweep's folder, which holds predictions, got"):
        next(draw_figures(tmp_path / "none", tmp_path / "out"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="store must hold a finished cell, got none"):
        next(draw_figures(tmp_path / "empty", tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_store_without_uncalibrated_predictors_has_figures_of_the_rest(tmp_path):
    write_cell(tmp_path / "store", "cora/vgae/train-0/val/cal-0", ("platt", "isotonic"))
    write_cell(tmp_path / "store", "cora/vgae/train-0/train/cal-0", ("isotonic",))
    paths = draw_figures(
        tmp_path / "store", tmp_path / "out", calibrators=["platt", "platt"], formats=["svg", "svg"]
    )
    assert [path.name for path in paths] == ["cora-val.svg"]


@pytest.mark.parametrize(
    ("calibrators", "message"),
    [
        (["plat"], "calibrator must be one of .*did you mean 'platt'"),
        (["bbq"], "calibrators must name one that the cells have, uncalibrated, .*; got bbq"),
        ([], "calibrators must name one that the cells have, .*; got none"),
    ],
)
def test_calibrators_that_no_cell_has_are_told_before_anything_is_drawn(
    store, tmp_path, calibrators, message
):
    with pytest.raises(InputError, match=message):
        list(draw_figures(store, tmp_path / "out", calibrators=calibrators))
    assert not (tmp_path / "out").exists()
