"""YAML with the line of every key, and pydantic's complaints as ``file:line`` messages."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticCustomError

from measure.errors import CampaignError

Path_ = tuple[str | int, ...]
Model = TypeVar("Model", bound=BaseModel)


_PLACED = "placed"
_EXPECTED = {
    "tuple_type": "expected a list",
    "dict_type": "expected a mapping of names to values",
    "model_type": "expected a mapping of keys to values",
    "string_type": "expected text",
    "path_type": "expected the path of a file",
}  # in YAML's words instead of pydantic's


def problem_at(message: str, *keys: str | int) -> PydanticCustomError:
    """For a validator of a whole model to raise: what is wrong with the value under ``keys``."""
    return PydanticCustomError(_PLACED, "{message}", {"message": message, "keys": keys})


class Document:
    """A parsed YAML file: ``data``, and where each key stands."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise CampaignError(f"{path}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise CampaignError(f"{path}: is not UTF-8 text") from None
        self.lines: dict[Path_, int] = {}
        try:
            node = yaml.compose(text, yaml.SafeLoader)
            if not isinstance(node, yaml.MappingNode):
                raise CampaignError(f"{path}:1: expected a mapping of keys to values")
            self._note(node, ())
            self.data: dict[str, Any] = yaml.load(text, yaml.SafeLoader)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            where = f"{path}:{mark.line + 1}" if mark else str(path)
            raise CampaignError(f"{where}: not YAML: {getattr(error, 'problem', error)}") from None

    def _note(self, node: yaml.Node, path: Path_, above: tuple[int, ...] = ()) -> None:
        line = node.start_mark.line + 1
        self.lines.setdefault(path, line)
        if id(node) in above:
            raise CampaignError(f"{self.path}:{line}: an alias refers to what it is part of")
        above = (*above, id(node))
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                child = (*path, str(key.value))
                if child in self.lines:
                    raise CampaignError(
                        f"{self.path}:{key.start_mark.line + 1}: '{key.value}' is given twice, "
                        f"first in line {self.lines[child]}"
                    )
                self.lines[child] = key.start_mark.line + 1
                self._note(value, child, above)
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self._note(item, (*path, index), above)

    def line(self, path: Path_) -> int:
        """The line of a key, or of the nearest key above it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def where(self, *path: str | int) -> str:
        """``file:line`` of a key."""
        return f"{self.path}:{self.line(path)}"

    def validate(self, model: type[Model], context: dict[str, Any]) -> Model:
        """The data as ``model``. Raises `CampaignError` with every problem, one a line."""
        try:
            return model.model_validate(self.data, context=context)
        except ValidationError as error:
            problems = sorted(
                {(self.line(_keys(details)), self._describe(model, details)) for details in error.errors()}
            )
            raise CampaignError(
                "\n".join(f"{self.path}:{line}: {problem}" for line, problem in problems)
            ) from None

    def _describe(self, model: type[BaseModel], details: Any) -> str:
        keys = _keys(details)
        name = ".".join(str(key) for key in keys) or "the file"
        if details["type"] == "extra_forbidden":
            known = _known_keys(model, keys[:-1])
            found = difflib.get_close_matches(str(keys[-1]), known, n=1)
            hint = f"; did you mean '{found[0]}'?" if found else ""
            expected = f", expected one of: {', '.join(known)}" if known else ""
            return f"unknown key '{name}'{expected}{hint}"
        if details["type"] == "missing":
            return f"'{name}' is missing"
        message = str(details["msg"]).removeprefix("Value error, ")
        if details["type"] in ("value_error", _PLACED):  # our own words
            return f"{name}: {message}"
        got = details.get("input")
        shown = "" if isinstance(got, dict | list) else f", got {got!r}"
        expected = _EXPECTED.get(details["type"], message[:1].lower() + message[1:])
        return f"{name}: {expected}{shown}"


def _keys(details: Any) -> Path_:
    """The location without pydantic's own marks for union members."""
    within = details["ctx"]["keys"] if details["type"] == _PLACED else ()
    loc = (*details["loc"], *within)
    return tuple(key for key in loc if not (isinstance(key, str) and key.startswith("function-")))


def _known_keys(model: Any, path: Path_) -> list[str]:
    for key in path:
        fields = getattr(model, "model_fields", {})
        if key in fields:
            model = _model_in(fields[key].annotation)
    return list(getattr(model, "model_fields", {}))


def _model_in(annotation: Any) -> Any:
    """The pydantic model inside an annotation such as ``dict[str, M]`` or ``M | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _model_in(argument)
        if found is not None:
            return found
    return None
