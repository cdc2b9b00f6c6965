"""Treebanks in XML, TigerXML and Alpino's: graphs over the words, in which nodes may have gaps.

Read with the standard library's expat, which knows lines and keeps no document; it loads nothing from outside, and
entities that grow without end are an error to it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from xml.parsers import expat

from onlstm.trees.tree import TreebankError
from onlstm.trees.treebank.profile import Profile, matcher
from onlstm.trees.treebank.sentence import Bracket, Defect, Leaf, Sentence, build

_CHUNK = 1 << 16

Event = tuple[int, str, dict[str, str] | None]


@dataclass(kw_only=True)
class _Graph:
    """One sentence; ids are the file's own, or numbers."""

    line: int
    leaves: dict[str, Leaf] = field(default_factory=dict)
    """In order."""
    labels: dict[str, str] = field(default_factory=dict)
    """Of the nodes."""
    edges: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """From a node, to its children, as (id, label); secondary ones are not among them."""


def read_xml(data: bytes | str, profile: Profile, punctuation: bool = False) -> Iterator[Sentence | Defect]:
    """Yield the sentences of an XML file, and a defect for each that is no tree; at broken XML the file ends.

    Bytes are in the encoding that they declare, which must be one of the few that expat knows.
    A file without sentences of the profile's format yields nothing: other XML often lies beside the trees.
    """
    graphs = _tiger if profile.format == "tiger-xml" else _alpino
    try:
        for graph in graphs(_events(data)):
            leaves = tuple(graph.leaves.values())
            try:
                brackets, gaps = _continuous(_nodes(graph, matcher(profile.heads)), leaves, profile)
            except TreebankError as error:
                yield Defect(str(error), graph.line)
            else:
                yield build(leaves, brackets, graph.line, profile, punctuation, gaps)
    except expat.ExpatError as error:
        yield Defect(f"broken XML ({expat.errors.messages[error.code]})", error.lineno)
    except (LookupError, ValueError) as error:  # an encoding that is unknown, or that expat cannot read
        yield Defect(f"broken XML ({error})", 1)


def _events(data: bytes | str) -> Iterator[Event]:
    """Yield the line, name and attributes of each element that starts, and of each that ends, with no attributes."""
    parser = expat.ParserCreate()
    events: list[Event] = []
    parser.StartElementHandler = lambda name, values: events.append((parser.CurrentLineNumber, name, values))
    parser.EndElementHandler = lambda name: events.append((parser.CurrentLineNumber, name, None))
    for start in range(0, len(data) + 1, _CHUNK):
        broken = None
        try:
            parser.Parse(data[start : start + _CHUNK], start + _CHUNK > len(data))
        except expat.ExpatError as error:
            broken = error
        yield from events  # what comes before the break is good
        events.clear()
        if broken:
            raise broken


def _tiger(events: Iterator[Event]) -> Iterator[_Graph]:
    graph, node = _Graph(line=0), ""
    for line, name, values in events:
        if values is None:
            if name == "s" and graph.leaves:
                yield graph
        elif name == "s":
            graph = _Graph(line=line)
        elif name == "t":
            graph.leaves[values.get("id", "")] = (values.get("pos", ""), _word(values.get("word", "")))
        elif name == "nt":
            node = values.get("id", "")
            graph.labels[node] = values.get("cat", "")
            graph.edges[node] = []
        elif name == "edge":
            graph.edges.setdefault(node, []).append((values.get("idref", ""), values.get("label", "")))


def _alpino(events: Iterator[Event]) -> Iterator[_Graph]:
    graph, path, places = _Graph(line=0), [""], dict[str, int]()
    for k, (line, name, values) in enumerate(events):
        if name == "alpino_ds" and values is not None:
            graph, path, places = _Graph(line=line), [""], {}
        elif name == "alpino_ds" and graph.leaves:
            graph.leaves = {node: graph.leaves[node] for node in sorted(graph.leaves, key=places.__getitem__)}
            yield graph
        elif name == "node" and values is None:
            path.pop()
        elif name == "node" and values is not None:
            node, begin = str(k), values.get("begin", "")
            if "word" in values:
                graph.leaves[node] = (values.get("pos", ""), _word(values["word"]))
                places[node] = int(begin) if begin.isdecimal() else len(places)
            elif "cat" in values:
                graph.labels[node] = values["cat"]
                graph.edges[node] = []
            if ("word" in values or "cat" in values) and path[-1] in graph.edges:  # else an index: a secondary edge
                graph.edges[path[-1]].append((node, values.get("rel", "")))
            path.append(node)


def _word(text: str) -> str:
    return "_".join(text.split())


def _nodes(graph: _Graph, is_head: Callable[[str], object]) -> list[tuple[str, list[int], int]]:
    """Return the nodes in preorder, each with its label, its leaves, and the leaf that is its head, or its first."""
    parents = dict[str, str]()
    for node, edges in graph.edges.items():
        for child, _ in edges:
            if child not in graph.leaves and child not in graph.labels:
                raise TreebankError("edge to a node that is not there")
            if child in parents:
                raise TreebankError("node with two parents")
            parents[child] = node
    order = list[str]()
    stack = [node for node in reversed(graph.labels) if node not in parents]
    while stack:
        order.append(stack.pop())
        stack += [child for child, _ in reversed(graph.edges[order[-1]]) if child in graph.labels]
    if len(order) < len(graph.labels):
        raise TreebankError("nodes in a circle")
    below = {leaf: [place] for place, leaf in enumerate(graph.leaves)}
    heads = {leaf: place for place, leaf in enumerate(graph.leaves)}
    for node in reversed(order):
        below[node] = sorted(place for child, _ in graph.edges[node] for place in below[child])
        marked = [heads[child] for child, label in graph.edges[node] if is_head(label) and below[child]]
        heads[node] = (marked + below[node] + [0])[0]
    return [(graph.labels[node], below[node], heads[node]) for node in order]


def _continuous(
    nodes: Sequence[tuple[str, list[int], int]], leaves: Sequence[Leaf], profile: Profile
) -> tuple[tuple[Bracket, ...], int]:
    """Return brackets, by the profile's rule where a node has gaps, and how many had.

    Only words make gaps, for punctuation hangs anywhere: marks between a part's words are taken in, and of those at its
    ends a part has the node's own.
    """
    words = [place for place, leaf in enumerate(leaves) if profile.role(*leaf) == "word"]
    ranks = {place: rank for rank, place in enumerate(words)}
    brackets: list[Bracket] = []
    gaps = 0
    for label, places, head in nodes:
        parts: list[list[int]] = []
        for place in filter(ranks.__contains__, places):
            if parts and ranks[parts[-1][-1]] + 1 == ranks[place]:
                parts[-1].append(place)
            else:
                parts.append([place])
        marks = set(places) - ranks.keys()
        spans = [_widened(part[0], part[-1] + 1, marks) for part in parts]
        if len(spans) > 1:
            gaps += 1
            if profile.discontinuous == "lift":
                spans = [(i, j) for i, j in spans if i <= head < j] or spans[:1]
            elif profile.discontinuous == "drop":
                spans = []
        brackets += [(i, j, label) for i, j in spans]
    return tuple(brackets), gaps


def _widened(start: int, end: int, marks: set[int]) -> tuple[int, int]:
    while start - 1 in marks:
        start -= 1
    while end in marks:
        end += 1
    return start, end
