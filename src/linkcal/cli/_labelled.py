"""`linkcal check`, `linkcal threshold` and `linkcal refresh`, which read newly labelled pairs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from linkcal.cli._console import (
    BaseRateOption,
    CalibratorOption,
    Folder,
    as_base_rate,
    log,
    with_table_format,
)
from linkcal.cli._scoring import load_folder

if TYPE_CHECKING:
    from torch import Tensor

    from linkcal.predictor import CalibratedLinkPredictor

_PAIRS = "Pairs that the calibrator was not fitted on: .csv, .tsv, .parquet or .npz."
New = Annotated[Path, typer.Argument(help=_PAIRS, metavar="NEW")]
Label = Annotated[str, typer.Option(help="Column of 1 (link) and 0 (negative).")]
_LABEL = "Column of 1 (link) and 0 (negative); default: `label` if there is one, else no labels."
_ALPHA = "Chance of an alarm, in (0, 1), if the probabilities are exact."
#: Exit code of an alarm, which is no error.
ALARM = 3


@with_table_format
def check(
    folder: Folder,
    new: New,
    label: Annotated[str | None, typer.Option(help=_LABEL)] = None,
    alpha: Annotated[float, typer.Option(help=_ALPHA)] = 0.05,
    calibrator: CalibratorOption = None,
    base_rate: BaseRateOption = None,
    *,
    table: dict[str, Any],
) -> None:
    """Test that the calibration still holds for new pairs; exit code 3 is an alarm.

    With the column `--label`, in the order in which the labels came: whether the probabilities hold, overall
    and by segment, after each label. Without it: whether the pairs look like the calibration links and
    negatives, which they do not where they were chosen otherwise or have another share of links
    (`--base-rate`).
    """
    predictor, pairs, labels = _read(folder, new, calibrator, label or "label", optional=not label, **table)
    if labels is None:
        log(f"no column 'label' in {new}: tested without labels")
    found = predictor.check(pairs, labels, base_rate=as_base_rate(base_rate), alpha=alpha)
    typer.echo(str(found))
    if found.alarm:
        raise typer.Exit(ALARM)


@with_table_format
def threshold(
    folder: Folder,
    new: New,
    precision: Annotated[float | None, typer.Option(help="Wanted precision, in (0, 1).")] = None,
    recall: Annotated[float | None, typer.Option(help="Wanted recall, in (0, 1).")] = None,
    confidence: Annotated[float, typer.Option(help="Probability that it is reached.")] = 0.95,
    label: Label = "label",
    calibrator: CalibratorOption = None,
    base_rate: BaseRateOption = None,
    *,
    table: dict[str, Any],
) -> None:
    """Probability from which on to call pairs links, for a precision or a recall tested on labelled pairs."""
    from linkcal._core.files import to_json
    from linkcal.data import LinkPairs

    predictor, pairs, labels = _read(folder, new, calibrator, label, **table)
    found = predictor.threshold_for(
        LinkPairs(pairs, labels), precision=precision, recall=recall, confidence=confidence,
        base_rate=as_base_rate(base_rate),
    )  # fmt: skip
    typer.echo(to_json(asdict(found)))


@with_table_format
def refresh(
    folder: Folder,
    new: New,
    out: Annotated[Path, typer.Option(help="New folder for the refreshed predictor.")],
    label: Label = "label",
    calibrator: CalibratorOption = None,
    *,
    table: dict[str, Any],
) -> None:
    """Move calibrated logits by one number, so that their mean fits newly labelled pairs; the ranking stays.

    Their share of links becomes the base rate, unless the folder was made with `--base-rate`, which is kept.
    `linkcal score`, `select` and `top` read the new folder.
    """
    from linkcal.artifact import check_artifact_folder
    from linkcal.exceptions import InputError

    if out.exists():
        raise InputError(f"out must be a new folder, got {out}, which exists")
    check_artifact_folder(out)
    predictor, pairs, labels = _read(folder, new, calibrator, label, **table)
    predictor.refresh(pairs, labels)
    predictor.save(out)
    record = predictor.info_["refresh"]
    log(
        f"{record['links']:,} labelled pairs, {record['positives']:,} of them links: calibrated logits moved "
        f"by {record['offset']:+.3f} +- {record['standard_error']:.3f}; written to {out}"
    )


def _read(
    folder: Path, new: Path, calibrator: str | None, label: str, **options: Any
) -> tuple[CalibratedLinkPredictor, Tensor, Any]:
    """The predictor, and pairs and labels as :func:`linkcal.data.read_labelled_pairs` gives them."""
    from linkcal.data import read_labelled_pairs

    predictor, node_ids = load_folder(folder, calibrator)
    pairs, labels = read_labelled_pairs(new, node_ids, label=label, **options)
    return predictor, pairs, labels
