"""Plain data, as in JSON and YAML files, to dataclasses and back: the only place where that is done and checked."""

import json
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

from onlstm.errors import UserError, nearest

Kind = TypeVar("Kind")
_DEEPEST = 100
_NAMES: Mapping[Any, str] = {
    Mapping: "a mapping",
    Sequence: "a list",
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}


def from_json(text: str) -> Any:
    """Return what a JSON text holds; a `ValueError` if it is not JSON, or nested too deeply to work with."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if text.count("[") + text.count("{") > _DEEPEST and _is_deep(value):
        raise ValueError("nested too deeply")
    return value


def from_yaml(text: str, where: str, loader: type[yaml.BaseLoader] | type[yaml.SafeLoader] = yaml.SafeLoader) -> Any:
    """Return what a YAML text holds; or a `UserError` that names the line."""
    try:
        value = yaml.load(text, loader)
    except RecursionError:
        raise UserError(f"{where}: nested too deeply; are there brackets that are never closed?") from None
    except yaml.YAMLError as error:
        line = getattr(getattr(error, "problem_mark", None), "line", 0) + 1
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise UserError(f"{where}:{line}: not YAML: {problem}; texts with [ or : may need quotes") from None
    if _is_deep(value):
        raise UserError(f"{where}: nested too deeply; settings have a few levels")
    return value


def _is_deep(value: Any) -> bool:
    """Return whether lists and mappings are nested more than `_DEEPEST` deep, as those that hold themselves are."""
    level = [value]
    for _ in range(_DEEPEST):
        inner = (item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list))
        level = list({id(part): part for parts in inner for part in parts}.values())
    return bool(level)


def plain(value: Any, *, sparse: bool = False) -> Any:
    """Return a value as plain data: dataclasses become objects, without fields that are None if `sparse`."""
    if is_dataclass(value):
        items = {field.name: plain(getattr(value, field.name), sparse=sparse) for field in fields(value)}
        return {name: item for name, item in items.items() if not (sparse and item is None)}
    if isinstance(value, Mapping):
        return {key: plain(item, sparse=sparse) for key, item in value.items()}
    if isinstance(value, list | tuple | range):
        return [plain(item, sparse=sparse) for item in value]
    return str(value) if isinstance(value, Path) else value


def typed(kind: type[Kind], data: Any, where: str, *, strict: bool = False) -> Kind:
    """Return the dataclass `kind` made of plain data; or a `UserError` that names the key.

    Args:
        where: what the data is, for the error's message.
        strict: keys that are no fields are a mistake.
    """
    if not isinstance(data, Mapping):
        raise UserError(f"{where}: a mapping is needed, not {json.dumps(data):.40}")
    hints, values = get_type_hints(kind), {}
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    for key in data if strict else ():
        if key not in names:
            raise UserError(f"{where}: {key}: no such setting; {nearest(str(key), names)}")
    for field in fields(kind):  # type: ignore[arg-type]
        if data.get(field.name) is None and (field.default is not MISSING or field.default_factory is not MISSING):
            continue
        if field.name not in data:
            raise UserError(f"{where}: {field.name} is missing")
        values[field.name] = _value(hints[field.name], data[field.name], f"{where}: {field.name}", strict)
    return kind(**values)


def _value(hint: Any, data: Any, where: str, strict: bool) -> Any:
    """Return plain data as a value of the type `hint`."""
    origin, arguments = get_origin(hint) or hint, get_args(hint)
    if hint is Any or (data is None and type(None) in arguments):
        return data
    if is_dataclass(hint):
        return typed(hint, data, where, strict=strict)  # type: ignore[arg-type]
    if origin in (Union, types.UnionType):
        problems = []
        for choice in arguments:
            try:
                return _value(choice, data, where, strict)
            except UserError as error:
                problems.append(error)
        raise problems[0]
    if origin is Mapping and isinstance(data, Mapping):
        return {key: _value(arguments[1], item, f"{where}.{key}", strict) for key, item in data.items()}
    if origin in (Sequence, tuple) and isinstance(data, list | tuple):
        members = arguments[:1] * len(data) if origin is Sequence or arguments[-1] is ... else arguments
        if len(members) == len(data):
            items = enumerate(zip(members, data, strict=True))
            return tuple(_value(member, item, f"{where}[{k}]", strict) for k, (member, item) in items)
    scalars: Any = {str: str, bool: bool, int: int, float: (int, float)}.get(origin, ())
    fits = data in arguments if origin is Literal else isinstance(data, scalars)
    if not fits or (isinstance(data, bool) and hint is not bool):
        many = f"a list of {len(arguments)}"
        choices = ", ".join(map(str, arguments)) if len(arguments) > 5 else " or ".join(map(str, arguments))
        name = choices if origin is Literal else _NAMES.get(origin, many)
        raise UserError(f"{where}: {name} is needed, not {json.dumps(data):.40}")
    return data
