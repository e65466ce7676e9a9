"""Boosted trees on features of pairs: overconfident on pairs that are new to them, until calibrated."""

import torch
from lightgbm import LGBMClassifier

from linkcal import CalibratedScores, calibrate_scores
from linkcal.data import simulate_graph, split_links


def main(num_nodes: int = 600) -> CalibratedScores:
    graph = simulate_graph(num_nodes, num_edges=5 * num_nodes, num_features=32, seed=0)
    split = split_links(graph, val_fraction=0.2, test_fraction=0.2, seed=0)
    words = graph.node_input.numpy()
    (u, v), label = split.train.edge_label_index, split.train.edge_label
    model = LGBMClassifier(verbose=-1, random_state=0).fit(words[u] + words[v], label)
    pairs = torch.cat([split.val.edge_label_index, split.test.edge_label_index], dim=1)
    label = torch.cat([split.val.edge_label, split.test.edge_label])
    logit = model.predict(words[pairs[0]] + words[pairs[1]], raw_score=True)
    found = calibrate_scores({"source": pairs[0], "target": pairs[1], "label": label, "logit": logit})
    print(found, *(f"{name} {row['ece']:.3f}" for name, row in found.metrics["results"].items()))
    return found


if __name__ == "__main__":
    main()
