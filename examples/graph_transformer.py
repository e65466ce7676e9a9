"""Graph transformers of PyG, calibrated: attention over neighbours, or over all nodes.

Removing a link changes what its surroundings see (TransformerConv: exact and fast), or what every node sees
(GPSConv: one pass over the graph for each pair).
"""

import torch
from torch import Tensor, nn
from torch_geometric.nn import GPSConv, SAGEConv, TransformerConv

from linkcal import CalibratedLinkPredictor, Platt
from linkcal.data import simulate_graph, split_links
from linkcal.metrics import expected_calibration_error
from linkcal.models import TrainingConfig, train_link_predictor


class GraphTransformer(nn.Module):
    """Two layers of attention, inner-product decoder."""

    decode_returns = "logits"

    def __init__(self, in_channels: int, *, all_nodes: bool) -> None:
        super().__init__()
        self.first = nn.Linear(in_channels, 32)
        self.layers = nn.ModuleList(
            GPSConv(32, SAGEConv(32, 32), heads=4) if all_nodes else TransformerConv(32, 8, heads=4)
            for _ in range(2)
        )

    def encode(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Node embeddings."""
        z: Tensor = self.first(x)
        for layer in self.layers:
            z = z + layer(z, edge_index)
        return z

    def decode(self, z: Tensor, edge_label_index: Tensor) -> Tensor:
        """Logits of pairs."""
        return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(dim=-1)


def main(num_nodes: int = 600, epochs: int = 40, *, all_nodes: bool = False) -> dict[str, float]:
    torch.manual_seed(0)
    graph = simulate_graph(num_nodes, num_edges=4 * num_nodes, num_features=64, seed=0)
    split = split_links(graph, val_fraction=0.2, test_fraction=0.2, seed=0)
    model = GraphTransformer(64, all_nodes=all_nodes)
    train_link_predictor(model, split, TrainingConfig(epochs=epochs), seed=0)
    calibrated = CalibratedLinkPredictor(model, Platt()).fit(split)
    scores, label = calibrated.score(split.test.edge_label_index), split.test.edge_label
    prob = {"uncalibrated": scores.logit.sigmoid(), "calibrated": calibrated.probability_of(scores)}
    result = {name: expected_calibration_error(label, p) for name, p in prob.items()}
    print(f"toggled by method {scores.toggled.method!r}; ECE", *(f"{k} {v:.3f}" for k, v in result.items()))
    return result


if __name__ == "__main__":
    main()
