"""`onlstm convert`: a checkpoint of the original code becomes a model folder."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from onlstm.errors import UserError
from onlstm.lm.config import LMConfig
from onlstm.lm.import_original import read_checkpoint, to_onlstm
from onlstm.lm.model import LanguageModel
from onlstm.text.sources import find_sources, read_lines
from onlstm.text.tokenizer import EOS, UNK, Tokenizer

_NEVER = -30.0
"""The logit of a word that the model has never seen."""


def run(
    old: Path,
    out: Path,
    sources: Sequence[str] = (),
    weight_dropout: float | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> LanguageModel:
    """Return the model, written to `out`; `sources` is the text it was trained on, which gives the words their ids."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"--out {out}: already there; name a new folder")
    config, tensors = to_onlstm(read_checkpoint(old), weight_dropout=weight_dropout)
    size = config["vocab_size"]
    if sources:
        words = original_vocabulary(sources)
        if len(words) != size:
            raise UserError(
                f"--text: {len(words):,} different words, but {old} has {size:,}; "
                "name the folder (train, valid and test) that it was trained on"
            )
    else:
        words = [f"word{k}" for k in range(size - 1)] + [EOS]
        say("The checkpoint holds no words: they are called word0, word1, …; name its text with --text to have them.")
    if UNK not in words:
        say(f"No {UNK} among its words: it gets a row of zeros and a probability of nearly nothing.")
        config["vocab_size"] += 1
        for name in ("embedding.weight", "decoder.weight", "decoder.bias"):
            if name in tensors:
                row = torch.full_like(tensors[name][:1], _NEVER if name == "decoder.bias" else 0.0)
                tensors[name] = torch.cat((tensors[name], row))
    model = LanguageModel(LMConfig(**config), Tokenizer.of_words(words)).eval()
    if config["tied"]:
        tensors["decoder.weight"] = tensors["embedding.weight"]
    model.to(tensors["embedding.weight"].dtype).load_state_dict(tensors)
    model.save(out)
    return model


def original_vocabulary(sources: Sequence[str]) -> list[str]:
    """Return the words of train, valid and test in order of first occurrence, as the original numbers them."""
    parts = find_sources(sources).files
    found: dict[str, None] = {}
    for path in (path for part in ("train", "valid", "test") for path in parts[part]):
        for line in read_lines(path):
            found.update(dict.fromkeys([*line.split(), EOS]))
    return list(found)
