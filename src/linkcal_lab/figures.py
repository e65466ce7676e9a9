"""Reliability diagrams of a sweep's cells, before and after calibration."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linkcal._core.validation import check_choice
from linkcal.calibrators import CALIBRATORS
from linkcal.exceptions import InputError
from linkcal.plots import reliability_figure, save_figure
from linkcal_lab.aggregate import base_model, in_order, row_order_of
from linkcal_lab.store import PREDICTIONS_FILE, read_predictions

#: File formats of figures.
FIGURE_FORMATS = ("svg", "png")
#: What "before and after" shows if nothing else is asked for.
BEFORE_AND_AFTER = ("uncalibrated", "in-n-out", "in-n-out-plus")
_PLACE = re.compile(r"train-(\d+)/([^/]+)/cal-(\d+)(?:\.\d+)?")


@dataclass(frozen=True, eq=False)
class CellPredictions:
    """Test labels (L,) of a cell and the probability (L,) of each calibrator."""

    label: NDArray[np.int8]
    probability: dict[str, NDArray[np.float64]]


@dataclass(frozen=True, order=True)
class _Key:
    """A cell by the names of its folders; `model` has the settings in it."""

    dataset: str
    model: str
    fit_on: str
    train_seed: int
    calibration_seed: int


def find_predictions(store: str | os.PathLike[str]) -> dict[_Key, list[Path]]:
    """Files of predictions in a store, by cell; a cell has several if calibrators were added to it.

    Raises
    ------
    InputError
        If the store is no folder or has no predictions.
    """
    root = Path(store)
    if not root.is_dir():
        raise InputError(f"store must be a sweep's folder, which holds predictions, got {root}")
    found: dict[_Key, list[Path]] = {}
    for path in sorted(root.glob(f"*/*/train-*/*/cal-*/{PREDICTIONS_FILE}")):
        dataset, model, *rest = path.parent.relative_to(root).parts
        place = _PLACE.fullmatch("/".join(rest))
        if place is not None:
            key = _Key(dataset, model, place[2], int(place[1]), int(place[3]))
            found.setdefault(key, []).append(path)
    if not found:
        raise InputError(f"store must hold a finished cell, got none in {root}")
    return found


def cell_predictions(paths: Sequence[Path]) -> CellPredictions:
    """Read the test predictions of one cell.

    Parameters
    ----------
    paths : sequence of Path
        Files of predictions, at least one; the same test links in each.

    Raises
    ------
    InputError
        If a file is damaged, or their links differ.
    """
    label: NDArray[np.int8] | None = None
    probability: dict[str, NDArray[np.float64]] = {}
    for path in paths:
        read = read_predictions(path)
        here = read.label["test"]
        if label is not None and not np.array_equal(label, here):
            raise InputError(f"{path} must hold the cell's {label.size} test links, got {here.size} others")
        label = here
        probability |= dict(zip(read.calibrators, read.probability["test"], strict=True))
    if label is None:
        raise InputError("paths must hold at least one file, got none")
    return CellPredictions(label, {name: probability[name] for name in in_order(probability, CALIBRATORS)})


def draw_figures(
    store: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    train_seed: int | None = None,
    calibration_seed: int | None = None,
    calibrators: Sequence[str] | None = None,
    each: bool = False,
    formats: Sequence[str] = FIGURE_FORMATS,
) -> Iterator[Path]:
    """Draw the reliability diagrams of a sweep; the same store gives the same bytes.

    ``uncalibrated`` has every data set and model; ``<data set>-<fit_on>`` each model of a data set before and
    after calibration; with `each`, ``<data set>-<model>-<fit_on>`` every calibrator.

    Parameters
    ----------
    store : path
        A sweep's folder.
    out : path
        Made if it is not there.
    train_seed, calibration_seed : int, optional
        Which cell stands for its row; the smallest seed that there is without it.
    calibrators : sequence of str, optional
        What ``<data set>-<fit_on>`` shows, a column each; by default uncalibrated, in-n-out and in-n-out-plus
        where the sweep has all of them, else all that it has; what a cell lacks is shown as not measured. Any
        figure of which nothing was measured is left out.
    each : bool
    formats : sequence of {"svg", "png"}

    Yields
    ------
    Path
        Each file when it is written.

    Raises
    ------
    InputError
        If the store has no such cell, or none of `calibrators`, or a name, format or file is wrong. What can
        be told before the first figure is told then.
    """
    for name in formats:
        check_choice(name, "format", FIGURE_FORMATS)
    for name in calibrators or ():
        check_choice(name, "calibrator", CALIBRATORS)
    formats = tuple(dict.fromkeys(formats))
    cells = _chosen(find_predictions(store), train_seed, calibration_seed)
    measured = {name for paths in cells.values() for path in paths for name in _names(path)}
    if calibrators is None:
        usual = measured >= set(BEFORE_AND_AFTER)
        calibrators = BEFORE_AND_AFTER if usual else in_order(measured, CALIBRATORS)
    calibrators = tuple(dict.fromkeys(calibrators))
    if not measured & set(calibrators):
        raise InputError(
            f"calibrators must name one that the cells have, {', '.join(in_order(measured, CALIBRATORS))}; "
            f"got {', '.join(calibrators) or 'none'}"
        )
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    for name, options in _plans(cells, calibrators, each=each):
        if all(probability is None for probability in options["probabilities"].values()):
            continue
        figure = reliability_figure(**options)
        for suffix in formats:
            save_figure(figure, folder / f"{name}.{suffix}")
            yield folder / f"{name}.{suffix}"


def _names(path: Path) -> list[str]:
    """Calibrators in a file of predictions."""
    return list(read_predictions(path).calibrators)


def _chosen(
    found: dict[_Key, list[Path]], train_seed: int | None, calibration_seed: int | None
) -> dict[_Key, list[Path]]:
    """One cell for each data set, model and fit_on: that of the asked seeds, else of the smallest."""
    chosen: dict[tuple[str, str, str], _Key] = {}
    for key in sorted(found):
        asked = train_seed in (None, key.train_seed) and calibration_seed in (None, key.calibration_seed)
        if asked:
            chosen.setdefault((key.dataset, key.model, key.fit_on), key)
    if not chosen:
        raise InputError(
            f"seeds must be those of a finished cell, got train {train_seed}, calibration {calibration_seed}"
        )
    return {key: found[key] for key in chosen.values()}


def _plans(
    cells: dict[_Key, list[Path]], calibrators: Sequence[str], *, each: bool
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and arguments of each figure, one at a time: those of a large sweep do not fit into memory."""
    rows = row_order_of({(key.dataset, key.model) for key in cells})
    yield "uncalibrated", _uncalibrated(cells, rows)
    by_place = {(key.dataset, key.model, key.fit_on): key for key in cells}
    for fit_on in dict.fromkeys(key.fit_on for key in cells):
        for dataset in dict.fromkeys(d for d, _ in rows):
            here = [by_place[d, m, fit_on] for d, m in rows if d == dataset and (d, m, fit_on) in by_place]
            if not here:
                continue
            yield f"{dataset}-{fit_on}", _before_and_after(cells, here, calibrators)
            for key in here if each else ():
                read = cell_predictions(cells[key])
                title = f"{key.model} on {key.dataset}, {_fitted([key])}"
                options = {"y_true": read.label, "probabilities": read.probability, "title": title}
                yield f"{dataset}-{key.model}-{fit_on}", options


def _fitted(keys: Sequence[_Key]) -> str:
    """What calibrators were fitted on and which seeds are drawn, for the heading."""
    seeds = {(key.train_seed, key.calibration_seed) for key in keys}
    if len(seeds) > 1:
        return f"fitted on {keys[0].fit_on}, first seeds of each row"
    training, calibration = seeds.pop()
    return f"fitted on {keys[0].fit_on}, training seed {training}, calibration seed {calibration}"


def _shown_models(models: Iterable[str]) -> tuple[dict[str, str], str]:
    """What to call each model in a panel, and the settings that all share, for the heading."""
    names = list(dict.fromkeys(models))
    settings = {name.partition("~")[2] for name in names}
    if len(settings) > 1:
        return {name: name for name in names}, ""
    common = settings.pop().replace("~", ", ")
    return {name: base_model(name) for name in names}, f" ({common})" if common else ""


def _uncalibrated(cells: dict[_Key, list[Path]], rows: list[tuple[str, str]]) -> dict[str, Any]:
    """The same test links whatever calibrators were fitted on, so the first cell of a row will do."""
    first: dict[tuple[str, str], _Key] = {}
    for key in cells:
        first.setdefault((key.dataset, key.model), key)
    labels: dict[str, Any] = {}
    probabilities: dict[str, Any] = {}
    models, settings = _shown_models(model for _, model in rows)
    for dataset, model in rows:
        read = cell_predictions(cells[first[dataset, model]])
        name = f"{dataset} / {models[model]}"
        labels[name], probabilities[name] = read.label, read.probability.get("uncalibrated")
    return {
        "y_true": labels,
        "probabilities": probabilities,
        "title": f"Uncalibrated predictors{settings}",
        "n_columns": max(3, len(models)),
    }


def _before_and_after(
    cells: dict[_Key, list[Path]], keys: list[_Key], calibrators: Sequence[str]
) -> dict[str, Any]:
    labels: dict[str, Any] = {}
    probabilities: dict[str, Any] = {}
    models, settings = _shown_models(key.model for key in keys)
    for key in keys:
        read = cell_predictions(cells[key])
        for calibrator in calibrators:
            name = f"{models[key.model]} / {calibrator}"
            labels[name], probabilities[name] = read.label, read.probability.get(calibrator)
    return {
        "y_true": labels,
        "probabilities": probabilities,
        "title": f"{keys[0].dataset}{settings}, {_fitted(keys)}",
        "n_columns": len(calibrators),
    }
