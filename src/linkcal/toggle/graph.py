"""The message graph in the form that toggling reads: sorted compressed rows, multiplicities, self-loops."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from linkcal.exceptions import InputError

__all__ = ["ToggleGraph"]


@dataclass(frozen=True, eq=False)
class ToggleGraph:
    """Compressed sparse rows of a graph without its self-loops, which are kept apart.

    Row i of (`indptr`, `senders`) lists the in-neighbours of i in increasing order. Repeated arcs are merged
    and their number is the multiplicity: message passing over two equal arcs is message passing over one of
    weight 2.

    Parameters
    ----------
    num_nodes : int
    indptr : Tensor [N + 1], int64
    senders : Tensor [E], int64
    receivers : Tensor [E], int64
        The row of each entry of `senders`.
    multiplicity : Tensor [E], int64, or None when every arc occurs once
    self_loops : Tensor [N], int64
        Multiplicity of the self-loop at each node.
    keys : Tensor [E], int64
        ``receiver * N + sender``, increasing.
    undirected : bool
    """

    num_nodes: int
    indptr: Tensor
    senders: Tensor
    receivers: Tensor
    multiplicity: Tensor | None
    self_loops: Tensor
    keys: Tensor
    undirected: bool

    @classmethod
    def from_edge_index(cls, edge_index: Tensor, num_nodes: int, *, undirected: bool) -> ToggleGraph:
        """Compress an edge list [2, E], source row first.

        Raises
        ------
        InputError
            If `undirected` and some edge stands in one direction only.
        """
        source, target = edge_index[0], edge_index[1]
        is_loop = source == target
        self_loops = torch.bincount(source[is_loop], minlength=num_nodes)
        arcs = ~is_loop
        keys, counts = torch.unique(target[arcs] * num_nodes + source[arcs], return_counts=True)
        receivers = torch.div(keys, num_nodes, rounding_mode="floor")
        senders = keys - receivers * num_nodes
        if undirected:
            _require_both_directions(keys, senders * num_nodes + receivers, num_nodes)
        indptr = torch.zeros(num_nodes + 1, dtype=torch.int64, device=edge_index.device)
        indptr[1:] = torch.cumsum(torch.bincount(receivers, minlength=num_nodes), 0)
        return cls(
            num_nodes=num_nodes,
            indptr=indptr,
            senders=senders,
            receivers=receivers,
            multiplicity=counts if bool((counts > 1).any()) else None,
            self_loops=self_loops,
            keys=keys,
            undirected=undirected,
        )

    def find(self, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Whether each arc source -> target exists, and its position in `senders` (clamped where not)."""
        wanted = target * self.num_nodes + source
        if not self.keys.numel():
            nothing = torch.zeros_like(wanted)
            return nothing.bool(), nothing
        position = torch.searchsorted(self.keys, wanted).clamp(max=self.keys.numel() - 1)
        return self.keys[position] == wanted, position

    def arc_multiplicity(self, source: Tensor, target: Tensor) -> Tensor:
        """Number of arcs source -> target, [L], int64; 0 where there is none."""
        found, position = self.find(source, target)
        if self.multiplicity is None:
            return found.to(torch.int64)
        return torch.where(found, self.multiplicity[position], 0)

    def contains(self, edge_label_index: Tensor) -> Tensor:
        """Whether each pair [2, L] is an edge, [L], bool."""
        return self.find(edge_label_index[0], edge_label_index[1])[0]

    def in_degree(self) -> Tensor:
        """Arcs that enter each node, with multiplicity, self-loops left out; [N], int64."""
        if self.multiplicity is None:
            return self.indptr[1:] - self.indptr[:-1]
        degree = torch.zeros(self.num_nodes, dtype=torch.int64, device=self.indptr.device)
        return degree.index_add_(0, self.receivers, self.multiplicity)

    def transposed(self) -> ToggleGraph:
        """The graph with every arc reversed: row i lists the out-neighbours of i."""
        # With repeated edges the two directions may occur unequally often.
        if self.undirected and self.multiplicity is None:
            return self
        reversed_arcs = torch.stack([self.receivers, self.senders])
        if self.multiplicity is not None:
            reversed_arcs = reversed_arcs.repeat_interleave(self.multiplicity, dim=1)
        return ToggleGraph.from_edge_index(reversed_arcs, self.num_nodes, undirected=False)


def _require_both_directions(keys: Tensor, reversed_keys: Tensor, num_nodes: int) -> None:
    mirrored = torch.sort(reversed_keys).values
    if torch.equal(mirrored, keys):
        return
    lonely = keys[~torch.isin(keys, mirrored)]
    target, source = divmod(int(lonely[0]), num_nodes)
    raise InputError(
        f"edge_index must hold both directions of every edge when undirected=True, got ({source}, {target}) "
        f"without ({target}, {source}); pass undirected=False for a directed graph"
    )
