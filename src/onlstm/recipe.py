"""Recipes: all settings of a run, in YAML files that come with the package or are the user's own. No torch here."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from onlstm.errors import UserError, check_seed, nearest
from onlstm.lm.config import LMConfig, check_settings
from onlstm.records import from_yaml, typed
from onlstm.text.config import TextConfig
from onlstm.train.config import TrainConfig

Settings = Mapping[str, Any]
"""The content of a recipe's YAML."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All settings of a run."""

    name: str
    """File name without .yaml."""
    about: str = ""
    """What it is for, in one line."""
    command: str = ""
    """The command that runs it."""
    expected: str = ""
    """The result to expect, and whether it was measured here."""
    source: str = ""
    """Where the settings come from."""
    seed: int = 0
    """Seed of the weights, of dropout and of window lengths."""
    text: TextConfig = field(default_factory=TextConfig)
    model: LMConfig = field(default_factory=LMConfig)
    """Its vocab_size is 0 until the text is known."""
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if self.model.vocab_size:
            raise UserError("model.vocab_size: comes from the text; set text.vocab_size")

    @classmethod
    def of(cls, settings: Settings) -> "Recipe":
        """Return the recipe of plain data: of a file, or what `settings` returned."""
        return typed(cls, settings, str(settings.get("name", "recipe")), strict=True)

    def settings(self) -> Settings:
        """Return everything as plain data, which `of` makes the same recipe of."""
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


def read(name: str) -> Settings:
    """Return the YAML of a recipe as plain data: of one that comes with the package, or of a file NAME.yaml."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"recipe {name}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    elif name in names():
        text = (resources.files("onlstm") / "recipes" / f"{name}.yaml").read_text()
    else:
        raise UserError(f"recipe {name}: no such recipe; {nearest(name, names(), choices=True)}")
    settings = from_yaml(text, name)
    if not isinstance(settings, dict):
        raise UserError(f"{name}: a recipe has the keys text, model and train")
    known = tuple(Recipe.__dataclass_fields__)
    for key, value in settings.items():
        if key not in known:
            raise UserError(f"{name}: {key}: no such setting; {nearest(str(key), known)}")
        if key in ("text", "model", "train") and not isinstance(value, dict):
            raise UserError(f"{name}: {key} {value}: settings are needed, as in {key}: {{NAME: VALUE}}")
    if "rnn" in (model := settings.get("model", {})):
        try:
            check_settings(str(model["rnn"]), model)
        except UserError as error:
            raise UserError(f"{name}: {error}") from None
    return {"name": path.stem, **settings}
