"""Nine numbers that say how a link sits in its graph: what its own edge does, and what surrounds it."""

from __future__ import annotations

import torch
from torch import Tensor

from linkcal._columns import ATTRIBUTE_COLUMNS, STRUCTURAL_COLUMNS
from linkcal.toggle import ToggledEmbeddings

__all__ = ["ATTRIBUTE_COLUMNS", "STRUCTURAL_COLUMNS", "structural_features"]

# Keeps logarithms finite where the own edge changes nothing; below float32's resolution of a unit-sized
# embedding.
_EPS = 1e-6


def structural_features(toggled: ToggledEmbeddings, structure: Tensor, attributes: Tensor) -> Tensor:
    """Features of each link from its toggled embeddings and from its place in the graph.

    Parameters
    ----------
    toggled : ToggledEmbeddings
        Of L links.
    structure : Tensor [L, 3], int64
        Degrees d_u, d_v and common neighbours c without the pair's own edge
        (:func:`linkcal.features.pair_structure`).
    attributes : Tensor [L, 2], float32
        Likeness of the endpoints' features (:func:`linkcal.features.attribute_similarity`).

    Returns
    -------
    Tensor [L, 9]
        Named by ``STRUCTURAL_COLUMNS``, in the dtype of the logits; finite where the squares of the
        embeddings' entries are finite in their dtype (float32: entries up to 1e18), whatever the degrees in
        float32 and float64:

        - ``logit_change``: ``s+ - s``, the logit with the pair's own edge less the one without;
        - ``log_distance``: ``log(||h+ - h|| + eps)``;
        - ``log_relative_distance``: ``log(||h+ - h|| / (||h|| + eps) + eps)``;
        - ``cosine``: of h+ and h; 0 where one of them is zero;
        - ``log_degree_sum``: ``log(1 + d_u) + log(1 + d_v)``;
        - ``log_degree_difference``: ``|log(1 + d_u) - log(1 + d_v)|``;
        - ``log_common_neighbours``: ``log(1 + c)``;
        - ``attribute_cosine``, ``neighbourhood_cosine``: `attributes`.

        eps is 1e-6.

    Notes
    -----
    The distance is gamma of arXiv 2403.04605. In an undirected graph all are the same for (u, v) and
    (v, u).
    """
    absent, present = toggled.absent, toggled.present
    size = torch.linalg.vector_norm(absent, dim=1)
    distance = torch.linalg.vector_norm(present - absent, dim=1)
    cosine = (_direction(absent) * _direction(present)).sum(dim=1)
    log_degree = torch.log1p(structure[:, :2].to(absent.dtype))
    columns = [
        toggled.logit_present - toggled.logit_absent,
        torch.log(distance + _EPS),
        torch.log(distance / (size + _EPS) + _EPS),
        cosine,
        log_degree.sum(dim=1),
        (log_degree[:, 0] - log_degree[:, 1]).abs(),
        torch.log1p(structure[:, 2].to(absent.dtype)),
        *attributes.unbind(dim=1),
    ]
    return torch.stack([column.to(toggled.logit_absent.dtype) for column in columns], dim=1)


def _direction(h: Tensor) -> Tensor:
    """Rows of length 1; zero rows stay zero."""
    # By the largest entry first: squares of very large or small entries leave float32.
    peak = h.abs().amax(dim=1, keepdim=True)
    h = h / torch.where(peak > 0, peak, torch.ones_like(peak))
    length = torch.linalg.vector_norm(h, dim=1, keepdim=True)
    return h / torch.where(length > 0, length, torch.ones_like(length))
