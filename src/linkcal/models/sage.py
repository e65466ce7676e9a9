"""GraphSAGE with a linear layer on the product of the endpoints."""

from __future__ import annotations

from torch import Tensor, nn
from torch_geometric.nn import models

from linkcal.models.base import LinkPredictor

__all__ = ["SAGE"]


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
