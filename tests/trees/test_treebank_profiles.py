"""Profiles: YAML in ten lines, mistakes in it, kinds and languages that are not shipped, the choice by content."""

from dataclasses import replace
from pathlib import Path

import pytest

import onlstm.trees.treebank as treebank_package
from onlstm.errors import UserError
from onlstm.trees.treebank import Profile, load_profile, profiles, read_treebank

FOLDER = Path(treebank_package.__file__).parent / "profiles"
NAMES = [
    "alpino",
    "cess",
    "craft",
    "ctb",
    "floresta",
    "gum",
    "handparsed",
    "icepahc",
    "icon",
    "masc",
    "ptb",
    "ptb-wide",
]
NAMES += ["sinica", "tiger"]

CHINESE = """\
# Chinese in Penn's style, in SGML
punctuation: PU
replace:
  ^<.*>$: ""
encoding: gbk
files: "*.fid"
"""


def own(folder, text, name="mine.yaml"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def read(folder, text, encoding="utf-8", **options):
    path = folder / "a.mrg"
    path.write_text(text, encoding=encoding)
    return read_treebank(path, **options)


def test_shipped_profiles_are_short_and_commented():
    assert profiles() == NAMES
    for name in NAMES:
        lines = (FOLDER / f"{name}.yaml").read_text().splitlines()
        assert lines[0].startswith("# ")
        assert len(lines) <= 12
        assert load_profile(name).name == name
        assert load_profile(name) is load_profile(name)


def test_a_base_is_what_is_not_said(tmp_path):
    mine = load_profile(own(tmp_path, "base: masc\nwords: + ZZ NO\npunctuation: [PU, ':']\nothers: punctuation"))
    masc = load_profile("masc")
    assert mine == replace(
        masc, name="mine", words=(*masc.words, "ZZ", "NO"), punctuation=("PU", ":"), others="punctuation"
    )
    own(tmp_path, "words: NO")  # read anew; and no boolean
    assert load_profile(str(tmp_path / "mine.yaml")) == Profile(name="mine", words=("NO",))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("word_tags: NN", "mine.yaml: word_tags: no such setting; did you mean words?"),
        ("punctation: PU", "mine.yaml: punctation: no such setting; did you mean punctuation?"),
        ("name: x", "mine.yaml: a profile has keys such as words, punctuation and nulls; the file names it"),
        ("base: tigr", "unknown treebank profile 'tigr': choose auto, alpino, "),
        ("base: [ptb]", "unknown treebank profile"),
        ("format: xml", 'mine.yaml: format: brackets or tiger-xml or alpino-xml is needed, not "xml"'),
        ("words: {a: b}", 'mine.yaml: words[0]: text is needed, not ["a", "b"]'),
        ("words: [[a]]", 'mine.yaml: words[0]: text is needed, not ["a"]'),
        ("replace: x", 'mine.yaml: replace[0]: a list of 2 is needed, not "x"'),
        ("label: '['", "profile mine: label [: no regular expression: "),
        ("replace: {a: '\\1'}", "profile mine: replace a: no regular expression: invalid group reference"),
        ("encoding: latin-99", "profile mine: encoding latin-99: not known to Python"),
        ("fields: form lemma", "profile mine: fields form lemma: one must be word"),
        ("words: 'NN", "mine.yaml:1: not YAML: "),
        ("", "mine.yaml: a profile has keys such as words"),
    ],
)
def test_mistakes_in_a_profile(tmp_path, text, message):
    with pytest.raises(UserError) as error:
        load_profile(own(tmp_path, text))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_profile_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match=r"cannot read .*mine.yaml: No such file or directory$"):
        load_profile(str(tmp_path / "mine.yaml"))


def test_portuguese_needs_no_code(tmp_path):
    text = (
        "#1 a line about it\n"
        "(STA+fcl (SUBJ+np (>N+art A) (H+prop Dona_Ana)) (P+v-fin viu) (ACC+np (>N+art o) (H+n café)) (, ,) (. .))\n"
        "(UTT+np (« «) (H+n Ação) (» »))\n"
    )
    treebank = read(tmp_path, text, "iso-8859-15", profile="floresta", strict=True)
    assert list(map(str, treebank.trees)) == ["(fcl (np A Dona_Ana) viu (np o café))", "(np Ação)"]
    assert treebank.sources == ("a.mrg:2", "a.mrg:3")
    assert treebank.warnings == ()


@pytest.mark.parametrize("encoding", ["gbk", "utf-8"])
def test_chinese_needs_no_code(tmp_path, encoding):
    text = (
        "<DOC>\r\n<S ID=1>\r\n( (IP-HLN (NP-SBJ (-NONE- *pro*)) (VP (VV 看见) (NP-OBJ (CD 两) (CLP (M 只))"
        " (NP (NN 猫头鹰)))) (PU 。)) )\r\n</S>\r\n</DOC>\r\n"
    )
    folder = tmp_path / "bank"
    folder.mkdir()
    (folder / "chtb_1.fid").write_bytes(text.encode(encoding))
    (folder / "notes.txt").write_text("(")
    profile = own(tmp_path, CHINESE.replace("gbk", encoding))
    treebank = read_treebank(folder, profile=profile, strict=True)
    assert list(map(str, treebank.trees)) == ["(IP (VP 看见 (NP 两 (CLP 只) (NP 猫头鹰))))"]
    assert treebank.sources == ("chtb_1.fid:3",)


def test_content_tells_portuguese_and_chinese(tmp_path):
    portuguese = "(STA+fcl (SUBJ+np (>N+art A) (H+n dona)) (P+v-fin viu) (. .))\n"
    assert read(tmp_path, portuguese).profile.name == "floresta"
    chinese = "<S ID=1>\n( (IP (NP-SBJ (PN 她)) (VP (VV 看见) (AS 了) (NP-OBJ (NN 猫头鹰))) (PU 。)) )\n</S>\n"
    found = read(tmp_path, chinese, strict=True)
    assert (found.profile.name, str(found.trees[0])) == ("ctb", "(IP (NP 她) (VP 看见 了 (NP 猫头鹰)))")


def test_brackets_of_another_style_need_no_code(tmp_path):
    text = (
        "#1:1.[0] S(agent:NP(Head:Nhaa:她)|Head:VC2:看|goal:NP(quantifier:DM:一隻|Head:Nab:貓頭鷹))#0(PERIODCATEGORY)\n"
        "#2:1.[0] NP(Head:Nab:山)#\n"
    )
    treebank = read(tmp_path, text, strict=True)
    assert treebank.profile.name == "sinica"
    assert list(map(str, treebank.trees)) == ["(S (NP 她) 看 (NP 一隻 貓頭鷹))", "(NP 山)"]
    assert treebank.tags[0] == ("Nhaa", "VC2", "DM", "Nab")


def test_leaves_of_several_fields(tmp_path):
    spanish = "(S (sn.e-SUJ *0*) (grup.verb (vmis3s0 soñó soñar)) (sp (sps00 a_través_de a_través_de)) (Fp . .))"
    treebank = read(tmp_path, spanish, "latin-1", profile="cess", strict=True)
    assert str(treebank.trees[0]) == "(S (grup.verb soñó) (sp a_través_de))"
    profile = own(tmp_path, "fields: lemma word morph\ncomments: '% //'\nlabel: .+")
    text = "% one\n// two\n(S-x (N Katze Katzen pl) (V schlafen))"
    treebank = read(tmp_path, text, profile=profile)
    assert (str(treebank.trees[0]), treebank.outside) == ("(S-x Katzen schlafen)", 2)


def test_icelandic_leaves(tmp_path):
    text = (
        '( (IP-MAT (NP-SBJ (N-N ugla$-ugla) (D-N $n-hinn)) (C 0) (NP *T*-1) (VBPI sefur-sofa) (" "-") (. .-.)) (ID A))'
    )
    treebank = read(tmp_path, text, profile="icepahc", strict=True)
    assert str(treebank.trees[0]) == "(IP (NP ugla$ $n) sefur)"
    assert read(tmp_path, text, profile="icepahc", punctuation=True).trees[0].words == (
        "ugla$",
        "$n",
        "sefur",
        '"',
        ".",
    )


LEAVES = {
    "ptb": "(DT the) (NN owl) ($ $) (# #) (, ,) (-NONE- *) (CODE x)",
    "ptb-wide": "(DT the) (NN owl) (HYPH -) (NN eyed)",
    "craft": "(DT the) (AFX pre) (HYPH -) (NN owl)",
    "gum": "(DT the) (GW ow) (HYPH -) (NN l)",
    "masc": "(DT the) (NN owl) (SU /) (XX th) (-LSB- -LSB-)",
    "icon": "(NNO burung) (PRR yang) (VBI tidur) (PUN .)",
    "cess": "(da0ms0 el el) (ncms000 búho búho) (vmip3s0 duerme dormir) (Fp . .)",
    "icepahc": "(N-N ugla-ugla) (VBPI sefur-sofa) (CONJ og-og) (. .-.)",
}


@pytest.mark.parametrize("name", LEAVES)
def test_auto_goes_by_the_leaves(tmp_path, name):
    treebank = read(tmp_path, f"( (S {LEAVES[name]}))\n" * 3, encoding=load_profile(name).encoding or "utf-8")
    assert (treebank.profile, treebank.warnings) == (load_profile(name), ())
    assert len(treebank.trees) == 3


def test_a_slip_does_not_change_what_auto_finds(tmp_path):
    text = f"( (S {'(NN owl) ' * 1500}))\n"
    for slip in ("(HYPH -)", "(NN|JJ x)", "(NP-SBJ *)", "(SU /)"):
        assert read(tmp_path, f"{text}( (S (NN owl) {slip}))").profile.name == "ptb"


def test_a_profile_that_knows_few_tags_says_so(tmp_path):
    text = "( (S (subst ugle) (subst hule) (verb sover) (adv godt) (sam og) (NN owl)))"
    treebank = read(tmp_path, text)
    assert treebank.profile.name == "ptb-wide"  # which drops none of them
    assert len(treebank.trees[0].words) == 6
    assert treebank.warnings == (
        "profile ptb-wide knows 17% of the leaves' tags, not subst, verb, adv …; "
        "choose another profile, or write one in a .yaml file",
    )
    assert "profile ptb knows 17% of" in read(tmp_path, text, profile="ptb").warnings[0]
    assert read(tmp_path, text, profile=own(tmp_path, "punctuation: PU")).warnings == ()


# Trees, words, sentences of up to 10 words, tokens with marks, skipped: the counts of the folder's README, but for
# MASC's short sentences, which are 2,789 if markers such as <TURN> are words (below); 5 tokens of CRAFT (793,646 there)
# that hold a thin space; 4 words of IcePaHC (there about 903,256); 15 good trees of the broken files of CESS; and 102
# sentences of one word in Floresta (9,260 trees there) that lack their closing bracket.
COUNTS = {
    "craft-penn.zip": ("craft", 30830, 686215, 6405, 793651, {}),
    "masc-penn.zip": ("masc", 5375, 82947, 2372, 95232, {"markup only": 484}),
    "stanford-handparsed.zip": ("ptb-wide", 519, 3750, 435, 4197, {}),
    "gum-const.zip": ("gum", 14597, 218406, 6417, 251725, {}),
    "icon-indonesian.zip": ("icon", 10000, 154388, 2813, 182115, {}),
    "floresta.zip": ("floresta", 9360, 182454, 2622, 212366, {'unclosed "("': 19, "word beside brackets": 2}),
    "cess_esp.zip": ("cess", 6012, 164497, 829, 188650, {'unclosed "("': 3, '")" without "("': 3}),
    "smultron.zip": ("tiger", 258, 4675, 72, 5232, {}),
    "alpino.zip": ("alpino", 7134, 125212, 1859, 140776, {"no words": 2}),
    "icepahc-psd.tar.xz": ("icepahc", 73032, 903260, 41879, None, {"no words": 14, "markup only": 5}),
}
SLOW = {
    "icon-indonesian.zip",
    "craft-penn.zip",
    "icepahc-psd.tar.xz",
    "cess_esp.zip",
    "alpino.zip",
    "gum-const.zip",
    "floresta.zip",
}


@pytest.fixture(scope="module")
def data(shared):
    return shared / "data" / "treebanks-other"


@pytest.mark.data
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in COUNTS])
def test_counts_of_the_readme(data, name):
    profile, trees, words, short, tokens, skipped = COUNTS[name]
    treebank = read_treebank(data / name)
    assert (treebank.profile.name, treebank.skipped, treebank.warnings) == (profile, skipped, ())
    lengths = [len(tree.words) for tree in treebank.trees]
    assert (len(lengths), sum(lengths), sum(n <= 10 for n in lengths)) == (trees, words, short)
    if tokens:
        whole = read_treebank(data / name, punctuation=True)
        assert sum(len(tree.words) for tree in whole.trees) == tokens
    if name == "cess_esp.zip":
        broken = ("10585_20000313", "14827_20000719_3", "16563_20001121")
        lengths = [n for n, at in zip(lengths, treebank.sources, strict=True) if not any(b in at for b in broken)]
        assert (len(lengths), sum(lengths), sum(n <= 10 for n in lengths)) == (5997, 163838, 829)


@pytest.mark.data
def test_markers_of_masc_as_words(data):
    wide = replace(load_profile("ptb-wide"), markup=(), null_tokens=load_profile("masc").null_tokens)
    lengths = [len(tree.words) for tree in read_treebank(data / "masc-penn.zip", profile=wide).trees]
    assert (len(lengths), sum(n <= 10 for n in lengths)) == (5859, 2789)
