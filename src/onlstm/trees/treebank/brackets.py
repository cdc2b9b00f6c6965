"""Treebanks in brackets: the reader of text that holds trees.

Files come with defects, and one broken tree must not cost the others: the reader yields a `Defect` and continues.
"""

import re
from collections.abc import Iterator
from sys import intern

from onlstm.trees.tree import TreebankError
from onlstm.trees.treebank.profile import Profile
from onlstm.trees.treebank.sentence import Bracket, Defect, Leaf, Sentence, build

LARGEST_TREE = 1 << 22
"""Characters of the largest tree that is read: about a hundred times the longest sentence of a real treebank."""

_BLOCK = 1 << 20
_TOKEN = re.compile(  # a leaf of one field, which most are; or "(" and label; or ")"; or a field
    r"\(\s*([^\s()]+)\s+([^\s()]+)\s*\)|\(\s*([^\s()]*)|(\))|([^\s()]+)", re.ASCII
)
_BRACKET = re.compile(r"[()]")
_TREE_START = re.compile(r"^(?=\()", re.MULTILINE)
_UNDECODED = re.compile("[\udc80-\udcff]")  # what "surrogateescape" makes of bytes


def read_text(text: str, profile: Profile, punctuation: bool = False) -> Iterator[Sentence | Defect]:
    """Yield what `text` holds: its comment lines, then the trees and defects in order.

    In a text whose brackets do not balance, a tree starts at every "(" in the first column of a line, and the trees
    that do not balance are the defects.

    >>> from onlstm.trees.treebank import load_profile
    >>> [sentence] = read_text("( (S (NP-SBJ (PRP We)) (VP (VBD slept)) (. .)) )", load_profile("ptb"))
    >>> print(sentence.tree, *sentence.tags)
    (S (NP We) (VP slept)) PRP VBD
    """
    for old, new in profile.replace:
        text = re.sub(old, new, text, flags=re.MULTILINE)
    comment = re.compile(rf"^(?:{'|'.join(map(re.escape, profile.comments)) or '(?!)'}).*", re.MULTILINE)
    line, place = 1, 0
    for match in comment.finditer(text):
        line, place = line + text.count("\n", place, match.start()), match.start()
        yield Defect("comment", line, "line")
    line = 1
    for piece, balanced in _pieces(comment.sub("", text)):
        if not balanced:
            yield Defect('unclosed "("' if piece.count("(") > piece.count(")") else '")" without "("', line)
        elif not piece.isascii() and _UNDECODED.search(piece):
            yield Defect(f"not {profile.encoding or 'UTF-8'}", line)
        elif piece.startswith("("):
            try:
                if len(piece) > LARGEST_TREE:
                    raise TreebankError(f"more than {LARGEST_TREE:,} characters in one tree")
                yield build(*_parse(piece, profile), line, 0, profile, punctuation)
            except TreebankError as error:
                yield Defect(str(error), line)
        else:
            outside = enumerate(piece.split("\n"), start=line)
            yield from (Defect("text outside brackets", k, "line") for k, content in outside if content.strip())
        line += piece.count("\n")


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    """Yield all of the text in order, as outermost brackets and what stands between, and whether each balances."""
    whole = _balanced(text)
    for block in [text] if whole else _TREE_START.split(text):
        balanced = whole or _balanced(block)
        place = depth = 0
        for bracket in _BRACKET.finditer(block) if balanced else ():
            before = depth
            depth += 1 if bracket[0] == "(" else -1
            if not before or not depth:
                end = bracket.end() if before else bracket.start()
                yield block[place:end], True
                place = end
        yield block[place:], balanced


def _balanced(text: str) -> bool:
    depth = 0
    for place in range(0, len(text), _BLOCK):  # by blocks: a list of all brackets may not fit into memory
        for bracket in _BRACKET.findall(text, place, place + _BLOCK):
            depth += 1 if bracket == "(" else -1
            if depth < 0:
                return False
    return depth == 0


def _parse(piece: str, profile: Profile) -> tuple[tuple[Leaf, ...], tuple[Bracket, ...]]:
    """Return the leaves of one balanced bracket and the brackets over them, in preorder."""
    leaves, nodes = list[Leaf](), list[Bracket]()
    path = list[int]()  # the open nodes, by index
    fields = list[str]()  # the tokens since the last bracket
    for tag, word, label, closing, token in _TOKEN.findall(piece):
        if token:
            if not token.isspace():  # no-break spaces may be in a word, but files are indented with them too
                fields.append(token)
            continue
        start, _, name = nodes[path[-1]] if closing else (0, 0, "")
        leaf = closing and start == len(leaves)
        if fields and not leaf:
            raise TreebankError("word beside brackets")
        if tag and not word.isspace():
            leaves.append((intern(tag), intern(word)))  # few are distinct: this halves a large treebank
        elif not closing and not tag:
            path.append(len(nodes))
            nodes.append((len(leaves), 0, intern(label)))
        elif closing and not leaf:
            nodes[path.pop()] = (start, len(leaves), name)
        elif 0 < len(fields) <= len(profile.fields):
            del nodes[path.pop()]
            leaves.append((name, fields[min(profile.fields.index("word"), len(fields) - 1)]))
            fields.clear()
        else:
            raise TreebankError("leaf of too many parts" if fields else "empty brackets")
    return tuple(leaves), tuple(nodes)
