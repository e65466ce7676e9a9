"""``linkcal run`` on a named data set and ``linkcal fit`` on a user's files."""

import json
from dataclasses import replace

import pytest

from linkcal.calibrators import CALIBRATORS
from linkcal.cli._console import print_results
from linkcal.data import simulate_graph
from linkcal.models import MODELS
from linkcal.predictor import CalibratedLinkPredictor

pytestmark = pytest.mark.filterwarnings("always::linkcal.exceptions.LinkcalWarning")

#: Each of 40 nodes points at the next three.
RING = [(f"n{i:02d}", f"n{(i + step) % 40:02d}") for i in range(40) for step in (1, 2, 3)]
DIRECTION = "linkcal: warning: gcn gives both directions of a pair the same score, while the graph is"


@pytest.fixture
def run(cli, monkeypatch, tmp_path):
    """``linkcal run`` on a small simulation: these tests are about the command, not the data."""
    monkeypatch.chdir(tmp_path)

    def call(*options, nodes=250, edges=1500):
        small = simulate_graph(nodes, num_edges=edges, num_features=20, seed=0)
        monkeypatch.setattr("linkcal.data.load_dataset", lambda name, **options: small)
        return cli("run", "--dataset", "simulated", "--model", "gcn", "--epochs", 2, *options)

    return call


# --- run ----------------------------------------------------------------------------------------------------


def test_run_prints_table_and_writes_folder(run, tmp_path):
    answer = run()
    assert answer.code == 0
    for name in (*CALIBRATORS, "true probability", "True"):  # of the heading "True error", which may wrap
        assert name in answer.out
    folder = tmp_path / "runs" / "simulated-gcn-val-seed0"
    assert "runs/simulated-gcn-val-seed0/report.html" in answer.err.replace("\n", "")
    assert (folder / "metrics.json").is_file()


def test_json_goes_to_stdout_alone(run, tmp_path):
    printed = json.loads(run("--out", tmp_path / "out", "--json").out)
    assert printed == json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert list(printed["results"]) == list(CALIBRATORS)


def test_a_warning_is_printed_once_and_names_what_the_user_sees(run, tmp_path):
    """Fewer than 20 test negatives: Hits@20 and Hits@50 are meaningless, with each of ten calibrators."""
    answer = run("--out", tmp_path, nodes=60, edges=150)
    assert answer.code == 0
    lines = [line for line in answer.err.splitlines() if "warning:" in line]
    for k in (20, 50):
        expected = f"linkcal: warning: Hits@{k} needs at least {k} negatives, got "
        assert sum(line.startswith(expected) for line in lines) == 1, answer.err
    assert answer.err.splitlines()[-len(lines) :] == lines
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    chosen = set(metrics["warnings"].pop(metrics["selected"]))
    others = {text for texts in metrics["warnings"].values() for text in texts} - chosen
    shown = {line.partition("warning: ")[2] for line in lines}
    assert others
    assert chosen <= shown
    assert not others & shown


def test_the_table_fits_80_columns_and_shows_all_on_request(run, tmp_path):
    options = ("--calibrators", "uncalibrated,platt", "--epochs", 2)
    narrow, wide = run("--out", tmp_path / "a", *options), run("--out", tmp_path / "b", "--wide", *options)
    assert max(map(len, narrow.out.splitlines()[:12])) <= 80
    assert "Brier" in wide.out
    assert "Brier" not in narrow.out
    metrics = json.loads((tmp_path / "a" / "metrics.json").read_text())
    assert list(metrics["results"]) == ["uncalibrated", "platt"]
    row = next(line for line in narrow.out.splitlines() if f"> {metrics['selected']}" in line)
    assert f"{100 * metrics['results'][metrics['selected']]['ece']:.2f}" in row
    unknown = run("--out", tmp_path / "c", "--calibrators", "plat")
    assert (unknown.code, unknown.err.count("\n")) == (1, 1)
    assert "calibrators must be one of" in unknown.err


def test_kind_of_negatives(run, tmp_path):
    answer = run("--negatives", "two-hop", "--negatives-per-positive", 2)
    assert answer.code == 0
    assert "2 two-hop negatives per link" in " ".join(answer.out.split())
    # How likely a two-hop pair is an edge is not known from the block model alone.
    assert "True" not in answer.out
    folder = tmp_path / "runs" / "simulated-gcn-val-two-hop-seed0"
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["negatives"] == "two-hop"
    assert metrics["counts"]["test_negatives"] == 2 * metrics["counts"]["test_positives"]


def test_reduced_settings_of_a_preset_are_printed_and_recorded(run, tmp_path, monkeypatch):
    spec = MODELS["seal"]
    reduced = {"num_hops": 1, "feature_channels": 4, "epochs": 2}
    preset = replace(spec.presets["default"], reduced={"simulated": reduced})
    monkeypatch.setitem(MODELS, "seal", replace(spec, presets={**spec.presets, "default": preset}))
    answer = run("--model", "seal", "--epochs", 1, "--out", tmp_path / "out")
    assert (
        "seal on simulated: preset default reduced to end in minutes: num_hops 1, feature" in answer.message
    )
    record = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (record["model"]["num_hops"], record["model"]["feature_channels"]) == (1, 4)
    assert record["model"]["max_neighbors"] == 50
    # The command line wins over what the preset was reduced to.
    assert (record["training"]["epochs"], record["training"]["batch_size"]) == (1, 32)


def test_preset_file(run, tmp_path):
    hyperparameters = {"hidden_channels": 4}
    preset = {"format": "linkcal preset 1", "name": "tiny", "model": "gcn"}
    preset["hyperparameters"] = hyperparameters
    (tmp_path / "tiny.json").write_text(json.dumps(preset))
    assert run("--preset", tmp_path / "tiny.json", "--out", tmp_path / "out").code == 0
    record = json.loads((tmp_path / "out" / "config.json").read_text())
    assert record["config"]["hyperparameters"] == hyperparameters
    assert record["model"]["hidden_channels"] == 4
    assert record["input"]["preset_file"]["path"].endswith("tiny.json")
    assert set(record["input"]["preset_file"]) == {"path", "sha256"}


# --- fit ----------------------------------------------------------------------------------------------------


def test_fit_writes_a_whole_folder(fitted, capsys):
    assert sorted(path.name for path in fitted.iterdir()) == [
        "artifact", "config.json", "metrics.json", "reliability.png", "report.html",
    ]  # fmt: skip
    metrics = json.loads((fitted / "metrics.json").read_text())
    assert (metrics["dataset"], metrics["counts"]["nodes"]) == ("edges", 120)
    assert list(metrics["results"]) == list(CALIBRATORS)
    # A file's name may look like rich's markup.
    print_results({**metrics, "dataset": "edges [red] 2"})
    assert "on edges [red] 2, seed 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("edges", "features", "parts"),
    [
        ("a,b\n1,2\n", None, ("'source', 'target'", "'a', 'b'")),
        (None, "id,a\nuser-000,nan\n", ("got 1 NaN",)),
        (None, "id,a\nuser-000,1.0\n", ("user-001",)),
        (
            "source,target\n" + "".join(f"{u},{v}\n" for u in range(15) for v in range(u)),
            None,
            ("must have non-edges", "complete graph of"),
        ),
        (f"{'x,' * 2_500_000}\n", None, ("'source', 'target'",)),
    ],
    ids=["missing column", "NaN", "too few rows", "complete graph", "a header of 5 MB"],
)
def test_bad_files_are_named_in_one_short_line(fails, files, tmp_path, edges, features, parts):
    paths = {"edges": files.folder / "edges.csv", "features": files.folder / "features.csv"}
    for name, text in (("edges", edges), ("features", features)):
        if text is not None:
            paths[name] = tmp_path / f"{name}.csv"
            paths[name].write_text(text)
    options = () if features is None else ("--features", paths["features"])
    fails("fit", paths["edges"], *options, "--out", tmp_path / "out", parts=parts)
    assert not (tmp_path / "out").exists()


def test_a_file_named_like_a_data_set_does_not_use_its_settings(cli, write_pairs, tmp_path):
    edges = write_pairs("citeseer.csv", [(i, (i + step) % 30) for i in range(30) for step in (1, 2)])
    features = tmp_path / "x.csv"
    lines = [f"{i}," + ",".join(str((i * j) % 7) for j in range(140)) for i in range(30)]
    features.write_text("id," + ",".join(f"f{i}" for i in range(140)) + "\n" + "\n".join(lines) + "\n")
    out = tmp_path / "out"
    answer = cli("fit", edges, "--features", features, "--model", "seal", "--epochs", 1, "--out", out)
    assert answer.code == 0
    assert "reduced" not in answer.err
    assert json.loads((out / "metrics.json").read_text())["dataset"] == "citeseer-file"
    # The data set's preset has narrower layers.
    assert CalibratedLinkPredictor.load(out).model.hidden_channels == 128
    assert MODELS["seal"].presets["default"].reduced["citeseer"]["hidden_channels"] == 32


def test_unwritable_output_folder_is_refused_before_the_work(fails, files, tmp_path, monkeypatch):
    def refuse(**_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("linkcal._core.files.tempfile.TemporaryFile", refuse)
    out = tmp_path / "out"
    expected = f"out must be in a folder that can be written to, got {out} (Read-only file system)"
    fails("fit", files.folder / "edges.csv", "--out", out, parts=(expected,))
    fails("run", "--dataset", "simulated", "--out", out, parts=(expected,))
    assert not out.exists()


def test_a_symmetric_list_is_no_directed_graph(cli, fails, write_pairs, tmp_path):
    edges = write_pairs("both.csv", [*RING, *((v, u) for u, v in RING)])
    options = ("--directed", "--model", "gcn", "--epochs", 2, "--out", tmp_path / "out")
    fails("fit", edges, *options, parts=("the reverse of each edge", "--symmetric"))
    assert cli("fit", edges, *options, "--symmetric").code == 0
    assert json.loads((tmp_path / "out" / "config.json").read_text())["config"]["symmetric"] is True


@pytest.mark.parametrize("options", [(), ("--directed",)])
def test_direction_is_kept_in_splitting_scoring_and_ranking(cli, write_pairs, tmp_path, options):
    edges, out = write_pairs("ring.csv", RING), tmp_path / "out"
    answer = cli("fit", edges, *options, "--model", "gcn", "--epochs", 2, "--out", out)
    assert answer.code == 0
    assert (DIRECTION in answer.message) == bool(options)
    loaded = CalibratedLinkPredictor.load(out / "artifact")
    assert loaded.graph_.directed == bool(options)
    if not options:
        return
    # 120 ordered links, a tenth of them for validation and as many for the test: none turned or doubled.
    assert loaded.graph_.num_pairs == 96
    assert json.loads((out / "metrics.json").read_text())["counts"]["test_positives"] == 12
    ends = [loaded.node_ids_.decode(row.numpy()) for row in loaded.graph_.pairs]
    known = [tuple(map(str, pair)) for pair in zip(*ends, strict=True)]
    assert set(known) <= set(RING)
    straight, turned = cli("score", out, write_pairs("pairs.csv", [known[0], known[0][::-1]])).rows
    assert (straight["in_graph"], turned["in_graph"]) == ("true", "false")
    # The turned pair is missing, so it is ranked; the links are not.
    everything = {(row["source"], row["target"]) for row in cli("top", out, "-k", 1440).rows}
    assert len(everything) == 40 * 39 - 120
    assert {pair[::-1] for pair in RING} <= everything


# --- audit --------------------------------------------------------------------------------------------------


@pytest.fixture
def parts(tmp_path):
    """Files of a clean split; each call replaces the pairs of one."""

    def write(**changes):
        rows = {
            "edges": ["source,target", "ann,bob", "bob,cid", "cid,dan"],
            "train": ["source,target,label", "ann,bob,1", "dan,ann,0"],
            "val": ["source,target,label", "ann,cid,1", "bob,dan,0"],
            "test": ["source,target,label", "dan,eve,1", "eve,ann,0"],
        }
        for name, lines in rows.items():
            lines = changes.get(name, lines[1:])
            (tmp_path / f"{name}.csv").write_text("\n".join([rows[name][0], *lines]) + "\n")
        options = [x for name in ("train", "val", "test") for x in (f"--{name}", tmp_path / f"{name}.csv")]
        return ["audit", tmp_path / "edges.csv", *options]

    return write


def test_audit_of_a_clean_split_ends_with_0(cli, parts):
    answer = cli(*parts())
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines() == [
        "5 nodes (1 without an edge), 3 message-passing edges",
        "train: 1 links, 1 negatives",
        "val: 1 links, 1 negatives",
        "test: 1 links, 1 negatives",
        "No leak found.",
    ]


def test_audit_names_leaks_by_the_ids_of_the_files(cli, parts):
    arguments = parts(val=["cid,bob,1", "dan,bob,0"], test=["bob,dan,1", "eve,ann,0", "ann,eve,0"])
    answer = cli(*arguments)
    assert answer.code == 1
    assert answer.out.splitlines()[4:] == [
        "error: held-out-edge: val links must not be message-passing edges, in either direction, got 1 that "
        "are, such as",
        "    cid, bob",
        "error: both-labels: train, val and test must give each pair one label, in either direction, got 1 "
        "with both, such as",
        "    dan, bob a negative in val and a link in test",
        "error: repeated: train, val and test must hold each pair once, in either direction, got 1 repeated "
        "in a part, 1 of them in both directions, such as",
        "    eve, ann in test and test",
        "3 kinds of leaks.",
    ]
    # As different links none of these is one.
    directed = cli(*arguments, "--directed")
    assert (directed.code, directed.out.splitlines()[-1]) == (0, "No leak found.")


def test_audit_of_two_types_keeps_their_ids_apart(cli, parts):
    # User 1 and item 1 are two nodes: (1, 2) is an edge, (2, 1) another pair.
    arguments = parts(edges=["1,2", "2,3"], train=["1,2,1"], val=["2,1,1", "1,3,0"], test=["3,2,1", "1,1,0"])
    answer = cli(*arguments, "--bipartite")
    assert (answer.code, answer.out.splitlines()[0]) == (
        0, "6 nodes (2 without an edge), 2 message-passing edges"
    )  # fmt: skip
    one_type = cli(*arguments)
    assert (
        "self-pair: test pairs must join two different nodes, got 1 that do not, such as\n    1, 1"
        in one_type.out
    )
    leak = cli(*parts(edges=["1,2", "2,3"], train=["1,2,1"], val=["2,3,1"], test=["3,2,0"]), "--bipartite")
    assert (leak.code, "    2, 3\n" in leak.out) == (1, True)


def test_audit_refuses_what_it_cannot_read(fails, parts, tmp_path):
    wrong = parts(val=["ann,bob,2", "bob,eve,-1"])
    fails(*wrong, parts=("must hold 1 (link) or 0", "got 2 others, the first 2 in"))
    fails(*parts(), "--label", "y", parts=("must have the column 'y' once, got 'source', 'target'",))
    fails(*parts(test=[",bob,1"]), parts=("test pairs must have a node id in every row, got 1", "line 2"))
    fails(*parts(test=[]), parts=("test pairs must have at least one row, got none in",))
    fails("audit", tmp_path / "edges.csv", parts=("parts must name train, val or test pairs",))
