"""Treebanks in brackets: `Profile`, all there is to know of one kind of them, and the reader that goes by it.

A new kind or language is one more `Profile`: which tags are words, punctuation, nulls, and how a leaf is written.
Files come with defects, and one broken tree must not cost the others: the reader yields a `Defect` and goes on.
"""

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import accumulate, compress
from typing import NamedTuple

from onlstm.trees.tree import Node, Tree, TreebankError

_TOKEN = re.compile(r"\(\s*([^\s()]*)|(\))|([^\s()]+)", re.ASCII)
_BRACKET = re.compile(r"[()]")
_TREE_START = re.compile(r"^(?=\()", re.MULTILINE)
_COMMENT = re.compile(r"^#.*", re.MULTILINE)
_FUNCTION = re.compile(r"(?<=.)[-=].*")

Tags = Collection[str] | Callable[[str], bool]


def bare_label(label: str) -> str:
    """Return the label without function tags and indices, that is cut at its first - or =.

    >>> bare_label("NP-SBJ-1"), bare_label("PP=2"), bare_label("-NONE-")
    ('NP', 'PP', '-NONE-')
    """
    return _FUNCTION.sub("", label) if label[:1] != "-" else label


@dataclass(frozen=True, kw_only=True)
class Profile:
    """How one kind of treebank is read; sets of tags may also be predicates."""

    name: str
    """As in `PROFILES`."""
    words: Tags | None = None
    """Tags of words; by default all that are not punctuation, nulls or markup."""
    punctuation: Tags = ()
    """Tags of punctuation. A tag that is in no set, where `words` is given, is treated like one."""
    nulls: Tags = ("-NONE-",)
    """Tags of leaves that no one wrote or said: never kept."""
    null_tokens: Tags = ()
    """The same by the leaf's token, for kinds that give nulls other tags."""
    markup: Tags = ("CODE",)
    """Tags of leaves that are not text: never kept, and a tree of nothing else is a defect."""
    roots: Tags = ("", "TOP", "ROOT")
    """Labels of an outermost bracket that is no constituent."""
    fields: int = 1
    """The most tokens a leaf may have after its tag; the first is the word."""
    spell: Callable[[str], str] = str
    """From that token to the word."""
    label: Callable[[str], str] = bare_label
    """From a node's label to the one that is kept."""
    encoding: str = "utf-8-sig"
    """Of its files."""
    suffixes: tuple[str, ...] = (".mrg", ".psd", ".ptb", ".tree", ".trees", ".parse", ".brackets", ".tbf", ".txt")
    """Names of its files end so, in any case; in a folder those with the first suffix that occurs are read."""

    def keeps(self, tag: str, token: str, punctuation: bool = False) -> bool:
        """Return whether a leaf is a word; with `punctuation`, whether it is text at all."""
        if _among(self.nulls, tag) or _among(self.markup, tag) or _among(self.null_tokens, token):
            return False
        if punctuation:
            return True
        return not _among(self.punctuation, tag) if self.words is None else _among(self.words, tag)


class Sentence(NamedTuple):
    """A gold tree without tags among its nodes; the tags, one per word; the length in words; the line it starts on."""

    tree: Tree | None
    """None where no word is left."""
    tags: tuple[str, ...]
    length: int
    line: int


class Defect(NamedTuple):
    """Something that is not a tree; the line it starts on."""

    what: str
    line: int


def read_text(text: str, profile: Profile, punctuation: bool = False) -> Iterator[Sentence | Defect]:
    """Yield what `text` holds: comments, that is lines that start with "#", then the trees and defects in order.

    In a text whose brackets do not balance, a tree starts at every "(" in the first column of a line, and those that
    do not balance are the defects.

    >>> [sentence] = read_text("( (S (NP-SBJ (PRP We)) (VP (VBD slept)) (. .)) )", PTB)
    >>> print(sentence.tree, *sentence.tags)
    (S (NP We) (VP slept)) PRP VBD
    """
    for comment in _COMMENT.finditer(text):
        yield Defect("comment", text.count("\n", 0, comment.start()) + 1)
    text = _COMMENT.sub("", text)
    line, place = 1, 0
    for start, piece in _pieces(text):
        line += text.count("\n", place, start)
        place = start
        if not _balanced(piece):
            yield Defect('unclosed "("' if piece.count("(") > piece.count(")") else '")" without "("', line)
        elif piece.startswith("("):
            yield _sentence(piece, line, profile, punctuation)
        else:
            for k, outside in enumerate(piece.split("\n")):
                if outside and not outside.isspace():
                    yield Defect("text outside brackets", line + k)


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """Yield the place and text of each outermost bracket and of what stands between them."""
    blocks = [text] if _balanced(text) else _TREE_START.split(text)
    offset = 0
    for block in blocks:
        place = depth = 0
        for bracket in _BRACKET.finditer(block) if _balanced(block) else ():
            if bracket[0] == "(":
                if depth == 0:
                    yield offset + place, block[place : bracket.start()]
                    place = bracket.start()
                depth += 1
            else:
                depth -= 1
                if depth == 0:
                    yield offset + place, block[place : bracket.end()]
                    place = bracket.end()
        yield offset + place, block[place:]
        offset += len(block)


def _balanced(text: str) -> bool:
    depth = 0
    for bracket in _BRACKET.findall(text):
        depth += 1 if bracket == "(" else -1
        if depth < 0:
            return False
    return depth == 0


def _sentence(piece: str, line: int, profile: Profile, punctuation: bool) -> Sentence | Defect:
    """Return the sentence of one balanced bracket."""
    try:
        leaves, brackets = _parse(piece, profile.fields)
    except TreebankError as error:
        return Defect(str(error), line)
    if all(_among(profile.markup, tag) for tag, _ in leaves):
        return Defect("markup only", line)
    keeps = [profile.keeps(tag, token, punctuation) for tag, token in leaves]
    before = [0, *accumulate(keeps)]  # how many leaves are kept before each
    spans = [(before[i], before[j], profile.label(label or "")) for i, j, label in brackets]
    nodes = [Node(*span) for span in spans if span[0] < span[1]]
    if brackets and _among(profile.roots, brackets[0].label or ""):
        nodes = nodes[1:]
    tags = tuple(tag for tag, _ in compress(leaves, keeps))
    words = tuple(profile.spell(token) for _, token in compress(leaves, keeps))
    tree = Tree(words=words, nodes=tuple(nodes)) if words else None
    return Sentence(tree, tags, sum(profile.keeps(*leaf) for leaf in leaves), line)


def _parse(piece: str, most: int) -> tuple[list[tuple[str, str]], list[Node]]:
    """Return the leaves of one balanced bracket as (tag, first token), and the nodes over them in preorder."""
    leaves: list[tuple[str, str]] = []
    nodes: list[Node] = []
    path: list[int] = []  # the open brackets, by index in nodes
    fields: list[str] = []  # the tokens since the last bracket
    for found in _TOKEN.finditer(piece):
        label, closing, field = found.groups()
        if field:
            if not field.isspace():  # no-break spaces may be in a word, but files are indented with them too
                fields.append(field)
            continue
        leaf = closing and nodes[path[-1]].start == len(leaves)
        if fields and not leaf:
            raise TreebankError("word beside brackets")
        if not closing:
            path.append(len(nodes))
            nodes.append(Node(len(leaves), len(leaves), label))
        elif not leaf:
            k = path.pop()
            nodes[k] = nodes[k]._replace(end=len(leaves))
        elif 0 < len(fields) <= most:
            path.pop()
            leaves.append((nodes.pop().label or "", fields[0]))
            fields.clear()
        else:
            raise TreebankError("leaf of too many parts" if fields else "empty brackets")
    return leaves, nodes


def _among(tags: Tags, tag: str) -> bool:
    return tags(tag) if callable(tags) else tag in tags


_WORD_TAGS = (
    "CC CD DT EX FW IN JJ JJR JJS LS MD NN NNS NNP NNPS PDT POS PRP PRP$ RB RBR RBS RP SYM TO UH "
    "VB VBD VBG VBN VBP VBZ WDT WP WP$ WRB"
)
_PUNCTUATION = frozenset((".", ",", ":", "''", "``", "-LRB-", "-RRB-"))

PTB = Profile(name="ptb", words=frozenset(_WORD_TAGS.split()), punctuation=_PUNCTUATION)
"""The Penn Treebank as unsupervised parsing reads it: the 36 word tags, so no "$" and "#" either."""

PTB_WIDE = Profile(name="ptb-wide", punctuation=_PUNCTUATION)
"""The same with all that is not punctuation: "$", "#", and the tags of later treebanks in this style."""
