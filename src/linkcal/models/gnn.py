"""Message-passing link predictors: GCN, GraphSAGE, GIN and VGAE."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import models
from torch_geometric.nn.conv import GCNConv

from linkcal.models.base import LinkPredictor

__all__ = ["GCN", "GIN", "SAGE", "VGAE"]


# Graph convolutional network with an inner-product decoder.


class GCN(LinkPredictor):
    """GCN encoder, inner-product decoder: ``logit_uv = <z_u, z_v>``.

    The usual first choice on graphs where neighbours are alike.

    Parameters
    ----------
    in_channels : int
        F, the number of node features; with `num_nodes`, the width of the learned node embedding.
    hidden_channels, out_channels : int
        Widths of the hidden layers and of z.
    num_layers : int
        ``GCNConv`` layers; ReLU between them, nothing after the last.
    dropout : float in [0, 1)
        Dropout after each hidden layer, in training mode.
    num_nodes : int, optional
        For a graph without features: ``encode`` then takes node ids [N].

    Raises
    ------
    InputError
        If a width or `num_layers` is no positive whole number, or `dropout` is outside [0, 1).

    Notes
    -----
    One layer: ``z_u = sum over w in N(u) and u itself of W x_w / sqrt(d_u d_w) + b``, degrees counted with
    the self-loop. The encoder is PyG's ``torch_geometric.nn.models.GCN`` (attribute `gnn`).

    References
    ----------
    Kipf and Welling, arXiv 1609.02907.

    Examples
    --------
    >>> import torch
    >>> model = GCN(in_channels=3, hidden_channels=4, out_channels=2)
    >>> edge_index = torch.tensor([[0, 1], [1, 0]])
    >>> model(torch.eye(3), edge_index, torch.tensor([[0, 0], [1, 2]])).shape
    torch.Size([2])
    """

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
        self.gnn = models.GCN(in_channels, hidden_channels, num_layers, out_channels, dropout, act="relu")

    def encode(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Node embeddings z [N, out_channels] from features [N, F] or node ids [N]."""
        z: Tensor = self.gnn(self.node_features(x), edge_index)
        return z


# GraphSAGE with a linear layer on the product of the endpoints.


class SAGE(LinkPredictor):
    """GraphSAGE encoder with mean aggregation, linear decoder: ``logit_uv = <w, z_u * z_v> + b``.

    Keeps a node's own features apart from its neighbours', so it also suits graphs whose neighbours differ;
    the decoder's bias can move all scores, which an inner product cannot.

    Parameters
    ----------
    in_channels : int
        F, the number of node features; with `num_nodes`, the width of the learned node embedding.
    hidden_channels, out_channels : int
        Widths of the hidden layers and of z.
    num_layers : int
        ``SAGEConv`` layers; ReLU between them, nothing after the last.
    dropout : float in [0, 1)
        Dropout after each hidden layer, in training mode.
    num_nodes : int, optional
        For a graph without features: ``encode`` then takes node ids [N].

    Raises
    ------
    InputError
        If a width or `num_layers` is no positive whole number, or `dropout` is outside [0, 1).

    Notes
    -----
    One layer: ``z_u = W1 mean over w in N(u) of x_w + b + W2 x_u``. The encoder is PyG's
    ``torch_geometric.nn.models.GraphSAGE`` (attribute `gnn`). Decoder: the paper's appendix.

    References
    ----------
    Hamilton, Ying and Leskovec, arXiv 1706.02216; the paper, arXiv 2403.04605.

    Examples
    --------
    >>> import torch
    >>> model = SAGE(in_channels=3, hidden_channels=4, out_channels=2)
    >>> edge_index = torch.tensor([[0, 1], [1, 0]])
    >>> model(torch.eye(3), edge_index, torch.tensor([[0, 0], [1, 2]])).shape
    torch.Size([2])
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int = 64,
        out_channels: int = 16,
        num_layers: int = 2,
        *,
        dropout: float = 0.0,
        num_nodes: int | None = None,
    ) -> None:
        super().__init__(in_channels, num_nodes=num_nodes)
        self._set_layers(hidden_channels, out_channels, num_layers, dropout)
        self.gnn = models.GraphSAGE(
            in_channels, hidden_channels, num_layers, out_channels, dropout, act="relu", aggr="mean"
        )
        self.lin = nn.Linear(out_channels, 1)

    def encode(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Node embeddings z [N, out_channels] from features [N, F] or node ids [N]."""
        z: Tensor = self.gnn(self.node_features(x), edge_index)
        return z

    def head(self, h: Tensor) -> Tensor:
        """Logits [L] of link embeddings [L, out_channels]."""
        logit: Tensor = self.lin(h).squeeze(-1)
        return logit

    def product_form(self) -> tuple[Tensor, Tensor]:
        """Weights and bias of the linear layer on the endpoints' product."""
        return self.lin.weight[0], self.lin.bias[0]


# Graph isomorphism network with an inner-product decoder.


class GIN(LinkPredictor):
    """GIN encoder with batch normalisation, inner-product decoder: ``logit_uv = <z_u, z_v>``.

    Sums over neighbours, so it sees degrees; its logits are large where degrees are.

    Parameters
    ----------
    in_channels : int
        F, the number of node features; with `num_nodes`, the width of the learned node embedding.
    hidden_channels, out_channels : int
        Widths of the hidden layers and of z.
    num_layers : int
        ``GINConv`` layers; batch normalisation and ReLU between them, nothing after the last.
    dropout : float in [0, 1)
        Dropout after each hidden layer, in training mode.
    num_nodes : int, optional
        For a graph without features: ``encode`` then takes node ids [N].

    Raises
    ------
    InputError
        If a width or `num_layers` is no positive whole number, or `dropout` is outside [0, 1).

    Notes
    -----
    One layer: ``z_u = MLP(x_u + sum over w in N(u) of x_w)``, an MLP with one hidden layer. The encoder is
    PyG's ``torch_geometric.nn.models.GIN`` (attribute `gnn`). Without batch normalisation it collapses to
    AUC 0.5 on graphs with skewed degrees (Bitcoin Alpha, Twitch PT, Chameleon). In evaluation mode the
    normalisation uses running statistics, so each node is treated alone.

    References
    ----------
    Xu, Hu, Leskovec and Jegelka, arXiv 1810.00826.

    Examples
    --------
    >>> import torch
    >>> model = GIN(in_channels=3, hidden_channels=4, out_channels=2)
    >>> edge_index = torch.tensor([[0, 1], [1, 0]])
    >>> model(torch.eye(3), edge_index, torch.tensor([[0, 0], [1, 2]])).shape
    torch.Size([2])
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int = 64,
        out_channels: int = 16,
        num_layers: int = 2,
        *,
        dropout: float = 0.0,
        num_nodes: int | None = None,
    ) -> None:
        super().__init__(in_channels, num_nodes=num_nodes)
        self._set_layers(hidden_channels, out_channels, num_layers, dropout)
        self.gnn = models.GIN(
            in_channels, hidden_channels, num_layers, out_channels, dropout, act="relu", norm="batch_norm"
        )

    def encode(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Node embeddings z [N, out_channels] from features [N, F] or node ids [N]."""
        z: Tensor = self.gnn(self.node_features(x), edge_index)
        return z


# Variational graph auto-encoder: GCN mean and spread of each node, inner-product decoder.

# As in PyG's VGAE: keeps exp(2 log sigma) finite in float32.
_MAX_LOGSTD = 10.0


class VGAE(LinkPredictor):
    """Variational graph auto-encoder, inner-product decoder: ``logit_uv = <z_u, z_v>``.

    ``z = mu`` in evaluation mode, so scores are repeatable; ``z = mu + sigma * noise`` in training mode.

    Parameters
    ----------
    in_channels : int
        F, the number of node features; with `num_nodes`, the width of the learned node embedding.
    hidden_channels, out_channels : int
        Widths of the hidden layers and of z.
    num_layers : int
        ``GCNConv`` layers, the last one being the two heads `conv_mu` and `conv_logstd`; ReLU between layers,
        nothing after the last.
    dropout : float in [0, 1)
        Dropout after each hidden layer, in training mode.
    num_nodes : int, optional
        For a graph without features: ``encode`` then takes node ids [N].

    Raises
    ------
    InputError
        If a width or `num_layers` is no positive whole number, or `dropout` is outside [0, 1).

    Notes
    -----
    Training adds ``KL(q(z) || N(0, I)) / N``, the mean over nodes of
    ``-1/2 sum_k (1 + 2 log sigma_k - mu_k^2 - sigma_k^2)`` divided by N once more, as the original does
    (:meth:`auxiliary_loss`). log sigma is capped at 10.

    References
    ----------
    Kipf and Welling, arXiv 1611.07308.

    Examples
    --------
    >>> import torch
    >>> model = VGAE(in_channels=3, hidden_channels=4, out_channels=2)
    >>> edge_index = torch.tensor([[0, 1], [1, 0]])
    >>> model(torch.eye(3), edge_index, torch.tensor([[0, 0], [1, 2]])).shape
    torch.Size([2])
    """

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
        widths = [in_channels] + [hidden_channels] * (num_layers - 1)
        self.convs = nn.ModuleList(GCNConv(a, b) for a, b in pairwise(widths))
        self.conv_mu = GCNConv(widths[-1], out_channels)
        self.conv_logstd = GCNConv(widths[-1], out_channels)
        self._kl: Tensor | None = None

    def encode(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Node embeddings z [N, out_channels]: the mean, or a sample in training mode."""
        hidden = self.node_features(x)
        for conv in self.convs:
            hidden = functional.dropout(conv(hidden, edge_index).relu(), self.dropout, self.training)
        mu: Tensor = self.conv_mu(hidden, edge_index)
        if not self.training:
            self._kl = None
            return mu
        logstd: Tensor = self.conv_logstd(hidden, edge_index).clamp(max=_MAX_LOGSTD)
        per_node = -0.5 * (1 + 2 * logstd - mu**2 - (2 * logstd).exp()).sum(dim=1)
        self._kl = per_node.mean() / mu.size(0)
        return mu + torch.randn_like(mu) * logstd.exp()

    def auxiliary_loss(self) -> Tensor | None:
        """Return ``KL / N`` of the last ``encode`` in training mode, once; None otherwise."""
        # Handed out once: a kept tensor would keep its graph alive and forbid deep copies of the model.
        kl, self._kl = self._kl, None
        return kl
