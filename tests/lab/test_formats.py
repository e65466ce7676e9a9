"""Markdown, LaTeX and CSV of one table, to the character."""

from __future__ import annotations

import csv
import io

import numpy as np
import pandas as pd
import pytest

from linkcal.exceptions import InputError
from linkcal_lab.formats import Entry, Table, render

TABLE = Table(
    name="t",
    title="50 % of a_b",
    caption="First. Second & third.",
    header=("data|set", "value"),
    rows=(
        (Entry("my_data|1"), Entry("1.0 \N{PLUS-MINUS SIGN} 0.1 [0.5]", strong=True)),
        (Entry("x"), Entry("")),
    ),
    data=pd.DataFrame({"name": ['a,"b"', "c\nd"], "value": [0.1, np.nan]}),
    n_labels=1,
)


def test_markdown():
    assert render(TABLE, "markdown") == (
        "## 50 % of a\\_b\n\nFirst. Second & third.\n\n"
        "| data\\|set | value |\n| :-- | --: |\n"
        "| my\\_data\\|1 | **1.0 \N{PLUS-MINUS SIGN} 0.1 \\[0.5\\]** |\n| x |  |\n"
    )


def test_latex():
    assert render(TABLE, "latex") == (
        "\\begin{longtable}{lr}\n"
        "\\caption{50 \\% of a\\_b. First. Second \\& third.}\\label{tab:t} \\\\\n"
        "\\toprule\ndata|set & value \\\\\n\\midrule\n\\endhead\n"
        "my\\_data|1 & \\textbf{1.0 $\\pm$ 0.1 {[}0.5]} \\\\\nx &  \\\\\n"
        "\\bottomrule\n\\end{longtable}\n"
    )


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("\\", "\\textbackslash{}"), ("#1", "\\#1"), ("{a}", "\\{a\\}"), ("a~b", "a\\textasciitilde{}b"),
        ("2^n", "2\\textasciicircum{}n"), ("$", "\\$"), ("p < q", "p \\textless{} q"), ("\N{EM DASH}", "---"),
        ("a\nb", "a b"),
    ],
)  # fmt: skip
def test_latex_escapes(text, escaped):
    table = Table("t", "T", "", ("h",), ((Entry(text),),), TABLE.data, 1)
    assert f"\n{escaped} \\\\\n\\bottomrule" in render(table, "latex")


def test_csv_reads_back():
    text = render(TABLE, "csv")
    assert text == 'name,value\n"a,""b""",0.1\n"c\nd",\n'
    assert list(csv.reader(io.StringIO(text))) == [["name", "value"], ['a,"b"', "0.1"], ["c\nd", ""]]


def test_unknown_format():
    with pytest.raises(InputError, match=r"format must be one of markdown, csv, latex; got 'html'"):
        render(TABLE, "html")
