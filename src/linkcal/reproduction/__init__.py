"""The paper's tables and figures from the records of a sweep, beside the published values."""

from __future__ import annotations

from linkcal.reproduction.aggregate import RECORD_COLUMNS, Scope, check_records, seed_values, summarise
from linkcal.reproduction.figures import BEFORE_AND_AFTER, FIGURE_FORMATS, draw_figures
from linkcal.reproduction.formats import FORMATS, Cell, Table, render
from linkcal.reproduction.published import (
    PUBLISHED,
    published_origin,
    published_patterns,
    published_sheet,
    published_values,
)
from linkcal.reproduction.statistics import (
    PairedTest,
    RankTest,
    friedman_nemenyi,
    nemenyi_critical_difference,
    paired_t_test,
    wilcoxon_signed_rank,
)
from linkcal.reproduction.tables import build_tables, choose_tables, write_tables

__all__ = [
    "BEFORE_AND_AFTER",
    "FIGURE_FORMATS",
    "FORMATS",
    "PUBLISHED",
    "RECORD_COLUMNS",
    "Cell",
    "PairedTest",
    "RankTest",
    "Scope",
    "Table",
    "build_tables",
    "check_records",
    "choose_tables",
    "draw_figures",
    "friedman_nemenyi",
    "nemenyi_critical_difference",
    "paired_t_test",
    "published_origin",
    "published_patterns",
    "published_sheet",
    "published_values",
    "render",
    "seed_values",
    "summarise",
    "wilcoxon_signed_rank",
    "write_tables",
]
