"""Users, items and tags: links of one relation are calibrated, messages pass over all."""

from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import HeteroConv, SAGEConv

from linkcal import CalibratedLinkPredictor, StructuralCalibrator
from linkcal.data import graph_from_hetero, split_links
from linkcal.models import TrainingConfig, train_link_predictor

RATES, RATED = ("user", "rates", "item"), ("item", "rated_by", "user")
KINDS = (RATES, RATED, MARKS := ("tag", "marks", "item"), MARKED := ("item", "marked_by", "tag"))


class Typed(nn.Module):
    """Two hetero convolutions. linkcal numbers users first, then items; their columns stand in this order."""

    decode_returns = "logits"

    def __init__(self, data: HeteroData) -> None:
        super().__init__()
        self.first, self.second = (HeteroConv({k: SAGEConv(n, 16) for k in KINDS}) for n in (3, 16))
        self.users, self.tags, marks = data["user"].num_nodes, data["tag"].x, data[MARKS].edge_index
        self.fixed = {MARKS: marks, MARKED: marks.flip(0)}

    def encode(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Embeddings [N, 16] of users and items."""
        h = {"user": x[: self.users, :3], "item": x[self.users :, 3:6], "tag": self.tags}
        rated = edge_index[:, edge_index[0] < self.users] - torch.tensor([[0], [self.users]])  # and reverses
        arcs = {RATES: rated, RATED: rated.flip(0), **self.fixed}
        h = self.second({kind: part.relu() for kind, part in self.first(h, arcs).items()}, arcs)
        return torch.cat([h["user"], h["item"]])

    def decode(self, z: Tensor, edge_label_index: Tensor) -> Tensor:
        """Logits [L]."""
        return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(dim=-1)


def main(users: int = 150, items: int = 80, epochs: int = 60) -> Any:
    torch.manual_seed(0)  # hidden tastes, which features show a little of
    taste = {kind: torch.randn(n, 3) for kind, n in (("user", users), ("item", items), ("tag", 8))}
    data = HeteroData({kind: {"x": t + torch.randn_like(t)} for kind, t in taste.items()})
    for kind, least in ((RATES, 3.0), (MARKS, 2.0)):
        score = taste[kind[0]] @ taste[kind[2]].T
        data[kind].edge_index = (score + torch.randn_like(score)).gt(least).nonzero().T
    graph, model = graph_from_hetero(data.edge_type_subgraph([RATES])), Typed(data)
    split = split_links(graph, val_fraction=0.2, test_fraction=0.2)
    train_link_predictor(model, split, TrainingConfig(epochs=epochs), seed=0)
    calibrated = CalibratedLinkPredictor(model, StructuralCalibrator()).fit(split)
    found = calibrated.evaluate(split.test).metrics
    print("toggled by", found["toggle_method"])
    return model, data, {name: row["ece"] for name, row in found["results"].items()}


if __name__ == "__main__":
    print(main()[2])
