"""Text of any dialect, packed files, MatrixMarket, GraphML: read as others do, or refused in one line."""

import bz2
import csv
import gzip
import io
import os
import random
import re
import unicodedata
import zipfile

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from linkcal.data import NodeIds, read_edges, read_features, read_pairs
from linkcal.exceptions import InputError, LinkcalWarning
from refusals import refuses

SNAP = '# {}irected graph: net.txt\n# A "net"\n# Nodes: 4 Edges: 4\n# FromNodeId\tToNodeId\n'
ROWS = "10\t2\n2\t10\n3\t2\n10\t45\n"
MTX = "%%MatrixMarket matrix coordinate pattern symmetric\n% one\n% two\n% three\n5 5 3\n2 1\n3 1\n4 3\n"
GRAPHML = (
    '<?xml version="1.0" encoding="UTF-8"?><graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
    '<graph edgedefault="undirected"><node id="a"/><node id="b"/><node id="lone"/><node id="d"/>'
    '<edge source="b" target="a"/><edge source="a" target="b"/><edge source="b" target="d"/>'
    "</graph></graphml>"
)
# A document type that no search for its bytes finds.
DTD_16 = GRAPHML.replace("UTF-8", "UTF-16").replace("?>", "?><!DOCTYPE g>").encode("utf-16")


def put(path, content):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def zipped(**members):
    """A zip archive; a name's underscore stands for the dot."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("_", "."), content)
    return file.getvalue()


def names_of(named):
    """Edges as sets of the texts of both ids."""
    ends = [named.node_ids.decode(row).to_pylist() for row in named.graph.pairs]
    return {frozenset(map(str, pair)) for pair in zip(*ends, strict=True)}


def sets(*pairs):
    return {frozenset(pair.split()) for pair in pairs}


# --- formats with a fixed meaning ---


@pytest.mark.parametrize("head", ["# FromNodeId\tToNodeId", "# FromNodeId ToNodeId", "#FromNodeId\tToNodeId"])
@pytest.mark.parametrize("name", ["net.txt", "net.txt.gz", "net.TSV", "net.csv", "net.edges.bz2"])
@pytest.mark.parametrize("columns", [{}, {"source": "FromNodeId", "target": "ToNodeId"}])
def test_case_a1_snap(tmp_path, name, head, columns):
    text = SNAP.format("Und").replace("# FromNodeId\tToNodeId", head) + ROWS
    pack = {"gz": gzip.compress, "bz2": bz2.compress}.get(name.split(".")[-1], bytes)
    named = read_edges(put(tmp_path / name, pack(text.encode())), **columns)
    other = nx.read_edgelist(io.BytesIO(text.encode()), comments="#")
    assert names_of(named) == {frozenset(edge) for edge in other.edges}
    assert named.node_ids.decode(range(4)).to_pylist() == [2, 3, 10, 45]
    pairs = put(tmp_path / f"p{name}", pack((head + "\n45\t3\n").encode()))
    (chunk,) = read_pairs(pairs, named.node_ids, **columns)
    assert chunk.edge_label_index.tolist() == [[3], [1]]


def test_what_a_file_says_of_its_edges_is_heard(tmp_path):
    path = put(tmp_path / "net.txt", SNAP.format("D") + ROWS)
    with pytest.warns(LinkcalWarning, match=r"its edges have a direction, .* \(--directed\)"):
        assert read_edges(path).graph.num_pairs == 3
    assert read_edges(path, directed=True).graph.num_pairs == 4
    for name, text in (("net.txt", SNAP.format("Und") + ROWS), ("net.mtx", MTX), ("net.graphml", GRAPHML)):
        with pytest.raises(InputError, match=r"^edges .* got an undirected network by the header of"):
            read_edges(put(tmp_path / name, text), directed=True)


@pytest.mark.filterwarnings("ignore:column .* is not read")
@pytest.mark.parametrize("options", [{}, {"source": "protein1", "target": "protein2"}])
def test_case_a2_string(tmp_path, options):
    rows = [("4932.YAL001C", "4932.YBR123C"), ("4932.YAL001C", "4932.YDR362C")]
    text = "".join(f"{u} {v} 900\n{v} {u} 900\n" for u, v in rows)
    packed = gzip.compress(f"protein1 protein2 combined_score\n{text}".encode())
    path = put(tmp_path / "4932.links.txt.gz", packed)
    named = read_edges(path, **options)
    assert names_of(named) == {frozenset(row) for row in rows}
    assert named.node_ids.decode(range(3)).to_pylist() == sorted({node for row in rows for node in row})
    assert read_edges(path, weight="combined_score", **options).graph.edge_weight.tolist() == [900.0] * 4


@pytest.mark.filterwarnings("ignore:column .* is not read")
def test_konect(tmp_path):
    text = "% sym weighted\n% 3 4 4\n1 2 \n2  3\n3\t1 \n4 1\n"
    named = read_edges(put(tmp_path / "out.net", text))
    other = nx.read_edgelist(io.BytesIO(text.encode()), comments="%", nodetype=int)
    assert names_of(named) == {frozenset(map(str, edge)) for edge in other.edges}
    with pytest.warns(LinkcalWarning, match="have a direction"):
        read_edges(put(tmp_path / "out.net", "% asym weighted\n1 2\t1 1082008561\n2 3\t1 1082008562\n"))
    with pytest.raises(InputError, match=r"^edges must number all nodes together, got a bipartite KONECT"):
        read_edges(put(tmp_path / "out.net", "% bip unweighted\n1 1\n2 1\n"))


@pytest.mark.parametrize("name", ["net.mtx", "net.mtx.gz", "net.MTX.zip"])
@pytest.mark.parametrize(
    "text",
    [MTX, "%%MatrixMarket matrix coordinate real general\n%\n4 4 3\n2 1 0.5\n1 2 0.5\n3 1 -2e-1\n"],
    ids=["pattern", "values"],
)
@pytest.mark.filterwarnings("ignore:.*have a direction")
def test_case_a14_matrix_market(tmp_path, name, text):
    packs = {"gz": gzip.compress, "ip": lambda raw: zipped(net_mtx=raw)}
    content = packs.get(name[-2:], bytes)(text.encode())
    named = read_edges(put(tmp_path / name, content))
    other = scipy.io.mmread(io.BytesIO(text.encode()))
    edges = {frozenset(map(str, (u + 1, v + 1))) for u, v in zip(*other.coords, strict=True)}
    assert names_of(named) == edges
    assert named.node_ids == NodeIds.from_values(range(1, other.shape[0] + 1))  # node 5 has no edge
    more = "edges of a mtx file must be read without further columns, got 'w' of"
    refuses(more, read_edges, tmp_path / name, weight="w")


def test_graphml(tmp_path):
    named = read_edges(put(tmp_path / "net.graphml.gz", gzip.compress(GRAPHML.encode())))
    assert names_of(named) == {frozenset(e) for e in nx.parse_graphml(GRAPHML).to_undirected().edges()}
    assert named.node_ids.decode(range(4)).to_pylist() == ["a", "b", "d", "lone"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("n.mtx", MTX.replace("5 5", "5 6").replace("symmetric", "general"), "square matrix.* got 5 x 6"),
        ("n.mtx", "%%MatrixMarket matrix array real general\n1 1\n1\n", "start with .* matrix coordinate"),
        ("n.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 1\n2 1 0\n", "no entry of value 0"),
        ("n.mtx", MTX.replace("5 5 3", "99999999999 99999999999 3"), "most rows in use"),
        ("n.mtx", MTX.replace("5 5 3", "5 5 30000000000"), "must hold 30000000000 entries"),
        ("n.mtx", MTX.replace("4 3", "9 3"), "entries of rows 1 to 5"),
        ("n.mtx", MTX.replace("4 3", "4 3 1"), "a valid mtx file, .* Expected 2 columns, got 3"),
        ("n.mtx", MTX.replace("4 3", "4 3\0"), "a NUL byte within line 8"),
        ("n.mtx", MTX.replace("4 3", "4 3.5"), "a valid mtx file, .* conversion error"),
        ("n.txt", MTX, "a MatrixMarket file by its first line; name it .mtx"),
        ("n.graphml", GRAPHML.replace("?>", '?><!DOCTYPE g [<!ENTITY a "aa">]>'), "without a document type"),
        ("n.graphml", DTD_16, "without a document type"),
        ("n.graphml", GRAPHML[:-9], "a valid graphml file"),
        ("n.graphml", "<a/>", "a valid graphml file"),
        ("n.zip", zipped(a_csv="source,target\na,b\n", b_csv=""), "one file, got 2: 'a.csv', 'b.csv'"),
        ("n.zip", zipped(), "must hold one file, got 0: none"),
        ("n.zip", zipped(a_exe="x"), r"must be a file that ends in \.csv"),
        ("n.zip", b"PK\x03\x04", "must be a zip archive"),
        ("n.csv.xz", b"", r"must be a file that ends in .* \(text also \.gz, \.bz2, \.zip\)"),
    ],
)  # fmt: skip
def test_graphs_and_archives_that_cannot_be_right(tmp_path, name, content, message):
    refuses(message, read_edges, put(tmp_path / name, content))


# --- text ---


@pytest.mark.parametrize("delimiter", [" ", ";", "|", "\t", ","])
@pytest.mark.parametrize("name", ["e.csv", "e.tsv", "e.txt", "e.CSV.GZ", "e.edges.bz2", "e.csv.zip"])
def test_a_header_names_the_delimiter(tmp_path, name, delimiter):
    text = "w,source,target\n1,a,b\n2,b,c\n3,a,b\n".replace(",", delimiter).encode()
    pack = {"GZ": gzip.compress, "bz2": bz2.compress, "zip": lambda raw: zipped(any_txt=raw)}
    path = put(tmp_path / name, pack.get(name.split(".")[-1], bytes)(text))
    assert names_of(read_edges(path)) == sets("a b", "b c")
    other = read_edges(path, source="w", target="target", delimiter=delimiter)
    assert names_of(other) == sets("1 b", "2 c", "3 b")
    (chunk,) = read_pairs(path, NodeIds.from_values(["a", "b", "c"]))
    assert chunk.edge_label_index.tolist() == [[0, 1, 0], [1, 2, 1]]


@pytest.mark.parametrize(
    ("text", "options", "edges"),
    [
        ("236 186\n122  285 \n", {}, sets("236 186", "122 285")),
        ("a;b;1\nb;c;2\n", {}, sets("a b", "b c")),
        ("a;b;1\nb;c;2\n", {"source": "3", "target": "1"}, sets("1 a", "2 b")),
        ("a b\tc\nd e\tf\n", {"delimiter": " "}, sets("a b", "d e")),
        ("# said 1 2\n\n1 2\n3 4\n", {}, sets("1 2", "3 4")),
        ("1 2\n// x\n3 4\n", {"comment": "//"}, sets("1 2", "3 4")),
        ("#love #joy\n#joy fun\n", {}, sets("#love #joy", "#joy fun")),
    ],
)
def test_files_without_a_header(tmp_path, text, options, edges):
    named = read_edges(put(tmp_path / "e.txt", text), header=False, **options)
    assert names_of(named) == edges
    wide = read_edges(put(tmp_path / "e.csv", "Ann Lee,Bo Li\n"), header=False)  # the ending decides
    assert names_of(wide) == {frozenset(["Ann Lee", "Bo Li"])}


@pytest.mark.parametrize(
    ("text", "options", "edges"),
    [
        ("#source;target\na;b\n", {}, sets("a b")),
        ("# by me\n# source\ttarget\na\tb\n", {}, sets("a b")),
        ("# by me\n\nsource,target\na,b\n", {}, sets("a b")),
        ("source,target\na,b\n# c,d\n  #e\nf,g\n", {"comment": "#"}, sets("a b", "f g")),
        ("source,target\n# a,b\n", {"comment": ""}, {frozenset(["# a", "b"])}),
        ("source,target\n#a,#b\n", {}, sets("#a #b")),
        ("\ufeffsource,target\r\na,b\r\n", {}, sets("a b")),
        ('source,target,t\na,b,"C:\\"\nb,c,"say ""x\\""y"\n', {}, sets("a b", "b c")),
    ],
)
def test_comments_and_quotes_that_are_clear(tmp_path, text, options, edges):
    assert names_of(read_edges(put(tmp_path / "e.csv", text), **options)) == edges


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("236 186\n122 285\n", {}, "got '236', '186' in .*no header. Pass --no-header"),
        ("xy\nab\n", {}, "got 'xy' in .* Pass --delimiter"),
        ("u;v\na;b\n", {}, "got 'u', 'v' in .* with --source and --target"),
        ("# by me\nu v\na b\n", {}, "got 'u', 'v' in .* with --source and --target"),
        ("Export of 2020\n\nsource,target\na,b\n", {}, "line 3 has them: remove the lines before it, or"),
        ("sep=;\nsource;target\na;b\n", {}, "line 2 has them"),
        ("a b\tc\n", {"header": False}, "got several that would in .* name it with --delimiter"),
        ("ab\n", {"header": False}, "got a first row without one in .* name it with --delimiter"),
        ("source,target\na,b\n", {"delimiter": ";"}, "got 'source,target' in .* Pass --delimiter"),
        ("a,b\n", {"delimiter": "::"}, r"^delimiter \(--delimiter\) must be one character .* got '::'"),
        ("a,b\n", {"comment": "# "}, r"^comment \(--comment\) must be .* without blanks or quotes, got '# '"),
        ("source,target\na,b\n\nsource,target\nb,c\n", {}, "like a header in line 4 of .*; remove it"),
        ("1,2\na,b\nFromNodeId,ToNodeId\n", {"header": False}, "what looks like a header in line 3"),
        ("source,target\na,b\n# c,d\n", {}, "what looks like a comment in line 3 of .*; pass --comment"),
        (
            "source,target\na,b\n# c\n",
            {},
            r"got 1: # c; the delimiter is ',' \(--delimiter\), .* \(--comment\)",
        ),
        ('# x\nsource,target,t\na,b,"1\n2"\n', {}, "must end quoted values in their line .*--comment ''"),
        ('source target\n"a b" c\n', {}, "must not quote values where blanks delimit"),
        ("source,target\na,b\n\ufeffsource,target\nb,c\n", {}, "mark .joined files.. within line 3"),
        ("source,target\na,b\nb,\0c\n" + "a,b\n" * 9, {}, "UTF-16 or binary data"),
        ("source,target\n" + "a,b\n" * 999 + "b,\0c\n", {}, "a NUL byte within line 1001"),
        ('source,target\n"a\\"b",c\n', {}, r'write a quote within a value twice \(""\), .* after line 1'),
        ('source,target\n"a\\",b",c\n', {}, r'must write a quote within a value twice \(""\)'),
        ("# only\n", {"header": False}, "must have at least one row, got the empty file"),
    ],
)
def test_text_that_is_refused_in_one_line_with_what_helps(tmp_path, text, options, message):
    refuses(message, read_edges, put(tmp_path / "e.csv", text), **options)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_utf_16_is_named(tmp_path, encoding):
    with pytest.raises(InputError, match=r"^edges must be text in UTF-8, got UTF-16 or binary data in"):
        read_edges(put(tmp_path / "e.csv", "source,target\na,b\n".encode(encoding)))


def test_features_have_any_delimiter_too(tmp_path):
    path = put(tmp_path / "x.txt.gz", gzip.compress(b"#node;age\n1;30\n0;25\n"))
    assert read_features(path, NodeIds.range(2)).tolist() == [[25.0], [30.0]]
    with pytest.raises(InputError, match=r"^features must be text in UTF-8, got a NUL byte within line 1500"):
        read_features(put(tmp_path / "x.csv", "n,v\n" + "1,1\n" * 1498 + "\0,1\n"), NodeIds.range(2))


# --- ids that look alike ---


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("ann", "Ann"), ("ann", "ann\u200b"), ("ann", "a\u00adnn"), ("a b", "a\u00a0b"), ("ann", "\uff41nn"),
        ("ann", "'ann'"), ("a b", "a  b"), ("7", "07"), ("7", "7.0"), ("-7", "-7.00"),
    ],
    ids=ascii,
)  # fmt: skip
def test_twins_are_warned_about_with_an_example(tmp_path, first, second):
    path = put(tmp_path / "e.csv", f"source,target\n{first},bob\n{second},carol\n")
    with pytest.warns(LinkcalWarning) as caught:
        named = read_edges(path)
    text = str(caught[0].message)
    assert "are different nodes, 1 times, such as" in text
    assert ascii(first) in text
    assert ascii(second) in text
    assert len(named.node_ids) == 4


def test_unicode_forms(tmp_path):
    nfc, nfd = (unicodedata.normalize(form, "caf\u00e9") for form in ("NFC", "NFD"))
    with pytest.warns(LinkcalWarning, match=r"such as 'cafe\\u0301' and 'caf\\xe9'"):
        read_edges(put(tmp_path / "e.csv", f"source,target\n{nfc},bob\n{nfd},carol\n"))
    ids = NodeIds.from_values([nfc, "bob", "7"])
    for unknown, known in ((nfd, r"'caf\\xe9'"), ("7.0", "'7'"), ("BOB", "'bob'")):
        path = put(tmp_path / "p.csv", f"source,target\n{nfc},bob\n7,{unknown}\n")
        refuses(rf"in line 3 \(the graph has {known}, which looks alike\)$", list, read_pairs(path, ids))


def test_signs_that_no_id_has_are_refused_in_tables_without_text(tmp_path):
    for sign in ("\0", "\ufeff"):
        pq.write_table(pa.table({"source": ["a" + sign], "target": ["b"]}), tmp_path / "e.parquet")
        refuses("node ids must have no NUL or byte order mark, got 'a", read_edges, tmp_path / "e.parquet")


# --- seeded fuzz: bytes of each format are changed ---


def _valid_files():
    rng = np.random.default_rng(0)
    ends = rng.integers(0, 40, (60, 2))
    rows = "".join(f"{u}\tn{v}\n" for u, v in ends)
    numbers = "".join(f"{u + 1} {v + 1}\n" for u, v in ends)
    quoted = "".join(f'"{u}","n ""{v}"", x"\n' for u, v in ends)
    table, arrays = io.BytesIO(), io.BytesIO()
    pq.write_table(pa.table({"source": ends[:, 0], "target": [f"n{v}" for v in ends[:, 1]]}), table)
    np.savez(arrays, source=ends[:, 0], target=ends[:, 1], blank=np.array([]))
    plain = "source,target\n" + rows.replace("\t", ",")
    xml = io.BytesIO()
    nx.write_graphml(nx.Graph([(f"n{u}", f"m{v}") for u, v in ends]), xml)
    return {
        "e.csv": plain.encode(), "q.csv": b"source,target\n" + quoted.encode(),
        "e.txt": (SNAP.format("Und").replace('"', "") + rows).encode(),
        "out.net": b"% sym unweighted\n" + numbers.encode(),
        "e.csv.gz": gzip.compress(plain.encode()), "e.csv.bz2": bz2.compress(plain.encode()),
        "e.zip": zipped(e_csv=plain), "e.parquet": table.getvalue(), "e.npz": arrays.getvalue(),
        "e.mtx": f"%%MatrixMarket matrix coordinate pattern general\n40 40 60\n{numbers}".encode(),
        "e.graphml": xml.getvalue(),
    }  # fmt: skip


VALID = _valid_files()
ROUNDS = int(os.environ.get("LINKCAL_FUZZ_ROUNDS", "60"))
_BYTES = b'",;\t\n\r #%\\0-=<&/\xff\x00\xef'


def _damaged(content, rng):
    """The content with some bytes changed, cut out, or doubled."""
    content = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8))):
        start = rng.randrange(len(content) + 1)
        end = min(len(content), start + rng.choice((0, 1, 1, 2, 30)))
        part = bytes(content[start:end])
        content[start:end] = rng.choice(
            (b"", part * 2, bytes([rng.choice(_BYTES)]), bytes([rng.randrange(256)]), part[::-1])
        )
    return bytes(content)


def _expected(name, content):
    """Edges as somebody else reads them; None where the file is no longer what the other reader takes."""
    if name in ("e.csv", "q.csv"):
        text = content.decode("utf-8", "replace")
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
        return (
            None if rows[0] != ["source", "target"] else [tuple(v.strip() for v in row) for row in rows[1:]]
        )
    if name == "e.txt":
        head, text = SNAP.format("Und").replace('"', ""), content.decode("utf-8", "replace")
        rows = [re.split("[ \t]+", row.strip(" \t")) for row in re.split("[\r\n]+", text[len(head) :])]
        return (
            [tuple(v.strip() for v in row) for row in rows if row != [""]] if text.startswith(head) else None
        )
    if name == "e.mtx":
        return [
            (str(u + 1), str(v + 1))
            for u, v in zip(*scipy.io.mmread(io.BytesIO(content)).coords, strict=True)
        ]
    return None


def _attempt(read, *arguments, **options):
    """What was read, or None where a line says why not; any other exception ends the test."""
    try:
        return read(*arguments, **options)
    except InputError as error:
        text = str(error)
    assert "\n" not in text
    assert len(text) < 1000
    return None


@pytest.mark.filterwarnings("ignore::linkcal.exceptions.LinkcalWarning")
@pytest.mark.parametrize("name", VALID)
def test_changed_bytes_are_read_exactly_or_refused_in_one_line(tmp_path, name):
    path, rng, read = tmp_path / name, random.Random(name), 0
    for _ in range(ROUNDS):
        content = _damaged(VALID[name], rng)
        path.write_bytes(content)
        named = _attempt(read_edges, path, bipartite=False)
        if named is not None:
            read += 1
            expected = _expected(name, content)
            if expected is not None:
                assert names_of(named) == {frozenset(pair) for pair in expected if pair[0] != pair[1]}, (
                    content
                )
    assert 0 < read < ROUNDS


def test_changed_bytes_of_features(tmp_path):
    path, rng = tmp_path / "x.csv", random.Random(0)
    valid = ("id,a,b\n" + "".join(f"{i},{i / 7},{i}\n" for i in range(50))).encode()
    for _ in range(ROUNDS):
        path.write_bytes(_damaged(valid, rng))
        x = _attempt(read_features, path, NodeIds.range(50))
        assert x is None or torch.isfinite(x).all()


LINE = st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=12)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(st.lists(LINE, max_size=5), st.booleans(), st.sampled_from([None, "", "#"]))
@pytest.mark.filterwarnings("ignore::linkcal.exceptions.LinkcalWarning")
def test_any_text_is_read_or_refused(tmp_path, lines, header, comment):
    path = put(tmp_path / "e.txt", "\n".join(lines))
    _attempt(read_edges, path, header=header, comment=comment)
