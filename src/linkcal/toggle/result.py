"""What toggling returns: link embeddings and logits with the pair's own edge absent and present."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

__all__ = ["ToggledEmbeddings"]


@dataclass(frozen=True, eq=False)
class ToggledEmbeddings:
    """Exact link embeddings of L pairs on the graph without (A-) and with (A+) each pair's own edge.

    Parameters
    ----------
    absent, present : Tensor [L, d]
        Link embeddings h and h+. In an undirected graph both directions of the edge are toggled.
    logit_absent, logit_present : Tensor [L]
        The decoder's logits in the two states.
    in_graph : Tensor [L], bool
        Whether the pair is an edge of the graph as given. Where it is, `present` is the untouched graph and
        `absent` is recomputed; elsewhere the other way round.
    method : str
        What computed them: ``"kernel"``, ``"delta"``, ``"khop"``, ``"naive"``, or ``"pairwise"`` where the
        model embeds pairs itself.

    Examples
    --------
    >>> import torch
    >>> from linkcal import toggle_edges
    >>> from linkcal.models import GCN
    >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> toggled = toggle_edges(GCN(3, out_channels=2), torch.eye(3), path, torch.tensor([[0, 0], [1, 2]]))
    >>> toggled.in_graph, toggled.absent.shape
    (tensor([ True, False]), torch.Size([2, 2]))
    >>> len(toggled.take(torch.tensor([1])))
    1
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
