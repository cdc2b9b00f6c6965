"""Result files: dataclasses to JSON and back, one line for what is missing or of another type."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from onlstm.errors import UserError
from onlstm.paper.results import Origin, load, read, save
from onlstm.records import plain, typed


@dataclass(frozen=True, kw_only=True)
class Inner:
    size: int


@dataclass(frozen=True, kw_only=True)
class Content:
    share: float
    layer: int | tuple[int, ...] | None = None
    mode: Literal["a", "b"] = "a"
    interval: tuple[float, float] | None = None
    parts: Mapping[str, Sequence[Inner]]
    anything: Any = None


WHOLE = Content(share=0.5, layer=(1, 2), mode="b", interval=(0.25, 1), parts={"x": (Inner(size=3),)}, anything=[{}])


def test_a_dataclass_comes_back_from_json():
    assert typed(Content, json.loads(json.dumps(plain(WHOLE))), "f") == WHOLE
    assert typed(Content, {"share": 1, "parts": {}, "interval": None, "more": 3}, "f") == Content(share=1, parts={})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"share": ...}, "f: share is missing"),
        ({"share": None}, "f: share: a number is needed, not null"),
        ({"share": True}, "f: share: a number is needed, not true"),
        ({"share": "half"}, 'f: share: a number is needed, not "half"'),
        ({"layer": "2"}, 'f: layer: a whole number is needed, not "2"'),
        ({"mode": "c"}, 'f: mode: a or b is needed, not "c"'),
        ({"interval": [1.0]}, "f: interval: a list of 2 is needed, not [1.0]"),
        ({"parts": {"x": "none"}}, 'f: parts.x: a list is needed, not "none"'),
        ({"parts": {"x": [{"size": 1}, 3]}}, "f: parts.x[1]: a mapping is needed, not 3"),
        ({"parts": {"x": [{"size": 1.5}]}}, "f: parts.x[0]: size: a whole number is needed, not 1.5"),
        ({"parts": [1]}, "f: parts: a mapping is needed, not [1]"),
    ],
)
def test_what_is_missing_or_of_another_type_is_named(changes, message):
    data = {key: value for key, value in (plain(WHOLE) | changes).items() if value is not ...}
    with pytest.raises(UserError) as caught:
        typed(Content, data, "f")
    assert str(caught.value) == message


def test_a_file_is_saved_and_loaded(tmp_path):
    save(tmp_path / "mine.json", kind="k", content=WHOLE, command="onlstm x", seed=3, seconds=1.5)
    (result,) = load(tmp_path, {"k": Content})
    assert (result.file, result.content) == ("mine", WHOLE)
    assert (result.origin.name, result.origin.seed, result.origin.seconds) == ("mine", 3, 1.5)
    assert result.origin.versions.keys() == {"onlstm", "torch", "python"}
    assert read(tmp_path / "mine.json")["notes"] == []


def test_a_foreign_file_is_refused_by_name(tmp_path):
    path = tmp_path / "odd.json"
    save(path, kind="poetry", content=WHOLE, command="", seed=None, seconds=0.0)
    with pytest.raises(UserError, match=r"odd\.json: unknown kind 'poetry'; known: k"):
        load(tmp_path, {"k": Content})
    whole = read(path)
    for key in Origin.__dataclass_fields__.keys() - {"seed", "notes"}:
        path.write_text(json.dumps({name: value for name, value in whole.items() if name != key}))
        with pytest.raises(UserError, match=rf"odd\.json: {key} is missing"):
            load(tmp_path, {"poetry": Content})
    path.write_text(json.dumps(whole | {"format_version": 2}))
    with pytest.raises(UserError, match="format_version 2 is not 1"):
        load(tmp_path, {"poetry": Content})


@pytest.mark.parametrize("content", [b'{"kind": ', b"\xff\xfe\x00", b"", b"[1, 2]", b"3"])
def test_a_broken_file_is_refused_by_name(tmp_path, content):
    (tmp_path / "half.json").write_bytes(content)
    with pytest.raises(UserError, match=r"half\.json: (not JSON|format_version None)") as caught:
        load(tmp_path, {})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("folder", [".", "nowhere"])
def test_no_results_say_how_to_get_some(tmp_path, folder):
    (tmp_path / ".half.json").write_text("{")  # another program's temporary file
    with pytest.raises(UserError, match=r"no results \(\*\.json\) there; make some: `onlstm train"):
        load(tmp_path / folder, {})
