"""How well a language model predicts words: `score` for sentences, `evaluate` for a stream of text.

A sentence is read alone, from a zero state, as `<eos> w1 … wn`; every word and the closing `<eos>` are scored, the
first word given `<eos>`. A stream is read the same way from end to end, the state carried. All figures are in nats.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from onlstm.device import exact, failures
from onlstm.errors import UserError, at_least_one
from onlstm.lm.model import LanguageModel
from onlstm.lm.reader import after_eos, chunks, evaluating, read_columns, tokenizer_of, words_and_ids
from onlstm.lm.softmax import word_log_probs


@dataclass(frozen=True, kw_only=True)
class SentenceScore:
    """The surprisal, -log p in nats, of a sentence's words."""

    words: list[str]
    """As they stand in the text."""
    ids: list[int]
    """What the model read for them."""
    surprisal: list[float]
    """One for each word; the first word's is given `<eos>` and a zero state."""
    eos: float
    """That of the closing `<eos>`."""

    @property
    def total(self) -> float:
        """The sum over all words, without `<eos>`."""
        return math.fsum(self.surprisal)

    def record(self) -> dict[str, object]:
        """Return plain data, without `ids`."""
        return {"words": self.words, "surprisal": self.surprisal, "eos": self.eos}


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """How well a stream of text was predicted."""

    nll: float
    """Mean negative log-probability of a token, `<eos>` counted, in nats."""
    tokens: int
    """What the mean is taken over."""
    unk_rate: float
    """Share of the words (`<eos>` is none) that are `<unk>`."""

    @classmethod
    def of(
        cls, model: LanguageModel, ids: np.ndarray, log_probs: Iterable[Tensor], tokens: int | None = None
    ) -> "Evaluation":
        """Return the evaluation of a stream from the log-probabilities of its tokens, part by part."""
        tokenizer, sums = tokenizer_of(model), [part.sum(dtype=exact(part)) for part in log_probs]
        total = -sum(torch.stack(sums).tolist())  # fetched once: a GPU does not wait for each part
        unknown, words = int((ids == tokenizer.unk_id).sum()), int((ids != tokenizer.eos_id).sum())
        tokens = tokens or len(ids)
        return cls(nll=total / tokens, tokens=tokens, unk_rate=unknown / max(1, words))

    @property
    def perplexity(self) -> float:
        """e to the nll; infinite if that is too much for a float."""
        return math.inf if self.nll > 700 else math.exp(self.nll)

    @property
    def bits_per_word(self) -> float:
        """The nll in bits."""
        return self.nll / math.log(2)


def score(
    model: LanguageModel, sentences: Iterable[str | Sequence[str]], *, tokens_at_once: int = 1024
) -> list[SentenceScore]:
    """Return the score of each sentence, in order: raw text (a string) or words (a sequence of strings).

    Sentences of like length are computed together; `tokens_at_once` bounds the memory, also for a single long one.

    >>> from onlstm.lm.config import LMConfig
    >>> from onlstm.text.tokenizer import Tokenizer
    >>> config = LMConfig(vocab_size=4, embedding_size=4, hidden_size=8, chunk_size=2)
    >>> model = LanguageModel(config, Tokenizer.of_words(["dogs", "bark"]))
    >>> found, = score(model, ["dogs bark"])
    >>> found.words, len(found.surprisal), found.eos > 0
    (['dogs', 'bark'], 2, True)
    """
    return list(score_each(model, sentences, tokens_at_once=tokens_at_once))


def score_each(
    model: LanguageModel, sentences: Iterable[str | Sequence[str]], *, tokens_at_once: int = 1024
) -> Iterator[SentenceScore]:
    """Yield what `score` returns, for inputs of any size: a thousand sentences are in memory at a time."""
    if isinstance(sentences, str):
        raise UserError("sentences: a list of sentences is needed, not a string; for a single one write [text]")
    at_least_one(tokens_at_once=tokens_at_once)
    tokenizer = tokenizer_of(model)
    read = (words_and_ids(tokenizer, sentence) for sentence in sentences)
    for chunk in chunks(read, lambda sentence: len(sentence[1])):
        surprisals = _surprisals(model, [ids for _, ids in chunk], tokens_at_once)
        for (words, ids), surprisal in zip(chunk, surprisals, strict=True):
            yield SentenceScore(words=words, ids=ids, surprisal=surprisal[:-1], eos=surprisal[-1])


def evaluate(
    model: LanguageModel,
    ids: np.ndarray,
    *,
    batch: int = 1,
    window: int | None = None,
    compat: bool = False,
    on_progress: Callable[[int, int], object] = lambda done, total: None,
) -> Evaluation:
    """Return how well the stream `ids` is predicted, each token from all before it and an `<eos>` in front.

    `batch` cuts the stream into this many columns, each read from a zero state: faster, a little worse. `window`, the
    steps computed at once, changes nothing but speed. `compat` counts like the original code: no `<eos>` in front and
    what does not fill the columns cut off, so a column's first token is not predicted; yet divided by all tokens.
    `on_progress` is called with the number of tokens that have been read and of all.
    """
    at_least_one(batch=batch, window=1 if window is None else window)
    text = _columns(ids, batch, tokenizer_of(model).eos_id, compat)
    if text.shape[1] < 2:
        raise UserError(
            f"batch {batch}: {len(ids)} tokens in that many columns leave nothing to predict; use longer text"
        )
    window = window or max(1, 1024 // batch)
    with evaluating(model), torch.no_grad(), failures(f"batch {batch}, window {window}"):
        parts = read_columns(model, text, window)
        log_probs = (word_log_probs(model.head, h[words >= 0], words[words >= 0]) for h, words in parts)
        shown = counted(log_probs, len(ids), on_progress)
        return Evaluation.of(model, ids, shown, tokens=text.size if compat else len(ids))


def counted(log_probs: Iterable[Tensor], total: int, on_progress: Callable[[int, int], object]) -> Iterator[Tensor]:
    """Yield log-probabilities part by part, and tell how many of their last dimension there were."""
    done = 0
    on_progress(done, total)
    for part in log_probs:
        yield part
        done += part.shape[-1]
        on_progress(done, total)


@torch.no_grad()
def _surprisals(model: LanguageModel, sentences: list[list[int]], tokens_at_once: int) -> list[list[float]]:
    """Return the surprisals of every word and the closing `<eos>` of sentences."""
    with evaluating(model):
        first = (-model.head.log_probs(after_eos(model)[0])[0]).tolist()
    surprisals = [[first[ids[0] if ids else model.tokenizer.eos_id]] for ids in sentences]
    for batch in model.read(sentences, tokens_at_once=tokens_at_once):
        real = batch.real
        values = batch.hidden.new_zeros(real.shape)
        values[real] = -word_log_probs(model.head, batch.hidden[real], batch.following[real])
        for k, row in batch.split(values.cpu()):
            surprisals[k] += row.tolist()
    return surprisals


def _columns(ids: np.ndarray, batch: int, eos: int, compat: bool) -> np.ndarray:
    """Return the text in columns (B, N), each of which begins with the last token of the one before; -1 for none."""
    length = len(ids) // batch if compat else -(-len(ids) // batch)
    if compat or not length:
        return ids[: batch * length].reshape(batch, length)
    stream = np.full(batch * length + 1, -1, dtype=np.int64)
    stream[0], stream[1 : len(ids) + 1] = eos, ids
    return np.lib.stride_tricks.sliding_window_view(stream, length + 1)[::length]
