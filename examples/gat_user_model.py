"""A graph attention network written in plain PyG, calibrated without changing a line of it.

Run it with ``python examples/gat_user_model.py``. The graph is simulated, so its true link probabilities are
known. The model knows nothing of linkcal: it has ``encode`` and ``decode`` as PyG's own autoencoders do.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import GATConv
from torch_geometric.utils import negative_sampling

from linkcal import CalibratedLinkPredictor, Platt
from linkcal.data import LinkSplit, simulate_graph, split_links
from linkcal.metrics import expected_calibration_error


class GAT(nn.Module):
    """Two attention layers, inner-product decoder that returns logits."""

    def __init__(
        self, in_channels: int, hidden_channels: int = 8, out_channels: int = 16, heads: int = 4
    ) -> None:
        super().__init__()
        self.first = GATConv(in_channels, hidden_channels, heads=heads)
        self.second = GATConv(hidden_channels * heads, out_channels, heads=1)

    def encode(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Node embeddings."""
        z: Tensor = self.second(functional.elu(self.first(x, edge_index)), edge_index)
        return z

    def decode(self, z: Tensor, edge_label_index: Tensor) -> Tensor:
        """Logits of pairs."""
        return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(dim=-1)


def train(model: GAT, split: LinkSplit, epochs: int) -> None:
    """The loop that such a model usually comes with."""
    x, edge_index = split.graph.node_input, split.graph.edge_index
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(epochs):
        optimiser.zero_grad()
        z = model.encode(x, edge_index)
        negatives = negative_sampling(edge_index, num_neg_samples=edge_index.size(1))
        logit = torch.cat([model.decode(z, edge_index), model.decode(z, negatives)])
        label = torch.cat([torch.ones(edge_index.size(1)), torch.zeros(negatives.size(1))])
        functional.binary_cross_entropy_with_logits(logit, label).backward()
        optimiser.step()


def main(num_nodes: int = 600, epochs: int = 40) -> dict[str, float]:
    """Train, calibrate, and compare calibration errors on held-out links."""
    torch.manual_seed(0)
    graph = simulate_graph(num_nodes, num_edges=4 * num_nodes, num_features=64, seed=0)
    split = split_links(graph, seed=0)
    model = GAT(split.graph.node_input.size(1))
    train(model, split, epochs)

    # The one line: what decode returns is said; the attention layers are toggled on subgraphs around pairs.
    calibrated = CalibratedLinkPredictor(model, Platt(), decode_returns="logits").fit(split)

    scores = calibrated.score(split.test.edge_label_index)
    probability = calibrated.predict_proba(split.test.edge_label_index)
    label = split.test.edge_label
    result = {
        "uncalibrated": expected_calibration_error(label, scores.logit.sigmoid()),
        "calibrated": expected_calibration_error(label, probability),
    }
    print(f"toggled by method {scores.toggled.method!r}")
    for name, error in result.items():
        print(f"ECE {name}: {error:.3f}")
    return result


if __name__ == "__main__":
    main()
