"""The tree: words and the constituents over them, flat, so that no depth is too deep.

A `Tree` is read from brackets, spans or JSON and written as any of them, as a drawing for terminals, or as an NLTK
tree. Its nodes stand in preorder, which alone says who is whose parent: every walk here is one loop over the words.

Brackets come in two kinds that cannot always be told apart: in `(NP the cat)` NP is a label, in `(the (black cat))`
the first token is a word. A label touches its parenthesis; after `( ` comes a word, which is how unlabelled nodes are
written here. For other text, `read_brackets` goes by the case of the tokens that touch, unless it is told.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from operator import index
from typing import Any, NamedTuple

from onlstm.errors import UserError
from onlstm.records import from_json

_TOKEN = re.compile(r"(\()([^\s()]+)?|(\))|([^\s()]+)", re.ASCII)
_HEAD = re.compile(r"\(([^\s()]+|(?=\())", re.ASCII)  # what touches a parenthesis: a token, or nothing if it is another
_WORD = re.compile(r"\S+", re.ASCII)
_LABEL = re.compile(r"[^\s()]+", re.ASCII)


class TreebankError(UserError):
    """A tree that cannot be read; the message names the place."""


class Node(NamedTuple):
    """One constituent: the words [start, end) and, in gold trees, a label."""

    start: int
    end: int
    label: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Tree:
    """A constituency tree; binary or not, labelled or not.

    Nodes are put in order on construction; a tree of two words or more without a node over all of them gets one.

    >>> tree = Tree.from_brackets("(S (NP (DT the) (NN cat)) (VP (VBD sat)))")
    >>> tree.words, tree.spans()
    (('the', 'cat', 'sat'), ((0, 2),))
    >>> print(tree.unlabelled())
    ( ( the cat ) sat )
    >>> print(*tree.lines(), sep="\\n")
    S ┬─ NP ┬─ DT the
      │     └─ NN cat
      └─ VP VBD sat
    """

    words: tuple[str, ...]
    """At least one; none is empty or holds whitespace."""
    nodes: tuple[Node, ...]
    """In preorder: by start, longest first, a unary chain from top to bottom; part-of-speech tags are nodes too."""
    confidence: tuple[float, ...] | None = field(default=None, compare=False)
    """How sure each of `spans()` is, 0 to 1: a share of votes or a probability. Trees that differ in it are equal."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", tuple(self.words))
        object.__setattr__(self, "nodes", _in_preorder(self.nodes, len(self.words)))
        for i, word in enumerate(self.words):
            if not _WORD.fullmatch(word):
                raise ValueError(f"word {i} is {word!r}: words are not empty and hold no whitespace")
        if self.confidence is not None:
            object.__setattr__(self, "confidence", _checked(self.confidence, len(self.spans())))

    @classmethod
    def from_spans(
        cls,
        words: Iterable[str],
        spans: Iterable[tuple[int, int] | tuple[int, int, str | None]],
        confidence: Iterable[float] | None = None,
    ) -> "Tree":
        """Return the tree of (start, end) or (start, end, label) spans in any order; a unary chain's from the top.

        `confidence` is in the order of `Tree.spans`, whatever the order of `spans`.
        """
        sure = None if confidence is None else tuple(confidence)
        return cls(words=tuple(words), nodes=tuple(Node(*span) for span in spans), confidence=sure)

    @classmethod
    def from_brackets(cls, text: str, labelled: bool | None = None) -> "Tree":
        """Return the one tree in `text`; `labelled` as in `read_brackets`.

        >>> Tree.from_brackets("((the cat) sat)").words
        ('the', 'cat', 'sat')
        """
        trees = list(read_brackets(text, labelled))
        if len(trees) != 1:
            raise TreebankError(
                f"expected one tree, found {len(trees)} in {text.strip()[:60]!r}; read_brackets reads many"
            )
        return trees[0]

    @classmethod
    def from_json(cls, text: str) -> "Tree":
        """Return the tree of an object with `words`, `nodes` or `spans`, and maybe `confidence`; others are ignored."""
        try:
            record = from_json(text)
            nodes = record["nodes"] if "nodes" in record else record["spans"]
            words, confidence = record["words"], record.get("confidence")
            if not isinstance(words, list):
                raise TypeError("words is not a list")
            if not isinstance(confidence, list | None):
                raise TypeError("confidence is not a list")
            return cls.from_spans(words, nodes, confidence)
        except KeyError as error:
            raise TreebankError(f"no key {error} in the JSON of a tree: it needs words and spans") from error
        except (TypeError, ValueError) as error:
            raise TreebankError(f"not a tree in JSON: {error}") from error

    def spans(self) -> tuple[tuple[int, int], ...]:
        """Return the (start, end) of nodes longer than one word, sorted, each once, the whole sentence left out."""
        whole = len(self.words)
        return tuple(sorted({(i, j) for i, j, _ in self.nodes if 1 < j - i < whole}))

    def unlabelled(self) -> "Tree":
        """Return the tree of the spans alone: no labels, no tags, no unary chains."""
        return Tree.from_spans(self.words, self.spans(), self.confidence)

    def brackets(self) -> str:
        """Return the tree on one line, as `(NP the cat)` or `( the cat )`; parentheses in words as -LRB-, -RRB-."""
        parts = []
        for word, opened, closed in self._steps():
            parts += [f" ({node.label or ''}" for node in opened]
            parts.append(" " + word.replace("(", "-LRB-").replace(")", "-RRB-"))
            parts += [")" if node.label else " )" for node in closed]
        return "".join(parts)[1:]

    __str__ = brackets

    def to_json(self) -> str:
        """Return one line of JSON: `words`, `spans`, `confidence` if known, `nodes` where the spans do not say all."""
        record: dict[str, Any] = {"words": self.words, "spans": self.spans()}
        if self.confidence is not None:
            record["confidence"] = self.confidence
        if self != self.unlabelled():
            record["nodes"] = self.nodes
        return json.dumps(record, ensure_ascii=False)

    def to_nltk(self) -> Any:
        """Return the `nltk.Tree`; nodes without a label get the empty one. Needs the extra `nltk`."""
        try:
            nltk_tree = import_module("nltk.tree").Tree
        except ModuleNotFoundError as error:
            raise UserError("Tree.to_nltk needs NLTK: pip install onlstm[nltk]") from error
        top: list[Any] = []
        path = [top]
        for word, opened, closed in self._steps():
            for node in opened:
                path[-1].append(nltk_tree(node.label or "", []))
                path.append(path[-1][-1])
            path[-1].append(word)
            del path[len(path) - len(closed) :]
        return top[0] if self.nodes else nltk_tree("", top)

    def lines(self, width: int | None = None) -> Iterator[str]:
        """Return the lines of a drawing for terminals, one per word, the root at the left; see `onlstm.draw.text`.

        Args:
            width: columns at most; what is too deep for them stands below, as a section with a number.

        >>> print(*Tree.from_brackets("((the cat) (sat (on it)))").lines(), sep="\\n")
        ┬─┬─ the
        │ └─ cat
        └─┬─ sat
          └─┬─ on
            └─ it
        """
        from onlstm.draw.terminal import text

        return text(self, width)

    def _repr_svg_(self) -> str:
        """Return the picture that notebooks show."""
        from onlstm.draw.svg import svg

        return svg(self)

    def _steps(self) -> Iterator[tuple[str, tuple[Node, ...], list[Node]]]:
        """Yield each word, the nodes that open before it from the top, and those that close after it from below."""
        k = 0
        path: list[Node] = []
        for i, word in enumerate(self.words):
            first = k
            while k < len(self.nodes) and self.nodes[k].start == i:
                k += 1
            opened = self.nodes[first:k]
            path.extend(opened)
            closed = []
            while path and path[-1].end == i + 1:
                closed.append(path.pop())
            yield word, opened, closed


def read_brackets(text: str, labelled: bool | None = None, source: str = "") -> Iterator[Tree]:
    """Yield every tree in `text`; a word alone on its line is a tree of one word.

    Args:
        labelled: whether a token that touches its "(" is a label. By default it is if most such tokens in the text
            are ASCII without lower case, as NP or PRP$; "((" speaks against it. Give it wherever the kind is known.
        source: the name of the text's file, for messages.
    """
    if labelled is None:
        labelled = _looks_labelled(text)
    words: list[str] = []
    nodes: list[Node] = []
    path: list[tuple[int, int]] = []  # of open nodes: index in `nodes`, place in the text
    for token in _TOKEN.finditer(text):
        opening, touching, closing, word = token.groups()
        if opening:
            path.append((len(nodes), token.start()))
            nodes.append(Node(len(words), len(words), touching if labelled else None))
            if touching and not labelled:
                words.append(_unescaped(touching))
        elif closing:
            if not path:
                raise _error('")" without "("', text, token.start(), source)
            k, place = path.pop()
            if nodes[k].start == len(words):
                raise _error("empty brackets", text, place, source)
            nodes[k] = Node(nodes[k].start, len(words), nodes[k].label)
            if not path:
                yield Tree(words=tuple(words), nodes=tuple(nodes))
                words, nodes = [], []
        elif path:
            words.append(_unescaped(word))
        elif _alone(token):
            yield Tree(words=(_unescaped(word),), nodes=())
        else:
            raise _error(f"{word[:40]!r} stands outside the brackets", text, token.start(), source)
    if path:
        raise _error('unclosed "("', text, path[-1][1], source)


def _in_preorder(nodes: Iterable[Node], n: int) -> tuple[Node, ...]:
    """Return the nodes sorted, with one over all n words; raise where they are not a tree."""
    if not n:
        raise ValueError("a tree needs at least one word")
    ordered = [Node(index(i), index(j), label or None) for i, j, label in nodes]
    ordered.sort(key=lambda node: (node.start, -node.end))
    if n > 1 and (not ordered or ordered[0][:2] != (0, n)):
        ordered.insert(0, Node(0, n))
    path: list[Node] = []
    for node in ordered:
        if not 0 <= node.start < node.end <= n:
            raise ValueError(f"span {node[:2]} is not one of 0 <= start < end <= {n}, the number of words")
        if node.label and not _LABEL.fullmatch(node.label):
            raise ValueError(f"label {node.label!r} holds whitespace or parentheses")
        while path and path[-1].end <= node.start:
            path.pop()
        if path and node.end > path[-1].end:
            raise ValueError(f"spans {path[-1][:2]} and {node[:2]} cross")
        path.append(node)
    return tuple(ordered)


def _checked(confidence: Iterable[float], spans: int) -> tuple[float, ...]:
    """Return the numbers as Python's floats; raise where they are not one from 0 to 1 per span."""
    numbers = tuple(map(float, confidence))
    if len(numbers) != spans:
        raise ValueError(f"{len(numbers)} numbers of confidence for {spans} spans: give one per span")
    for number in numbers:
        if not 0 <= number <= 1:
            raise ValueError(f"confidence {number} is not from 0 to 1")
    return numbers


def _looks_labelled(text: str) -> bool:
    heads: list[str] = _HEAD.findall(text)
    upper = [head for head in heads if head and head.isascii() and head == head.upper() and not head[0].isdigit()]
    return 2 * len(upper) > len(heads)


def _unescaped(word: str) -> str:
    return word.replace("-LRB-", "(").replace("-RRB-", ")")


def _alone(token: re.Match[str]) -> bool:
    """Return whether a word has its line of the text to itself."""
    text: str = token.string
    end = text.find("\n", token.end())
    line = text[text.rfind("\n", 0, token.start()) + 1 : end if end >= 0 else None]
    return len(line.strip(" \t\r\f\v")) == token.end() - token.start()


def _error(what: str, text: str, place: int, source: str) -> TreebankError:
    line, column = text.count("\n", 0, place) + 1, place - text.rfind("\n", 0, place)
    where = f"{source}:{line}" if source else f"line {line}, column {column}"
    return TreebankError(f"{where}: {what}")
