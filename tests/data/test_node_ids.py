import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkcal.data import NodeIds
from linkcal.data.node_ids import is_missing, parse_ids
from linkcal.exceptions import InputError
from refusals import damaged, refuses

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1).filter(str.strip)


def test_strings_are_sorted_and_indexed():
    ids = NodeIds.from_values(["b", "a", "b"], ["c"])
    assert len(ids) == 3
    assert ids.decode(range(3)).to_pylist() == ["a", "b", "c"]
    assert ids.encode(["c", "a", "c"]).tolist() == [2, 0, 2]
    assert not ids.are_integers


def test_integers_are_sorted_as_numbers():
    ids = NodeIds.from_values(["10", "9", "-3"])
    assert ids.decode(range(3)).to_pylist() == [-3, 9, 10]
    assert ids.are_integers


@pytest.mark.parametrize(
    "values",
    [
        [7, 40],
        ["7", "40"],
        [" 7", "40 "],
        np.array([7, 40], dtype=np.int32),
        np.array([7, 40], dtype=np.uint64),
        np.array(["7", "40"]),
        pa.array(["7", "40"]).dictionary_encode(),
        pa.chunked_array([["7"], ["40"]]),
        pa.array(["7", "40"], pa.large_string()),
        pd.Series([7, 40]),
        [7, "40"],
    ],
)
def test_integers_and_their_texts_are_the_same_ids(values):
    assert NodeIds.from_values(values) == NodeIds.from_values([40, 7])
    assert NodeIds.from_values([3, 7, 40]).encode(values).tolist() == [1, 2]
    # Also where other ids are no numbers.
    assert NodeIds.from_values(["3", "7", "40", "x"]).encode(values).tolist() == [2, 1]


def test_names_that_only_look_like_numbers_stay_names():
    ids = NodeIds.from_values(["7", "007", "7.0", "+7", "0x7", "-0"])
    assert len(ids) == 6
    assert not ids.are_integers
    assert ids.lookup([7]).tolist() == ids.lookup(["7"]).tolist()
    assert NodeIds.from_values([7, 8]).lookup(["007", "7.0", "0x7", "7"]).tolist() == [-1, -1, -1, 0]


def test_numbers_beyond_18_digits_are_exact():
    large = [10**18 - 1, 10**18, 2**63 - 1, 2**64 - 1]
    ids = NodeIds.from_values(np.array(large, dtype=np.uint64))
    expected = ids.encode(np.array(large, dtype=np.uint64)).tolist()
    assert ids.encode([str(v) for v in large]).tolist() == expected
    assert sorted(ids.encode(np.array(large, dtype=np.uint64)).tolist()) == [0, 1, 2, 3]


def test_range():
    ids = NodeIds.range(4)
    assert ids.lookup([3, 4, -1, 0]).tolist() == [3, -1, -1, 0]
    assert ids == NodeIds.from_values(["3", "1", "2", "0"])
    assert len(NodeIds.range(0)) == 0
    assert NodeIds.range(0).lookup([0, "a"]).tolist() == [-1, -1]


@given(st.lists(TEXT | st.integers(-(10**20), 10**20).map(str), min_size=1, max_size=30))
def test_round_trip_of_any_ids(values):
    ids = NodeIds.from_values(values)
    index = ids.encode(values)
    back = [str(v) for v in ids.decode(index).to_pylist()]
    stripped = pa.compute.utf8_trim_whitespace(pa.array(values)).to_pylist()
    assert back == stripped
    assert len(ids) == len(set(stripped))
    # The index does not depend on the order of the values.
    assert NodeIds.from_values(values[::-1]) == ids


def test_unknown_and_missing_ids():
    ids = NodeIds.from_values(["a", "b"])
    assert ids.lookup(pa.array(["b", None, "", "z"])).tolist() == [1, -1, -1, -1]
    text = "values must be known node ids, got 'z' at position 1, '5' at position 2"
    refuses(text, ids.encode, ["a", "z", 5])


def test_missing_values_of_a_column():
    assert is_missing(parse_ids(pa.array(["a", None, " ", "b"]))).tolist() == [False, True, True, False]
    assert is_missing(parse_ids(pa.array([1, None, 3]))).tolist() == [False, True, False]
    assert is_missing(parse_ids(pa.array(["1", None]))).tolist() == [False, True]
    assert is_missing(parse_ids(pa.array(["a", None]).dictionary_encode())).tolist() == [False, True]
    assert NodeIds.from_values([1, 3]).lookup(pa.array([1, None, 3])).tolist() == [0, -1, 1]


@pytest.mark.parametrize("values", [["a", ""], [" "], pa.array([1, None])])
def test_missing_id_is_refused(values):
    refuses("node ids must not be missing or empty", NodeIds.from_values, values)


@pytest.mark.parametrize("values", [[1.5], [True], [["a"]], ["a", 1.5]])
def test_other_types_are_refused(values):
    refuses("node ids must be strings or integers, got", NodeIds.from_values, values)


def test_decode_checks_the_range():
    refuses(r"index must be in \[0, 2\), got 0 to 2", NodeIds.range(2).decode, [0, 2])


@pytest.mark.parametrize("values", [["b", "a", "ü"], [5, -1, 3], [0]])
def test_save_and_load(tmp_path, values):
    ids = NodeIds.from_values(values)
    ids.save(tmp_path / "ids.parquet")
    assert NodeIds.load(tmp_path / "ids.parquet") == ids


def test_load_refuses_other_files(tmp_path):
    path = tmp_path / "ids.parquet"
    damaged(r"must be a readable table of node ids, got .*No such file", NodeIds.load, path)
    NodeIds.from_values(["a", "b"]).save(path)
    path.write_bytes(path.read_bytes()[:-30])
    damaged("must be a readable table of node ids", NodeIds.load, path)
    pq.write_table(pa.table({"other": ["a"]}), path)
    damaged("must have the one column node_id", NodeIds.load, path)
    for wrong in (["b", "a"], ["a", "a"], ["1", "2"]):
        pq.write_table(pa.table({"node_id": wrong}), path)
        damaged("must hold sorted, distinct node ids", NodeIds.load, path)


def test_input_is_not_modified():
    values = np.array(["b", "a"])
    NodeIds.from_values(values).encode(values)
    assert values.tolist() == ["b", "a"]


def test_no_columns_and_numbers_beyond_int64():
    assert len(NodeIds.from_values()) == 0
    assert NodeIds.from_values([2**70, 1]).decode([0, 1]).to_pylist() == ["1", str(2**70)]
    with pytest.raises(InputError, match="values must be known node ids, got '1180591620717411303424' at"):
        NodeIds.range(3).encode([2**70])


@pytest.mark.parametrize("index", [[0.5], [True], [[0]], 1])
def test_indices_to_decode_are_integers(index):
    refuses(r"index must hold integers \(n,\), got", NodeIds.range(3).decode, index)
    assert NodeIds.range(3).decode([]).to_pylist() == []


def test_no_ids_at_all():
    assert len(NodeIds.from_values([])) == 0
    assert NodeIds.from_values([1, 2]).encode([]).tolist() == []
    assert NodeIds.from_values(["a"], []).encode(["a"]).tolist() == [0]


def test_none_alone_is_a_missing_id():
    refuses("node ids must not be missing", NodeIds.from_values, [None, None])
    refuses("values must be known node ids, got None at position 0", NodeIds.from_values([1]).encode, [None])


@pytest.mark.parametrize("value", [5, "abc", b"abc"])
def test_one_value_is_no_sequence_of_ids(value):
    refuses(f"must be a sequence of strings or integers, got {value!r}", NodeIds.from_values, value)
    refuses("must be a sequence of strings or integers", NodeIds.from_values(["a", "b", "c"]).encode, value)
