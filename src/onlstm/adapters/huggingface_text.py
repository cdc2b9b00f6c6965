"""Words and text for transformers: a run's tokenizer, and strings that end a text."""

# mypy: allow-subclassing-any, allow-untyped-calls, disable-error-code="import-not-found"
# transformers may be missing, and is not typed throughout

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers
import torch
from tokenizers import Regex, decoders
from tokenizers.processors import TemplateProcessing
from torch import Tensor
from transformers import PreTrainedTokenizerFast, StoppingCriteria

from onlstm.folder import TOKENIZER
from onlstm.models import locate
from onlstm.text.tokenizer import EOS, UNK, Tokenizer


def tokenizer_from_run(folder: str | Path) -> PreTrainedTokenizerFast:
    """Return the tokenizer of a run folder: the same ids, `<eos>` in front, padding on the left.

    It decodes a word with the space before it, as tokenizers of subwords do, so that decoded parts join to the whole.
    """
    path = locate(folder) / TOKENIZER
    eos = Tokenizer.load(path).eos_id
    backend = tokenizers.Tokenizer.from_file(str(path))
    backend.post_processor = TemplateProcessing(
        single=f"{EOS} $A", pair=f"{EOS} $A {EOS} $B", special_tokens=[(EOS, eos)]
    )
    space, no_first = decoders.Replace(Regex("^"), " "), decoders.Replace(Regex(f"^ (?={EOS})"), "")
    backend.decoder = decoders.Sequence([space, decoders.Fuse(), no_first])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token=UNK,
        **dict.fromkeys(("bos_token", "eos_token", "pad_token"), EOS),
        padding_side="left",
        model_input_names=["input_ids", "attention_mask"],
        split_special_tokens=True,  # text that only looks like `<eos>` is text, as in training
    )


class StopStrings(StoppingCriteria):
    """Ends a text whose last word completes one of the strings."""

    def __init__(self, strings: str | Sequence[str], tokenizer: Any) -> None:
        self.strings = [strings] if isinstance(strings, str) else strings
        self.tokenizer = tokenizer

    def __call__(self, input_ids: Tensor, scores: Any, **more: Any) -> Tensor:
        return torch.tensor([self._complete(row) for row in input_ids.tolist()], device=input_ids.device)

    def _complete(self, row: list[int]) -> bool:
        row = row[-max(map(len, self.strings)) - 1 :]  # every word has a character at least
        text, before = (self.tokenizer.decode(ids, clean_up_tokenization_spaces=False) for ids in (row, row[:-1]))
        return any(string in text[max(0, len(before) + 1 - len(string)) :] for string in self.strings)
