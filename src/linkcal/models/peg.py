"""PEG: a GCN whose messages are damped by the distance of the nodes' fixed positions."""

from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.nn.inits import reset

from linkcal._core.validation import check_positive_int
from linkcal.data.graph import Graph
from linkcal.data.node_features import laplacian_eigenmaps
from linkcal.exceptions import InputError
from linkcal.models.gnn import LinearDecoder

#: Width of the hidden layer of phi, a function of one number.
_PHI_CHANNELS = 16


class PEGConv(MessagePassing):
    """One layer of PEG, without its activation: ``(A^ * Xi) X W + b``.

    ``A^`` is GCN's normalised adjacency with self-loops, ``Xi_uv = phi(||Z_u - Z_v||)`` with an MLP ``phi``
    that ends in a sigmoid, and ``*`` the elementwise product; a self-loop has distance 0.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(aggr="add")
        self.lin = nn.Linear(in_channels, out_channels, bias=False)
        self.bias = nn.Parameter(torch.empty(out_channels))
        self.phi = nn.Sequential(nn.Linear(1, _PHI_CHANNELS), nn.ReLU(), nn.Linear(_PHI_CHANNELS, 1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew as GCNConv does: Glorot, bias 0."""
        nn.init.xavier_uniform_(self.lin.weight)
        nn.init.zeros_(self.bias)
        reset(self.phi)

    def arc_factor(self, distance: Tensor) -> Tensor:
        """``phi`` of distances [A], in (0, 1)."""
        factor: Tensor = self.phi(distance[:, None])[:, 0].sigmoid()
        return factor

    def forward(self, x: Tensor, edge_index: Tensor, coefficient: Tensor, distance: Tensor) -> Tensor:
        """Output [N, out_channels] from arcs with self-loops, their GCN coefficients and distances."""
        weight = coefficient * self.arc_factor(distance)
        out: Tensor = self.propagate(edge_index, x=self.lin(x), edge_weight=weight)
        return out + self.bias

    def message(self, x_j: Tensor, edge_weight: Tensor) -> Tensor:  # noqa: D102
        return edge_weight[:, None] * x_j


class PEG(LinearDecoder):
    """Position- and permutation-equivariant GNN, linear layer on the product of the endpoints.

    For graphs in which the place of a node says more than its features. The positions Z are Laplacian
    eigenmaps (:func:`linkcal.data.laplacian_eigenmaps`), which :meth:`prepare` computes once, on the training
    edges; toggling a pair's edge does not move them.

    Parameters
    ----------
    in_channels, hidden_channels, out_channels, num_layers, dropout, num_nodes
        As in :class:`~linkcal.models.gnn.GNN`, without the positions. With `num_nodes` the model keeps the
        positions in its buffer `positions` [num_nodes, p].
    position_channels : int
        p, the dimension of the positions.

    Notes
    -----
    ``x' = act((A^ * Xi) X W)`` (:class:`PEGConv`; Wang, Yin, Zhang, Li, ICLR 2022, arXiv 2203.00199, equation
    8). ``encode`` takes x [N, F + p] whose last p columns are Z. Signs and rotations of Z do not matter. The
    decoder is that of arXiv 2403.04605, ``logit_uv = <w, z_u * z_v> + b``; PEG's own paper also gives it the
    distance of the positions.

    Examples
    --------
    >>> model = PEG(in_channels=3, hidden_channels=4, out_channels=2, position_channels=1)
    >>> x = torch.cat([torch.eye(3), torch.tensor([[1.2], [0.0], [-1.2]])], dim=1)
    >>> model(x, torch.tensor([[0, 1], [1, 0]]), torch.tensor([[0, 0], [1, 2]])).shape
    torch.Size([2])
    """

    features_from_edges = True
    positions: Tensor | None

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int = 20,
        out_channels: int = 16,
        num_layers: int = 2,
        *,
        dropout: float = 0.0,
        position_channels: int = 32,
        num_nodes: int | None = None,
    ) -> None:
        super().__init__(in_channels, num_nodes=num_nodes)
        self._set_layers(hidden_channels, out_channels, num_layers, dropout)
        self.position_channels = check_positive_int(position_channels, "position_channels")
        widths = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        self.convs = nn.ModuleList(PEGConv(a, b) for a, b in pairwise(widths))
        self.lin = nn.Linear(out_channels, 1)
        unknown = None if num_nodes is None else torch.full((num_nodes, position_channels), torch.nan)
        self.register_buffer("positions", unknown)

    def prepare(self, graph: Graph) -> Graph:
        """Compute the positions of the message-passing graph, once.

        Returns the graph with Z appended to its features. A graph without features is returned unchanged (the
        model keeps Z), and so is one that has the positions already.
        """
        if graph.x is not None and graph.x.size(1) == self.in_channels + self.position_channels:
            if not graph.features_from_edges:  # just as wide, by chance or by a wrong `in_channels`
                raise InputError(
                    f"graph must have {self.in_channels} features, or these and the positions of prepare, "
                    f"got {graph.x.size(1)} features that do not follow from the edges"
                )
            return graph
        positions = laplacian_eigenmaps(graph.edge_index, graph.num_nodes, self.position_channels)
        if self.positions is not None:
            if self.positions.size(0) != graph.num_nodes:
                raise InputError(f"graph must have {self.positions.size(0)} nodes, got {graph.num_nodes}")
            self.positions = positions.to(self.positions)
            return graph
        if graph.x is None or graph.x.size(1) != self.in_channels:
            came = "no features" if graph.x is None else f"{graph.x.size(1)} features"
            raise InputError(f"graph must have {self.in_channels} features, got {came}")
        x = torch.cat([graph.x, positions.to(graph.x)], dim=1)
        return replace(graph, x=x, attributes=graph.given_features, features_from_edges=True)

    def features_and_positions(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features [N, F] and positions Z [N, p] of what ``encode`` takes."""
        if self.positions is not None:
            features = self.node_features(x)
            positions = self.positions[x]
            if bool(torch.isnan(positions).any()):
                raise self._unprepared("model", "hold the nodes' positions", "none")
            return features, positions
        width = self.in_channels + self.position_channels
        if x.ndim != 2 or x.size(1) != width:
            parts = f"{self.in_channels} features and {self.position_channels} positions"
            raise self._unprepared("x", f"have shape [N, {width}], {parts}", str(list(x.shape)))
        x = self._of_weights_dtype(x)
        return x[:, : self.in_channels], x[:, self.in_channels :]

    def encode(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Node embeddings z [N, out_channels]."""
        hidden, positions = self.features_and_positions(x)
        edge_index, coefficient = gcn_norm(edge_index, None, x.size(0), dtype=hidden.dtype)
        distance = arc_distance(positions, edge_index)
        for number, conv in enumerate(self.convs, start=1):
            hidden = conv(hidden, edge_index, coefficient, distance)
            if number < self.num_layers:
                hidden = functional.dropout(hidden.relu(), self.dropout, self.training)
        return hidden


def arc_distance(positions: Tensor, edge_index: Tensor) -> Tensor:
    """``||Z_u - Z_v||`` of each arc, [A]; columns one by one, so that no array [A, p] is made."""
    source, target = edge_index
    squared = torch.zeros(source.numel(), dtype=positions.dtype, device=positions.device)
    for column in positions.T:
        squared += (column[source] - column[target]).square()
    return squared.sqrt()
