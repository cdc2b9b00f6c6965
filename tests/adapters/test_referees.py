"""Independent referees: minicons and lm-eval score BLiMP sentences through the adapter as `onlstm blimp` does.

They bring their own reading of a tokenizer, padding, batches and sums. A tie is right for lm-eval and wrong for us, so
what is compared is how often the good sentence is more, as and less likely. The model is random, of float64: then a
difference of 1e-9 is one, and none comes from rounding.
"""

import json
import os
import warnings
import zipfile
from collections import Counter
from pathlib import Path

import pytest
import torch

from helpers import onlstm, random_model
from onlstm.lm.model import LanguageModel
from onlstm.lm.score import score
from onlstm.text.rules import rules
from onlstm.text.tokenizer import Tokenizer, vocabulary

os.environ["HF_HUB_OFFLINE"] = "1"
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs
    for needed in ("transformers", "minicons", "lm_eval"):
        pytest.importorskip(needed, reason="needs the extra referees")
    import lm_eval
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager
    from minicons.scorer import IncrementalLMScorer

hf = pytest.importorskip("onlstm.adapters.huggingface")
BLIMP = Path(__file__).parents[3] / "shared" / "data" / "blimp" / "blimp-half-a.zip"
pytestmark = [pytest.mark.slow, pytest.mark.data, pytest.mark.filterwarnings("ignore")]
TASK = """
task: pairs
dataset_path: json
dataset_kwargs: {{data_files: {{validation: {folder}/pairs.jsonl}}, cache_dir: {folder}/cache}}
output_type: multiple_choice
validation_split: validation
doc_to_text: ""
doc_to_choice: "{{{{[sentence_good, sentence_bad]}}}}"
doc_to_target: 0
metric_list: [{{metric: acc, aggregation: mean, higher_is_better: true}}]
"""


@pytest.fixture(scope="module")
def pairs():
    """100 pairs of each of five paradigms."""
    if not BLIMP.exists():
        pytest.skip("no BLiMP in ../shared")
    with zipfile.ZipFile(BLIMP) as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".jsonl"))
        lines = [line for name in names[::7] for line in archive.read(name).decode().splitlines()[:100]]
    return [json.loads(line) for line in lines]


def sentences(pairs):
    return [pair[name] for pair in pairs for name in ("sentence_good", "sentence_bad")]


@pytest.fixture(scope="module", params=["onlstm", "lstm"])
def run(request, pairs, tmp_path_factory):
    """The folder of a random model that knows the commonest words of the pairs."""
    profile = {"onlstm": "ptb-en", "lstm": "generic"}[request.param]
    counts = Counter(word for text in sentences(pairs) for word in rules(profile).words(text))
    tokenizer = Tokenizer.of_words(vocabulary(counts, 200, 1), profile)
    options = {"embedding_size": 24, "hidden_size": 40, "num_layers": 3, "chunk_size": 8}
    folder = tmp_path_factory.mktemp("run")
    random_model(tokenizer, torch.float64, rnn=request.param, **options).save(folder)
    return folder


def counts(log_p):
    """How many pairs have a better, an equal and a worse good sentence."""
    found = [good - bad for good, bad in zip(log_p[::2], log_p[1::2], strict=True)]
    return sum(d > 1e-9 for d in found), sum(abs(d) <= 1e-9 for d in found), sum(d < -1e-9 for d in found)


@pytest.fixture(scope="module")
def texts(pairs):
    return sentences(pairs)


@pytest.fixture(scope="module")
def ours(run, pairs, texts, tmp_path_factory):
    """What `onlstm blimp --scores` writes; it is what `onlstm.lm.score` says, and what the command counts."""
    folder = tmp_path_factory.mktemp("blimp")
    (folder / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    asked = [run, folder / "pairs.jsonl", "--scores", folder / "scores.jsonl", "--out", folder / "out.json"]
    assert onlstm("blimp", *asked, "--threads", 1).code == 0
    records = [json.loads(line) for line in (folder / "scores.jsonl").read_text().splitlines()]
    assert [record[name] for record in records for name in ("good", "bad")] == texts
    log_p = [record[name] for record in records for name in ("score_good", "score_bad")]
    assert log_p == pytest.approx([-found.total for found in score(LanguageModel.load(run), texts)], abs=1e-6)
    more, equal, less = counts(log_p)
    assert min(more, equal, less) > 10  # all three kinds are there to be compared
    whole = json.loads((folder / "out.json").read_text())["all"]
    assert (whole["n"], whole["correct"], whole["ties"]) == (len(pairs), more, equal)
    return log_p


def test_minicons_agrees(run, texts, ours):
    referee = IncrementalLMScorer(hf.OnlstmForCausalLM.from_run(run), "cpu", tokenizer=hf.tokenizer_from_run(run))
    theirs = []
    for k in range(0, len(texts), 64):
        theirs += referee.sequence_score(texts[k : k + 64], reduction=lambda each: each.sum().item())
    assert theirs == pytest.approx(ours, abs=1e-6)
    assert counts(theirs) == counts(ours)


def test_lm_eval_agrees(run, texts, ours):
    referee = HFLM(hf.OnlstmForCausalLM.from_run(run), tokenizer=hf.tokenizer_from_run(run), batch_size=64)
    requests = [Instance("loglikelihood", {}, ("", text), k) for k, text in enumerate(texts)]
    theirs = [log_p for log_p, _ in referee.loglikelihood(requests, disable_tqdm=True)]
    assert theirs == pytest.approx(ours, abs=1e-6)
    assert counts(theirs) == counts(ours)


def test_lm_evals_accuracy_on_a_task_of_pairs_counts_ties_as_right(run, pairs, ours, tmp_path):
    names = ("sentence_good", "sentence_bad")
    lines = [json.dumps({name: pair[name] for name in names}) for pair in pairs]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines))
    (tmp_path / "pairs.yaml").write_text(TASK.format(folder=tmp_path))
    hf.export(run, tmp_path / "out")
    hf.register()
    # One by one: in batches of other sizes the last bit of equal sentences may differ, and so who wins a tie.
    referee = HFLM(str(tmp_path / "out"), device="cpu", batch_size=1)
    tasks = TaskManager(include_path=str(tmp_path), include_defaults=False)
    found = lm_eval.simple_evaluate(referee, tasks=["pairs"], task_manager=tasks, bootstrap_iters=0)
    more, equal, _ = counts(ours)
    assert found["results"]["pairs"]["acc,none"] == pytest.approx((more + equal) / len(pairs))
