"""`fit`: exact resume wherever it is cut, averaging by its definition, and what it does when things go wrong."""

import json
import math
import resource
from statistics import fmean
from types import SimpleNamespace

import pytest
import torch
from small_runs import DROPOUT, WORDS, config, ids, model

from onlstm.errors import UserError
from onlstm.kernels import build
from onlstm.lm.config import LMConfig
from onlstm.lm.model import LanguageModel
from onlstm.text.tokenizer import Tokenizer
from onlstm.train import checkpoint
from onlstm.train.averaging import schedule
from onlstm.train.fit import Diverged, Progress, Stop, Training, fit, restore, save, step
from onlstm.train.language_model import LanguageModelTraining

TRAIN, VALID = ids(60), ids(20, seed=1)
RULES = {
    "nt-asgd": {"averaging": "nt-asgd", "patience": 1, "lr": 20.0, "finetune_epoch": 3},
    "asgd-compat": {"averaging": "asgd-compat", "patience": 1, "lr": 20.0, "finetune_epoch": 3},
    "adamw": {"optimizer": "adamw", "averaging": "none", "lr": 0.01, "schedule": "one-cycle"},
    "plateau": {"averaging": "none", "schedule": "plateau", "lr": 20.0, "vary_bptt": False},
}
if build.has_bfloat16():
    RULES["bfloat16"] = {"averaging": "none", "lr": 20.0, "precision": "bfloat16"}


def training(folder, seed=0, **more):
    network, settings = model(), config(**more)
    network.save_description(folder)
    network = network.float() if settings.precision == "bfloat16" else network
    return LanguageModelTraining(network, TRAIN, VALID, settings, folder, seed=seed)


def state(run):
    """Everything a run consists of."""
    save(run)
    content = checkpoint.load(run.folder)
    del content["progress"]["seconds"], content["progress"]["log_bytes"]
    return content


def same(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


@pytest.fixture(scope="module", params=RULES)
def whole(request, tmp_path_factory):
    """A run that was not cut: its rule, its losses, its steps, its end."""
    run, losses = training(tmp_path_factory.mktemp("whole") / "run", **RULES[request.param]), []
    assert fit(run, [lambda r: losses.append(r.numbers.get("loss"))])
    if "asgd" in request.param:
        assert run.progress.averaging_since is not None, "the averaging was not reached"
    return request.param, losses, run.progress.step, state(run)


@pytest.mark.parametrize("cut", ["epochs", "mid-epoch", "often"])
def test_a_run_that_was_cut_goes_on_bit_for_bit(tmp_path, whole, cut):
    rule, expected, steps, end = whole
    places = {"epochs": [], "mid-epoch": [steps // 3, steps // 2 + 1], "often": range(1, steps, 5)}[cut]
    losses = []
    run, listen = training(tmp_path / "parts", **RULES[rule]), lambda r: losses.append(r.numbers.get("loss"))
    for place in places:
        assert not fit(run, [listen, stop_after(run, place, stop := Stop())], stop=stop)
        run = resumed(tmp_path / "parts", rule)
    if cut == "epochs":
        fit(run, [listen], epochs=2)
        run = resumed(tmp_path / "parts", rule)
    assert fit(run, [listen])
    assert losses == expected
    assert same(state(run), end)


@pytest.mark.skipif(not build.has_bfloat16(), reason="this processor does not multiply in bfloat16")
@pytest.mark.parametrize("rnn", ["onlstm", "lstm"])
def test_in_bfloat16_it_learns_the_same(tmp_path, rnn):
    """Mean loss over 200 steps, with dropout; weights and states stay in float32."""
    sizes = {"rnn": rnn, "embedding_size": 40, "hidden_size": 60, "chunk_size": 10, "init_range": 0.5}
    losses = {}
    for precision in ("float32", "bfloat16"):
        torch.manual_seed(0)
        network = LanguageModel(LMConfig(vocab_size=len(WORDS), **sizes, **DROPOUT), Tokenizer.of_words(WORDS))
        settings = config(**RULES["adamw"] | {"precision": precision, "epochs": 40})
        run = LanguageModelTraining(network, TRAIN, VALID, settings, tmp_path / precision)
        losses[precision] = []
        for _ in range(200):
            if run.progress.cursor >= run.end:
                run.progress.cursor = 0
            losses[precision].append(step(run)["loss"])
        assert (
            {p.dtype for p in run.parameters}
            == {part.dtype for layer in run._state for part in layer}
            == {torch.float32}
        )
    exact, narrow = losses.values()
    assert fmean(exact[-20:]) < exact[0] - 0.5, "nothing was learned"
    assert 0 < abs(fmean(exact) - fmean(narrow)) < 1e-2


def stop_after(run, place, stop):
    """Return a listener that stops a training after a step as a signal would."""

    def listen(record):
        stop.requested = run.progress.step == place

    return listen


def resumed(folder, rule):
    run = training(folder, seed=99, **RULES[rule])
    restore(run, checkpoint.load(folder))
    return run


def test_averages_are_the_mean_of_all_later_weights_and_are_what_is_validated(tmp_path):
    run = training(tmp_path / "run", averaging="nt-asgd", epochs=1)
    run.start_averaging()
    seen = []
    fit(run, [lambda r: r.event != "epoch" and seen.append([p.detach().clone() for p in run.parameters])])
    mean = [torch.stack(each).mean(0) for each in zip(*seen, strict=True)]
    saved = LanguageModel.load(tmp_path / "run").double()
    for expected, found in zip(mean, saved.parameters(), strict=True):
        assert torch.allclose(found, expected, atol=1e-12)
    assert not torch.equal(mean[0], run.parameters[0])


def test_the_model_of_every_epoch_can_be_kept(tmp_path):
    run, ends = training(tmp_path / "run", averaging="none", epochs=3, keep_epochs=True), []
    fit(run, [lambda r: r.event == "epoch" and ends.append([p.detach().clone() for p in run.parameters])])
    assert {path.name for path in (tmp_path / "run" / "epochs").iterdir()} == {"1", "2", "3"}
    for epoch, weights in enumerate(ends, start=1):
        kept = LanguageModel.load(tmp_path / "run" / "epochs" / str(epoch)).double()
        assert all(map(torch.equal, kept.parameters(), weights))


def test_a_share_of_the_last_epoch(tmp_path):
    whole, part = (
        training(tmp_path / str(share), averaging="none", epochs=2, last_epoch=share, vary_bptt=False)
        for share in (1.0, 0.4)
    )
    steps = []
    fit(whole, [lambda r: r.event == "epoch" and steps.append(r.step)])
    done = []
    fit(part, [lambda r: r.event != "epoch" and done.append(r.numbers["done"])])
    first, all_steps = steps
    assert len(done) - first == pytest.approx(0.4 * (all_steps - first), abs=1)
    assert done[first - 1] == pytest.approx(1 / 1.4, abs=0.02)
    assert done[-1] == pytest.approx(1, abs=1 / first)
    assert (part.progress.epoch, len(part.progress.history)) == (2, 2)


def test_averaging_starts_when_validation_stalls_and_once_more_for_fine_tuning(tmp_path):
    run = training(tmp_path / "run", **RULES["nt-asgd"], epochs=1)
    epochs = []
    run.start_averaging = lambda: epochs.append(run.progress.epoch) or LanguageModelTraining.start_averaging(run)
    for epoch, loss in enumerate([3.0, 2.0, 2.5, 2.4, 2.3, 2.2], 1):
        run.progress.epoch = epoch
        run._react(loss)
    # the trigger: worse than the best of all but the last 1; fine-tuning at epoch 3 then needs averaging to be on
    assert epochs == [4]
    run.config = config(**(RULES["nt-asgd"] | {"finetune_epoch": 9}))
    run.progress.epoch = 9
    run._react(1.0)
    assert epochs == [4, 9]
    assert run.progress.best_epoch == 9


def test_plateaus_divide_the_learning_rate_by_four(tmp_path):
    run = training(tmp_path / "run", **RULES["plateau"])
    for loss, factor in ((3.0, 1.0), (3.1, 0.25), (2.9, 0.25), (2.9, 0.0625)):
        run._react(loss)
        assert run.progress.lr_factor == factor


def test_schedules_rise_and_fall():
    assert schedule("one-cycle", 0.0, 0.25) == pytest.approx(1 / 25)
    assert schedule("cosine", 0.0, 0.25) == 0
    for kind in ("one-cycle", "cosine"):
        assert schedule(kind, 0.25, 0.25) == pytest.approx(1)
        assert schedule(kind, 1.0, 0.25) == pytest.approx(0)
        values = [schedule(kind, 0.25 + 0.75 * k / 50, 0.25) for k in range(51)]
        assert values == sorted(values, reverse=True)
    assert schedule("constant", 0.7, 0.25) == 1


def test_window_lengths_are_drawn_as_the_original_draws_them(tmp_path):
    run = training(tmp_path / "run", bptt=70)
    lengths = [run._draw_length() for _ in range(20_000)]
    short = sum(n < 52.5 for n in lengths) / len(lengths)
    assert min(lengths) >= 5
    assert short == pytest.approx(0.05, abs=0.006)
    longer = [n for n in lengths if n > 52.5]
    assert sum(longer) / len(longer) == pytest.approx(69.5, abs=0.2)  # int() cuts off half a word


@pytest.mark.parametrize("vary", [True, False])
def test_the_learning_rate_goes_with_the_window(tmp_path, vary):
    run = training(tmp_path / "run", vary_bptt=vary, averaging="none", weight_decay=0.0, clip=0.0)
    run._draw_length = lambda: 6
    before = [p.detach().clone() for p in run.parameters]
    step(run)
    moved = [b - p.detach() for b, p in zip(before, run.parameters, strict=True)]
    for change, p in zip(moved, run.parameters, strict=True):
        assert torch.allclose(change, p.grad * 5.0 * (6 / 12 if vary else 1), atol=1e-12)


@pytest.mark.parametrize("kind", ["nan", "huge"])
def test_divergence_stops_with_the_step_and_keeps_the_last_good_checkpoint(tmp_path, kind):
    run = training(tmp_path / "run")
    fit(run, epochs=1)
    kept = (tmp_path / "run" / checkpoint.NAME).read_bytes()
    with torch.no_grad():
        run.model.decoder.bias.fill_(math.nan if kind == "nan" else 0.0)
        run.model.decoder.bias[3] = 1000.0
    step = run.progress.step
    with pytest.raises(
        Diverged, match=rf"step {step + 1} \(epoch 2\): loss .*, gradient norm .*last checkpoint is kept"
    ):
        fit(run)
    assert (tmp_path / "run" / checkpoint.NAME).read_bytes() == kept


def test_a_full_disk_loses_nothing(tmp_path):
    run = training(tmp_path / "run")
    fit(run, epochs=1)
    kept = {p.name: p.read_bytes() for p in (tmp_path / "run").iterdir()}

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))  # the system refuses to write more into a file
    try:
        with pytest.raises(UserError, match=r"cannot write .*trainer.pt: File too large"):
            save(run)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {p.name: p.read_bytes() for p in (tmp_path / "run").iterdir()} == kept


def test_a_listener_that_fails_loses_no_step(tmp_path):
    def fails(record):
        if record.step == 5:
            raise BrokenPipeError

    run = training(tmp_path / "run")
    with pytest.raises(BrokenPipeError):
        fit(run, [fails])
    assert checkpoint.load(tmp_path / "run")["progress"]["step"] == 5


def test_two_trainers_do_not_share_a_folder(tmp_path):
    with checkpoint.lock(tmp_path), pytest.raises(UserError, match="another process is training there"):
        checkpoint.lock(tmp_path).__enter__()
    with checkpoint.lock(tmp_path):
        pass


@pytest.mark.parametrize(
    ("content", "message"), [(None, "nothing to resume"), (b"", "damaged"), (b"PK\x03\x04rubbish", "damaged")]
)
def test_a_checkpoint_that_is_none(tmp_path, content, message):
    if content is not None:
        (tmp_path / checkpoint.NAME).write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        checkpoint.load(tmp_path)
    assert "\n" not in str(caught.value)


def test_too_little_text_is_refused(tmp_path):
    with pytest.raises(UserError, match="training text has 5 tokens; 4 columns need at least 8"):
        LanguageModelTraining(model(), TRAIN[:5], VALID, config(), tmp_path)


def test_the_log_says_what_happened_and_is_cut_back_on_resume(tmp_path):
    run = training(tmp_path / "run", log_steps=3, epochs=2)
    fit(run, epochs=1)
    log = (tmp_path / "run" / "log.jsonl").read_text()
    with (tmp_path / "run" / "log.jsonl").open("a") as file:
        file.write('{"event": "step", "from": "a run that was killed"}\n')
    again = training(tmp_path / "run", log_steps=3, epochs=2)
    restore(again, checkpoint.load(tmp_path / "run"))
    assert (tmp_path / "run" / "log.jsonl").read_text() == log
    fit(again)
    records = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [r["step"] for r in records if r["event"] == "step"] == list(range(3, again.progress.step + 1, 3))
    assert [r["epoch"] for r in records if r["event"] == "epoch"] == [1, 2]
    assert records[-1]["valid_perplexity"] == pytest.approx(math.exp(again.progress.history[-1]))


def test_how_far_a_training_is():
    where = Training.where.fget
    assert where(SimpleNamespace(progress=Progress(step=132), done=132 / 5600)) == "step 132 of 5,600 (2 %)"
    assert where(SimpleNamespace(progress=Progress(), done=0.0)) == "step 0"


def test_the_learning_rate_decays_after_some_epochs(tmp_path):
    rates = {}
    run = training(tmp_path / "run", averaging="none", vary_bptt=False, decay=0.5, decay_epoch=2)
    assert fit(run, [lambda r: rates.setdefault(r.epoch, r.numbers["lr"]) if r.event != "epoch" else None])
    assert rates == {1: 5.0, 2: 5.0, 3: 2.5, 4: 1.25}  # as Zaremba et al. (2014) do
    for wrong in ({"decay": 0.0}, {"decay": 1.5}, {"decay_epoch": -1}, {"beta1": 1.0}):
        with pytest.raises(UserError, match=f"^train.{next(iter(wrong))} "):
            config(**wrong)
