"""Options that mean the same in every command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from linkcal._files import require_writable
from linkcal.exceptions import InputError

__all__ = [
    "BaseRateOption",
    "BatchSize",
    "Device",
    "Epochs",
    "FitOnOption",
    "Json",
    "Model",
    "Negatives",
    "NegativesPerPositive",
    "Out",
    "Preset",
    "Protocol",
    "RunBaseRate",
    "Seed",
    "as_base_rate",
    "check_output_file",
]

Model = Annotated[str, typer.Option("--model", help="Link predictor; see `linkcal list models`.")]
Seed = Annotated[int, typer.Option("--seed", help="The one seed; same seed, same numbers.")]
FitOnOption = Annotated[
    str | None,
    typer.Option(
        "--fit-on",
        help="Links that calibrators are fitted on: val, train-loo (training links without their own edge), "
        "train (training links as they are), stacked (val, and in-n-out-plus builds on train-loo); default: "
        "the protocol's, val without one.",
    ),
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]
Epochs = Annotated[int | None, typer.Option("--epochs", help="Most training epochs; default: the preset's.")]
BatchSize = Annotated[
    int | None, typer.Option("--batch-size", help="Training links per step; default: the preset's.")
]
Preset = Annotated[
    str | None,
    typer.Option(
        "--preset",
        help="Hyper-parameters: default, paper, or a FILE.json of `linkcal search`. Not given: the "
        "protocol's, default without one.",
    ),
]
Protocol = Annotated[
    str,
    typer.Option(
        "--protocol",
        help="default, paper or released-code: split, training, calibrators' settings and the metric that "
        "stands for each. Other options win over it, and the run records that.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", help="Folder for the results; default: one under runs/, named by the settings."),
]
Json = Annotated[bool, typer.Option("--json", help="Print metrics.json to stdout instead of a table.")]
_BASE_RATE = (
    "Share of links among the pairs that probabilities are for, or `density`: the share of all pairs that "
    "are edges of the message graph."
)
BaseRateOption = Annotated[
    str | None,
    typer.Option(
        "--base-rate",
        metavar="RATE|density",
        help=f"{_BASE_RATE} Default: what the folder was made with, else that of the calibration links.",
    ),
]
RunBaseRate = Annotated[
    str | None,
    typer.Option(
        "--base-rate",
        metavar="RATE|density",
        help=f"{_BASE_RATE} Default: that of the calibration links. The folder keeps it for later scores.",
    ),
]
NegativesPerPositive = Annotated[
    float,
    typer.Option(
        "--negatives-per-positive", help="Non-links drawn for each link, in every part of the split."
    ),
]
Negatives = Annotated[
    str,
    typer.Option(
        "--negatives",
        help="Non-links to calibrate and measure with: uniform, degree (endpoints drawn by degree), two-hop "
        "(pairs with a common neighbour).",
    ),
]


def check_output_file(out: Path | None, asked: Path | None = None) -> None:
    """Refuse an output file that could not be written, or that is the file of asked pairs."""
    if out is None:
        return
    if out.is_dir() or not out.parent.is_dir():
        raise InputError(f"out must be a file in an existing folder, got {out}")
    if asked is not None and out.resolve() == asked.resolve():
        raise InputError(f"out must be another file than the pairs, got {out} for both")
    require_writable(out.parent, "out")


def as_base_rate(text: str | None) -> Any:
    """A number where the text is one; anything else is left to the library's own check."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text
