"""Options that mean the same in every command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
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
    "Seed",
]

Model = Annotated[str, typer.Option("--model", help="Link predictor; see `linkcal list models`.")]
Seed = Annotated[int, typer.Option("--seed", help="The one seed; same seed, same numbers.")]
FitOnOption = Annotated[
    str,
    typer.Option(
        "--fit-on",
        help="Links that calibrators are fitted on: val, train-loo (training links without their own edge), "
        "train (training links as they are).",
    ),
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]
Epochs = Annotated[int | None, typer.Option("--epochs", help="Most training epochs; default: the preset's.")]
BatchSize = Annotated[
    int | None, typer.Option("--batch-size", help="Training links per step; default: the preset's.")
]
Preset = Annotated[str, typer.Option("--preset", help="Hyper-parameters: default or paper.")]
Out = Annotated[Path | None, typer.Option("--out", help="Folder for the results.")]
Json = Annotated[bool, typer.Option("--json", help="Print metrics.json to stdout instead of a table.")]
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
