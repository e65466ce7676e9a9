from dataclasses import replace

import pytest
import torch

from linkcal.data import Graph, LinkPairs, split_links
from linkcal.exceptions import InputError


def _pairs(**rates):
    return LinkPairs(torch.tensor([[0, 1, 2], [1, 2, 3]]), torch.tensor([1.0, 0.0, 0.0]), **rates)


def test_counts_of_links():
    pairs = _pairs()
    assert (len(pairs), pairs.num_positives, pairs.num_negatives) == (3, 1, 2)


def test_label_probability_follows_bayes():
    # 1 in 10 edges and 1 in 100 non-edges drawn: odds 0.2 / 0.8 times 10 = 2.5, so 2.5 / 3.5.
    p = _pairs(positive_rate=0.1, negative_rate=0.01).label_probability(torch.tensor([0.2, 0.0, 1.0]))
    assert p.tolist() == pytest.approx([2.5 / 3.5, 0.0, 1.0], abs=1e-7)


def test_label_probability_without_rates():
    with pytest.raises(InputError, match="negative_rate must be known for label_probability, got None"):
        _pairs().label_probability(torch.tensor([0.2]))


def test_one_label_per_pair():
    with pytest.raises(InputError, match=r"edge_label must have shape \[3\], got \[2\]"):
        replace(_pairs(), edge_label=torch.zeros(2))


def test_split_counts_and_parts():
    ring = torch.stack([torch.arange(20), (torch.arange(20) + 1) % 20])
    split = split_links(Graph.from_edges(ring, 20), seed=3)
    counts = split.counts()
    assert counts["edges"] == 20
    assert counts["message_edges"] == counts["train_positives"] == 16
    assert counts["val_negatives"] == counts["test_positives"] == 2
    assert split.part("val") is split.val
    with pytest.raises(
        InputError, match=r"part must be one of train, val, test; got 'tets' .did you mean 'test'"
    ):
        split.part("tets")
    assert split.to("cpu").counts() == counts


@pytest.mark.parametrize("wrong", [2.0, -1.0, float("nan")])
def test_labels_are_0_or_1(wrong):
    with pytest.raises(InputError, match=f"edge_label must hold only 0 and 1, got {wrong}"):
        LinkPairs(torch.tensor([[0, 1], [1, 2]]), torch.tensor([1.0, wrong]))
    with pytest.raises(InputError, match=r"edge_label must be a tensor \[L\], got list"):
        LinkPairs(torch.tensor([[0], [1]]), [1.0])


def test_int32_pairs_are_converted():
    index = torch.tensor([[0], [1]])
    assert LinkPairs(index.int(), torch.ones(1)).edge_label_index.dtype == torch.int64
    assert LinkPairs(index, torch.ones(1)).edge_label_index is index
