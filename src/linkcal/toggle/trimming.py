"""Messages that no asked embedding depends on, left out while a model runs on subgraphs.

Of a subgraph's nodes only the endpoints' embeddings are asked for, so the c-th of L rounds of message passing
(from 1) needs to reach the nodes within L - c hops alone. The arcs of a subgraph whose receivers are farther
away are there for the degrees that a layer works out before it passes messages; they are most of the arcs.
PyG hands every round to a hook before it runs: there they are dropped.

Rounds are counted in the order in which they ran on the whole graph. Parallel ones count one after the other,
so that the bound is too large for some, never too small: behind a round at depth d of D there are D - d more.
What a round reads per arc beside its ends (weights, attention) is known by name from the whole graph, where
it has as many rows as there are arcs. A model that this does not fit, because it passes messages by other
means as well or looks at all arcs at once, fails the check of the fallback and runs untrimmed. So does one
that passes other rounds on some subgraph than on the whole graph: that run is done again as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from linkcal.toggle.khop_kernel import FAR

__all__ = ["MessageTrimmer", "Round", "arc_arguments"]

#: The module that passed messages, and what :func:`arc_arguments` says of them.
Round = tuple[nn.Module, frozenset[str] | None]


def arc_arguments(edge_index: Any, values: dict[str, Any], num_nodes: int) -> frozenset[str] | None:
    """Names of the arguments of one round that have a row per arc; None where that cannot be told.

    It cannot where arcs are no plain index [2, E], or as many as there are nodes or rows of `x`.

    Examples
    --------
    >>> import torch
    >>> arcs = torch.tensor([[0, 1, 2], [1, 2, 0]])
    >>> sorted(arc_arguments(arcs, {"x": torch.ones(4, 2), "edge_weight": torch.ones(3)}, num_nodes=4))
    ['edge_weight']
    >>> arc_arguments(arcs, {"query": torch.ones(3, 2), "edge_weight": torch.ones(3)}, num_nodes=3) is None
    True
    """
    if type(edge_index) is not Tensor or edge_index.dim() != 2 or edge_index.size(0) != 2:
        return None
    number = edge_index.size(1)
    if number == num_nodes:
        return None
    names = {name for name, value in values.items() if isinstance(value, Tensor) and _rows(value) == number}
    others = (value for name, value in values.items() if name not in names)
    if "x" in names or any(
        isinstance(value, tuple | list | dict) and _mentions(value, number) for value in others
    ):
        return None
    return frozenset(names)


class MessageTrimmer:
    """Drops the messages of a model that do not count.

    Parameters
    ----------
    model : nn.Module
    rounds : sequence of Round
        In their order on the whole graph; one whose arguments cannot be told apart is left whole.

    Attributes
    ----------
    fits : bool
        Whether all runs so far passed these rounds. The first that does not may have lost messages that
        count: what it gave is void, and no later run is trimmed.
    """

    def __init__(self, model: nn.Module, rounds: Sequence[Round]) -> None:
        self._passing = [module for module in model.modules() if isinstance(module, MessagePassing)]
        self._rounds = list(rounds)
        self._distance: Tensor
        self._round = 0
        self.fits = True

    @contextmanager
    def trimming(self, distance: Tensor) -> Iterator[None]:
        """Trim one run of the model on nodes whose hops to the nearest endpoint are `distance` [M], int8."""
        self._distance, self._round = distance, 0
        handles = [module.register_propagate_forward_pre_hook(self) for module in self._passing]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
        self.fits = self.fits and self._round == len(self._rounds)

    def __call__(self, module: MessagePassing, arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Arguments of one round without the arcs that do not count; None leaves them as they are."""
        edge_index, size, values = arguments
        self._round += 1
        left = len(self._rounds) - self._round
        expected, names = self._rounds[self._round - 1] if left >= 0 else (None, None)
        self.fits = self.fits and module is expected
        if not self.fits or names is None or type(edge_index) is not Tensor:
            return None
        per_arc = {name: values[name] for name in names if values.get(name) is not None}
        if any(_rows(value) != edge_index.size(1) for value in per_arc.values()):
            return None
        receiver = edge_index[1 if module.flow == "source_to_target" else 0]
        # Distances are int8, and a larger number would wrap.
        kept = (self._distance[receiver] <= min(left, FAR)).nonzero().flatten()
        if not kept.numel():
            # The whole graph never had a layer do without any message, which not every layer can.
            return None
        fewer = {name: value.index_select(0, kept) for name, value in per_arc.items()}
        return edge_index.index_select(1, kept), size, {**values, **fewer}


def _rows(value: Any) -> int:
    return value.size(0) if isinstance(value, Tensor) and value.dim() else -1


def _mentions(value: Any, number: int) -> bool:
    """Whether a tensor with so many rows is inside."""
    if isinstance(value, Tensor):
        return _rows(value) == number
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, tuple | list) else ()
    return any(_mentions(part, number) for part in parts)
