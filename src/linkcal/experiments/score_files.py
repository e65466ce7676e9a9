"""Link scores as npz files, float32 and without pickle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from linkcal.experiments.npz import read_arrays
from linkcal.features import LinkScores, OwnEdge
from linkcal.toggle import ToggledEmbeddings

__all__ = ["join_scores", "load_scores", "save_scores", "with_own_edge"]

_TENSORS = ("absent", "present", "logit_absent", "logit_present", "in_graph")
_REST = ("label", "structure", "attributes")


def save_scores(scores: LinkScores, edge_label_index: Tensor, path: Path) -> None:
    """Write labelled scores of L links to `path`.

    Both states of the own edge are in the file, so that links of the message graph can be read leave-one-out
    and as given.

    Parameters
    ----------
    scores : LinkScores
        With labels, structure and attributes.
    edge_label_index : Tensor [2, L]
    path : Path
        Ends in ``.npz``.
    """
    arrays = {name: getattr(scores.toggled, name) for name in _TENSORS}
    arrays |= {name: _given(getattr(scores, name)) for name in _REST} | {"edge_label_index": edge_label_index}
    plain = {name: tensor.detach().cpu().numpy() for name, tensor in arrays.items()}
    np.savez(path, **plain, method=np.array(scores.toggled.method))


def load_scores(path: Path, own_edge: OwnEdge = "absent") -> tuple[LinkScores, Tensor]:
    """Read what :func:`save_scores` wrote: bit-equal scores, and the pairs [2, L].

    Raises
    ------
    InputError
        If the file is not there, is damaged or lacks an array.
    """
    arrays = read_arrays(path, (*_TENSORS, *_REST, "edge_label_index", "method"))
    method = str(arrays.pop("method"))
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    toggled = ToggledEmbeddings(**{name: tensors[name] for name in _TENSORS}, method=method)
    scores = LinkScores(toggled, own_edge, *(tensors[name] for name in _REST))
    return scores, tensors["edge_label_index"]


def with_own_edge(scores: LinkScores, own_edge: OwnEdge) -> LinkScores:
    """The same links read with their own edge absent, or as given."""
    return replace(scores, own_edge=own_edge)


def join_scores(first: LinkScores, second: LinkScores) -> LinkScores:
    """Links of `first`, then those of `second`, read with the own edge as in `first`; both have labels."""
    a, b = first.toggled, second.toggled
    joined = {name: torch.cat([getattr(a, name), getattr(b, name)]) for name in _TENSORS}
    return LinkScores(
        ToggledEmbeddings(**joined, method=a.method),
        first.own_edge,
        *(torch.cat([_given(getattr(part, name)) for part in (first, second)]) for name in _REST),
    )


def _given(tensor: Tensor | None) -> Tensor:
    if tensor is None:
        raise TypeError("scores must have labels, structure and attributes, got None")
    return tensor
