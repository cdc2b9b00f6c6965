"""`LanguageModel` in the classes that transformers asks for: a configuration, a base model, a causal language model.

Users import them from `onlstm.adapters.huggingface`. Modules are called, never bypassed, so that forward hooks run and
PEFT may replace modules.
"""

# mypy: allow-subclassing-any, allow-untyped-calls, no-warn-return-any, disable-error-code="import-not-found"
# transformers may be missing, and is not typed throughout

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import (
    GenerationConfig,
    GenerationMixin,
    PreTrainedConfig,
    PreTrainedModel,
    StoppingCriteriaList,
)
from transformers.utils.generic import ModelOutput

from onlstm.adapters import padding
from onlstm.adapters.huggingface_text import StopStrings
from onlstm.errors import UserError
from onlstm.lm.config import LMConfig
from onlstm.lm.dropout import Masks
from onlstm.lm.model import LanguageModel
from onlstm.lm.reader import States
from onlstm.lm.softmax import FullSoftmax


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
class OnlstmModelOutput(ModelOutput):
    """What `OnlstmModel.forward` returns for input_ids (B, T)."""

    last_hidden_state: Tensor | None = None
    """The output of the last layer, (B, T, H)."""
    state: Tensor | None = None
    """To continue from: the states of all layers side by side, (B, S); None without `use_cache`."""
    hidden_states: tuple[Tensor, ...] | None = None
    """The embedded words and the output of each layer, (B, T, H); None without `output_hidden_states`."""


@dataclass
class OnlstmOutput(ModelOutput):
    """What `OnlstmForCausalLM.forward` returns for input_ids (B, T)."""

    loss: Tensor | None = None
    """Mean negative log-probability of the labels; None without them."""
    logits: Tensor | None = None
    """Log-probabilities of the next word, (B, T, V)."""
    state: Tensor | None = None
    """As in `OnlstmModelOutput`."""
    hidden_states: tuple[Tensor, ...] | None = None
    """As in `OnlstmModelOutput`."""


class OnlstmPreTrainedModel(PreTrainedModel):
    """What both models share: how they read, and how new weights start. `lm` is the wrapped `LanguageModel`."""

    config_class = OnlstmConfig
    base_model_prefix = "lm"
    lm: LanguageModel
    _is_stateful = True

    def get_input_embeddings(self) -> nn.Module:
        return self.lm.embedding

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.lm.embedding = value  # type: ignore[assignment]

    def resize_token_embeddings(self, *args: Any, **more: Any) -> nn.Embedding:
        raise UserError("resize_token_embeddings: the vocabulary of a word-level model is fixed; train with more words")

    def _read(
        self, ids: Tensor | None, mask: Tensor | None, state: Tensor | None, embedded: Tensor | None
    ) -> padding.Rows:
        """Return what the layers make of ids (B, T) or of vectors (B, T, E); the first of `outputs` is the vectors."""
        if (ids is None) == (embedded is None):
            raise UserError("input_ids, inputs_embeds: exactly one of them is needed")
        vectors = embedded = self.get_input_embeddings()(ids) if embedded is None else embedded
        rows, steps = embedded.shape[:2]
        if ids is None:
            if self.lm.pointer:
                raise UserError("inputs_embeds: a model with a pointer needs input_ids")
            ids = torch.zeros(rows, steps, dtype=torch.long, device=embedded.device)
        elif p := self.config.dropout_embedding if self.training else 0.0:
            vectors = embedded * (Masks().kept((self.config.vocab_size, 1), p, embedded) / (1 - p))[ids]
        real = None if mask is None else padding.visible(mask, rows, steps)
        found = padding.read(self.lm, ids, vectors, real, self._states(state, embedded), self._masks(embedded))
        return found._replace(outputs=(embedded, *found.outputs))

    def _states(self, state: Tensor | None, embedded: Tensor) -> States:
        """Return a state (B, S) as the layers have it; None: that before the first word."""
        layers: list[Any] = [getattr(layer, "get_base_layer", lambda layer=layer: layer)() for layer in self.lm.layers]
        parts = [*layers, *([self.lm.pointer] if self.lm.pointer else [])]  # without what PEFT put around them
        start = tuple(part.start(len(embedded), embedded) for part in parts)
        if state is None:
            return start
        if state.shape != (shape := tuple(padding.flat(start).shape)):
            raise UserError(f"state {tuple(state.shape)}: {shape} is needed, as an output of this model has it")
        return padding.unflat(state, start)

    def _masks(self, embedded: Tensor) -> Callable[[], Masks]:
        """Return what gives each part of the rows the same masks."""
        seed = int(torch.randint(2**62, ())) if self.training else 0
        return lambda: Masks(torch.Generator(embedded.device).manual_seed(seed), len(embedded)) if seed else Masks()

    def _asked(
        self, rows: padding.Rows, use_cache: bool | None, hidden_states: bool | None
    ) -> tuple[Tensor | None, tuple[Tensor, ...] | None]:
        """Return the state and the hidden states, or None for what is not wanted, here or by the configuration."""
        use_cache = self.config.use_cache if use_cache is None else use_cache
        hidden_states = self.config.output_hidden_states if hidden_states is None else hidden_states
        return rows.state if use_cache else None, rows.outputs if hidden_states else None

    def _formed(self, output: ModelOutput, return_dict: bool | None) -> Any:
        return output if (self.config.return_dict if return_dict is None else return_dict) else output.to_tuple()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Start weights that a folder lacks, or those of a new model, as `LanguageModel` does."""
        if reset := getattr(module, "reset_parameters", None):
            reset()
        if isinstance(module, nn.Embedding | FullSoftmax):
            nn.init.uniform_(module.weight, -self.config.init_range, self.config.init_range)
        if isinstance(module, FullSoftmax):
            nn.init.zeros_(module.bias)


class OnlstmModel(OnlstmPreTrainedModel):
    """The embedding and the layers of a `LanguageModel`, without its softmax and what belongs to it."""

    _keys_to_ignore_on_load_unexpected = [r"^lm\.(decoder|pointer)\."]  # noqa: RUF012

    def __init__(self, config: OnlstmConfig) -> None:
        super().__init__(config)
        self.lm = LanguageModel(config.shape())
        self.lm.pointer = None
        del self.lm.decoder
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        state: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: Literal[False] | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> OnlstmModelOutput | tuple[Any, ...]:
        """Return the last layer's output at each of input_ids (B, T), read on from `state`.

        Where attention_mask is 0 nothing is read: the output there is that at the last word read, and means nothing
        before the first.
        """
        if output_attentions:
            raise UserError("output_attentions: the model has no attention")
        rows = self._read(input_ids, attention_mask, state, inputs_embeds)
        asked = self._asked(rows, use_cache, output_hidden_states)
        return self._formed(OnlstmModelOutput(rows.outputs[-1], *asked), return_dict)


class OnlstmForCausalLM(OnlstmPreTrainedModel, GenerationMixin):
    """A `LanguageModel`, ON-LSTM or LSTM, that transformers can save, load, train and generate with."""

    _tied_weights_keys = {"lm.decoder.weight": "lm.embedding.weight"}  # noqa: RUF012
    accepts_loss_kwargs = True  # num_items_in_batch, which transformers.Trainer passes

    def __init__(self, config: OnlstmConfig) -> None:
        super().__init__(config)
        self.lm = LanguageModel(config.shape())
        if config.tied:  # transformers ties weights itself, and so knows what a folder lacks
            self.lm.decoder.weight = nn.Parameter(torch.empty_like(self.lm.embedding.weight))
        self.post_init()

    @classmethod
    def from_run(cls, folder: str | Path, *, device: str | torch.device = "auto") -> "OnlstmForCausalLM":
        """Return the model of a run folder, in evaluation mode; for `device` see `onlstm.device.find`.

        As with `onlstm generate`, `<unk>` is never chosen.
        """
        lm = LanguageModel.load(folder, device=device)
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
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        state: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: Literal[False] | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        num_items_in_batch: Tensor | int | None = None,
    ) -> OnlstmOutput | tuple[Any, ...]:
        """Return log-probabilities of the word after each of input_ids (B, T), read on from `state`.

        Where attention_mask is 0 nothing is read: the log-probabilities there are those after the last word read, and
        mean nothing before the first. `labels` are shifted here, so they may be input_ids; -100 is not counted, nor is
        a word before which nothing was read.
        """
        if output_attentions:
            raise UserError("output_attentions: the model has no attention")
        rows, loss = self._read(input_ids, attention_mask, state, inputs_embeds), None
        hidden = self.lm.output_dropout(rows.hidden.transpose(0, 1), Masks()).transpose(0, 1)
        places = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self._log_probs(hidden[:, places])
        if labels is not None:
            if attention_mask is not None:
                unread = padding.visible(attention_mask, *hidden.shape[:2]).cumsum(1)[:, :-1] == 0
                labels = labels.masked_fill(F.pad(unread, (1, 0)), -100)
            vocabulary = self.config.vocab_size
            loss = self.loss_function(logits, labels, vocabulary, num_items_in_batch=num_items_in_batch)
        asked = self._asked(rows, use_cache, output_hidden_states)
        return self._formed(OnlstmOutput(loss, logits, *asked), return_dict)

    def _log_probs(self, hidden: Tensor) -> Tensor:
        """Return (B, T, V) from (B, T, H)."""
        flat, softmax = hidden.flatten(0, 1), self.lm.decoder
        if self.config.softmax == "adaptive":
            flat = self.lm.head.log_probs(flat)
        else:
            mixed = self.config.mos or self.config.pointer
            flat = softmax(flat) if mixed else softmax(flat).log_softmax(-1)
        return flat.unflatten(0, hidden.shape[:2])

    def get_output_embeddings(self) -> nn.Module | None:
        return None if self.config.softmax == "adaptive" else self.lm.decoder

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        self.lm.decoder = new_embeddings  # type: ignore[assignment]

    def prepare_inputs_for_generation(
        self, input_ids: Tensor, inputs_embeds: Tensor | None = None, tokenizer: Any = None, **kwargs: Any
    ) -> Any:
        """Return what `forward` takes; the tokenizer is for stop_strings alone."""
        return super().prepare_inputs_for_generation(input_ids, inputs_embeds=inputs_embeds, **kwargs)

    def _get_stopping_criteria(
        self, generation_config: GenerationConfig, stopping_criteria: Any, tokenizer: Any = None, **more: Any
    ) -> StoppingCriteriaList:
        """Find stop_strings in decoded text: the base class would have the tokenizer spell out unknown words."""
        strings = generation_config.stop_strings
        if not strings or tokenizer is None:
            return super()._get_stopping_criteria(generation_config, stopping_criteria, tokenizer=tokenizer, **more)
        generation_config.stop_strings = None  # of a copy that `generate` made
        criteria = super()._get_stopping_criteria(generation_config, stopping_criteria, tokenizer=tokenizer, **more)
        return StoppingCriteriaList([*criteria, StopStrings(strings, tokenizer)])

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # keys and values of attention: `state` takes their place

    def _reorder_cache(self, state: Tensor, beams: Tensor) -> Tensor:
        return state[beams]
