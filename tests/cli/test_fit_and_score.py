"""``linkcal fit`` and ``linkcal score`` on a stranger's files."""

import csv
import io
import json
import shutil

import numpy as np
import pytest
import torch

from linkcal.calibrators import CALIBRATORS
from linkcal.cli._console import print_results
from linkcal.models import MODELS
from linkcal.predictor import CalibratedLinkPredictor

pytestmark = pytest.mark.filterwarnings("ignore::linkcal.exceptions.LinkcalWarning")


def _write_pairs(path, rows):
    path.write_text("source,target\n" + "".join(f"{u},{v}\n" for u, v in rows))
    return path


def _rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_fit_leaves_a_whole_folder(fitted):
    assert sorted(path.name for path in fitted.iterdir()) == [
        "artifact", "config.json", "metrics.json", "reliability.png", "report.html",
    ]  # fmt: skip
    metrics = json.loads((fitted / "metrics.json").read_text())
    assert metrics["dataset"] == "edges"
    assert metrics["counts"]["nodes"] == 120
    assert list(metrics["results"]) == list(CALIBRATORS)


def test_brackets_in_a_file_name_are_no_markup(fitted, capsys):
    metrics = json.loads((fitted / "metrics.json").read_text())
    print_results({**metrics, "dataset": "edges [red] 2"})
    assert "on edges [red] 2, seed 1" in capsys.readouterr().out


def test_score_keeps_order_and_flags_known_edges(cli, files, fitted, tmp_path):
    loaded = CalibratedLinkPredictor.load(fitted / "artifact")
    u, v = loaded.graph_.pairs[:, 0].tolist()
    known = (files.names[u], files.names[v])
    asked = [("user-007", "user-001"), known, known[::-1], ("user-000", "user-003")]
    answer = cli("score", fitted, _write_pairs(tmp_path / "pairs.csv", asked))
    assert answer.code == 0
    assert answer.out.splitlines()[0] == "source,target,logit,probability,in_graph"
    rows = _rows(answer.out)
    assert [(row["source"], row["target"]) for row in rows] == asked
    assert [row["in_graph"] for row in rows][1:3] == ["true", "true"]
    assert rows[1]["probability"] == rows[2]["probability"]
    index = np.stack([loaded.node_ids_.encode([pair[i] for pair in asked]) for i in (0, 1)])
    expected = loaded.predict_proba(torch.from_numpy(index))
    np.testing.assert_allclose([float(row["probability"]) for row in rows], expected, rtol=1e-6)
    assert "Scored on the calibrator's message-passing graph (120 nodes" in answer.err
    assert "hold for 1 negative per link" in answer.err


def test_output_file_with_its_side_file(cli, files, fitted, tmp_path):
    rng = np.random.default_rng(1)
    asked = [(files.names[u], files.names[v]) for u, v in rng.choice(120, (500, 2)) if u != v]
    pairs = _write_pairs(tmp_path / "pairs.csv", asked)
    out = tmp_path / "scores.csv"
    assert cli("score", fitted, pairs, "--out", out, "--chunk-size", 7).code == 0
    whole = cli("score", fitted, pairs)
    small, large = _rows(out.read_text()), _rows(whole.out)
    assert len(small) == len(asked)
    for column in ("source", "target", "in_graph"):
        assert [row[column] for row in small] == [row[column] for row in large]
    for column in ("logit", "probability"):
        np.testing.assert_allclose(
            [float(row[column]) for row in small], [float(row[column]) for row in large], rtol=1e-5, atol=1e-6
        )
    side = json.loads((tmp_path / "scores.csv.meta.json").read_text())
    assert side["pairs"] == len(asked)
    assert side["fit_on"] == "val"
    assert side["message_graph"]["nodes"] == 120
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "pairs.csv",
        "scores.csv",
        "scores.csv.meta.json",
    ]


def test_calibrator_by_name(cli, fitted, tmp_path):
    pairs = _write_pairs(tmp_path / "pairs.csv", [("user-007", "user-001")])
    raw = _rows(cli("score", fitted, pairs, "--calibrator", "uncalibrated").out)[0]
    logit, probability = float(raw["logit"]), float(raw["probability"])
    assert probability == pytest.approx(1 / (1 + np.exp(-logit)), rel=1e-6)
    wrong = cli("score", fitted, pairs, "--calibrator", "plat")
    assert wrong.code == 1
    assert "did you mean 'platt'" in wrong.err


def _assert_one_line_error(answer, *parts):
    assert answer.code == 1
    assert answer.out == ""
    message = [line for line in answer.err.splitlines() if line.startswith("linkcal: error: ")]
    assert len(message) == 1
    assert "Traceback" not in answer.err
    for part in parts:
        assert part in message[0]


def test_unknown_nodes_are_listed_with_their_lines(cli, fitted, tmp_path):
    asked = [("user-001", "user-002"), *[(f"ghost-{i}", "user-001") for i in range(8)]]
    pairs = _write_pairs(tmp_path / "pairs.csv", asked)
    answer = cli("score", fitted, pairs, "--out", tmp_path / "scores.csv")
    _assert_one_line_error(answer, "'ghost-0' in line 3", "'ghost-4' in line 7")
    assert "ghost-5" not in answer.err
    assert [path.name for path in tmp_path.iterdir()] == ["pairs.csv"]


def test_unknown_node_in_a_later_chunk_leaves_nothing(cli, fitted, tmp_path):
    pairs = _write_pairs(tmp_path / "pairs.csv", [("user-001", "user-002")] * 20 + [("nobody", "user-001")])
    answer = cli("score", fitted, pairs, "--out", tmp_path / "s.csv", "--chunk-size", 5)
    _assert_one_line_error(answer, "'nobody' in line 22")
    assert not (tmp_path / "s.csv").exists()


def test_missing_column(cli, fitted, files, tmp_path):
    (tmp_path / "pairs.csv").write_text("from,to\nuser-001,user-002\n")
    _assert_one_line_error(cli("score", fitted, tmp_path / "pairs.csv"), "source", "from")
    renamed = cli("score", fitted, tmp_path / "pairs.csv", "--source", "from", "--target", "to")
    assert renamed.code == 0
    (tmp_path / "edges.csv").write_text("a,b\n1,2\n")
    answer = cli("fit", tmp_path / "edges.csv", "--out", tmp_path / "out")
    _assert_one_line_error(answer, "'source', 'target'", "'a', 'b'")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("id,a\nuser-000,nan\n", ("nan",)),
        ("id,a\nuser-000,1.0\n", ("user-001",)),
    ],
    ids=["nan", "too few rows"],
)
def test_bad_features(cli, files, tmp_path, content, parts):
    (tmp_path / "features.csv").write_text(content)
    answer = cli(
        "fit", files.folder / "edges.csv", "--features", tmp_path / "features.csv", "--out", tmp_path / "out"
    )
    _assert_one_line_error(answer, *parts)
    assert not (tmp_path / "out").exists()


def test_complete_graph_has_no_negatives(cli, tmp_path):
    rows = [f"{u},{v}" for u in range(15) for v in range(u)]
    (tmp_path / "edges.csv").write_text("source,target\n" + "\n".join(rows) + "\n")
    answer = cli("fit", tmp_path / "edges.csv", "--out", tmp_path / "out")
    _assert_one_line_error(answer, "complete graph", "no non-edge")
    assert not (tmp_path / "out").exists()


def test_truncated_and_foreign_artifacts(cli, fitted, tmp_path):
    pairs = _write_pairs(tmp_path / "pairs.csv", [("user-001", "user-002")])
    copy = tmp_path / "copy"
    shutil.copytree(fitted, copy)
    weights = copy / "artifact" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    _assert_one_line_error(cli("score", copy, pairs), "model.safetensors", "truncated or altered")
    shutil.copytree(fitted, tmp_path / "newer")
    head = tmp_path / "newer" / "artifact" / "artifact.json"
    head.write_text(head.read_text().replace('"format_version": 2', '"format_version": 3', 1))
    _assert_one_line_error(cli("score", tmp_path / "newer", pairs), "format_version 2", "got 3")
    _assert_one_line_error(cli("score", tmp_path / "nowhere", pairs), "artifact must be a folder")


def test_a_file_named_like_a_data_set_gets_none_of_its_settings(cli, tmp_path):
    ring = [(i, (i + step) % 30) for i in range(30) for step in (1, 2)]
    edges = _write_pairs(tmp_path / "citeseer.csv", ring)
    features = tmp_path / "x.csv"
    names = ",".join(f"f{i}" for i in range(140))
    lines = [f"{i}," + ",".join(str((i * j) % 7) for j in range(140)) for i in range(30)]
    features.write_text(f"id,{names}\n" + "\n".join(lines) + "\n")
    out = tmp_path / "out"
    answer = cli("fit", edges, "--features", features, "--model", "seal", "--epochs", 1, "--out", out)
    assert answer.code == 0
    assert "reduced" not in answer.err
    assert json.loads((out / "metrics.json").read_text())["dataset"] == "citeseer-file"
    # The data set's preset has narrower layers.
    assert CalibratedLinkPredictor.load(out).model.hidden_channels == 128
    assert MODELS["seal"].presets["default"].reduced["citeseer"]["hidden_channels"] == 32


def test_output_folder_that_takes_no_files_is_refused_before_the_work(cli, files, tmp_path, monkeypatch):
    def refuse(**_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("linkcal._core.files.tempfile.TemporaryFile", refuse)
    out = tmp_path / "out"
    answer = cli("fit", files.folder / "edges.csv", "--out", out)
    assert answer.code == 1
    assert f"out must be in a folder that can be written to, got {out} (Read-only file system)" in answer.err
    assert not out.exists()
