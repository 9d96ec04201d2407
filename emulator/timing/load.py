"""Read a machine description from YAML; say exactly where it is wrong.

Errors have the form ``file:line: key: what was got, what was expected``, one a line, all of them at once.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from emulator.errors import MachineConfigError
from emulator.timing.config import MachineConfig

_Path = tuple[str | int, ...]


def load_machine(path: Path | str) -> MachineConfig:
    """Read and check a machine description.

    Raises `MachineConfigError` with file, line, what was got and what was expected.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise MachineConfigError(f"{path}: cannot read the machine description: {reason}") from error
    return parse_machine(text, str(path))


def parse_machine(text: str, name: str) -> MachineConfig:
    """Check the machine description ``text``; ``name`` stands for the file in messages."""
    try:
        node = yaml.compose(text, yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{name}:{mark.line + 1}" if mark else name
        problem = getattr(error, "problem", None) or str(error)
        raise MachineConfigError(f"{where}: not YAML: {problem}") from error
    if not isinstance(node, yaml.MappingNode):
        got = (
            "nothing" if node is None else "a sequence" if isinstance(node, yaml.SequenceNode) else "a scalar"
        )
        raise MachineConfigError(f"{name}:1: got {got}, expected a mapping of machine parameters")
    lines: dict[_Path, int] = {}
    problems = _read_positions(node, (), lines)
    if problems:
        raise MachineConfigError("\n".join(f"{name}:{line}: {problem}" for line, problem in problems))
    data = yaml.load(text, yaml.SafeLoader)
    try:
        return MachineConfig.model_validate(data)
    except ValidationError as error:
        found = sorted({_describe(details, lines, name) for details in error.errors()})
        raise MachineConfigError("\n".join(message for _, message in found)) from error


def _read_positions(node: yaml.Node, path: _Path, lines: dict[_Path, int]) -> list[tuple[int, str]]:
    """Note the line of each key and item; returns the keys that appear twice or are not names."""
    problems: list[tuple[int, str]] = []
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                problems.append((line, "got a mapping or a sequence as a key, expected a name"))
                continue
            child = (*path, key.value)
            if child in lines:
                problems.append((line, f"{_dotted(child)}: given twice, first in line {lines[child]}"))
                continue
            lines[child] = line
            problems += _read_positions(value, child, lines)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            problems += _read_positions(item, (*path, index), lines)
    return problems


def _dotted(path: _Path) -> str:
    return ".".join(map(str, path))


def _describe(details: Any, lines: dict[_Path, int], name: str) -> tuple[int, str]:
    """Line and message of one pydantic error."""
    path: _Path = details["loc"]
    known = path
    while known not in lines:
        known = known[:-1]
    line, kind, got = lines[known], details["type"], details["input"]
    key = f"{_dotted(path)}: " if path else ""
    if kind == "extra_forbidden":
        choices = _keys_at(path[:-1])
        close = difflib.get_close_matches(str(path[-1]), choices, 1)
        hint = f"did you mean '{close[0]}'?" if close else f"expected one of: {', '.join(choices)}"
        problem = f"unknown key; {hint}"
    elif kind == "missing":
        problem = "missing; it has no default"
    elif kind == "value_error":
        problem = str(details["ctx"]["error"])
    else:
        expected = details["msg"].replace("Input should be", "expected")
        shown = f"a {_yaml_type(got)}" if isinstance(got, dict | list) else f"{got!r} ({_yaml_type(got)})"
        problem = f"got {shown}, {expected}"
    return line, f"{name}:{line}: {key}{problem}"


def _yaml_type(value: object) -> str:
    names = {dict: "mapping", list: "sequence", str: "text", bool: "boolean", int: "integer", float: "number"}
    return "empty" if value is None else names.get(type(value), type(value).__name__)


def _keys_at(path: _Path) -> list[str]:
    """Keys that the section at ``path`` may have."""
    model: type[BaseModel] = MachineConfig
    for key in path:
        annotation = model.model_fields[str(key)].annotation
        options = getattr(annotation, "__args__", (annotation,))
        model = next(
            option for option in options if isinstance(option, type) and issubclass(option, BaseModel)
        )
    return list(model.model_fields)
