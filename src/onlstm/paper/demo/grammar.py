"""Grammars that write sentences with their trees: context-free, with weights and features, in plain text.

`english.txt`, the default of `onlstm demo`, begins with the notation. No alternative is empty and no symbol
comes back to itself alone, so a derivation that goes on makes the sentence longer: each draw ends, with a tree or past
the limit on its length.
"""

import math
import random
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from itertools import accumulate, product
from pathlib import Path
from typing import NamedTuple

from onlstm.errors import UserError
from onlstm.trees.tree import Node, Tree

LONGEST = 20
"""Words of a sentence at most, or twice as many as the grammar's shortest one has, if that is more."""

_START = "_ "  # nobody can write it
_ARROW = re.compile("->|→")
_COMMENT = re.compile(r"(?:^|\s)#.*")
_FEATURE = re.compile(r"\[([^\s\[\],]+)\]\s*=\s*([^\s\[\],].*)")
_TOKEN = re.compile(r"""(?P<quote>['"])(?P<word>[^\s'"]+|[^\s"]+?|[^\s']+?)(?P=quote)(?=[\s|]|$)|\||[^\s|]+""")
_WEIGHT = re.compile(r"(?:[-+]?\.?\d|\[).*")
_PHRASE = re.compile(r"""(?:^|(?<=\s))(['"])[^\s'"|]+(?:\s+[^\s'"|]+)+\1(?=[\s|]|$)""")
_SYMBOL = re.compile(r"([^\s\[\]()'\"]+)(?:\[([^\s\[\]()'\"]+)\])?")


class Part(NamedTuple):
    """A word, or a symbol with its features."""

    text: str
    is_word: bool


class Rule(NamedTuple):
    """One alternative of a symbol."""

    weight: float
    parts: tuple[Part, ...]
    line: int
    least: float = math.inf
    """Words that come of it at least."""


@dataclass(frozen=True, kw_only=True)
class Grammar:
    """A weighted context-free grammar.

    >>> grammar = Grammar.of_text("[n] = sg pl\\n S -> NP[n] VP[n]\\n NP[sg] -> he\\n NP[pl] -> they"
    ...     "\\n VP[sg] -> sleeps | sees NP[n] 0.5\\n VP[pl] -> sleep")
    >>> print(*(grammar.draw(random.Random(seed)) for seed in (3, 9)), sep="\\n")
    (S they sleep)
    (S he (VP sees they))
    """

    rules: Mapping[str, tuple[Rule, ...]]
    """By symbol, features written out; those of a sentence first."""
    source: str
    """The file, for messages."""
    shortest: Mapping[str, float]
    """How many words a symbol has at least."""
    sums: Mapping[str, tuple[float, ...]]
    """The weights of its rules, added up one after the other, for drawing."""

    @classmethod
    def load(cls, path: Path | None = None) -> "Grammar":
        """Return the grammar of a file; by default, of English."""
        if path is None:
            return cls.of_text((resources.files("onlstm.paper.demo") / "english.txt").read_text("utf-8"), "english")
        try:
            return cls.of_text(path.read_text("utf-8-sig"), str(path))
        except OSError as error:
            raise UserError(f"--grammar {path}: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise UserError(f"--grammar {path}: not a text file in UTF-8") from None

    @classmethod
    def of_text(cls, text: str, source: str = "grammar") -> "Grammar":
        """Return the grammar that is written in `text`, or say in which line it is wrong."""
        rules = _read(text, source)
        _check_defined(rules, source)
        shortest = _shortest(rules)
        _check_ends(rules, shortest, source)
        _check_circles(rules, source)
        rules = {s: tuple(rule._replace(least=_least(rule, shortest)) for rule in own) for s, own in rules.items()}
        sums = {symbol: tuple(accumulate(rule.weight for rule in own)) for symbol, own in rules.items()}
        return cls(rules=rules, source=source, shortest=shortest, sums=sums)

    @property
    def words(self) -> list[str]:
        """Every word, once, sorted."""
        return sorted({part.text for own in self.rules.values() for rule in own for part in rule.parts if part.is_word})

    @property
    def longest(self) -> int:
        """Words of a sentence at most."""
        return max(LONGEST, 2 * int(self.shortest[_START]))

    def draw(self, rng: random.Random) -> Tree | None:
        """Return a sentence's tree, its nodes longer than a word; None for a sentence that would be too long."""
        words: list[str] = []
        nodes: list[Node] = []
        room = self.longest - self.shortest[_START]
        stack: list[Part | Node] = [Part(_START, False)]
        while stack:
            top = stack.pop()
            if isinstance(top, Node):
                node = Node(top.start, len(words), top.label)
                if node.end - node.start > 1 and nodes[-1:] != [node]:  # the same again: by a unary rule
                    nodes.append(node)
            elif top.is_word:
                words.append(top.text)
            else:
                [rule] = rng.choices(self.rules[top.text], cum_weights=self.sums[top.text])
                room -= rule.least - self.shortest[top.text]
                if room < 0:
                    return None
                if top.text[0] != "_" and (len(rule.parts) > 1 or not rule.parts[0].is_word):
                    stack.append(Node(len(words), 0, _label(top.text)))
                stack.extend(reversed(rule.parts))
        return Tree(words=tuple(words), nodes=tuple(reversed(nodes)))

    def trees(self, count: int, rng: random.Random) -> Iterator[Tree]:
        """Yield `count` trees; a grammar of hardly any short sentences is an error."""
        found = drawn = 0
        while found < count:
            if drawn >= 10_000 and found < drawn / 100:
                raise UserError(
                    f"{self.source}: of {drawn:,} sentences drawn, {found:,} have at most {self.longest} words: "
                    "give smaller weights to the alternatives in which a symbol contains itself"
                )
            drawn += 1
            if tree := self.draw(rng):
                found += 1
                yield tree


def _read(text: str, source: str) -> dict[str, tuple[Rule, ...]]:
    """Return the rules, features written out, those of the sentence first; whether they fit is not looked at."""
    features: dict[str, list[str]] = {}
    lines: list[tuple[int, str, str]] = []  # number, left side, right side
    for number, raw in enumerate(text.splitlines(), 1):
        line = _COMMENT.sub("", raw).strip()
        left, *rest = _ARROW.split(line, 1)
        if feature := _FEATURE.fullmatch(line):
            features[feature[1]] = feature[2].split()
        elif line.startswith("|") and lines:
            lines.append((number, lines[-1][1], line[1:]))
        elif rest and _SYMBOL.fullmatch(left.strip()):
            lines.append((number, left.strip(), rest[0]))
        elif line:
            raise UserError(f"{source}:{number}: {line:.40} is not a rule; write it as: NP -> Det N 3 | Name")
    if not lines:
        raise UserError(f"{source}: there are no rules; write some, the sentence's first: S -> NP VP")
    symbols = {_label(left) for _, left, _ in lines}
    top = Rule(1.0, (Part(lines[0][1], False),), lines[0][0])
    rules: dict[str, tuple[Rule, ...]] = {_START: tuple(rule for _, rule in _written_out(_START, top, features))}
    for number, left, right in lines:
        for weight, parts in _alternatives(right, symbols, f"{source}:{number}"):
            for symbol, rule in _written_out(left, Rule(weight, parts, number), features):
                rules[symbol] = (*rules.get(symbol, ()), rule)
    return rules


def _alternatives(text: str, symbols: set[str], where: str) -> Iterator[tuple[float, tuple[Part, ...]]]:
    """Yield weight and parts of each alternative."""
    if phrase := _PHRASE.search(text):
        raise UserError(f"{where}: {phrase[0]} is more than a word; put each word in quotes")
    parts: list[Part] = []
    weight: float | None = None
    for token in (*_TOKEN.finditer(text), None):
        if token is None or token[0] == "|":
            if not parts:
                raise UserError(f"{where}: an alternative is empty; each needs a word or a symbol")
            yield 1.0 if weight is None else weight, tuple(parts)
            parts, weight = [], None
        elif weight is not None:
            raise UserError(f"{where}: {token[0]!r} after a weight; put | between, or quotes around a number as a word")
        elif not token["word"] and _WEIGHT.fullmatch(token[0]):
            weight = _weight(token[0], where)
        else:
            parts.append(_part(token, symbols, where))


def _weight(text: str, where: str) -> float:
    with suppress(ValueError):
        if 0 < (weight := float(text.removeprefix("[").removesuffix("]"))) < math.inf:
            return weight
    raise UserError(f"{where}: the weight {text} is not a number above 0; put it in quotes if it is a word")


def _part(token: re.Match[str], symbols: set[str], where: str) -> Part:
    text = token["word"] or token[0]
    if text in ("<eos>", "<unk>"):
        raise UserError(f"{where}: {text} cannot be a word: the model uses it itself")
    if text == "''" == token[0] or ('"' in text and token["quote"] != "'"):
        raise UserError(f'{where}: {token[0]} has quotes that do not match, or nothing in them; write "word"')
    if not token["word"] and _ARROW.search(text):
        raise UserError(f"{where}: a second arrow; put each rule on a line of its own, or quotes around a word {text}")
    if token["word"]:
        return Part(text, True)
    if (shape := _SYMBOL.fullmatch(text)) and (shape[1] in symbols or shape[2]):
        return Part(text, False)
    if text.lstrip("_")[:1].isupper() or "[" in text or "]" in text:
        raise UserError(f"{where}: {text} has no rules; add some, or put it in quotes if it is a word")
    return Part(text, True)


def _written_out(left: str, rule: Rule, features: Mapping[str, list[str]]) -> Iterator[tuple[str, Rule]]:
    """Yield the rule for each combination of values of its features; what is on the right alone shares the weight."""
    ours = [name for name in _names(left) if name in features]
    right = [name for part in rule.parts if not part.is_word for name in _names(part.text) if name in features]
    free = list(dict.fromkeys(name for name in right if name not in ours))
    share = rule.weight / math.prod(len(features[name]) for name in free)
    for values in product(*(features[name] for name in ours + free)):
        known = dict(zip(ours + free, values, strict=True))
        parts = tuple(part if part.is_word else Part(_with(part.text, known), False) for part in rule.parts)
        yield _with(left, known), Rule(share, parts, rule.line)


def _names(symbol: str) -> list[str]:
    return symbol.rstrip("]").partition("[")[2].split(",")


def _with(symbol: str, known: Mapping[str, str]) -> str:
    label, bracket, _ = symbol.partition("[")
    return f"{label}[{','.join(known.get(name, name) for name in _names(symbol))}]" if bracket else symbol


def _needs(rules: Iterable[Rule]) -> Iterator[tuple[str, Rule]]:
    return ((part.text, rule) for rule in rules for part in rule.parts if not part.is_word)


def _check_defined(rules: Mapping[str, tuple[Rule, ...]], source: str) -> None:
    """Every symbol has rules, and some form of it is in a sentence."""
    for symbol, rule in _needs(rule for own in rules.values() for rule in own):
        if symbol not in rules:
            others = ", ".join(other for other in rules if _label(other) == _label(symbol))
            hint = f"there are rules for {others}" if others else "add some, or put it in quotes if it is a word"
            raise UserError(f"{source}:{rule.line}: {symbol} has no rules; {hint}")
    reached, rest = {_START}, [_START]
    while rest:
        found = {symbol for symbol, _ in _needs(rules[rest.pop()])} - reached
        reached |= found
        rest += found
    labels = {_label(symbol) for symbol in reached}
    for symbol, own in rules.items():
        if _label(symbol) not in labels:
            raise UserError(f"{source}:{own[0].line}: no sentence has a {symbol}: no rule leads to it from the first")


def _shortest(rules: Mapping[str, tuple[Rule, ...]]) -> dict[str, float]:
    """Return the fewest words of each symbol; infinity if it has no end."""
    found = dict.fromkeys(rules, math.inf)
    while (new := {symbol: min(_least(rule, found) for rule in own) for symbol, own in rules.items()}) != found:
        found = new
    return found


def _least(rule: Rule, shortest: Mapping[str, float]) -> float:
    return sum(1 if part.is_word else shortest[part.text] for part in rule.parts)


def _check_ends(rules: Mapping[str, tuple[Rule, ...]], shortest: Mapping[str, float], source: str) -> None:
    """Every symbol comes down to words."""
    endless = [symbol for symbol, least in shortest.items() if least == math.inf][:1]
    while endless:
        symbol = next(symbol for symbol, _ in _needs(rules[endless[-1]]) if shortest[symbol] == math.inf)
        if symbol in endless:
            where = f"{source}:{rules[symbol][0].line}"
            raise UserError(f"{where}: {symbol} never ends: add an alternative that does without another {symbol}")
        endless.append(symbol)


def _check_circles(rules: Mapping[str, tuple[Rule, ...]], source: str) -> None:
    """No symbol becomes itself again without a word more."""
    alone = {
        symbol: {part: rule for part, rule in _needs(own) if len(rule.parts) == 1} for symbol, own in rules.items()
    }
    while free := [symbol for symbol, parts in alone.items() if not parts.keys() & alone.keys()]:
        for symbol in free:
            del alone[symbol]
    path = list(alone)[:1]
    while path:
        symbol = next(part for part in alone[path[-1]] if part in alone)
        path.append(symbol)
        if symbol in path[:-1]:
            circle = path[path.index(symbol) :]
            line = alone[symbol][circle[1]].line
            raise UserError(f"{source}:{line}: {' -> '.join(circle)} goes round in a circle; drop one of these rules")


def _label(symbol: str) -> str:
    return symbol.partition("[")[0]
