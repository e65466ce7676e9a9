import gzip
import io
import os
from urllib.error import URLError

import numpy as np
import pytest
import torch

from linkcal.data import DATASETS, OFFICIAL_SPLITS, load_dataset, split_links, structural_node_features
from linkcal.data.named import read_bitcoin
from linkcal.exceptions import DataNotFoundError, InputError
from refusals import refuses

REAL = [name for name in DATASETS if name != "simulated" and name not in OFFICIAL_SPLITS]


@pytest.fixture
def real_root():
    if not os.environ.get("LINKCAL_DATA_ROOT"):
        pytest.skip("needs the raw data sets: set LINKCAL_DATA_ROOT")
    return os.environ["LINKCAL_DATA_ROOT"]


def test_registry_is_complete():
    assert list(DATASETS) == [
        "simulated",
        "cora",
        "citeseer",
        "pubmed",
        "twitch-pt",
        "chameleon",
        "bitcoin-alpha",
        "bitcoin-otc",
        "ogbl-ddi",
        "ogbl-collab",
    ]
    for name, info in DATASETS.items():
        assert info.name == name
        assert info.description
        assert info.source


def test_unknown_name_names_the_nearest():
    refuses(
        r"dataset must be one of simulated, cora, .*got 'coro' \(did you mean 'cora'", load_dataset, "coro"
    )


def test_simulation_arguments_belong_to_the_simulation():
    assert load_dataset("simulated", num_nodes=30, num_features=0).num_nodes == 30
    refuses(r"options must be those of dataset 'cora', .*got num_nodes", load_dataset, "cora", num_nodes=30)


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("cora", "Cora/raw/ind.cora.x"),
        ("twitch-pt", "PT/raw/PT.npz"),
        ("chameleon", "chameleon/geom_gcn/raw/out1_node_feature_label.txt"),
        ("bitcoin-otc", "bitcoin_otc/raw/soc-sign-bitcoinotc.csv.gz"),
    ],
)
def test_without_network_the_missing_file_is_named(name, first, tmp_path, monkeypatch):
    def no_network(*args, **kwargs):
        raise URLError("no network")

    monkeypatch.setattr("urllib.request.urlopen", no_network)
    with pytest.raises(DataNotFoundError) as caught:
        load_dataset(name, data_root=tmp_path)
    message = str(caught.value)
    assert message.startswith(f"file {tmp_path / first} must exist or be fetched")
    assert "pass --data-root" in message
    assert "\n" not in message
    assert list(tmp_path.iterdir()) == []


def test_downloaded_pickle_is_checked_before_it_is_opened(tmp_path, monkeypatch):
    # This would end the process if it were unpickled.
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: io.BytesIO(b"cbuiltins\nexit\n(tR."))
    refuses("must be the published one", load_dataset, "cora", data_root=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", ["objects", "truncated"])
def test_npz_with_objects_or_damage_is_refused(tmp_path, damage):
    path = tmp_path / "PT" / "raw" / "PT.npz"
    path.parent.mkdir(parents=True)
    edges = np.array([{"any": "object"}], dtype=object) if damage == "objects" else np.zeros((2, 2))
    np.savez(path, edges=edges)
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(
        InputError, match=r"data of twitch-pt must be an npz file of plain arrays, got .*PT\.npz"
    ):
        load_dataset("twitch-pt", data_root=tmp_path)


def test_twitch_file_is_fetched_once(tmp_path, monkeypatch, capsys):
    buffer = io.BytesIO()
    edges = np.array([[0, 1], [1, 0], [1, 2], [2, 1], [2, 2]])
    np.savez(buffer, features=np.ones((4, 3), dtype=np.float32), target=np.zeros(4), edges=edges)
    asked = []

    def urlopen(url, **kwargs):
        asked.append(url)
        return io.BytesIO(buffer.getvalue())

    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    for _ in range(2):
        graph = load_dataset("twitch-pt", data_root=tmp_path)
        assert graph.counts()["edges"] == 2
        assert graph.num_self_loops == 1
        assert graph.x.shape == (4, 3)
    assert asked == ["https://graphmining.ai/datasets/ptg/twitch/PT.npz"]
    # Nothing but the raw file is left in the root, and stdout is clean.
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["PT.npz"]
    assert capsys.readouterr().out == ""


@pytest.mark.realdata
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n == "chameleon" else n for n in REAL]
)
def test_counts_of_the_published_data(name, real_root, capsys):
    graph, info = load_dataset(name, data_root=real_root), DATASETS[name]
    counts = graph.counts()
    assert (counts["nodes"], counts["edges"]) == (info.num_nodes, info.num_edges)
    assert counts["self_loops_removed"] == {"twitch-pt": 1912, "chameleon": 50}.get(name, 0)
    assert counts["duplicates_removed"] == 0
    split = split_links(graph)
    assert split.graph.x.shape == (info.num_nodes, info.num_features)
    assert torch.isfinite(split.graph.x).all()
    assert len(split.test) == 2 * (info.num_edges // 10)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


@pytest.mark.realdata
def test_citeseer_keeps_its_isolated_nodes(real_root):
    graph = load_dataset("citeseer", data_root=real_root)
    assert int((torch.bincount(graph.edge_index[0], minlength=graph.num_nodes) == 0).sum()) == 48


@pytest.mark.realdata
def test_forward_edges_of_chameleon_and_the_paper_s_count(real_root):
    graph = load_dataset("chameleon", data_root=real_root, forward_only=True)
    assert graph.num_pairs == 23_370
    split = split_links(graph, val_fraction=0.05, test_fraction=0.10, seed=0)
    assert split.graph.edge_index.size(1) == 39_730
    both = load_dataset("twitch-pt", data_root=real_root, forward_only=True)
    assert both.num_pairs == DATASETS["twitch-pt"].num_edges


@pytest.mark.parametrize("name", ["simulated", "bitcoin-otc", "ogbl-ddi"])
def test_forward_edges_only_where_a_list_is_stored_as_it_came(name):
    with pytest.raises(InputError, match=rf"forward_only must be False for dataset '{name}' \(only cora"):
        load_dataset(name, forward_only=True)


# --- Bitcoin graphs ---


def _write_gz(path, text):
    path.write_bytes(gzip.compress(text.encode()))
    return path


def test_ratings_become_an_undirected_graph(tmp_path):
    # Users 2, 5, 7 and 40 become 0 to 3; (5, 7) is rated in both directions and is one pair.
    rows = "7,5,10,1289241911\n5,7,-3,1289241942.7\n40,2,1,1289243140\n7,2,1,1\n"
    path = _write_gz(tmp_path / "r.csv.gz", rows)
    graph = read_bitcoin(path, name="market")
    assert (graph.num_nodes, graph.name, graph.directed) == (4, "market", False)
    assert graph.pairs.tolist() == [[0, 0, 1], [2, 3, 2]]
    assert graph.num_duplicates == 0
    assert graph.x is None
    assert graph.feature_builder is structural_node_features


@pytest.mark.parametrize("text", ["", "a,b,c,d\n", "1\n2\n", "1.5,2,3,4\n"])
def test_other_content_is_refused(tmp_path, text):
    path = _write_gz(tmp_path / "r.csv.gz", text)
    refuses("must be a table of lines SOURCE,TARGET,RATING,TIME, got", read_bitcoin, path, name="market")


def test_damaged_file_is_refused(tmp_path):
    path = tmp_path / "r.csv.gz"
    path.write_bytes(gzip.compress(b"1,2,3,4\n" * 1000)[:-20])
    refuses("must be a table of lines SOURCE,TARGET,RATING,TIME, got", read_bitcoin, path, name="market")


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("cora", "https://github.com/kimiyoung/planetoid/raw/master/data/ind.cora.x"),
        ("bitcoin-otc", "https://snap.stanford.edu/data/soc-sign-bitcoinotc.csv.gz"),
    ],
)
def test_files_come_from_the_publishers(tmp_path, monkeypatch, name, address):
    asked = []

    def urlopen(url, *, timeout):
        asked.append(url)
        raise URLError("no network")

    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    with pytest.raises(DataNotFoundError):
        load_dataset(name, data_root=tmp_path)
    assert asked == [address]


def test_features_come_from_training_edges(tmp_path):
    ring = "".join(f"{u},{(u + 1) % 30},1,0\n" for u in range(30))
    split = split_links(read_bitcoin(_write_gz(tmp_path / "r.csv.gz", ring), name="ring"), seed=2)
    expected = structural_node_features(split.graph.edge_index, 30)
    assert split.graph.x.tolist() == expected.tolist()
    # A full ring has constant features; the training part of it has not.
    assert expected.abs().sum() > 0
