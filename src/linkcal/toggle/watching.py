"""A model while it is toggled: evaluation mode, and what is seen of the messages that it passes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from linkcal.toggle.trimming import Round, arc_arguments

__all__ = ["evaluating", "is_plain", "watching_messages"]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a block; every submodule's own mode is put back."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


class _Watched:
    """What was seen of the messages in one ``encode`` of so many nodes."""

    def __init__(self, num_nodes: int) -> None:
        self.rounds: list[Round] = []
        self._num_nodes = num_nodes
        self._seen: dict[nn.Module, list[Any]] = {}

    def __call__(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        self.rounds.append((module, arc_arguments(arguments[0], arguments[-1], self._num_nodes)))
        self._seen.setdefault(module, []).append(arguments[-1].get("x"))

    @property
    def count(self) -> int:
        """Rounds of message passing."""
        return len(self.rounds)

    def sent(self) -> dict[nn.Module, Tensor]:
        """Rows that a module passed as messages, where it did so once and to all nodes alike."""
        return {
            module: seen[0]
            for module, seen in self._seen.items()
            if len(seen) == 1 and isinstance(seen[0], Tensor)
        }


@contextmanager
def watching_messages(model: nn.Module, num_nodes: int) -> Iterator[_Watched]:
    """Watch PyG's message passing in a block: how often it ran, and from which rows.

    Layers used twice count twice, parallel ones too: an upper bound on the hops that the model sees, which is
    all that exactness needs.
    """
    watched = _Watched(num_nodes)
    passing = [module for module in model.modules() if isinstance(module, MessagePassing)]
    handles = [module.register_propagate_forward_pre_hook(watched) for module in passing]
    try:
        yield watched
    finally:
        for handle in handles:
            handle.remove()


def is_plain(model: nn.Module) -> bool:
    """Whether no module has hooks that a forward pass runs, or a method replaced on the instance."""
    for module in model.modules():
        state = vars(module)
        hooked = any(state[name] for name in state if name.endswith(("forward_hooks", "forward_pre_hooks")))
        if hooked or any(callable(getattr(type(module), name, None)) for name in state):
            return False
    return True
