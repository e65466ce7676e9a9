"""Segments of links: their bins, where no features vary, and calibration measured in them."""

import numpy as np
import pytest
import torch

from linkcal.exceptions import InputError
from linkcal.features import LinkScores, link_segments
from linkcal.metrics import group_calibration
from linkcal.toggle import ToggledEmbeddings


def scored(structure, attributes) -> LinkScores:
    count = len(structure)
    flat, state = torch.zeros(count), torch.zeros((count, 1))
    toggled = ToggledEmbeddings(state, state, flat, flat, torch.zeros(count, dtype=torch.bool), "by hand")
    return LinkScores(toggled, structure=structure, attributes=attributes)


def links(n=400, seed=0, similar=True):
    rng = np.random.default_rng(seed)
    degrees, common = rng.integers(0, 30, (n, 2)), rng.integers(0, 4, n)
    structure = torch.from_numpy(np.column_stack((degrees, common, np.zeros((n, 3))))).double()
    cosine = torch.from_numpy(rng.uniform(-1, 1, (n, 2))).float()
    return structure, cosine if similar else torch.zeros((n, 2))


def test_bins_have_equal_shares_and_ordered_names():
    structure, attributes = links()
    segments = link_segments(scored(structure, attributes))
    assert list(segments) == ["degrees", "common", "similarity", "all three"]
    shares = np.unique(segments["degrees"], return_counts=True)[1]
    assert len(shares) == 5
    assert shares.min() > 50
    assert set(segments["common"]) == {"0", "1", "2 or more"}
    assert (segments["common"] == "2 or more").sum() == int((structure[:, 2] > 1).sum())
    lowest = segments["similarity"] == segments["similarity"][int(attributes[:, 0].argmin())]
    assert attributes[lowest, 0].max() < attributes[~lowest, 0].min()


def test_small_products_are_put_together():
    segments = link_segments(scored(*links()))
    names, counts = np.unique(segments["all three"], return_counts=True)
    assert (counts[names != "few"] >= 20).all()
    assert "few" in names


def test_without_features_two_groupings_and_their_product():
    assert list(link_segments(scored(*links(similar=False)))) == ["degrees", "common", "both"]


def test_equal_degrees_are_one_segment():
    structure = torch.tensor([[2.0, 2.0, 0.0, 0.0, 0.0, 0.0]] * 3)
    assert set(link_segments(scored(structure, torch.zeros((3, 2))))["degrees"]) == {"3"}


def test_a_map_that_ignores_hubs_is_found():
    structure, attributes = links(4000)
    hub = (structure[:, :2].log1p().sum(dim=1) > 5.5).numpy()
    y = np.random.default_rng(1).random(4000) < np.where(hub, 0.8, 0.3)
    found = group_calibration(y, np.full(4000, y.mean()), link_segments(scored(structure, attributes)))
    assert not found.is_consistent
    assert "degrees" in found.segment[found.worst]


def test_links_without_structure_have_no_segments():
    with pytest.raises(InputError, match="structure must be given"):
        link_segments(LinkScores(scored(*links(3)).toggled))
