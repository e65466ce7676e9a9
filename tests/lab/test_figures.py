"""Figures of a small store: which there are, what is in them, and equal bytes."""

from pathlib import Path

import numpy as np
import pytest

from linkcal_lab import figures as module
from linkcal_lab.figures import cell_predictions, draw_figures, find_predictions
from linkcal_lab.store import PREDICTIONS_FILE, Predictions, write_predictions
from refusals import refuses

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


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """Title and panels of each figure of a store; nothing is drawn."""

    def drawn(store, **options):
        found = []
        monkeypatch.setattr(module, "save_figure", lambda _figure, _path: None)
        monkeypatch.setattr(module, "reliability_figure", lambda **options: found.append(options))
        paths = list(draw_figures(store, tmp_path / "none", formats=["svg", "svg"], **options))
        return {p.stem: (o["title"], list(o["probabilities"])) for p, o in zip(paths, found, strict=True)}

    return drawn


def test_same_store_same_bytes(store, tmp_path):
    first, second = (list(draw_figures(store, tmp_path / name)) for name in ("a", "b"))
    names = ["uncalibrated", "cora-val", "pubmed-train-loo"]
    assert sorted(p.name for p in first) == sorted(f"{n}.{s}" for n in names for s in ("svg", "png"))
    assert sorted(tmp_path.joinpath("a").iterdir()) == sorted(first)
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]


def test_each_adds_every_calibrator(store, drawn):
    assert drawn(store, each=True).keys() == {
        "uncalibrated", "cora-val", "pubmed-train-loo",
        "cora-vgae-val", "cora-gcn~preset=paper-val", "pubmed-vgae-train-loo",
    }  # fmt: skip


def test_seeds_choose_the_cell(store, drawn):
    title = "cora, fitted on val, training seed {}, calibration seed {}"
    assert drawn(store)["cora-val"][0] == title.format(0, 0)
    assert drawn(store, train_seed=1)["cora-val"][0] == title.format(1, 0)
    assert drawn(store, calibration_seed=1)["cora-val"][0] == title.format(0, 1)
    refuses("seeds must be those of a finished cell, got train 9", drawn, store, train_seed=9)


def test_damaged_and_foreign_files(store, tmp_path):
    foreign = write_cell(tmp_path, "other", ("platt",), n=7)
    first = next(iter(find_predictions(store).values()))
    refuses("must hold the cell's 80 test links, got 7 others", cell_predictions, [*first, foreign])
    foreign.write_bytes(foreign.read_bytes()[:100])
    refuses("predictions must be an npz file of plain arrays, got", cell_predictions, [foreign])


def test_no_store(tmp_path):
    (tmp_path / "empty").mkdir()
    for name, message in (("none", "store must be a sweep's folder"), ("empty", "must hold a finished cell")):
        refuses(message, next, draw_figures(tmp_path / name, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("calibrators", "message"),
    [
        (["plat"], "did you mean 'platt'"),
        (["bbq"], "must name one that the cells have, uncalibrated, .*; got bbq"),
        ([], "got none"),
    ],
)
def test_calibrators_that_no_cell_has_are_told_before_anything_is_drawn(
    store, tmp_path, calibrators, message
):
    refuses(message, list, draw_figures(store, tmp_path / "out", calibrators=calibrators))
    assert not (tmp_path / "out").exists()
