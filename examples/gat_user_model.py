"""A graph attention network in plain PyG, calibrated without changing it."""

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, elu
from torch_geometric.nn import GATConv
from torch_geometric.utils import negative_sampling

from linkcal import CalibratedLinkPredictor, Platt
from linkcal.data import LinkSplit, simulate_graph, split_links
from linkcal.metrics import expected_calibration_error


class GAT(nn.Module):
    """Two attention layers, inner-product decoder that returns logits."""

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.first = GATConv(in_channels, 8, heads=4)
        self.second = GATConv(32, 16, heads=1)

    def encode(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Node embeddings."""
        z: Tensor = self.second(elu(self.first(x, edge_index)), edge_index)
        return z

    def decode(self, z: Tensor, edge_label_index: Tensor) -> Tensor:
        """Logits of pairs."""
        return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(dim=-1)


def train(model: GAT, split: LinkSplit, epochs: int) -> None:
    x, edge_index = split.graph.node_input, split.graph.edge_index
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(epochs):
        optimiser.zero_grad()
        pairs = torch.cat([edge_index, negative_sampling(edge_index)], dim=1)
        logit = model.decode(model.encode(x, edge_index), pairs)
        label = (torch.arange(logit.numel()) < edge_index.size(1)).float()
        binary_cross_entropy_with_logits(logit, label).backward()
        optimiser.step()


def main(num_nodes: int = 600, epochs: int = 40) -> dict[str, float]:
    torch.manual_seed(0)
    split = split_links(simulate_graph(num_nodes, num_edges=4 * num_nodes, num_features=64, seed=0), seed=0)
    model = GAT(in_channels=64)
    train(model, split, epochs)
    # What `decode` returns is declared. Attention layers are toggled on the subgraphs around the pairs.
    calibrated = CalibratedLinkPredictor(model, Platt(), decode_returns="logits").fit(split)
    pairs, label = split.test.edge_label_index, split.test.edge_label
    scores = calibrated.score(pairs)
    prob = {"uncalibrated": scores.logit.sigmoid(), "calibrated": calibrated.predict_proba(pairs)}
    result = {name: expected_calibration_error(label, p) for name, p in prob.items()}
    print(f"toggled by method {scores.toggled.method!r}; ECE", *(f"{k} {v:.3f}" for k, v in result.items()))
    return result


if __name__ == "__main__":
    main()
