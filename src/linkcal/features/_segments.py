"""Segments of links by degree, common neighbours and feature similarity, to measure calibration in."""

from collections import Counter
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from linkcal._core.columns import STRUCTURE_COLUMNS
from linkcal._core.maths import FloatArray
from linkcal.features._scores import LinkScores

# Quantile bins of degrees and of similarity; common neighbours are 0, 1, or more.
_DEGREES, _SIMILARITIES = 5, 3
# Smaller products of all three are put together: no deviation of so few links is one.
_FEWEST = 20


def link_segments(scores: LinkScores, like: LinkScores | None = None) -> dict[str, NDArray[np.str_]]:
    """Segments of scored links, for :func:`linkcal.metrics.group_calibration`.

    Parameters
    ----------
    scores : LinkScores
        Of L links, with structure and attributes.
    like : LinkScores, optional
        Links whose quantiles and counts make the segments, by default `scores`. With others the segment of a
        link depends on that link alone.

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
    like = scores if like is None else like
    reference = _quantities(like)
    parts = _parts(_quantities(scores), reference)
    count = Counter(_together(_parts(reference, reference)))
    products = [each if count[each] >= _FEWEST else "few" for each in _together(parts)]
    return parts | {"all three" if len(parts) == 3 else "both": np.array(products, dtype=np.str_)}


def _quantities(scores: LinkScores) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Geometric mean of the degrees, common neighbours and feature similarity of links."""
    column = dict(zip(STRUCTURE_COLUMNS, scores.features("structure").cpu().double().numpy().T, strict=True))
    common = np.rint(np.expm1(column["log_common_neighbours"]))
    return np.exp(column["log_degree_sum"] / 2.0), common, column["attribute_cosine"]


def _parts(
    links: tuple[FloatArray, FloatArray, FloatArray], reference: tuple[FloatArray, FloatArray, FloatArray]
) -> dict[str, NDArray[np.str_]]:
    (degree, common, similarity), (degrees, _, similarities) = links, reference
    parts = {
        "degrees": _binned(degree, degrees, _DEGREES),
        "common": np.select([common == 0, common == 1], ["0", "1"], "2 or more"),
    }
    if np.ptp(similarities) > 0.0:
        parts["similarity"] = _binned(similarity, similarities, _SIMILARITIES)
    return parts


def _together(parts: dict[str, NDArray[np.str_]]) -> list[str]:
    return [", ".join(row) for row in zip(*parts.values(), strict=True)]


def _binned(values: FloatArray, reference: FloatArray, count: int) -> NDArray[np.str_]:
    """Names of quantile bins of `reference`, by their ends."""
    edges = np.unique(np.quantile(reference, np.linspace(0.0, 1.0, count + 1), method="inverted_cdf"))
    names = np.array([f"{low:.3g} to {high:.3g}" for low, high in pairwise(edges)])
    if not len(names):
        return np.full(len(values), f"{edges[0]:.3g}")
    return names[np.searchsorted(edges[1:-1], values)]
