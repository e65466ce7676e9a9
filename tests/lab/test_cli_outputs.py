"""``linkcal-lab tables`` and ``linkcal figures`` on exported records and a hand-made store."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
import pytest
from tests.lab.sample import sweep
from tests.lab.test_figures import write_cell


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("records") / "records.csv.gz"
    sweep(datasets=("cora",), models=("gcn",), seeds=(2, 1)).to_csv(path, index=False)
    return path


def test_all_tables_to_stdout(cli, exported):
    answer = cli("tables", "--store", exported)
    assert answer.code == 0
    assert answer.out.startswith("## All calibrators, all rows\n")
    assert answer.out.count("\n## ") == 23
    assert cli("tables", "--store", exported).out == answer.out


def test_one_table_as_csv(cli, exported):
    answer = cli("tables", "--store", exported, "--format", "csv", "--table", "nll-val")
    assert answer.code == 0
    assert pd.read_csv(io.StringIO(answer.out))["n"].tolist() == [2] * 7


def test_several_tables_do_not_fit_into_one_csv(cli, exported):
    answer = cli("tables", "--store", exported, "--format", "csv")
    assert answer.code == 1
    assert "csv on stdout must be one table: give --table or --out, got 24 tables" in answer.err


def test_files(cli, exported, tmp_path):
    assert cli("tables", "--store", exported, "--format", "latex", "--out", tmp_path / "t").code == 0
    files = sorted(path.name for path in (tmp_path / "t").iterdir())
    assert len(files) == 24
    assert "wilcoxon-in-n-out-val.tex" in files


def test_wrong_store_format_and_table(cli, exported, tmp_path):
    assert cli("tables", "--store", tmp_path / "none").code == 1
    answer = cli("tables", "--store", exported, "--format", "html")
    assert answer.code == 1
    assert "format must be one of markdown, csv, latex; got 'html'" in answer.err.replace("\n", " ")
    assert "did you mean 'ece-val'" in cli("tables", "--store", exported, "--table", "ece-vall").err


def test_figures(cli, tmp_path):
    write_cell(tmp_path / "store", "cora/gcn/train-0/val/cal-0")
    answer = cli("figures", "--store", tmp_path / "store", "--out", tmp_path / "out", "--format", "svg")
    assert answer.code == 0
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["cora-val.svg", "uncalibrated.svg"]
    wrong = cli("figures", "--store", tmp_path / "store", "--out", tmp_path / "out", "--format", "gif")
    assert wrong.code == 1
    assert "format must be one of svg, png; got 'gif'" in wrong.err
