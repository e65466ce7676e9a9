"""The tables in docs/reproduction are those of the records beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from linkcal_lab.records import read_records
from linkcal_lab.tables import build_tables, write_tables

FOLDER = Path(__file__).parents[2] / "docs" / "reproduction"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("records", "tables"), [("records.csv.xz", "tables"), ("records-seal.csv.xz", "seal")], ids=str
)
def test_tables_are_made_from_the_records(records, tables, tmp_path):
    write_tables(build_tables(read_records(FOLDER / records)), tmp_path, format="markdown")
    committed = sorted((FOLDER / tables).glob("*.md"))
    assert len(committed) > 5
    for path in committed:
        assert path.read_text() == (tmp_path / path.name).read_text(), path.name
    if tables == "tables":
        assert {path.name for path in committed} == {path.name for path in tmp_path.glob("*.md")}
