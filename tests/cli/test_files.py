"""Tables and folders of pairs: a function for many processes, and one file of results for each of pairs."""

import os
import pickle
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from linkcal import CalibratedLinkPredictor, scoring_function
from refusals import refuses


@pytest.fixture(scope="module")
def table(loaded):
    """300 pairs by number and by name, the first two known edges, with a column of the caller's."""
    pairs = torch.randint(120, (2, 400), generator=torch.Generator().manual_seed(0))
    pairs = torch.cat([loaded.graph_.pairs[:, :2], pairs[:, pairs[0] != pairs[1]]], dim=1)[:, :300]
    source, target = loaded.node_ids_.decode_pairs(pairs.numpy())
    return pairs, pa.table({"source": source, "target": target, "day": pa.array(range(300))})


@pytest.fixture
def folder(table, tmp_path):
    (tmp_path / "in").mkdir()
    for i in range(3):
        pq.write_table(table[1].slice(100 * i, 100), tmp_path / "in" / f"part-{i}.parquet")
    (tmp_path / "in" / "_SUCCESS.parquet").touch()  # a name that readers of such folders skip
    return tmp_path / "in"


def results(folder):
    return {path.name: path.read_bytes() for path in folder.glob("part*.parquet")}


def test_tables_of_three_kinds(fitted, loaded, table):
    pairs, arrow = table
    frame = arrow.to_pandas().set_index(pd.RangeIndex(5, 305))
    arrays = {name: arrow[name].to_numpy() for name in arrow.column_names}
    function = scoring_function(fitted, base_rate=0.1, interval=0.9)
    found = [function(each) for each in (arrow, frame, arrays)]
    assert [type(each) for each in found] == [pa.Table, pd.DataFrame, dict]
    assert found[1].index.equals(frame.index)
    ends = loaded.predict_interval(pairs, level=0.9, base_rate=0.1)
    expected = {
        **arrays, "logit": loaded.score(pairs).logit, "in_graph": loaded.known_edges(pairs),
        "probability": loaded.predict_proba(pairs, base_rate=0.1), "p_low": ends[:, 0], "p_high": ends[:, 1],
    }  # fmt: skip
    for each in found:
        for name, values in expected.items():
            np.testing.assert_array_equal(np.asarray(each[name]), np.asarray(values))


def test_another_process_has_the_same_numbers(fitted, table, tmp_path):
    function, job = scoring_function(fitted, calibrator="platt"), tmp_path / "job"
    assert len(pickle.dumps(function)) < 1000
    job.write_bytes(pickle.dumps((function, table[1])))
    code = "import pickle as p, sys; f, x = p.load(open(sys.argv[1], 'rb')); p.dump(f(x), sys.stdout.buffer)"
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    done = subprocess.run([sys.executable, "-c", code, job], env=environment, check=True, capture_output=True)
    assert pickle.loads(done.stdout).equals(function(table[1]))


def test_threads_load_the_folder_once(fitted, table, tmp_path, monkeypatch):
    shutil.copytree(fitted, tmp_path / "copy")
    calls, load = [], CalibratedLinkPredictor.load
    counted = lambda *args, **rest: calls.append(1) or load(*args, **rest)  # noqa: E731
    monkeypatch.setattr(CalibratedLinkPredictor, "load", counted)
    with ThreadPoolExecutor(4) as pool:
        first, *others = pool.map(scoring_function(tmp_path / "copy"), [table[1]] * 8)
    assert calls == [1]
    assert all(each.equals(first) for each in others)


def test_refusals(fails, fitted, loaded, folder, tmp_path):
    function, known = scoring_function(fitted), loaded.node_ids_.decode([0, 1]).to_pylist()
    message = r"\(120 nodes\), got 2 unknown ids, the first 'zz' in row 1 of the table"
    refuses(message, function, {"source": [known[0], "zz"], "target": [known[1], None]})
    refuses("two different nodes", function, {"source": known, "target": known})
    refuses("must have 1 columns 'target', got 'source'", function, {"source": known})
    refuses("must have 0 columns 'logit'", function, {"source": [], "target": [], "logit": []})
    refuses("table must be a pyarrow.Table", function, [known])
    refuses("did you mean 'platt'", scoring_function, fitted, calibrator="plat")
    shutil.copytree(fitted / "artifact", tmp_path / "copy")
    stale = scoring_function(tmp_path / "copy")
    loaded.save(tmp_path / "copy")
    refuses("as when the function was made, got another fit", stale, {"source": known, "target": known[::-1]})
    for out in ([], ["--out", folder]):
        fails("score", fitted, folder, *out, parts=("out must be another folder",))
    fails("score", fitted, folder, "--out", tmp_path, "--engine", "dask", parts=("local, ray",))
    fails("score", fitted, folder / "part-0.parquet", "--engine", "ray", parts=("engine must be local",))
    fails("score", fitted, folder, "--out", shutil.copytree(folder, tmp_path / "b"), parts=("new, empty or",))


@pytest.mark.filterwarnings("default")  # Ray's own, about its future settings and open files
@pytest.mark.parametrize("engine", ["local", "ray"])
def test_a_folder_file_by_file(cli, fails, fitted, folder, tmp_path, engine, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)  # two workers of one thread
    out, expected = tmp_path / "out", {}
    for path in folder.glob("part*"):
        assert cli("score", fitted, path, "--out", tmp_path / path.name).code == 0
        expected[path.name] = (tmp_path / path.name).read_bytes()
    good, bad = (folder / "part-1.parquet").read_bytes(), folder / "part-1.parquet"
    bad.write_bytes(good[:200] + bytes(300) + good[500:])
    command = ["score", fitted, folder, "--out", out, "--engine", engine]
    fails(*command, parts=("1 of 3 that cannot", "part-1.parquet: pairs must be a valid parquet file"))
    assert results(out) == {name: expected[name] for name in ("part-0.parquet", "part-2.parquet")}
    kept = (out / "part-2.parquet").stat().st_ino
    (out / "part-0.parquet").unlink()
    bad.write_bytes(good)
    assert "200 pairs of 2 files (1 were finished before)" in cli(*command).message
    assert results(out) == expected
    assert (out / "part-2.parquet").stat().st_ino == kept
    assert sorted(each.name for each in out.iterdir()) == ["_meta.json", *sorted(expected)]
    fails(*command, "--base-rate", 0.1, parts=("must hold results of the same fit and options",))
