"""From a model, a graph and pairs to scored links."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from linkcal._validation import check_choice, check_edge_index, check_no_self_pairs
from linkcal.data import Graph, LinkPairs
from linkcal.features.attributes import AttributeSimilarity
from linkcal.features.scores import FEATURE_KINDS, LinkScores, OwnEdge
from linkcal.features.structure import PairStructure
from linkcal.toggle.api import BLOCK_SIZE, toggle_engine, toggle_in_blocks
from linkcal.toggle.engine import ToggleEngine
from linkcal.toggle.pairwise import PairwiseToggle

__all__ = ["LinkScorer", "score_links"]


def score_links(
    model: nn.Module,
    graph: Graph,
    pairs: LinkPairs | Tensor,
    *,
    own_edge: OwnEdge = "absent",
    features: str = "structural",
    **toggle_options: Any,
) -> LinkScores:
    """Score links on `graph` and record their toggled embeddings and their place in the graph.

    Runs in evaluation mode without gradients and restores the model's mode.

    Parameters
    ----------
    model : nn.Module
        Anything with ``encode(x, edge_index)`` and ``decode(z, edge_label_index)``.
    graph : Graph
        The message graph.
    pairs : LinkPairs or Tensor [2, L]
    own_edge : {"absent", "as-given"}
    features : {"structural", "none", "embedding", "difference"}, default="structural"
        What will be asked of the scores: for another kind than the default, `structure` and `attributes` are
        left None, which saves the search for directions of a large feature matrix.
    **toggle_options
        Passed to :func:`linkcal.toggle_edges` (`method`, `decode_returns`, ...).

    Returns
    -------
    LinkScores

    Raises
    ------
    InputError
        If an option is unknown, an index is out of range, or a pair joins a node to itself.

    Examples
    --------
    >>> from linkcal.data import simulate_graph, split_links
    >>> from linkcal.models import make_model
    >>> split = split_links(simulate_graph(100, num_edges=300, num_features=5, seed=0), seed=0)
    >>> scores = score_links(make_model("gcn", 5), split.graph, split.val)
    >>> X, y = scores.to_arrays()
    >>> X.shape == (len(split.val), 1), y.tolist() == split.val.edge_label.tolist()
    (True, True)
    """
    return LinkScorer(model, graph, features=features, **toggle_options).score(pairs, own_edge=own_edge)


class LinkScorer:
    """Scores links of one model on one graph, call after call; the graph is encoded once.

    For pairs that come in chunks. Neither the model nor the graph may change between the calls.

    Parameters
    ----------
    model : nn.Module
        Anything with ``encode(x, edge_index)`` and ``decode(z, edge_label_index)``.
    graph : Graph
        The message graph.
    features, **toggle_options
        As in :func:`score_links`.

    Examples
    --------
    >>> from linkcal.data import simulate_graph
    >>> from linkcal.models import make_model
    >>> graph = simulate_graph(50, num_edges=100, num_features=5, seed=0)
    >>> scorer = LinkScorer(make_model("gcn", 5), graph)
    >>> [len(scorer.score(graph.pairs[:, rows])) for rows in (slice(0, 10), slice(10, 13))]
    [10, 3]
    """

    def __init__(
        self, model: nn.Module, graph: Graph, *, features: str = "structural", **toggle_options: Any
    ) -> None:
        self._model, self._graph = model, graph
        self._looks_around = check_choice(features, "features", FEATURE_KINDS) == "structural"
        self._in_blocks = {
            "block_size": toggle_options.pop("block_size", BLOCK_SIZE),
            "out": toggle_options.pop("out", None),
        }
        self._options = toggle_options
        self._engine: ToggleEngine | PairwiseToggle | None = None
        self._around: tuple[PairStructure, AttributeSimilarity] | None = None

    def score(self, pairs: LinkPairs | Tensor, *, own_edge: OwnEdge = "absent") -> LinkScores:
        """Score links; see :func:`score_links`."""
        check_choice(own_edge, "own_edge", ("absent", "as-given"))
        asked, label = pairs, None
        if isinstance(pairs, LinkPairs):
            asked, label = pairs.edge_label_index, pairs.edge_label
        index = check_edge_index(asked, self._graph.num_nodes, "edge_label_index")
        check_no_self_pairs(index)
        near: tuple[Tensor, ...] = ()
        if self._looks_around:
            if self._around is None:
                self._around = PairStructure(self._graph), AttributeSimilarity(self._graph)
            near = tuple(part(index) for part in self._around)
        engine = self._engine
        if engine is None:
            engine = toggle_engine(
                self._model,
                self._graph.node_input,
                self._graph.edge_index,
                sample=index,
                undirected=not self._graph.directed,
                **self._options,
            )
        if index.size(1):  # without pairs nothing was verified
            self._engine = engine
        toggled = toggle_in_blocks(engine, index, **self._in_blocks)
        return LinkScores(toggled, own_edge, label, *near)
