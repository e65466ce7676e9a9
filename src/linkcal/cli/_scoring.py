"""`linkcal score`, `linkcal select` and `linkcal top` on a fitted folder."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from linkcal.cli._console import (
    BaseRateOption,
    CalibratorOption,
    ChunkSize,
    Folder,
    OutFile,
    Pairs,
    as_base_rate,
    check_output_file,
    log,
    ratio_in_words,
    with_counter,
    with_table_format,
)
from linkcal.cli._files import log_skipped, score_file, score_files, side_file
from linkcal.cli._output import csv_rows

if TYPE_CHECKING:
    import torch

    from linkcal.all_pairs import RankedPairs
    from linkcal.batches import ScoringFunction
    from linkcal.data import BipartiteIds, NodeIds, PairChunk
    from linkcal.predictor import CalibratedLinkPredictor

_NULL = (
    "Negatives that were chosen in the same way as the query pairs; default: those of the folder, of the "
    "kind of its calibration negatives."
)
_CANDIDATES = (
    "Missing pairs that each source nominates: score, resource allocation, paths of length three. "
    "Default: 10000, or 2 K if more."
)
_PAIRS = "Query pairs: .csv, .tsv, .parquet or .npz, or a folder of .parquet files."
_OUT = "CSV or Parquet file, default: CSV to stdout; for a folder of pairs, a folder."
_ENGINE = "For a folder of pairs: local, or ray: the cluster of $RAY_ADDRESS, else one on this machine."
_UNKNOWN = "For pairs of nodes that the graph does not have: error, or skip: leave them out, say how many."
_EXCLUDE = "Pairs never to list, as for `linkcal score`; either order in an undirected graph."


def load_folder(
    folder: Path, calibrator: str | None
) -> tuple[CalibratedLinkPredictor, NodeIds | BipartiteIds]:
    """The predictor of a folder, and the names of its nodes."""
    from linkcal.data import NodeIds
    from linkcal.predictor import CalibratedLinkPredictor

    predictor = CalibratedLinkPredictor.load(folder, calibrator=calibrator)
    return predictor, predictor.node_ids_ or NodeIds.range(predictor.graph_.num_nodes)


@with_table_format
def score(
    folder: Folder,
    pairs: Annotated[Path, typer.Argument(help=_PAIRS, metavar="PAIRS")],
    out: Annotated[Path | None, typer.Option(help=_OUT)] = None,
    calibrator: CalibratorOption = None,
    base_rate: BaseRateOption = None,
    interval: Annotated[
        float | None, typer.Option(help="Level in (0, 1) of an interval for each probability.")
    ] = None,
    *,
    table: dict[str, Any],
    chunk_size: ChunkSize = 100_000,
    engine: Annotated[str, typer.Option(help=_ENGINE)] = "local",
    unknown: Annotated[str, typer.Option(help=_UNKNOWN)] = "error",
) -> None:
    """Calibrated probability of each query pair, in the order of the file.

    `logit` is the model's uncalibrated score. A pair that is already a known edge (also one that was held out
    for validation or test) is scored with that edge removed and flagged in `in_graph`. Scores are computed on
    the message-passing graph that the calibrator was fitted with. `--interval 0.9` adds the columns `p_low`
    and `p_high`: how precisely the calibration links determine each probability. For a folder of Parquet
    files `--out` is a folder with one file for each; files that are finished already are skipped.
    """
    from linkcal._core.files import write_json
    from linkcal._core.validation import check_choice
    from linkcal.batches import scoring_function
    from linkcal.exceptions import InputError

    check_choice(unknown, "unknown", ("error", "skip"))
    many, table = pairs.is_dir(), {**table, "chunk_size": chunk_size, "unknown": unknown}
    if check_choice(engine, "engine", ("local", "ray")) == "ray" and not many:
        raise InputError(f"engine must be local unless PAIRS is a folder, got {engine!r}")
    if not many:
        check_output_file(out, pairs)
    function = scoring_function(
        folder, calibrator=calibrator, base_rate=as_base_rate(base_rate), interval=interval
    )
    if many:
        score_files(function, pairs, out, engine, _provenance(function), **table)
        return
    note = _provenance(function)
    watch = partial(with_counter, description="pairs scored")
    total, skipped, digest = score_file(function, pairs, out, watch, **table)
    log_skipped(skipped)
    if out is None:
        log(note["statement"])
        return
    side = side_file(out)
    write_json({"pairs": total, "skipped": skipped, "table_sha256": digest, **note}, side)
    log(f"{total:,} pairs: {out}; how they were scored: {side}")


def _provenance(function: ScoringFunction) -> dict[str, Any]:
    """What a reader must know to use the probabilities."""
    from linkcal._scoring import base_rate_origin

    predictor, wanted, interval = function.load()[0], function.base_rate, function.interval
    graph, info = predictor.graph_, predictor.info_
    origin = "labels of the refresh" if "refresh" in info else "calibration links"
    if "base_rate" in info:
        origin = info.get("base_rate_origin", "given")
    if wanted is not None:
        origin = base_rate_origin(wanted)
    rate = predictor.base_rate if wanted is None else predictor.resolve_base_rate(wanted)
    valid = ratio_in_words(info["negatives_per_positive"], info.get("negatives"))
    if wanted is not None or "base_rate" in info:
        valid = f"are for a base rate of {rate:.6g} ({origin}), moved there from {valid}"
    else:
        valid = f"hold for {valid}"
    if interval is not None:
        valid += (
            f"; with probability {interval:g}, p_low and p_high enclose the share of links among pairs of "
            "the same score"
        )
    # A graph prepared with positions reports computed node features whatever it came with; the run's note of
    # the original features is used there.
    positions = bool(getattr(predictor.model, "features_from_edges", False))
    features = bool(info.get("features_from_edges")) if positions else graph.features_from_edges
    edges = "changed since the fit" if "graph_update" in info else "the training edges only"
    return {
        "statement": (
            f"Scored on the calibrator's message-passing graph ({graph.num_nodes:,} nodes, "
            f"{graph.num_pairs:,} edges: {edges}), each pair without its target link. "
            f"Probabilities {valid}.{_edge_trace(features, positions, type(predictor.model).__name__)}"
        ),
        **info,
        "base_rate": rate,
        "base_rate_origin": origin,
        "interval_level": interval,
        "calibrator": type(predictor.calibrator_).__name__,
        "message_graph": {"nodes": graph.num_nodes, "edges": graph.num_pairs, "directed": graph.directed},
        "features_from_edges": features,
        "positions_from_edges": positions,
    }


def _edge_trace(features: bool, positions: bool, model: str) -> str:
    """Which inputs of the model were computed from the edges, the target link included."""
    computed = ["node features"] * features + [f"the nodes' positions that {model} reads"] * positions
    if not computed:
        return ""
    what = " and ".join(computed)
    return f" {what[0].upper()}{what[1:]} were computed from the edges and keep a trace of a known edge."


@with_table_format
def select(
    folder: Folder,
    pairs: Pairs,
    fdr: Annotated[
        float, typer.Option(help="Bound on the expected share of negatives among the selected pairs.")
    ] = 0.1,
    null: Annotated[Path | None, typer.Option(help=_NULL, metavar="PAIRS")] = None,
    out: OutFile = None,
    calibrator: CalibratorOption = None,
    base_rate: BaseRateOption = None,
    *,
    table: dict[str, Any],
) -> None:
    """Select query pairs as links; the expected share of negatives among them is at most `--fdr`.

    The method is conformal p-values against negatives that were not used for fitting, and Benjamini-Hochberg.
    The bound holds if the negatives among the query pairs are like these null pairs. By default they are of
    the same kind as the folder's calibration negatives (uniform unless it was made with `--negatives`); give
    `--null` for query pairs chosen otherwise. Known edges are left out. The order is that of the file; all
    query pairs are held in memory.
    """
    from linkcal._folder import folder_format
    from linkcal.cli._scores import select_scores
    from linkcal.exceptions import InputError

    check_output_file(out, pairs)
    if folder_format(folder) == "linkcal-scores":
        of_text = table["delimiter"] is not None or table["comment"] is not None or not table["header"]
        if null or calibrator or of_text or table["raw_ids"]:
            raise InputError(
                "--null, --calibrator, --delimiter, --no-header, --comment and --raw-ids must be left out "
                "for a folder without a model"
            )
        ends = table["source"], table["target"]
        select_scores(folder, pairs, fdr, out, as_base_rate(base_rate), ends)
        return
    import torch

    from linkcal.data import read_pairs

    predictor, node_ids = load_folder(folder, calibrator)
    wanted = as_base_rate(base_rate)
    rate = predictor.base_rate if wanted is None else predictor.resolve_base_rate(wanted)
    chunks = list(read_pairs(pairs, node_ids, **table))
    queries, null_pairs = _joined(chunks), None
    if null is not None:
        null_pairs = _joined(read_pairs(null, node_ids, **table))
        null_pairs = null_pairs[:, ~predictor.known_edges(null_pairs)]
    found = predictor.select(queries, fdr=fdr, null_pairs=null_pairs)
    rows = torch.nonzero(found.selected).flatten()
    p = predictor.predict_proba(queries[:, rows], base_rate=wanted)
    values = zip(p.tolist(), found.p_value[rows].tolist(), strict=True)
    with csv_rows(out, "source", "target", "probability", "p_value", raw_ids=table["raw_ids"]) as writer:
        for chunk in chunks:
            chosen = found.selected[chunk.first_row : chunk.first_row + len(chunk)].tolist()
            names = zip(chunk.source.to_pylist(), chunk.target.to_pylist(), chosen, strict=True)
            writer.writerows((u, v, *next(values)) for u, v, is_selected in names if is_selected)
    kind = "given" if null is not None else predictor.info_.get("negatives") or "uniform"
    known = int(found.known.sum())
    log(
        f"{rows.numel():,} of {queries.size(1) - known:,} pairs selected at a false discovery rate of "
        f"{fdr:g} ({known:,} known edges left out). Null pairs: {found.num_null:,}, {kind}; the bound holds "
        "if the negatives among the query pairs are like them. Probabilities hold for a base rate of "
        f"{rate:.4g}."
    )
    if found.num_tested and not rows.numel():
        smallest, step = float(found.p_value[~found.known].min()), fdr / found.num_tested
        log(
            f"No pair is selected: the smallest p-value is {smallest:.4g}. Of {found.num_tested:,} different "
            f"pairs, k are selected if k p-values are at most k times {step:.4g}; no p-value can be below "
            f"1 / (null pairs + 1) = {1 / (found.num_null + 1):.4g}."
        )


def _joined(chunks: Iterable[PairChunk]) -> torch.Tensor:
    import torch

    empty = torch.empty(2, 0, dtype=torch.int64)
    return torch.cat([empty, *(chunk.edge_label_index for chunk in chunks)], dim=1)


@with_table_format
def top(
    folder: Folder,
    k: Annotated[int, typer.Option("-k", help="Number of pairs to list.")] = 100,
    out: OutFile = None,
    calibrator: CalibratorOption = None,
    base_rate: BaseRateOption = None,
    candidates: Annotated[int | None, typer.Option(help=_CANDIDATES, metavar="N")] = None,
    exclude: Annotated[Path | None, typer.Option(help=_EXCLUDE, metavar="PAIRS")] = None,
    *,
    table: dict[str, Any],
    chunk_size: ChunkSize = 1 << 18,
) -> None:
    """List the most probable missing pairs of the whole graph, with calibrated probabilities.

    Known edges, also those held out for validation and test, are left out, and in a bipartite graph pairs of
    one type. A calibrator that reads the model's score alone (`--calibrator platt`) keeps the model's order
    of all missing pairs. Others order the candidates that score, resource allocation and paths of length
    three nominate; `in-n-out-plus` is fitted anew on these, with the held-out links among them. `--source` to
    `--comment` are about the file of `--exclude`.
    """
    from linkcal.all_pairs import most_probable_pairs
    from linkcal.data import read_pairs

    check_output_file(out, exclude)
    predictor, node_ids = load_folder(folder, calibrator)
    left_out = None if exclude is None else _joined(read_pairs(exclude, node_ids, **table))
    ranked = most_probable_pairs(
        predictor, k, candidates=candidates, chunk_size=chunk_size, base_rate=as_base_rate(base_rate),
        exclude=left_out,
    )  # fmt: skip
    ends = [column.to_pylist() for column in node_ids.decode_pairs(ranked.edge_label_index)]
    with csv_rows(out, "source", "target", "logit", "probability", raw_ids=table["raw_ids"]) as writer:
        writer.writerows(zip(*ends, ranked.logit.tolist(), ranked.probability.tolist(), strict=True))
    number, by_score = ranked.logit.numel(), ranked.sources == ("score",)
    if not number:
        none = (
            "all pairs are known edges" if "score" in ranked.sources else "no short path joins a missing pair"
        )
        log(f"No pair to list: {none}.")
        return
    what = f"highest-scoring of all {ranked.num_candidates:,} missing pairs"
    if not by_score:
        what = f"most probable of {ranked.num_candidates:,} candidates by {', '.join(ranked.sources)}"
    fit = f", fitted to {ranked.num_held_out:,} held-out links among them" if ranked.num_held_out else ""
    log(
        f"{number:,} {what}{fit}. Probabilities hold for "
        f"{ratio_in_words(ranked.negatives_per_positive)} (base rate {ranked.base_rate:.4g})."
    )
    has_rate = base_rate is not None or "base_rate" in predictor.info_
    _warn(ranked, predictor.info_.get("negatives") or "uniform", has_rate=has_rate)


def _warn(ranked: RankedPairs, kind: str, *, has_rate: bool) -> None:
    """Warn where the calibration links have another base rate, or other negatives, than the ranked pairs."""
    from linkcal.exceptions import BaseRateWarning

    messages = []
    if not has_rate:
        # The density is a share among all pairs, and refused for other kinds.
        density = "density, or --base-rate with " if kind == "uniform" else "with "
        messages.append(
            f"among all pairs links are far rarer than the {ranked.base_rate:.3g} that these probabilities "
            f"hold for, so the probabilities are too high; use --base-rate {density}your own rate"
        )
    if kind != "uniform" and not ranked.num_held_out:
        messages.append(
            f"these probabilities were fitted with {kind} negatives and hold for pairs like those, not for "
            "all pairs, which are ranked here; make the folder with --negatives uniform"
        )
    for message in messages:
        warnings.warn(message, BaseRateWarning, stacklevel=3)
