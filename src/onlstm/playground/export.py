"""Writes the playground: the page as it stands in `page/`, and each model as a binary of weights and one JSON file.

    models.json    the models, in order: name, kind, and what their files are called
    NAME.json      sizes, tokenizer, vocabulary, and where in NAME.bin each tensor is
    NAME.bin       the weights, little-endian, in half precision where that loses nothing

The page computes nothing that could be computed here: biases are added, recurrent weights scaled, a grammar's rules
normalised. It has no tokenizer rules of its own: those of the model are rewritten for JavaScript.
"""

import json
import re
import zlib
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from onlstm import files, folder
from onlstm.errors import UserError
from onlstm.grammar.pcfg import Grammar
from onlstm.lm.model import LanguageModel
from onlstm.lm.reader import layer_numbers, tokenizer_of
from onlstm.models import is_run, locate
from onlstm.text.tokenizer import NUMBER, Tokenizer

PAGE = Path(__file__).parent / "page"
INDEX = "models.json"
MOST_WORDS, MOST_BYTES = 200_000, 200_000_000
"""Of the vocabulary and of the weights of a model that a page can hold."""
_PATTERN = re.compile(r"\\x\{(?P<code>\w+)\}|\\d|\\p\{(?P<script>Han|Hiragana|Katakana)\}|\\.|\(\?>|\[-|/", re.DOTALL)
_STEPS = {"NFC", "Lowercase", "Replace"}


@dataclass(frozen=True, kw_only=True)
class Written:
    """What `write` has written."""

    models: tuple[str, ...]
    """Their names, in order."""
    bytes: int
    """Of all files together."""


def write(runs: Iterable[str | Path], target: str | Path) -> Written:
    """Write a page with the models of run folders, or of those names in the box; return what was written.

    All of them are read and checked first. A folder that is there must be empty, or hold a playground.
    """
    target = Path(target)
    _check_target(target)
    entries: list[dict[str, str]] = []
    contents = {path.name: path.read_bytes() for path in sorted(PAGE.iterdir()) if path.is_file()}
    for run in runs:
        name, file = _names(locate(run).resolve().name, entries)
        kind, contents[f"{file}.json"], contents[f"{file}.bin"] = _model(run, name)
        entries.append({"name": name, "kind": kind, "file": file})
    contents[INDEX] = _json(entries)
    with nullcontext() if target.exists() else files.new_folder(target):
        files.make_folder(target)
        for path in target.iterdir():
            if path.suffix in (".bin", ".json"):  # of the playground that was here
                path.unlink()
        for name, content in contents.items():
            files.write(target / name, content)
    return Written(models=tuple(entry["name"] for entry in entries), bytes=sum(map(len, contents.values())))


def _check_target(target: Path) -> None:
    if is_run(str(target)):
        raise UserError(f"{target}: the folder of a run; name another")
    if target.exists() and not target.is_dir():
        raise UserError(f"{target}: a file, not a folder")
    if target.is_dir() and any(target.iterdir()) and not (target / INDEX).is_file():
        raise UserError(f"{target}: not empty, and not a playground; name a new folder")


def _names(name: str, entries: list[dict[str, str]]) -> tuple[str, str]:
    """Return a model's name, unlike those before it, and one for its files that any file host can serve."""
    place, named = len(entries) + 1, [entry["name"] for entry in entries]
    files_named = [entry["file"] for entry in entries] + [Path(INDEX).stem]
    file = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "model"
    return name if name not in named else f"{name} ({place})", file if file not in files_named else f"{file}-{place}"


def _model(run: str | Path, name: str) -> tuple[str, bytes, bytes]:
    """Return the kind of a run's model, its description and its weights."""
    kind = folder.kind_of(Path(run))
    model = Grammar.load(run) if kind == "grammar" else LanguageModel.load(run, device="cpu")
    sizes, tensors = _grammar(model) if isinstance(model, Grammar) else _language_model(model, run)
    tokenizer: Tokenizer = tokenizer_of(model)
    if len(tokenizer) > MOST_WORDS:
        raise UserError(f"{run}: a vocabulary of {len(tokenizer):,} words; a page can hold {MOST_WORDS:,}")
    entries, weights = _packed(tensors)
    if len(weights) > MOST_BYTES:
        what = f"{len(weights) / 1e6:,.0f} MB of weights"
        raise UserError(f"{run}: {what}; a page can hold {MOST_BYTES / 1e6:,.0f} MB")
    description = {
        **{"name": name, "kind": kind, "trust": str(folder.read_config(locate(run)).get("trust", "")), **sizes},
        **{"bytes": len(weights), "crc32": zlib.crc32(weights), "tensors": entries},
        **{"tokenizer": _rules(tokenizer, run), "vocabulary": tokenizer.vocabulary},
    }
    return kind, _json(description), weights


@torch.no_grad()
def _language_model(model: LanguageModel, run: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the sizes and the weights that the page computes with."""
    config = model.config
    if config.rnn != "onlstm" or config.softmax == "adaptive" or config.mos or config.pointer or config.filters:
        what = f"cells of kind {config.rnn}" if config.rnn != "onlstm" else "another kind of softmax or embedding"
        raise UserError(f"{run}: {what}; the page holds ON-LSTM models with a full softmax, and grammars")
    decoder, layers = cast(Any, model.decoder), cast(Any, model.layers)
    tensors = {"embedding": model.embedding.weight, "decoder.bias": decoder.bias}
    if not config.tied:
        tensors["decoder.weight"] = decoder.weight
    for k, layer in enumerate(layers):
        scale = 1 - layer.weight_dropout if layer.weight_dropout_scale == "original" else 1
        tensors[f"layers.{k}.w_ih"] = layer.weight_ih_l0
        tensors[f"layers.{k}.w_hh"] = layer.weight_hh_l0 * scale
        tensors[f"layers.{k}.bias"] = layer.bias_ih_l0 + layer.bias_hh_l0
    (parse_layer,) = layer_numbers(None, config)
    return {"layers": config.num_layers, "chunk_size": config.chunk_size, "parse_layer": parse_layer}, tensors


@torch.no_grad()
def _grammar(model: Grammar) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the sizes and the weights of a grammar: its rules, and what the emissions are computed from."""
    rules = model.rules()
    assert rules.left is not None
    assert rules.right is not None
    preterminals = model.emission(model.symbols[model.config.nonterminals :])
    tensors = {"root": rules.root, "left": rules.left, "right": rules.right, "words": model.words}
    tensors |= {"preterminals": preterminals, "normaliser": (preterminals @ model.words.T).logsumexp(-1)}
    return {"nonterminals": model.config.nonterminals, "preterminals": model.config.preterminals}, tensors


def _packed(tensors: dict[str, Tensor]) -> tuple[list[dict[str, Any]], bytes]:
    """Return where each tensor is, and all of them in one piece; places are multiples of four bytes."""
    entries, parts, place = [], list[bytes](), 0
    for name, tensor in tensors.items():
        tensor = tensor.detach()
        exact = bool((tensor.half().float() == tensor.float()).all())
        data = (tensor.half() if exact else tensor.float()).contiguous().numpy()
        content = data.astype(data.dtype.newbyteorder("<")).tobytes()
        type_name = "float16" if exact else "float32"
        entries.append({"name": name, "shape": list(tensor.shape), "type": type_name, "place": place})
        content += bytes(-len(content) % 4)
        parts.append(content)
        place += len(content)
    return entries, b"".join(parts)


def _rules(tokenizer: Tokenizer, run: str | Path) -> dict[str, Any]:
    """Return the steps of the tokenizer's normalizer and the pattern of its words, for JavaScript."""
    steps, normalizer = [], tokenizer.rules.normalizer
    for step in json.loads(normalizer.__getstate__())["normalizers"] if normalizer else ():
        if step["type"] not in _STEPS:
            raise UserError(f"{run}: a tokenizer with a step {step['type']}; the page has none")
        replace = {"pattern": javascript(step["pattern"]["Regex"]), "by": step["content"]} if "pattern" in step else {}
        steps.append({"type": step["type"], **replace})
    words = json.loads(tokenizer.rules.splitter.__getstate__())["pattern"]["Regex"]
    number = javascript(NUMBER) + "$" if tokenizer.profile == "ptb-en" else None
    return {"profile": tokenizer.profile, "steps": steps, "words": javascript(words), "number": number}


def javascript(pattern: str) -> str:
    r"""Return a pattern of Oniguruma as one of JavaScript, for a RegExp with the flag v.

    >>> javascript(r"(?>\d+)[-/\x{2013}]")
    '(?=(?<atom>\\p{Nd}+))\\k<atom>[\\-\\/\\u{2013}]'
    """

    def rewritten(part: re.Match[str]) -> str:
        if part["code"]:
            return f"\\u{{{part['code']}}}"
        if part["script"]:
            return f"\\p{{Script={part['script']}}}"
        return {r"\d": r"\p{Nd}", "(?>": "(?=(?<atom>", "[-": r"[\-", "/": r"\/"}.get(part[0], part[0])

    written = _PATTERN.sub(rewritten, pattern)
    return _closed(written) if "(?<atom>" in written else written


def _closed(pattern: str) -> str:
    """Return the pattern with the end of its atomic group, which JavaScript writes as a group that is looked at."""
    depth, start = 1, pattern.index("(?<atom>") + 1
    for mark in re.compile(r"\\.|[()]").finditer(pattern, start):
        depth += (mark[0] == "(") - (mark[0] == ")")
        if not depth:
            return f"{pattern[: mark.end()]})\\k<atom>{pattern[mark.end() :]}"
    raise ValueError(f"an unclosed group in {pattern}")


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
