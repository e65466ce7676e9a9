"""``linkcal top`` on a folder that ``linkcal fit`` made."""

from __future__ import annotations

import csv
import io

import pytest

from linkcal.wrapper import CalibratedLinkPredictor


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_lists_missing_pairs_by_name_and_states_the_ratio(cli, files, fitted):
    answer = cli("top", fitted, "-k", 7)
    assert answer.code == 0
    listed = rows(answer.out)
    assert len(listed) == 7
    names = {tuple(sorted((files.names[u], files.names[v]))) for u, v in files.edges}
    assert not {tuple(sorted((row["source"], row["target"]))) for row in listed} & names
    logits = [float(row["logit"]) for row in listed]
    assert logits == sorted(logits, reverse=True)
    assert "Probabilities hold for 1 non-links per link" in answer.err.replace("\n", " ")
    predictor = CalibratedLinkPredictor.load(fitted / "artifact")
    assert predictor.held_out_.size(1) > 0


def test_chunk_size_and_output_file_change_nothing(cli, fitted, tmp_path):
    expected = cli("top", fitted, "-k", 7).out
    assert cli("top", fitted, "-k", 7, "--chunk-size", 100).out == expected
    assert cli("top", fitted, "-k", 7, "--out", tmp_path / "top.csv").out == ""
    assert (tmp_path / "top.csv").read_text() == expected


@pytest.mark.parametrize("k", [0, -3])
def test_bad_number(cli, fitted, k):
    answer = cli("top", fitted, "-k", k)
    assert answer.code == 1
    assert "k must be a whole number >= 1" in answer.err
