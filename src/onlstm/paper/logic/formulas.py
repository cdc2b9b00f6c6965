"""Pairs of propositional formulas and how they relate (Bowman, Manning & Potts 2015): the language and its files.

A formula is a variable, `( not F )`, `( F ( and F ) )` or `( F ( or F ) )`. Its truth table is one integer, a bit for
each assignment, so the relation of two formulas takes a few operations on integers. No torch here.
"""

import codecs
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from onlstm import archive
from onlstm.errors import UserError

Say = Callable[[str], None]

VARIABLES = ("a", "b", "c", "d", "e", "f")
OPERATORS = ("and", "or", "not")
VOCABULARY = (*VARIABLES, *OPERATORS, "(", ")")
RELATIONS = ("<", ">", "=", "^", "|", "#", "v")
_NAMES = ("forward entailment", "reverse entailment", "equivalence", "negation", "alternation", "independence", "cover")
NAMES = dict(zip(RELATIONS, _NAMES, strict=True))

EVERYWHERE = (1 << 64) - 1
"""The truth table, a bit for each of 64 assignments, of what always holds."""
TABLES = {name: EVERYWHERE // ((1 << (1 << i)) + 1) << (1 << i) for i, name in enumerate(VARIABLES)}
"""Those of the variables: 1 << i zeros, 1 << i ones, and so on."""

_FIXED = frozenset((*OPERATORS, "(", ")"))
_FILE = re.compile(r"(train|test)[0-9]+(\.txt|\.tsv)?")
# Which regions hold an assignment: both true, left alone, right alone, neither. Anything else is "#" too.
_REGIONS = ((1, 0, 1, 1), (1, 1, 0, 1), (1, 0, 0, 1), (0, 1, 1, 0), (0, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 0))
_RELATION: dict[tuple[int, ...], str] = dict(zip(_REGIONS, RELATIONS, strict=True))
_AND, _OR = "( and F )", "( or F )"
_INSIDE: dict[tuple[str, ...], str]
_INSIDE = {("not", "F"): "F", ("and", "F"): _AND, ("or", "F"): _OR, ("F", _AND): "F", ("F", _OR): "F"}
"""What two things in brackets are together."""


class Pair(NamedTuple):
    """Two formulas, their tokens separated by single spaces, and how the left one relates to the right one."""

    relation: str
    left: str
    right: str

    @classmethod
    def checked(cls, relation: str, left: str, right: str) -> "Pair":
        """Return the pair of two formulas in any variables and with any whitespace.

        >>> Pair.checked("#", "(not (a (or b)))", "c").left
        '( not ( a ( or b ) ) )'
        """
        for side, text in (("left", left), ("right", right)):
            try:
                parse(text)
            except UserError as error:
                raise UserError(f"{side} formula, {error}") from None
        return cls(relation, " ".join(_words(left)), " ".join(_words(right)))

    @property
    def truth(self) -> str:
        """The relation by the truth tables."""
        return relation(truth(self.left), truth(self.right))

    @property
    def length(self) -> int:
        """The operators of the longer side, 12 for all from 12: the number of the published file it belongs to."""
        return min(12, max(operators(self.left), operators(self.right)))


def operators(formula: str) -> int:
    """Return how many `and`, `or` and `not` there are in a formula.

    >>> operators("( ( not a ) ( and b ) )")
    2
    """
    return sum(map(formula.split().count, OPERATORS))


def parse(text: str) -> list[str]:
    """Return the variables, of any names, and operators of a formula in postfix order.

    >>> parse("( ( not a ) ( and b ) )")
    ['a', 'not', 'b', 'and']
    >>> parse("( a and b )")
    Traceback (most recent call last):
    onlstm.errors.UserError: token 5: ( F and F ) is no formula; write ( not F ), ( F ( and F ) ) or ( F ( or F ) )
    """
    postfix: list[str] = []
    open_brackets: list[list[str]] = [[]]
    for number, word in enumerate(_words(text), 1):
        if word == "(":
            open_brackets.append([])
        elif word == ")":
            inside = open_brackets.pop()
            kind = _INSIDE.get(tuple(inside))
            if kind is None or not open_brackets:
                raise _mistake(number, f"( {' '.join(inside)} )" if open_brackets else ")")
            open_brackets[-1].append(kind)
            postfix += [inside[0]] if inside[0] in OPERATORS else []
        elif word in OPERATORS:
            open_brackets[-1].append(word)
        else:
            open_brackets[-1].append("F")
            postfix.append(word)
    if open_brackets != [["F"]]:
        raise _mistake(len(_words(text)), " ( ".join(" ".join(inside) for inside in open_brackets).strip() or "nothing")
    return postfix


def _words(text: str) -> list[str]:
    return text.replace("(", " ( ").replace(")", " ) ").split()


def _mistake(number: int, what: str) -> UserError:
    return UserError(f"token {number}: {what:.40} is no formula; write ( not F ), ( F ( and F ) ) or ( F ( or F ) )")


def truth(formula: str) -> int:
    """Return the truth table: bit k is set if the formula holds where exactly the variables i with bit i of k do.

    >>> truth("( a ( and ( not a ) ) )"), truth("( a ( or ( not a ) ) )") == EVERYWHERE
    (0, True)
    """
    values: list[int] = []
    for word in parse(formula):
        if word == "not":
            values.append(values.pop() ^ EVERYWHERE)
        elif word == "and":
            values.append(values.pop() & values.pop())
        elif word == "or":
            values.append(values.pop() | values.pop())
        else:
            values.append(TABLES[word])
    return values[0]


def relation(left: int, right: int) -> str:
    """Return the relation of two formulas, given their truth tables.

    The seven relations are defined between formulas that are neither always true nor always false; where one side is,
    the answer is "#", as in the published generator.

    >>> relation(truth("( a ( and b ) )"), truth("b"))
    '<'
    """
    regions = left & right, left & ~right, right & ~left, EVERYWHERE ^ (left | right)
    return _RELATION.get(tuple(map(bool, regions)), "#")


def rename(
    pairs: Iterable[Pair], say: Say = lambda line: None, known: Mapping[str, str] | None = None
) -> tuple[list[Pair], dict[str, str]]:
    """Return the pairs in the variables a to f, and the new name of each old one; empty if none changes.

    Names that are `known` from earlier pairs become what they were there. If others than a to f are left, which `say`
    is told, the first to appear becomes the first free one of a to f, and so on; six at most.

    >>> rename([Pair("<", "( p ( and q ) )", "q")])
    ([Pair(relation='<', left='( a ( and b ) )', right='b')], {'p': 'a', 'q': 'b'})
    """
    pairs = list(pairs)
    names = dict.fromkeys(name for pair in pairs for name in _variables(pair))
    mapping = {name: new for name, new in (known or {}).items() if name in names}
    if not mapping and names.keys() <= set(VARIABLES):
        return pairs, {}
    _at_most_six(names)
    free = [name for name in VARIABLES if name not in mapping.values()]
    mapping |= zip([name for name in names if name not in mapping], free, strict=False)
    if all(old == new for old, new in mapping.items()):
        return pairs, {}
    say("Variables renamed: " + ", ".join(f"{old} is {new}" for old, new in mapping.items()))
    renamed = [[" ".join(mapping.get(word, word) for word in side.split()) for side in pair[1:]] for pair in pairs]
    return [Pair(pair.relation, *sides) for pair, sides in zip(pairs, renamed, strict=True)], mapping


def _variables(pair: Pair) -> list[str]:
    return [word for word in f"{pair.left} {pair.right}".split() if word not in _FIXED]


def _at_most_six(names: Iterable[str]) -> None:
    if len(names := list(names)) > len(VARIABLES):
        raise UserError(f"{len(names)} variables ({' '.join(names)}); there may be {len(VARIABLES)}")


def read(path: str | Path) -> dict[str, list[Pair]]:
    """Return the pairs of a file, or of the files train0 …, test0 … in a folder or archive, by the name of the file.

    Each line is relation, left and right formula with tabs between, in any six variables. The relation is not compared
    with the truth.
    """
    names: dict[str, None] = {}
    pairs: dict[str, list[Pair]] = {}
    for member in archive.members(Path(path), partial(_data_files, path)):
        file = pairs.setdefault(PurePosixPath(member.name).name, [])
        for number, line in enumerate(member.data.removeprefix(codecs.BOM_UTF8).split(b"\n"), 1):
            try:
                if line.strip():
                    file.append(_pair(line))
                    names |= dict.fromkeys(_variables(file[-1]))
                    _at_most_six(names)
            except UserError as error:
                raise UserError(f"{member.place}:{number}: {error}") from None
    return pairs


def _pair(line: bytes) -> Pair:
    try:
        fields = [field.strip() for field in line.decode().split("\t")]
    except UnicodeDecodeError:
        raise UserError("not UTF-8") from None
    if len(fields) != 3:
        raise UserError(f"relation, left and right formula with tabs between are needed, not {len(fields)} field(s)")
    if fields[0] not in NAMES:
        raise UserError(f'unknown relation "{fields[0]:.40}"; one of {" ".join(RELATIONS)} is needed')
    return Pair.checked(*fields)


def _data_files(place: str | Path, names: list[str]) -> list[str]:
    """Return the files train0 …, then test0 …, of the one folder that has any."""
    paths = [path for path in map(PurePosixPath, names) if _FILE.fullmatch(path.name)]
    folders = sorted({str(path.parent) for path in paths})
    if len(folders) != 1:
        what = f"several sets of them, in {', '.join(folders)}: name one" if folders else "none there"
        raise UserError(f"{place}: pairs are in files train0, train1, …, test0, test1, …: {what}")
    return [str(path) for path in sorted(paths, key=lambda path: (path.name[:2] == "te", len(path.stem), path.stem))]
