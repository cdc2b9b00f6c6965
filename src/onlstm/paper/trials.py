"""`onlstm train --try-lr … --minutes …`: an epoch with each learning rate, then a run of the time that was asked for.

What was tried is in a folder beside the run's, RUN.trials: a run for each rate while it lasts, and trials.json. A rate
that is done is not tried again; one that was cut off continues. Time is the processor's, so that a busy machine changes
nothing but the hour at which a run ends.
"""

import json
import math
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from onlstm import files
from onlstm.errors import UserError
from onlstm.paper import language_modelling
from onlstm.paper.language_modelling import Request
from onlstm.paper.training_result import Trial, trials_beside
from onlstm.records import plain
from onlstm.train import checkpoint
from onlstm.train.fit import Diverged, Listener, Record

Say = Callable[[str], None]
_DIVERGED = 1e9
"""The perplexity that is noted for a learning rate that was too large."""


@dataclass
class _Clock:
    """A listener: processor seconds of an epoch, from those of the steps it has seen and of the validation."""

    now: Callable[[], float] = time.process_time
    steps: list[tuple[float, float]] = field(default_factory=list)
    """When steps had been made, and the share of the epoch that was done by then: the first and the last."""
    seconds: float = math.nan

    def __call__(self, record: Record) -> None:
        now = self.now()
        if record.event != "epoch":
            self.steps = [*self.steps[:1], (now, record.numbers["done"])]
        elif self.steps:
            (began, before), (ended, done) = self.steps[0], self.steps[-1]
            self.seconds = (ended - began) / max(1e-9, done - before) + now - ended


def settled(
    request: Request,
    rates: Sequence[float],
    minutes: float | None,
    say: Say = lambda line: None,
    listeners: Iterable[Listener] = (),
) -> Request | signal.Signals:
    """Return the request with the best of the learning rates and, for `minutes`, as many epochs as they allow.

    A signal while it tries is returned; the same call goes on from there.
    """
    if minutes is not None and not 0 < minutes < math.inf:
        raise UserError(f"minutes {minutes:g}: a number above 0 is needed")
    recipe = request.recipe
    for lr in rates or (recipe.train.lr,):
        if lr not in {trial.lr for trial in trials_beside(request.out)}:
            say(f"Trying learning rate {lr:g} for an epoch …")
            ended = _try(request, lr, say, listeners)
            if isinstance(ended, signal.Signals):
                return ended
    trials = [trial for trial in trials_beside(request.out) if trial.seconds]
    if not trials:
        raise UserError(f"every learning rate diverged: {', '.join(f'{lr:g}' for lr in rates)}; try smaller ones")
    best = min(trials, key=lambda trial: trial.valid_perplexity)
    seconds = median(trial.seconds for trial in trials)
    train = replace(recipe.train, lr=best.lr)
    if minutes is not None:
        passes = 60 * minutes / seconds
        train = replace(train, epochs=math.ceil(passes), last_epoch=passes - math.ceil(passes) + 1)
    minutes = seconds / 60
    say(f"Learning rate {best.lr:g}; an epoch takes {minutes:.1f} minutes of a processor: {train.passes:.2f} of them.")
    return replace(request, recipe=replace(recipe, train=train))


def _try(request: Request, lr: float, say: Say, listeners: Iterable[Listener]) -> signal.Signals | None:
    """Train an epoch and note how it went."""
    folder = request.out.with_name(f"{request.out.name}.trials")
    run, clock = folder / f"lr-{lr:g}", _Clock()
    train = replace(request.recipe.train, lr=lr, epochs=1)
    resume = (run / checkpoint.NAME).exists()
    trial = replace(
        request,
        recipe=replace(request.recipe, train=train),
        out=run,
        resume=resume,
        sources=() if resume else request.sources,
        test=False,
    )
    try:
        content = language_modelling.run(trial, say, [*listeners, clock])
        if isinstance(content, signal.Signals) or content is None:
            return content
        perplexity = content.numbers.valid_perplexity
    except Diverged:
        perplexity, clock.seconds = _DIVERGED, 0.0
    rows = [*trials_beside(request.out), Trial(lr=lr, epochs=1, valid_perplexity=perplexity, seconds=clock.seconds)]
    files.write(folder / "trials.json", json.dumps(plain(rows), indent=1) + "\n")
    shutil.rmtree(run)
    return None
