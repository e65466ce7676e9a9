"""A random graph whose link probabilities are known exactly: a degree-corrected stochastic block model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linkcal._core.random import numpy_stream
from linkcal._core.validation import check_edge_index, check_fraction, check_positive_int
from linkcal.data.graph import Graph
from linkcal.exceptions import InputError

__all__ = ["BlockModelTruth", "simulate_graph"]


FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Cora's mean number of edges and of words per node (5,278 edges, 49,216 words, 2,708 nodes).
_EDGES_PER_NODE = 5278 / 2708
_WORDS_PER_NODE = 18
#: Fraction of a node's words that come from its block's own word distribution rather than the common one.
_TOPIC_SHARE = 0.8


@dataclass(frozen=True, eq=False)
class BlockModelTruth:
    """Edge probabilities of a degree-corrected block model: ``1 - exp(-theta_u theta_v omega[b_u, b_v])``.

    Parameters
    ----------
    theta, block : Tensor [N], float64 and int64
        Node weights, to which expected degrees are proportional within a block; blocks.
    omega : Tensor [K, K], float64
        Symmetric rates between blocks.

    Examples
    --------
    >>> one = torch.ones(2, dtype=torch.float64)
    >>> truth = BlockModelTruth(one, torch.tensor([0, 0]), torch.ones(1, 1).double())
    >>> truth.edge_probability(torch.tensor([[0], [1]])).numpy().round(4)  # 1 - exp(-1)
    array([0.6321])
    """

    theta: Tensor
    block: Tensor
    omega: Tensor

    def edge_probability(self, edge_label_index: Tensor) -> Tensor:
        """Probability [L] (float64, in [0, 1)) that each pair [2, L] is an edge; 0 for a self-pair."""
        pairs = check_edge_index(edge_label_index, self.theta.numel(), "edge_label_index")
        pairs = pairs.to(self.theta.device)
        u, v = pairs[0], pairs[1]
        rate = self.theta[u] * self.theta[v] * self.omega[self.block[u], self.block[v]]
        return torch.where(u == v, 0.0, -torch.expm1(-rate)).to(edge_label_index.device)


def simulate_graph(
    num_nodes: int = 2708,
    *,
    num_edges: int | None = None,
    num_blocks: int = 7,
    num_features: int = 1433,
    mixing: float = 0.81,
    degree_exponent: float = 2.8,
    seed: int = 0,
) -> Graph:
    """Draw a Cora-like graph with known edge probabilities, of any size.

    Parameters
    ----------
    num_nodes, num_blocks, num_features : int
        N; K, each node's block being uniform; F, the size of the vocabulary (0: no features).
    num_edges : int, optional
        Expected edges before repeats collapse (3 % fewer remain by default). Default: Cora's 1.95 per node.
    mixing : float in [0, 1]
        Expected fraction of edges inside blocks (Cora: 0.81). Must be 1 for one block.
    degree_exponent : float > 2
        Exponent of the power law of node weights; smaller means heavier hubs.
    seed : int

    Returns
    -------
    Graph
        Undirected, with ``x`` [N, F] (0/1) and ``truth``, a :class:`BlockModelTruth`.

    Notes
    -----
    Poisson numbers of edges per block pair with endpoints in proportion to theta are independent Poisson
    counts per pair, of rate ``lambda_uv = theta_u theta_v omega[b_u, b_v]`` (Karrer and Newman, arXiv
    1008.3926). Collapsing repeats leaves independent edges of probability ``1 - exp(-lambda_uv)``, exactly.
    Weights are evenly spaced quantiles of the power law: expected degrees are the same for every seed.

    Examples
    --------
    >>> graph = simulate_graph(50, num_edges=100, num_features=0, seed=3)
    >>> probability = graph.truth.edge_probability(graph.pairs)
    >>> bool(((probability > 0) & (probability < 1)).all())
    True
    """
    num_nodes = check_positive_int(num_nodes, "num_nodes", minimum=2)
    if num_edges is None:
        num_edges = max(1, round(_EDGES_PER_NODE * num_nodes))
    num_edges = check_positive_int(num_edges, "num_edges")
    num_blocks = check_positive_int(num_blocks, "num_blocks")
    num_features = check_positive_int(num_features, "num_features", minimum=0)
    mixing = check_fraction(mixing, "mixing", zero=True, one=True)
    seed = check_positive_int(seed, "seed", minimum=0)
    if not degree_exponent > 2.0:
        raise InputError(f"degree_exponent must be > 2, got {degree_exponent!r}")
    if num_blocks == 1 and mixing != 1.0:
        raise InputError(f"mixing must be 1 with num_blocks = 1, got {mixing!r}")

    rng = numpy_stream(seed, "simulated structure")
    block = rng.integers(num_blocks, size=num_nodes)
    quantile = (rng.permutation(num_nodes) + 0.5) / num_nodes
    theta = quantile ** (-1.0 / (degree_exponent - 1.0))
    omega = _block_rates(theta, block, num_blocks, num_edges, mixing)
    x = None
    if num_features:
        x = _bag_of_words(block, num_features, numpy_stream(seed, "simulated features"))
    return Graph.from_edges(
        _draw_edges(theta, block, omega, rng),
        num_nodes,
        x=x,
        name="simulated",
        truth=BlockModelTruth(torch.from_numpy(theta), torch.from_numpy(block), torch.from_numpy(omega)),
    )


def _block_rates(
    theta: FloatArray, block: IntArray, num_blocks: int, num_edges: int, mixing: float
) -> FloatArray:
    """Rates omega [K, K], one value inside blocks and one between, that give the expected edges."""
    weight = np.bincount(block, weights=theta, minlength=num_blocks)
    # Sums of theta_u theta_v over unordered pairs of different nodes, inside blocks and between them.
    inside = (np.sum(weight**2) - np.sum(theta**2)) / 2.0
    between = (weight.sum() ** 2 - np.sum(weight**2)) / 2.0
    omega = np.full((num_blocks, num_blocks), (1.0 - mixing) * num_edges / between if between > 0 else 0.0)
    np.fill_diagonal(omega, mixing * num_edges / inside if inside > 0 else 0.0)
    return omega


def _draw_edges(theta: FloatArray, block: IntArray, omega: FloatArray, rng: np.random.Generator) -> IntArray:
    """Distinct edges [2, E], u < v, each pair with probability ``1 - exp(-theta_u theta_v omega)``."""
    num_nodes, num_blocks = len(theta), len(omega)
    order = np.argsort(block, kind="stable")
    ends = np.cumsum(np.bincount(block, minlength=num_blocks))
    upto = np.concatenate([[0.0], np.cumsum(theta[order])])
    weight = upto[ends] - upto[np.concatenate([[0], ends[:-1]])]
    first, second = np.triu_indices(num_blocks)
    rate = weight[first] * weight[second] * omega[first, second]
    rate[first == second] /= 2.0  # ordered draws: both orders of a pair count towards it
    count = rng.poisson(rate)

    def endpoints(blocks: IntArray) -> IntArray:
        drawn = np.repeat(blocks, count)
        start = np.concatenate([[0], ends[:-1]])[drawn]
        position = (
            np.searchsorted(upto, upto[start] + rng.random(len(drawn)) * weight[drawn], side="right") - 1
        )
        # Rounding of the cumulative sum must not carry a draw into the next block.
        return np.asarray(order[np.clip(position, start, ends[drawn] - 1)])

    u, v = endpoints(first), endpoints(second)
    u, v = np.minimum(u, v), np.maximum(u, v)
    keys = np.unique((u * num_nodes + v)[u != v])
    return np.stack([keys // num_nodes, keys % num_nodes])


def _bag_of_words(block: IntArray, num_features: int, rng: np.random.Generator) -> Tensor:
    """0/1 matrix [N, F], float32: about 18 Zipf-distributed words a node, part of its block's own ranking."""
    num_nodes = len(block)
    upto = np.cumsum(1.0 / (np.arange(num_features) + 10.0))
    ranking = np.stack([rng.permutation(num_features) for _ in range(int(block.max()) + 2)])
    mean_words = max(1, min(_WORDS_PER_NODE, num_features // 4))
    node = np.repeat(np.arange(num_nodes), 1 + rng.poisson(mean_words - 1, size=num_nodes))
    from_topic = rng.random(len(node)) < _TOPIC_SHARE
    vocabulary = np.where(from_topic, block[node], len(ranking) - 1)
    rank = np.searchsorted(upto, rng.random(len(node)) * upto[-1], side="right")
    word = ranking[vocabulary, np.minimum(rank, num_features - 1)]
    x = torch.zeros(num_nodes, num_features)
    x[torch.from_numpy(node), torch.from_numpy(word)] = 1.0
    return x
