"""CCM, DMV and DMV+CCM against numbers printed by another program, and on a grammar whose trees are known."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from onlstm.errors import UserError
from onlstm.grammar.ccm import CCM, Corpus, Evidence
from onlstm.grammar.dmv import DMVCCM, Dependencies, harmonic, probability

FOLDERS = [Path(__file__).parents[1] / "golden" / "ccm", Path(__file__).parents[3] / "shared" / "golden" / "ccm"]


def load(name):
    for folder in FOLDERS:
        if (folder / f"{name}.json").exists():
            return json.loads((folder / f"{name}.json").read_text())
    return pytest.skip(f"no {name}.json in ../shared/golden/ccm")


def evidence(corpus, keys, values):
    made = Evidence(np.full((len(corpus.yields), 2), 0.5), np.full((len(corpus.contexts), 2), 0.5))
    for key, value in zip(keys, values, strict=True):
        kind, rest = key.split(":", 1)
        *names, truth = rest.split("|")
        edges = [name.replace("START", "<start>").replace("END", "<end>") for name in names]
        row = corpus.yields[tuple(names[0].split())] if kind == "y" else corpus.contexts[tuple(edges)]
        made[kind != "y"][row, "TF".index(truth)] = value
    return made


def dependencies(corpus, keys, values):
    K = len(corpus.tags)
    root, attach, stop = torch.zeros(K).double(), torch.zeros(2, K, K).double(), torch.zeros(2, K, 2).double()
    first = torch.full((2, K), 0.5).double()
    for key, value in zip(keys, values, strict=True):
        kind, tag, *rest = key.split("|")
        side, t = int(kind.endswith("right")), corpus.tags[tag]
        if kind.startswith("stop"):
            stop[side, t, int(rest[0] == "True")] = value
        elif kind == "order_left":
            first[:, t] = first.new_tensor([value, 1 - value])
        elif rest == ["END"]:
            root[t] = value
        else:
            attach[side, corpus.tags[rest[0]], t] = value
    return Dependencies(root, attach, stop, 1 - stop, first)


def ones(group):
    return torch.ones(group.yields.shape, dtype=torch.float64)


def close(found, expected, limit=1e-12):
    assert all(
        (torch.as_tensor(a) - torch.as_tensor(b)).abs().max() < limit for a, b in zip(found, expected, strict=True)
    )


def posteriors_are(corpus, charts, golden):
    for group, chart in zip(corpus.groups, charts, strict=True):
        for k, posterior in zip(group.places, chart, strict=True):
            assert all(abs(posterior[i, j] - p) < 1e-12 for i, j, p in golden[k])


def test_ccm_is_the_programs():
    golden = load("ccm")
    corpus = Corpus(golden["sentences"])
    model = CCM(corpus)
    two = [words for words in golden["sentences"] if len(words) == 2]
    for step in range(golden["iterations"]):
        if step:
            model.step()
        expected = evidence(corpus, golden["param_keys"], golden["params"][step])
        seen = [np.unique(np.concatenate([g[k].ravel() for g in corpus.groups])) for k in (2, 3)]
        named = [
            [id for id in ids if id >= 0 and not (part[id] == 0.5).all()]
            for ids, part in zip(seen, expected, strict=True)
        ]
        close(
            [part[ids] for part, ids in zip(model.evidence, named, strict=True)],
            [part[ids] for part, ids in zip(expected, named, strict=True)],
        )
        posteriors_are(corpus, model.posteriors(), golden["posterior"][step])
        quirk = sum(np.log(model.evidence.yields[corpus.yields[tuple(words)], 0]) for words in two)
        assert model.log_likelihood() + quirk == pytest.approx(golden["loglik"][step], abs=1e-9)
        for spans, parse in zip(model.trees(), golden["parse"][step], strict=True):
            assert parse["optimal_trees"] > 1 or sorted(map(list, spans)) == sorted(parse["spans"])


def test_dmv_is_the_programs():
    golden = load("dmv")
    corpus = Corpus(golden["sentences"])
    for group in corpus.groups:
        found = probability(harmonic(*group.tags.shape), ones(group))
        assert found.tolist() == pytest.approx([golden["initial_inside"][k] for k in group.places], rel=1e-12)
    model = DMVCCM(corpus)
    model.weights = ones
    for step in range(3):
        assert model.step() == pytest.approx(golden["loglik_printed"][step], abs=1e-9)
        close(model.dependencies[:3], dependencies(corpus, golden["param_keys"], golden["params"][step])[:3], 1e-10)


def test_dmv_with_ccm_is_the_programs():
    """But for the order of the sides, which that program lets sink: it is set to the program's before each step."""
    golden = load("dmvccm")
    corpus = Corpus(golden["sentences"])
    model = DMVCCM(corpus)
    for step in range(3):
        tables = golden["ccm_params"][step], golden["dmv_params"][step]
        ours, theirs = model.evidence, evidence(corpus, golden["ccm_param_keys"], tables[0])
        for own, part in zip(ours, theirs, strict=True):
            known = ~(part == 0.5).all(1)
            close([own[known]], [part[known]], 1e-10)
        if tables[1]:
            named = dependencies(corpus, golden["dmv_param_keys"], tables[1])
            close(model.dependencies[:3], named[:3], 1e-9)
            model.dependencies = model.dependencies._replace(first=named.first)
        charts = []
        for group in corpus.groups:
            log_p, posterior, _ = model.expectations(group)
            charts.append(posterior)
            pairs = zip(log_p.exp().tolist(), (golden["inside"][step][k] for k in group.places), strict=True)
            assert all(there is None or here == pytest.approx(there, rel=1e-9) for here, there in pairs)
        posteriors_are(corpus, charts, golden["posterior"][step])
        model.step()


def test_thousands_of_sentences_take_seconds():
    rng = np.random.default_rng(0)
    noun = (("DT", "NN"), ("DT", "JJ", "NN"), ("PRP",), ("NN", "NNS"))

    def phrase():
        return noun[rng.integers(4)]

    sentences = [(*phrase(), "VB", *phrase(), *(("IN", *phrase()) if rng.random() < 0.4 else ())) for _ in range(600)]
    started = time.process_time()
    model = CCM(Corpus(sentences))
    for _ in range(5):
        model.step()
    both = DMVCCM(Corpus(sentences))
    both.step()
    both.step()
    assert time.process_time() - started < 10
    for trees in (model.trees(), both.trees()):
        hits = [(0, 2) in spans for spans, words in zip(trees, sentences, strict=True) if words[:2] == ("DT", "NN")]
        assert np.mean(hits) > 0.9


def test_sentences_that_are_too_long_are_refused():
    with pytest.raises(UserError, match=r"^a sentence of 41 words; at most 40 can be learnt from$"):
        Corpus([["NN"] * 41])
