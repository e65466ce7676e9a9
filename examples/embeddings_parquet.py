"""Node embeddings in GraphStorm's layout, a folder of Parquet files (nid, emb), made into probabilities."""

import sys
from pathlib import Path

from linkcal import CalibratedScores, calibrate_scores, decode_embeddings


def main(labelled: Path, embeddings: Path, folder: Path) -> CalibratedScores:
    scored = decode_embeddings(labelled, embeddings, decoder="dot")  # source, target, label; adds logit
    found = calibrate_scores(scored)
    print(found.write(folder)["report"])
    print(found, *(f"{name} {row['ece']:.3f}" for name, row in found.metrics["results"].items()))
    return found


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
