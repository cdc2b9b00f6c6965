"""A run as a Hugging Face model (transformers 5.13 or newer: `pip install 'onlstm[hf]'`).

    export("runs/mine", "mine-hf")  # a folder with config, safetensors and tokenizer; nothing needs the network
    register()  # once in a process: the Auto classes and pipelines know the models
    model = AutoModelForCausalLM.from_pretrained("mine-hf")  # AutoModel: the layers without the softmax
    tokenizer = AutoTokenizer.from_pretrained("mine-hf")
    model.generate(**tokenizer("the bird", return_tensors="pt"), max_new_tokens=9)
    pipeline("text-generation", "mine-hf")("the bird")

The model reads `<eos> w1 … wn` from a zero state, so the tokenizer puts `<eos>` in front of every text: it is bos, eos
and pad. Words that attention_mask hides, on either side or between others, are not read at all.

The wrapped `LanguageModel` is `model.lm`. Its modules are called, so forward hooks run: a layer takes words (T, B, E)
and a state and returns a `Reading`; rows of several lengths are read in parts. PEFT adapts the softmax
(`target_modules=["decoder"]`) and the layers (`target_parameters=["weight_hh_l0"]`); after `merge_and_unload()`,
`model.lm` is an ordinary run again. Merging into a softmax that is tied to the embedding changes the embedding too:
leave that one unmerged.
"""

# mypy: allow-untyped-calls, disable-error-code="import-not-found"
# transformers may be missing, and is not typed throughout

import os
import shutil
from pathlib import Path

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_MAPPING_NAMES

from onlstm.adapters.huggingface_model import (
    OnlstmConfig,
    OnlstmForCausalLM,
    OnlstmModel,
    OnlstmModelOutput,
    OnlstmOutput,
)
from onlstm.adapters.huggingface_text import tokenizer_from_run
from onlstm.errors import UserError

__all__ = [
    "OnlstmConfig",
    "OnlstmForCausalLM",
    "OnlstmModel",
    "OnlstmModelOutput",
    "OnlstmOutput",
    "export",
    "register",
    "tokenizer_from_run",
]


def export(run: str | Path, out: str | Path) -> None:
    """Write a run's model and tokenizer as a folder for `from_pretrained`, whole or not at all."""
    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out}: already there; name a new folder")
    model, tokenizer = OnlstmForCausalLM.from_run(run, device="cpu"), tokenizer_from_run(run)
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
    """Let `AutoConfig`, `AutoModel`, `AutoModelForCausalLM`, pipelines and `Trainer` know the models."""
    AutoConfig.register(OnlstmConfig.model_type, OnlstmConfig, exist_ok=True)
    AutoModel.register(OnlstmConfig, OnlstmModel, exist_ok=True)
    AutoModelForCausalLM.register(OnlstmConfig, OnlstmForCausalLM, exist_ok=True)
    # pipelines and Trainer, for the smoothing of labels, go by the names of classes
    MODEL_MAPPING_NAMES[OnlstmConfig.model_type] = OnlstmModel.__name__
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[OnlstmConfig.model_type] = OnlstmForCausalLM.__name__
