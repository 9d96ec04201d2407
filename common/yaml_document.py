"""Reads YAML files with the place of every key, and validates them by pydantic models.

Every problem has the form ``file:line: key: got ..., expected ...; did you mean ...?``; all are reported at once, one a
line. The caller passes the class of the exception to raise, so that each package keeps its own.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticCustomError

from common.elf_files import is_elf

Keys = tuple[str | int, ...]
Model = TypeVar("Model", bound=BaseModel)

_AT_KEYS, _AMONG_KEYS = "at_keys", "among_keys"
_TRUTH_VALUE = "tag:yaml.org,2002:bool"
_MAX_VALUES = 100_000  # of a document with its aliases expanded: nested ones grow exponentially
_EXPECTED = {
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping of names to values",
    "model_type": "a mapping of keys to values",
    "model_attributes_type": "a mapping of keys to values",
    "string_type": "text",
    "path_type": "the path of a file",
    "string_pattern_mismatch": "text that matches '{pattern}'",
    "string_too_short": "text of at least {min_length} characters",
    "invalid_key": "text as a key",
}  # in YAML's terms instead of pydantic's; by type of error, filled in from its context


_QUOTED = "text, in quotes: YAML reads yes, no, on and off as truth values"
_NUMBERS = {int: "a valid integer", float: "a valid number"}


def problem_at(message: str, *keys: str | int) -> PydanticCustomError:
    """An exception for a model's validator to raise: ``message`` about the value under ``keys``, below the model."""
    return PydanticCustomError(_AT_KEYS, "{message}", {"message": message, "keys": keys})


def problem_among(message: str, *names: str) -> PydanticCustomError:
    """An exception for a model's validator to raise: ``message`` says that the values under ``names`` do not go
    together, each a key below the model or keys with dots between them. It is told where the last of them was set, of
    those of one file the first of ``names``."""
    return PydanticCustomError(_AMONG_KEYS, "{message}", {"message": message, "names": names})


class Place(NamedTuple):
    """Where a value was set. ``rank``, ``line``: the order of places in messages; ``where``: ``file:line``; ``folder``:
    the directory that paths at this place are relative to."""

    rank: int
    line: int
    where: str
    folder: Path


class YamlDocument:
    """A parsed YAML text: ``data``, a mapping, and ``places``, the place of each key and list item by their path.
    ``settings``: of a command line, each ``KEY=VALUE``, that ``data`` has on top of the text.

    ``path``: the file's name in messages; ``error``: class of all exceptions raised, which takes a message. Raises
    ``error`` for text that is not YAML or no mapping, and for cyclic aliases, aliases that expand without end, keys
    given twice, and keys that are no scalars.
    """

    settings: tuple[str, ...] = ()

    def __init__(self, text: str, path: Path | str, error: type[Exception]) -> None:
        self.path = Path(path)
        self.places: dict[Keys, Place] = {}
        self._error = error
        loader: Any = None
        try:
            loader = yaml.SafeLoader(text)
            node = loader.get_single_node()
            if not isinstance(node, yaml.MappingNode):
                raise error(f"{path}:1: got {_node_kind(node)}, expected a mapping of keys to values")
            self._report(self._read_lines(node, (), ()))
            self.data: dict[str, Any] = loader.construct_document(node)
        except (yaml.YAMLError, ValueError) as problem:  # ValueError: a date that does not exist
            raise error(_not_yaml(path, text, problem)) from None
        finally:
            if loader is not None:
                loader.dispose()

    @classmethod
    def read(cls, path: Path, error: type[Exception]) -> YamlDocument:
        """The document in a file. Raises ``error`` also for a file that cannot be read or is not UTF-8 text."""
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as problem:
            raise error(f"{path}: cannot be read: {problem.strerror}") from None
        except UnicodeDecodeError:
            what = "an executable, expected a YAML file" if is_elf(path) else "not UTF-8 text"
            raise error(f"{path}: is {what}") from None
        return cls(text, path, error)

    @classmethod
    def of_data(
        cls, data: dict[str, Any], places: dict[Keys, Place], path: Path, error: type[Exception]
    ) -> YamlDocument:
        """A document with this content."""
        document = cls("{}", path, error)
        document.data, document.places = data, places
        return document

    def place(self, *keys: str | int) -> Place:
        """The place of a key, or of the nearest key above it."""
        while keys and keys not in self.places:
            keys = keys[:-1]
        return self.places.get(keys) or self._at(1)

    def where(self, *keys: str | int) -> str:
        """``file:line`` of a key."""
        return self.place(*keys).where

    def _at(self, line: int) -> Place:
        return Place(0, line, f"{self.path}:{line}", self.path.absolute().parent)

    def validate(self, model: type[Model], context: Mapping[str, Any] | None = None) -> Model:
        """The data as ``model``, validated with ``context``. Raises the document's exception with every problem.

        Fields of models with ``exclude=True`` are not offered as keys in messages.
        """
        taken_for_numbers = dict(_truth_values([model], self.data, ()))
        problems: dict[tuple[Place, str], list[str]] = {}
        for keys, expected_values in taken_for_numbers.items():
            problems[self.place(*keys), _about(keys, f"got {_shown(self._value(keys))}")] = expected_values
        try:
            validated = model.model_validate(self.data, context=dict(context or {}))
        except ValidationError as error:
            for details in error.errors():
                above = self._keys(details)  # what is wrong with 1 in place of a truth value is not told, too
                if all(keys[: len(above)] != above for keys in taken_for_numbers):
                    place, subject, expected = self._problem(model, details)
                    problems.setdefault((place, subject), []).extend([expected] if expected else [])
        else:
            if not problems:
                return validated
        self._report([(place, _joined(subject, expected)) for (place, subject), expected in problems.items()])
        raise AssertionError("a validation error without problems")

    def _value(self, keys: Keys) -> Any:
        value: Any = self.data
        for key in keys:
            value = value[key]
        return value

    def _report(self, problems: list[tuple[Place, str]]) -> None:
        """Raise the document's exception for ``problems``, pairs of place and message, if there are any."""
        if problems:
            ordered = sorted(set(problems))
            raise self._error("\n".join(f"{place.where}: {message}" for place, message in ordered))

    def _read_lines(self, node: yaml.Node, keys: Keys, above: tuple[int, ...]) -> list[tuple[Place, str]]:
        """Fill ``places`` below ``node``, which is in the nodes ``above`` (by id); returns the problems."""
        place = self._at(node.start_mark.line + 1)
        self.places.setdefault(keys, place)
        if id(node) in above:
            return [(place, _about(keys, "got an alias of a mapping or list that contains it, expected a value"))]
        if len(self.places) > _MAX_VALUES:
            raise self._error(
                f"{place.where}: got more than {_MAX_VALUES:,} values when aliases are expanded, expected fewer: "
                "write out what is meant instead of aliases of aliases"
            )
        above = (*above, id(node))
        problems: list[tuple[Place, str]] = []
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                place = self._at(key.start_mark.line + 1)
                child = (*keys, str(key.value))
                if not isinstance(key, yaml.ScalarNode):
                    problems.append((place, _about(keys, f"got {_node_kind(key)} as a key, expected a name")))
                elif key.tag == _TRUTH_VALUE:
                    quoted = (
                        f"expected a name: YAML reads {key.value} as a truth value unless it is quoted, '{key.value}'"
                    )
                    problems.append((place, _about(keys, f"got {key.value} as a key, {quoted}")))
                elif child in self.places:
                    first = self.places[child].line
                    problems.append((place, _about(child, f"given twice, first in line {first}")))
                else:
                    self.places[child] = place
                    problems += self._read_lines(value, child, above)
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                problems += self._read_lines(item, (*keys, index), above)
        return problems

    def _keys(self, details: Any) -> Keys:
        """The keys of an error's location in the document: without pydantic's own names of validators and types."""
        keys: list[str | int] = []
        value: Any = self.data
        for part in details["loc"]:
            if isinstance(value, list) and isinstance(part, int) and part < len(value):
                keys.append(part)
                value = value[part]
            elif isinstance(value, dict) and part in value:
                keys.append(str(part))
                value = value[part]
        if details["type"] == "missing":
            keys.append(str(details["loc"][-1]))
        elif details["type"] == _AT_KEYS:
            keys += details["ctx"]["keys"]
        return tuple(keys)

    def _problem(self, model: type[BaseModel], details: Any) -> tuple[Place, str, str]:
        """Place and message of one of pydantic's errors, without the expectation; and the expectation, or "".

        pydantic reports one error for each alternative of a union; they differ in their expectations only.
        """
        keys, kind, expected = self._keys(details), details["type"], ""
        if kind == "extra_forbidden":
            message = f"unknown key{_choices(str(keys[-1]), _keys_below(model, keys[:-1]))}"
        elif kind == "missing":
            message = "missing; it has no default"
        elif kind == "value_error":
            message = str(details["ctx"]["error"])
        elif kind == _AT_KEYS:
            message = details["msg"]
        elif kind == _AMONG_KEYS:
            places = [self.place(*keys, *name.split(".")) for name in details["ctx"]["names"]]
            where = max(places, key=lambda place: place.rank, default=self.place(*keys))
            return where, _about(keys, details["msg"]), expected
        elif kind == "too_short":
            sizes = details["ctx"]
            message = f"got {sizes['actual_length'] or 'none'}, expected at least {sizes['min_length']}"
        else:
            message, expected = f"got {_shown(details['input'])}", _expected(details)
        return self.place(*keys), _about(keys, message), expected


def _about(keys: Keys, message: str) -> str:
    return f"{'.'.join(map(str, keys))}: {message}" if keys else message


def _node_kind(node: yaml.Node | None) -> str:
    if node is None:
        return "nothing"
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    return "a list" if isinstance(node, yaml.SequenceNode) else "a scalar"


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "a mapping" if isinstance(value, dict) else "a list" if isinstance(value, list) else repr(value)


def _expected(details: Any) -> str:
    """The expected value of a pydantic error, in words."""
    if details["type"] == "string_type" and isinstance(details["input"], bool):
        return _QUOTED
    if details["type"] in _EXPECTED:
        return _EXPECTED[details["type"]].format(**details.get("ctx", {}))
    message = str(details["msg"]).split(", unable to")[0].removeprefix("Input should be ")
    return message[:1].lower() + message[1:]


def _joined(subject: str, expected: list[str]) -> str:
    return f"{subject}, expected {' or '.join(dict.fromkeys(expected))}" if expected else subject


def _choices(key: str, names: list[str]) -> str:
    """The rest of a message about an unknown ``key`` where ``names`` are possible."""
    found = difflib.get_close_matches(key, names, n=1)
    hint = f"; did you mean '{found[0]}'?" if found else ""
    return f", expected one of: {', '.join(names)}{hint}" if names else ""


def _keys_below(model: type[BaseModel], keys: Keys) -> list[str]:
    """The keys that the model at ``keys`` below ``model`` may have; none if no model is there."""
    annotations: list[Any] = [model]
    for key in keys:
        annotations = [inner for one in annotations for inner in _inner(one, key)]
    models = [kind for one in annotations for kind in _alternatives(one) if _is_model(kind)]
    return [name for one in models for name, field in one.model_fields.items() if not field.exclude]


def _inner(annotation: Any, key: str | int) -> Iterator[Any]:
    """The annotations of the value under ``key`` of a value with this annotation."""
    for kind in _alternatives(annotation):
        origin, arguments = get_origin(kind), get_args(kind)
        if _is_model(kind) and key in kind.model_fields:
            yield kind.model_fields[str(key)].annotation
        elif origin is dict and arguments:
            yield arguments[1]
        elif origin in (list, tuple) and arguments:
            yield arguments[0]


def _truth_values(annotations: Sequence[Any], value: Any, keys: Keys) -> Iterator[tuple[Keys, list[str]]]:
    """The keys of truth values in ``value``, which has one of these annotations, that pydantic would take for the
    numbers 0 and 1; each with what is expected there."""
    if isinstance(value, bool):
        kinds = [kind for one in annotations for kind in _alternatives(one)]
        numbers = [_NUMBERS[kind] for kind in kinds if kind in _NUMBERS]
        literals = [text for kind in kinds if get_origin(kind) is Literal for text in get_args(kind)]
        if numbers and bool not in kinds and value not in literals:
            yield keys, [_QUOTED] if str in kinds else [*numbers, *map(repr, literals)]
    elif isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            below = [kind for one in annotations for kind in _inner(one, key)]
            yield from _truth_values(below, inner, (*keys, key))


def _alternatives(annotation: Any) -> Iterator[Any]:
    """The members of a union, at any depth; the annotation itself if it is none."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _alternatives(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for argument in get_args(annotation):
            yield from _alternatives(argument)
    else:
        yield annotation


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _not_yaml(path: Path | str, text: str, problem: Exception) -> str:
    """The message for text that the YAML parser refuses."""
    mark = getattr(problem, "problem_mark", None)
    if mark is not None:
        what = f"{path}:{mark.line + 1}: not YAML: {getattr(problem, 'problem', None) or problem}"
        opened = getattr(problem, "context_mark", None)
        if opened is not None and opened.line != mark.line:
            what += f" ({problem.context}, which begins at line {opened.line + 1})"  # type: ignore[attr-defined]
        return what
    if isinstance(problem, yaml.reader.ReaderError):
        return f"{path}:{text.count(chr(10), 0, int(problem.position)) + 1}: not YAML: {problem.reason}"
    return f"{path}: not YAML: {problem}"
