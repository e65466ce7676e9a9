"""Messages stay short whatever they quote."""

import pickle

import networkx as nx
import pytest
from torch_geometric.data import Data, HeteroData

from linkcal import CalibratedLinkPredictor, Platt
from linkcal.all_pairs import most_probable_pairs
from linkcal.data import audit_split, graph_from_hetero, split_links
from linkcal.exceptions import DataNotFoundError, InputError, LinkcalWarning, NotFittedError
from linkcal.features import calibration_links
from linkcal.models import GCN, train_link_predictor
from refusals import refuses

OTHERS = [Data(), HeteroData(), nx.path_graph(9), None, "x"]


@pytest.mark.parametrize("kind", [InputError, NotFittedError, DataNotFoundError, LinkcalWarning])
def test_long_messages_keep_both_ends(kind):
    error = kind("expected a number, got " + "9" * 5_000_000 + " in line 7")
    text = str(error)
    assert len(text) < 500
    assert text.startswith("expected a number, got 999")
    assert text.endswith("999 in line 7")
    assert "(4,999,633 characters left out)" in text
    assert str(pickle.loads(pickle.dumps(error))) == text
    assert str(kind("short")) == "short"


@pytest.mark.parametrize("other", OTHERS, ids=lambda o: type(o).__name__)
def test_objects_of_another_kind_are_refused_by_every_entry(other, small_split, trained_gcn):
    """What PyG, networkx or a typing error hands over in place of a split, a graph, pairs or a predictor."""
    message = rf"split must be a LinkSplit \(see linkcal.data\), got {type(other).__name__}$"
    refuses(message, train_link_predictor, GCN(24), other)
    refuses(message, calibration_links, trained_gcn, other)
    refuses(message, audit_split, other)
    refuses(message, CalibratedLinkPredictor(trained_gcn, Platt()).fit, other)
    refuses("graph must be a linkcal.data.Graph", split_links, other)
    refuses("predictor must be a CalibratedLinkPredictor", most_probable_pairs, other, 3)
    refuses("data must be a HeteroData .*got", graph_from_hetero, other)
    clp = CalibratedLinkPredictor(trained_gcn, Platt()).fit(small_split)
    for ask in (clp.predict_proba, clp.select, clp.predict_interval):
        refuses(r"edge_label_index must (be an integer tensor of|have) shape \[2, L\], got", ask, other)
