"""Minimal pairs from files, with all that may be wrong with them."""

import zipfile
from collections import Counter
from pathlib import Path

import pytest

from onlstm.errors import UserError
from onlstm.paper.syntax.pairs import read_pairs
from onlstm.paper.syntax.templates import Item, generate, load

SHARED = Path(__file__).parents[3] / "shared" / "data" / "syneval"
NO_HEADER = "the file has no header with grammatical, ungrammatical"
HEADER = "template\tcondition\tgrammatical\tungrammatical"


def written(folder, name, *lines):
    path = folder / name
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))
    return path


def with_defects(path):
    found = []
    return list(read_pairs(path, found.append)), found


@pytest.mark.data
def test_the_reader_finds_the_same_pairs_in_the_folder():
    if not SHARED.exists():
        pytest.skip("no ../shared/data/syneval")
    found, defects = with_defects(SHARED)  # the zip in it, and a table of counts that holds no pairs
    assert Counter(found) == Counter(generate(load()))
    assert len(defects) == 1
    assert "counts.tsv:1: the file has no header" in defects[0]


def test_a_table_with_all_that_may_be_wrong(tmp_path):
    path = written(
        tmp_path,
        "owls.tsv",
        "\ufeff" + HEADER + "\r",
        "t\ta\tthe  owl naps .\tthe owl nap.\r",
        "t\tb\tthe owl naps\tthe owl naps",
        "",
        "t\tb\tthe owl naps",
        "t\tb\t\tthe owl naps",
        "t\tb\tthe owl \udcff naps\tthe owl nap",
        "t\tb\tx\ty\tz",
        "\t\tan owl sits\tan owl sit",
    )
    found, defects = with_defects(path)
    assert found == [
        Item("t", "a", ("the owl naps", "the owl nap")),
        Item("t", "b", ("the owl naps", "the owl naps")),
        Item("owls", "", ("an owl sits", "an owl sit")),
    ]
    assert defects == [
        f"{path}:3: identical sentences, a tie",
        f"{path}:5: 3 fields, but the header has 4; left out",
        f"{path}:6: no text in grammatical; left out",
        f"{path}:7: not UTF-8; left out",
        f"{path}:8: 5 fields, but the header has 4; left out",
    ]


def test_json_lines_with_all_that_may_be_wrong(tmp_path):
    path = written(
        tmp_path,
        "owls.jsonl",
        '{"grammatical": "an owl sits", "ungrammatical": "an owl sit", "condition": 3}',
        '{"grammatical": "an owl sits", ',
        '["grammatical"]',
        '{"grammatical": "an owl sits", "ungrammatical": null}',
        '{"grammatical": ["an", "owl"], "ungrammatical": "an owl sit"}',
        '{"template": "npi", "grammatical": "no owl", "intrusive": "the owl", "ungrammatical": "an owl"}',
        '{"template": "npi", "grammatical": "no owl", "ungrammatical": "an owl"}',
        '{"template": "npi", "grammatical": "no owl", "intrusive": "no owl", "ungrammatical": "an owl"}',
        "[" * 100_000,
        '{"template": "\\ud800", "grammatical": "no owl", "ungrammatical": "an owl"}',
    )
    found, defects = with_defects(path)
    assert found == [
        Item("owls", "3", ("an owl sits", "an owl sit")),
        Item("npi", "", ("no owl", "the owl", "an owl")),
        Item("npi", "", ("no owl", "no owl", "an owl")),
    ]
    assert defects == [
        f"{path}:2: broken JSON; left out",
        f"{path}:3: no JSON object; left out",
        f"{path}:4: no text in ungrammatical; left out",
        f"{path}:5: no text in grammatical; left out",
        f"{path}:7: 2 sentences, but npi began with 3; left out",
        f"{path}:8: identical sentences, a tie",
        f"{path}:9: broken JSON; left out",
        f"{path}:10: half a character (\\ud…); left out",
    ]


def test_folders_and_zips_and_columns_in_another_order(tmp_path):
    inner = tmp_path / "deep"
    inner.mkdir()
    written(inner, "b.tsv", "ungrammatical\tgrammatical\tintrusive\tnote", "an owl\tno owl\tthe owl\tx")
    written(tmp_path, "a.jsonl", '{"grammatical": "an owl sits", "ungrammatical": "an owl sit"}')
    written(tmp_path, "none.tsv", "t\tb\tthe owl naps\tthe owl nap")
    written(tmp_path, ".hidden.tsv", "x")
    written(tmp_path, "README.md", "x")
    expected = [Item("a", "", ("an owl sits", "an owl sit")), Item("b", "", ("no owl", "the owl", "an owl"))]
    found, defects = with_defects(tmp_path)
    assert found == expected
    assert defects == [f"{tmp_path / 'none.tsv'}:1: {NO_HEADER}; left out"]
    archive = tmp_path / "all.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        for file in sorted(tmp_path.rglob("*.*")):
            if file != archive:
                opened.write(file, file.relative_to(tmp_path))
    found, defects = with_defects(archive)
    assert found == expected
    assert defects == [f"{archive}/none.tsv:1: {NO_HEADER}; left out"]
    plain = written(tmp_path, "pairs.txt", '{"grammatical": "an owl sits", "ungrammatical": "an owl sit"}')
    assert with_defects(plain) == ([Item("pairs", "", ("an owl sits", "an owl sit"))], [])


def test_a_damaged_member_does_not_stop_the_others(tmp_path):
    archive = tmp_path / "pairs.zip"
    row = "t\tc\tan owl sits\tan owl sit"
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("a.tsv", f"{HEADER}\n{row}")
        opened.writestr("b.tsv", f"{HEADER}\n{row}")
    data = archive.read_bytes()
    archive.write_bytes(data.replace(b"an owl sits", b"an owl sat!", 1))
    found, defects = with_defects(archive)
    assert found[-1] == Item("t", "c", ("an owl sits", "an owl sit"))
    assert len(defects) == 1
    assert "a.tsv:" in defects[0]
    assert "cannot read" in defects[0]


def test_no_pairs_at_all(tmp_path):
    written(tmp_path, "damaged.zip", "x")
    for name, message in [("none.tsv", "No such file"), ("damaged.zip", "not a zip file")]:
        with pytest.raises(UserError, match=message):
            list(read_pairs(tmp_path / name, pytest.fail))
    (tmp_path / "damaged.zip").unlink()
    with pytest.raises(UserError, match="no pairs in it; a TSV with a header"):
        list(read_pairs(tmp_path, pytest.fail))
    path = written(tmp_path, "a.tsv", "a,b")
    defects = []
    with pytest.raises(UserError, match="no pairs in it"):
        list(read_pairs(path, defects.append))
    assert defects == [f"{path}:1: {NO_HEADER}; left out"]
