"""Neighbour lists against a dense matrix, and the search in one row against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linkcal.data.graph import neighbour_rows, place_in_row, row_starts, rows_of_keys


@given(st.integers(1, 9), st.data())
def test_rows_are_those_of_the_dense_matrix(n, data):
    node = st.integers(0, n - 1)
    edges = data.draw(st.lists(st.tuples(node, node), max_size=20))
    dense = np.zeros((n, n), dtype=bool)
    for u, v in edges:
        dense[u, v] = dense[v, u] = u != v
    edge_index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T
    starts, neighbours = neighbour_rows(edge_index, n)
    assert (starts.dtype, neighbours.dtype) == (np.int64, np.int64)
    assert [neighbours[starts[u] : starts[u + 1]].tolist() for u in range(n)] == [
        np.flatnonzero(row).tolist() for row in dense
    ]


def test_rows_of_keys_and_starts_by_hand():
    starts, columns = rows_of_keys(np.array([1, 2, 10]), 4)  # (0, 1), (0, 2), (2, 2)
    assert starts.tolist() == [0, 2, 2, 3, 3]
    assert columns.tolist() == [1, 2, 2]
    assert row_starts(np.array([], dtype=np.int64), 2).tolist() == [0, 0, 0]


@pytest.mark.parametrize("find", [place_in_row, place_in_row.py_func])
def test_place_in_row(find):
    values = np.array([9, 2, 4, 4, 7, 1])
    # Between the bounds the values increase; what lies outside is not looked at.
    assert [find(values, 1, 5, wanted) for wanted in (1, 2, 4, 5, 7, 9)] == [-1, 1, 2, -1, 4, -1]
    assert find(values, 3, 3, 4) == -1
