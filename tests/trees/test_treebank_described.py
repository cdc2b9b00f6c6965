"""Files made by hand from the published descriptions of treebanks: Floresta, the Penn Chinese Treebank, Sinica."""

import pytest

from onlstm.trees.treebank import read_treebank

FLORESTA = """\
######################################################
#About the treebank (and its authors
######################################################

#1 CP1-1 Uma coruja branca
(UTT+np (>N+art Uma)
        (H+n coruja)
        (N<+adj branca))

#2 CP1-2 Ana e a «coruja» dormem (hoje), diz.
(STA+fcl (SUBJ+cu- (CJT+prop Ana)
                   (CO+conj-c e)
                   (CJT+np
                     (>N+art a)
                     («)
                     (H+n coruja)
                     (»)))
         (P+v-fin dormem)
         ({)
         (ADVL+adv hoje)
         (})
         (,)
         (P+v-fin diz)
         (.))

#3 CP1-3 Ana Maria
(UTT+prop Ana_Maria

#4 CP1-4 Tel. (01) 23.
(UTT+np (H+n Tel.)
        (N<+num_23' <card> M P} {01}_23)
        (.))

#5 CP1-5 Ana Dorme?
(UTT+prop Ana
      (QUE+fcl (P+v-fin Dorme)
               (?))

#6 CP1-6 Fim
(UTT+n Fim)
"""
CTB = """\
<DOC>
<DOCID> CHTB_0001 </DOCID>
<HEADER>
<DATE> 1994-01-01 </DATE>
</HEADER>
<BODY>
<HEADLINE>
<S ID=1>
( (IP-HLN (NP-PN-SBJ (NR-SHORT 沪)
\t\t     (NN 猫头鹰))
\t  (VP (ADVP (AD 都))
\t      (VP (VV 睡觉)
\t\t  (AS 了)
\t\t  (NP-OBJ (-NONE- *pro*))))) )\x20
</S>
</HEADLINE>
<P>
<S ID=2>
( (IP (LCP-TMP (NP (NT 夜里)) (LC 后)) (PU ，) (NP-SBJ (PN 她))
(VP (VV 看见) (NP-OBJ (QP (CD 两) (CLP (M 只))) (NP (NN 鹰)))) (PU 。)) )
</S>
</P>
</BODY>
</DOC>
"""
SINICA = """\
#1:1.[0] S(agent:NP(property:N‧的(head:Nca:山|Head:DE:的)|Head:Nab:貓)|Head:VC2[+SPV]:看|aspect:Di:了)#，(COMMACATEGORY)
#2:2.[0] NP(Head:Nab:山)#
#3:2.[1] VP(Head:VA:走|complement:VP(Head:VH11:快))#。(PERIODCATEGORY)
"""


def read(folder, name, text, encoding="utf-8", **options):
    (folder / name).write_bytes(text.encode(encoding))
    return read_treebank(folder / name, **options)


def test_floresta(tmp_path):
    bank = read(tmp_path, "a.ptb", FLORESTA, "latin-1")
    assert (bank.profile.name, bank.skipped, bank.outside) == ("floresta", {'unclosed "("': 1}, 0)
    assert list(map(str, bank.trees)) == [
        "(np Uma coruja branca)",
        "(fcl (cu Ana e (np a coruja)) dormem hoje diz)",
        "Ana_Maria",
        "(np Tel. {01}_23)",
        "Fim",
    ]
    assert bank.sources[1:3] == ("a.ptb:11", "a.ptb:27")
    marks = bank.view(punctuation=True).trees[1]
    assert " ".join(marks.words) == "Ana e a « coruja » dormem { hoje } , diz ."


@pytest.mark.parametrize(("encoding", "name"), [("utf-8", "chtb_1.nw"), ("gbk", "chtb_1.fid")])
def test_penn_chinese(tmp_path, encoding, name):
    if encoding != "utf-8":  # as the profile's comment says, its older files need their encoding
        (tmp_path / "gbk.yaml").write_text("base: ctb\nencoding: gbk")
    profile = "auto" if encoding == "utf-8" else str(tmp_path / "gbk.yaml")
    bank = read(tmp_path, name, CTB, encoding, profile=profile, strict=True)
    assert bank.profile.name == ("ctb" if encoding == "utf-8" else "gbk")
    assert list(map(str, bank.trees)) == [
        "(IP (NP 沪 猫头鹰) (VP (ADVP 都) (VP 睡觉 了)))",
        "(IP (LCP (NP 夜里) 后) (NP 她) (VP 看见 (NP (QP 两 (CLP 只)) (NP 鹰))))",
    ]
    assert (bank.sources[0], bank.outside, bank.warnings) == (f"{name}:9", 0, ())


def test_sinica(tmp_path):
    bank = read(tmp_path, "a.txt", SINICA, strict=True)
    assert (bank.profile.name, bank.outside, bank.warnings) == ("sinica", 0, ())
    assert list(map(str, bank.trees)) == ["(S (NP (N‧的 山 的) 貓) 看 了)", "(NP 山)", "(VP 走 (VP 快))"]
    assert bank.tags[0] == ("Nca", "DE", "Nab", "VC2[+SPV]", "Di")
    assert bank.sources == ("a.txt:1", "a.txt:2", "a.txt:3")
