"""What the wrapper's decisions refuse: used-up labels, labels that are none, impossible base rates."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from linkcal import CalibratedLinkPredictor, Platt
from linkcal.data import LinkPairs, split_links
from linkcal.exceptions import InputError, NotFittedError


@pytest.fixture(scope="module")
def fitted(trained_gcn, small_split):
    return CalibratedLinkPredictor(trained_gcn, Platt()).fit(small_split)


def test_used_up_labels_are_refused(fitted, small_split):
    val = small_split.val
    with pytest.raises(InputError, match=r"links must be new to the calibrator, got (\d+) of \1 that it was"):
        fitted.threshold_for(val, precision=0.55)
    # Either orientation of a pair is the same link.
    turned = LinkPairs(val.edge_label_index.flip(0), val.edge_label)
    with pytest.raises(InputError, match="links must be new to the calibrator"):
        fitted.threshold_for(turned, precision=0.55)
    # A few that were drawn again by chance are no mistake.
    some = torch.cat([val.edge_label_index[:, :20], small_split.test.edge_label_index], dim=1)
    label = torch.cat([val.edge_label[:20], small_split.test.edge_label])
    assert fitted.threshold_for(LinkPairs(some, label), recall=0.5).confidence == pytest.approx(0.95)
    with pytest.raises(InputError, match="y must hold both classes, got 0 links and 0 negatives"):
        fitted.threshold_for(LinkPairs(some[:, :0], label[:0]), precision=0.5)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a", "b"], "labels must be numeric, got list"),
        ([np.nan, 1.0], "labels must be finite, got 1 NaN or infinite value"),
        ([-1, 1], r"labels must hold only 0 and 1, got -1\.0"),
        ([0, 1, 1], "labels must have one label per link, 2, got 3"),
    ],
)
def test_labels_of_a_refresh_are_checked(fitted, small_split, labels, message):
    with pytest.raises(InputError, match=message):
        fitted.refresh(small_split.test.edge_label_index[:, :2], labels)


@pytest.mark.parametrize("base_rate", [1.2, float("nan"), "dense"])
def test_a_bad_base_rate_leaves_the_predictor_as_it_was(trained_gcn, small_split, base_rate):
    clp = CalibratedLinkPredictor(trained_gcn, Platt())
    with pytest.raises(InputError, match="base_rate must be"):
        clp.fit(small_split, base_rate=base_rate)
    with pytest.raises(NotFittedError):
        clp.predict_proba(small_split.test.edge_label_index)
    clp.fit(small_split, base_rate=0.1)
    with pytest.raises(InputError, match="base_rate must be"):
        clp.fit(small_split, base_rate=base_rate)
    assert clp.base_rate == 0.1


@pytest.mark.parametrize("bad", [{"num_null": -1}, {"fit_on": "test"}])
def test_a_refused_fit_changes_nothing(trained_gcn, small_split, bad):
    clp = CalibratedLinkPredictor(trained_gcn, Platt())
    with pytest.raises(InputError):
        clp.fit(small_split, **bad)
    with pytest.raises(NotFittedError, match="must be fitted first"):
        clp.select(small_split.test.edge_label_index)
    clp.fit(small_split)
    before = dict(vars(clp))
    with pytest.raises(InputError):
        clp.fit(split_links(small_split.graph, seed=3), **bad)
    assert all(vars(clp)[name] is value for name, value in before.items())


@pytest.mark.parametrize("name", ["base_rate", "calibration_rate"])
def test_rates_before_fit(trained_gcn, name):
    clp = CalibratedLinkPredictor(trained_gcn, Platt())
    with pytest.raises(NotFittedError, match="CalibratedLinkPredictor must be fitted first, call fit"):
        getattr(clp, name)
    with pytest.raises(AttributeError, match="no attribute 'base'"):
        _ = clp.base
