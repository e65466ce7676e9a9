"""A directed graph, and a decoder that tells u -> v from v -> u."""

import torch
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv

from linkcal import CalibratedLinkPredictor, Platt
from linkcal.data import Graph, split_links
from linkcal.metrics import expected_calibration_error
from linkcal.models import TrainingConfig, train_link_predictor


class SourceTarget(nn.Module):
    """Each node has an embedding as a source and one as a target of edges."""

    decode_returns = "logits"

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.first, self.second = SAGEConv(in_channels, 32), SAGEConv(32, 32)

    def encode(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Node embeddings."""
        z: Tensor = self.second(self.first(x, edge_index).relu(), edge_index)
        return z

    def decode(self, z: Tensor, edge_label_index: Tensor) -> Tensor:
        """Logits of ordered pairs: the source half of u with the target half of v."""
        source, target = z.chunk(2, dim=1)
        return (source[edge_label_index[0]] * target[edge_label_index[1]]).sum(dim=1)

    def link_embedding(self, z: Tensor, edge_label_index: Tensor) -> Tensor:
        """What calibrators may read of a pair."""
        source, target = z.chunk(2, dim=1)
        return source[edge_label_index[0]] * target[edge_label_index[1]]


def main(num_nodes: int = 400, epochs: int = 60) -> dict[str, float]:
    torch.manual_seed(0)
    x = torch.randn(num_nodes, 4)
    score = 2.0 * (x[:, :2] @ x[:, 2:].T)  # who follows whom is not who is followed by whom
    chosen = (score + torch.randn_like(score)).flatten().topk(8 * num_nodes).indices
    edges = torch.stack([chosen // num_nodes, chosen % num_nodes])
    split = split_links(Graph.from_edges(edges, num_nodes, x=x, directed=True), seed=0)
    model = SourceTarget(in_channels=4)
    train_link_predictor(model, split, TrainingConfig(epochs=epochs), seed=0)
    calibrated = CalibratedLinkPredictor(model, Platt()).fit(split)
    pairs, label = split.test.edge_label_index, split.test.edge_label
    forward, backward = calibrated.predict_proba(pairs), calibrated.predict_proba(pairs.flip(0))
    is_link = label == 1
    print(f"links: p(u -> v) {forward[is_link].mean():.3f}, p(v -> u) {backward[is_link].mean():.3f}")
    print(f"ECE {expected_calibration_error(label, forward):.3f}")
    return {"forward": float(forward[is_link].mean()), "backward": float(backward[is_link].mean())}


if __name__ == "__main__":
    main()
