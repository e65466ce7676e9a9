"""Graphs, models and the comparison that the toggle tests share."""

from dataclasses import dataclass
from itertools import combinations, pairwise, permutations

import numpy as np
import torch
from hypothesis import strategies as st
from torch import nn
from torch_geometric import nn as pyg

from linkcal import models
from linkcal.toggle import toggle_edges

MODELS = {"gcn": models.GCN, "sage": models.SAGE, "gin": models.GIN, "vgae": models.VGAE}
PIECES = ("random", "star", "clique", "path", "triangle", "twins")


@dataclass(frozen=True)
class Case:
    edge_index: torch.Tensor
    num_nodes: int
    undirected: bool
    pairs: torch.Tensor
    seed: int


def _piece(kind: str, nodes: list[int], rng: np.random.Generator) -> list[tuple[int, int]]:
    if kind == "star":
        return [(nodes[0], leaf) for leaf in nodes[1:]]
    if kind == "clique":
        return list(combinations(nodes, 2))
    if kind == "path":
        return list(pairwise(nodes))
    if kind == "triangle":
        return list(combinations(nodes[:3], 2))
    if kind == "twins":  # the first two nodes share all their neighbours
        return [(twin, other) for twin in nodes[:2] for other in nodes[2:]]
    return [pair for pair in combinations(nodes, 2) if rng.random() < 0.3]


def build_case(
    num_nodes: int, pieces: list[str], seed: int, *, undirected: bool, loops: bool, repeats: bool
) -> Case:
    """Edges of the pieces on random nodes, shuffled, and up to eight pairs to toggle, edges first."""
    rng = np.random.default_rng(seed)
    edges: set[tuple[int, int]] = set()
    for kind in pieces:
        size = int(rng.integers(1, min(num_nodes, 9) + 1))
        edges |= set(_piece(kind, rng.permutation(num_nodes)[:size].tolist(), rng))
    arcs = sorted(edges | {(b, a) for a, b in edges}) if undirected else sorted(edges)
    if repeats and arcs:
        arcs += [arcs[i] for i in rng.integers(len(arcs), size=3)]
    if loops:
        arcs += [(i, i) for i in rng.integers(num_nodes, size=2).tolist()]
    rng.shuffle(arcs)
    every = list(permutations(range(num_nodes), 2))
    rng.shuffle(every)
    every.sort(key=lambda pair: tuple(pair) not in edges)
    half = len([pair for pair in every if tuple(pair) in edges])
    chosen = every[: min(half, 4)] + every[half : half + 4]
    return Case(_columns(arcs), num_nodes, undirected, _columns(chosen), seed)


def _columns(pairs: list[tuple[int, int]]) -> torch.Tensor:
    return torch.tensor([list(pair) for pair in pairs], dtype=torch.int64).reshape(-1, 2).T.contiguous()


def path(length: int) -> torch.Tensor:
    """Both directions of the edges 0-1-2-..."""
    line = torch.arange(length - 1)
    return torch.cat([torch.stack([line, line + 1]), torch.stack([line + 1, line])], dim=1)


@st.composite
def toggle_cases(draw: st.DrawFn) -> Case:
    return build_case(
        draw(st.integers(1, 40)), draw(st.lists(st.sampled_from(PIECES), max_size=4)),
        draw(st.integers(0, 2**32 - 1)), undirected=draw(st.booleans()), loops=draw(st.booleans()),
        repeats=draw(st.booleans()),
    )  # fmt: skip


def seeded(build, seed: int) -> nn.Module:
    """A model whose weights, and batch norm statistics, follow from the seed alone."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = build()
        for module in model.modules():
            if isinstance(module, nn.BatchNorm1d):
                nn.init.uniform_(module.running_mean, -0.5, 0.5)
                nn.init.uniform_(module.running_var, 0.5, 2.0)
                nn.init.uniform_(module.weight, 0.5, 1.5)
                nn.init.uniform_(module.bias, -0.5, 0.5)
    return model


def features(num_nodes: int, width: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num_nodes, width, generator=generator, dtype=torch.float64).to(dtype)


@st.composite
def linkcal_models(draw: st.DrawFn, in_channels: int) -> nn.Module:
    cls = MODELS[draw(st.sampled_from(sorted(MODELS)))]
    hidden, out, depth = draw(st.integers(1, 5)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    return seeded(
        lambda: cls(in_channels, hidden_channels=hidden, out_channels=out, num_layers=depth),
        draw(st.integers(0, 999)),
    )


@st.composite
def pyg_models(draw: st.DrawFn, in_channels: int) -> nn.Module:
    """PyG's GAE around its BasicGNN family, with the options that keep the layers in the algebra."""
    cls = draw(st.sampled_from([pyg.GCN, pyg.GraphSAGE, pyg.GIN]))
    options = {
        "in_channels": in_channels, "hidden_channels": draw(st.integers(2, 4)),
        "num_layers": draw(st.integers(1, 3)), "out_channels": draw(st.integers(1, 3)), "dropout": 0.5,
        "act": draw(st.sampled_from(["relu", "leaky_relu", "elu"])), "act_first": draw(st.booleans()),
        "norm": draw(st.sampled_from([None, "batch_norm", "layer_norm"])),
        "jk": draw(st.sampled_from([None, "last"])),
    }  # fmt: skip
    if options["norm"] == "layer_norm":
        options["norm_kwargs"] = {"mode": "node"}
    if cls is pyg.GCN:
        options["improved"] = draw(st.booleans())
        options["add_self_loops"] = draw(st.booleans())
    if cls is pyg.GraphSAGE:
        options["aggr"] = draw(st.sampled_from(["mean", "sum"]))
        options["root_weight"] = draw(st.booleans())
    return seeded(lambda: pyg.GAE(cls(**options)), draw(st.integers(0, 999)))


def tolerance(values: torch.Tensor) -> float:
    """1e-5 in float32, 1e-10 in float64, relative to the largest value if that exceeds 1."""
    largest = float(values.abs().max()) if values.numel() else 0.0
    return (1e-10 if values.dtype == torch.float64 else 1e-5) * max(1.0, largest)


def assert_same(toggled, reference) -> None:
    for name in ("absent", "present", "logit_absent", "logit_present"):
        ours, theirs = getattr(toggled, name), getattr(reference, name)
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        assert torch.equal(ours.isnan(), theirs.isnan())
        ours, theirs = ours.nan_to_num(), theirs.nan_to_num()
        if ours.numel():
            assert float((ours - theirs).abs().max()) <= tolerance(theirs), name
    assert torch.equal(toggled.in_graph, reference.in_graph)


def assert_equals_naive(model: nn.Module, x: torch.Tensor, case: Case, *methods: str, **options) -> None:
    def run(method):
        return toggle_edges(
            model, x, case.edge_index, case.pairs, undirected=case.undirected, method=method, **options
        )

    reference = run("naive")
    for method in methods:
        assert_same(run(method), reference)
