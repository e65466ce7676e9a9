"""``linkcal score``: calibrated probabilities of asked pairs, streamed."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from linkcal._files import written_whole
from linkcal.cli.console import log

if TYPE_CHECKING:
    from linkcal.data import PairChunk
    from linkcal.wrapper import CalibratedLinkPredictor

__all__ = ["score"]

_COLUMNS = ("source", "target", "logit", "probability", "in_graph")


def score(
    folder: Annotated[Path, typer.Argument(help="Folder of `linkcal run` or `linkcal fit`.", metavar="DIR")],
    pairs: Annotated[Path, typer.Argument(help="Pairs: .csv, .tsv, .parquet or .npz.", metavar="PAIRS")],
    out: Annotated[Path | None, typer.Option("--out", help="CSV file; default: stdout.")] = None,
    calibrator: Annotated[
        str | None, typer.Option("--calibrator", help="Default: the one selected when the folder was made.")
    ] = None,
    source: Annotated[str, typer.Option("--source", help="Column of the pairs' first node.")] = "source",
    target: Annotated[str, typer.Option("--target", help="Column of the pairs' second node.")] = "target",
    chunk_size: Annotated[int, typer.Option("--chunk-size", help="Pairs held at once.")] = 100_000,
) -> None:
    """Calibrated probability of each asked pair, in the order asked.

    `logit` is the model's uncalibrated score. A pair that is already a known edge is scored with that edge
    removed and flagged in `in_graph`. Scores are computed on the message graph that the calibrator was
    fitted with.
    """
    from linkcal.data import NodeIds, read_pairs
    from linkcal.experiments import ARTIFACT_FOLDER
    from linkcal.wrapper import CalibratedLinkPredictor

    artifact_folder = folder / ARTIFACT_FOLDER if (folder / ARTIFACT_FOLDER).is_dir() else folder
    predictor = CalibratedLinkPredictor.load(artifact_folder, calibrator=calibrator)
    node_ids = predictor.node_ids_ or NodeIds.range(predictor.graph_.num_nodes)
    chunks = read_pairs(pairs, node_ids, source=source, target=target, chunk_size=chunk_size)
    note = _provenance(predictor)
    if out is None:
        _write(chunks, predictor, sys.stdout)
        log(note["statement"])
        return
    with written_whole(out) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        total = _write(chunks, predictor, file)
    side = out.with_name(out.name + ".meta.json")
    with written_whole(side) as temporary:
        temporary.write_text(json.dumps({"pairs": total, **note}, indent=2) + "\n", encoding="utf-8")
    log(f"{total:,} pairs: {out}; how they were scored: {side}")


def _write(chunks: Iterator[PairChunk], predictor: CalibratedLinkPredictor, file: TextIO) -> int:
    writer = csv.writer(file, lineterminator="\n")
    # A file that cannot be read must not leave a header on stdout.
    first = next(chunks, None)
    writer.writerow(_COLUMNS)
    total = 0
    for chunk in chain(() if first is None else (first,), chunks):
        scores = predictor.score(chunk.edge_label_index)
        rows = zip(
            chunk.source.to_pylist(),
            chunk.target.to_pylist(),
            scores.logit.tolist(),
            predictor.probability_of(scores).tolist(),
            ("true" if known else "false" for known in scores.toggled.in_graph.tolist()),
            strict=True,
        )
        writer.writerows(rows)
        total += len(chunk)
    return total


def _provenance(predictor: CalibratedLinkPredictor) -> dict[str, Any]:
    """What a reader must know to use the probabilities."""
    graph, info = predictor.graph_, predictor.info_
    return {
        "statement": (
            f"Scored on the message graph that the calibrator was fitted with ({graph.num_nodes:,} nodes, "
            f"{graph.num_pairs:,} edges: the training edges only), each pair without its own edge. "
            f"Probabilities hold for {info['negatives_per_positive']:g} non-links per link."
        ),
        "calibrator": type(predictor.calibrator_).__name__,
        "message_graph": {"nodes": graph.num_nodes, "edges": graph.num_pairs, "directed": graph.directed},
        **info,
    }
