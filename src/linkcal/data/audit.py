"""What makes held-out links no test of a predictor: leaks, repeats and contradictions, counted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from linkcal._core.maths import FloatArray
from linkcal._core.validation import check_edge_index, check_type
from linkcal.data.graph import JOINS_TYPES, Graph, IntArray, check_graph, pair_keys
from linkcal.data.negatives import in_sorted
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
        ``types``, ``self-pair``, ``held-out-edge``, ``negative-edge``, ``missing-edge``, ``time``,
        ``both-labels``, ``overlap``, ``repeated``, ``reversed-edge`` or ``edge-features``, as
        :func:`audit_pairs` states.
    count : int
        Pairs that have it.
    text : str
        What was expected and how many are otherwise.
    pairs, places : tuple of (int, int), tuple of str
        At most five of them, and what to add to each: the parts that it stands in, or its types.
    is_error : bool
        Whether a :class:`LinkSplit` refuses it.
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
    ``self-pair``: a node is paired with itself. ``time``: a link is not earlier than the first of a later
    part, where all parts have times; a negative may then be a link of a later part. No error:
    ``reversed-edge``, the message-passing graph of a directed graph that has the reverse of each of its edges
    holds the reverse of held-out links.

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
    given = (("train", train), ("val", val), ("test", test))
    parts = {name: part for name, part in given if part is not None}
    index, label = [np.empty((2, 0), dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for name, part in parts.items():
        checked = check_edge_index(part.edge_label_index, graph.num_nodes, f"{name}.edge_label_index")
        index.append(checked.cpu().numpy())
        label.append((part.edge_label == 1).cpu().numpy().astype(np.int64))
    part_of = np.repeat(np.arange(len(parts)), [each.shape[1] for each in index[1:]])
    pairs = _Pairs(graph, tuple(parts), np.concatenate(index, axis=1), np.concatenate(label), part_of)
    late: list[AuditFinding] = []
    apart, times = pairs, [part.time for part in parts.values() if part.edge_label.numel()]
    known = [time.cpu().numpy() for time in times if time is not None]
    if known and len(known) == len(times) and len(parts) == len(given):
        late, apart = list(pairs.against_time(np.concatenate(known))), pairs.without_later_links()
    found = (*pairs.against_the_graph(), *late, *apart.against_each_other(), *pairs.reversed())
    return SplitAudit(found)


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
    from linkcal.data.split import LinkSplit

    check_type(split, LinkSplit, "split")
    found = audit_pairs(split.graph, train=split.train, val=split.val, test=split.test).findings
    if split.features_from_held_out:
        number = int(split.held_out_edges().size(1))
        text = f"features must not be computed from held-out links, got features of a graph with all {number}"
        found = (*found, AuditFinding("edge-features", number, text, is_error=False))
    return SplitAudit(found)


def reversed_links(graph: Graph, held_out: Tensor) -> Tensor:
    """Whether the reverse of each held-out link [2, H] is an edge; none if some link has no reverse.

    A graph that has the reverse of each of its links is most likely undirected, and split as a directed one.
    """
    links = torch.cat([graph.edge_index, held_out], dim=1)
    there, back = (torch.unique(pair_keys(e, graph.num_nodes, directed=True)) for e in (links, links.flip(0)))
    return graph.has_pairs(held_out.flip(0)) & torch.equal(there, back)


class _Pairs:
    """All labelled pairs (2, L) beside each other, with labels (L,) and the number (L,) of their parts."""

    def __init__(
        self, graph: Graph, names: tuple[str, ...], pairs: IntArray, label: IntArray, part_of: IntArray
    ) -> None:
        self.graph, self.names, self.pairs, self.label, self.part_of = graph, names, pairs, label, part_of
        self.way = "" if graph.directed else ", in either direction"
        low, high = pairs if graph.directed else (np.minimum(*pairs), np.maximum(*pairs))
        self.keys = low * graph.num_nodes + high
        # Sorted keys are looked up many times faster than others.
        self.order = np.argsort(self.keys)
        self.ordered = self.keys[self.order]
        # An undirected graph stores (u, v) and (v, u).
        self.is_edge = np.empty(len(self.keys), dtype=bool)
        self.is_edge[self.order] = in_sorted(graph._keys.cpu().numpy(), self.ordered)

    def against_the_graph(self) -> Iterator[AuditFinding]:
        """What a pair is beside what it should be."""
        graph, is_link, loops = self.graph, self.label == 1, self.pairs[0] == self.pairs[1]
        wrong = graph.wrong_types(torch.from_numpy(self.pairs))
        types = np.zeros_like(loops) if wrong is None else wrong.numpy()
        for number, name in enumerate(self.names):
            mine, inside = self.part_of == number, f"message-passing edges{self.way}, got {{}} that are"
            held_out = ("held-out-edge", is_link & self.is_edge, f"links must not be {inside}")
            outside = "links must be message-passing edges (PyG: disjoint_train_ratio=0), got {} that are not"
            joined = f"pairs {JOINS_TYPES}, got {{}} of {mine.sum()} that do not"
            for kind, rows, text in (
                ("types", types, joined),
                ("self-pair", loops, "pairs must join two different nodes, got {} that do not"),
                ("missing-edge", is_link & ~self.is_edge, outside) if name == "train" else held_out,
                ("negative-edge", ~is_link & self.is_edge, f"negatives must not be {inside}"),
            ):
                if (found := np.flatnonzero(mine & rows)).size:
                    places = [self._types(row) for row in found[:_EXAMPLES]] if kind == "types" else []
                    yield self._finding(kind, found, f"{name} {text}", places)

    def _finding(self, kind: str, rows: IntArray, text: str, places: Sequence[str] = ()) -> AuditFinding:
        shown = tuple((u, v) for u, v in self.pairs[:, rows[:_EXAMPLES]].T.tolist())
        return AuditFinding(kind, rows.size, text.format(rows.size), shown, tuple(places))

    def _types(self, row: int) -> str:
        return f"of types {self.graph.types_of(torch.from_numpy(self.pairs[:, row]))}"

    def against_time(self, time: FloatArray) -> Iterator[AuditFinding]:
        """Links that are not before the first of a later part; `time` (L,) is NaN for negatives."""
        start, after = math.inf, ""
        for number, name in reversed([*enumerate(self.names)]):
            links = (self.part_of == number) & (self.label == 1)
            rows = np.flatnonzero(links & (time >= start))
            if rows.size:
                text = f"{name} links must be earlier than all {after} links, got {{}} that are not"
                first = f"the first {after} link is at {start:.17g}"
                places = [f"at {time[row]:.17g}, {first}" for row in rows[:_EXAMPLES]]
                yield self._finding("time", rows, text, places)
            if links.any():
                start, after = float(time[links].min()), name

    def without_later_links(self) -> _Pairs:
        """All but negatives that are links of a later part: they were negatives at their time."""
        is_link = self.label == 1
        linked = pd.Series(np.where(is_link, self.part_of, -1)).groupby(self.keys).transform("max")
        kept = is_link | (self.part_of >= linked.to_numpy())
        return _Pairs(self.graph, self.names, self.pairs[:, kept], self.label[kept], self.part_of[kept])

    def against_each_other(self) -> Iterator[AuditFinding]:
        """Pairs that stand more than once, each under the worst of its kinds."""
        if not (self.ordered[1:] == self.ordered[:-1]).any():
            return
        first = np.unique(self.keys, return_index=True)[1]
        turned = self.pairs[0] > self.pairs[1]
        rows = pd.DataFrame({"label": self.label, "part": self.part_of, "turned": turned}).groupby(self.keys)
        labels, parts, turned = (rows.nunique() > 1).to_numpy().T
        again = (rows.size() > 1).to_numpy() & ~parts & ~labels
        both = (again & turned).sum()
        whole = "train, val and test must"
        once = f"{whole} hold each pair once{self.way}, got {{}} repeated"
        for kind, chosen, text in (
            ("both-labels", labels, f"{whole} give each pair one label{self.way}, got {{}} with both"),
            ("overlap", parts & ~labels, once),
            ("repeated", again, f"{once} in a part{f', {both} of them in both directions' * bool(both)}"),
        ):
            found = np.sort(first[chosen])
            if found.size:
                places = [self._places(self.keys == self.keys[row], kind) for row in found[:_EXAMPLES]]
                yield self._finding(kind, found, text, places)

    def _places(self, rows: NDArray[np.bool_], kind: str) -> str:
        """Parts of the rows of one pair, with its labels where they differ."""
        names = [self.names[number] for number in self.part_of[rows]]
        if kind != "both-labels":
            return f"in {' and '.join(names)}"
        labels = ("a link" if label else "a negative" for label in self.label[rows])
        return " and ".join(f"{label} in {name}" for label, name in zip(labels, names, strict=True))

    def reversed(self) -> Iterator[AuditFinding]:
        """Held-out links of a directed graph that looks undirected."""
        if not self.graph.directed:
            return
        is_held_out = np.array([name != "train" for name in self.names], dtype=bool)[self.part_of]
        rows = np.flatnonzero(is_held_out & (self.label == 1))
        links = torch.from_numpy(self.pairs[:, rows]).to(self.graph.edge_index.device)
        leaked = rows[reversed_links(self.graph, links).cpu().numpy()]
        if leaked.size:
            text = (
                "a directed graph should not have the reverse of each of its edges, got {} of "
                f"{rows.size} held-out links whose reverse is a message-passing edge"
            )
            yield replace(self._finding("reversed-edge", leaked, text), is_error=False)
