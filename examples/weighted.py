"""Edge weights: handed to `encode` by name, kept when a target link is removed, saved with the predictor."""

import torch
from torch import Tensor, nn
from torch_geometric.nn import GraphConv

from linkcal import CalibratedLinkPredictor, Platt
from linkcal.data import Graph, simulate_graph, split_links
from linkcal.metrics import expected_calibration_error
from linkcal.models import TrainingConfig, train_link_predictor


class Weighted(nn.Module):
    """Two graph convolutions whose messages are multiplied by the weight of their edge."""

    decode_returns = "logits"

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.first = GraphConv(in_channels, 32, aggr="mean")
        self.second = GraphConv(32, 16, aggr="mean")

    def encode(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Node embeddings."""
        hidden = self.first(x, edge_index, edge_weight).relu()
        z: Tensor = self.second(hidden, edge_index, edge_weight)
        return z

    def decode(self, z: Tensor, edge_label_index: Tensor) -> Tensor:
        """Logits of pairs."""
        return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(dim=-1)


def main(num_nodes: int = 600, epochs: int = 60) -> dict[str, float]:
    torch.manual_seed(0)
    plain = simulate_graph(num_nodes, num_edges=4 * num_nodes, num_features=16, seed=0)
    assert plain.x is not None
    # Edges between alike nodes weigh more. For files: linkcal fit edges.csv --weight COLUMN --model gcn
    alike = torch.cosine_similarity(plain.x[plain.pairs[0]], plain.x[plain.pairs[1]])
    graph = Graph.from_edges(plain.pairs, num_nodes, x=plain.x, edge_weight=alike.exp())
    split = split_links(graph, val_fraction=0.2, test_fraction=0.2, seed=0)
    model = Weighted(in_channels=16)
    train_link_predictor(model, split, TrainingConfig(epochs=epochs), seed=0)
    calibrated = CalibratedLinkPredictor(model, Platt()).fit(split)
    pairs, label = split.test.edge_label_index, split.test.edge_label
    scores = calibrated.score(pairs)
    prob = {"uncalibrated": scores.logit.sigmoid(), "calibrated": calibrated.predict_proba(pairs)}
    result = {name: expected_calibration_error(label, p) for name, p in prob.items()}
    print(f"toggled by method {scores.toggled.method!r}; ECE", *(f"{k} {v:.3f}" for k, v in result.items()))
    return result


if __name__ == "__main__":
    main()
