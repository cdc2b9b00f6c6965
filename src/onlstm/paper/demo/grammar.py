"""Grammars that write sentences with their trees: context-free, with weights and features, in plain text.

`english.txt`, the default of `onlstm demo`, begins with the notation. Every symbol can end in words, so every draw
ends: with a tree, or past the limit on its length.
"""

import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from itertools import accumulate, product
from pathlib import Path
from typing import NamedTuple

from onlstm import files
from onlstm.errors import UserError
from onlstm.trees.tree import Node, Tree

LONGEST = 20
"""Words of a sentence at most, or twice as many as the grammar's shortest one has, if that is more."""

_START = "_ "  # nobody can write it
_ARROW = re.compile("->|→")
_COMMENT = re.compile(r"(?:^|\s)#.*")
_FEATURE = re.compile(r"\[([^\s\[\],]+)\]\s*=\s*([^\s\[\],].*)")
_TOKEN = re.compile(r"""(?:"([^\s"]+)"|'([^\s']+)')(?=[\s|]|$)|\||[^\s|]+""")  # a word in quotes, a bar, or bare
_WEIGHT = re.compile(r"(?:[-+]?\.?\d|\[).*")
_NO_WORD = re.compile("<eos>|<unk>|\"|->|→|^''$")
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

    @property
    def symbols(self) -> list[str]:
        return [part.text for part in self.parts if not part.is_word]

    def shortest(self, symbols: Mapping[str, float]) -> float:
        """Return the fewest words that come of it, given those of each symbol."""
        return len(self.parts) + sum(symbols[symbol] - 1 for symbol in self.symbols)


@dataclass(frozen=True, kw_only=True)
class Grammar:
    """A weighted context-free grammar.

    >>> grammar = Grammar.of_text("[n] = sg pl\\n S -> NP[n] VP[n]\\n NP[sg] -> he\\n NP[pl] -> they"
    ...     "\\n VP[sg] -> sleeps | sees NP[n] 0.5\\n VP[pl] -> sleep")
    >>> print(*(grammar.draw(random.Random(seed)) for seed in (3, 9)), sep="\\n")
    (S they sleep)
    (S he (VP sees they))
    """

    rules: Mapping[str, Sequence[Rule]]
    """By symbol, features written out; those of a sentence first."""
    source: str
    """The file, for messages."""
    shortest: Mapping[str, float]
    """The fewest words of each symbol."""

    @classmethod
    def load(cls, path: Path | None = None) -> "Grammar":
        """Return the grammar of a file; by default, of English."""
        if path is None:
            return cls.of_text((resources.files("onlstm.paper.demo") / "english.txt").read_text("utf-8"), "english")
        return cls.of_text(files.read(path), str(path))

    @classmethod
    def of_text(cls, text: str, source: str = "grammar") -> "Grammar":
        """Return the grammar written in `text`; an error names the line."""
        rules = _read(text, source)
        _check_symbols(rules, source)
        shortest = dict.fromkeys(rules, math.inf)
        while (new := {s: min(rule.shortest(shortest) for rule in rules[s]) for s in rules}) != shortest:
            shortest = new
        if endless := [symbol for symbol, words in shortest.items() if words == math.inf and symbol != _START]:
            where = f"{source}:{rules[endless[0]][0].line}"
            raise UserError(f"{where}: {', '.join(endless)} would never end; add an alternative of words alone")
        return cls(rules=rules, source=source, shortest=shortest)

    @property
    def words(self) -> list[str]:
        """Every word, once, sorted."""
        parts = [part for rules in self.rules.values() for rule in rules for part in rule.parts]
        return sorted({part.text for part in parts if part.is_word})

    @property
    def longest(self) -> int:
        """Words of a sentence at most."""
        return max(LONGEST, 2 * int(self.shortest[_START]))

    @cached_property
    def _choices(self) -> dict[str, tuple[list[tuple[Rule, float]], list[float]]]:
        """By symbol: its rules, each with the words that it adds to the fewest, and their weights summed up."""
        return {
            symbol: (
                [(rule, rule.shortest(self.shortest) - self.shortest[symbol]) for rule in rules],
                list(accumulate(rule.weight for rule in rules)),
            )
            for symbol, rules in self.rules.items()
        }

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
                rules, weights = self._choices[top.text]
                [(rule, more)] = rng.choices(rules, cum_weights=weights)
                room -= more
                if room < 0:
                    return None
                if top.text[0] != "_" and (len(rule.parts) > 1 or rule.symbols):
                    stack.append(Node(len(words), 0, _label(top.text)))
                stack.extend(reversed(rule.parts))
        return Tree(words=tuple(words), nodes=tuple(reversed(nodes)))

    def trees(self, count: int, rng: random.Random) -> Iterator[Tree]:
        """Yield `count` trees; a grammar of hardly any short sentences is an error."""
        fitting = drawn = 0
        while fitting < count:
            if drawn >= 10_000 and fitting < drawn / 100:
                raise UserError(
                    f"{self.source}: only {fitting:,} of {drawn:,} sentences have at most {self.longest} words: "
                    "give smaller weights to the alternatives in which a symbol contains itself"
                )
            drawn += 1
            if tree := self.draw(rng):
                fitting += 1
                yield tree


def _read(text: str, source: str) -> dict[str, list[Rule]]:
    """Return the rules, features written out, those of the sentence first; whether they fit is not checked."""
    features: dict[str, list[str]] = {}
    lines: list[tuple[int, str, str]] = []  # number, left side, right side
    for number, raw in enumerate(text.splitlines(), 1):
        line = _COMMENT.sub("", raw).strip()
        left, *right = _ARROW.split(line, 1)
        if feature := _FEATURE.fullmatch(line):
            features[feature[1]] = feature[2].split()
        elif line.startswith("|") and lines:
            lines.append((number, lines[-1][1], line[1:]))
        elif right and _SYMBOL.fullmatch(left.strip()):
            lines.append((number, left.strip(), right[0]))
        elif line:
            raise UserError(f"{source}:{number}: {line:.40} is not a rule; write it as: NP -> Det N 3 | Name")
    if not lines:
        raise UserError(f"{source}: there are no rules; write some, the sentence's first: S -> NP VP")
    symbols = {_label(left) for _, left, _ in lines}
    first, top, _ = lines[0]
    rules: dict[str, list[Rule]] = {}
    _add(rules, features, _START, Rule(1.0, (Part(top, False),), first))
    for number, left, right_side in lines:
        for weight, parts in _alternatives(right_side, symbols, f"{source}:{number}"):
            _add(rules, features, left, Rule(weight, parts, number))
    return rules


def _alternatives(text: str, symbols: set[str], where: str) -> Iterator[tuple[float, tuple[Part, ...]]]:
    """Yield weight and parts of each alternative."""
    if phrase := _PHRASE.search(text):
        raise UserError(f"{where}: {phrase[0]} is more than a word; put each word in quotes")
    parts: list[Part] = []
    weight: float | None = None
    for token in (*_TOKEN.finditer(text), *_TOKEN.finditer("|")):
        if token[0] == "|":
            if not parts:
                raise UserError(f"{where}: an alternative is empty; each needs a word or a symbol")
            yield weight or 1.0, tuple(parts)
            parts, weight = [], None
        elif weight is not None:
            raise UserError(f"{where}: {token[0]!r} after a weight; put | between, or quotes around a number as a word")
        elif not (token[1] or token[2]) and _WEIGHT.fullmatch(token[0]):
            with suppress(ValueError):
                weight = float(token[0].removeprefix("[").removesuffix("]"))
            if not weight or not 0 < weight < math.inf:
                raise UserError(f"{where}: the weight {token[0]} is not a number above 0; put a word in quotes")
        else:
            parts.append(_part(token[0], token[1] or token[2], symbols, where))


def _part(text: str, quoted: str | None, symbols: set[str], where: str) -> Part:
    if quoted in ("<eos>", "<unk>") or (not quoted and _NO_WORD.search(text)):
        raise UserError(f"{where}: {text} cannot be a word; put words in quotes, and each rule on a line of its own")
    if quoted:
        return Part(quoted, True)
    symbol = _SYMBOL.fullmatch(text)
    if symbol and (symbol[1] in symbols or symbol[2]):
        return Part(text, False)
    if text.lstrip("_")[:1].isupper() or "[" in text or "]" in text:
        raise UserError(f"{where}: {text} has no rules; add some, or put it in quotes if it is a word")
    return Part(text, True)


def _add(rules: dict[str, list[Rule]], features: Mapping[str, list[str]], left: str, rule: Rule) -> None:
    """Add a rule for each combination of values of its features; those on the right alone share the weight."""
    ours = [name for name in _names(left) if name in features]
    theirs = [name for symbol in rule.symbols for name in _names(symbol) if name in features]
    free = [name for name in dict.fromkeys(theirs) if name not in ours]
    share = rule.weight / math.prod(len(features[name]) for name in free)
    for values in product(*(features[name] for name in ours + free)):
        known = dict(zip(ours + free, values, strict=True))
        parts = tuple(part if part.is_word else Part(_with(part.text, known), False) for part in rule.parts)
        rules.setdefault(_with(left, known), []).append(Rule(share, parts, rule.line))


def _label(symbol: str) -> str:
    return symbol.partition("[")[0]


def _names(symbol: str) -> list[str]:
    return symbol.rstrip("]").partition("[")[2].split(",")


def _with(symbol: str, known: Mapping[str, str]) -> str:
    """Return the symbol with the values of its features."""
    values = ",".join(known.get(name, name) for name in _names(symbol))
    return f"{_label(symbol)}[{values}]" if values else symbol


def _check_symbols(rules: Mapping[str, Sequence[Rule]], source: str) -> None:
    """Every symbol in use has rules, and some form of every symbol with rules is in use."""
    used, rest = {_START}, [_START]
    while rest:
        for rule in rules[rest.pop()]:
            for symbol in rule.symbols:
                if symbol not in rules:
                    forms = ", ".join(form for form in rules if _label(form) == _label(symbol))
                    way = f"there are rules for {forms}" if forms else "add some, or put it in quotes if it is a word"
                    raise UserError(f"{source}:{rule.line}: {symbol} has no rules; {way}")
                rest += [symbol] if symbol not in used else []
                used.add(symbol)
    labels = {_label(symbol) for symbol in used}
    for symbol, own in rules.items():
        if _label(symbol) not in labels:
            raise UserError(f"{source}:{own[0].line}: no sentence has a {symbol}; use it in another rule, or drop it")
