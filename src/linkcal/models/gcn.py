"""Graph convolutional network with an inner-product decoder."""

from __future__ import annotations

from torch import Tensor
from torch_geometric.nn import models

from linkcal.models.base import LinkPredictor

__all__ = ["GCN"]


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
