"""A run as a Hugging Face causal language model (transformers 5.13 or newer: `pip install 'onlstm[hf]'`).

    export("runs/mine", "mine-hf")  # a folder with config, safetensors and tokenizer; nothing needs the network
    register()  # once in a process: the Auto classes know the model
    model = AutoModelForCausalLM.from_pretrained("mine-hf")
    tokenizer = AutoTokenizer.from_pretrained("mine-hf")
    model.generate(**tokenizer("the bird", return_tensors="pt"), max_new_tokens=9)

The model reads `<eos> w1 … wn` from a zero state, so the tokenizer puts `<eos>` in front of every text: it is bos, eos
and pad. Words that attention_mask hides, on either side or between others, are not read at all. The wrapped
`LanguageModel` is `model.lm`.
"""

# mypy: allow-subclassing-any, allow-untyped-calls, disable-error-code="import-not-found"
# transformers may be missing, and is not typed throughout

import os
import shutil
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import tokenizers
import torch
from tokenizers.processors import TemplateProcessing
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GenerationConfig,
    GenerationMixin,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.utils.generic import ModelOutput

from onlstm.errors import UserError
from onlstm.folder import TOKENIZER
from onlstm.lm.config import LMConfig
from onlstm.lm.dropout import Masks
from onlstm.lm.model import LanguageModel
from onlstm.lm.reader import States, walk
from onlstm.lm.softmax import FullSoftmax
from onlstm.models import locate
from onlstm.text.tokenizer import EOS, UNK, Tokenizer


class OnlstmConfig(PreTrainedConfig):
    """The fields of `LMConfig`, by the same names, and what transformers asks of every model."""

    model_type = "onlstm"
    attribute_map = {"num_hidden_layers": "num_layers", "tie_word_embeddings": "tied"}  # noqa: RUF012
    keys_to_ignore_at_inference = ["state"]  # noqa: RUF012

    def __init__(self, *, eos_token_id: int | None = None, use_cache: bool = True, **more: Any) -> None:
        more["tied"] = more.pop("tie_word_embeddings", more.get("tied", LMConfig.tied))
        shape = LMConfig.of({field.name: more.pop(field.name, field.default) for field in fields(LMConfig)})
        for name, value in asdict(shape).items():
            setattr(self, name, list(value) if isinstance(value, tuple) else value)
        super().__init__(**more)
        self.use_cache = use_cache
        self.bos_token_id = self.eos_token_id = self.pad_token_id = eos_token_id

    def shape(self) -> LMConfig:
        """Return the configuration of the wrapped model."""
        return LMConfig(**{field.name: getattr(self, field.name) for field in fields(LMConfig)})


@dataclass
class OnlstmOutput(ModelOutput):
    """What `OnlstmForCausalLM.forward` returns for input_ids (B, T)."""

    loss: Tensor | None = None
    """Mean negative log-probability of the labels; None without them."""
    logits: Tensor | None = None
    """Log-probabilities of the next word, (B, T, V)."""
    state: Tensor | None = None
    """To continue from: h and c of all layers side by side, (B, S); None without `use_cache`."""


class OnlstmForCausalLM(PreTrainedModel, GenerationMixin):
    """A `LanguageModel`, ON-LSTM or LSTM, that transformers can save, load, train and generate with."""

    config_class = OnlstmConfig
    base_model_prefix = "lm"
    _tied_weights_keys = {"lm.decoder.weight": "lm.embedding.weight"}  # noqa: RUF012
    _is_stateful = True

    def __init__(self, config: OnlstmConfig) -> None:
        super().__init__(config)
        self.lm = LanguageModel(config.shape())
        self.post_init()

    @classmethod
    def from_run(cls, folder: str | Path) -> "OnlstmForCausalLM":
        """Return the model of a run folder, in evaluation mode. As with `onlstm generate`, `<unk>` is never chosen."""
        lm = LanguageModel.load(folder)
        eos = lm.tokenizer.eos_id
        model = cls(OnlstmConfig(eos_token_id=eos, dtype=lm.embedding.weight.dtype, **asdict(lm.config)))
        model.lm = lm
        model.generation_config = GenerationConfig(
            bos_token_id=eos, eos_token_id=eos, pad_token_id=eos, suppress_tokens=[lm.tokenizer.unk_id]
        )
        model.eval()
        return model

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        state: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        return_dict: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **more: Any,
    ) -> OnlstmOutput | tuple[Tensor, ...]:
        """Return log-probabilities of the word after each of input_ids (B, T), read on from `state`.

        Where attention_mask is 0 nothing is read: the log-probabilities there are those after the last word read, and
        mean nothing before the first. `labels` are shifted here, so they may be input_ids; -100 is not counted, nor is
        a word before which nothing was read.
        """
        real, state = self._checked(input_ids, attention_mask, state)
        hidden, new_state = self._read(input_ids, real, state)
        if self.training:
            hidden = Masks().locked(hidden.transpose(0, 1), self.config.dropout_output).transpose(0, 1)
        hidden = hidden[:, slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep]
        logits = self.lm.head.log_probs(hidden.flatten(0, 1)).unflatten(0, hidden.shape[:2])
        if labels is not None:
            labels = labels.masked_fill(F.pad(real.cumsum(1)[:, :-1] == 0, (1, 0)), -100)
        output = OnlstmOutput(
            loss=None if labels is None else self.loss_function(logits, labels, self.config.vocab_size, **more),
            logits=logits,
            state=new_state if (self.config.use_cache if use_cache is None else use_cache) else None,
        )
        return output if (self.config.return_dict if return_dict is None else return_dict) else output.to_tuple()

    def _checked(self, ids: Tensor, mask: Tensor | None, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return which of ids (B, T) are to be read, and the state (B, S) before them."""
        (rows, steps), size = ids.shape, 2 * sum(self.lm.config.sizes)
        mask = torch.ones_like(ids) if mask is None else mask
        state = self.lm.embedding.weight.new_zeros(rows, size) if state is None else state
        if mask.dim() != 2 or len(mask) != rows or mask.shape[1] < steps:
            shape = tuple(mask.shape)
            raise UserError(f"attention_mask {shape}: ({rows}, {steps}) is needed, or what was read before too")
        if state.shape != (rows, size):
            shape = tuple(state.shape)
            raise UserError(f"state {shape}: ({rows}, {size}) is needed, as an output of this model has it")
        return mask[:, -steps:].bool(), state

    def _read(self, ids: Tensor, real: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return the last layer's output (B, T, H) and the new state; what is not real leaves the state alone.

        Real words move to the front of their row and rows are sorted by length: then all rows that still have words
        are computed together, from one row's end to the next.
        """
        lengths, rows = real.sum(1).sort(descending=True, stable=True)
        words = ids.gather(1, real.int().argsort(dim=1, descending=True, stable=True))[rows].T
        state, seed = state[rows], int(torch.randint(2**62, ())) if self.training else 0

        def masks() -> Masks:  # the same for all parts
            return Masks(torch.Generator(ids.device).manual_seed(seed), len(rows))

        ends, parts = sorted({*lengths.tolist()} - {0}), []
        for _, encoded in walk(self.lm, words, lengths.tolist(), self._states(state), ends, masks):
            live = encoded.hidden.shape[1]
            parts.append(F.pad(encoded.hidden, (0, 0, 0, len(rows) - live)))
            state = torch.cat((torch.cat([tensor[0] for pair in encoded.state for tensor in pair], 1), state[live:]))
        if not parts:
            raise UserError("input_ids: nothing to read; an empty text is `<eos>`, as the tokenizer writes it")
        back, places = rows.argsort(), (real.cumsum(1) - 1).clamp(min=0)
        hidden = torch.cat(parts).transpose(0, 1)[back]
        return hidden.gather(1, places[..., None].expand(-1, -1, hidden.shape[-1])), state[back]

    def _states(self, state: Tensor) -> States:
        """Return (B, S) as the wrapped model has it: one (h, c) of (1, B, H) for each layer."""
        pieces = iter(state.split([size for size in self.lm.config.sizes for _ in "hc"], 1))
        return tuple((h[None].contiguous(), c[None].contiguous()) for h, c in zip(pieces, pieces, strict=True))

    def get_input_embeddings(self) -> nn.Module:
        return self.lm.embedding

    def resize_token_embeddings(self, *args: Any, **more: Any) -> nn.Embedding:
        raise UserError("resize_token_embeddings: the vocabulary of a word-level model is fixed; train with more words")

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Start weights that a folder lacks, or those of a new model, as `LanguageModel` does."""
        if reset := getattr(module, "reset_parameters", None):
            reset()
        if isinstance(module, nn.Embedding | FullSoftmax):
            nn.init.uniform_(module.weight, -self.config.init_range, self.config.init_range)
        if isinstance(module, FullSoftmax):
            nn.init.zeros_(module.bias)

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # keys and values of attention: `state` takes their place

    def _reorder_cache(self, state: Tensor, beams: Tensor) -> Tensor:
        return state[beams]


def tokenizer_from_run(folder: str | Path) -> PreTrainedTokenizerFast:
    """Return the tokenizer of a run folder: the same ids, `<eos>` in front, padding on the left."""
    path = locate(folder) / TOKENIZER
    eos = Tokenizer.load(path).eos_id
    backend = tokenizers.Tokenizer.from_file(str(path))
    backend.post_processor = TemplateProcessing(
        single=f"{EOS} $A", pair=f"{EOS} $A {EOS} $B", special_tokens=[(EOS, eos)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token=UNK,
        **dict.fromkeys(("bos_token", "eos_token", "pad_token"), EOS),
        padding_side="left",
        model_input_names=["input_ids", "attention_mask"],
        split_special_tokens=True,  # text that only looks like `<eos>` is text, as in training
    )


def export(run: str | Path, out: str | Path) -> None:
    """Write a run's model and tokenizer as a folder for `from_pretrained`, whole or not at all."""
    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out}: already there; name a new folder")
    model, tokenizer = OnlstmForCausalLM.from_run(run), tokenizer_from_run(run)
    aside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        model.save_pretrained(aside)
        tokenizer.save_pretrained(aside)
        aside.replace(out)
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror or error}") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def register() -> None:
    """Let `AutoConfig` and `AutoModelForCausalLM` (and what builds on them) know the model; `AutoTokenizer` does."""
    AutoConfig.register(OnlstmConfig.model_type, OnlstmConfig, exist_ok=True)
    AutoModelForCausalLM.register(OnlstmConfig, OnlstmForCausalLM, exist_ok=True)
