"""Labelled pairs and the train / validation / test split that holds them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from linkcal._core.validation import check_choice, check_edge_index
from linkcal.data.graph import Graph
from linkcal.exceptions import InputError

__all__ = ["LinkPairs", "LinkSplit"]


@dataclass(frozen=True, eq=False)
class LinkPairs:
    """Candidate links with labels.

    Parameters
    ----------
    edge_label_index : Tensor [2, L], int64 (int32 is converted)
        Pairs; in an undirected graph each stands once, smaller index first.
    edge_label : Tensor [L], float32
        1 for a link, 0 for a negative.
    positive_rate, negative_rate : float, optional
        Shares of all edges and of all non-edges of the full graph that were drawn into this set. They turn a
        pair's edge probability into its probability of being positive HERE (:meth:`label_probability`).

    Raises
    ------
    InputError
        If `edge_label_index` is no integer [2, L] tensor of numbers >= 0, or `edge_label` is not one 0 or 1
        for each pair.

    Examples
    --------
    >>> pairs = LinkPairs(torch.tensor([[0, 0, 1], [1, 2, 2]]), torch.tensor([1.0, 0.0, 1.0]))
    >>> len(pairs), pairs.num_positives, pairs.num_negatives
    (3, 2, 1)
    """

    edge_label_index: Tensor
    edge_label: Tensor
    positive_rate: float | None = None
    negative_rate: float | None = None

    def __post_init__(self) -> None:
        index = check_edge_index(self.edge_label_index, None, "edge_label_index")
        object.__setattr__(self, "edge_label_index", index)
        if not isinstance(self.edge_label, Tensor):
            raise InputError(f"edge_label must be a tensor [L], got {type(self.edge_label).__name__}")
        if self.edge_label.shape != self.edge_label_index.shape[1:]:
            raise InputError(
                f"edge_label must have shape [{self.edge_label_index.size(1)}], "
                f"got {list(self.edge_label.shape)}"
            )
        other = self.edge_label[(self.edge_label != 0) & (self.edge_label != 1)]
        if other.numel():
            raise InputError(f"edge_label must hold only 0 and 1, got {other[0].item()!r}")

    def __len__(self) -> int:
        return self.edge_label_index.size(1)

    @property
    def num_positives(self) -> int:
        """Number of links."""
        return int(self.edge_label.sum())

    @property
    def num_negatives(self) -> int:
        """Number of negatives."""
        return len(self) - self.num_positives

    def label_probability(self, edge_probability: Tensor) -> Tensor:
        """Probability [L] that each pair is positive given that it was drawn into this set.

        With edge probability q, an edge drawn with rate a and a non-edge with rate b:
        ``q a / (q a + (1 - q) b)`` (Bayes).

        Raises
        ------
        InputError
            If the rates are not known.
        """
        if self.positive_rate is None or self.negative_rate is None:
            raise InputError("positive_rate and negative_rate must be known for label_probability, got None")
        weighted = edge_probability * self.positive_rate
        return weighted / (weighted + (1 - edge_probability) * self.negative_rate)

    def to(self, device: torch.device | str) -> LinkPairs:
        """Copy with tensors on `device`."""
        return replace(
            self,
            edge_label_index=self.edge_label_index.to(device),
            edge_label=self.edge_label.to(device),
        )


@dataclass(frozen=True, eq=False)
class LinkSplit:
    """Message-passing graph and labelled pairs of one run.

    `graph` holds the TRAINING edges only; every score, also of validation and test pairs, is computed on it.
    Training positives are edges of it, validation and test positives are not. Positives and negatives of the
    three parts are pairwise disjoint and no negative is an edge of the full graph.

    Parameters
    ----------
    graph : Graph
    train, val, test : LinkPairs
    seed : int, optional
        Seed the split was drawn with; None for a split from elsewhere.
    counts_full : dict
        Counts of the graph before the split.
    negatives : str, optional
        Kind of the negatives, in ``linkcal.data.NEGATIVE_KINDS``; None for a split from elsewhere.

    Examples
    --------
    >>> from linkcal.data import simulate_graph, split_links
    >>> split = split_links(simulate_graph(100, num_edges=300, num_features=5, seed=0), seed=0)
    >>> bool(split.graph.has_pairs(split.held_out_edges()).any())  # none is a message-passing edge
    False
    >>> split.part("val").num_positives == split.counts()["val_positives"]
    True
    """

    graph: Graph
    train: LinkPairs
    val: LinkPairs
    test: LinkPairs
    seed: int | None = None
    counts_full: dict[str, int] = field(default_factory=dict)
    negatives: str | None = None

    def part(self, name: str) -> LinkPairs:
        """``train``, ``val`` or ``test`` by name."""
        parts = {"train": self.train, "val": self.val, "test": self.test}
        return parts[check_choice(name, "part", parts)]

    def held_out_edges(self) -> Tensor:
        """Links of the validation and test parts, [2, H]: edges outside the message-passing graph."""
        parts = (self.val, self.test)
        return torch.cat([part.edge_label_index[:, part.edge_label == 1] for part in parts], dim=1)

    def counts(self) -> dict[str, int]:
        """Return counts for reports: the full graph's, and positives and negatives of each part."""
        out = dict(self.counts_full) or self.graph.counts()
        out["message_edges"] = self.graph.num_pairs
        for name in ("train", "val", "test"):
            part = self.part(name)
            out[f"{name}_positives"] = part.num_positives
            out[f"{name}_negatives"] = part.num_negatives
        return out

    def to(self, device: torch.device | str) -> LinkSplit:
        """Copy with tensors on `device`."""
        return replace(
            self,
            graph=self.graph.to(device),
            train=self.train.to(device),
            val=self.val.to(device),
            test=self.test.to(device),
        )
