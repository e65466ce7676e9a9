"""Run one benchmark, or list them.

    python benchmarks/run.py --list
    python benchmarks/run.py toggle --datasets cora --out benchmarks/results/toggle

writes the page benchmarks/results/toggle.md and toggle.json, which the page was made from. A call that was
interrupted goes on after the last finished point. ``--quick`` runs any case on a small simulated graph.
"""

from __future__ import annotations

from _harness import Case, main
from drift import Drift
from fits import CalibratorSpeed
from mutation import Mutation
from opponents import EqualColumns, Opponents
from quality import Negatives, Ranking, RareLinks, TopOrder
from scale import Scale

from decisions import Decisions
from toggle import Toggle

CASES: tuple[Case, ...] = (
    Toggle(), CalibratorSpeed(), Scale(), Negatives(), RareLinks(), Ranking(), TopOrder(),
    Opponents(), EqualColumns(), Decisions(), Drift(), Mutation(),
)  # fmt: skip

if __name__ == "__main__":
    main(CASES)
