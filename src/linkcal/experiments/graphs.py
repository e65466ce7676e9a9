"""From a run's settings to the links it works on: the graph or official split, and the run's own split."""

from __future__ import annotations

import os
from dataclasses import replace

from torch import Tensor

from linkcal import data
from linkcal.data import Graph, LinkSplit, split_links
from linkcal.exceptions import InputError
from linkcal.experiments.config import RunConfig

__all__ = ["load_graph", "row_normalised", "split_graph"]


def load_graph(config: RunConfig, *, data_root: str | os.PathLike[str] | None = None) -> Graph | LinkSplit:
    """Load the named data set of a run as its protocol wants it.

    Parameters
    ----------
    config : RunConfig
    data_root : path, optional
        As in :func:`linkcal.data.load_dataset`.

    Returns
    -------
    Graph or LinkSplit
        A split where there is an official one, whatever the protocol.

    Raises
    ------
    InputError
        If the name is unknown, or another ratio of non-links is asked of an official split.
    DataNotFoundError
        If a raw file is missing and cannot be fetched.

    Examples
    --------
    >>> load_graph(RunConfig("simulated", "gcn")).name
    'simulated'
    """
    if config.dataset in data.OFFICIAL_SPLITS:
        _refuse_for_official(config)
        return data.load_official_split(config.dataset, data_root=data_root, seed=config.seed)
    if config.protocol_record().split_of(config.dataset).forward_only:
        return data.load_dataset(config.dataset, data_root=data_root, forward_only=True)
    return data.load_dataset(config.dataset, data_root=data_root)


def _refuse_for_official(config: RunConfig) -> None:
    asked = {
        "--negatives-per-positive": (config.negatives_per_positive, 1.0),
        "--negatives": (config.negatives, "uniform"),
    }
    for option, (value, default) in asked.items():
        if value != default:
            raise InputError(
                f"{option} must be left out for {config.dataset}, whose split is fixed, got {value}"
            )


def split_graph(config: RunConfig, graph: Graph) -> LinkSplit:
    """Split a graph as a run's settings say.

    Parameters
    ----------
    config : RunConfig
    graph : Graph

    Returns
    -------
    LinkSplit

    Raises
    ------
    InputError
        If the protocol keeps only edges stored with row < column and the graph has all of them, or if the
        graph cannot be split as asked.

    Examples
    --------
    >>> from linkcal.data import simulate_graph
    >>> graph = simulate_graph(100, num_edges=200, num_features=5, seed=0)
    >>> split_graph(RunConfig("mine", "gcn"), graph).test.num_positives == graph.num_pairs // 10
    True
    """
    if config.protocol_record().split_of(config.dataset).forward_only and graph.num_backward is None:
        raise InputError(
            f"graph of {config.dataset} must be loaded with forward_only=True for protocol "
            f"{config.protocol!r} (load_graph does so), got all stored edges"
        )
    if config.protocol_record().normalise_features and graph.x is not None:
        graph = replace(graph, x=row_normalised(graph.x))
    return split_links(
        graph,
        val_fraction=config.val_fraction,
        test_fraction=config.test_fraction,
        negatives_per_positive=config.negatives_per_positive,
        negatives=config.negatives,  # type: ignore[arg-type]
        seed=config.seed,
    )


def row_normalised(x: Tensor) -> Tensor:
    """Features [N, F] shifted to a smallest value of 0, then each row divided by its sum.

    Rows that sum to less than 1 are left as they are, as PyG's ``NormalizeFeatures`` does.

    Parameters
    ----------
    x : Tensor [N, F]

    Returns
    -------
    Tensor [N, F]

    Examples
    --------
    >>> import torch
    >>> row_normalised(torch.tensor([[1.0, 3.0], [0.0, 0.0]])).tolist()
    [[0.25, 0.75], [0.0, 0.0]]
    """
    shifted = x - x.min()
    return shifted / shifted.sum(dim=1, keepdim=True).clamp(min=1.0)
