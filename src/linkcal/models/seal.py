"""SEAL: links from the labelled subgraphs around them (DRNL labels, DGCNN)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.extmath import randomized_svd
from torch import Tensor, nn
from torch.nn import functional

from linkcal._core.validation import (
    check_choice,
    check_edge_index,
    check_fraction,
    check_no_self_pairs,
    check_positive_int,
    to_float64,
)
from linkcal.data import Graph, LinkSplit
from linkcal.exceptions import InputError, UnsupportedModelError
from linkcal.models._enclosing import MAX_LABEL, EnclosingSubgraphs, SubgraphBatch
from linkcal.models.base import TARGET_LINK_STATES, PairPredictor, TargetLinkState

__all__ = ["SEAL", "normalised_adjacency", "principal_features", "propagate", "sort_pool"]


# Parts of DGCNN: propagation over many small graphs at once, and pooling of their nodes in sorted order.


def sort_pool(x: Tensor, start: Tensor, k: int) -> Tensor:
    """Rows of the k nodes of each subgraph with the largest last channel, in falling order, [P, k, C].

    Parameters
    ----------
    x : Tensor [M, C]
    start : Tensor [P + 1], int64
        First row of each subgraph.
    k : int
        Smaller subgraphs are filled up with zeros; equal keys keep the order of the rows.
    """
    sizes = start.diff()
    owner = torch.repeat_interleave(torch.arange(sizes.numel(), device=x.device), sizes)
    order = torch.argsort(x[:, -1], descending=True, stable=True)
    order = order[torch.argsort(owner[order], stable=True)]
    rank = torch.arange(x.size(0), device=x.device) - start[owner]
    kept = rank < k
    pooled = x.new_zeros(sizes.numel() * k, x.size(1))
    pooled = pooled.index_copy(0, (owner * k + rank)[kept], x[order[kept]])
    return pooled.view(sizes.numel(), k, x.size(1))


def propagate(adjacency: Tensor, x: Tensor) -> Tensor:
    """``A x`` [M, C] for a symmetric sparse A [M, M] that needs no gradient."""
    propagated: Tensor = _Propagate.apply(adjacency, x)  # type: ignore[no-untyped-call]
    return propagated


class _Propagate(torch.autograd.Function):
    """``A x`` for a symmetric sparse A that needs no gradient; the gradient of x is then ``A grad``."""

    @staticmethod
    def forward(ctx: Any, adjacency: Tensor, x: Tensor) -> Tensor:
        ctx.adjacency = adjacency
        return adjacency @ x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, ctx.adjacency @ grad


def normalised_adjacency(batch: SubgraphBatch, dtype: torch.dtype) -> Tensor:
    """``D^-1/2 (A + I) D^-1/2`` of the batch, sparse [M, M] (Kipf and Welling, arXiv 1609.02907)."""
    degree = batch.indptr.diff()
    root = degree.to(dtype).rsqrt()
    values = torch.repeat_interleave(root, degree) * root[batch.neighbors]
    size = (degree.numel(), degree.numel())
    with warnings.catch_warnings():
        # torch announces on first use that compressed tensors are in beta; only their product is used here.
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support", category=UserWarning)
        return torch.sparse_csr_tensor(
            batch.indptr, batch.neighbors, values, size=size, check_invariants=False
        )


# Features along their principal directions: few numbers in place of a vocabulary.


def principal_features(x: Tensor, num_directions: int) -> Tensor:
    """Coordinates [N, k] of feature rows along their k strongest directions, scaled together to deviation 1.

    Parameters
    ----------
    x : Tensor [N, F]
    num_directions : int
        k, at most F. Columns beyond min(N, F) are 0.

    Returns
    -------
    Tensor [N, k]
        Dtype and device of `x`. The same `x` gives the same coordinates: scikit-learn's randomised solver
        starts from a fixed seed.

    Notes
    -----
    ``X V_k / std(X V_k)`` with the truncated singular value decomposition ``X = U S V^T`` (latent semantic
    analysis): features are not centred, so that absent words stay 0.

    Examples
    --------
    >>> import torch
    >>> x = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> z = principal_features(x, 2)
    >>> z.shape, torch.allclose(z[0], z[1]), abs(float(z[0] @ z[2])) < 1e-5
    (torch.Size([3, 2]), True, True)
    """
    rows = to_float64(x)
    rank = min(num_directions, *rows.shape)
    out = np.zeros((rows.shape[0], num_directions))
    left, strength, _ = randomized_svd(rows, rank, random_state=0)
    out[:, :rank] = left * strength
    # Without features that differ from 0 there is nothing to scale.
    deviation = out[:, :rank].std()
    if deviation > 0.0:
        out /= deviation
    return torch.from_numpy(out).to(x)


# SEAL: a graph network over the subgraph that encloses each pair.

IntArray = NDArray[np.int64]

#: The convolutions over the sorted nodes need ten of them (Zhang and Chen's code has the same floor).
_MIN_SORT_K = 10
#: Seeds that the hash of a pair's neighbours can tell apart.
_SEEDS = 1 << 63
#: Training pairs whose subgraph sizes decide `sort_k`.
_NUM_MEASURED = 10_000
#: Subgraph nodes in one forward pass: about 100 MB of node features at F = 1,433.
_MAX_BATCH_NODES = 1 << 14


class SEAL(PairPredictor):
    """Learn from Subgraphs, Embeddings and Attributes for Link prediction, with DGCNN.

    Each pair is judged by its enclosing subgraph alone, from which the target link is removed, for links
    and negatives alike: so a training link never is part of its own evidence, and uncalibrated scores are
    closer to probabilities than those of node embeddings. Slower than these by orders of magnitude.

    Parameters
    ----------
    in_channels : int
        F, the number of node features; with `num_nodes`, the width of the learned node embedding.
    hidden_channels : int
        Width of the graph layers and of the label embedding.
    out_channels : int
        d, the width of the pair embedding: the pooled representation before the last linear layer.
    num_layers : int
        Graph layers of width `hidden_channels`; one more of width 1 gives the sort key.
    dropout : float in [0, 1)
        Before the last linear layer, in training mode.
    feature_channels : int, optional
        k: :meth:`prepare` replaces more than k features by their coordinates along their k principal
        directions (:func:`~linkcal.models.seal.principal_features`). Weights of so many a few thousand
        small subgraphs can teach; with one for each of 1,433 words, the training pairs are learned by heart
        within a few epochs. None keeps the features.
    feature_dropout : float in [0, 1)
        Of the nodes' features, in training mode.
    num_hops : {1, 2}
        Radius of the subgraphs.
    max_neighbors : int, optional
        Bound on the new nodes per hop, drawn by `sampling_seed`; None takes all.
    sort_k : int, at least 10
        Nodes kept by SortPool: the 60th percentile of the training subgraphs' sizes (:meth:`options_for`).
    sampling_seed : int in [0, 2**63)
    num_nodes : int, optional
        For a graph without features: `x` then holds node ids [N].

    Raises
    ------
    InputError
        If an argument is out of range.

    Notes
    -----
    A node at distances a, b from the two ends, each inside the subgraph and without the other end, has the
    label ``1 + min(a, b) + (s // 2) (s // 2 + s % 2 - 1)``, s = a + b; both ends have 1, nodes that reach
    only one of them 0. Its embedding and the node's features are the input. With ``target_link="present"``
    the same subgraph, with the same labels, also passes messages over the pair's edge. Direction of edges is
    ignored.

    References
    ----------
    Zhang and Chen, NeurIPS 2018, arXiv 1802.09691; DGCNN: Zhang, Cui, Neumann and Chen, AAAI 2018.

    Examples
    --------
    >>> import torch
    >>> model = SEAL(in_channels=4).eval()
    >>> edge_index = torch.tensor([[0, 1, 1, 2, 2, 0, 2, 3], [1, 0, 2, 1, 0, 2, 3, 2]])
    >>> model(torch.eye(4), edge_index, torch.tensor([[0, 0, 1], [1, 3, 3]])).shape
    torch.Size([3])
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int = 32,
        out_channels: int = 32,
        num_layers: int = 3,
        *,
        dropout: float = 0.5,
        feature_channels: int | None = None,
        feature_dropout: float = 0.0,
        num_hops: int = 1,
        max_neighbors: int | None = None,
        sort_k: int = 30,
        sampling_seed: int = 0,
        num_nodes: int | None = None,
    ) -> None:
        super().__init__(in_channels, num_nodes=num_nodes)
        self.hidden_channels = check_positive_int(hidden_channels, "hidden_channels")
        self.out_channels = check_positive_int(out_channels, "out_channels")
        self.num_layers = check_positive_int(num_layers, "num_layers")
        self.dropout = check_fraction(dropout, "dropout", zero=True)
        self.feature_channels = _whole_or_none(feature_channels, "feature_channels")
        self.feature_dropout = check_fraction(feature_dropout, "feature_dropout", zero=True)
        extent = _checked_extent(num_hops, max_neighbors, sampling_seed)
        self.num_hops, self.max_neighbors, self.sampling_seed = extent
        self.sort_k = check_positive_int(sort_k, "sort_k", minimum=_MIN_SORT_K)
        # [label embedding | features] W of the first layer, as the sum of its two parts.
        self.label_embedding = nn.Embedding(MAX_LABEL + 1, hidden_channels)
        self.lin_features = nn.Linear(self._width, hidden_channels, bias=False)
        widths = [*[hidden_channels] * num_layers, 1]
        self.lins = nn.ModuleList(nn.Linear(a, b, bias=False) for a, b in pairwise(widths))
        self.biases = nn.ParameterList(torch.zeros(width) for width in widths)
        # A convolution over the k sorted nodes, one at a time.
        self.lin_nodes = nn.Linear(hidden_channels * num_layers + 1, 16)
        self.pool = nn.MaxPool1d(2, 2)
        self.conv_sorted = nn.Conv1d(16, 32, 5, 1)
        self.lin_pooled = nn.Linear(32 * (sort_k // 2 - 4), out_channels)
        self.lin = nn.Linear(out_channels, 1)
        self._subgraphs: tuple[Tensor, int, EnclosingSubgraphs] | None = None

    def reset_parameters(self) -> None:
        """Draw all weights anew from torch's global generator; the graph layers' biases start at 0."""
        super().reset_parameters()
        for bias in self.biases:
            nn.init.zeros_(bias)

    @classmethod
    def options_for(cls, split: LinkSplit, **options: Any) -> dict[str, Any]:
        """``sort_k`` at the 60th percentile of the training pairs' subgraph sizes, and at least 10."""
        # Before the compiled search, which trusts its caller.
        extent = _checked_extent(
            options.get("num_hops", 1), options.get("max_neighbors"), options.get("sampling_seed", 0)
        )
        subgraphs = EnclosingSubgraphs(split.graph.edge_index, split.graph.num_nodes, *extent)
        pairs = split.train.edge_label_index.cpu().numpy()
        if not pairs.shape[1]:
            return {"sort_k": _MIN_SORT_K}
        sizes = subgraphs.sizes(pairs[:, :: math.ceil(pairs.shape[1] / _NUM_MEASURED)])[0]
        return {"sort_k": max(_MIN_SORT_K, math.ceil(np.percentile(sizes, 60)))}

    @property
    def _width(self) -> int:
        """Features of a node that the first layer reads."""
        if self.feature_channels is None or self.num_nodes is not None:
            return self.in_channels
        return min(self.feature_channels, self.in_channels)

    def prepare(self, graph: Graph) -> Graph:
        """Replace features by their principal coordinates, if there are more than `feature_channels`.

        They belong to the nodes, whatever the edges. A graph that has them already is left alone.
        """
        if self._width == self.in_channels:
            return graph
        width = None if graph.x is None else graph.x.size(1)
        if graph.x is None or width not in (self.in_channels, self._width):
            came = "no features" if width is None else f"{width} features"
            raise InputError(f"graph must have {self.in_channels} features, got {came}")
        if width == self._width:
            return graph
        return replace(graph, x=principal_features(graph.x, self._width), attributes=graph.given_features)

    def node_features(self, x: Tensor) -> Tensor:
        """Features [N, F] or, where there are more than `feature_channels`, what `prepare` made of them."""
        if self._width == self.in_channels:
            return super().node_features(x)
        if x.ndim != 2 or x.size(1) != self._width:
            what = f"principal coordinates of {self.in_channels} features"
            raise self._unprepared("x", f"have shape [N, {self._width}], {what}", str(list(x.shape)))
        return self._of_weights_dtype(x)

    def embed_pairs(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_label_index: Tensor,
        *,
        target_link: TargetLinkState = "absent",
    ) -> Tensor:
        """Pair embeddings h [L, out_channels], each with the target link in the named state.

        Subgraphs are made and dropped batch by batch, so that memory does not grow with the number of pairs.

        Parameters
        ----------
        x : Tensor [N, F] or [N]
        edge_index : Tensor [2, E], int64
            Whether it holds the pairs themselves makes no difference.
        edge_label_index : Tensor [2, L], int64
        target_link : {"absent", "present"}

        Returns
        -------
        Tensor [L, out_channels]

        Raises
        ------
        InputError
            If a node index is not in [0, N), a pair joins a node to itself, or `target_link` is unknown.
        UnsupportedModelError
            If the model is in half precision, on the CPU.
        """
        check_choice(target_link, "target_link", TARGET_LINK_STATES)
        features = self.node_features(x)
        if features.dtype not in (torch.float32, torch.float64) and features.device.type == "cpu":
            # torch multiplies no sparse matrix in half precision there.
            raise UnsupportedModelError(
                f"SEAL must be in float32 or float64 on the CPU, got {features.dtype} (model.float())"
            )
        # The compiled search trusts its caller: an index out of range would be read from foreign memory.
        pairs = check_no_self_pairs(check_edge_index(edge_label_index, x.size(0), "edge_label_index"))
        subgraphs = self._subgraphs_of(edge_index, x.size(0))
        embedded = [
            self._embed_batch(features, batch.to(features.device))
            for batch in _batches(subgraphs, pairs.cpu().numpy(), target_link == "present")
        ]
        return torch.cat(embedded) if embedded else features.new_zeros(0, self.out_channels)

    def head(self, h: Tensor) -> Tensor:
        """Logits [L] of pair embeddings [L, out_channels]."""
        logit: Tensor = self.lin(functional.dropout(h, self.dropout, self.training)).squeeze(-1)
        return logit

    def _subgraphs_of(self, edge_index: Tensor, num_nodes: int) -> EnclosingSubgraphs:
        """Compressed form of the graph, kept for as long as the same unchanged tensor comes."""
        # A tensor made in inference mode counts no versions, so whether it changed cannot be known.
        version = None if edge_index.is_inference() else edge_index._version
        kept = self._subgraphs
        known = kept is not None and kept[0] is edge_index and kept[1] == version
        if kept is not None and known and kept[2].num_nodes == num_nodes:
            return kept[2]
        made = EnclosingSubgraphs(
            check_edge_index(edge_index, num_nodes),
            num_nodes,
            self.num_hops,
            self.max_neighbors,
            self.sampling_seed,
        )
        self._subgraphs = None if version is None else (edge_index, version, made)
        return made

    def _embed_batch(self, features: Tensor, batch: SubgraphBatch) -> Tensor:
        adjacency = normalised_adjacency(batch, features.dtype)
        inputs = functional.dropout(features[batch.nodes], self.feature_dropout, self.training)
        message = self.label_embedding(batch.label) + self.lin_features(inputs)
        channels: list[Tensor] = []
        for number, bias in enumerate(self.biases):
            if number:
                message = self.lins[number - 1](channels[-1])
            channels.append((propagate(adjacency, message) + bias).tanh())
        pooled = sort_pool(torch.cat(channels, dim=1), batch.start, self.sort_k)
        h = self.pool(self.lin_nodes(pooled).relu().transpose(1, 2))
        h = self.conv_sorted(h).relu().flatten(1)
        embedded: Tensor = self.lin_pooled(h).relu()
        return embedded


def _batches(subgraphs: EnclosingSubgraphs, pairs: IntArray, target_link: bool) -> Iterator[SubgraphBatch]:
    """Subgraphs of consecutive pairs (2, L), with a bounded number of nodes (a single pair may exceed it)."""
    sizes = subgraphs.sizes(pairs)
    total = np.cumsum(sizes[0])
    start = 0
    while start < total.size:
        spent = total[start - 1] if start else 0
        stop = max(int(np.searchsorted(total, spent + _MAX_BATCH_NODES, side="right")), start + 1)
        yield subgraphs.extract(pairs[:, start:stop], sizes[:, start:stop], target_link=target_link)
        start = stop


def _checked_extent(num_hops: int, max_neighbors: int | None, seed: int) -> tuple[int, int | None, int]:
    """The arguments that decide which nodes a subgraph holds."""
    if check_positive_int(num_hops, "num_hops") > 2:
        raise InputError(f"num_hops must be 1 or 2, got {num_hops}")
    if check_positive_int(seed, "sampling_seed", minimum=0) >= _SEEDS:
        raise InputError(f"sampling_seed must be below 2**63, got {seed}")
    return int(num_hops), _whole_or_none(max_neighbors, "max_neighbors"), int(seed)


def _whole_or_none(value: int | None, name: str) -> int | None:
    return None if value is None else check_positive_int(value, name)
