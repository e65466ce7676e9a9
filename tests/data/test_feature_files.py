"""Feature files whose ids or values could be taken for something else."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from linkcal.data import NodeIds, read_features
from linkcal.exceptions import InputError

pd = pytest.importorskip("pandas")


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
    with pytest.raises(InputError, match="1 NaN or infinite value, the first in row 1"):
        read_features(path, NodeIds.range(2))


@pytest.mark.parametrize("name", ["ids", "node_id", "Nodes"])
def test_an_array_of_ids_under_another_name_is_not_passed_over(tmp_path, name):
    path = tmp_path / "x.npz"
    np.savez(path, x=np.arange(6.0).reshape(3, 2), **{name: np.array([2, 0, 1])})
    with pytest.raises(InputError, match=f"ids must be named 'id' .*, got '{name}'"):
        read_features(path, NodeIds.range(3))
    np.savez(path, x=np.arange(6.0).reshape(3, 2), y=np.array([1, 0, 1]))
    assert read_features(path, NodeIds.range(3))[:, 0].tolist() == [0.0, 2.0, 4.0]
