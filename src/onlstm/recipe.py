"""Recipes: frozen settings <- a YAML file <- overrides. An unknown key is an error that names the nearest one.

A recipe that comes with the package is named (`quick`); a name ending in .yaml is a file. Listing them loads no torch.
"""

import difflib
import types
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml

from onlstm.errors import UserError

if TYPE_CHECKING:
    from onlstm.lm.model import LMConfig
    from onlstm.train.config import TrainConfig


@dataclass(frozen=True, kw_only=True)
class TextConfig:
    """How text becomes words."""

    profile: Literal["auto", "ptb-en", "generic", "pretokenized"] = "auto"
    """Rules of tokenisation; auto looks at the text and says what it found."""
    vocab_size: int | None = None
    """Keep so many words, the most frequent ones; null: all."""
    min_count: int = 1
    """Keep words that occur at least so often."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All settings of a run."""

    name: str
    """File name without .yaml."""
    about: str = ""
    """One line: what it is for."""
    command: str = ""
    """The command that runs it."""
    expected: str = ""
    """The result to expect, and whether it was measured here."""
    source: str = ""
    """Where the settings come from."""
    seed: int = 0
    """Of weights, dropout and window lengths."""
    text: TextConfig
    model: "LMConfig"
    """Its vocab_size is 1 until the text is known."""
    train: "TrainConfig"

    def settings(self) -> dict[str, Any]:
        """Return everything as plain data, which `resolve` would read back to the same recipe."""
        plain = asdict(self)
        del plain["model"]["vocab_size"]
        if isinstance(plain["model"]["hidden_size"], tuple):
            plain["model"]["hidden_size"] = list(plain["model"]["hidden_size"])
            del plain["model"]["num_layers"]
        return plain


def names() -> list[str]:
    """Return the names of the recipes that come with the package."""
    folder = resources.files("onlstm") / "recipes"
    return sorted(item.name.removesuffix(".yaml") for item in folder.iterdir() if item.name.endswith(".yaml"))


def read(name: str) -> dict[str, Any]:
    """Return a recipe's YAML as plain data."""
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
        if not path.is_file():
            raise UserError(f"--recipe {name}: no such file")
        text, name = path.read_text(), path.stem
    elif name in names():
        text = (resources.files("onlstm") / "recipes" / f"{name}.yaml").read_text()
    else:
        raise UserError(f"--recipe {name}: no such recipe; {_nearest(name, names())}")
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        line = getattr(getattr(error, "problem_mark", None), "line", 0) + 1
        raise UserError(f"{name}.yaml:{line}: not YAML: {getattr(error, 'problem', error)}") from None
    if not isinstance(found, dict):
        raise UserError(f"{name}.yaml: a recipe has the keys text, model and train")
    return {"name": name, **found}


def resolve(plain: Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> Recipe:
    """Return the recipe of plain data, with overrides {"model": {"hidden_size": 650}} on top."""
    from onlstm.lm.model import LMConfig
    from onlstm.train.config import TrainConfig

    parts = {"text": TextConfig, "model": LMConfig, "train": TrainConfig}
    over = {_key(k): v for k, v in (overrides or {}).items()}
    top: dict[str, Any] = {}
    for key, value in (dict(plain) | {k: v for k, v in over.items() if k not in parts}).items():
        _known(key, Recipe, "")
        top[key] = value
    for name, kind in parts.items():
        given = dict(plain.get(name) or {}) | dict(over.get(name) or {})
        values = {}
        for key, value in given.items():
            _known(_key(key), kind, f"{name}.")
            values[_key(key)] = _as(get_type_hints(kind)[_key(key)], value, f"{name}.{_key(key)}")
        top[name] = kind(**values, **({"vocab_size": 1} if kind is LMConfig else {}))
    top["seed"] = _as(int, top.get("seed", 0), "seed")
    return Recipe(**top)


def _known(key: str, kind: type, prefix: str) -> None:
    known = [f.name for f in fields(kind) if not (prefix == "model." and f.name == "vocab_size")]
    if key not in known:
        raise UserError(f"{prefix}{key}: no such setting; {_nearest(key, known, prefix)}")


def _nearest(key: str, known: list[str], prefix: str = "") -> str:
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    return f"did you mean {prefix}{near[0]}?" if near else "there are " + ", ".join(prefix + k for k in known)


def _key(name: str) -> str:
    return name.replace("-", "_")


def _as(kind: Any, value: Any, name: str) -> Any:
    """Return `value`, which may be a string from the command line, as the type of a field."""
    if isinstance(value, str) and kind is not str:
        value = yaml.safe_load(value)
    choices = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    for choice in choices:
        if get_origin(choice) is Literal and value in get_args(choice):
            return value
        if choice is float and isinstance(value, int | float | str) and not isinstance(value, bool):
            try:
                return float(value)
            except ValueError:
                continue
        if choice is type(None) and value is None:
            return value
        if choice in (int, bool, str) and type(value) is choice:
            return value
        if get_origin(choice) is tuple and isinstance(value, list | tuple) and all(type(v) is int for v in value):
            return tuple(value)
    raise UserError(f"{name} {value}: {_wanted(choices)} is needed")


def _wanted(choices: tuple[Any, ...]) -> str:
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a word", type(None): "null"}
    said = []
    for choice in choices:
        if get_origin(choice) is Literal:
            said.append("one of " + ", ".join(map(str, get_args(choice))))
        else:
            said.append("a list [1150, 1150, 400]" if get_origin(choice) is tuple else words[choice])
    return " or ".join(said)
