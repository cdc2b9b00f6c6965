"""`onlstm evaluate` on treebanks of which part cannot be read."""

import json

from helpers import onlstm

WOW = "( (S (NP (DT the) (NN owl)) (VP (VBD slept) (ADVP (RB well)))) )\n"
EMPTY = "( (NP (NN)) )\n"


def test_a_treebank_of_which_most_cannot_be_read_is_refused(tmp_path):
    bank = tmp_path / "a.mrg"
    bank.write_text(WOW * 4 + EMPTY * 5)
    refused = onlstm("evaluate", bank)
    lost = "5 of 9 sentences could not be read and are skipped: 5 empty brackets"
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == (
        f"onlstm: {bank}, by profile ptb: {lost}; try another --profile, or score the rest: --allow-skipped\n"
    )
    allowed = onlstm("evaluate", bank, "--allow-skipped", "--json")
    assert (allowed.code, allowed.err.splitlines()[0]) == (0, lost)
    facts = json.loads(allowed.out)["treebank"]
    assert (facts["sentences"], facts["skipped"], facts["defects"]) == (4, {"empty brackets": 5}, 5)


def test_what_options_leave_out_and_lines_between_trees_are_no_defects(tmp_path):
    bank = tmp_path / "a.mrg"
    long = f"( (NP {'(NN tick) ' * 11}))\n"
    bank.write_text(WOW * 4 + long * 50 + "note\n" * 70)
    done = onlstm("evaluate", bank, "--max-len", 10)
    assert done.code == 0
    assert "could not be read" not in done.err
    assert "4 sentences, 16 words; skipped: 50 more than 10 words. Lines outside the trees: 70." in done.out
