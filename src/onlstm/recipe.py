"""Recipes: frozen settings <- a YAML file <- overrides. An unknown key is an error that names the nearest one.

A recipe that comes with the package is named (`quick`); a name ending in .yaml is a file. Listing them loads no torch.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from onlstm.errors import UserError, at_least, nearest
from onlstm.settings import build, from_yaml, typed

if TYPE_CHECKING:
    from onlstm.lm.config import LMConfig
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
    punctuation: bool = False
    """Punctuation marks are words; with the profile generic."""
    keep: str = ""
    """Words, with blanks between them, to keep however rare they are."""

    def __post_init__(self) -> None:
        at_least(self, "text.", min_count=1, **({} if self.vocab_size is None else {"vocab_size": 2}))


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
    """Its vocab_size is 0 until the text is known."""
    train: "TrainConfig"

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**63:
            raise UserError(f"seed {self.seed}: from 0 to less than 2**63 is needed")

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
        try:
            text, name = path.read_text(encoding="utf-8"), path.stem
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"--recipe {name}: cannot be read ({error})") from None
    elif name in names():
        text = (resources.files("onlstm") / "recipes" / f"{name}.yaml").read_text()
    else:
        raise UserError(f"--recipe {name}: no such recipe; {nearest(name, names())}")
    found = from_yaml(text, f"{name}.yaml")
    if not isinstance(found, dict):
        raise UserError(f"{name}.yaml: a recipe has the keys text, model and train")
    return {"name": name, **found}


def resolve(plain: Mapping[Any, Any], overrides: Mapping[str, Any] | None = None) -> Recipe:
    """Return the recipe of plain data, with overrides {"model": {"hidden_size": 650}} on top."""
    from onlstm.lm.config import LMConfig
    from onlstm.train.config import TrainConfig

    parts: dict[str, type] = {"text": TextConfig, "model": LMConfig, "train": TrainConfig}
    known = [f.name for f in fields(Recipe)]
    values = dict(plain)
    for key, value in (overrides or {}).items():
        both = isinstance(value, Mapping) and isinstance(values.get(key), Mapping)
        values[key] = _plain_keys(values[key]) | _plain_keys(value) if both else value
    for key in values:
        if key not in known:
            raise UserError(f"{key}: no such setting; {nearest(str(key), known)}")
    if isinstance(values.get("model"), Mapping) and "vocab_size" in _plain_keys(values["model"]):
        raise UserError("model.vocab_size: comes from the text; say text.vocab_size")
    top = {k: typed(int if k == "seed" else str, v, k) for k, v in values.items() if k not in parts}
    return Recipe(**top, **{name: build(kind, values.get(name) or {}, name) for name, kind in parts.items()})


def _plain_keys(values: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(key).replace("-", "_"): value for key, value in values.items()}
