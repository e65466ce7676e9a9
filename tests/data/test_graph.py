import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, csr_matrix

from linkcal.data import Graph, pair_keys
from linkcal.data.graph import neighbour_rows, place_in_row, row_starts
from linkcal.exceptions import InputError

# Public case 28: self-loops, a repeat, both directions and an isolated node.
MESSY = [[0, 0, 1, 0, 1, 2, 3], [0, 1, 0, 1, 2, 1, 3]]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_messy_edge_list_becomes_simple(dtype):
    graph = Graph.from_edges(torch.tensor(MESSY, dtype=dtype), num_nodes=5)
    assert graph.edge_index.dtype == torch.int64
    assert graph.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert graph.pairs.tolist() == [[0, 1], [1, 2]]
    assert graph.counts() == {
        "nodes": 5,
        "edges": 2,
        "non_edges": 8,
        "features": 0,
        "self_loops_removed": 2,
        "duplicates_removed": 1,
    }


def test_directed_graph_keeps_direction():
    graph = Graph.from_edges(torch.tensor(MESSY), num_nodes=5, directed=True)
    assert graph.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert graph.num_pairs == 4
    assert graph.num_possible_pairs == 20


def test_pair_keys_of_unordered_pairs():
    pairs = torch.tensor([[0, 3, 2], [3, 0, 2]])
    assert pair_keys(pairs, 5, directed=False).tolist() == [3, 3, 12]
    assert pair_keys(pairs, 5, directed=True).tolist() == [3, 15, 12]


@pytest.mark.parametrize("directed", [False, True])
def test_has_pairs(directed):
    graph = Graph.from_edges(torch.tensor([[0, 2], [1, 1]]), num_nodes=4, directed=directed)
    asked = torch.tensor([[0, 1, 1, 2, 3, 0, 2], [1, 0, 2, 1, 3, 3, 2]])
    both = not directed
    assert graph.has_pairs(asked).tolist() == [True, both, both, True, False, False, False]


def test_has_pairs_of_edgeless_graph():
    graph = Graph.from_edges(torch.empty(2, 0), num_nodes=3)
    assert graph.has_pairs(torch.tensor([[0, 1], [1, 2]])).tolist() == [False, False]


def test_index_beyond_node_count_is_named():
    with pytest.raises(InputError, match="edge_index must hold node indices < num_nodes = 3, got 7"):
        Graph.from_edges(torch.tensor([[0, 7], [1, 2]]), num_nodes=3)


def test_negative_index_is_named():
    with pytest.raises(InputError, match="edge_index must hold node indices >= 0, got -1"):
        Graph.from_edges(torch.tensor([[0, -1], [1, 2]]), num_nodes=3)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, torch.bool, torch.float64])
def test_node_indices_are_integers(dtype):
    with pytest.raises(InputError, match=f"edge_index must hold integers, got {dtype}"):
        Graph.from_edges(torch.ones(2, 1, dtype=dtype), num_nodes=3)


def test_node_count_limit_is_the_largest_with_int64_keys():
    limit = 3_037_000_499
    assert limit**2 < 2**63 <= (limit + 1) ** 2
    with pytest.raises(InputError, match=f"num_nodes must be at most {limit}, got {limit + 1}"):
        Graph.from_edges(torch.tensor([[0], [1]]), num_nodes=limit + 1)


def test_features_must_fit():
    edges = torch.tensor([[0], [1]])
    with pytest.raises(InputError, match=r"x must have shape \[num_nodes, F\], num_nodes = 3, got \[2, 4\]"):
        Graph.from_edges(edges, 3, x=torch.zeros(2, 4))
    bad = torch.zeros(3, 4)
    bad[1, 2] = bad[2, 0] = float("nan")
    with pytest.raises(InputError, match="x must be finite, got 2 NaN or infinite values, the first in row"):
        Graph.from_edges(edges, 3, x=bad)


def test_integer_and_array_features_become_float():
    x = np.arange(6).reshape(3, 2)
    graph = Graph.from_edges([[0], [1]], 3, x=x)
    assert graph.x is not None
    assert graph.x.dtype == torch.float32
    assert graph.node_input.tolist() == x.tolist()
    assert Graph.from_edges([[0], [1]], 3).node_input.tolist() == [0, 1, 2]


def test_features_and_builder_exclude_each_other():
    with pytest.raises(InputError, match="x must be None with a feature_builder"):
        Graph.from_edges([[0], [1]], 2, x=torch.zeros(2, 1), feature_builder=lambda e, n: torch.zeros(n, 1))


def test_input_is_not_modified():
    edges = torch.tensor(MESSY)
    copy = edges.clone()
    Graph.from_edges(edges, num_nodes=5)
    assert torch.equal(edges, copy)


def test_to_keeps_everything():
    graph = Graph.from_edges([[0], [1]], 2, x=torch.ones(2, 1), name="pair").to("cpu")
    assert graph.name == "pair"
    assert graph.counts()["features"] == 1


def test_int32_pairs_have_the_keys_of_int64_ones():
    pairs = torch.tensor([[70_000, 99_999], [70_001, 0]])
    for directed in (False, True):
        expected = pair_keys(pairs, 100_000, directed=directed)
        assert torch.equal(pair_keys(pairs.int(), 100_000, directed=directed), expected)
    assert pair_keys(pairs.int(), 100_000, directed=True).tolist() == [7_000_070_001, 9_999_900_000]


@pytest.mark.parametrize(
    "x",
    [torch.eye(2).to_sparse(), csr_array(np.eye(2)), csr_matrix(np.eye(2))],
    ids=["torch", "array", "matrix"],
)
def test_sparse_features_are_refused_with_a_way_out(x):
    with pytest.raises(InputError, match=r"x must be dense, got \w+ in a sparse layout: convert it"):
        Graph.from_edges(torch.tensor([[0], [1]]), 2, x=x)


@pytest.mark.parametrize(
    ("x", "came"),
    [
        (np.array([["a"], ["b"]]), "<U1"),
        (np.array([[None], [1]]), "object"),
        (torch.ones(2, 1, dtype=torch.complex64), "torch.complex64"),
    ],
)
def test_features_that_are_no_real_numbers(x, came):
    with pytest.raises(InputError, match=f"x must hold real numbers, got {came}"):
        Graph.from_edges(torch.tensor([[0], [1]]), 2, x=x)


def test_big_endian_features():
    x = np.array([[1.5], [2.5]], dtype=">f4")
    assert Graph.from_edges(torch.tensor([[0], [1]]), 2, x=x).x.tolist() == [[1.5], [2.5]]


# --- neighbour lists ---


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


def test_row_starts_by_hand():
    assert row_starts(np.array([0, 0, 2]), 4).tolist() == [0, 2, 2, 3, 3]
    assert row_starts(np.array([], dtype=np.int64), 2).tolist() == [0, 0, 0]


@pytest.mark.parametrize("find", [place_in_row, place_in_row.py_func])
def test_place_in_row(find):
    values = np.array([9, 2, 4, 4, 7, 1])
    # Between the bounds the values increase; what lies outside is not looked at.
    assert [find(values, 1, 5, wanted) for wanted in (1, 2, 4, 5, 7, 9)] == [-1, 1, 2, -1, 4, -1]
    assert find(values, 3, 3, 4) == -1


def test_features_are_kept_row_by_row():
    """Products of a matrix stored by columns round otherwise: scores before saving and after would differ."""
    x = torch.randn(3, 4)
    graph = Graph.from_edges([[0], [1]], 3, x=x.T.contiguous().T)
    assert graph.x.is_contiguous()
    assert torch.equal(graph.x, x)
