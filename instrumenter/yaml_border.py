"""The border to YAML: files become checked models, and every complaint says file and line."""

from __future__ import annotations

import difflib
from collections.abc import Hashable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from instrumenter.errors import SpecError

Key = tuple[str | int, ...]
Model = TypeVar("Model", bound=BaseModel)


def load_yaml(path: Path) -> tuple[dict[str, Any], dict[Key, int]]:
    """A YAML file's data, and the line of every key in it.

    Raises `SpecError` for what cannot be read, is not YAML, is not a mapping, or gives a key twice.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SpecError(f"{path}: is not UTF-8 text") from None
    lines: dict[Key, int] = {}
    try:
        node = yaml.compose(text, yaml.SafeLoader)
        if not isinstance(node, yaml.MappingNode):
            raise SpecError(f"{path}:1: expected a mapping of keys to values")
        _note(path, node, (), lines)
        return yaml.load(text, yaml.SafeLoader), lines
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        raise SpecError(f"{where}: not YAML: {getattr(error, 'problem', None) or error}") from None


def _note(path: Path, node: yaml.Node, key: Key, lines: dict[Key, int]) -> None:
    lines.setdefault(key, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            child = (*key, str(name.value))
            line = name.start_mark.line + 1
            if child in lines:
                raise SpecError(f"{path}:{line}: '{name.value}' is given twice, first in line {lines[child]}")
            lines[child] = line
            _note(path, value, child, lines)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _note(path, item, (*key, index), lines)


def line_of(key: Key, lines: dict[Key, int]) -> int:
    """The line of a key, or of the nearest key above it."""
    while key and key not in lines:
        key = key[:-1]
    return lines.get(key, 1)


def load_model(path: Path, model: type[Model]) -> tuple[Model, dict[Key, int]]:
    """A YAML file as ``model``. Raises `SpecError` with every problem, one a line."""
    data, lines = load_yaml(path)
    try:
        return model.model_validate(data), lines
    except ValidationError as error:
        problems = sorted({(line_of(_key(e["loc"]), lines), _describe(model, e)) for e in error.errors()})
        raise SpecError("\n".join(f"{path}:{line}: {problem}" for line, problem in problems)) from None


def _key(location: tuple[str | int, ...]) -> Key:
    return tuple(str(part) if not isinstance(part, int) else part for part in location)


def _describe(model: type[BaseModel], details: Any) -> str:
    key = _key(details["loc"])
    name = ".".join(str(part) for part in key) or "the file"
    if details["type"] == "extra_forbidden":
        known = _known_keys(model, key[:-1])
        close = difflib.get_close_matches(str(key[-1]), known, n=1)
        hint = f"; did you mean '{close[0]}'?" if close else ""
        return f"unknown key '{name}', expected one of: {', '.join(known)}{hint}"
    if details["type"] == "missing":
        return f"'{name}' is missing"
    got = details["input"]
    shown = f", got {got!r}" if isinstance(got, Hashable) else ""
    if details["type"] == "value_error":
        return f"{name}: {details['ctx']['error']}"
    if details["type"] == "too_short":
        return f"{name}: got none, expected at least {details['ctx']['min_length']}"
    if details["type"] == "tuple_type":
        return f"{name}: expected a list{shown}"
    return f"{name}: {str(details['msg']).replace('Input should be', 'expected')}{shown}"


def _known_keys(model: Any, key: Key) -> list[str]:
    for part in key:
        fields = getattr(model, "model_fields", {})
        if part in fields:
            model = next(iter(_models_in(fields[part].annotation)), None)
    return list(getattr(model, "model_fields", {}))


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in getattr(annotation, "__args__", ()) for model in _models_in(argument)]
