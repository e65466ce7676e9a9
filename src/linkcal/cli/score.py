"""``linkcal score``: calibrated probabilities of asked pairs, streamed."""

from __future__ import annotations

import csv
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from linkcal._files import written_whole
from linkcal.cli.console import counted, log, non_links_per_link
from linkcal.cli.options import BaseRateOption, as_base_rate, check_output_file

if TYPE_CHECKING:
    from linkcal.data import PairChunk
    from linkcal.wrapper import CalibratedLinkPredictor

__all__ = ["score"]

# Answers on stdout that are longer wait in a file.
_SPOOL_BYTES = 1 << 26

_COLUMNS = ("source", "target", "logit", "probability", "in_graph")
_ENDS = ("p_low", "p_high")


def score(
    folder: Annotated[Path, typer.Argument(help="Folder of `linkcal run` or `linkcal fit`.", metavar="DIR")],
    pairs: Annotated[Path, typer.Argument(help="Pairs: .csv, .tsv, .parquet or .npz.", metavar="PAIRS")],
    out: Annotated[Path | None, typer.Option("--out", help="CSV file; default: stdout.")] = None,
    calibrator: Annotated[
        str | None, typer.Option("--calibrator", help="Default: the one selected when the folder was made.")
    ] = None,
    base_rate: BaseRateOption = None,
    interval: Annotated[
        float | None,
        typer.Option("--interval", help="Level of an interval for each probability: columns p_low, p_high."),
    ] = None,
    source: Annotated[str, typer.Option("--source", help="Column of the pairs' first node.")] = "source",
    target: Annotated[str, typer.Option("--target", help="Column of the pairs' second node.")] = "target",
    chunk_size: Annotated[int, typer.Option("--chunk-size", help="Pairs held at once.")] = 100_000,
) -> None:
    """Calibrated probability of each asked pair, in the order asked.

    `logit` is the model's uncalibrated score. A pair that is already a known edge (also one that was held out
    for validation or test) is scored with that edge removed and flagged in `in_graph`. Scores are computed on
    the message graph that the calibrator was fitted with. With `--interval 0.9` two more columns say how well
    each probability is known from the calibration links.
    """
    from linkcal._validation import check_fraction
    from linkcal.data import NodeIds, read_pairs
    from linkcal.wrapper import CalibratedLinkPredictor

    check_output_file(out, pairs)
    predictor = CalibratedLinkPredictor.load(folder, calibrator=calibrator)
    node_ids = predictor.node_ids_ or NodeIds.range(predictor.graph_.num_nodes)
    chunks = read_pairs(pairs, node_ids, source=source, target=target, chunk_size=chunk_size)
    rate = None if base_rate is None else predictor.resolve_base_rate(as_base_rate(base_rate))
    if interval is not None:
        check_fraction(interval, "interval")
    note = _provenance(predictor, base_rate, rate, interval)
    if out is None:
        # A bad row far down must not leave half an answer on stdout.
        with tempfile.SpooledTemporaryFile(_SPOOL_BYTES, "w+", newline="", encoding="utf-8") as spool:
            _write(chunks, predictor, spool, rate, interval)
            spool.seek(0)
            shutil.copyfileobj(spool, sys.stdout)
        log(note["statement"])
        return
    with written_whole(out) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        total = _write(chunks, predictor, file, rate, interval)
    side = out.with_name(out.name + ".meta.json")
    with written_whole(side) as temporary:
        temporary.write_text(json.dumps({"pairs": total, **note}, indent=2) + "\n", encoding="utf-8")
    log(f"{total:,} pairs: {out}; how they were scored: {side}")


def _write(
    chunks: Iterator[PairChunk],
    predictor: CalibratedLinkPredictor,
    file: IO[str],
    rate: float | None,
    interval: float | None,
) -> int:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(_COLUMNS if interval is None else (*_COLUMNS, *_ENDS))
    total = 0
    scorer = predictor.scorer()
    for chunk in counted(chunks, "pairs scored"):
        scores = scorer.score(chunk.edge_label_index)
        flags = predictor.known_edges(chunk.edge_label_index).tolist()
        ends = []
        if interval is not None:
            ends = predictor.interval_of(scores, level=interval, base_rate=rate).T.tolist()
        rows = zip(
            chunk.source.to_pylist(),
            chunk.target.to_pylist(),
            scores.logit.tolist(),
            predictor.probability_of(scores, base_rate=rate).tolist(),
            ("true" if known else "false" for known in flags),
            *ends,
            strict=True,
        )
        writer.writerows(rows)
        total += len(chunk)
    return total


def _provenance(
    predictor: CalibratedLinkPredictor, asked: str | None, rate: float | None, interval: float | None
) -> dict[str, Any]:
    """What a reader must know to use the probabilities."""
    graph, info = predictor.graph_, predictor.info_
    ratio = non_links_per_link(info["negatives_per_positive"], info.get("negatives"))
    if rate is None and "base_rate" not in info:
        valid, origin = f"hold for {ratio}", "calibration links"
        if "refresh" in info:
            origin = "labels of the refresh"
    else:
        origin = info.get("base_rate_origin", "given")
        if rate is not None:
            origin = "density of the message graph" if asked == "density" else "given"
        rate = predictor.base_rate if rate is None else rate
        valid = f"are for a base rate of {rate:.6g} ({origin}), moved there from {ratio}"
    # A graph that was prepared with positions says of its x that it follows from the edges, whatever stood
    # there before; the run notes that.
    positions = bool(getattr(predictor.model, "features_from_edges", False))
    features = bool(info.get("features_from_edges")) if positions else graph.features_from_edges
    if interval is not None:
        valid += (
            f"; p_low and p_high hold the share of links among pairs of a pair's score with probability "
            f"{interval:g}"
        )
    return {
        "statement": (
            f"Scored on the message graph that the calibrator was fitted with ({graph.num_nodes:,} nodes, "
            f"{graph.num_pairs:,} edges: the training edges only), each pair without its own edge. "
            f"Probabilities {valid}.{_trace(features, positions, type(predictor.model).__name__)}"
        ),
        **info,
        "base_rate": predictor.base_rate if rate is None else rate,
        "base_rate_origin": origin,
        "interval_level": interval,
        "calibrator": type(predictor.calibrator_).__name__,
        "message_graph": {"nodes": graph.num_nodes, "edges": graph.num_pairs, "directed": graph.directed},
        "features_from_edges": features,
        "positions_from_edges": positions,
    }


def _trace(features: bool, positions: bool, model: str) -> str:
    """Which inputs of the model know the edges, whether or not a pair's own edge is removed."""
    computed = ["node features"] * features + [f"the nodes' positions that {model} reads"] * positions
    if not computed:
        return ""
    what = " and ".join(computed)
    return (
        f" {what[0].upper()}{what[1:]} were computed from the message graph and keep a trace of a known edge "
        "that is scored."
    )
