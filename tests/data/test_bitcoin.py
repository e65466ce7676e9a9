import gzip
import io
import urllib.request

import pytest

from linkcal.data import split_links, structural_node_features
from linkcal.data.named import bitcoin_files, read_bitcoin
from linkcal.exceptions import InputError


def _write(path, text):
    path.write_bytes(gzip.compress(text.encode()))
    return path


def test_ratings_become_an_undirected_graph(tmp_path):
    # Users 2, 5, 7 and 40 become 0 to 3; (5, 7) is rated in both directions and is one pair.
    path = _write(
        tmp_path / "r.csv.gz", "7,5,10,1289241911\n5,7,-3,1289241942.7\n40,2,1,1289243140\n7,2,1,1\n"
    )
    graph = read_bitcoin(path, name="market")
    assert (graph.num_nodes, graph.name, graph.directed) == (4, "market", False)
    assert graph.pairs.tolist() == [[0, 0, 1], [2, 3, 2]]
    assert graph.num_duplicates == 0
    assert graph.x is None
    assert graph.feature_builder is structural_node_features


@pytest.mark.parametrize("text", ["", "a,b,c,d\n", "1\n2\n", "1.5,2,3,4\n"])
def test_other_content_is_refused(tmp_path, text):
    path = _write(tmp_path / "r.csv.gz", text)
    with pytest.raises(InputError, match="must hold lines SOURCE,TARGET,RATING,TIME, got"):
        read_bitcoin(path, name="market")


def test_damaged_file_is_refused(tmp_path):
    path = tmp_path / "r.csv.gz"
    path.write_bytes(gzip.compress(b"1,2,3,4\n" * 1000)[:-20])
    with pytest.raises(InputError, match="must hold lines SOURCE,TARGET,RATING,TIME, got"):
        read_bitcoin(path, name="market")


def test_download_writes_the_site_s_file(tmp_path, monkeypatch):
    asked = []

    def urlopen(url):
        asked.append(url)
        return io.BytesIO(b"bytes")

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    files = bitcoin_files("otc")
    files.download(tmp_path)
    assert asked == ["https://snap.stanford.edu/data/soc-sign-bitcoinotc.csv.gz"]
    assert (tmp_path / files.folder / files.names[0]).read_bytes() == b"bytes"


def test_features_come_from_training_edges(tmp_path):
    ring = "".join(f"{u},{(u + 1) % 30},1,0\n" for u in range(30))
    split = split_links(read_bitcoin(_write(tmp_path / "r.csv.gz", ring), name="ring"), seed=2)
    expected = structural_node_features(split.graph.edge_index, 30)
    assert split.graph.x.tolist() == expected.tolist()
    # A full ring has constant features; the training part of it has not.
    assert expected.abs().sum() > 0
