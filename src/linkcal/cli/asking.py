"""`linkcal score`, `linkcal select` and `linkcal top` on a fitted folder."""

from __future__ import annotations

import csv
import json
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, TextIO

import typer

from linkcal._core.files import written_whole
from linkcal.cli._console import (
    BaseRateOption,
    as_base_rate,
    check_output_file,
    counted,
    log,
    negatives_per_link_text,
)

if TYPE_CHECKING:
    import torch

    from linkcal.all_pairs import RankedPairs
    from linkcal.data import NodeIds, PairChunk
    from linkcal.predictor import CalibratedLinkPredictor

__all__ = ["score", "select", "top"]


# ``linkcal score``: calibrated probabilities of query pairs, streamed.

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
    """Calibrated probability of each query pair, in the order asked.

    `logit` is the model's uncalibrated score. A pair that is already a known edge (also one that was held out
    for validation or test) is scored with that edge removed and flagged in `in_graph`. Scores are computed on
    the message-passing graph that the calibrator was fitted with. With `--interval 0.9` two more columns say
    how well each probability is known from the calibration links.
    """
    from linkcal._core.validation import check_fraction
    from linkcal.data import NodeIds, read_pairs
    from linkcal.predictor import CalibratedLinkPredictor

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
    ratio = negatives_per_link_text(info["negatives_per_positive"], info.get("negatives"))
    if rate is None and "base_rate" not in info:
        valid, origin = f"hold for {ratio}", "calibration links"
        if "refresh" in info:
            origin = "labels of the refresh"
    else:
        origin = info.get("base_rate_origin", "given")
        if rate is not None:
            origin = "density of the message-passing graph" if asked == "density" else "given"
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
            f"Scored on the calibrator's message-passing graph ({graph.num_nodes:,} nodes, "
            f"{graph.num_pairs:,} edges: the training edges only), each pair without its target link. "
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
    """Which inputs of the model know the edges, whether or not a pair's target link is removed."""
    computed = ["node features"] * features + [f"the nodes' positions that {model} reads"] * positions
    if not computed:
        return ""
    what = " and ".join(computed)
    return (
        f" {what[0].upper()}{what[1:]} were computed from the edges and keep a trace of a known edge "
        "that is scored."
    )


# ``linkcal select``: which of the query pairs to call links, with a bound on the share of false ones.

_SELECT_COLUMNS = ("source", "target", "probability", "p_value")


def select(
    folder: Annotated[Path, typer.Argument(help="Folder of `linkcal run` or `linkcal fit`.", metavar="DIR")],
    pairs: Annotated[Path, typer.Argument(help="Pairs: .csv, .tsv, .parquet or .npz.", metavar="PAIRS")],
    fdr: Annotated[
        float, typer.Option("--fdr", help="Bound on the share of negatives among those listed.")
    ] = 0.1,
    null: Annotated[
        Path | None,
        typer.Option(
            "--null",
            help="Pairs without a link that were chosen as the query pairs were; default: those of the "
            "folder, of the kind of its calibration negatives.",
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
    """List those of the query pairs to call links; on average at most a share `--fdr` of them are none.

    Conformal p-values against pairs that nothing was fitted on, and Benjamini-Hochberg. The bound needs asked
    negatives that are like the null pairs: by default of the kind of the folder's calibration negatives,
    which is uniform unless it was made with `--negatives`; give `--null` for query pairs chosen otherwise.
    Known edges are left out. The order is that of the file; all query pairs are held in memory.
    """
    import torch

    from linkcal.data import NodeIds, read_pairs
    from linkcal.predictor import CalibratedLinkPredictor

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
        _select_write(chunks, found.selected, values, sys.stdout)
    else:
        with written_whole(out) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
            _select_write(chunks, found.selected, values, file)
    kind = "given" if null is not None else predictor.info_.get("negatives") or "uniform"
    tested = asked.size(1) - int(found.known.sum())
    log(
        f"{rows.numel():,} of {tested:,} pairs selected at a false discovery rate of {fdr:g} "
        f"({int(found.known.sum()):,} known edges left out); {found.num_null:,} null pairs, "
        f"{kind}: the bound holds for asked negatives that are like them. Probabilities hold for a base rate "
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


def _select_write(
    chunks: list[PairChunk], selected: torch.Tensor, values: list[tuple[float, float]], file: TextIO
) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(_SELECT_COLUMNS)
    left = iter(values)
    for chunk in chunks:
        chosen = selected[chunk.first_row : chunk.first_row + len(chunk)].tolist()
        names = zip(chunk.source.to_pylist(), chunk.target.to_pylist(), chosen, strict=True)
        writer.writerows((u, v, *next(left)) for u, v, taken in names if taken)


# ``linkcal top``: the most probable missing pairs of the whole graph.

_TOP_COLUMNS = ("source", "target", "logit", "probability")

_NOTHING = {
    "all missing pairs": "No pair to list: all pairs are known edges.",
    "missing pairs at distance 2": "No pair to list: SEAL ranks pairs with a common neighbour in the message "
    "graph, and all that have one are known edges.",
}


def top(
    folder: Annotated[Path, typer.Argument(help="Folder of `linkcal run` or `linkcal fit`.", metavar="DIR")],
    k: Annotated[int, typer.Option("-k", help="How many pairs.")] = 100,
    out: Annotated[Path | None, typer.Option("--out", help="CSV file; default: stdout.")] = None,
    calibrator: Annotated[
        str | None, typer.Option("--calibrator", help="Default: the one selected when the folder was made.")
    ] = None,
    base_rate: BaseRateOption = None,
    rerank: Annotated[
        int | None,
        typer.Option(
            "--rerank",
            help="Take so many best by the model's score, and list the most probable of them.",
            show_default=False,
        ),
    ] = None,
    chunk_size: Annotated[int, typer.Option("--chunk-size", help="Pairs held at once.")] = 1 << 18,
) -> None:
    """List the pairs without an edge that the model finds most probable, with calibrated probabilities.

    All missing pairs of the graph compete, in bounded memory; known edges, also those held out for
    validation and test, are left out. Pairs are ordered by the model's score, ties by node number; with
    `--rerank N` the N best by the score are ordered by their calibrated probability. With SEAL only pairs at
    distance 2 compete.
    """
    from linkcal.all_pairs import most_probable_pairs
    from linkcal.data import NodeIds
    from linkcal.predictor import CalibratedLinkPredictor

    check_output_file(out)
    predictor = CalibratedLinkPredictor.load(folder, calibrator=calibrator)
    ranked = most_probable_pairs(
        predictor, k, chunk_size=chunk_size, base_rate=as_base_rate(base_rate), rerank=rerank
    )
    node_ids = predictor.node_ids_ or NodeIds.range(predictor.graph_.num_nodes)
    if out is None:
        _top_write(ranked, node_ids, sys.stdout)
    else:
        with written_whole(out) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
            _top_write(ranked, node_ids, file)
    number = ranked.logit.numel()
    if not number:
        log(_NOTHING[ranked.candidates])
        return
    best = f"most probable of the {ranked.reranked:,} best" if ranked.reranked else "best"
    log(
        f"{number:,} {best} of {ranked.candidates}. Probabilities hold for "
        f"{negatives_per_link_text(ranked.negatives_per_positive)} (base rate {ranked.base_rate:.4g})."
    )
    kind = predictor.info_.get("negatives") or "uniform"
    _warn(ranked, kind, asked=base_rate is not None or "base_rate" in predictor.info_)


def _warn(ranked: RankedPairs, kind: str, *, asked: bool) -> None:
    """Say where the calibration links were other pairs, or other shares of links, than what competes here."""
    from linkcal.all_pairs import AT_DISTANCE_2
    from linkcal.exceptions import BaseRateWarning

    two_hop = ranked.candidates == AT_DISTANCE_2
    if not asked:
        # The density is a share among all pairs, and refused for other kinds.
        density = "density or " if kind == "uniform" and not two_hop else ""
        among = "the missing pairs at distance 2, which compete here," if two_hop else "all pairs"
        wanted = f"--base-rate {density}your own rate" if density else "--base-rate with your own rate"
        warnings.warn(
            f"among {among} links are far rarer than the {ranked.base_rate:.3g} that these probabilities "
            f"hold for: real shares of links are smaller; ask for {wanted}",
            BaseRateWarning,
            stacklevel=3,
        )
    right = "two-hop" if two_hop else "uniform"
    if kind != right:
        compete = "the pairs at distance 2, which alone" if two_hop else "all pairs that"
        warnings.warn(
            f"these probabilities were fitted with {kind} negatives and hold for pairs like those, not for "
            f"{compete} compete here; make the folder with --negatives {right}",
            BaseRateWarning,
            stacklevel=3,
        )


def _top_write(ranked: RankedPairs, node_ids: NodeIds, file: TextIO) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(_TOP_COLUMNS)
    source, target = (node_ids.decode(row).to_pylist() for row in ranked.edge_label_index)
    writer.writerows(zip(source, target, ranked.logit.tolist(), ranked.probability.tolist(), strict=True))
