"""The attributes that a document parsed by the component `onlstm` has in spaCy: `span._.tree` and the like.

A `Doc` carries a record of plain lists: nodes (start, end, label, confidence) in preorder, tokens included, and what
the network says of each token. `register` tells spaCy of the attributes that are read from it.
"""

# mypy: allow-subclassing-any, allow-untyped-calls, allow-untyped-decorators, disable-error-code="import-not-found"
# spaCy may be missing

import re
import sys
import warnings
from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from spacy.tokens import Doc, Span, Token

from onlstm.errors import UserError
from onlstm.grammar.pcfg import Grammar
from onlstm.lm.model import LanguageModel
from onlstm.parser import Parser
from onlstm.trees.tree import Tree


class NotAConstituentError(ValueError):
    """The span is no constituent of a parsed sentence."""


@lru_cache(maxsize=4)
def load(run: str, device: str = "auto") -> LanguageModel | Grammar:
    """Return the model of a run's folder or of a bundled one, which several components and documents share."""
    return Parser.load(run, device=device).model


def sentences_of(doc: Doc) -> Iterator[Span]:
    """Return the sentences of a document; raise a `UserError` if nothing has set their boundaries."""
    if len(doc) > 1 and not doc.has_annotation("SENT_START"):
        remedy = 'nlp.add_pipe("sentencizer", before="onlstm") sets some'
        raise UserError(f"onlstm: the document has no sentence boundaries; {remedy}")
    return doc.sents if len(doc) > 1 else iter([doc[:]] if len(doc) else [])


def without_space(token: str) -> str:
    """Return a token as a tree has it."""
    return re.sub(r"\s+", "_", token)


def preorder(node: Any) -> tuple[int, int]:
    """Return what nodes are sorted by."""
    return node[0], -node[1]


def _parsed(doc: Doc) -> Any:
    record = doc._.onlstm
    if record is None or len(record["distances"]) != len(doc):
        raise UserError("the document has no trees of its tokens: run a pipeline with the component onlstm on it")
    return record


def _find(span: Span) -> tuple[Any, int]:
    """Return the nodes of the document and which of them the span is."""
    nodes = _parsed(span.doc)["nodes"]
    k = bisect_left(nodes, (span.start, -span.end), key=preorder)
    if k == len(nodes) or tuple(nodes[k][:2]) != (span.start, span.end):
        raise NotAConstituentError(f"not a constituent: {span.text!r:.60}")
    return nodes, k


def _inside(span: Span) -> Iterator[Any]:
    nodes, k = _find(span)
    while k < len(nodes) and nodes[k][0] < span.end:
        yield nodes[k]
        k += 1


def _constituents(span: Span) -> Iterator[Span]:
    """Yield the constituents of a span in preorder, itself and single tokens among them."""
    return (span.doc[start:end] for start, end, *_ in _inside(span))


def _children(span: Span) -> Iterator[Span]:
    after = span.start
    for start, end, *_ in list(_inside(span))[1:]:
        if start == after:
            yield span.doc[start:end]
            after = end


def _parent(span: Span) -> Span | None:
    nodes, k = _find(span)
    first = span.sent.start
    while k and nodes[k - 1][0] >= first:
        k -= 1
        if nodes[k][1] >= span.end:
            return span.doc[nodes[k][0] : nodes[k][1]]
    return None


def _labels(span: Span) -> tuple[str, ...]:
    """Return the label of a constituent in a tuple, which is empty for tokens and for unlabelled trees."""
    nodes, k = _find(span)
    return (nodes[k][2],) if len(span) > 1 and nodes[k][2] else ()


def _confidence(span: Span) -> float | None:
    nodes, k = _find(span)
    return nodes[k][3]  # type: ignore[no-any-return]


def _tree(span: Span) -> Tree:
    """Return the tree of a constituent over all its tokens."""
    nodes = [(start - span.start, end - span.start, label, sure) for start, end, label, sure in _inside(span)]
    shown = [(start, end, label or None) for start, end, label, _ in nodes if label or end - start > 1]
    inner = {(start, end): sure for start, end, _, sure in nodes if 1 < end - start < len(span)}
    confidence = None if nodes[0][3] is None else [inner[place] for place in sorted(inner)]
    return Tree.from_spans([without_space(token.text) for token in span], shown, confidence)


def _distances(token: Token) -> float | None:
    """Return the distance before a token; None for one that the model does not read, and for grammars."""
    return _parsed(token.doc)["distances"][token.i]  # type: ignore[no-any-return]


def _surprisal(token: Token) -> float | None:
    """Return the surprisal of a token in nats, as `_distances`; the whole document is scored on first use."""
    record = _parsed(token.doc)
    if record["surprisal"] is None:
        record["surprisal"] = _surprisals(
            token.doc, record["distances"], load(record["model"], record.get("device", "auto"))
        )
    return record["surprisal"][token.i]  # type: ignore[no-any-return]


def _surprisals(doc: Doc, distances: list[float | None], model: LanguageModel | Grammar) -> list[float | None]:
    values: list[float | None] = [None] * len(doc)
    if isinstance(model, LanguageModel):
        read = [[k for k in range(sent.start, sent.end) if distances[k] is not None] for sent in sentences_of(doc)]
        for places, scored in zip(
            read, model.score([[without_space(doc[k].text) for k in row] for row in read]), strict=True
        ):
            for place, surprisal in zip(places, scored.surprisal, strict=True):
                values[place] = surprisal
    return values


def register() -> None:
    """Give spaCy the attributes; those that benepar has given it stay."""
    benepar: dict[str, Callable[[Span], Any]] = {
        "labels": _labels,
        "parse_string": lambda span: str(_tree(span)),
        "constituents": _constituents,
        "parent": _parent,
        "children": _children,
    }
    taken = [name for name in benepar if Span.has_extension(name)]
    if taken:
        owner = "benepar" if "benepar" in sys.modules else "another package"
        warnings.warn(f"span._.{', '.join(taken)} stay those of {owner}; onlstm's trees are span._.tree", stacklevel=3)
    for name, getter in {**benepar, "tree": _tree, "confidence": _confidence}.items():
        if name not in taken:
            Span.set_extension(name, getter=getter, force=True)
    Token.set_extension("distances", getter=_distances, force=True)
    Token.set_extension("surprisal", getter=_surprisal, force=True)
    Doc.set_extension("onlstm", default=None, force=True)
