"""Pairs of propositional formulas and how they relate (Bowman, Manning & Potts 2015): the language and its files.

A formula is a variable, `( not F )`, `( F ( and F ) )` or `( F ( or F ) )`. Its truth table is one integer, a bit an
assignment, so the relation of two formulas takes a few operations on integers. No torch here.
"""

import codecs
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import NamedTuple

from onlstm.errors import UserError

VARIABLES = ("a", "b", "c", "d", "e", "f")
OPERATORS = ("and", "or", "not")
VOCABULARY = (*VARIABLES, *OPERATORS, "(", ")")
RELATIONS = ("<", ">", "=", "^", "|", "#", "v")
_NAMES = ("forward entailment", "reverse entailment", "equivalence", "negation", "alternation", "independence", "cover")
NAMES: Mapping[str, str] = MappingProxyType(dict(zip(RELATIONS, _NAMES, strict=True)))

_FILE = re.compile(r"(train|test)([0-9]+)(?:\.txt|\.tsv)?")
# Which regions hold an assignment: both true, left alone, right alone, neither. Anything else is "#" too.
_HELD = ((1, 0, 1, 1), (1, 1, 0, 1), (1, 0, 0, 1), (0, 1, 1, 0), (0, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 0))
_OF_REGIONS = dict(zip(_HELD, RELATIONS, strict=True))

_Report = Callable[[str], object]


class Pair(NamedTuple):
    """Two formulas, their tokens separated by single blanks, and how the left one relates to the right one."""

    relation: str
    left: str
    right: str


def operators(formula: str) -> int:
    """Return how many `and`, `or` and `not` there are in a formula.

    >>> operators("( ( not a ) ( and b ) )")
    2
    """
    return sum(map(formula.split().count, OPERATORS))


def length(pair: Pair) -> int:
    """Return the operators of the longer side, 12 for all from 12: the number of the published file it belongs to."""
    return min(12, max(operators(pair.left), operators(pair.right)))


# A predictive parser: what to expect, then the words that may come and what is to be expected after each, last first.
# "x" is a variable; "not)" is the bracket that ends a negation.
_GRAMMAR: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "formula": {"x": (), "(": ("inside",)},
    "inside": {"not": ("not)", "formula"), "x": (")", "second"), "(": (")", "second", "inside")},
    "second": {"(": ("operator",)},
    "operator": {"and": ("and)", "formula"), "or": ("or)", "formula")},
    **{bracket: {")": ()} for bracket in (")", "not)", "and)", "or)")},
    "end": {},
}
_FIXED = frozenset((*OPERATORS, "(", ")"))
_HINTS = {
    **{
        (symbol, word): f"; write ( a ( {word} b ) )"
        for symbol in ("inside", "second", "end")
        for word in ("and", "or")
    },
    ("second", ")"): "; these brackets hold one formula alone",
    ("formula", "not"): '; each "not" has its own brackets: ( not a )',
}


def parse(text: str, variables: Sequence[str] | None = VARIABLES) -> list[str]:
    """Return the variables and operators of a formula in postfix order; `variables` None stands for any names.

    >>> parse("( ( not a ) ( and b ) )")
    ['a', 'not', 'b', 'and']
    >>> parse("( a and b )")
    Traceback (most recent call last):
    onlstm.errors.UserError: token 3 (character 5): "(" expected, found "and"; write ( a ( and b ) )
    """
    postfix: list[str] = []
    expected = ["end", "formula"]
    words = _words(text)
    for number, word in enumerate(words):
        kind = word if word in _FIXED else "x"
        if kind == "x":
            postfix.append(word)
            if variables is not None and word not in variables:
                raise _mistake(text, number, f'unknown word "{word[:40]}"; the variables are {" ".join(variables)}')
        symbol = expected.pop()
        after = _GRAMMAR[symbol].get(kind)
        if after is None:
            raise _mistake(
                text, number, f'{_wanted(symbol)} expected, found "{word[:40]}"{_HINTS.get((symbol, kind), "")}'
            )
        if kind == ")" and symbol != ")":
            postfix.append(symbol[:-1])
        expected += after
    if expected != ["end"]:
        raise _mistake(text, len(words), f"{_wanted(expected[-1])} expected, found the end")
    return postfix


def _words(text: str) -> list[str]:
    return text.replace("(", " ( ").replace(")", " ) ").split()


def _wanted(symbol: str) -> str:
    words = ["a variable" if word == "x" else f'"{word}"' for word in _GRAMMAR[symbol]] or ["the end"]
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _mistake(text: str, number: int, what: str) -> UserError:
    """Return the error at a word, counted from 0, or behind the last."""
    starts = [match.start() for match in re.finditer(r"[()]|[^\s()]+", text)] + [len(text.rstrip())]
    return UserError(f"token {number + 1} (character {starts[number] + 1}): {what}")


def check(text: str, variables: Sequence[str] | None = VARIABLES) -> str:
    """Return the formula with single blanks between its tokens; raise as `parse` where it is none.

    >>> check("(not (a (or b)))")
    '( not ( a ( or b ) ) )'
    """
    parse(text, variables)
    return " ".join(_words(text))


def truth(formula: str, variables: Sequence[str] = VARIABLES) -> int:
    """Return the truth table: bit k is set if the formula holds where exactly the variables i with bit i of k do.

    >>> f"{truth('( a ( or b ) )', 'ab'):04b}"
    '1110'
    """
    of, every = tables(tuple(variables))
    values: list[int] = []
    for word in parse(formula, variables):
        if word == "not":
            values[-1] ^= every
        elif word == "and":
            right = values.pop()
            values[-1] &= right
        elif word == "or":
            right = values.pop()
            values[-1] |= right
        else:
            values.append(of[word])
    return values[0]


@lru_cache
def tables(variables: tuple[str, ...]) -> tuple[dict[str, int], int]:
    """Return the tables of the variables, and the one that holds everywhere."""
    if len(_FIXED.union(variables)) < len(_FIXED) + len(variables):
        raise UserError(
            f"variables are different and none is and, or, not or a bracket: {' '.join(variables)} will not do"
        )
    every = (1 << (1 << len(variables))) - 1
    widths = (1 << i for i in range(len(variables)))  # so many zeros, so many ones, and so on
    return {name: every // ((1 << n) + 1) << n for name, n in zip(variables, widths, strict=True)}, every


def relation(left: str, right: str, variables: Sequence[str] = VARIABLES) -> str:
    """Return the relation of two formulas by their truth tables.

    The seven relations are defined between formulas that are neither always true nor always false; where one side is,
    the answer is "#", as in the published generator.

    >>> relation("( a ( and b ) )", "b"), NAMES[relation("a", "( not a )")]
    ('<', 'negation')
    """
    return related(truth(left, variables), truth(right, variables), tables(tuple(variables))[1])


def related(left: int, right: int, every: int) -> str:
    """Return the relation of two truth tables, as `relation`."""
    return _OF_REGIONS.get((left & right > 0, left & ~right > 0, right & ~left > 0, left | right != every), "#")


def rename(pairs: Iterable[Pair]) -> tuple[list[Pair], dict[str, str]]:
    """Return the pairs in the variables a to f, and what each name became; empty if they had no others.

    If there are others, the first name to appear becomes a, the second b, and so on; six names at most.

    >>> rename([Pair("<", "( p ( and q ) )", "q")])
    ([Pair(relation='<', left='( a ( and b ) )', right='b')], {'p': 'a', 'q': 'b'})
    """
    pairs = list(pairs)
    names = dict.fromkeys(word for pair in pairs for side in pair[1:] for word in side.split() if word not in _FIXED)
    if names.keys() <= set(VARIABLES):
        return pairs, {}
    _at_most_six(names)
    mapping = dict(zip(names, VARIABLES, strict=False))
    renamed = [[" ".join(mapping.get(word, word) for word in side.split()) for side in pair[1:]] for pair in pairs]
    return [Pair(pair.relation, *sides) for pair, sides in zip(pairs, renamed, strict=True)], mapping


def _at_most_six(names: Mapping[str, None]) -> None:
    if len(names) > len(VARIABLES):
        raise UserError(f"{len(names)} variables ({' '.join(names)}); there may be {len(VARIABLES)}")


def read(path: str | Path, on_defect: _Report | None = None) -> Iterator[Pair]:
    """Yield the pairs of a file, or of the files train0 …, test0 … in a folder or zip; of any six variables.

    Each line is relation, left and right formula with tabs between. The relation is not compared with the truth.

    Args:
        on_defect: called with file, line and what is wrong with it, and the line is left out; by default it is raised.
    """
    names: dict[str, None] = {}
    for name, data in _files(Path(path)):
        yield from _pairs(name, data, names, on_defect)


def published(path: str | Path, on_defect: _Report | None = None) -> dict[str, dict[int, list[Pair]]]:
    """Return {"train": {0: pairs, 1: …}, "test": {…}} of a folder or zip of files train0 …, test0 …; see `read`."""
    names: dict[str, None] = {}
    found: dict[str, dict[int, list[Pair]]] = {"train": {}, "test": {}}
    for name, data in _files(Path(path)):
        if match := _FILE.fullmatch(PurePosixPath(name).name):
            found[match[1]].setdefault(int(match[2]), []).extend(_pairs(name, data, names, on_defect))
    for kind, groups in found.items():
        if not any(groups.values()):
            raise UserError(f"{path}: no pairs in files {kind}0, {kind}1, …; a folder or zip of them is needed")
    return found


def _pairs(name: str, data: bytes, names: dict[str, None], on_defect: _Report | None) -> Iterator[Pair]:
    for number, line in enumerate(data.removeprefix(codecs.BOM_UTF8).split(b"\n"), 1):
        try:
            if line.strip():
                yield _pair(line, names)
        except UserError as error:
            if on_defect is None:
                raise UserError(f"{name}:{number}: {error}") from None
            on_defect(f"{name}:{number}: {error}")


def _pair(line: bytes, names: dict[str, None]) -> Pair:
    """Return the pair in a line; new variables join `names`, which become six at most."""
    try:
        fields = [field.strip() for field in line.decode().split("\t")]
    except UnicodeDecodeError:
        raise UserError("not UTF-8") from None
    if len(fields) != 3:
        raise UserError(f"relation, left and right formula with tabs between are needed, not {len(fields)} field(s)")
    if fields[0] not in NAMES:
        raise UserError(f'unknown relation "{fields[0][:40]}"; one of {" ".join(RELATIONS)} is needed')
    for side, text in zip(("left", "right"), fields[1:], strict=True):
        full = len(names) == len(VARIABLES)
        try:
            words = parse(text, tuple(names) if full else None)
        except UserError as error:
            raise UserError(f"{side} formula, {error}") from None
        if not full:
            _at_most_six(seen := names | dict.fromkeys(word for word in words if word not in _FIXED))
            names.update(seen)
    return Pair(fields[0], *(" ".join(_words(text)) for text in fields[1:]))


def _files(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and bytes of the file, or of the data files in a folder or zip, or in the one zip of a folder."""
    try:
        if path.is_dir():
            inside = [file for depth in ("*", "*/*") for file in path.glob(depth)]
            zips = [file for file in inside if file.suffix.lower() == ".zip"]
            if len(zips) == 1 and not any(_FILE.fullmatch(file.name) for file in inside):
                yield from _files(zips[0])
                return
            for name in _data_files(path, [file.relative_to(path).as_posix() for file in inside]):
                yield str(path / name), (path / name).read_bytes()
        elif zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                for name in _data_files(path, archive.namelist()):
                    yield f"{path}/{name}", archive.read(name)
        elif path.suffix.lower() == ".zip" and path.exists():
            raise OSError("a damaged zip, or none")
        else:
            yield str(path), path.read_bytes()
    except (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"cannot read the pairs in {path}: {getattr(error, 'strerror', None) or error}") from None


def _data_files(path: Path, names: Iterable[str]) -> list[str]:
    """Return the files train0 …, then test0 …, of the outermost folder that has any."""
    found = [name for each in names if _FILE.fullmatch((name := PurePosixPath(each)).name)]
    outermost = min((len(name.parts) for name in found), default=0)
    found = [name for name in found if len(name.parts) == outermost]
    folders = sorted({str(name.parent) for name in found})
    if len(folders) != 1:
        what = f"has several sets of them, in {', '.join(folders)}: name one" if folders else "has none"
        raise UserError(f"pairs are in files train0, train1, …, test0, test1, …; {path} {what}")
    return [str(name) for name in sorted(found, key=lambda name: (name.name[:2] == "te", len(name.stem), name.stem))]
