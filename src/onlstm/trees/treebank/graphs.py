"""Treebanks in XML, TigerXML and Alpino's: graphs over the words, in which nodes may have gaps.

Read with the standard library's expat, which knows lines and keeps no document; it loads nothing from outside, and
entities that grow without end are an error to it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from xml.parsers import expat

from onlstm.trees.tree import Node, TreebankError
from onlstm.trees.treebank.profile import Profile, matcher
from onlstm.trees.treebank.sentence import Defect, Leaf, Sentence, sentence

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
    read = {"tiger-xml": _tiger, "alpino-xml": _alpino}[profile.format]
    try:
        for graph in read(_events(data)):
            try:
                nodes = _nodes(graph, matcher(profile.heads))
            except TreebankError as error:
                yield Defect(str(error), graph.line)
                continue
            leaves = list(graph.leaves.values())
            brackets, gaps = _continuous(nodes, leaves, profile)
            yield sentence(leaves, brackets, graph.line, profile, punctuation, gaps)
    except expat.ExpatError as error:
        yield Defect(f"broken XML ({expat.errors.messages[error.code]})", error.lineno)
    except TreebankError as error:
        yield Defect(f"broken XML ({error})", 1)


def _events(data: bytes | str) -> Iterator[Event]:
    """Yield the line, name and attributes of each element that starts, and of each that ends, None for attributes."""
    parser = expat.ParserCreate()
    found: list[Event] = []
    parser.StartElementHandler = lambda name, given: found.append((parser.CurrentLineNumber, name, given))
    parser.EndElementHandler = lambda name: found.append((parser.CurrentLineNumber, name, None))
    for start in range(0, len(data) + 1, _CHUNK):
        broken = None
        try:
            parser.Parse(data[start : start + _CHUNK], start + _CHUNK > len(data))
        except expat.ExpatError as error:
            broken = error
        except (LookupError, ValueError) as error:
            raise TreebankError(str(error)) from None
        yield from found
        found.clear()
        if broken:
            raise broken


def _tiger(events: Iterator[Event]) -> Iterator[_Graph]:
    graph, node = _Graph(line=0), ""
    for line, name, given in events:
        if name == "s":
            if given is not None:
                graph = _Graph(line=line)
            elif graph.leaves:
                yield graph
        elif given is None:
            continue
        elif name == "t":
            graph.leaves[given.get("id", "")] = (given.get("pos", ""), _word(given.get("word", "")))
        elif name == "nt":
            node = given.get("id", "")
            graph.labels[node] = given.get("cat", "")
            graph.edges[node] = []
        elif name == "edge":
            graph.edges.setdefault(node, []).append((given.get("idref", ""), given.get("label", "")))


def _alpino(events: Iterator[Event]) -> Iterator[_Graph]:
    graph, path, places = _Graph(line=0), [""], dict[str, int]()
    for k, (line, name, given) in enumerate(events):
        if name == "alpino_ds":
            if given is not None:
                graph, path, places = _Graph(line=line), [""], {}
            elif graph.leaves:
                graph.leaves = {node: graph.leaves[node] for node in sorted(graph.leaves, key=places.__getitem__)}
                yield graph
        elif name != "node":
            continue
        elif given is None:
            path.pop()
        else:
            node = str(k)
            begin = given.get("begin", "")
            if "word" in given:
                graph.leaves[node] = (given.get("pos", ""), _word(given["word"]))
                places[node] = int(begin) if begin.isdecimal() else len(places)
            elif "cat" in given:
                graph.labels[node] = given["cat"]
                graph.edges[node] = []
            if ("word" in given or "cat" in given) and path[-1] in graph.edges:  # else an index: a secondary edge
                graph.edges[path[-1]].append((node, given.get("rel", "")))
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
) -> tuple[list[Node], int]:
    """Return brackets, by the profile's rule where a node has gaps, and how many had.

    Only words make gaps, for punctuation hangs anywhere: marks between a part's words are taken in, and of those at its
    ends a part has the node's own.
    """
    words = [place for place, leaf in enumerate(leaves) if profile.role(*leaf) == "word"]
    ranks = {place: rank for rank, place in enumerate(words)}
    brackets: list[Node] = []
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
        brackets += [Node(i, j, label) for i, j in spans]
    return brackets, gaps


def _widened(start: int, end: int, marks: set[int]) -> tuple[int, int]:
    while start - 1 in marks:
        start -= 1
    while end in marks:
        end += 1
    return start, end
