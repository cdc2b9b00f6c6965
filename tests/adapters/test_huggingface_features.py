"""What users of transformers expect of any model: hidden states, embeddings, hooks, LoRA, pipelines, stop strings."""

import os

import pytest
import safetensors.torch
import torch

from helpers import random_model
from onlstm.errors import UserError
from onlstm.lm.model import LanguageModel
from onlstm.text.tokenizer import Tokenizer

os.environ["HF_HUB_OFFLINE"] = "1"
transformers = pytest.importorskip("transformers", minversion="5.13", reason="needs the extra hf")
hf = pytest.importorskip("onlstm.adapters.huggingface")

WORDS = ["the", "a", "bird", ",", "that", "sings", "in", "old", "tree", ".", "and", "was", "u.s.", "n't"]
KINDS = {
    "tied": {},
    "lstm": {"rnn": "lstm"},
    "mos": {"mos": 3},
    "adaptive": {"softmax": "adaptive", "tied": False},
    "untied": {"tied": False},
    "rhn": {"rnn": "rhn", "depth": 2},
    "prpn": {"rnn": "prpn", "slots": 3, "lookback": 2},
    "pointer": {"pointer": 3},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Exported models, and the runs they come from in `runs`."""
    folder = tmp_path_factory.mktemp("models")
    for kind, options in KINDS.items():
        random_model(Tokenizer.of_words(WORDS), torch.float64, spread=2, **options).save(folder / "runs" / kind)
        hf.export(folder / "runs" / kind, folder / kind)
    hf.register()
    return folder


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def load(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder)


def batch():
    """Three sentences of 5, 2 and 4 words after `<eos>`, padded on the left, and which words are real."""
    ids = torch.randint(len(WORDS), (3, 6), generator=torch.Generator().manual_seed(1))
    real = torch.arange(6) >= torch.tensor([0, 3, 1])[:, None]
    return ids, real.long()


def test_hidden_states_are_the_layers_outputs(kind, folders):
    model, lm = load(folders / kind), LanguageModel.load(folders / "runs" / kind)
    ids, mask = batch()
    states = model(ids, output_hidden_states=True).hidden_states
    assert model(ids).hidden_states is None
    torch.testing.assert_close(states[0], lm.embedding(ids), rtol=0, atol=0)
    assert len(states) == len(lm.layers) + 1
    for count in range(1, len(states)):
        torch.testing.assert_close(states[count], lm.encode(ids.T, layers=count).hidden.transpose(0, 1))
    masked = model(ids, attention_mask=mask, output_hidden_states=True).hidden_states
    alone = model(ids[1:2, 3:], output_hidden_states=True).hidden_states
    for state, expected in zip(masked, alone, strict=True):
        torch.testing.assert_close(state[1:2, 3:], expected)


def test_auto_model_is_the_model_without_its_softmax(kind, folders, tmp_path):
    base, info = transformers.AutoModel.from_pretrained(folders / kind, output_loading_info=True)
    ids, mask = batch()
    output = base(ids, attention_mask=mask, output_hidden_states=True)
    whole = load(folders / kind)
    expected = whole(ids, attention_mask=mask, output_hidden_states=True)
    assert type(base) is hf.OnlstmModel
    assert not any(info.values())
    torch.testing.assert_close(output.last_hidden_state, expected.hidden_states[-1])
    torch.testing.assert_close(output.state, expected.state[:, : output.state.shape[1]])  # a pointer's comes last
    assert len(base(ids, return_dict=False)) == 2
    base.save_pretrained(tmp_path / "base")
    _, info = hf.OnlstmForCausalLM.from_pretrained(tmp_path / "base", output_loading_info=True)
    assert info["missing_keys"]
    assert all(name.startswith(("lm.decoder.", "lm.pointer.")) for name in info["missing_keys"])


def test_embeddings_take_the_place_of_ids(kind, folders):
    model = load(folders / kind)
    ids, mask = batch()
    embedded = model.get_input_embeddings()(ids)
    if kind == "pointer":  # which points to words
        with pytest.raises(UserError, match="needs input_ids"):
            model(inputs_embeds=embedded)
        return
    torch.testing.assert_close(
        model(inputs_embeds=embedded, attention_mask=mask).logits, model(ids, attention_mask=mask).logits
    )
    options = {"attention_mask": mask, "max_new_tokens": 6, "do_sample": False}
    for use_cache in (True, False):
        written = model.generate(inputs_embeds=embedded, **options, use_cache=use_cache)
        assert written.tolist() == model.generate(ids, **options)[:, 6:].tolist()
    for inputs in ({}, {"input_ids": ids, "inputs_embeds": embedded}):
        with pytest.raises(UserError, match="exactly one of them"):
            model(**inputs)


def test_embeddings_can_be_exchanged(folders):
    model, ids = load(folders / "untied"), batch()[0]
    table = torch.nn.Embedding.from_pretrained(model.get_input_embeddings().weight.flip(0))
    expected = model(len(table.weight) - 1 - ids).logits
    model.set_input_embeddings(table)
    assert model.get_input_embeddings() is model.lm.embedding is table
    torch.testing.assert_close(model(ids).logits, expected)
    old = model.get_output_embeddings()
    assert old is model.lm.decoder
    linear = torch.nn.Linear(old.in_features, old.out_features, dtype=old.weight.dtype)
    linear.load_state_dict(old.state_dict())
    model.set_output_embeddings(linear)
    torch.testing.assert_close(model(ids).logits, expected)
    assert load(folders / "adaptive").get_output_embeddings() is None


def test_every_module_is_called_so_that_hooks_run(kind, folders):
    model, called = load(folders / kind), set()
    modules = {"": model, "embedding": model.lm.embedding} | dict(model.lm.layers.named_children())
    modules |= model.lm.decoder.named_children() if kind in ("mos", "adaptive") else {}
    modules |= {} if kind == "adaptive" else {"decoder": model.lm.decoder}
    modules = {name: module for name, module in modules.items() if not isinstance(module, torch.nn.ModuleList)}
    for name, module in modules.items():
        module.register_forward_hook(lambda *_, name=name: called.add(name))
    ids, mask = batch()
    for inputs in ({}, {"attention_mask": mask}):
        called.clear()
        model(ids, **inputs)
        assert called == {*modules}


def test_a_hook_changes_the_output(folders):
    model, ids = load(folders / "tied"), batch()[0]
    before = model(ids).logits
    model.lm.layers[0].register_forward_hook(lambda _, args, output: output._replace(output=output.output * 0))
    assert not torch.allclose(model(ids).logits, before)


@pytest.mark.parametrize("kind", ["untied", "lstm"])
def test_lora(kind, folders, tmp_path):
    peft = pytest.importorskip("peft", reason="needs peft")
    model, (ids, mask) = load(folders / kind), batch()
    before = model(ids, attention_mask=mask).logits
    targets = {"target_modules": ["decoder"]} if kind == "untied" else {}
    config = peft.LoraConfig(r=2, target_parameters=["weight_hh_l0", "weight_ih_l0"], task_type="CAUSAL_LM", **targets)
    tuned = peft.get_peft_model(model, config)
    torch.testing.assert_close(tuned(input_ids=ids, attention_mask=mask).logits, before)

    trained = [(name, p) for name, p in tuned.named_parameters() if p.requires_grad]
    assert len(trained) == 8 + 2 * (kind == "untied")
    assert all("lora_" in name for name, _ in trained)
    tuned.eval()  # no dropout, so that the loss falls
    optimizer = torch.optim.Adam([p for _, p in trained], lr=0.02)
    losses = []
    for _ in range(20):
        loss = tuned(input_ids=ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100)).loss
        optimizer.zero_grad()
        loss.backward()
        assert all(p.grad is not None for _, p in trained)
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.3

    after = tuned(input_ids=ids, attention_mask=mask).logits
    options = {"input_ids": ids, "attention_mask": mask, "max_new_tokens": 5, "do_sample": False}
    written = tuned.generate(**options)
    tuned.save_pretrained(tmp_path / "lora")
    again = peft.PeftModel.from_pretrained(load(folders / kind), tmp_path / "lora")
    torch.testing.assert_close(again(input_ids=ids, attention_mask=mask).logits, after)
    merged = tuned.merge_and_unload()
    torch.testing.assert_close(merged(ids, attention_mask=mask).logits, after)
    assert merged.generate(**options).tolist() == written.tolist()
    merged.lm.tokenizer = Tokenizer.of_words(WORDS)
    merged.lm.save(tmp_path / "run")  # an ordinary run again
    expected = merged(ids).logits
    torch.testing.assert_close(hf.OnlstmForCausalLM.from_run(tmp_path / "run")(ids).logits, expected)


def test_lora_on_a_tied_softmax_leaves_the_embedding_alone(folders):
    peft = pytest.importorskip("peft", reason="needs peft")
    model, ids = load(folders / "tied"), batch()[0]
    before, embedded = model(ids).logits, model.get_input_embeddings()(ids)
    tuned = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["decoder"], task_type="CAUSAL_LM")).eval()
    torch.testing.assert_close(tuned(input_ids=ids).logits, before)
    torch.nn.init.normal_(model.lm.decoder.lora_B.default.weight)
    assert not torch.allclose(tuned(input_ids=ids).logits, before)
    torch.testing.assert_close(model.get_input_embeddings()(ids), embedded, rtol=0, atol=0)


def test_a_missing_tied_weight_is_reported_as_gpt2_reports_its_own(folders, tmp_path):
    small = {"vocab_size": 16, "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 8}
    gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(**small, bos_token_id=1, eos_token_id=1))
    names = {
        "gpt2": ("transformer.wte.weight", "lm_head.weight"),
        "tied": ("lm.embedding.weight", "lm.decoder.weight"),
    }
    reports = []
    for name, model in {"gpt2": gpt2, "tied": load(folders / "tied")}.items():
        source, target = names[name]
        model.save_pretrained(tmp_path / name)
        path = tmp_path / name / "model.safetensors"
        tensors = safetensors.torch.load_file(path)
        assert target not in tensors
        del tensors[source]
        safetensors.torch.save_file(tensors, path, {"format": "pt"})
        loaded, info = type(model).from_pretrained(tmp_path / name, output_loading_info=True)
        reports.append({names["tied"][names[name].index(key)] for key in info["missing_keys"]})
        assert loaded.get_input_embeddings().weight is loaded.get_output_embeddings().weight
    assert reports[0] == reports[1] != set()


def test_unknown_keywords_are_refused(folders):
    model, ids = load(folders / "tied"), batch()[0]
    for call in (model, transformers.AutoModel.from_pretrained(folders / "tied")):
        for wrong in ({"atention_mask": ids}, {"past_key_values": None}, {"position_ids": ids}):
            with pytest.raises(TypeError, match=next(iter(wrong))):
                call(ids, **wrong)
        with pytest.raises(UserError, match="no attention"):
            call(ids, output_attentions=True)
    with pytest.raises(ValueError, match="atention_mask"):
        model.generate(ids, atention_mask=ids, max_new_tokens=1)


def test_pipelines(folders, capfd):
    write = transformers.pipeline("text-generation", str(folders / "tied"), device="cpu")
    options = {"max_new_tokens": 6, "do_sample": False, "no_repeat_ngram_size": 1}
    ids = write.tokenizer("the bird ,", return_tensors="pt")["input_ids"]
    words = write.tokenizer.convert_ids_to_tokens(write.model.generate(ids, **options)[0, ids.shape[1] :])
    (new,) = write("the  bird ,", **options, return_full_text=False, clean_up_tokenization_spaces=False)
    (whole,) = write("the  bird ,", **options, clean_up_tokenization_spaces=False)
    assert len(set(words)) > 3
    assert new["generated_text"] == "".join(f" {word}" for word in words if word != "<eos>")
    assert whole["generated_text"] == "the  bird ," + new["generated_text"]
    assert "not supported" not in capfd.readouterr().err
    features = transformers.pipeline("feature-extraction", str(folders / "tied"), device="cpu")
    assert torch.tensor(features("the bird")).shape == (1, 3, 8)


def test_decoded_parts_of_a_text_join_to_the_whole(folders):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders / "tied")
    ids = tokenizer("the bird , that sings")["input_ids"]
    assert tokenizer.decode(ids) == "<eos> the bird , that sings"
    assert tokenizer.decode(ids[:3]) + tokenizer.decode(ids[3:]) == tokenizer.decode(ids)
    assert tokenizer.decode(ids, skip_special_tokens=True) == " the bird , that sings"


def test_stop_strings(folders):
    model, tokenizer = load(folders / "tied"), transformers.AutoTokenizer.from_pretrained(folders / "tied")
    inputs = tokenizer(["the bird", "", "a tree was old"], return_tensors="pt", padding=True)
    options = {"do_sample": False, "max_new_tokens": 8, "no_repeat_ngram_size": 1, "suppress_tokens": [15, 14]}
    start = inputs["input_ids"].shape[1]
    texts = [tokenizer.decode(row[start:]) for row in model.generate(**inputs, **options)]
    words = texts[0].split()
    for stop in ([words[2]], [f"{words[1]} {words[2]}", "no such"], [words[3][-1]], words[5]):
        written = model.generate(**inputs, **options, stop_strings=stop, tokenizer=tokenizer)
        for text, row in zip(texts, written, strict=True):
            ends = [
                text.find(string) + len(string) for string in ([stop] if stop == words[5] else stop) if string in text
            ]
            expected = text[: (text + " ").index(" ", min(ends))] if ends else text
            assert tokenizer.decode(row[start:]).replace(" <eos>", "") == expected
    config = transformers.GenerationConfig(**options, stop_strings=words[2], pad_token_id=tokenizer.eos_token_id)
    written = model.generate(
        **tokenizer("the bird", return_tensors="pt"), generation_config=config, tokenizer=tokenizer
    )
    assert tokenizer.decode(written[0]).endswith(" ".join(words[:3]))
    assert config.stop_strings == words[2]
    with pytest.raises(ValueError, match="tokenizer"):
        model.generate(**inputs, **options, stop_strings=["x"])
