"""`onlstm demo`: train a small ON-LSTM on nested brackets, and show that it learns what only a memory can know.

The strings are words of a language with two kinds of brackets, "(" and "[", which must close in the right order. Given
the open brackets, the source's own uncertainty is known, so the loss has a floor to be measured against; guessing the
kind of a closing bracket without remembering which stands open is a coin toss.
"""

import math
import random
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onlstm.errors import UserError
from onlstm.layer import ONLSTM

SYMBOLS = "([)]"
LENGTH, DEEPEST, OPENING = 40, 8, 0.5


class Demo(NamedTuple):
    """What was learned, on strings not trained on; losses in nats a symbol."""

    steps: int
    seconds: float
    loss: float
    floor: float
    unigram: float
    closing: float
    """Share of closing brackets (0-100) whose kind the model prefers over the other; 50 is chance."""


def bracket_string(rng: random.Random) -> tuple[list[int], float]:
    """Return a string of `LENGTH` symbols and the source's own surprisal at it, in nats."""
    string: list[int] = []
    stack: list[int] = []
    nats = 0.0
    while len(string) < LENGTH:
        opens = not stack or (len(stack) < DEEPEST and rng.random() < OPENING)
        choice = 1.0 if not stack or len(stack) == DEEPEST else OPENING
        nats -= math.log(choice * 0.5) if opens else math.log(choice)
        if opens:
            stack.append(rng.randrange(2))
            string.append(stack[-1])
        else:
            string.append(2 + stack.pop())
    return string, nats


def run(seed: int = 0, steps: int = 400, show: Callable[[str], None] = lambda line: None) -> Demo:
    """Train for `steps` batches of 64 strings, telling `show` how it goes, and return what was learned."""
    if steps < 1:
        raise UserError(f"--steps {steps}: at least 1 is needed")
    show("An ON-LSTM reads strings of nested ( ) and [ ] and learns to predict the next symbol.")
    started = time.perf_counter()
    torch.manual_seed(seed)
    rng = random.Random(seed)
    test = [bracket_string(rng) for _ in range(500)]
    net = _Reader()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=steps)
    for step in range(steps):
        batch = torch.tensor([bracket_string(rng)[0] for _ in range(64)]).T
        loss = F.cross_entropy(net(batch).flatten(0, 1), batch.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % max(1, steps // 10) == 0 or step == steps - 1:
            show(f"step {step + 1:4}  loss {loss.item():.3f}  {time.perf_counter() - started:5.1f} s")
    return _measure(net, test, steps, time.perf_counter() - started)


class _Reader(nn.Module):
    """Embedding, one ON-LSTM layer, softmax over the next symbol."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(SYMBOLS) + 1, 16)
        self.rnn = ONLSTM(16, 96, chunk_size=8)
        self.decoder = nn.Linear(96, len(SYMBOLS))

    def forward(self, symbols: Tensor) -> Tensor:
        """Return the logits (T, B, 4) of each symbol (T, B), given those before it."""
        start = torch.full_like(symbols[:1], len(SYMBOLS))
        output, _ = self.rnn(self.embedding(torch.cat((start, symbols[:-1]))))
        logits: Tensor = self.decoder(output)
        return logits


@torch.no_grad()
def _measure(net: _Reader, test: list[tuple[list[int], float]], steps: int, seconds: float) -> Demo:
    symbols = torch.tensor([string for string, _ in test]).T
    logits = net(symbols)
    closing = symbols >= 2
    other = 5 - symbols.clamp(min=2)
    right = logits.gather(-1, symbols[..., None]) > logits.gather(-1, other[..., None])
    shares = torch.bincount(symbols.flatten(), minlength=4) / symbols.numel()
    return Demo(
        steps=steps,
        seconds=seconds,
        loss=F.cross_entropy(logits.flatten(0, 1), symbols.flatten()).item(),
        floor=sum(nats for _, nats in test) / symbols.numel(),
        unigram=-(shares * shares.log()).sum().item(),
        closing=100 * right[closing].double().mean().item(),
    )
