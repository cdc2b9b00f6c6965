"""Treebanks in brackets: the reader of text that holds trees.

Files come with defects, and one broken tree must not cost the others: the reader yields a `Defect` and goes on.
"""

import re
from collections.abc import Iterator, Sequence
from sys import intern

from onlstm.trees.tree import TreebankError
from onlstm.trees.treebank.profile import Profile
from onlstm.trees.treebank.sentence import Bracket, Defect, Leaf, Sentence, build

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
    for match in comment.finditer(text):
        yield Defect("comment", text.count("\n", 0, match.start()) + 1)
    text = comment.sub("", text)
    undecoded = bool(_UNDECODED.search(text))
    line, place = 1, 0
    for start, piece, balanced in _pieces(text):
        line += text.count("\n", place, start)
        place = start
        if not balanced:
            yield Defect('unclosed "("' if piece.count("(") > piece.count(")") else '")" without "("', line)
        elif undecoded and _UNDECODED.search(piece):
            yield Defect(f"not {profile.encoding or 'UTF-8'}", line)
        elif piece.startswith("("):
            try:
                leaves, brackets = _parse(piece, profile.fields)
            except TreebankError as error:
                yield Defect(str(error), line)
            else:
                yield build(leaves, brackets, line, profile, punctuation)
        else:
            for k, outside in enumerate(piece.split("\n")):
                if outside and not outside.isspace():
                    yield Defect("text outside brackets", line + k)


def _pieces(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield the place and text of each outermost bracket and of what stands between them, and whether it balances."""
    whole = _balanced(text)
    offset = 0
    for block in [text] if whole else _TREE_START.split(text):
        balanced = whole or _balanced(block)
        place = depth = 0
        for bracket in _BRACKET.finditer(block) if balanced else ():
            if bracket[0] == "(":
                if depth == 0:
                    yield offset + place, block[place : bracket.start()], True
                    place = bracket.start()
                depth += 1
            else:
                depth -= 1
                if depth == 0:
                    yield offset + place, block[place : bracket.end()], True
                    place = bracket.end()
        yield offset + place, block[place:], balanced
        offset += len(block)


def _balanced(text: str) -> bool:
    depth = 0
    for bracket in _BRACKET.findall(text):
        depth += 1 if bracket == "(" else -1
        if depth < 0:
            return False
    return depth == 0


def _parse(piece: str, names: Sequence[str]) -> tuple[tuple[Leaf, ...], tuple[Bracket, ...]]:
    """Return the leaves of one balanced bracket and the brackets over them, in preorder."""
    leaves: list[Leaf] = []
    starts: list[int] = []  # of the nodes: their first leaves, ends and labels
    ends: list[int] = []
    labels: list[str] = []
    path: list[int] = []  # the open ones, by index
    fields: list[str] = []  # the tokens since the last bracket
    which, most = names.index("word"), len(names)
    for tag, word, label, closing, token in _TOKEN.findall(piece):
        if token:
            if not token.isspace():  # no-break spaces may be in a word, but files are indented with them too
                fields.append(token)
            continue
        leaf = closing and starts[path[-1]] == len(leaves)
        if fields and not leaf:
            raise TreebankError("word beside brackets")
        if tag and not word.isspace():
            leaves.append((intern(tag), intern(word)))  # few are distinct: this halves a large treebank
        elif not closing and not tag:
            path.append(len(starts))
            starts.append(len(leaves))
            ends.append(0)
            labels.append(intern(label))
        elif closing and not leaf:
            ends[path.pop()] = len(leaves)
        elif 0 < len(fields) <= most:
            path.pop()
            starts.pop()
            ends.pop()
            leaves.append((labels.pop(), fields[min(which, len(fields) - 1)]))
            fields.clear()
        else:
            raise TreebankError("leaf of too many parts" if fields else "empty brackets")
    return tuple(leaves), tuple(zip(starts, ends, labels, strict=True))
