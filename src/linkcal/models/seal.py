"""SEAL: links from the labelled subgraphs around them (DRNL labels, DGCNN)."""

import math
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any, get_args

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
from linkcal.data.graph import Graph
from linkcal.data.split import LinkSplit
from linkcal.exceptions import InputError, UnsupportedModelError
from linkcal.models._enclosing import MAX_LABEL, EnclosingSubgraphs, SubgraphBatch
from linkcal.models.base import PairPredictor, TargetLinkState

IntArray = NDArray[np.int64]

#: The convolutions over the sorted nodes need ten of them (Zhang and Chen's code has the same floor).
_MIN_SORT_K = 10
#: Training pairs whose subgraph sizes decide `sort_k`.
_NUM_MEASURED = 10_000
#: Subgraph nodes in one forward pass: about 100 MB of node features at F = 1,433.
_MAX_BATCH_NODES = 1 << 14


class SEAL(PairPredictor):
    """Learn from Subgraphs, Embeddings and Attributes for Link prediction, with DGCNN.

    A pair's score depends on its enclosing subgraph alone, without the target link, for links and negatives
    alike: uncalibrated scores are closer to probabilities than those of node embeddings. Slower by orders of
    magnitude. Zhang and Chen, NeurIPS 2018, arXiv 1802.09691; DGCNN: Zhang et al., AAAI 2018.

    Parameters
    ----------
    in_channels, num_nodes
        As in :class:`~linkcal.models.gnn.GNN`.
    hidden_channels, num_layers : int
        Width (also of the label embedding) and number of graph layers; one more of width 1 gives the sort
        key.
    out_channels : int
        d, the width of the pair embedding: the pooled representation before the last linear layer.
    dropout, feature_dropout : float in [0, 1)
        Before the last linear layer, and of the nodes' features, in training mode.
    feature_channels : int, optional
        k: :meth:`prepare` replaces more than k features by their k principal coordinates, since weights for
        many features memorise the training pairs. None keeps the features.
    num_hops : {1, 2}
        Radius of the subgraphs.
    max_neighbors : int, optional
        Bound on the new nodes per hop, drawn by a hash of node and pair; None: no bound.
    sort_k : int, at least 10
        Nodes kept by SortPool: the 60th percentile of the training subgraphs' sizes (:meth:`options_for`).

    Notes
    -----
    A node at distances a, b from the two ends, each inside the subgraph and without the other end, has the
    label ``1 + min(a, b) + (s // 2) (s // 2 + s % 2 - 1)``, s = a + b (DRNL); both ends have 1, nodes that
    reach only one of them 0. With ``target_link="present"`` the same subgraph, with the same labels, also
    passes messages over the pair's edge. Edges count without direction.

    Examples
    --------
    >>> model = SEAL(in_channels=4).eval()
    >>> edge_index = torch.tensor([[0, 1, 1, 2, 2, 0, 2, 3], [1, 0, 2, 1, 0, 2, 3, 2]])
    >>> model(torch.eye(4), edge_index, torch.tensor([[0, 0, 1], [1, 3, 3]])).shape
    torch.Size([3])
    """

    decode_returns = "logits"  # beside its own head

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
        num_nodes: int | None = None,
    ) -> None:
        super().__init__(in_channels, num_nodes=num_nodes)
        self._set_layers(hidden_channels, out_channels, num_layers, dropout)
        self.feature_channels = _whole_or_none(feature_channels, "feature_channels")
        self.feature_dropout = check_fraction(feature_dropout, "feature_dropout", zero=True)
        self.num_hops, self.max_neighbors = _checked_extent(num_hops, max_neighbors)
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
        self._kept: tuple[Tensor, int, EnclosingSubgraphs] | None = None

    def reset_parameters(self) -> None:
        """Draw all weights anew from torch's global generator; the graph layers' biases start at 0."""
        super().reset_parameters()
        for bias in self.biases:
            nn.init.zeros_(bias)

    @classmethod
    def options_for(cls, split: LinkSplit, **options: Any) -> dict[str, Any]:
        """``sort_k`` at the 60th percentile of the training pairs' subgraph sizes, and at least 10."""
        # Before the compiled search, which trusts its caller.
        extent = _checked_extent(options.get("num_hops", 1), options.get("max_neighbors"))
        pairs = split.train.edge_label_index.cpu().numpy()
        if not pairs.shape[1]:
            return {"sort_k": _MIN_SORT_K}
        subgraphs = EnclosingSubgraphs(split.graph.edge_index, split.graph.num_nodes, *extent)
        sizes = subgraphs.sizes(pairs[:, :: math.ceil(pairs.shape[1] / _NUM_MEASURED)])[0]
        return {"sort_k": max(_MIN_SORT_K, math.ceil(np.percentile(sizes, 60)))}

    @property
    def _width(self) -> int:
        """Features of a node that the first layer reads."""
        if self.feature_channels is None or self.num_nodes is not None:
            return self.in_channels
        return min(self.feature_channels, self.in_channels)

    def prepare(self, graph: Graph) -> Graph:
        """Replace more than `feature_channels` features by their principal coordinates, once."""
        if self._width == self.in_channels:
            return graph
        width = None if graph.x is None else graph.x.size(1)
        if graph.x is None or width not in (self.in_channels, self._width):
            came = "no features" if width is None else f"{width} features"
            raise InputError(f"graph must have {self.in_channels} features, got {came}")
        if width == self._width:
            return graph
        return replace(graph, x=_principal_features(graph.x, self._width), attributes=graph.given_features)

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
        """Pair embeddings h [L, out_channels] in the named state, in memory that does not grow with L."""
        check_choice(target_link, "target_link", get_args(TargetLinkState))
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
        """Compressed form of the graph, kept until another or a changed tensor comes."""
        # A tensor made in inference mode counts no versions, so whether it changed cannot be known.
        version = None if edge_index.is_inference() else edge_index._version
        if self._kept is not None:
            kept_edges, kept_version, subgraphs = self._kept
            if kept_edges is edge_index and kept_version == version and subgraphs.num_nodes == num_nodes:
                return subgraphs
        edges = check_edge_index(edge_index, num_nodes)
        subgraphs = EnclosingSubgraphs(edges, num_nodes, self.num_hops, self.max_neighbors)
        if version is not None:
            self._kept = (edge_index, version, subgraphs)
        return subgraphs

    def _embed_batch(self, features: Tensor, batch: SubgraphBatch) -> Tensor:
        adjacency = _normalised_adjacency(batch, features.dtype)
        inputs = functional.dropout(features[batch.nodes], self.feature_dropout, self.training)
        message = self.label_embedding(batch.label) + self.lin_features(inputs)
        channels: list[Tensor] = []
        for number, bias in enumerate(self.biases):
            if number:
                message = self.lins[number - 1](channels[-1])
            propagated: Tensor = _Propagate.apply(adjacency, message)  # type: ignore[no-untyped-call]
            channels.append((propagated + bias).tanh())
        pooled = _sort_pool(torch.cat(channels, dim=1), batch.start, self.sort_k)
        h = self.pool(self.lin_nodes(pooled).relu().transpose(1, 2))
        h = self.conv_sorted(h).relu().flatten(1)
        embedded: Tensor = self.lin_pooled(h).relu()
        return embedded


def _sort_pool(x: Tensor, start: Tensor, k: int) -> Tensor:
    """Rows of the k nodes of each subgraph with the largest last channel, in falling order, [P, k, C].

    Rows of x [M, C] begin at `start` [P + 1]; zeros fill smaller subgraphs, equal keys keep their order.
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


class _Propagate(torch.autograd.Function):
    """``A x`` for a symmetric sparse A that needs no gradient; the gradient of x is then ``A grad``."""

    @staticmethod
    def forward(ctx: Any, adjacency: Tensor, x: Tensor) -> Tensor:
        ctx.adjacency = adjacency
        return adjacency @ x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, ctx.adjacency @ grad


def _normalised_adjacency(batch: SubgraphBatch, dtype: torch.dtype) -> Tensor:
    """``D^-1/2 (A + I) D^-1/2`` of the batch, sparse [M, M] (Kipf and Welling, arXiv 1609.02907)."""
    degree = batch.indptr.diff()
    root = degree.to(dtype).rsqrt()
    values = torch.repeat_interleave(root, degree) * root[batch.neighbors]
    size = (degree.numel(), degree.numel())
    _silence_first_use()
    return torch.sparse_csr_tensor(batch.indptr, batch.neighbors, values, size=size, check_invariants=False)


@cache
def _silence_first_use() -> None:
    """Make one compressed tensor: torch warns once per process that they are in beta."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support", category=UserWarning)
        torch.sparse_csr_tensor([0, 0], [], [], size=(1, 1), check_invariants=False)


def _principal_features(x: Tensor, num_directions: int) -> Tensor:
    """Coordinates [N, k] of feature rows [N, F] along their k strongest directions; columns beyond N are 0.

    ``X V_k / std(X V_k)`` with the truncated SVD ``X = U S V^T``, not centred: absent words stay 0.
    """
    rows = to_float64(x)
    rank = min(num_directions, *rows.shape)
    out = np.zeros((rows.shape[0], num_directions))
    left, strength, _ = randomized_svd(rows, rank, random_state=0)
    out[:, :rank] = left * strength
    deviation = out[:, :rank].std()
    if deviation > 0.0:  # else all features are 0
        out /= deviation
    return torch.from_numpy(out).to(x)


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


def _checked_extent(num_hops: int, max_neighbors: int | None) -> tuple[int, int | None]:
    """The arguments that decide which nodes a subgraph holds."""
    if check_positive_int(num_hops, "num_hops") > 2:
        raise InputError(f"num_hops must be 1 or 2, got {num_hops}")
    return int(num_hops), _whole_or_none(max_neighbors, "max_neighbors")


def _whole_or_none(value: int | None, name: str) -> int | None:
    return None if value is None else check_positive_int(value, name)
