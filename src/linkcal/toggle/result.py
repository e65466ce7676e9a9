"""What toggling returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from linkcal._core.shown import Shown

__all__ = ["ToggledEmbeddings"]


@dataclass(frozen=True, eq=False, repr=False)
class ToggledEmbeddings(Shown):
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
    >>> import torch
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

    def _shown(self) -> dict[str, object]:
        sizes = {"pairs": len(self), "width": self.absent.size(1), "in_graph": int(self.in_graph.sum())}
        return {**sizes, "method": self.method}

    def __len__(self) -> int:
        return self.absent.size(0)

    def take(self, index: Tensor) -> ToggledEmbeddings:
        """The pairs at the given positions, [n], int64."""
        return self.map(lambda values: values[index])

    def map(self, function: Callable[[Tensor], Tensor]) -> ToggledEmbeddings:
        """The same function of each of the five tensors."""
        return ToggledEmbeddings(*map(function, self.tensors()), self.method)  # type: ignore[call-arg,arg-type]

    def tensors(self) -> tuple[Tensor, ...]:
        """All five, in the order of the constructor."""
        return self.absent, self.present, self.logit_absent, self.logit_present, self.in_graph
