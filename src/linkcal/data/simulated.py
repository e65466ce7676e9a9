"""A random graph whose link probabilities are known exactly: a degree-corrected stochastic block model."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linkcal._core.random import numpy_stream
from linkcal._core.validation import check_edge_index, check_positive_int
from linkcal.data.graph import Graph

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Cora's mean number of edges and of words per node (5,278 edges, 49,216 words, 2,708 nodes).
_EDGES_PER_NODE = 5278 / 2708
_WORDS_PER_NODE = 18
#: Expected fraction of the edges inside blocks, as Cora's; exponent of the power law of node weights.
_MIXING, _EXPONENT = 0.81, 2.8
#: Fraction of a node's words that come from its block's own word distribution rather than the common one.
_TOPIC_SHARE = 0.8


@dataclass(frozen=True, eq=False)
class BlockModelTruth:
    """Edge probabilities of a degree-corrected block model: ``1 - exp(-theta_u theta_v omega[b_u, b_v])``.

    Parameters
    ----------
    theta, block, omega : Tensor [N], float64; [N], int64; [K, K], float64
        Node weights, to which expected degrees are proportional within a block; blocks; symmetric rates.
    """

    theta: Tensor
    block: Tensor
    omega: Tensor

    def edge_probability(self, edge_label_index: Tensor) -> Tensor:
        """Probability [L] (float64, in [0, 1)) that each pair [2, L] is an edge; 0 for a self-pair."""
        pairs = check_edge_index(edge_label_index, self.theta.numel(), "edge_label_index")
        u, v = pairs.to(self.theta.device)
        rate = self.theta[u] * self.theta[v] * self.omega[self.block[u], self.block[v]]
        return torch.where(u == v, 0.0, -torch.expm1(-rate)).to(edge_label_index.device)


def simulate_graph(
    num_nodes: int = 2708,
    *,
    num_edges: int | None = None,
    num_blocks: int = 7,
    num_features: int = 1433,
    seed: int = 0,
) -> Graph:
    """Draw a Cora-like graph with known edge probabilities, of any size.

    Parameters
    ----------
    num_nodes, num_blocks, num_features : int
        N; K, each node's block being uniform, with 81 % of the edges inside blocks as in Cora; F, the size of
        the vocabulary (0: no features).
    num_edges : int, optional
        Expected edges before repeats collapse (3 % fewer remain by default). Default: Cora's 1.95 per node.
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
    Weights are evenly spaced quantiles of a power law of exponent 2.8, the same for every seed.

    Examples
    --------
    >>> graph = simulate_graph(50, num_edges=100, num_features=0)
    >>> bool((graph.truth.edge_probability(graph.pairs) > 0).all())
    True
    """
    num_nodes = check_positive_int(num_nodes, "num_nodes", minimum=2)
    default = max(1, round(_EDGES_PER_NODE * num_nodes))
    num_edges = check_positive_int(default if num_edges is None else num_edges, "num_edges")
    num_blocks = check_positive_int(num_blocks, "num_blocks")
    num_features = check_positive_int(num_features, "num_features", minimum=0)
    seed = check_positive_int(seed, "seed", minimum=0)
    rng = numpy_stream(seed, "simulated structure")
    block = rng.integers(num_blocks, size=num_nodes)
    quantile = (rng.permutation(num_nodes) + 0.5) / num_nodes
    theta = quantile ** (-1.0 / (_EXPONENT - 1.0))
    omega = _block_rates(theta, block, num_blocks, num_edges)
    words = numpy_stream(seed, "simulated features")
    x = _bag_of_words(block, num_features, words) if num_features else None
    truth = BlockModelTruth(*map(torch.from_numpy, (theta, block, omega)))
    edges = _draw_edges(theta, block, omega, rng)
    return Graph.from_edges(edges, num_nodes, x=x, name="simulated", truth=truth)


def _block_rates(theta: FloatArray, block: IntArray, num_blocks: int, num_edges: int) -> FloatArray:
    """Rates omega [K, K], one value inside blocks and one between, that give the expected edges."""
    weight = np.bincount(block, weights=theta, minlength=num_blocks)
    mixing = _MIXING if num_blocks > 1 else 1.0
    # Sums of theta_u theta_v over unordered pairs of different nodes, inside blocks and between them.
    inside = (np.sum(weight**2) - np.sum(theta**2)) / 2.0
    between = (weight.sum() ** 2 - np.sum(weight**2)) / 2.0
    omega = np.full((num_blocks, num_blocks), (1.0 - mixing) * num_edges / between if between > 0 else 0.0)
    np.fill_diagonal(omega, mixing * num_edges / inside if inside > 0 else 0.0)
    return omega


def _draw_edges(theta: FloatArray, block: IntArray, omega: FloatArray, rng: np.random.Generator) -> IntArray:
    """Distinct edges [2, E], u < v, each pair with probability ``1 - exp(-theta_u theta_v omega)``."""
    order = np.argsort(block, kind="stable")
    ends = np.cumsum(np.bincount(block, minlength=len(omega)))
    starts = np.concatenate([[0], ends[:-1]])
    upto = np.concatenate([[0.0], np.cumsum(theta[order])])
    weight = upto[ends] - upto[starts]
    first, second = np.triu_indices(len(omega))
    rate = weight[first] * weight[second] * omega[first, second]
    rate[first == second] /= 2.0  # ordered draws: both orders of a pair count towards it
    count = rng.poisson(rate)

    def endpoints(blocks: IntArray) -> IntArray:
        drawn = np.repeat(blocks, count)
        start = starts[drawn]
        point = upto[start] + rng.random(len(drawn)) * weight[drawn]
        position = np.searchsorted(upto, point, side="right") - 1
        # Rounding of the cumulative sum must not carry a draw into the next block.
        return np.asarray(order[np.clip(position, start, ends[drawn] - 1)])

    u, v = np.sort(np.stack([endpoints(first), endpoints(second)]), axis=0)
    keys = np.unique((u * len(theta) + v)[u != v])
    return np.stack(np.divmod(keys, len(theta)))


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
