"""Models that know a few words, for tests of minimal pairs."""

from functools import partial
from pathlib import Path

import pytest

from helpers import random_model
from onlstm.paper.syntax import scoring
from onlstm.text.sources import read_lines
from onlstm.text.tokenizer import Tokenizer

SHARED = Path(__file__).parents[2] / "shared" / "data"
WORDS = ["the", "author", "authors", "pilot", "laughs", "laugh", "is", "are", "tall", "old", ".", ","]
WORDS += ["no", "most", "ever", "have", "been", "good", "n't", "does"]


def make(folder, words=WORDS, seed=0, profile="pretokenized", **options):
    random_model(Tokenizer.of_words(words, profile), spread=1.5, seed=seed, **options).save(folder)
    return folder


def runner(task):
    """Return what runs a task: runs, pairs, and options of the task or of the runner."""

    def run(runs, pairs=None, on_defect=lambda line: None, scores=None, **options):
        return scoring.run(runs, partial(task, pairs=pairs, on_defect=on_defect, **options), scores)

    return run


def wikitext():
    path = SHARED / "wikitext-2" / "wiki.train.tokens.xz"
    if not path.is_file():
        pytest.skip("no ../shared/data/wikitext-2")
    return {word for line in read_lines(path) for word in line.split()}
