"""Quoted values of CSV files: open ones are refused, line breaks in them are no ends of rows."""

import gzip

import pytest

from linkcal.data import NodeIds, read_edges, read_features, read_pairs
from linkcal.data import _tables as tables_module
from linkcal.exceptions import InputError


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ('a,"b\nb,c\nc,d\n', 2),
        ('a,b\n\n"b\nx",c\nc,"d', 6),
        ('a,b\nb,"c\n' + "c,d\n" * 50_000, 3),  # more than a value may hold
    ],
)
@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_a_quote_that_is_open_to_the_end_is_refused(tmp_path, rows, line, ending):
    path = tmp_path / f"e{ending}"
    data = f"source,target\n{rows}".encode()
    path.write_bytes(gzip.compress(data) if ending == ".csv.gz" else data)
    expected = f"must close every quoted value, .* in the row at line {line} of"
    with pytest.raises(InputError, match=f"edges {expected}"):
        read_edges(path)
    with pytest.raises(InputError, match=f"pairs {expected}"):
        list(read_pairs(path, NodeIds.from_values(["a", "b", "c", "d"])))


def test_an_open_quote_in_features_is_refused(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text('node,v\na,1\n"b,2\nc,3\n')
    with pytest.raises(InputError, match=r"features must close every quoted value, .* line 3"):
        read_features(path, NodeIds.from_values(["a"]))


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_quote_within_a_plain_value_is_a_character(tmp_path, end):
    path = tmp_path / "e.csv"
    path.write_text(f'source,target\n5" pipe,c\nd,e{end}', newline="")
    named = read_edges(path)
    assert named.node_ids.decode(range(4)).to_pylist() == ['5" pipe', "c", "d", "e"]
    assert named.graph.num_pairs == 2


def test_line_breaks_in_another_column_do_not_end_a_row_of_a_long_file(tmp_path, monkeypatch):
    monkeypatch.setattr(tables_module, "_BLOCK", 1 << 10)
    path = tmp_path / "e.csv"
    rows = [f'{i},{i + 1},"first\nsecond, ""{i}"""' for i in range(1_000)]
    path.write_text("source,target,text\n" + "\n".join(rows) + "\n")
    graph = read_edges(path).graph
    assert graph.pairs.tolist() == [list(range(1_000)), list(range(1, 1_001))]
    chunks = list(read_pairs(path, NodeIds.range(1_001)))
    assert [row for chunk in chunks for row in chunk.edge_label_index[0].tolist()] == list(range(1_000))
    with_values = tmp_path / "x.csv"
    with_values.write_text('node,"two\nlines"\n' + "".join(f'"{i}","{i}"\n' for i in range(1_000)))
    x = read_features(with_values, NodeIds.range(1_000))
    assert x[:, 0].tolist() == list(range(1_000))
