"""The Hugging Face door: whatever way transformers calls the model, the figures are those of the run."""

import os
import re
import socket
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from onlstm.errors import UserError
from onlstm.lm.config import LMConfig
from onlstm.lm.model import LanguageModel
from onlstm.lm.score import score
from onlstm.text.rules import PROFILES
from onlstm.text.tokenizer import Tokenizer

os.environ["HF_HUB_OFFLINE"] = "1"
transformers = pytest.importorskip("transformers", minversion="5.13", reason="needs the extra hf")
hf = pytest.importorskip("onlstm.adapters.huggingface")

WORDS = [f"w{k}" for k in range(28)]
TOKENIZER = Tokenizer.of_words(WORDS)
EOS = TOKENIZER.eos_id
KINDS = {
    "tied": {},
    "lstm": {"rnn": "lstm", "weight_dropout_scale": "inverted"},
    "mos": {"mos": 3},
    "adaptive": {"softmax": "adaptive", "tied": False},
    "prpn": {"rnn": "prpn", "slots": 3, "lookback": 2},
    "pointer": {"rnn": "lstm", "pointer": 3, "tied": False},
    "characters": {"rnn": "rhn", "filters": (5, 3), "tied": False},
    "uneven": {"hidden_size": (12, 20, 16), "tied": False, "free_last_chunk": True},
}


def model(dtype=torch.float64, tokenizer=TOKENIZER, **options):
    torch.manual_seed(0)
    config = {"vocab_size": len(tokenizer), "embedding_size": 8, "hidden_size": 12, "num_layers": 2, "chunk_size": 4}
    made = LanguageModel(LMConfig(**config | options), tokenizer).to(dtype)
    with torch.no_grad():
        for p in made.parameters():
            p.uniform_(-0.7, 0.7)  # far from uniform predictions
    return made.eval()


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for kind, options in KINDS.items():
        model(**options).save(folder / kind)
    return folder


@pytest.fixture
def no_network(monkeypatch):
    def refuse(self, address):
        raise AssertionError(f"a connection to {address}")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def sentences(*lengths, seed=1):
    """Ids (B, T), padded with `<eos>` on the left, and which are real."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.full((len(lengths), max(lengths)), EOS)
    for row, length in zip(ids, lengths, strict=True):
        row[len(row) - length :] = torch.randint(28, (length,), generator=generator)
    return ids, torch.arange(max(lengths)) >= max(lengths) - torch.tensor(lengths)[:, None]


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_survives_export_and_the_auto_classes(kind, runs, tmp_path, no_network):
    hf.export(runs / kind, tmp_path / "out")
    hf.register()
    hf.register()  # twice does no harm
    config = transformers.AutoConfig.from_pretrained(tmp_path / "out")
    loaded, info = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    original = LanguageModel.load(runs / kind)

    assert [path.name for path in sorted((tmp_path / "out").iterdir())] == [
        *("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
    ]
    assert not any(info.values())
    assert type(loaded) is hf.OnlstmForCausalLM
    assert config.shape() == loaded.lm.config == original.config
    assert (config.vocab_size, config.num_hidden_layers) == (30, original.config.num_layers)
    assert not loaded.training
    assert loaded.dtype == torch.float64
    assert loaded.num_parameters() == sum(p.numel() for p in original.parameters())
    torch.testing.assert_close(loaded.lm.state_dict(), original.state_dict(), rtol=0, atol=0)

    ids = tokenizer("w3 w1 nobody w4", return_tensors="pt")["input_ids"]
    assert ids.tolist() == [[EOS, 3, 1, TOKENIZER.unk_id, 4]]
    expected = original(ids.T).logits.log_softmax(-1).transpose(0, 1)
    torch.testing.assert_close(loaded(ids).logits, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_step_by_step_is_whole(kind, runs):
    made = hf.OnlstmForCausalLM.from_run(runs / kind)
    ids, _ = sentences(9, 9, 9)
    with torch.no_grad():
        whole = made(ids)
        state, steps = None, []
        for part in ids.split([4, 1, 1, 3], 1):
            output = made(part, state=state)
            state = output.state
            steps.append(output.logits)
    torch.testing.assert_close(torch.cat(steps, 1), whole.logits, rtol=0, atol=1e-12)
    torch.testing.assert_close(state, whole.state, rtol=0, atol=1e-12)
    torch.testing.assert_close(made(ids, logits_to_keep=2).logits, whole.logits[:, -2:])
    torch.testing.assert_close(made(ids, logits_to_keep=torch.tensor([0, 5])).logits, whole.logits[:, [0, 5]])


def test_float32_steps_are_whole_within_a_millionth():
    lm = model(torch.float32)
    made = hf.OnlstmForCausalLM(hf.OnlstmConfig(vocab_size=30, embedding_size=8, hidden_size=12, chunk_size=4)).eval()
    made.lm = lm
    ids, _ = sentences(30)
    with torch.no_grad():
        whole, state, steps = made(ids), None, []
        for word in ids.split(1, 1):
            output = made(word, state=state)
            state = output.state
            steps.append(output.logits)
    torch.testing.assert_close(torch.cat(steps, 1), whole.logits, rtol=0, atol=1e-6)
    torch.testing.assert_close(state, whole.state, rtol=0, atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.booleans(), min_size=7, max_size=7), min_size=1, max_size=5), st.sampled_from([*KINDS]))
def test_what_the_mask_hides_is_not_read(runs, mask, kind):
    made = hf.OnlstmForCausalLM.from_run(runs / kind)
    real = torch.tensor(mask)
    real[0, 3] = True  # something to read
    ids = sentences(*[7] * len(mask))[0]
    with torch.no_grad():
        start = made(ids.flip(1)).state
        found = made(ids, attention_mask=real.long(), state=start)
        for k, chosen in enumerate(real):
            if not chosen.any():
                torch.testing.assert_close(found.state[k], start[k])
                continue
            alone = made(ids[k : k + 1, chosen], state=start[k : k + 1])
            torch.testing.assert_close(found.logits[k, chosen], alone.logits[0], rtol=0, atol=1e-12)
            torch.testing.assert_close(found.logits[k, -1], alone.logits[0, -1], rtol=0, atol=1e-12)
            torch.testing.assert_close(found.state[k], alone.state[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kind", ["tied", "lstm", "mos"])
def test_generate_is_our_own(kind, side, runs):
    made, tokenizer = hf.OnlstmForCausalLM.from_run(runs / kind), hf.tokenizer_from_run(runs / kind)
    prompts = ["w3 w1 w4 w1 w5", "", "w9 nobody", "w2"]
    batch = tokenizer(prompts, return_tensors="pt", padding=True, padding_side=side)
    lengths = []
    made.register_forward_pre_hook(lambda _, args, given: lengths.append(given["input_ids"].shape[1]), with_kwargs=True)
    for use_cache in (True, False):
        written = made.generate(**batch, max_new_tokens=8, do_sample=False, use_cache=use_cache)
        texts = tokenizer.batch_decode(written[:, batch["input_ids"].shape[1] :])
        for prompt, text in zip(prompts, texts, strict=True):
            (ours,) = made.lm.generate(prompt, words=8, temperature=0)
            assert text.split()[: len(ours)] == ours
            assert set(text.split()[len(ours) :]) <= {"<eos>"}
    assert lengths[:8] == [6, *[1] * 7]  # the state is carried: one word a step
    assert lengths[8:] == [*range(6, 14)]


def test_beams_carry_their_states(runs):
    made = hf.OnlstmForCausalLM.from_run(runs / "tied")
    ids, real = sentences(5, 3, 1)
    options = {"num_beams": 4, "num_return_sequences": 4, "max_new_tokens": 12, "eos_token_id": None}
    options |= {"attention_mask": real.long(), "return_dict_in_generate": True, "output_scores": True}
    carried, again = (made.generate(ids, **options, use_cache=use_cache) for use_cache in (True, False))
    assert carried.sequences.tolist() == again.sequences.tolist()
    torch.testing.assert_close(carried.sequences_scores, again.sequences_scores, rtol=0, atol=1e-5)
    start = made(ids[:, :2]).state
    on = made.generate(ids[:, 2:], state=start, num_beams=4, max_new_tokens=6)
    assert on[:, 3:].tolist() == made.generate(ids, num_beams=4, max_new_tokens=6)[:, 5:].tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_loss_is_the_mean_surprisal_and_its_gradient_the_models(kind, runs):
    made, tokenizer = hf.OnlstmForCausalLM.from_run(runs / kind), hf.tokenizer_from_run(runs / kind)
    texts = ["w3 w1 w4", "w2 w7 w1 w8 w2", "nobody"]
    batch = tokenizer(texts, return_tensors="pt", padding=True)
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    output = made(**batch, labels=labels)
    surprisals = [each for found in score(made.lm, texts) for each in found.surprisal]
    assert output.loss.item() == pytest.approx(sum(surprisals) / len(surprisals), abs=1e-6)

    output.loss.backward()
    found = {name: p.grad.clone() for name, p in made.lm.named_parameters()}
    made.zero_grad()
    total = 0
    for text in texts:
        ids = torch.tensor(tokenizer(text)["input_ids"])
        log_p = made.lm(ids[:-1, None]).logits[:, 0].log_softmax(-1)
        total = total - log_p.gather(1, ids[1:, None]).sum()
    (total / len(surprisals)).backward()
    for name, p in made.lm.named_parameters():
        torch.testing.assert_close(found[name], p.grad, rtol=0, atol=1e-6, msg=name)


def test_dropout_is_the_same_at_all_times_whatever_the_padding(runs):
    made = hf.OnlstmForCausalLM.from_run(runs / "tied").train()
    ids = sentences(9, 9)[0]
    half = torch.ones_like(ids)
    half[1, :6] = 0  # row 0 is now computed in two parts
    rows = []
    for mask in (torch.ones_like(ids), half):
        torch.manual_seed(3)
        rows.append(made(ids, attention_mask=mask).logits[0])
    torch.testing.assert_close(*rows, rtol=0, atol=1e-12)
    assert not torch.allclose(made(ids).logits[0], rows[0])  # another call, other masks


text = st.lists(
    st.sampled_from(
        [*WORDS, "W1", "can't", "u.s.", "3,000", "<eos>", "<unk>", "<unk>.", "x<eos>y", "ﬁ. ", "é", ",", "\n"]
    )
)


@pytest.mark.parametrize("profile", PROFILES)
def test_the_tokenizer_gives_the_runs_ids(profile, tmp_path):
    words = [*WORDS, "ca", "n't", "can't", "N", "u.s.", "eos", "x", "y", "é"]
    ours = Tokenizer.of_words(words, profile)
    ours.save(tmp_path / "tokenizer.json")
    made = hf.tokenizer_from_run(tmp_path)
    made.save_pretrained(tmp_path / "saved")
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")

    @settings(max_examples=60, deadline=None)
    @given(text)
    def same(parts):
        raw = " ".join(parts)
        expected = [ours.eos_id, *(token.id for token in ours.tokens(raw))]
        assert made(raw)["input_ids"] == again(raw)["input_ids"] == expected
        assert again.decode(expected).split(" ") == [ours.vocabulary[id] for id in expected]

    same()
    assert len(again) == len(ours)
    assert again.bos_token_id == again.eos_token_id == again.pad_token_id == ours.eos_id
    assert again("w1", "w2")["input_ids"] == [ours.eos_id, 1, ours.eos_id, 2]
    padded = again(["w1 w2", ""], padding=True)
    assert padded["input_ids"] == [[ours.eos_id, 1, 2], [ours.eos_id] * 3]
    assert padded["attention_mask"] == [[1, 1, 1], [0, 0, 1]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", ["tied", "lstm"])
def test_half_precision(kind, dtype, runs, tmp_path):
    hf.export(runs / kind, tmp_path / "out")
    half = hf.OnlstmForCausalLM.from_pretrained(tmp_path / "out", dtype=dtype)
    ids, real = sentences(7, 4)
    assert {p.dtype for p in half.parameters()} == {dtype}
    whole = hf.OnlstmForCausalLM.from_run(runs / kind)(ids, attention_mask=real)
    torch.testing.assert_close(half(ids, attention_mask=real).logits.double(), whole.logits, rtol=0, atol=0.05)
    half.save_pretrained(tmp_path / "again")
    assert hf.OnlstmForCausalLM.from_pretrained(tmp_path / "again").dtype == dtype


def test_a_new_model_starts_as_ours_does():
    torch.manual_seed(0)
    made = hf.OnlstmForCausalLM(hf.OnlstmConfig(vocab_size=3000, embedding_size=40, hidden_size=60, init_range=0.3))
    ours = LanguageModel(made.config.shape())
    assert made.lm.decoder.weight is made.lm.embedding.weight
    for (name, mine), theirs in zip(made.lm.named_parameters(), ours.parameters(), strict=True):
        for figure in (Tensor.max, Tensor.min, Tensor.std):
            assert figure(mine).item() == pytest.approx(figure(theirs).item(), rel=0.1, abs=1e-9), name


def test_a_weight_that_is_missing_starts_anew(runs, tmp_path):
    hf.export(runs / "tied", tmp_path / "out")
    path, lost = tmp_path / "out" / "model.safetensors", "lm.layers.0.weight_hh_l0"
    kept = safetensors.torch.load_file(path)
    del kept[lost]
    safetensors.torch.save_file(kept, path, {"format": "pt"})
    loaded = hf.OnlstmForCausalLM.from_pretrained(tmp_path / "out").state_dict()
    assert 0.2 < loaded.pop(lost).abs().max() <= 12**-0.5
    torch.testing.assert_close(loaded, kept | {"lm.decoder.weight": kept["lm.embedding.weight"]}, rtol=0, atol=0)


def test_mistakes_are_told_in_one_line(runs, tmp_path):
    made = hf.OnlstmForCausalLM.from_run(runs / "tied")
    ids = sentences(4, 4)[0]
    cases = {
        r"no-run: no such model folder": lambda: hf.export(tmp_path / "no-run", tmp_path / "out"),
        r"tokenizer.json: No such file": lambda: hf.tokenizer_from_run(tmp_path),
        r"already there; name a new": lambda: hf.export(runs / "tied", runs),
        r"cannot write .*file/out": lambda: hf.export(runs / "tied", runs / "tied" / "config.json" / "file" / "out"),
        r"model.chunk_size 5: .* nearest that work": lambda: hf.OnlstmConfig(hidden_size=12, chunk_size=5, tied=False),
        r"model: rnn: .* not .gru.": lambda: hf.OnlstmConfig(rnn="gru"),
        r"attention_mask \(2, 3\): \(2, 4\) is needed": lambda: made(ids, attention_mask=torch.ones(2, 3)),
        r"state \(2, 5\): \(2, 40\) is needed": lambda: made(ids, state=torch.ones(2, 5)),
        r"input_ids: nothing to read": lambda: made(ids, attention_mask=torch.zeros(2, 4)),
        r"the vocabulary .* is fixed": lambda: made.resize_token_embeddings(99),
    }
    for message, call in cases.items():
        with pytest.raises(UserError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)
    assert not [path for path in [*tmp_path.iterdir(), *runs.iterdir()] if path.name.startswith(".")]


def test_only_the_command_line_imports_adapters_and_only_they_transformers():
    source = Path(hf.__file__).parents[1]
    for path in source.rglob("*.py"):
        name, code = path.relative_to(source).parts[0], path.read_text()
        assert name == "adapters" or not re.search(r"^\s*(import|from) transformers", code, re.M), path
        lazily = r"^" if name == "cli" else r"^\s*"
        assert name == "adapters" or not re.search(lazily + r"(import|from) onlstm.adapters", code, re.M), path


@pytest.mark.slow
def test_trainer_fine_tunes_it(runs, tmp_path):
    pytest.importorskip("accelerate", reason="transformers.Trainer needs accelerate")
    made, tokenizer = hf.OnlstmForCausalLM.from_run(runs / "tied").float(), hf.tokenizer_from_run(runs / "tied")
    text = [tokenizer(each) for each in ("w1 w2 w3 w4", "w5 w6", "w1 w2 w3") * 8]
    collator = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False)
    options = transformers.TrainingArguments(
        output_dir=str(tmp_path / "out"),
        num_train_epochs=20,
        learning_rate=0.02,
        per_device_train_batch_size=6,
        gradient_accumulation_steps=2,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    trainer = transformers.Trainer(made, options, train_dataset=text, eval_dataset=text, data_collator=collator)
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    after = trainer.evaluate()["eval_loss"]
    assert after < before - 1
    trainer.save_model()
    again = hf.OnlstmForCausalLM.from_pretrained(tmp_path / "out")
    torch.testing.assert_close(again.state_dict(), made.state_dict())
    made.lm.save(tmp_path / "run")  # and back to a run folder
    (found,) = score(LanguageModel.load(tmp_path / "run"), ["w1 w2 w3 w4"])
    assert found.total < 4 * before
