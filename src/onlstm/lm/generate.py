"""Text from a language model, word by word: greedy, or drawn from what temperature, top_k and top_p leave."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from onlstm.lm.config import Sampling
from onlstm.lm.model import LanguageModel
from onlstm.lm.reader import States, evaluating, tokenizer_of, words_and_ids


@torch.no_grad()
def generate(
    model: LanguageModel, prompt: str | Sequence[str] = "", *, stop_at_eos: bool = True, **sampling: Any
) -> list[list[str]]:
    """Return continuations of the prompt (without it); the other options are the fields of `Sampling`.

    The model reads `<eos>` and the prompt from a zero state. A text ends before its first `<eos>`; without
    `stop_at_eos` it goes on, and `<eos>` stands among its words. Torch's own random numbers are neither used nor
    changed.
    """
    how, tokenizer = Sampling(**sampling), tokenizer_of(model)
    generator = torch.Generator()
    generator.seed() if how.seed is None else generator.manual_seed(how.seed)
    chances = torch.rand(how.count, how.words, dtype=torch.float64, generator=generator)
    _, prompt_ids = words_and_ids(tokenizer, prompt)

    def choose(log_p: Tensor, chances: Tensor) -> Tensor:
        if not how.unk:
            log_p[:, tokenizer.unk_id] = -torch.inf
        return _choose(log_p, chances.to(log_p.device), how.temperature, how.top_k, how.top_p)

    with evaluating(model):
        texts = _texts(model, [tokenizer.eos_id, *prompt_ids], chances, choose, stop_at_eos)
    return [[tokenizer.vocabulary[id] for id in ids] for ids in texts]


def _texts(
    model: LanguageModel,
    prompt: list[int],
    chances: Tensor,
    choose: Callable[[Tensor, Tensor], Tensor],
    stop_at_eos: bool,
) -> list[list[int]]:
    """Return the ids of one text for each row of chances (B, T); texts that have ended cost nothing."""
    state: States | None = None
    for part in torch.tensor(prompt, device=model.embedding.weight.device).split(1024):
        encoded = model.encode(part[:, None], state)
        state = encoded.state
    texts: list[list[int]] = [[] for _ in chances]
    going = torch.arange(len(texts))  # places of the texts that have not ended
    hidden, state = encoded.hidden[-1].expand(len(texts), -1), _columns(encoded.state, torch.zeros_like(going))
    for step in range(chances.shape[1]):
        chosen = choose(model.head.log_probs(hidden), chances[going, step])
        if stop_at_eos and (chosen == model.tokenizer.eos_id).any():
            rows = (chosen != model.tokenizer.eos_id).nonzero()[:, 0]
            chosen, going, state = chosen[rows], going[rows.cpu()], _columns(state, rows)
            if not len(rows):
                break
        for k, id in zip(going.tolist(), chosen.tolist(), strict=True):
            texts[k].append(id)
        encoded = model.encode(chosen[None], state)
        hidden, state = encoded.hidden[0], encoded.state
    return texts


def _columns(state: States, rows: Tensor) -> States:
    return tuple((h[:, rows], c[:, rows]) for h, c in state)


def _choose(log_p: Tensor, chances: Tensor, temperature: float, top_k: int, top_p: float) -> Tensor:
    """Return one word (B,) of each distribution (B, V): where its running sum passes the chance (B,) in [0, 1)."""
    if temperature == 0:
        return log_p.argmax(-1)
    # The maximum is taken off first, so that the smallest temperature leaves it finite.
    p = ((log_p.double() - log_p.max(-1, keepdim=True).values) / temperature).softmax(-1)
    p, words = p.sort(descending=True, stable=True) if top_k or top_p < 1 else (p, None)
    if top_k:
        p[:, top_k:] = 0
    if top_p < 1:
        p /= p.sum(-1, keepdim=True)
        p[p.cumsum(-1) - p >= top_p] = 0
    sums = p.cumsum(-1)
    place = torch.searchsorted(sums, chances[:, None] * sums[:, -1:], right=True)
    place = place.clamp(max=(sums < sums[:, -1:]).sum(-1, keepdim=True))  # rounding must not pick what has no share
    return (place if words is None else words.gather(1, place))[:, 0]
