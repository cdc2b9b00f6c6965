"""Frozen dataclasses from plain data (YAML, JSON, the command line): types checked, unknown keys named.

Used for recipes and for the configuration in a model's folder.
"""

import types
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

from onlstm.errors import UserError, nearest

T = TypeVar("T")


def build(kind: type[T], values: Any, prefix: str) -> T:
    """Return `kind(**values)`, or a `UserError` that names the setting and what is wrong with it."""
    hints, checked = get_type_hints(kind), {}
    if not isinstance(values, Mapping):
        raise UserError(f"{prefix} {values}: settings are needed, such as {prefix}.{next(iter(hints))}")
    for key, value in values.items():
        name = str(key).replace("-", "_")
        if name not in hints:
            raise UserError(f"{prefix}.{name}: no such setting; {nearest(name, hints, prefix + '.')}")
        checked[name] = typed(hints[name], value, f"{prefix}.{name}")
    return kind(**checked)


def from_yaml(text: str, file: str, loader: Any = yaml.SafeLoader) -> Any:
    """Return what a YAML text holds, or a `UserError` that names the line of `file` that is wrong."""
    try:
        return yaml.load(text, loader)
    except yaml.YAMLError as error:
        line = getattr(getattr(error, "problem_mark", None), "line", 0) + 1
        raise UserError(f"{file}:{line}: not YAML: {getattr(error, 'problem', error)}") from None


def typed(kind: Any, value: Any, name: str) -> Any:
    """Return `value`, which may be a string from the command line, as the type of a field."""
    given = value
    if isinstance(value, str) and kind is not str:
        try:
            value = yaml.safe_load(value)
        except yaml.YAMLError:
            value = None if given == "null" else given
    choices = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    for choice in choices:
        if get_origin(choice) is Literal:
            if isinstance(value, str) and value in get_args(choice):
                return value
        elif choice is float and isinstance(value, int | float | str) and not isinstance(value, bool):
            try:  # YAML takes 1e-3 for a word
                return float(value)
            except (ValueError, OverflowError):
                continue
        elif get_origin(choice) is tuple:
            if isinstance(value, list | tuple) and value and all(type(v) is int for v in value):
                return tuple(value)
        elif type(value) is choice:
            return value
    raise UserError(f"{name} {given}: {' or '.join(map(_wanted, choices))} is needed")


def _wanted(choice: Any) -> str:
    if get_origin(choice) is Literal:
        return "one of " + ", ".join(map(str, get_args(choice)))
    if get_origin(choice) is tuple:
        return "a list [1150, 1150, 400]"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a word", type(None): "null"}
    return words.get(choice, "something else")
