"""What must work wherever a model is, run on the device that `pretended` pretends; test_placement.py starts it.

Each function compares what the GPU's model gives with what the same model gives on the CPU. `python placement.py` runs
all of them and prints their failures in JSON.
"""

import copy
import gc
import json
import os
import sys
import tempfile
import traceback
from pathlib import Path

import numpy as np
import pretended
import pytest
import torch
from pretended import GPU, on_gpu
from small_runs import WORDS, config, ids, model, sentences

from helpers import random_model
from onlstm.inspect import inspect
from onlstm.lm.adaptation import Cache, Dynamic
from onlstm.lm.prefixes import sentence_log_probs
from onlstm.lm.score import evaluate
from onlstm.paper.logic.classifier import Classifier, Problems
from onlstm.paper.logic.config import ModelConfig
from onlstm.paper.logic.config import TrainConfig as LogicConfig
from onlstm.paper.logic.encoders import ENCODERS
from onlstm.paper.logic.formulas import Pair
from onlstm.paper.logic.training import ClassifierTraining
from onlstm.paper.parsing.rows import untrained
from onlstm.parser import Parser
from onlstm.text.tokenizer import Tokenizer
from onlstm.train import checkpoint, fit
from onlstm.train.language_model import LanguageModelTraining

TEXT, VALID, LINES = ids(20), ids(6, seed=1), sentences(6, seed=2)
TOKENIZER = Tokenizer.of_words(WORDS)
NETWORKS = {
    "lstm": {"rnn": "lstm"},
    "variational": {"rnn": "variational", "dropout_recurrent": 0.1},
    "rhn": {"rnn": "rhn", "depth": 3, "dropout_recurrent": 0.1},
    "nas": {"rnn": "nas"},
    "melis": {"rnn": "melis"},
    "prpn": {"rnn": "prpn", "slots": 5},
    "clockwork": {"rnn": "clockwork", "clocks": 4},
    "nested": {"rnn": "nested"},
    "free": {"free_last_chunk": True, "weight_dropout_scale": "original"},
    "mos": {"mos": 2},
    "adaptive": {"softmax": "adaptive", "tied": False},
    "pointer": {"pointer": 6},
    "augmented": {"augmented": 1.0},
    "characters": {"filters": (3, 5), "character_size": 4, "tied": False},
}


def twins(made):
    """Return a model and its copy on the GPU."""
    there = on_gpu(copy.deepcopy(made))
    assert {p.device.type for p in there.parameters()} == {"gpu"}
    return made, there


def training(made, folder, masks="cpu", seed=7, **more):
    made.save_description(folder)
    settings = config(**{"lr": 20.0, "epochs": 3} | more)
    return LanguageModelTraining(made, TEXT, VALID, settings, folder, seed=seed, masks=masks)


def losses(run, **options):
    found = []
    fit.fit(run, [lambda record: found.append(record.numbers.get("loss", record.numbers.get("valid_loss")))], **options)
    return found


def close(found, expected):
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-10)


def test_training(folder):
    """Step by step, through averaging, the same on both devices; and a run goes on from one to the other."""
    here, there = (training(made, folder / str(made.device), log_steps=1) for made in twins(model()))
    for run in (here, there):
        run.start_averaging()
    first, run, folder = losses(here), there, there.folder
    close(losses(run, epochs=1), first[: run.progress.step + 1])
    on_cpu = training(model(), folder, log_steps=1)
    fit.restore(on_cpu, checkpoint.load(folder))
    close(losses(on_cpu, epochs=2), first[run.progress.step + 1 : on_cpu.progress.step + 2])
    back = training(on_gpu(model()), folder, log_steps=1)
    fit.restore(back, checkpoint.load(folder))
    close(losses(back), first[on_cpu.progress.step + 2 :])
    for ours, theirs in zip(back.averages.means(), here.averages.means(), strict=True):
        assert torch.allclose(ours.cpu(), theirs, atol=1e-9)


def test_masks_of_the_device(folder):
    """Drawn there, exactly continued there, and drawn anew on another device."""
    whole = losses(training(on_gpu(model()), folder / "whole", masks="device", log_steps=1), epochs=2)
    run = training(on_gpu(model()), folder / "parts", masks="device", log_steps=1)
    first = losses(run, epochs=1)
    assert checkpoint.load(folder / "parts")["generator_device"] == "gpu"
    run = training(on_gpu(model()), folder / "parts", masks="device", seed=99, log_steps=1)
    fit.restore(run, checkpoint.load(folder / "parts"))
    assert first + losses(run, epochs=2) == whole
    run = training(model(), folder / "parts", log_steps=1)
    fit.restore(run, checkpoint.load(folder / "parts"))
    seeded = torch.Generator().manual_seed(7 + run.progress.step)
    assert torch.equal(run._generator.get_state(), seeded.get_state())
    assert losses(run)


def test_no_step_waits_for_the_device(folder):
    run = training(on_gpu(model()), folder / "run", masks="device", bptt=5, vary_bptt=False, log_steps=50)
    run.start_averaging()
    fit.step(run)  # fetches its loss, for the progress bar
    pretended.waits.clear()
    for _ in range(4):
        fit.step(run)
    assert not pretended.waits
    assert len(run.pending) == 4
    fit.settle(run)
    assert sum(pretended.waits.values()) == 1
    assert not run.pending


def test_divergence_shows_when_losses_are_fetched(folder):
    run = training(on_gpu(model()), folder / "run", lr=1e9, averaging="none", clip=0.0, log_steps=6)
    with pytest.raises(fit.Diverged, match=r"^step [2-6] \(epoch 1\): loss .*nothing was saved yet"):
        fit.fit(run)


def networks(folder, name):
    here, there = twins(model(**NETWORKS[name]))
    runs = [training(each, folder / f"{k}", log_steps=1) for k, each in enumerate((here, there))]
    pairs = [[fit.step(run)["loss"] for _ in range(2)] for run in runs]
    close(pairs[1], pairs[0])
    close(evaluate(there, VALID, batch=2).nll, evaluate(here, VALID, batch=2).nll)
    close(*([score.total for score in each.score(LINES)] for each in (there, here)))
    texts = [each.generate("the cat", words=9, seed=3, count=2) for each in (there, here)]
    assert texts[0] == texts[1]


def test_evaluation(folder):
    here, there = twins(random_model(TOKENIZER, torch.float64))
    stream = np.random.default_rng(0).integers(0, len(here.tokenizer), 100)
    assert there.device == torch.device(GPU)
    for options in ({"batch": 7}, {"batch": 7, "compat": True}, {}):
        close(evaluate(there, stream, **options).nll, evaluate(here, stream, **options).nll)
    tuned = [Cache.tune(each, stream, size=40) for each in (here, there)]
    assert (tuned[0].theta, tuned[0].lam) == (tuned[1].theta, tuned[1].lam)
    close(*(cache.evaluate(each, stream).nll for cache, each in zip(tuned, (here, there), strict=True)))
    close(*(Dynamic(lr=0.1, decay=0.01).evaluate(each, stream[:60]).nll for each in (there, here)))
    lines = [row.tolist() for row in np.random.default_rng(1).integers(0, len(here.tokenizer), (20, 6))]
    close(*(sentence_log_probs(each, lines) for each in (there, here)))
    assert there.generate(temperature=0.7, top_k=3, top_p=0.9, seed=1) == here.generate(
        temperature=0.7, top_k=3, top_p=0.9, seed=1
    )


def test_parsing(folder):
    here, there = twins(random_model(TOKENIZER, torch.float64))
    for options in ({}, {"layer": "1,2"}, {"gates": "input"}):
        found, expected = ([*Parser(each, words_at_once=9, **options).parse_lines(LINES)] for each in (there, here))
        assert [parse.tree for parse in found] == [parse.tree for parse in expected]
    diagrams = [Parser(each).diagram(LINES[0]) for each in (there, here)]
    close(*(np.array(diagram.gates).ravel().tolist() for diagram in diagrams))
    assert inspect(there, LINES).updates[0] == pytest.approx(inspect(here, LINES).updates[0], abs=1e-5)
    assert untrained(there).device == torch.device(GPU)
    there.save(folder / "saved")
    assert (folder / "saved" / "model.safetensors").exists()


def logic(folder, name):
    texts = ["a", "( not a )", "( a ( and b ) )", "( ( not b ) ( or a ) )", "( ( a ( and b ) ) ( or ( not c ) ) )"]
    problems = Problems.of([Pair.checked("=", left, right) for left in texts for right in texts])
    torch.manual_seed(0)
    sizes = {"encoder": name, "embedding_size": 6, "hidden_size": 8, "chunk_size": 2, "num_layers": 2, "dropout": 0.0}
    here, there = twins(Classifier(ModelConfig(**sizes)).double())
    found = []
    for k, made in enumerate((here, there)):
        (folder / f"{k}").mkdir()
        torch.manual_seed(1)
        run = ClassifierTraining(made, problems, problems, LogicConfig(batch_size=8, log_steps=1), folder / f"{k}")
        steps = [fit.step(run)["loss"] for _ in range(1 if name.startswith("gumbel") else 2)]
        found.append(steps if not name.startswith("gumbel") else [])
    close(found[1], found[0])
    if not name.startswith("gumbel"):  # which draws noise, and on the GPU other noise
        close(there.logits(problems).cpu().flatten().tolist(), here.logits(problems).flatten().tolist())


def test_transformers(folder):
    pytest.importorskip("transformers", reason="needs the extra hf", exc_type=ImportError)
    from onlstm.adapters.huggingface import OnlstmForCausalLM

    made = random_model(TOKENIZER)
    made.save(folder / "run")
    here, there = twins(OnlstmForCausalLM.from_run(folder / "run", device="cpu"))
    words, mask = torch.tensor([[1, 2, 3, 4], [1, 1, 5, 2]]), torch.tensor([[1, 1, 1, 1], [0, 1, 1, 1]])
    asked = [
        each(words.to(each.device), attention_mask=mask.to(each.device), labels=words.to(each.device))
        for each in (there, here)
    ]
    assert asked[0].loss.item() == pytest.approx(asked[1].loss.item(), abs=1e-5)
    there.train()
    there(words.to(GPU), labels=words.to(GPU)).loss.backward()


def test_a_tensor_that_was_made_on_the_cpu_is_found(folder):
    """What all of this rests on: each of the ways to forget the device is noticed."""
    run = training(on_gpu(model()), folder / "run")
    layer = run.model.layers[1]
    hook = layer.register_forward_hook(
        lambda module, args, reading: reading._replace(output=reading.output * torch.ones(reading.output.shape))
    )
    with pytest.raises(pretended.Mixed, match=r"aten\.mul\.Tensor: a tensor of size \(\d+, 4, 12\) is on the CPU"):
        fit.step(run)
    hook.remove()
    with pytest.raises(pretended.Mixed, match="generator"):
        torch.empty(3, device=GPU).uniform_(generator=torch.Generator())
    with pytest.raises(pretended.Mixed):
        run.model.encode(torch.zeros(3, 4, dtype=torch.int64))
    with pytest.raises(pretended.Mixed):
        torch.cat([torch.zeros(1), torch.zeros(1, device=GPU)])


CASES = {name: case for name, case in globals().items() if name.startswith("test_")}
CASES |= {f"network {name}": lambda folder, name=name: networks(folder, name) for name in NETWORKS}
CASES |= {f"logic {name}": lambda folder, name=name: logic(folder, name) for name in ENCODERS}


def main(chosen) -> None:
    torch.set_num_threads(1)
    gc.freeze()  # what was imported stays
    gc.set_threshold(100_000)
    pretended.register()
    failures = {}
    for name in chosen or CASES:
        with tempfile.TemporaryDirectory() as folder, pretended.device():
            try:
                CASES[name](Path(folder))
                failures[name] = ""
            except pytest.skip.Exception as skipped:
                failures[name] = f"skipped: {skipped}"
            except Exception:
                failures[name] = traceback.format_exc()
    sys.stdout.write(json.dumps(failures))
    sys.stdout.flush()
    os._exit(0)  # a pretended device has threads of autograd that do not end


if __name__ == "__main__":
    main(sys.argv[1:])
