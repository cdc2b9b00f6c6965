"""Treebanks in XML, TigerXML and Alpino's: graphs over the words, in which nodes may have gaps.

Read with the standard library's expat, which knows lines and keeps no document; it loads nothing from outside, and
entities that grow without end are an error to it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element
from xml.parsers import expat

from onlstm.trees.tree import TreebankError
from onlstm.trees.treebank.profile import Profile, matcher
from onlstm.trees.treebank.sentence import Bracket, Defect, Leaf, Sentence, build

BROKEN_XML = "broken XML"
_CHUNK = 1 << 16


class _Graph(NamedTuple):
    """One sentence; its leaves and nodes are known by the file's own ids, or by their elements."""

    leaves: dict[object, Leaf]  # in order
    nodes: dict[object, tuple[str, Sequence[tuple[object, str]]]]  # label; children, with the labels of the edges


def read_xml(data: bytes | str, profile: Profile, punctuation: bool = False) -> Iterator[Sentence | Defect]:
    """Yield the sentences of an XML file, and a defect for each that is no tree; at broken XML the file ends.

    Bytes are in the encoding that they declare, which must be one of the few that expat knows.
    A file without sentences of the profile's format yields nothing: other XML often lies beside the trees.
    """
    name, read = ("s", _tiger) if profile.format == "tiger-xml" else ("alpino_ds", _alpino)
    try:
        for line, element in _elements(data, name):
            graph = read(element)
            if leaves := tuple(graph.leaves.values()):
                try:
                    brackets, gaps = _continuous(_nodes(graph, matcher(profile.heads)), leaves, profile)
                    yield build(leaves, brackets, line, gaps, profile, punctuation)
                except TreebankError as error:
                    yield Defect(str(error), line)
    except expat.ExpatError as error:
        yield Defect(f"{BROKEN_XML} ({expat.errors.messages[error.code]})", error.lineno)
    except (LookupError, ValueError) as error:  # an encoding that is unknown, or that expat cannot read
        yield Defect(f"{BROKEN_XML} ({error})", 1)


def _elements(data: bytes | str, name: str) -> Iterator[tuple[int, Element]]:
    """Yield the elements of a name, and the lines they start on."""
    path, elements = list[Element](), list[tuple[int, Element]]()

    def start(tag: str, values: dict[str, str]) -> None:
        element = Element(tag, values)
        if path:
            path[-1].append(element)
        elif tag == name:
            elements.append((parser.CurrentLineNumber, element))
        else:
            return
        path.append(element)

    def end(tag: str) -> None:
        if path:
            path.pop()

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = start, end
    for place in range(0, len(data) + 1, _CHUNK):
        try:
            parser.Parse(data[place : place + _CHUNK], place + _CHUNK > len(data))
        finally:  # what comes before a break is good
            whole = len(elements) - bool(path)
            yield from elements[:whole]
            del elements[:whole]


def _tiger(sentence: Element) -> _Graph:
    graph = _Graph({leaf.get("id", ""): _leaf(leaf) for leaf in sentence.iter("t")}, {})
    for node in sentence.iter("nt"):
        edges = [(edge.get("idref", ""), edge.get("label", "")) for edge in node.iter("edge")]
        graph.nodes[node.get("id", "")] = (node.get("cat", ""), edges)
    return graph


def _alpino(sentence: Element) -> _Graph:
    words = [node for node in sentence.iter("node") if "word" in node.attrib]
    if all(word.get("begin", "").isdecimal() for word in words):
        words.sort(key=lambda word: int(word.get("begin", "")))
    graph = _Graph({word: _leaf(word) for word in words}, {})
    for node in sentence.iter("node"):
        if "cat" in node.attrib and node not in graph.leaves:  # else it is but an index: a secondary edge
            edges = [(child, child.get("rel", "")) for child in node if child.attrib.keys() & {"word", "cat"}]
            graph.nodes[node] = (node.get("cat", ""), edges)
    return graph


def _leaf(element: Element) -> Leaf:
    return element.get("pos", ""), "_".join(element.get("word", "").split())


def _nodes(graph: _Graph, is_head: Callable[[str], object]) -> list[tuple[str, list[int], int]]:
    """Return the nodes in preorder, each with its label, its leaves, and the leaf that is its head, or its first."""
    children = [child for _, edges in graph.nodes.values() for child, _ in edges]
    lower = set(children)
    if not lower <= graph.leaves.keys() | graph.nodes.keys():
        raise TreebankError("edge to a node that is not there")
    if len(lower) < len(children):
        raise TreebankError("node with two parents")
    order = list[object]()
    stack = [node for node in reversed(graph.nodes) if node not in lower]
    while stack:
        order.append(stack.pop())
        stack += [child for child, _ in reversed(graph.nodes[order[-1]][1]) if child in graph.nodes]
    if len(order) < len(graph.nodes):
        raise TreebankError("nodes in a circle")
    heads = {leaf: place for place, leaf in enumerate(graph.leaves)}
    below = {leaf: [place] for leaf, place in heads.items()}
    for node in reversed(order):
        edges = graph.nodes[node][1]
        below[node] = sorted(place for child, _ in edges for place in below[child])
        marked = [heads[child] for child, label in edges if is_head(label) and below[child]]
        heads[node] = (marked + below[node] + [0])[0]
    return [(graph.nodes[node][0], below[node], heads[node]) for node in order]


def _continuous(
    nodes: Sequence[tuple[str, list[int], int]], leaves: Sequence[Leaf], profile: Profile
) -> tuple[tuple[Bracket, ...], int]:
    """Return brackets, by the profile's rule where a node has gaps, and how many had.

    Only words make gaps, for punctuation hangs anywhere: marks between a part's words are taken in, and of those at its
    ends a part has the node's own.
    """
    words = [place for place, leaf in enumerate(leaves) if profile.role(*leaf) == "word"]
    ranks = {place: rank for rank, place in enumerate(words)}
    brackets, gaps = list[Bracket](), 0
    for label, places, head in nodes:
        parts = list[list[int]]()
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
