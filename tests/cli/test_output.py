"""Ids that spreadsheets or line readers would take for something else, through every output and back."""

import csv
import io
import re

import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from linkcal._core.tables import Columns
from linkcal.cli._output import csv_rows
from linkcal.data import Graph, NodeIds, read_pairs
from linkcal.predictor import CalibratedLinkPredictor

from .test_scoring import predictor_on

pytestmark = pytest.mark.filterwarnings("always::linkcal.exceptions.LinkcalWarning")

HOSTILE = [
    "=1+1", "+7", "-x", "@cmd", "'=q", "''-z", "a\rb", "a\nb", "a;=b", 'say "hi"', "-5", "-5.25", "'quoted'",
    "x,y", "tab\tin", "\uff1dfull", "007", "plain", "b\u200b", "=HYPERLINK(\"http://x\")",
]  # fmt: skip
FORMULA = re.compile("[=+@\t\r\n\uff1d]|-(?![0-9.]+$)")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A folder whose nodes have such ids, and all its non-neighbours in a file."""
    folder, nodes = tmp_path_factory.mktemp("hostile"), torch.arange(20)
    ring = Graph.from_edges(torch.stack([nodes, (nodes + 1) % 20]), 20, x=torch.rand(20, 4))
    predictor = CalibratedLinkPredictor.load(predictor_on(ring, "gcn", folder / "run"))
    predictor.node_ids_ = NodeIds.from_values(HOSTILE)
    predictor.save(folder / "run")
    pairs = [(u, v) for i, u in enumerate(HOSTILE) for v in HOSTILE[i + 1 :]]
    with (folder / "pairs.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([("source", "target"), *pairs])
    return folder, pairs


def read_back(path, **options):
    ids = NodeIds.from_values(HOSTILE)
    chunks = list(read_pairs(path, ids, **options))
    ends = [[i for chunk in chunks for i in getattr(chunk, end).to_pylist()] for end in ("source", "target")]
    index = torch.cat([chunk.edge_label_index for chunk in chunks], dim=1)
    assert index.tolist() == [ids.encode(end).tolist() for end in ends]
    return list(zip(*ends, strict=True))


def test_scores_of_hostile_ids_come_back(cli, hostile, tmp_path):
    folder, pairs = hostile
    safe, raw, table = (tmp_path / name for name in ("safe.csv", "raw.csv", "p.parquet"))
    for out, options in ((safe, ()), (raw, ("--raw-ids",)), (table, ())):
        answer = cli("score", folder / "run", folder / "pairs.csv", "--out", out, *options)
        assert answer.code == 0, answer.err
    assert read_back(safe) == read_back(raw, raw_ids=True) == read_back(table) == pairs
    rows = list(csv.reader(io.StringIO(safe.read_bytes().decode(), newline="")))
    assert len(rows) == len(pairs) + 1
    assert not any(FORMULA.match(cell) for row in rows for cell in row[:2])
    raw_rows = list(csv.reader(io.StringIO(raw.read_bytes().decode(), newline="")))
    assert raw_rows[1:] == [[*pair, *row[2:]] for pair, row in zip(pairs, rows[1:], strict=True)]
    found = pq.read_table(table)
    assert found.column_names == rows[0]
    assert found["probability"].to_pylist() == [float(row[3]) for row in rows[1:]]
    assert [str(known).lower() for known in found["in_graph"].to_pylist()] == [row[4] for row in rows[1:]]


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_top_and_select_of_hostile_ids_come_back(cli, hostile, tmp_path, name):
    folder, pairs = hostile
    assert cli("top", folder / "run", "-k", 30, "--out", tmp_path / name).code == 0
    ends = NodeIds.from_values(HOSTILE).decode(range(20)).to_pylist()
    assert len(listed := read_back(tmp_path / name)) == 30
    assert {id_ for pair in listed for id_ in pair} <= set(ends)
    assert cli("select", folder / "run", folder / "pairs.csv", "--out", tmp_path / name).code == 0
    assert read_pairs_or_none(tmp_path / name) <= set(pairs)


def read_pairs_or_none(path):
    """Selected pairs; an untrained model may select none."""
    chunks = list(read_pairs(path, NodeIds.from_values(HOSTILE)))
    return {pair for c in chunks for pair in zip(c.source.to_pylist(), c.target.to_pylist(), strict=True)}


ID = st.text(st.sampled_from("=+-@'\"\t\r\n ,;|1.a\u00e9"), min_size=1, max_size=6).filter(str.strip)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(ID, ID).filter(lambda p: p[0].strip() != p[1].strip()), min_size=1, max_size=8),
    st.booleans(),
)
def test_any_ids_come_back(tmp_path, pairs, raw):
    out = tmp_path / "out.csv"
    with csv_rows(out, "source", "target", "probability", raw_ids=raw) as rows:
        rows.writerows((u, v, 0.5) for u, v in pairs)
    ids = NodeIds.from_values([id_ for pair in pairs for id_ in pair])
    chunks = list(read_pairs(out, ids, raw_ids=raw))
    found = [pair for c in chunks for pair in zip(c.source.to_pylist(), c.target.to_pylist(), strict=True)]
    assert found == pairs
    cells = [x for row in csv.reader(io.StringIO(out.read_bytes().decode(), newline="")) for x in row[:2]]
    assert raw or not any(FORMULA.match(cell) for cell in cells)


def test_tables_of_scores_give_the_same_ids(tmp_path):
    with csv_rows(tmp_path / "s.csv", "source", "target", "probability") as rows:
        rows.writerows((id_, "end", 0.5) for id_ in HOSTILE)
    assert Columns(tmp_path / "s.csv", "pairs").column("source").tolist() == HOSTILE


def test_text_options_reach_the_readers(cli, fails, fitted, files, tmp_path):
    names = files.names
    plain = tmp_path / "p.txt"
    plain.write_text(f"// two pairs\n{names[0]}  {names[1]} \n{names[2]}\t{names[3]}\n")
    options = ("--no-header", "--delimiter", " ", "--comment", "//")
    answer = cli("score", fitted, plain, *options)
    assert [(row["source"], row["target"]) for row in answer.rows] == [tuple(names[:2]), tuple(names[2:4])]
    assert cli("select", fitted, plain, *options).code == 0
    fails("score", fitted, plain, parts=("pairs must have the columns 'source', 'target'", "--"))
    edges = tmp_path / "e.edges"
    edges.write_text("".join(f"{names[u]}|{names[v]}\n" for u, v in files.edges))
    small = ("--model", "gcn", "--epochs", 1)
    assert cli("fit", edges, "--out", tmp_path / "run", "--no-header", "--delimiter", "|", *small).code == 0
    fails("fit", edges, "--out", tmp_path / "no", parts=("edges must have the columns",))
