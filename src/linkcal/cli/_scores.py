"""`linkcal decode`, `calibrate` and `apply`: scores of any system, without its model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from linkcal.cli._console import (
    CalibratorOption,
    Json,
    Out,
    OutFile,
    Seed,
    Source,
    Target,
    Wide,
    check_output_file,
    log,
    print_results,
    ratio_in_words,
)
from linkcal.cli._output import csv_rows

if TYPE_CHECKING:
    from linkcal.scores import CalibratedScores

_TABLE = "Scored pairs, labelled: .csv, .tsv or .parquet."
_SPLIT = "Column of val (to fit on) and test; default: `split` if there is one."
_GROUP = "Column of groups in which calibration is checked; repeatable."
_EDGES = "Edge list that the model was trained on, without the labelled links; needs linkcal[gnn]."
_RATE = "Share of links, in (0, 1), among the pairs to come; default: that of the calibration pairs."
_Rate = Annotated[float | None, typer.Option(help=_RATE)]


_DECODER = "dot, cosine, distmult, complex or bilinear."
_RELATION = "A .npy file: r (d,) of distmult and complex, W (d, d) of bilinear."
_EMBEDDINGS = "Parquet file or folder of columns nid and emb (GraphStorm's)."


def decode(
    pairs: Annotated[Path, typer.Argument(help="Pairs: .csv, .tsv or .parquet.", metavar="PAIRS")],
    embeddings: Annotated[Path, typer.Argument(help=_EMBEDDINGS, metavar="EMBEDDINGS")],
    decoder: Annotated[str, typer.Option(help=_DECODER)],
    relation: Annotated[Path | None, typer.Option(help=_RELATION)] = None,
    target_embeddings: Annotated[Path | None, typer.Option(help="Embeddings of target nodes.")] = None,
    source: Source = "source",
    target: Target = "target",
    out: OutFile = None,
) -> None:
    """Score pairs by node embeddings and a decoder: a column `logit` beside those of PAIRS, to calibrate."""
    from linkcal.embeddings import decode_embeddings

    check_output_file(out, pairs)
    columns = decode_embeddings(
        pairs, embeddings, decoder=decoder, relation=relation, target_embeddings=target_embeddings,
        source=source, target=target,
    )  # fmt: skip
    columns = {name: columns.pop(name) for name in (source, target)} | columns
    with csv_rows(out, *columns) as writer:
        writer.writerows(zip(*(each.tolist() for each in columns.values()), strict=True))
    log(f"{len(columns[source]):,} pairs scored.")


def calibrate(
    scores: Annotated[Path, typer.Argument(help=_TABLE, metavar="SCORES")],
    logit: Annotated[str | None, typer.Option(help="Column of logits.")] = None,
    probability: Annotated[str | None, typer.Option(help="Column of probabilities in [0, 1].")] = None,
    label: Annotated[str, typer.Option(help="Column of 1 (link) and 0 (negative).")] = "label",
    source: Source = "source",
    target: Target = "target",
    split: Annotated[str | None, typer.Option(help=_SPLIT)] = None,
    group: Annotated[list[str] | None, typer.Option(help=_GROUP)] = None,
    directed: Annotated[
        bool, typer.Option("--directed", help="(u, v) and (v, u) are different pairs.")
    ] = False,
    base_rate: _Rate = None,
    edges: Annotated[Path | None, typer.Option(help=_EDGES)] = None,
    features: Annotated[Path | None, typer.Option(help="Node features of --edges.")] = None,
    bipartite: Annotated[
        bool | None, typer.Option(help="Whether the columns name nodes of two types.")
    ] = None,
    seed: Seed = 0,
    out: Out = None,
    wide: Wide = False,
    json: Json = False,
) -> None:
    """Calibrate the scores of any link predictor, given labelled pairs that it was not trained on.

    `--logit` or `--probability` declares what the score is; a column of that name needs no option. Without a
    split column half of the pairs, drawn by class, fit the calibrators, and the other half measures them.
    With `--edges`, in columns named as those of SCORES, `in-n-out-plus` also reads each pair's place in the
    graph, and `structure-only` shows what is known without the scores.
    """
    from linkcal._core.files import file_record, to_json
    from linkcal.exceptions import InputError, extra_needed
    from linkcal.scores import calibrate_scores

    graph = None
    if edges is not None:
        with extra_needed("--edges"):
            from linkcal.data import read_edges
        graph = read_edges(
            edges, features=features, source=source, target=target, directed=directed, bipartite=bipartite
        )
    elif features is not None:
        raise InputError("--features must be left out without --edges, got some")
    found = calibrate_scores(
        scores, logit=logit, probability=probability, label=label, source=source, target=target, split=split,
        groups=group or (), directed=directed, base_rate=base_rate, seed=seed, graph=graph,
        bipartite=bool(bipartite),
    )  # fmt: skip
    folder = out or Path("runs") / f"{found.info['dataset']}-scores-seed{seed}"
    paths = found.write(folder, source=file_record(scores))
    if json:
        typer.echo(to_json(found.metrics))
    else:
        print_results(found.metrics, wide=wide)
    for column, groups in found.metrics["groups"].items():
        log(_groups_in_words(column, groups))
    for name, path in paths.items():
        log(f"{name:>9}: {path}")


def _groups_in_words(column: str, groups: dict[str, Any]) -> str:
    worst, name = groups["segments"][groups["worst"]], groups["worst"]
    return (
        f"Groups by {column}: the largest deviation is in {name}, {worst['observed']:g} links among "
        f"{worst['count']:,} pairs where {worst['expected']:.1f} are expected (z {worst['z']:.1f}; of "
        f"calibrated probabilities it stays within {groups['bound']:.1f} in 95 of 100 cases)."
    )


_COLUMN = "Column of the score; default: as when it was calibrated."
_LEVEL = "Level in (0, 1) of an interval for each probability."


def apply(
    folder: Annotated[Path, typer.Argument(help="Folder of `linkcal calibrate`.", metavar="DIR")],
    new: Annotated[Path, typer.Argument(help="Scored pairs: .csv, .tsv or .parquet.", metavar="NEW")],
    out: OutFile = None,
    column: Annotated[str | None, typer.Option(help=_COLUMN)] = None,
    calibrator: CalibratorOption = None,
    base_rate: _Rate = None,
    interval: Annotated[float | None, typer.Option(help=_LEVEL)] = None,
) -> None:
    """Calibrated probability of each pair in a file of scores, in its order.

    The scores must come from the same model as those that were calibrated, and mean the same.
    """
    from linkcal.scores import CalibratedScores

    check_output_file(out, new)
    found = CalibratedScores.load(folder)
    columns = found.apply(new, column=column, calibrator=calibrator, base_rate=base_rate, interval=interval)
    with csv_rows(out, *columns) as writer:
        writer.writerows(zip(*(each.tolist() for each in columns.values()), strict=True))
    log(f"{len(columns['source']):,} pairs. {_valid_for(found, base_rate)}")


def _valid_for(found: CalibratedScores, base_rate: float | None) -> str:
    rate = found.base_rate if base_rate is None else base_rate
    ratio = ratio_in_words(found.info["negatives_per_positive"])
    moved = base_rate is not None or "base_rate" in found.info
    end = f"are for a base rate of {rate:.6g}, moved there from {ratio}" if moved else f"hold for {ratio}"
    return f"Probabilities {end}."


def select_scores(
    folder: Path, pairs: Path, fdr: float, out: Path | None, base_rate: float | None, ends: tuple[str, str]
) -> None:
    """`linkcal select` on a folder without a model: null scores are its test pairs without a link."""
    from linkcal.exceptions import InputError
    from linkcal.scores import CalibratedScores

    found = CalibratedScores.load(folder)
    for option, given in zip(("source", "target"), ends, strict=True):
        if given not in (option, found.info[option]):  # the option's default, or what the folder knows
            known = f"{found.info[option]!r}, as when the scores were calibrated"
            raise InputError(f"--{option} must be {known}, got {given!r}")
    columns = found.select(pairs, fdr=fdr, base_rate=base_rate)
    chosen, names = columns["selected"], ("source", "target", "probability", "p_value")
    with csv_rows(out, *names) as writer:
        writer.writerows(zip(*(columns[name][chosen].tolist() for name in names), strict=True))
    null = found.test.counts()[1]
    log(
        f"{int(chosen.sum()):,} of {len(chosen):,} pairs selected at a false discovery rate of {fdr:g}. Null "
        f"scores: {null:,} test pairs without a link; the bound holds if the negatives among these pairs are "
        f"like them. No p-value can be below {1 / (null + 1):.4g}. {_valid_for(found, base_rate)}"
    )
