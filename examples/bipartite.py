"""Users and items: negatives, probabilities and rankings are about pairs of a user with an item."""

import torch
from torch_geometric.data import HeteroData

from linkcal import CalibratedLinkPredictor, Platt
from linkcal.all_pairs import most_probable_pairs
from linkcal.data import graph_from_hetero, split_links
from linkcal.metrics import expected_calibration_error
from linkcal.models import TrainingConfig, make_model, train_link_predictor


def ratings(users: int, items: int, count: int) -> HeteroData:
    """Ratings drawn by hidden vectors, of which both types show noisy features of their own."""
    torch.manual_seed(0)
    hidden = {"user": torch.randn(users, 3), "item": torch.randn(items, 3)}
    score = 1.5 * hidden["user"] @ hidden["item"].T
    gumbel = -torch.log(-torch.log(torch.rand_like(score)))
    best = (score + gumbel).flatten().topk(count).indices
    data = HeteroData()
    data["user"].x = hidden["user"] + torch.randn(users, 3)
    data["item"].x = torch.cat([hidden["item"], torch.ones(items, 1)], dim=1)
    data["user", "rates", "item"].edge_index = torch.stack([best // items, best % items])
    return data


def main(users: int = 200, items: int = 100, epochs: int = 60) -> dict[str, float]:
    # One graph with the users 0 .. 199 and the items 200 .. 299; `node_type` tells them apart. For files:
    # linkcal fit ratings.csv --bipartite --features users.csv --target-features items.csv --out runs/ratings
    graph = graph_from_hetero(ratings(users, items, 15 * users))
    split = split_links(graph, val_fraction=0.2, test_fraction=0.2, negatives="degree", seed=0)
    assert graph.x is not None
    model = make_model("gcn", graph.x.size(1), seed=0)
    train_link_predictor(model, split, TrainingConfig(epochs=epochs), seed=0)
    calibrated = CalibratedLinkPredictor(model, Platt()).fit(split)
    pairs, label = split.test.edge_label_index, split.test.edge_label
    scores = calibrated.score(pairs)
    prob = {"uncalibrated": scores.logit.sigmoid(), "calibrated": calibrated.predict_proba(pairs)}
    result = {name: expected_calibration_error(label, p) for name, p in prob.items()}
    best = most_probable_pairs(calibrated, 3, base_rate=0.05)
    for (user, item), p in zip(best.edge_label_index.T.tolist(), best.probability.tolist(), strict=True):
        print(f"user {user}, item {item - users}: {p:.3f}")
    print("ECE", *(f"{name} {value:.3f}" for name, value in result.items()))
    return result


if __name__ == "__main__":
    main()
