"""`onlstm evaluate --ccm`: rows for short sentences beside the published numbers; without tags, one line."""

import json

from helpers import onlstm

NOUNS = ["(NP (DT the) (NN dog))", "(NP (PRP it))", "(NP (DT a) (JJ big) (NN cat))"]
LONG = "(NP (NN x) " * 11 + "(NN y)" + ")" * 11


def test_rows_of_short_sentences(tmp_path):
    trees = [f"(S {a} (VP (VBZ sees) {b}))" for a in NOUNS for b in NOUNS] * 3 + [LONG]
    bank = tmp_path / "bank.mrg"
    bank.write_text("\n".join(trees))
    own = ["--trees", bank]
    shown = onlstm("evaluate", bank, "--ccm", *own)
    assert shown.code == 0, shown.err
    assert "Published: CCM 71.9, DMV+CCM 77.6, on the full WSJ10" in shown.out
    rows = json.loads(onlstm("evaluate", bank, "--ccm", *own, "--json").out)["rows"]
    f1 = {(row["system"], row["subset"]): row["f1"] for row in rows if row["system"] in ("ccm", "dmv+ccm", "right")}
    assert {subset for system, subset in f1 if "ccm" in system} == {"len<=10"}
    assert max(f1["ccm", "len<=10"], f1["dmv+ccm", "len<=10"]) > 50
    bank.write_text("(S (XX it) (VP (XX sees) (NP (XX the) (XX dog))))")
    refused = onlstm("evaluate", bank, "--ccm", *own, "--profile", "ptb-wide")
    assert refused.code == 2
    assert refused.err.strip().splitlines()[-1].endswith("has no parts of speech in its sentences of at most ten words")
