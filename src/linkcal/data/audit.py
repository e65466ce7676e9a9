"""What makes held-out links no test of a predictor: leaks, repeats and contradictions, counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from linkcal._core.validation import check_edge_index
from linkcal.data.graph import JOINS_TYPES, Graph, check_graph, pair_keys
from linkcal.exceptions import InputError

if TYPE_CHECKING:
    from linkcal.data.split import LinkPairs, LinkSplit

#: Pairs that a finding shows, at most.
_EXAMPLES = 5


@dataclass(frozen=True)
class AuditFinding:
    """One kind of problem, in one or several parts of a split; ``str`` gives it in one line with an example.

    Parameters
    ----------
    kind : str
        ``types``, ``self-pair``, ``held-out-edge``, ``negative-edge``, ``missing-edge``, ``both-labels``,
        ``overlap``, ``repeated``, ``reversed-edge`` or ``edge-features``, as :func:`audit_pairs` states.
    count : int
        Pairs that have it.
    text : str
        What was expected and how many are otherwise.
    pairs, places : tuple of (int, int), tuple of str
        At most five of them, and what to add to each: the parts that it stands in, or its types.
    is_error : bool
        Whether a :class:`LinkSplit` refuses it.

    Examples
    --------
    >>> str(AuditFinding("overlap", 1, "each pair must stand in one part, got 1 in two", ((2, 3),)))
    'each pair must stand in one part, got 1 in two, such as (2, 3)'
    """

    kind: str
    count: int
    text: str
    pairs: tuple[tuple[int, int], ...] = ()
    places: tuple[str, ...] = ()
    is_error: bool = True

    def __str__(self) -> str:
        place = f" {self.places[0]}" if self.places else ""
        return f"{self.text}, such as {self.pairs[0]}{place}" if self.pairs else self.text


@dataclass(frozen=True)
class SplitAudit:
    """Findings of :func:`audit_pairs` or :func:`audit_split`; ``str`` gives one line for each.

    Parameters
    ----------
    findings : tuple of AuditFinding

    Examples
    --------
    >>> SplitAudit(()).ok, str(SplitAudit(()))
    (True, 'no problem found')
    """

    findings: tuple[AuditFinding, ...]

    @property
    def ok(self) -> bool:
        """Whether no finding is an error."""
        return not any(finding.is_error for finding in self.findings)

    def raise_error(self) -> None:
        """Raise an InputError with the first finding that is an error, if there is one."""
        for finding in self.findings:
            if finding.is_error:
                raise InputError(str(finding))

    def __str__(self) -> str:
        return "\n".join(f"{each.kind}: {each}" for each in self.findings) or "no problem found"


def audit_pairs(
    graph: Graph,
    *,
    train: LinkPairs | None = None,
    val: LinkPairs | None = None,
    test: LinkPairs | None = None,
) -> SplitAudit:
    """Look for leaks between a message-passing graph and labelled pairs that need not be a split yet.

    Parameters
    ----------
    graph : Graph
        The message-passing graph.
    train, val, test : LinkPairs, optional
        Pairs of each part, in any order; InputError if a node index is out of range.

    Returns
    -------
    SplitAudit
        Errors first. In an undirected graph (u, v) and (v, u) are one pair everywhere.

    Notes
    -----
    ``held-out-edge``: a validation or test link is a message-passing edge. ``negative-edge``: a negative is
    one. ``missing-edge``: a training link is none. ``both-labels``: a pair is a link here and a negative
    there. ``overlap``: a pair stands in two parts. ``repeated``: it stands twice in a part, perhaps in both
    directions. ``types``: a pair does not join the two types of a bipartite graph, source first.
    ``self-pair``: a node is paired with itself. No error: ``reversed-edge``, the message-passing graph of a
    directed graph that has the reverse of each of its edges holds the reverse of held-out links.

    Examples
    --------
    >>> from linkcal.data import LinkPairs
    >>> graph = Graph.from_edges(torch.tensor([[0, 1], [1, 2]]), num_nodes=4)
    >>> audit = audit_pairs(graph, test=LinkPairs(torch.tensor([[2, 0], [1, 3]]), torch.tensor([1.0, 1.0])))
    >>> print(audit)
    held-out-edge: test links must not be message-passing edges, in either direction, got 1 that are, such \
as (2, 1)
    """
    graph = check_graph(graph)
    parts = {
        name: part for name, part in (("train", train), ("val", val), ("test", test)) if part is not None
    }
    place, index, label = graph.edge_index.device, [graph.edge_index[:, :0]], [graph.edge_index.new_empty(0)]
    for name, part in parts.items():
        checked = check_edge_index(part.edge_label_index, graph.num_nodes, f"{name}.edge_label_index")
        index.append(checked.to(place))
        label.append((part.edge_label == 1).to(place, torch.int64))
    sizes = torch.tensor([each.size(1) for each in index[1:]], dtype=torch.int64)
    part_of = torch.repeat_interleave(torch.arange(len(sizes)), sizes).to(place)
    pairs = _Pairs(graph, tuple(parts), torch.cat(index, dim=1), torch.cat(label), part_of)
    return SplitAudit((*pairs.against_the_graph(), *pairs.against_each_other(), *pairs.reversed()))


def audit_split(split: LinkSplit) -> SplitAudit:
    """Findings of :func:`audit_pairs` in a split, and features that were computed from its held-out links.

    A :class:`LinkSplit` refuses the errors when it is made, so what is left are the findings that are none,
    and the pairs of a subclass of :class:`LinkPairs`, which are not checked then.

    Parameters
    ----------
    split : LinkSplit

    Returns
    -------
    SplitAudit
        With ``edge-features`` where :func:`split_links` knows it; it is no error.

    Examples
    --------
    >>> from linkcal.data import simulate_graph, split_links
    >>> audit_split(split_links(simulate_graph(100))).findings
    ()
    """
    found = audit_pairs(split.graph, train=split.train, val=split.val, test=split.test).findings
    if split.features_from_held_out:
        number = int(split.held_out_edges().size(1))
        text = f"features must not be computed from held-out links, got features of a graph with all {number}"
        found = (*found, AuditFinding("edge-features", number, text, is_error=False))
    return SplitAudit(found)


def reversed_links(graph: Graph, held_out: Tensor) -> Tensor:
    """Held-out links [2, H] whose reverse is an edge, if the graph and they have the reverse of each link.

    Most likely such a graph is undirected and was split as a directed one.
    """
    links = torch.cat([graph.edge_index, held_out], dim=1)
    there, back = (
        torch.unique(pair_keys(each, graph.num_nodes, directed=True)) for each in (links, links.flip(0))
    )
    leaked = graph.has_pairs(held_out.flip(0))
    return held_out[:, leaked] if torch.equal(there, back) else held_out[:, :0]


@dataclass(frozen=True, eq=False)
class _Pairs:
    """All labelled pairs [2, L] beside each other, with labels [L] and the number [L] of each one's part."""

    graph: Graph
    names: tuple[str, ...]
    pairs: Tensor
    label: Tensor
    part_of: Tensor

    def against_the_graph(self) -> Iterator[AuditFinding]:
        """What a pair is beside what it should be."""
        graph, way = self.graph, _way(self.graph)
        is_edge, is_link = graph.has_pairs(self.pairs), self.label == 1
        wrong, loops = graph.wrong_types(self.pairs), self.pairs[0] == self.pairs[1]
        for number, name in enumerate(self.names):
            mine = self.part_of == number
            if wrong is not None and bool((rows := wrong & mine).any()):
                types = [f"of types {graph.types_of(pair)}" for pair in self.pairs[:, rows][:, :_EXAMPLES].T]
                text = f".edge_label_index {JOINS_TYPES}, got {{}} of {int(mine.sum())} pairs that do not"
                yield self._finding("types", rows, name + text, types)
            linked, inside = mine & is_link, f"message-passing edges{way}, got {{}} that are"
            held_out = ("held-out-edge", linked & is_edge, f"links must not be {inside}")
            outside = "links must be message-passing edges (PyG: disjoint_train_ratio=0), got {} that are not"
            for kind, rows, text in (
                ("self-pair", mine & loops, "pairs must join two different nodes, got {} that do not"),
                ("missing-edge", linked & ~is_edge, outside) if name == "train" else held_out,
                ("negative-edge", mine & ~is_link & is_edge, f"negatives must not be {inside}"),
            ):
                if bool(rows.any()):
                    yield self._finding(kind, rows, f"{name} {text}")

    def _finding(self, kind: str, rows: Tensor, text: str, places: list[str] | None = None) -> AuditFinding:
        shown = tuple((u, v) for u, v in self.pairs[:, rows][:, :_EXAMPLES].T.tolist())
        count = int(rows.sum())
        return AuditFinding(kind, count, text.format(count), shown, tuple(places or ()))

    def against_each_other(self) -> Iterator[AuditFinding]:
        """Pairs that stand more than once, each under the worst of its kinds."""
        keys = pair_keys(self.pairs, self.graph.num_nodes, directed=self.graph.directed)
        ordered = keys.sort().values
        if not bool((ordered[1:] == ordered[:-1]).any()):
            return
        _, group, size = torch.unique(keys, return_inverse=True, return_counts=True)

        def differs(values: Tensor) -> Tensor:
            low, high = (_reduced(values, group, size.numel(), how) for how in ("amin", "amax"))
            return low != high

        rows = torch.arange(keys.numel(), device=keys.device)
        first = _reduced(rows, group, size.numel(), "amin")
        labels, parts = differs(self.label), differs(self.part_of)
        turned = differs((self.pairs[0] > self.pairs[1]).long())
        whole, way = "train, val and test must", _way(self.graph)
        once = f"{whole} hold each pair once{way}, got {{}} repeated"
        for kind, chosen, text in (
            ("both-labels", labels, f"{whole} give each pair one label{way}, got {{}} with both"),
            ("overlap", parts & ~labels, once),
            ("repeated", (size > 1) & ~parts & ~labels, f"{once} in a part"),
        ):
            if not bool(chosen.any()):
                continue
            if kind == "repeated" and bool((chosen & turned).any()):
                text += f", {int((chosen & turned).sum())} of them in both directions"
            rows = first[chosen].sort().values
            places = [self._place(group == group[row], kind) for row in rows[:_EXAMPLES]]
            shown = tuple((u, v) for u, v in self.pairs[:, rows[:_EXAMPLES]].T.tolist())
            yield AuditFinding(kind, rows.numel(), text.format(rows.numel()), shown, tuple(places))

    def _place(self, rows: Tensor, kind: str) -> str:
        """Parts of the rows of one pair, with its labels where they differ."""
        names = [self.names[number] for number in self.part_of[rows].tolist()]
        if kind != "both-labels":
            return f"in {' and '.join(names)}"
        labels = ("a link" if label else "a negative" for label in self.label[rows].tolist())
        return " and ".join(f"{label} in {name}" for label, name in zip(labels, names, strict=True))

    def reversed(self) -> Iterator[AuditFinding]:
        """Held-out links of a directed graph that looks undirected."""
        is_held_out = (self.label == 1).new_tensor([name != "train" for name in self.names])
        links = self.pairs[:, (self.label == 1) & is_held_out[self.part_of]]
        if not self.graph.directed or not links.size(1):
            return
        leaked = reversed_links(self.graph, links)
        if leaked.size(1):
            text = (
                f"a directed graph should not have the reverse of each of its edges, got {leaked.size(1)} of "
                f"{links.size(1)} held-out links whose reverse is a message-passing edge"
            )
            shown = tuple((u, v) for u, v in leaked[:, :_EXAMPLES].T.tolist())
            yield AuditFinding("reversed-edge", leaked.size(1), text, shown, is_error=False)


def _way(graph: Graph) -> str:
    return "" if graph.directed else ", in either direction"


def _reduced(values: Tensor, group: Tensor, number: int, how: str) -> Tensor:
    """Smallest or largest value [G] of each group of rows."""
    return values.new_zeros(number).scatter_reduce(0, group, values, how, include_self=False)
