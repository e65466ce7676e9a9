"""Message-passing link predictors: GCN, GraphSAGE, GIN and VGAE."""

from abc import abstractmethod
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import models
from torch_geometric.nn.conv import GCNConv

from linkcal.models.base import LinkPredictor

#: As in PyG's VGAE: keeps exp(2 log sigma) finite in float32.
_MAX_LOGSTD = 10.0


class GNN(LinkPredictor):
    """Node embeddings of stacked convolutions, by default with an inner-product decoder.

    Parameters
    ----------
    in_channels, num_nodes
        As in :class:`~linkcal.models.base.GraphModel`.
    hidden_channels, out_channels, num_layers : int, at least 1
        Widths of the hidden layers and of z; convolutions, with ReLU between them and nothing after the last.
    dropout : float in [0, 1)
        Dropout after each hidden layer, in training mode.
    """

    gnn: nn.Module

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int = 32,
        out_channels: int = 16,
        num_layers: int = 2,
        *,
        dropout: float = 0.0,
        num_nodes: int | None = None,
    ) -> None:
        super().__init__(in_channels, num_nodes=num_nodes)
        self._set_layers(hidden_channels, out_channels, num_layers, dropout)
        self._build()

    @abstractmethod
    def _build(self) -> None:
        """Make the layers, for most classes PyG's stack of convolutions as attribute `gnn`."""

    def _stack(self, cls: Any, **options: Any) -> nn.Module:
        sizes = (self.in_channels, self.hidden_channels, self.num_layers, self.out_channels)
        stack: nn.Module = cls(*sizes, self.dropout, act="relu", **options)
        return stack

    def encode(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Node embeddings z [N, out_channels] from features [N, F] or node ids [N]."""
        z: Tensor = self.gnn(self.node_features(x), edge_index)
        return z


class GCN(GNN):
    """GCN encoder, inner-product decoder: ``logit_uv = <z_u, z_v>``; for graphs where neighbours are alike.

    One layer (PyG's ``GCN``; Kipf and Welling, arXiv 1609.02907): ``z_u = sum over w in N(u) and u itself of
    W x_w / sqrt(d_u d_w) + b``, degrees counted with the self-loop.

    Examples
    --------
    >>> edge_index = torch.tensor([[0, 1], [1, 0]])
    >>> GCN(in_channels=3)(torch.eye(3), edge_index, torch.tensor([[0, 0], [1, 2]])).shape
    torch.Size([2])
    """

    def _build(self) -> None:
        self.gnn = self._stack(models.GCN)

    def encode(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Node embeddings z [N, out_channels]; with weights [E] messages and degrees count by them."""
        z: Tensor = self.gnn(self.node_features(x), edge_index, edge_weight=edge_weight)
        return z


class LinearDecoder(LinkPredictor):
    """A linear layer on the endpoints' product: ``logit_uv = <w, z_u * z_v> + b``; a subclass makes `lin`."""

    decode_returns = "logits"  # beside its own head
    lin: nn.Linear

    def head(self, h: Tensor) -> Tensor:
        """Logits [L] of link embeddings [L, d]."""
        logit: Tensor = self.lin(h).squeeze(-1)
        return logit

    def product_form(self) -> tuple[Tensor, Tensor]:
        """Weights and bias of the layer."""
        return self.lin.weight[0], self.lin.bias[0]


class SAGE(LinearDecoder, GNN):
    """GraphSAGE encoder with mean aggregation, linear decoder: ``logit_uv = <w, z_u * z_v> + b``.

    Separates a node's features from its neighbours', so it suits graphs whose neighbours differ; the bias can
    shift all scores, unlike an inner product. One layer (PyG's ``GraphSAGE``; Hamilton, Ying and Leskovec,
    arXiv 1706.02216): ``z_u = W1 mean over w in N(u) of x_w + b + W2 x_u``. Decoder: appendix of arXiv
    2403.04605.

    Examples
    --------
    >>> SAGE(in_channels=3, out_channels=2).product_form()[0].shape
    torch.Size([2])
    """

    def _build(self) -> None:
        self.gnn = self._stack(models.GraphSAGE, aggr="mean")
        self.lin = nn.Linear(self.out_channels, 1)


class GIN(GNN):
    """GIN encoder with batch normalisation, inner-product decoder: ``logit_uv = <z_u, z_v>``.

    Sums over neighbours, so it sees degrees; its logits are large where degrees are. One layer (PyG's
    ``GIN``; Xu et al., arXiv 1810.00826): ``z_u = MLP(x_u + sum over w in N(u) of x_w)``, one hidden layer.
    Without batch normalisation it collapses to AUC 0.5 on graphs with skewed degrees.

    Examples
    --------
    >>> GIN(in_channels=3, num_layers=3).gnn.num_layers
    3
    """

    def _build(self) -> None:
        self.gnn = self._stack(models.GIN, norm="batch_norm")


class VGAE(GNN):
    """Variational graph auto-encoder, inner-product decoder: ``logit_uv = <z_u, z_v>``.

    ``z = mu`` in evaluation mode, so scores are repeatable; ``z = mu + sigma * noise`` in training mode,
    which adds ``KL(q(z) || N(0, I)) / N``, the mean over nodes of ``-1/2 sum_k (1 + 2 log sigma_k - mu_k^2 -
    sigma_k^2)`` again over N, to the loss (Kipf and Welling, arXiv 1611.07308). log sigma is at most 10.
    The last layer has two heads, `conv_mu` and `conv_logstd`.

    Examples
    --------
    >>> model = VGAE(in_channels=3)
    >>> _ = model.encode(torch.eye(3), torch.tensor([[0, 1], [1, 0]]))
    >>> bool(model.auxiliary_loss() > 0), model.eval().auxiliary_loss()
    (True, None)
    """

    def _build(self) -> None:
        widths = [self.in_channels] + [self.hidden_channels] * (self.num_layers - 1)
        self.convs = nn.ModuleList(GCNConv(a, b) for a, b in pairwise(widths))
        self.conv_mu = GCNConv(widths[-1], self.out_channels)
        self.conv_logstd = GCNConv(widths[-1], self.out_channels)
        self._kl: Tensor | None = None

    def encode(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Node embeddings z [N, out_channels]: the mean, or a sample in training mode."""
        hidden, edges = self.node_features(x), (edge_index, edge_weight)
        for conv in self.convs:
            hidden = functional.dropout(conv(hidden, *edges).relu(), self.dropout, self.training)
        mu: Tensor = self.conv_mu(hidden, *edges)
        if not self.training:
            self._kl = None
            return mu
        logstd: Tensor = self.conv_logstd(hidden, *edges).clamp(max=_MAX_LOGSTD)
        per_node = -0.5 * (1 + 2 * logstd - mu**2 - (2 * logstd).exp()).sum(dim=1)
        self._kl = per_node.mean() / mu.size(0)
        return mu + torch.randn_like(mu) * logstd.exp()

    def auxiliary_loss(self) -> Tensor | None:
        """Return ``KL / N`` of the last ``encode`` in training mode, once; None otherwise."""
        # Returned once: a kept tensor would keep its graph alive and forbid deep copies of the model.
        kl, self._kl = self._kl, None
        return kl
