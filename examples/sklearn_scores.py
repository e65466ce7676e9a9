"""A random forest on features of pairs, whose probabilities are too moderate, made honest."""

import numpy as np
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier

from linkcal import CalibratedScores, calibrate_scores


def main(num_pairs: int = 3000) -> CalibratedScores:
    X, y = make_classification(num_pairs, n_features=10, random_state=0)
    model = RandomForestClassifier(50, max_depth=3, random_state=0).fit(X[::3], y[::3])
    rest = np.arange(num_pairs) % 3 > 0  # pairs that the forest has not seen
    node, p = np.flatnonzero(rest), model.predict_proba(X[rest])[:, 1]
    found = calibrate_scores({"source": node, "target": node + num_pairs, "label": y[rest], "probability": p})
    print(found, *(f"{name} {row['ece']:.3f}" for name, row in found.metrics["results"].items()))
    return found


if __name__ == "__main__":
    main()
