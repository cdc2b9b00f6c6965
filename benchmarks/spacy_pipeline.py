"""The time of the spaCy component against that of `Parser.parse` on the same tokens, one thread, interleaved.

python benchmarks/spacy_pipeline.py

Documents of five sentences of 5 to 35 random words; processor time. Kept in benchmarks/results/spacy_pipeline.json.
"""

import json
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import spacy
import torch
from spacy.tokens import Doc

from onlstm import Parser, files

RESULT = Path(__file__).parent / "results" / "spacy_pipeline.json"
WORDS = "the a old dog cat man house river people room company said knew that who was sold in of by with year has been"
SENTENCES, PER_DOCUMENT, ROUNDS = 600, 5, 7


def seconds(work: Callable[..., object], *arguments: object) -> float:
    start = time.process_time()
    work(*arguments)
    return time.process_time() - start


def main() -> None:
    torch.set_num_threads(1)
    rng = random.Random(0)
    sentences = [rng.choices(WORDS.split(), k=rng.randint(5, 35)) for _ in range(SENTENCES)]
    result = {}
    for name in ("en", "en-small"):
        nlp = spacy.blank("en")
        component = nlp.add_pipe("onlstm", config={"model": name})
        parser = Parser.load(name, labels=name == "en")
        rows = []
        for _ in range(ROUNDS + 1):
            docs = []
            for k in range(0, SENTENCES, PER_DOCUMENT):
                group = sentences[k : k + PER_DOCUMENT]
                starts = [i == 0 for words in group for i in range(len(words))]
                docs.append(Doc(nlp.vocab, [word for words in group for word in words], sent_starts=starts))
            plain = seconds(parser.parse, sentences)
            rows.append((plain, seconds(list, component.pipe(docs, batch_size=1000))))
        ratios = [through / plain for plain, through in rows[1:]]  # the first round warms up
        result[name] = {"ratio": statistics.median(ratios), "ratios": ratios, "seconds": rows[1:]}
        print(f"{name:9} {result[name]['ratio']:.2f} times the time of Parser.parse")
    files.write(RESULT, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
