"""Markdown, LaTeX and CSV of one table, to the character."""

import csv
import io

import numpy as np
import pandas as pd

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


def test_latex_escapes():
    escaped = {
        "\\": "\\textbackslash{}", "#1": "\\#1", "{a}": "\\{a\\}", "a~b": "a\\textasciitilde{}b", "$": "\\$",
        "2^n": "2\\textasciicircum{}n", "p < q": "p \\textless{} q", "\N{EM DASH}": "---", "a\nb": "a b",
    }  # fmt: skip
    rows = tuple((Entry(text),) for text in escaped)
    text = render(Table("t", "T", "", ("h",), rows, TABLE.data, 1), "latex")
    assert "\n" + "".join(f"{value} \\\\\n" for value in escaped.values()) + "\\bottomrule" in text


def test_csv_reads_back():
    text = render(TABLE, "csv")
    assert text == 'name,value\n"a,""b""",0.1\n"c\nd",\n'
    assert list(csv.reader(io.StringIO(text))) == [["name", "value"], ['a,"b"', "0.1"], ["c\nd", ""]]
