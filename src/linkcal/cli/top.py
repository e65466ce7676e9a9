"""``linkcal top``: the most probable missing pairs of the whole graph."""

from __future__ import annotations

import csv
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from linkcal._files import written_whole
from linkcal.cli.console import log, non_links_per_link
from linkcal.cli.options import BaseRateOption, as_base_rate, check_output_file

if TYPE_CHECKING:
    from linkcal.data import NodeIds
    from linkcal.ranking import RankedPairs

__all__ = ["top"]

_COLUMNS = ("source", "target", "logit", "probability")

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
    from linkcal.data import NodeIds
    from linkcal.ranking import most_probable_pairs
    from linkcal.wrapper import CalibratedLinkPredictor

    check_output_file(out)
    predictor = CalibratedLinkPredictor.load(folder, calibrator=calibrator)
    ranked = most_probable_pairs(
        predictor, k, chunk_size=chunk_size, base_rate=as_base_rate(base_rate), rerank=rerank
    )
    node_ids = predictor.node_ids_ or NodeIds.range(predictor.graph_.num_nodes)
    if out is None:
        _write(ranked, node_ids, sys.stdout)
    else:
        with written_whole(out) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
            _write(ranked, node_ids, file)
    number = ranked.logit.numel()
    if not number:
        log(_NOTHING[ranked.candidates])
        return
    best = f"most probable of the {ranked.reranked:,} best" if ranked.reranked else "best"
    log(
        f"{number:,} {best} of {ranked.candidates}. Probabilities hold for "
        f"{non_links_per_link(ranked.negatives_per_positive)} (base rate {ranked.base_rate:.4g})."
    )
    kind = predictor.info_.get("negatives") or "uniform"
    _warn(ranked, kind, asked=base_rate is not None or "base_rate" in predictor.info_)


def _warn(ranked: RankedPairs, kind: str, *, asked: bool) -> None:
    """Say where the calibration links were other pairs, or other shares of links, than what competes here."""
    from linkcal.exceptions import BaseRateWarning
    from linkcal.ranking.pairs import AT_DISTANCE_2

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
            f"these probabilities were fitted with {kind} non-links and hold for pairs like those, not for "
            f"{compete} compete here; make the folder with --negatives {right}",
            BaseRateWarning,
            stacklevel=3,
        )


def _write(ranked: RankedPairs, node_ids: NodeIds, file: TextIO) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(_COLUMNS)
    source, target = (node_ids.decode(row).to_pylist() for row in ranked.edge_label_index)
    writer.writerows(zip(source, target, ranked.logit.tolist(), ranked.probability.tolist(), strict=True))
