"""``linkcal select``: which of the asked pairs to call links, with a bound on the share of false ones."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from linkcal._files import written_whole
from linkcal.cli.console import log
from linkcal.cli.options import BaseRateOption, as_base_rate, check_output_file

if TYPE_CHECKING:
    import torch

    from linkcal.data import PairChunk

__all__ = ["select"]

_COLUMNS = ("source", "target", "probability", "p_value")


def select(
    folder: Annotated[Path, typer.Argument(help="Folder of `linkcal run` or `linkcal fit`.", metavar="DIR")],
    pairs: Annotated[Path, typer.Argument(help="Pairs: .csv, .tsv, .parquet or .npz.", metavar="PAIRS")],
    fdr: Annotated[
        float, typer.Option("--fdr", help="Bound on the share of non-links among those listed.")
    ] = 0.1,
    null: Annotated[
        Path | None,
        typer.Option(
            "--null",
            help="Pairs without a link that were chosen as the asked pairs were; default: those of the "
            "folder, of the kind of its calibration non-links.",
            metavar="PAIRS",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="CSV file; default: stdout.")] = None,
    calibrator: Annotated[
        str | None, typer.Option("--calibrator", help="Default: the one selected when the folder was made.")
    ] = None,
    base_rate: BaseRateOption = None,
    source: Annotated[str, typer.Option("--source", help="Column of the pairs' first node.")] = "source",
    target: Annotated[str, typer.Option("--target", help="Column of the pairs' second node.")] = "target",
) -> None:
    """List those of the asked pairs to call links; on average at most a share `--fdr` of them are none.

    Conformal p-values against pairs that nothing was fitted on, and Benjamini-Hochberg. The bound needs asked
    non-links that are like the null pairs: by default of the kind of the folder's calibration non-links,
    which is uniform unless it was made with `--negatives`; give `--null` for asked pairs chosen otherwise.
    Known edges are left out. The order is that of the file; all asked pairs are held in memory.
    """
    import torch

    from linkcal.data import NodeIds, read_pairs
    from linkcal.wrapper import CalibratedLinkPredictor

    check_output_file(out, pairs)
    predictor = CalibratedLinkPredictor.load(folder, calibrator=calibrator)
    wanted = as_base_rate(base_rate)
    rate = predictor.base_rate if wanted is None else predictor.resolve_base_rate(wanted)
    node_ids = predictor.node_ids_ or NodeIds.range(predictor.graph_.num_nodes)
    chunks = list(read_pairs(pairs, node_ids, source=source, target=target))
    asked = _joined([chunk.edge_label_index for chunk in chunks])
    null_pairs = None
    if null is not None:
        null_chunks = read_pairs(null, node_ids, source=source, target=target)
        null_pairs = _joined([chunk.edge_label_index for chunk in null_chunks])
        null_pairs = null_pairs[:, ~predictor.known_edges(null_pairs)]
    found = predictor.select(asked, fdr=fdr, null_pairs=null_pairs)
    rows = torch.nonzero(found.selected).flatten()
    p = predictor.predict_proba(asked[:, rows], base_rate=wanted)
    values = list(zip(p.tolist(), found.p_value[rows].tolist(), strict=True))
    if out is None:
        _write(chunks, found.selected, values, sys.stdout)
    else:
        with written_whole(out) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
            _write(chunks, found.selected, values, file)
    kind = "given" if null is not None else predictor.info_.get("negatives") or "uniform"
    tested = asked.size(1) - int(found.known.sum())
    log(
        f"{rows.numel():,} of {tested:,} pairs selected at a false discovery rate of {fdr:g} "
        f"({int(found.known.sum()):,} known edges left out); {found.num_null:,} null pairs, "
        f"{kind}: the bound holds for asked non-links that are like them. Probabilities hold for a base rate "
        f"of {rate:.4g}."
    )
    if found.num_tested and not rows.numel():
        smallest, step = float(found.p_value[~found.known].min()), fdr / found.num_tested
        log(
            f"None stands out: the smallest p-value is {smallest:.4g}, and k of {found.num_tested:,} "
            f"different pairs are selected if k p-values are at most k times {step:.4g} (none is below "
            f"1 / (null pairs + 1) = {1 / (found.num_null + 1):.4g})."
        )


def _joined(parts: list[torch.Tensor]) -> torch.Tensor:
    import torch

    return torch.cat([torch.empty(2, 0, dtype=torch.int64), *parts], dim=1)


def _write(
    chunks: list[PairChunk], selected: torch.Tensor, values: list[tuple[float, float]], file: TextIO
) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(_COLUMNS)
    left = iter(values)
    for chunk in chunks:
        chosen = selected[chunk.first_row : chunk.first_row + len(chunk)].tolist()
        names = zip(chunk.source.to_pylist(), chunk.target.to_pylist(), chosen, strict=True)
        writer.writerows((u, v, *next(left)) for u, v, taken in names if taken)
