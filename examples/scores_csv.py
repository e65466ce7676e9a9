"""A file of scores from any system: calibrated, with a page that shows how well. No model, no graph."""

import sys
from pathlib import Path

from linkcal import CalibratedScores, calibrate_scores


def main(scores: Path, folder: Path) -> CalibratedScores:
    found = calibrate_scores(scores)  # columns source, target, label, and logit or probability
    print(found.write(folder)["report"])
    print(found.threshold_for(recall=0.9))
    print(found.apply(scores)["probability"][:3])
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
