"""Structure columns of pairs named by node ids, some of which the graph may not know."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from linkcal._core.files import one_line
from linkcal._core.validation import to_float64
from linkcal.data import Graph, NamedGraph
from linkcal.exceptions import InputError
from linkcal.features._attributes import attribute_similarity
from linkcal.features._structure import once_per_graph, pair_structure, structure_features


def named_columns(
    named: NamedGraph, source: Any, target: Any
) -> tuple[NDArray[np.float64], NDArray[np.bool_], str | None]:
    """Columns (n, 8), named by ``STRUCTURE_COLUMNS``, of pairs of node ids; which are edges (n,); a warning.

    A node without an edge counts with degree 0, of which the warning is; InputError if nodes have features,
    or no pair is known.
    """
    warning = None
    graph, index = named.graph, named.node_ids.lookup_pairs(source, target)
    unknown = index < 0
    if unknown.any():
        end, row = (int(each[0]) for each in np.nonzero(unknown))
        value = (source, target)[end][row]
        hint = named.node_ids.hint(end, pa.scalar(value))
        what = f"{unknown.any(axis=0).sum():,} of {index.shape[1]:,} pairs with another, such as {value!r}"
        if graph.given_features is not None or unknown.all():
            raise InputError(f"pairs must name nodes of the edges or features, got {one_line(what)}{hint}")
        warning = f"pairs name nodes without an edge, which count with degree 0: {one_line(what)}{hint}"
        index = np.where(unknown, [[graph.num_nodes], [graph.num_nodes + 1]], index)
        graph = _with_strangers(graph)
    pairs = torch.from_numpy(index)
    columns = structure_features(pair_structure(graph, pairs), attribute_similarity(graph, pairs))
    return to_float64(columns), np.asarray(graph.has_pairs(pairs)), warning


@once_per_graph
def _with_strangers(graph: Graph) -> Graph:
    """The graph and two nodes more, of both types, without an edge."""
    types = graph.node_type
    if types is not None:
        types = torch.cat([types, torch.tensor([0, 1])])
    return replace(graph, num_nodes=graph.num_nodes + 2, node_type=types)
