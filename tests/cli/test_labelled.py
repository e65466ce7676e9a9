"""``linkcal check``, ``threshold`` and ``refresh``."""

import json

import numpy as np
import pytest
import torch

from linkcal.data import LinkPairs
from linkcal.predictor import CalibratedLinkPredictor

pytestmark = pytest.mark.filterwarnings("always::linkcal.exceptions.LinkcalWarning")


@pytest.fixture(scope="module")
def labelled(loaded, tmp_path_factory):
    """Pairs whose labels follow the probabilities, and the same with labels that do not."""
    rng, nodes = np.random.default_rng(0), loaded.graph_.num_nodes
    pairs = np.unique(np.sort(rng.choice(nodes, (900, 2))), axis=0)
    pairs = torch.from_numpy(rng.permutation(pairs[pairs[:, 0] < pairs[:, 1]]).T.copy())
    p = loaded.predict_proba(pairs).double().numpy()
    names = [loaded.node_ids_.decode(end).to_pylist() for end in pairs.numpy()]
    folder, paths = tmp_path_factory.mktemp("labelled"), []
    for name, shown in (("right", p), ("wrong", p**4)):
        rows = zip(*names, (rng.random(len(p)) < shown).astype(int), strict=True)
        paths.append(folder / f"{name}.csv")
        paths[-1].write_text("source,target,label\n" + "".join(f"{u},{v},{y}\n" for u, v, y in rows))
    return *paths, pairs


def test_check_answers_by_text_and_exit_code(cli, fitted, labelled, tmp_path):
    right, wrong, _ = labelled
    assert (answer := cli("check", fitted, right)).code == 0, answer.err
    assert answer.out.startswith("No alarm after ")
    answer = cli("check", fitted, wrong, "--alpha", 0.01)
    assert answer.code == 3
    assert answer.out.startswith("The probabilities do not hold: alarm after ")
    without = tmp_path / "pairs.csv"
    without.write_text("".join(line.rpartition(",")[0] + "\n" for line in right.read_text().splitlines()))
    answer = cli("check", fitted, without)
    assert answer.code == 3  # nearly all are negatives, half of the calibration links are links
    assert "do not look like those of the calibration" in answer.out


def test_threshold_is_that_of_the_labels(cli, fitted, labelled, loaded):
    right, _, pairs = labelled
    labels = torch.tensor([int(line[-1]) for line in right.read_text().splitlines()[1:]], dtype=torch.float32)
    answer = cli("threshold", fitted, right, "--recall", 0.5)
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["logit"] == loaded.threshold_for(LinkPairs(pairs, labels), recall=0.5).logit


def test_refresh_writes_a_folder_with_the_labels_share_of_links(cli, fitted, labelled, tmp_path):
    _, wrong, pairs = labelled
    answer = cli("refresh", fitted, wrong, "--out", tmp_path / "new")
    assert answer.code == 0, answer.err
    share = np.mean([line[-1] == "1" for line in wrong.read_text().splitlines()[1:]])
    moved = CalibratedLinkPredictor.load(tmp_path / "new")
    assert moved.predict_proba(pairs).double().mean().item() == pytest.approx(share, abs=1e-3)
    scored = cli("score", tmp_path / "new", wrong)
    assert np.mean([float(row["probability"]) for row in scored.rows]) == pytest.approx(share, abs=1e-3)
    again = cli("refresh", fitted, wrong, "--out", tmp_path / "new")
    assert (again.code, "out must be a new folder" in again.err) == (1, True)


def test_labels_are_read_strictly(fails, fitted, labelled, tmp_path):
    right = labelled[0]
    path = tmp_path / "new.csv"
    path.write_text(right.read_text().replace(",0\n", ",2\n", 1))
    fails("check", fitted, path, parts=("column 'label'", "1 (link) or 0 (negative)", "2 in"))
    fails("check", fitted, right, "--label", "y", parts=("column 'y'",))
    fails("threshold", fitted, right, "--label", "y", "--recall", 0.5, parts=("column 'y'",))
