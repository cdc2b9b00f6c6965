"""Text from a language model, word by word: greedy, or drawn from what temperature, top_k and top_p leave."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from onlstm.device import exact
from onlstm.lm.config import Sampling
from onlstm.lm.model import LanguageModel
from onlstm.lm.reader import States, columns, evaluating, tokenizer_of, words_and_ids

_TEXTS_AT_ONCE = 64


def generate(
    model: LanguageModel, prompt: str | Sequence[str] = "", *, stop_at_eos: bool = True, **sampling: Any
) -> list[list[str]]:
    """Return continuations of the prompt (without it); the other options are the fields of `Sampling`.

    The model reads `<eos>` and the prompt from a zero state. A text ends before its first `<eos>`; without
    `stop_at_eos` it goes on, and `<eos>` stands among its words. Torch's own random numbers are neither used nor
    changed.
    """
    return list(generate_each(model, prompt, stop_at_eos=stop_at_eos, **sampling))


def generate_each(
    model: LanguageModel, prompt: str | Sequence[str] = "", *, stop_at_eos: bool = True, **sampling: Any
) -> Iterator[list[str]]:
    """Return an iterator over what `generate` returns, which holds some texts in memory at a time."""
    groups = _groups(model, prompt, stop_at_eos, Sampling(**sampling))
    return (text for count, steps in groups for text in _collected(count, steps))


def generate_words(
    model: LanguageModel, prompt: str | Sequence[str] = "", *, stop_at_eos: bool = True, **sampling: Any
) -> Iterator[str]:
    """Return an iterator over the words of the first text that `generate` returns, as they are chosen."""
    groups = _groups(model, prompt, stop_at_eos, Sampling(**sampling | {"count": 1}))
    return (word for _, steps in groups for step in steps for _, word in step)


_Step = list[tuple[int, str]]
"""The next word of each text that goes on, by the text's place in its group."""


def _groups(
    model: LanguageModel, prompt: str | Sequence[str], stop_at_eos: bool, how: Sampling
) -> Iterator[tuple[int, Iterator[_Step]]]:
    """Yield the number of texts in a group, and their words."""
    tokenizer, generator = tokenizer_of(model), torch.Generator()
    generator.seed() if how.seed is None else generator.manual_seed(how.seed)
    _, prompt_ids = words_and_ids(tokenizer, prompt)

    def choose(log_p: Tensor, chances: Tensor) -> Tensor:
        if not how.unk:
            log_p[:, tokenizer.unk_id] = -torch.inf
        return _choose(log_p, chances.to(log_p.device, exact(log_p)), how.temperature, how.top_k, how.top_p)

    for first in range(0, how.count, _TEXTS_AT_ONCE):
        count = min(_TEXTS_AT_ONCE, how.count - first)
        chances = torch.rand(count, how.words, dtype=torch.float64, generator=generator)
        yield count, _steps(model, [tokenizer.eos_id, *prompt_ids], chances, choose, stop_at_eos)


def _collected(count: int, steps: Iterator[_Step]) -> list[list[str]]:
    texts: list[list[str]] = [[] for _ in range(count)]
    for step in steps:
        for k, word in step:
            texts[k].append(word)
    return texts


@torch.no_grad()
def _steps(
    model: LanguageModel,
    prompt: list[int],
    chances: Tensor,
    choose: Callable[[Tensor, Tensor], Tensor],
    stop_at_eos: bool,
) -> Iterator[_Step]:
    """Yield the words of one text for each row of chances (B, T); texts that have ended cost nothing."""
    words, eos = model.tokenizer.vocabulary, model.tokenizer.eos_id
    with evaluating(model):
        state: States | None = None
        for part in torch.tensor(prompt, device=model.device).split(1024):
            encoded = model.encode(part[:, None], state)
            state = encoded.state
        going = torch.arange(len(chances))  # places of the texts that have not ended
        hidden, state = encoded.hidden[-1].expand(len(going), -1), columns(encoded.state, torch.zeros_like(going))
        for step in range(chances.shape[1]):
            chosen = choose(model.head.log_probs(hidden), chances[going, step])
            if stop_at_eos and (chosen == eos).any():
                rows = (chosen != eos).nonzero()[:, 0]
                chosen, going, state = chosen[rows], going[rows.cpu()], columns(state, rows)
                if not len(rows):
                    return
            yield [(k, words[id]) for k, id in zip(going.tolist(), chosen.tolist(), strict=True)]
            encoded = model.encode(chosen[None], state)
            hidden, state = encoded.hidden[0], encoded.state


def _choose(log_p: Tensor, chances: Tensor, temperature: float, top_k: int, top_p: float) -> Tensor:
    """Return one word (B,) of each distribution (B, V): where its running sum passes the chance (B,) in [0, 1)."""
    if temperature == 0:
        return log_p.argmax(-1)
    # The maximum is taken off first, so that the smallest temperature leaves it finite.
    p = ((log_p.to(chances.dtype) - log_p.max(-1, keepdim=True).values) / temperature).softmax(-1)
    p, words = p.sort(descending=True, stable=True) if top_k or top_p < 1 else (p, None)
    if top_k:
        p[:, min(top_k, p.shape[1]) :] = 0
    if top_p < 1:
        p /= p.sum(-1, keepdim=True)
        p[p.cumsum(-1) - p >= top_p] = 0
    sums = p.cumsum(-1)
    place = torch.searchsorted(sums, chances[:, None] * sums[:, -1:], right=True)
    place = place.clamp(max=(sums < sums[:, -1:]).sum(-1, keepdim=True))  # rounding must not pick what has no share
    return (place if words is None else words.gather(1, place))[:, 0]
