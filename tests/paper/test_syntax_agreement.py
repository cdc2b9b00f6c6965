"""Number agreement: counts by set and part, defects in files."""

import json
from dataclasses import replace

import pytest

from minimal_pairs import SHARED, make, runner, wikitext
from onlstm.errors import UserError
from onlstm.lm.model import LanguageModel
from onlstm.lm.score import score
from onlstm.paper.syntax import agreement
from onlstm.paper.syntax.scoring import mcnemar

run_agreement = runner(agreement.task)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make(tmp_path_factory.mktemp("run") / "run")


GOLD = "x\t1\t{}\t{}\tVERB\tm\t{}\t{}\tlemma\t1\tNOUN\tprefix"


@pytest.fixture
def sets(tmp_path):
    folder = tmp_path / "sets"
    (folder / "deep").mkdir(parents=True)
    text = ["the author of are tall . <eos>", "the authors x . <eos>", "the pilot y <eos>"]
    gold = [GOLD.format(0, 3, "is", "are"), GOLD.format(4, 2, "laugh", "laughs"), GOLD.format(1, 2, "swims", "swim")]
    for suffix, lines in ((".text", text), (".gold", gold), (".eval", ["3", "2", "2"])):
        (folder / f"generated{suffix}").write_text("\n".join(lines) + "\n")
    text = ["the author is <eos>", "the pilot z <eos>", "the <eos>", "the y <eos>", "the y <eos>", "over <eos>"]
    gold = ["2\tis\tare\t0", "2\tis\tis\t1", f"{'9' * 5000}\tis\tare\t0", "1\tis", "1\tis\tare\t0"]
    for suffix, lines in ((".text", text), (".gold", gold), (".eval", ["2", "2", "9" * 5000, "1", "0"])):
        (folder / "deep" / f"linzen{suffix}").write_text("\n".join(lines) + "\n")
    (folder / "lost.text").write_text("the\n")
    return folder


def test_agreement_counts_and_names_defects(tmp_path, folder, sets):
    said = []
    found = run_agreement([folder], sets, on_defect=said.append, scores=tmp_path / "scores.tsv")
    assert [each.rpartition("/")[2] for each in said] == [
        "linzen: the numbers of lines differ (.text 6, .gold 5, .eval 5); what is over is left out",
        "linzen.gold:2: identical forms, a tie",
        f"linzen.gold:3: place '{'9' * 20}' is not one of the sentence's 2 words, counted from 0; left out",
        "linzen.gold:4: 2 columns, not the 4 or 12 of the known layouts; left out",
        "linzen.gold:5: place 1, but 0 in .eval; left out",
        "lost.gold: no such file; the set is left out",
    ]
    linzen, generated = found.sets
    assert (generated.name, generated.n, generated.ties, generated.scorable) == ("generated", 3, 1, 2)
    assert (linzen.name, linzen.n, linzen.ties, linzen.scorable) == ("linzen", 2, 1, 2)
    assert {part.part: part.n for part in generated.parts} == {"original": 1, "nonsense": 2}
    for key in ("correct", "ties", "scorable"):
        assert sum(getattr(part, key) for part in generated.parts) == getattr(generated, key)
    model = LanguageModel.load(folder)
    head, *lines = (tmp_path / "scores.tsv").read_text().splitlines()
    records = [dict(zip(head.split("\t"), each.split("\t"), strict=True)) for each in lines]
    assert records[2]["before"] == "the author of"
    for record in records:
        for form in ("right", "wrong"):
            with_it = score(model, [[*record["before"].split(), record[form]]])[0]
            assert float(record[f"score_{form}"]) == pytest.approx(-with_it.surprisal[-1], abs=1e-5)
    right = [float(record["score_right"]) > float(record["score_wrong"]) for record in records]
    assert (linzen.correct, generated.correct) == (sum(right[:2]), sum(right[2:]))


def test_two_runs_on_agreement(tmp_path, sets):
    runs = [make(tmp_path / str(seed), seed=seed) for seed in (1, 2)]
    found = run_agreement(runs, sets, scores=tmp_path / "s.jsonl")
    assert found.compare == replace(run_agreement([runs[1]], sets), runs=())
    records = [json.loads(each) for each in (tmp_path / "s.jsonl").read_text().splitlines()]
    tests = {(each.name, each.part): each for each in found.tests}
    assert len(tests) == 2 + 2 + 2
    whole = [name for name, part in tests if part is None]
    assert [name for name, _ in tests] == [name for name in whole for _ in range(3)]  # parts follow their set
    for (name, part), test in tests.items():
        some = [each for each in records if each["set"] == name and part in (None, each["kind"])]
        wins = [[each[f"{run}_right"] > each[f"{run}_wrong"] for each in some] for run in ("score", "compared")]
        assert test == replace(mcnemar(*wins), name=name, part=part)


def test_one_file_stands_for_its_set(tmp_path, folder, sets):
    alone = run_agreement([folder], sets / "generated.gold").sets
    assert alone == run_agreement([folder], sets, on_defect=list).sets[1:]
    (sets / "generated.eval").unlink()
    assert run_agreement([folder], sets / "generated.text").sets == alone
    for path in (sets / "none.gold", tmp_path / "none"):
        with pytest.raises(UserError, match="cannot read"):
            run_agreement([folder], path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no sentences"):
        run_agreement([folder], tmp_path / "empty")


@pytest.mark.data
def test_agreement_files(tmp_path):
    path = SHARED / "agreement-en" / "agreement-en.zip"
    if not path.is_file():
        pytest.skip("no ../shared/data/agreement-en")
    said = []
    verbs = agreement.read(path, said.append)
    sets = {name: [verb for verb in verbs if verb.set == name] for name in ("generated", "subj_agr_filtered")}
    assert [len(some) for some in sets.values()] == [410, len(verbs) - 410] == [410, 7489]
    assert len(said) == 4  # identical forms
    kinds = [verb.part for verb in sets["subj_agr_filtered"]]
    assert [kinds.count(f"{k} attractors") for k in range(5)] == [1972, 1957, 1943, 1287, 330]
    known = wikitext()
    assert [sum({verb.right, verb.wrong} <= known for verb in some) for some in sets.values()] == [391, 7464]
