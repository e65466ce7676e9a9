"""Links in the order of time: calibrated on the past, refreshed by the present, and a graph that grows."""

import torch

from linkcal import CalibratedLinkPredictor, Platt
from linkcal.data import Graph, LinkPairs, simulate_graph, split_links
from linkcal.metrics import expected_calibration_error
from linkcal.models import TrainingConfig, make_model, train_link_predictor


def main(num_nodes: int = 600, epochs: int = 60) -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)
    whole = simulate_graph(num_nodes, num_edges=6 * num_nodes, num_features=16, seed=0)
    assert whole.x is not None
    # Nodes are born one after the other, and a link comes after both. For files:
    # linkcal fit edges.csv --time COLUMN --features features.csv --out runs/mine
    born = torch.rand(num_nodes, generator=generator)
    time = born[whole.pairs].amax(dim=0) + 0.3 * torch.rand(whole.num_pairs, generator=generator)
    graph = Graph.from_edges(whole.pairs, num_nodes, x=whole.x, edge_time=time)
    split = split_links(graph, time=graph.edge_time, val_fraction=0.15, test_fraction=0.25, seed=0)
    counts = split.counts()
    print(f"{counts['test_unseen_nodes']} nodes of the {counts['test_positives']} test links are new")
    model = make_model("sage", 16, seed=0)
    train_link_predictor(model, split, TrainingConfig(epochs=epochs), seed=0)
    calibrated = CalibratedLinkPredictor(model, Platt()).fit(split)

    # Labels arrive for the first test links and as many negatives; the later ones are the future.
    pairs, label = split.test.edge_label_index, split.test.edge_label
    links, negatives = (torch.nonzero(label == value).flatten() for value in (1, 0))
    present, future = (torch.cat([links[part], negatives[part]]) for part in (slice(100), slice(100, None)))
    result = {}

    def measure(name: str) -> None:
        prob = calibrated.predict_proba(pairs[:, future])
        result[name] = expected_calibration_error(label[future], prob)

    measure("fitted on the past")
    calibrated.refresh(LinkPairs(pairs[:, present], label[present]))
    measure("refreshed with 200 labels")

    # All links so far join the graph; the calibrator is fitted again to its links as they score there.
    edges = torch.cat([calibrated.graph_.pairs, split.held_out_edges()], dim=1)
    calibrated.update_graph(edges, refit=True)
    # A node arrives with features and two links.
    new = torch.tensor([[num_nodes, num_nodes], [0, 1]])
    x = torch.cat([whole.x, whole.x[:2].mean(dim=0, keepdim=True)])
    calibrated.update_graph(torch.cat([edges, new], dim=1), x, refit=True)
    result["new node"] = float(calibrated.predict_proba(torch.tensor([[num_nodes], [2]]))[0])
    print(*(f"{name}: {value:.3f}" for name, value in result.items()), sep="\n")
    return result


if __name__ == "__main__":
    main()
