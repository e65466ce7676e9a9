"""PyG's LightGCN on viewers and films, MovieLens-100k as the PyPI package recbole ships it."""

import sys
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.nn import LightGCN

from linkcal import CalibratedLinkPredictor, StructuralCalibrator
from linkcal.data import read_edges, split_links
from linkcal.models import TrainingConfig, train_link_predictor
from linkcal.report import Evaluation


class Ranker(LightGCN):  # type: ignore[misc]  # PyG gives it no types
    """LightGCN as linkcal calls models."""

    decode_returns = "logits"

    def encode(self, _x: Tensor, edge_index: Tensor) -> Tensor:
        """Embeddings [N, d]."""
        z: Tensor = self.get_embedding(edge_index)
        return z

    def decode(self, z: Tensor, edge_label_index: Tensor) -> Tensor:
        """Logits [L]."""
        return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(dim=-1)


def main(path: Path, epochs: int = 300) -> Evaluation:
    graph = read_edges(path, source="user_id:token", target="item_id:token", bipartite=True).graph
    split = split_links(graph, val_fraction=0.05, test_fraction=0.1, negatives="degree", seed=0)
    torch.manual_seed(0)
    model = Ranker(graph.num_nodes, embedding_dim=32, num_layers=2)
    train_link_predictor(model, split, TrainingConfig(epochs=epochs), seed=0)
    found = CalibratedLinkPredictor(model, StructuralCalibrator()).fit(split).evaluate(split.test)
    print(found)
    return found


if __name__ == "__main__":
    spec = find_spec("recbole")
    if spec is None or spec.origin is None:
        sys.exit("pip install --no-deps recbole, which ships the ratings")
    main(Path(spec.origin).parent / "dataset_example" / "ml-100k" / "ml-100k.inter")
