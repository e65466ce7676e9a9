"""Real graphs, 300 random pairs each: fast methods equal one forward pass per pair."""

import os
from functools import lru_cache
from pathlib import Path

import pandas as pd
import pytest
import torch

from linkcal._core.random import stream_seed
from linkcal.data import Graph, load_dataset, structural_node_features
from linkcal.toggle import toggle_edges

from .cases import MODELS, assert_same, seeded

_MAX_FEATURES = 64

pytestmark = [pytest.mark.realdata, pytest.mark.slow]


@pytest.fixture(scope="module")
def data_root() -> Path:
    if not os.environ.get("LINKCAL_DATA_ROOT"):
        pytest.skip("needs the raw data sets: set LINKCAL_DATA_ROOT")
    return Path(os.environ["LINKCAL_DATA_ROOT"])


@lru_cache(maxsize=1)
def _graph(name: str, root: Path) -> tuple[Graph, torch.Tensor]:
    if name == "ogbl-ddi":
        table = pd.read_csv(root / "ogbl_ddi" / "raw" / "edge.csv.gz", header=None)
        graph = Graph.from_edges(torch.from_numpy(table.to_numpy().T.copy()), 4267, name=name)
    else:
        graph = load_dataset(name, data_root=root)
    x = graph.x
    if x is None:
        x = structural_node_features(graph.edge_index, graph.num_nodes).float()
    # The graphs are what matters here; hundreds of passes over thousands of features would only take time.
    return graph, x[:, :_MAX_FEATURES].contiguous()


def _pairs(graph: Graph, count: int) -> torch.Tensor:
    """Half edges, half uniform pairs."""
    generator = torch.Generator().manual_seed(stream_seed(0, "toggle test pairs"))
    edges = graph.pairs[:, torch.randint(graph.num_pairs, (count // 2,), generator=generator)]
    others = torch.randint(graph.num_nodes, (2, count), generator=generator)
    others = others[:, others[0] != others[1]][:, : count - count // 2]
    return torch.cat([edges, others], dim=1)


@pytest.mark.parametrize(
    ("dataset", "name"),
    [*(("cora", name) for name in sorted(MODELS)), ("chameleon", "gin"), ("bitcoin-otc", "sage")],
)
def test_real_graph(dataset, name, data_root):
    graph, x = _graph(dataset, data_root)
    pairs = _pairs(graph, 300)
    model = seeded(lambda: MODELS[name](x.size(1), 32, 16), 0)
    fast, naive = (toggle_edges(model, x, graph.edge_index, pairs, method=m) for m in ("fast", "naive"))
    assert_same(fast, naive)
    assert int(fast.in_graph.sum()) >= pairs.size(1) // 2


@pytest.mark.parametrize("name", ["gcn", "sage"])
def test_dense_real_graph(name, data_root):
    """ogbl-ddi, mean degree 500: 80 pairs in double precision, 4 of them pass by pass (2 s each)."""
    graph, x = _graph("ogbl-ddi", data_root)
    pairs = _pairs(graph, 80)
    model = seeded(lambda: MODELS[name](x.size(1), 32, 16), 0)
    in_float32 = toggle_edges(model, x, graph.edge_index, pairs, method="fast")
    model, x = model.double(), x.double()
    fast, delta = (toggle_edges(model, x, graph.edge_index, pairs, method=m) for m in ("fast", "delta"))
    assert fast.method == in_float32.method == "kernel"
    assert_same(fast, delta)
    some = torch.arange(0, 80, 20)
    assert_same(fast.take(some), toggle_edges(model, x, graph.edge_index, pairs[:, some], method="naive"))
    # Rows of up to 2,234 neighbours: sums of that many float32 terms round to a few 1e-5 in any method.
    for part in ("absent", "present", "logit_absent", "logit_present"):
        exact = getattr(fast, part)
        error = float((getattr(in_float32, part) - exact).abs().max())
        assert error <= 2e-5 * max(1.0, float(exact.abs().max())), part
