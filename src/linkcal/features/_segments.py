"""Segments of links by degree, common neighbours and feature similarity, to measure calibration in."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from linkcal._core.columns import STRUCTURE_COLUMNS
from linkcal.features._scores import LinkScores

# Quantile bins of degrees and of similarity; common neighbours are 0, 1, or more.
_DEGREES, _SIMILARITIES = 5, 3
# Smaller products of all three are put together: no deviation of so few links is one.
_FEWEST = 20


def link_segments(scores: LinkScores) -> dict[str, NDArray[np.str_]]:
    """Segments of scored links, for :func:`linkcal.metrics.group_calibration`.

    Parameters
    ----------
    scores : LinkScores
        Of L links, with structure and attributes.

    Returns
    -------
    dict of str to ndarray (L,) of str
        ``degrees``: quintiles of the geometric mean of the degrees (each plus 1); ``common``: no, one or more
        common neighbours; ``similarity``: terciles of the feature similarity, if it varies; and their
        products, those of under 20 links as ``"few"``. Without target links.

    Examples
    --------
    >>> from linkcal.data import simulate_graph
    >>> from linkcal.features import score_links
    >>> from linkcal.models import make_model
    >>> graph = simulate_graph(200, num_edges=600, num_features=5, seed=0)
    >>> segments = link_segments(score_links(make_model("gcn", 5), graph, graph.pairs[:, :300]))
    >>> sorted(segments)
    ['all three', 'common', 'degrees', 'similarity']
    """
    column = dict(zip(STRUCTURE_COLUMNS, scores.features("structure").cpu().double().numpy().T, strict=True))
    common = np.rint(np.expm1(column["log_common_neighbours"]))
    parts = {
        "degrees": _binned(np.exp(column["log_degree_sum"] / 2.0), _DEGREES),
        "common": np.select([common == 0, common == 1], ["0", "1"], "2 or more"),
    }
    if np.ptp(column["attribute_cosine"]) > 0.0:
        parts["similarity"] = _binned(column["attribute_cosine"], _SIMILARITIES)
    together = np.array([", ".join(row) for row in zip(*parts.values(), strict=True)])
    _, which, count = np.unique(together, return_inverse=True, return_counts=True)
    together = np.where(count[which] < _FEWEST, "few", together)
    return parts | {"all three" if len(parts) == 3 else "both": together}


def _binned(values: NDArray[np.float64], count: int) -> NDArray[np.str_]:
    """Names of quantile bins, by their ends."""
    edges = np.unique(np.quantile(values, np.linspace(0.0, 1.0, count + 1), method="inverted_cdf"))
    names = np.array([f"{low:.3g} to {high:.3g}" for low, high in pairwise(edges)])
    if not len(names):
        return np.full(len(values), f"{edges[0]:.3g}")
    return names[np.searchsorted(edges[1:-1], values)]
