import gzip
import random

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from linkcal.data import NodeIds, own_files, read_edges, read_features, read_pairs
from linkcal.exceptions import InputError, LinkcalWarning
from refusals import refuses

EDGES = "source,target,amount\nbob,alice,1\nalice,carol,2\ncarol,carol,3\nalice,bob,4\n"


def _write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def _edge_file(folder, ending):
    """The edges of EDGES in each format."""
    path = folder / f"edges{ending}"
    source, target = ["bob", "alice", "carol", "alice"], ["alice", "carol", "carol", "bob"]
    if ending == ".csv.gz":
        path.write_bytes(gzip.compress(EDGES.encode()))
    elif ending == ".tsv":
        _write(path, EDGES.replace(",", "\t"))
    elif ending == ".parquet":
        pq.write_table(pa.table({"target": target, "source": source}), path)
    elif ending == ".npz":
        np.savez(path, source=np.array(source), target=np.array(target))
    else:
        _write(path, EDGES)
    return path


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".tsv", ".parquet", ".npz"])
def test_all_formats_give_the_same_graph(tmp_path, ending):
    named = read_edges(_edge_file(tmp_path, ending))
    assert named.node_ids.decode(range(3)).to_pylist() == ["alice", "bob", "carol"]
    assert named.graph.pairs.tolist() == [[0, 0], [1, 2]]
    assert named.graph.name == "edges"
    assert named.graph.num_self_loops == 1
    assert named.graph.x is None
    directed = read_edges(_edge_file(tmp_path, ending), directed=True).graph
    assert directed.edge_index.tolist() == [[0, 0, 1], [1, 2, 0]]


def test_other_columns_and_blanks_in_the_header(tmp_path):
    path = _write(tmp_path / "e.csv", "\ufeffto , from\n1,2\n2,3\n")
    named = read_edges(path, source="from", target="to", directed=True)
    assert named.graph.edge_index.tolist() == [[1, 2], [0, 1]]


def test_integer_ids_of_csv_and_parquet_are_equal(tmp_path):
    text = read_edges(_write(tmp_path / "e.csv", "source,target\n10,9\n9,100\n"))
    pq.write_table(pa.table({"source": [10, 9], "target": [9, 100]}), tmp_path / "e.parquet")
    number = read_edges(tmp_path / "e.parquet")
    assert text.node_ids == number.node_ids
    assert text.node_ids.decode(range(3)).to_pylist() == [9, 10, 100]
    assert torch.equal(text.graph.edge_index, number.graph.edge_index)


def test_leading_zeros_are_kept(tmp_path):
    with pytest.warns(LinkcalWarning, match=r"leading zeros .* 1 times, such as '007' and '7'"):
        named = read_edges(_write(tmp_path / "e.csv", "source,target\n007,7\n7,8\n"))
    assert named.node_ids.decode(range(3)).to_pylist() == ["007", "7", "8"]


def test_integers_beside_the_same_as_floats_are_named(tmp_path):
    path = _write(tmp_path / "e.csv", "source,target\n1.0,2\n2.0,3\n3.00,1\n4.0,v1.0\n")
    with pytest.warns(LinkcalWarning, match=r"e\.csv .* 3 times, such as '1' and '1\.0'"):
        named = read_edges(path)
    assert len(named.node_ids) == 8
    alone = read_edges(_write(tmp_path / "f.csv", "source,target\n1.0,2.0\n2.0,x\n"))
    assert alone.node_ids.decode(range(3)).to_pylist() == ["1.0", "2.0", "x"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("e.csv", "", r"edges must have a header line, got the empty file .*e\.csv"),
        ("e.csv", "source,target\n", r"edges must have at least one row, got none in .*e\.csv"),
        (
            "e.csv",
            "from,to\na,b\n",
            r"edges must have the columns .*, each once, got 'from', 'to' in .*e\.csv; name .* --source",
        ),
        (
            "e.csv",
            "source,to\na,b\n",
            r"edges must have the columns .*, each once, got 'source', 'to' in .*e\.csv; name .* --source",
        ),
        (
            "e.csv",
            "1,2\n2,3\n",
            r"got '1', '2' in .*e\.csv; the first line looks like data: .* no header\? Pass --no-header",
        ),
        ("e.csv", "source,target,target\na,b,c\n", "each once, got 'source', 'target', 'target' in"),
        ("e.csv", "source,target\na,b\nc\n", r"must be a valid csv file, got .*Expected 2 columns, got 1"),
        (
            "e.csv",
            "source,target\na,b\n\nc,\n ,d\n",
            r"edges must have a node id in every row, got 2 without one, the first in line 4 \(column 'ta",
        ),
        ("e.parquet", "no parquet", r"edges must be a valid parquet file, got .*e\.parquet"),
        ("e.npz", "no npz", r"edges must be an npz file of plain arrays, got .*e\.npz"),
        (
            "e.json",
            "{}",
            r"edges must be a file that ends in \.csv, \.tsv, .* \.npz, \.mtx, \.graphml .*, got '.*e\.json'",
        ),
        ("e.npz.gz", "", "edges must be a file that ends in"),
        ("noending", "", "edges must be a file that ends in"),
    ],
)
def test_bad_edge_files(tmp_path, name, text, message):
    refuses(message, read_edges, _write(tmp_path / name, text))


def test_missing_file_and_folder(tmp_path):
    refuses(r"edges must be an existing file, got '.*gone\.csv'", read_edges, tmp_path / "gone.csv")
    refuses("edges must be an existing file", read_edges, tmp_path)


def test_text_that_is_not_utf8(tmp_path):
    path = tmp_path / "e.csv"
    path.write_bytes("source,target\nä,b\n".encode("latin-1"))
    refuses("edges must be a CSV file in UTF-8, got", read_edges, path)
    path.write_bytes("sourcé,target\n".encode("latin-1"))
    refuses("edges must be a CSV file in UTF-8", read_edges, path)


@pytest.mark.parametrize(
    ("value", "place"), [(b"caf\xe9", "line 3002"), (b"x" * 200_000, "row 3000")], ids=["latin-1", "long"]
)
def test_a_missing_id_is_named_whatever_other_columns_hold(tmp_path, value, place):
    path = tmp_path / "e.csv"
    rows = b"".join(b"%d,%d,ok\n" % (i, i + 1) for i in range(2999))
    path.write_bytes(b"source,target,t\n" + rows + b"1,5," + value + b"\n,3,x\n")
    refuses(f"got 1 without one, the first in {place}", read_edges, path)
    refuses(f"got 1 without one, the first in {place}", list, read_pairs(path, NodeIds.range(3000)))


def test_parquet_with_other_types_or_nulls(tmp_path):
    path = tmp_path / "e.parquet"
    pq.write_table(pa.table({"source": [1.0, 2.0], "target": [1, 2]}), path)
    refuses(r"column 'source' of .* must hold node ids .strings or integers., got double", read_edges, path)
    pq.write_table(pa.table({"source": [1, None, 2], "target": [1, 2, 3]}), path)
    refuses(r"got 1 without one, the first in row 1 \(column 'source'\)", read_edges, path)
    pq.write_table(pa.table({"source": pa.array(["a"]).dictionary_encode(), "target": ["b"]}), path)
    assert read_edges(path).graph.num_pairs == 1


def test_npz_is_never_unpickled_and_shapes_are_checked(tmp_path):
    path = tmp_path / "e.npz"
    np.savez(path, source=np.array([object()], dtype=object), target=np.array([1]))
    refuses(r"must be an npz file of plain arrays, got .*Object arrays cannot be loaded", read_edges, path)
    np.savez(path, source=np.zeros((2, 2), dtype=int), target=np.array([1]))
    refuses(r"array 'source' of .* must be 1-D and hold integers or strings", read_edges, path)
    np.savez(path, source=np.array([1, 2]), target=np.array([1]))
    refuses("must have equal lengths, got source 2, target 1", read_edges, path)


# --- features -------------------------------------------------------------------------------------------


def _feature_file(folder, ending, ids, x):
    path = folder / f"x{ending}"
    if ending == ".csv":
        rows = [",".join(map(str, [i, *row])) for i, row in zip(ids, x, strict=True)]
        _write(path, "\n".join([",".join(["node", *(f"f{j}" for j in range(len(x[0])))]), *rows]))
    elif ending == ".parquet":
        columns = {"node": ids} | {f"f{j}": [row[j] for row in x] for j in range(len(x[0]))}
        pq.write_table(pa.table(columns), path)
    elif ending == ".npz":
        np.savez(path, x=np.array(x), id=np.array(ids))
    return path


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".npz"])
def test_rows_are_matched_by_id(tmp_path, ending):
    # Rows out of order; "dave" has features only and is an isolated node.
    path = _feature_file(
        tmp_path, ending, ["carol", "bob", "dave", "alice"], [[3.0, 0.5], [2.0, 0.0], [4.0, 0.0], [1.0, 0.0]]
    )
    named = read_edges(_edge_file(tmp_path, ".csv"), features=path)
    assert named.node_ids.decode(range(4)).to_pylist() == ["alice", "bob", "carol", "dave"]
    assert named.graph.x.dtype == torch.float32
    assert named.graph.x.tolist() == [[1, 0], [2, 0], [3, 0.5], [4, 0]]
    assert named.graph.num_pairs == 2
    assert torch.equal(read_features(path, named.node_ids), named.graph.x)


@pytest.mark.parametrize("ending", [".npy", ".npz"])
def test_rows_without_ids_are_matched_by_number(tmp_path, ending):
    edges = _write(tmp_path / "e.csv", "source,target\n3,1\n1,0\n")
    x = np.arange(10).reshape(5, 2)
    path = tmp_path / f"x{ending}"
    np.save(path, x) if ending == ".npy" else np.savez(path, anything=x)
    named = read_edges(edges, features=path)
    assert named.node_ids == NodeIds.range(5)  # nodes 2 and 4 have features only
    assert named.graph.x.tolist() == x.tolist()
    assert named.graph.pairs.tolist() == [[0, 1], [1, 3]]
    assert torch.equal(read_features(path, named.node_ids), named.graph.x)


def test_rows_without_ids_are_of_the_nodes_0_to_m(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    expected = r"features must have a row for each of the {} nodes, got none for {} in .*x\.npy .* first {}"
    with pytest.raises(InputError, match=expected.format(6, 3, "'alice'")):
        read_edges(_edge_file(tmp_path, ".csv"), features=tmp_path / "x.npy")
    edges = _write(tmp_path / "e.csv", "source,target\n1,2\n2,3\n")  # numbered from 1
    refuses(expected.format(4, 1, "3"), read_edges, edges, features=tmp_path / "x.npy")
    refuses(expected.format(5, 2, "3"), read_features, tmp_path / "x.npy", NodeIds.range(5))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("node,f\nalice,1\nbob,2\n", r"a row for each of the 3 nodes, got none for 1 in .*'carol'"),
        ("node,f\nalice,1\nbob,2\ncarol,3\nbob,4\n", r"got a second one for 'bob' in line 5 of"),
        (
            "node,f\nalice,nan\nbob,\ncarol,inf\n",
            r"features must be finite float32 numbers, got 3 NaN or infinite values, the first in line 2",
        ),
        ("node,f\nalice,1\nbob,2\ncarol,1e39\n", r"1 NaN or infinite value, the first in line 4"),
        (
            "node,f\nalice,1\nbob,high\n",
            r"features must be a valid csv file, .*CSV column #1: .*value 'high'",
        ),
        ("node\nalice\n", r"columns for the node id and at least one number, got \['node'\] in"),
        (
            "node,f\nalice,1\n,2\n",
            r"features must have a node id in every row, got 1 without one, the first in line 3",
        ),
        ("", "features must have a header line, got the empty file"),
    ],
)
def test_bad_feature_files(tmp_path, text, message):
    path = _write(tmp_path / "x.csv", text)
    refuses(message, read_edges, _edge_file(tmp_path, ".csv"), features=path)


def test_features_of_unknown_nodes(tmp_path):
    path = _write(tmp_path / "x.csv", "node,f\nalice,1\nzoe,2\nyves,3\n")
    with pytest.raises(InputError, match=r"got 2 unknown ids in .*x\.csv .*, the first 'zoe' in line 3$"):
        read_features(path, NodeIds.from_values(["alice"]))


def test_bad_feature_arrays(tmp_path):
    ids = NodeIds.range(3)
    path = tmp_path / "x.npy"
    np.save(path, np.zeros(3))
    refuses(r"features must be numbers of shape \[N, F\], got float64 \(3,\)", read_features, path, ids)
    np.save(path, np.array([[object()]], dtype=object))
    refuses(r"features must be an npz file of plain arrays, got .*Object arrays", read_features, path, ids)
    np.save(path, np.array([[0.0], [np.nan], [np.inf]]))
    refuses("2 NaN or infinite values, the first in row 1", read_features, path, ids)
    np.save(path, np.zeros((4, 1)))
    refuses(r"of the graph alone, got 1 unknown ids in .* the first 3 in row 3", read_features, path, ids)
    np.savez(tmp_path / "x.npz", a=np.zeros((3, 1)), b=np.zeros((3, 1)))
    with pytest.raises(InputError, match=r"features must be the array 'x' or the only one of .*, got a, b"):
        read_features(tmp_path / "x.npz", ids)
    np.savez(tmp_path / "x.npz", x=np.zeros((3, 1)), id=np.array([1, 2]))
    with pytest.raises(
        InputError, match=r"array 'id' must hold one string or integer per row, 3, got .*\.npz"
    ):
        read_features(tmp_path / "x.npz", ids)
    pq.write_table(pa.table({"node": [0, 1, 2], "f": ["a", "b", "c"]}), tmp_path / "x.parquet")
    refuses(r"column 'f' of .* must hold numbers, got string", read_features, tmp_path / "x.parquet", ids)
    pq.write_table(pa.table({"node": [0.5], "f": [1.0]}), tmp_path / "x.parquet")
    with pytest.raises(
        InputError, match=r"column 'node' of .* must hold node ids .strings or integers., got double"
    ):
        read_features(tmp_path / "x.parquet", ids)


# --- pairs ----------------------------------------------------------------------------------------------

IDS = NodeIds.from_values(["alice", "bob", "carol"])


@pytest.mark.parametrize("chunk_size", [1, 2, 100])
@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_pairs_come_in_the_asked_order(tmp_path, ending, chunk_size):
    source, target = ["bob", "alice", "carol", "bob", "bob"], ["carol", "bob", "alice", "alice", "carol"]
    path = tmp_path / f"p{ending}"
    if ending == ".csv":
        _write(path, "target,source\n" + "".join(f"{t},{s}\n" for s, t in zip(source, target, strict=True)))
    else:
        pq.write_table(pa.table({"source": source, "target": target}), path)
    chunks = list(read_pairs(path, IDS, chunk_size=chunk_size))
    assert max(len(chunk) for chunk in chunks) == min(chunk_size, 5)
    assert [chunk.first_row for chunk in chunks] == list(range(0, 5, chunk_size))
    found = torch.cat([c.edge_label_index for c in chunks], dim=1).tolist()
    assert found == [[1, 0, 2, 1, 1], [2, 1, 0, 0, 2]]
    assert [v for c in chunks for v in c.source.to_pylist()] == source
    assert [v for c in chunks for v in c.target.to_pylist()] == target


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)).filter(lambda p: p[0] != p[1]), max_size=40),
    st.integers(1, 7),
)
def test_streaming_loses_and_reorders_nothing(tmp_path, pairs, chunk_size):
    path = _write(tmp_path / "p.csv", "source,target\n" + "".join(f"{u},{v}\n" for u, v in pairs))
    chunks = list(read_pairs(path, NodeIds.range(9), chunk_size=chunk_size))
    assert [tuple(p) for c in chunks for p in c.edge_label_index.T.tolist()] == pairs


def test_small_blocks_stream_many_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(own_files, "_BLOCK", 64)
    text = "source,target\n" + "alice,bob\nbob,carol\n" * 50
    chunks = list(read_pairs(_write(tmp_path / "p.csv", text), IDS))
    assert len(chunks) > 10
    assert sum(map(len, chunks)) == 100
    assert chunks[-1].first_row + len(chunks[-1]) == 100


def test_unknown_nodes_are_counted_and_the_first_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(own_files, "_BLOCK", 64)
    text = "source,target\nalice,bob\nbob,x1\n\nx2,x3\n" + "alice,bob\n" * 20 + "x4,bob\n"
    expected = r"^pairs must name nodes of the graph \(3 nodes\), got 4 unknown ids .* first 'x1' in line 3$"
    refuses(expected, list, read_pairs(_write(tmp_path / "p.csv", text), IDS))


def test_pairs_with_missing_or_equal_nodes(tmp_path):
    path = _write(tmp_path / "p.csv", "source,target\nalice,bob\nbob,\n")
    refuses(
        r"pairs must have a node id in every row, .* line 3 \(column 'target", list, read_pairs(path, IDS)
    )
    path = _write(tmp_path / "p.csv", 'source,target\nalice,bob\n"carol",carol\n')
    refuses(r"must join two different nodes, got 'carol' with itself in line 3", list, read_pairs(path, IDS))


def test_pairs_file_with_header_only_has_no_chunks(tmp_path):
    assert list(read_pairs(_write(tmp_path / "p.csv", "source,target\n"), IDS)) == []


def test_pairs_file_errors(tmp_path):
    with pytest.raises(InputError, match=r"pairs must have the columns .* each once, got 'source', 'b'"):
        list(read_pairs(_write(tmp_path / "p.csv", "source,b\n"), IDS))
    with pytest.raises(InputError, match="chunk_size must be a whole number >= 1, got 0"):
        list(read_pairs(tmp_path / "p.csv", IDS, chunk_size=0))


# --- damage, types and endings that others meet -----------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "separator"), [("e.TSV", "\t"), ("e.CSV", ","), ("e.tsv.csv", ","), ("e.csv.tsv", "\t")]
)
def test_the_last_ending_alone_names_the_format(tmp_path, name, separator):
    path = _write(tmp_path / name, EDGES.replace(",", separator))
    named = read_edges(path)
    assert named.graph.num_pairs == 2
    pairs = _write(tmp_path / f"p{name}", f"source{separator}target\n\nbob{separator}zoe\n")
    refuses(r"'zoe' in line 3$", list, read_pairs(pairs, named.node_ids))


def test_both_ends_in_one_column_are_refused(tmp_path):
    # Every edge would be a self-loop, and the graph empty for no reason that anyone is told.
    path = _write(tmp_path / "e.csv", EDGES)
    expected = "must have nodes in two different columns, got 'source' for both"
    refuses(f"edges {expected}", read_edges, path, target="source")
    refuses(f"pairs {expected}", list, read_pairs(path, NodeIds.range(2), target="source"))


def test_npz_without_rows(tmp_path):
    np.savez(tmp_path / "e.npz", source=np.empty(0, dtype=int), target=np.empty(0, dtype=int))
    refuses(r"edges must have at least one row, got none in .*e\.npz", read_edges, tmp_path / "e.npz")
    assert list(read_pairs(tmp_path / "e.npz", NodeIds.range(2))) == []


def test_big_endian_arrays_and_string_views(tmp_path):
    np.savez(tmp_path / "e.npz", source=np.array([1, 2], ">i8"), target=np.array([2, 7], ">i4"))
    assert read_edges(tmp_path / "e.npz").node_ids.decode(range(3)).to_pylist() == [1, 2, 7]
    view = pa.array(["b", "a"], pa.string_view())
    pq.write_table(pa.table({"source": view, "target": ["a", "c"]}), tmp_path / "e.parquet")
    named = read_edges(tmp_path / "e.parquet")
    assert named.node_ids.decode(range(3)).to_pylist() == ["a", "b", "c"]
    assert named.graph.pairs.tolist() == [[0, 0], [1, 2]]


@pytest.mark.parametrize("ending", [".npy", ".npz", ".csv", ".parquet"])
def test_features_beyond_float32_are_named_without_a_warning(tmp_path, ending):
    path, x = tmp_path / f"x{ending}", np.array([[1.0], [1e300]])
    if ending == ".npy":
        np.save(path, x)
    elif ending == ".npz":
        np.savez(path, x=x)
    elif ending == ".csv":
        _write(path, "id,x\n0,1.0\n1,1e300\n")
    else:
        pq.write_table(pa.table({"id": [0, 1], "x": x[:, 0]}), path)
    place = "line 3" if ending == ".csv" else "row 1"
    with pytest.raises(
        InputError, match=f"must be finite float32 numbers, got 1 NaN .*, the first in {place} of"
    ):
        read_features(path, NodeIds.range(2))


def test_a_named_pandas_index_is_no_feature(tmp_path):
    path = tmp_path / "x.parquet"
    frame = pd.DataFrame({"rank": [2, 0, 1], "age": [3.0, 1.0, 2.0]}, index=pd.Index([0, 1, 2], name="node"))
    frame.to_parquet(path)
    # Without the check the ranks would be the ids, and the ids a feature.
    with pytest.raises(InputError, match=r"first column, got the pandas index 'node' .* df.reset_index\(\)"):
        read_features(path, NodeIds.range(3))
    frame.reset_index().to_parquet(path)
    assert read_features(path, NodeIds.range(3)).tolist() == [[2.0, 3.0], [0.0, 1.0], [1.0, 2.0]]


def test_a_nameless_pandas_index_is_left_out(tmp_path):
    path = tmp_path / "x.parquet"
    frame = pd.DataFrame({"node": ["c", "a", "b", "z"], "age": [3.0, 1.0, 2.0, 9.0]})
    frame[frame["age"] < 9.0].to_parquet(path)
    assert read_features(path, NodeIds.from_values(["a", "b", "c"])).tolist() == [[1.0], [2.0], [3.0]]


def test_yes_and_no_are_one_and_zero(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"node": [0, 1], "red": [True, False]}), path)
    assert torch.equal(read_features(path, NodeIds.range(2)), torch.tensor([[1.0], [0.0]]))
    pq.write_table(pa.table({"node": [0, 1], "red": [True, None]}), path)
    refuses("1 NaN or infinite value, the first in row 1", read_features, path, NodeIds.range(2))


@pytest.mark.parametrize("name", ["ids", "node_id", "Nodes"])
def test_an_array_of_ids_under_another_name_is_not_passed_over(tmp_path, name):
    path = tmp_path / "x.npz"
    np.savez(path, x=np.arange(6.0).reshape(3, 2), **{name: np.array([2, 0, 1])})
    refuses(f"ids must be named 'id' .*, got '{name}'", read_features, path, NodeIds.range(3))
    np.savez(path, x=np.arange(6.0).reshape(3, 2), y=np.array([1, 0, 1]))
    assert read_features(path, NodeIds.range(3))[:, 0].tolist() == [0.0, 2.0, 4.0]


# --- quoted values ---


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ('a,"b\nb,c\nc,d\n', 1),
        ('a,b\n\n"b\nx",c\nc,"d', 5),
        ('a,b\nb,"c\n' + "c,d\n" * 50_000, 2),  # more than a value may hold
    ],
)
@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_a_quote_that_is_open_to_the_end_is_refused(tmp_path, rows, line, ending):
    path = tmp_path / f"e{ending}"
    data = f"source,target\n{rows}".encode()
    path.write_bytes(gzip.compress(data) if ending == ".csv.gz" else data)
    expected = f"must close every quoted value, .* in the row after line {line} of"
    refuses(f"edges {expected}", read_edges, path)
    refuses(f"pairs {expected}", list, read_pairs(path, NodeIds.from_values(["a", "b", "c", "d"])))


def test_an_open_quote_in_features_is_refused(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text('node,v\na,1\n"b,2\nc,3\n')
    with pytest.raises(InputError, match=r"features must close every quoted value, .* after line 2 of"):
        read_features(path, NodeIds.from_values(["a"]))


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_quote_within_a_plain_value_is_a_character(tmp_path, end):
    path = tmp_path / "e.csv"
    path.write_text(f'source,target\n5" pipe,c\nd,e{end}', newline="")
    named = read_edges(path)
    assert named.node_ids.decode(range(4)).to_pylist() == ['5" pipe', "c", "d", "e"]
    assert named.graph.num_pairs == 2


def test_line_breaks_in_another_column_do_not_end_a_row_of_a_long_file(tmp_path, monkeypatch):
    monkeypatch.setattr(own_files, "_BLOCK", 1 << 10)
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


# --- damage: one line that names the file, whatever is in it ---


@pytest.mark.parametrize("kind", ["edges", "features"])
@pytest.mark.parametrize("ending", [".parquet", ".npz", ".csv.gz"])
def test_flipped_bytes_are_one_line_that_names_the_file(tmp_path, ending, kind):
    columns = {"source": np.arange(300), "target": np.arange(300) % 7 + 300}
    path, rng = tmp_path / f"e{ending}", random.Random(0)
    if ending == ".parquet":
        pq.write_table(pa.table(columns), path)
    elif ending == ".npz":
        np.savez(path, x=np.zeros((300, 2)), **columns)
    else:
        pd.DataFrame(columns).to_csv(path, index=False)
    whole, messages = path.read_bytes(), []
    for number in range(120):
        damaged = bytearray(whole[: rng.randrange(len(whole))] if number % 3 == 0 else whole)
        for _ in range(min(len(damaged), 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        path.write_bytes(damaged)
        try:
            read_edges(path) if kind == "edges" else read_features(path, NodeIds.range(300))
        except InputError as error:
            messages.append(str(error))
    assert len(messages) > 40
    assert all(str(path) in text and "\n" not in text and len(text) < 700 for text in messages)


def test_npz_names_with_blanks_are_other_names(tmp_path):
    np.savez(tmp_path / "e.npz", **{" source": np.array([1]), "target": np.array([2])})
    refuses(r"edges must have the array 'source', got ' source', 'target' in", read_edges, tmp_path / "e.npz")


@pytest.mark.parametrize(
    "text",
    [
        "source,target\n" + "x" * 3_000_000 + ",a,b\n",
        "source," + "x" * 100_000 + "\n1,2\n",
        "source,target\n" + "x" * 100_000 + "," + "x" * 100_000 + "\n",
        ",".join(f"c{i}" for i in range(50_000)) + "\n",
    ],
    ids=["row", "name", "id", "columns"],
)
def test_no_message_repeats_a_long_line(tmp_path, text):
    path = _write(tmp_path / "e.csv", text)
    with pytest.raises(InputError) as caught:
        list(read_pairs(path, NodeIds.from_values(["a", "x" * 100_000])))
    assert len(str(caught.value)) < 600
    with pytest.raises(
        InputError, match=r"^values must be known node ids, got 'xxx.*\.\.\. at position 0$"
    ) as caught:
        NodeIds.range(2).encode(["x" * 100_000])
    assert len(str(caught.value)) < 300
