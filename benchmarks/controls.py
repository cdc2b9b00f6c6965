"""Is it the teacher? A grammar taught as `onlstm induce` does, but by trees that know nothing of the words.

python benchmarks/controls.py RUN --teacher right --out GRAMMAR && onlstm evaluate GRAMMAR TREEBANK

RUN is an induction: its text, its sizes, and the epochs of its tilted grammars are taken. The grammar of no teacher is
one of RUN's own members, the plain one.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from onlstm import files
from onlstm.grammar.pcfg import Grammar
from onlstm.induction.plan import Plan
from onlstm.induction.spans import Text
from onlstm.train import fit
from onlstm.train.grammar import GrammarTraining
from onlstm.trees import baselines

TEACHERS = {"left": baselines.left, "right": baselines.right, "balanced": baselines.balanced}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--teacher", choices=TEACHERS, default="right")
    parser.add_argument("--tilt", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    files.make_folder(arguments.out)
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    plan = Plan.load(arguments.run)
    text, numbers = Text.load(arguments.run, plan), plan.settings.numbers
    epochs = next(task.epochs for task in plan.tasks if task.kind == "tilted")
    model = Grammar(replace(numbers.grammar, vocab_size=len(text.tokenizer)), text.tokenizer)
    config = replace(numbers.grammar_train, epochs=epochs, tilt=arguments.tilt)
    shares = {n: _shares(arguments.teacher, n) for n in text.of("train")}  # the same for all sentences of a length
    taught = [shares[len(ids)] for ids in text.train]
    training = GrammarTraining(model, text.train, text.valid, config, arguments.out, shares=taught, seed=arguments.seed)
    fit.fit(training, [_report])
    model.eval().save(arguments.out)


def _shares(teacher: str, n: int) -> np.ndarray:
    """Return 1 for each span of the teacher's tree of n words, the whole sentence included."""
    shares = np.zeros((n + 1, n + 1), np.float32)
    for start, end in [*TEACHERS[teacher]([str(k) for k in range(n)]).spans(), (0, n)]:
        shares[start, end] = 1.0
    return shares


def _report(record: fit.Record) -> None:
    if record.event == "epoch":
        print(f"epoch {record.epoch}: {record.numbers['valid_loss']:.3f} nats per held-out word", flush=True)


if __name__ == "__main__":
    main()
