"""Official splits: ogbl-ddi itself, and ogbl-collab from a small copy of ogb's layout written here."""

import gzip
import os

import numpy as np
import pytest
import torch

from linkcal.data import load_dataset, load_official_split, pair_keys
from linkcal.exceptions import DataNotFoundError, InputError
from refusals import refuses

N = 8
TRAIN = [[0, 1], [1, 2], [2, 3], [0, 1], [4, 5]]  # {0, 1} twice
VALID = [[3, 4], [1, 0]]  # (1, 0) repeats a training edge
TEST = [[5, 6], [3, 4]]  # (3, 4) repeats a validation edge
VALID_NEG = [[0, 5], [0, 6], [2, 1]]  # (2, 1) is an edge
TEST_NEG = [[0, 7], [5, 0]]  # (5, 0) repeats a validation non-edge


def write_csv(path, rows) -> None:
    with gzip.open(path, "wt") as file:
        file.writelines(",".join(map(str, row)) + "\n" for row in rows)


@pytest.fixture
def collab(tmp_path):
    """The folder ``ogbl_collab`` as ogb publishes it, with eight nodes."""
    folder = tmp_path / "ogbl_collab"
    raw, split = folder / "raw", folder / "split" / "time"
    raw.mkdir(parents=True)
    split.mkdir(parents=True)
    write_csv(raw / "num-node-list.csv.gz", [[N]])
    write_csv(raw / "node-feat.csv.gz", [[i + 0.5, -i] for i in range(N)])
    parts = {"train": (TRAIN, None), "valid": (VALID, VALID_NEG), "test": (TEST, TEST_NEG)}
    for part, (edges, negatives) in parts.items():
        content = {"edge": np.array(edges), "year": np.full(len(edges), 2010), "weight": np.ones(len(edges))}
        if negatives is not None:
            content["edge_neg"] = np.array(negatives)
        torch.save(content, split / f"{part}.pt", _use_new_zipfile_serialization=part != "valid")
    return tmp_path


def pairs(part, label: int) -> list[tuple[int, int]]:
    return sorted(map(tuple, part.edge_label_index[:, part.edge_label == label].T.tolist()))


def test_collab_layout(collab):
    split = load_official_split("ogbl-collab", data_root=collab, seed=1)
    assert split.graph.num_nodes == N
    assert split.graph.name == "ogbl-collab"
    assert split.graph.x.tolist() == [[i + 0.5, -i] for i in range(N)]
    assert pairs(split.train, 1) == [(0, 1), (1, 2), (2, 3), (4, 5)]
    assert sorted(map(tuple, split.graph.pairs.T.tolist())) == pairs(split.train, 1)
    assert (pairs(split.val, 1), pairs(split.test, 1)) == ([(3, 4)], [(5, 6)])
    assert (pairs(split.val, 0), pairs(split.test, 0)) == ([(0, 5), (0, 6)], [(0, 7)])
    counts = split.counts()
    dropped = {key: value for key, value in counts.items() if key.endswith("dropped")}
    assert dropped == {
        "train_positives_dropped": 1,
        "val_positives_dropped": 1,
        "test_positives_dropped": 1,
        "val_negatives_dropped": 1,
        "test_negatives_dropped": 1,
    }
    assert counts["edges"] == 6
    assert counts["features"] == 2


def test_drawn_negatives_avoid_every_known_pair(collab):
    known = {(0, 1), (1, 2), (2, 3), (4, 5), (3, 4), (5, 6), (0, 5), (0, 6), (0, 7)}
    drawn = [pairs(load_official_split("ogbl-collab", data_root=collab, seed=s).train, 0) for s in (0, 0, 1)]
    assert all(len(set(each)) == 4 and not set(each) & known for each in drawn)
    assert drawn[0] == drawn[1] != drawn[2]


def test_data_root_is_not_written_to_and_global_settings_stay(collab):
    before = sorted(path for path in collab.rglob("*"))
    allowed = list(torch.serialization.get_safe_globals())
    environment = dict(os.environ)
    load_official_split("ogbl-collab", data_root=collab)
    assert sorted(path for path in collab.rglob("*")) == before
    assert set(torch.serialization.get_safe_globals()) == set(allowed)
    assert dict(os.environ) == environment


def test_pickled_code_is_refused_and_does_not_run(collab, tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    torch.save({"edge": Evil()}, collab / "ogbl_collab" / "split" / "time" / "test.pt")
    with pytest.raises(
        InputError, match=r"data of ogbl-collab must be as ogb publishes it, got .*ogbl_collab: Weights only"
    ):
        load_official_split("ogbl-collab", data_root=collab)
    assert not (tmp_path / "ran").exists()


def test_missing_file_is_named(collab, monkeypatch):
    def no_network(*args, **kwargs):
        raise OSError("no network")

    monkeypatch.setattr("urllib.request.urlopen", no_network)
    (collab / "ogbl_collab" / "split" / "time" / "valid.pt").unlink()
    with pytest.raises(DataNotFoundError, match=r"split/time/valid.pt must exist or be fetched.*no network"):
        load_official_split("ogbl-collab", data_root=collab)


def test_names():
    refuses("dataset must be one of ogbl-ddi, ogbl-collab; got 'ogbl-dd'", load_official_split, "ogbl-dd")
    refuses("dataset 'ogbl-ddi' must be loaded by load_official_split", load_dataset, "ogbl-ddi")


@pytest.mark.slow
@pytest.mark.realdata
def test_ogbl_ddi_is_the_official_split():
    root = os.environ.get("LINKCAL_DATA_ROOT")
    if not root:
        pytest.skip("needs the raw data sets: set LINKCAL_DATA_ROOT")
    split = load_official_split("ogbl-ddi", data_root=root)
    counts = split.counts()
    expected = {
        "nodes": 4267, "edges": 1_334_889, "message_edges": 1_067_911, "train_positives": 1_067_911,
        "val_positives": 133_489, "test_positives": 133_489, "val_negatives": 101_882,
        "test_negatives": 95_599, "train_positives_dropped": 0, "val_positives_dropped": 0,
        "test_positives_dropped": 0, "val_negatives_dropped": 0, "test_negatives_dropped": 0,
    }  # fmt: skip
    assert {key: counts[key] for key in expected} == expected
    keys = [
        pair_keys(part.edge_label_index, 4267, directed=False)
        for part in (split.train, split.val, split.test)
    ]
    assert torch.cat(keys).unique().numel() == sum(len(each) for each in keys)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1, 2], "data of ogbl-collab must be as ogb publishes it, got .*ogbl_collab: "),
        ({"edge": np.array(VALID)}, "must be as ogb publishes it, got .*ogbl_collab: 'edge_neg'"),
        ({"edge": "abc"}, "must be as ogb publishes it, got .*ogbl_collab: "),
        (
            {"edge": np.array([[3, 99]]), "edge_neg": np.array(VALID)},
            "'edge' of .* must hold node indices < num_nodes = 8, got 99",
        ),
        (
            {"edge": np.array([[3, -1]]), "edge_neg": np.array(VALID)},
            "'edge' of .* must hold node indices >= 0, got -1",
        ),
        (
            {"edge": np.array([[3.5, 4]]), "edge_neg": np.array(VALID)},
            "'edge' of .* must hold integers, got torch.float64",
        ),
        (
            {"edge": np.array([[3, 4, 5]]), "edge_neg": np.array(VALID)},
            r"'edge' of .* must have shape \[2, L\], got \[3, 1\]",
        ),
        ({"edge": np.array([3, 4])}, "must be as ogb publishes it, got .*ogbl_collab: .* 1-D tensor"),
        # Out of range as a negative: this one would have become the pair (6, 2).
        ({"edge": np.array(VALID), "edge_neg": np.array([[0, 50]])}, "'edge_neg' of .* = 8, got 50"),
    ],
)
def test_wrong_content_of_a_split_file_is_named(collab, content, message):
    torch.save(content, collab / "ogbl_collab" / "split" / "time" / "valid.pt")
    refuses(message, load_official_split, "ogbl-collab", data_root=collab)


@pytest.mark.parametrize("name", ["node-feat", "num-node-list"])
@pytest.mark.parametrize("damage", ["empty", "truncated", "text", "flipped"])
def test_damaged_raw_file_is_one_line(collab, name, damage):
    path = collab / "ogbl_collab" / "raw" / f"{name}.csv.gz"
    raw = path.read_bytes()
    if damage == "empty":
        path.write_bytes(b"")
    elif damage == "truncated":
        path.write_bytes(raw[: len(raw) // 2])
    elif damage == "text":
        path.write_bytes(gzip.compress(b"a,b\nc\n"))
    else:
        body = bytearray(gzip.compress(b"1,2\n" * 50))
        body[10] = 0x07  # a kind of block that deflate does not have: zlib's own error, none of Python's
        path.write_bytes(body)
    with pytest.raises(
        InputError, match=r"data of ogbl-collab must be as ogb publishes it, got .*ogbl_collab: "
    ) as caught:
        load_official_split("ogbl-collab", data_root=collab)
    assert "\n" not in str(caught.value)
