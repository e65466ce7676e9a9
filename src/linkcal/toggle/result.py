"""What toggling returns, and where blocks of it are put together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from linkcal.exceptions import InputError

__all__ = ["OutputArrays", "ToggledEmbeddings"]


@dataclass(frozen=True, eq=False)
class ToggledEmbeddings:
    """Exact link embeddings of L pairs on the graph without (A-) and with (A+) each pair's target link.

    Parameters
    ----------
    absent, present : Tensor [L, d]
        Link embeddings h and h+. In an undirected graph both directions of the edge are toggled.
    logit_absent, logit_present : Tensor [L]
        The decoder's logits in the two states.
    in_graph : Tensor [L], bool
        Whether the pair is an edge of the graph as given: then `present` is the untouched graph and `absent`
        is recomputed; elsewhere the other way round.
    method : str
        ``"kernel"``, ``"delta"``, ``"khop"``, ``"naive"``, or ``"pairwise"`` for models that embed pairs.

    Examples
    --------
    >>> from linkcal import toggle_edges
    >>> from linkcal.models import GCN
    >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> toggle_edges(GCN(3), torch.eye(3), path, torch.tensor([[0, 0], [1, 2]])).in_graph
    tensor([ True, False])
    """

    absent: Tensor
    present: Tensor
    logit_absent: Tensor
    logit_present: Tensor
    in_graph: Tensor
    method: str

    def __len__(self) -> int:
        return self.absent.size(0)

    def take(self, index: Tensor) -> ToggledEmbeddings:
        """The pairs at the given positions, [n], int64."""
        return ToggledEmbeddings(
            absent=self.absent[index],
            present=self.present[index],
            logit_absent=self.logit_absent[index],
            logit_present=self.logit_present[index],
            in_graph=self.in_graph[index],
            method=self.method,
        )


# New tensors, or arrays and memory maps of the caller.

_NAMES = tuple(field.name for field in fields(ToggledEmbeddings) if field.name != "method")


class OutputArrays:
    """Five arrays of L = `num_pairs` rows, by the names of :class:`ToggledEmbeddings`, to write blocks into.

    InputError if a name is missing or unknown or an array does not have L rows, cannot be written to, or (in
    ``write``) has not the width or dtype of the results.
    """

    def __init__(self, arrays: Mapping[str, Any], num_pairs: int) -> None:
        if set(arrays) != set(_NAMES):
            raise InputError(f"out must have the keys {', '.join(_NAMES)}, got {', '.join(arrays) or 'none'}")
        self.tensors = {name: _writable(arrays[name], f"out[{name!r}]") for name in _NAMES}
        for name, tensor in self.tensors.items():
            if not tensor.ndim or tensor.size(0) != num_pairs:
                raise InputError(f"out[{name!r}] must have {num_pairs} rows, got shape {list(tensor.shape)}")

    @classmethod
    def like(cls, block: ToggledEmbeddings, num_pairs: int) -> Self:
        """New tensors for L pairs, of the device, dtype and width of a block."""
        blocks = {name: getattr(block, name) for name in _NAMES}
        return cls({name: b.new_empty((num_pairs, *b.shape[1:])) for name, b in blocks.items()}, num_pairs)

    def write(self, rows: slice, block: ToggledEmbeddings) -> None:
        """Copy a block to its rows; shape and dtype must be those of the arrays, or nothing is written."""
        for name, tensor in self.tensors.items():
            values: Tensor = getattr(block, name)
            if tensor.shape[1:] != values.shape[1:] or tensor.dtype != values.dtype:
                raise InputError(
                    f"out[{name!r}] must be {values.dtype} of shape {[tensor.size(0), *values.shape[1:]]}, "
                    f"got {tensor.dtype} {list(tensor.shape)}"
                )
        for name, tensor in self.tensors.items():
            tensor[rows] = getattr(block, name)

    def result(self, method: str) -> ToggledEmbeddings:
        """The arrays as a result; nothing is copied."""
        return ToggledEmbeddings(**self.tensors, method=method)


def _writable(array: Any, name: str) -> Tensor:
    if isinstance(array, Tensor):
        if array.requires_grad or array.device.type == "meta" or array.layout != torch.strided:
            kind = "a gradient required" if array.requires_grad else f"{array.layout} on {array.device}"
            raise InputError(f"{name} must be a plain tensor, got {kind}")
        return array
    if not isinstance(array, np.ndarray) or not array.flags.writeable:
        kind = "a read-only array" if isinstance(array, np.ndarray) else type(array).__name__
        raise InputError(f"{name} must be a writable array or tensor, got {kind}")
    try:
        return torch.from_numpy(array)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{name} must be an array that torch can share, in native byte order and with strides >= 0, got "
            f"{array.dtype.str} with strides {array.strides}"
        ) from error
