"""The JSON Schema of YAML files that may extend others (`common.layered_yaml`), for editors and checks."""

from __future__ import annotations

import copy
from typing import Any

from pydantic import BaseModel

from common.layered_yaml import EXTENDS

_ABOUT = (
    "Path of a file, relative to this one, that this file changes: mappings are merged, lists are replaced, and null "
    "takes back what that file says of a key"
)
_EXTENDING = "_of_a_file_that_extends"


def editor_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The schema of files that ``model`` validates. A file that extends another may leave out at every level what that
    one has, and take any of it back with null."""
    whole = model.model_json_schema()
    definitions = whole.pop("$defs", {})
    whole["properties"][EXTENDS] = {"type": "string", "description": _ABOUT}
    extending = {name + _EXTENDING: _changes_of(one) for name, one in definitions.items()}
    return {
        "$defs": definitions | extending,
        "title": whole.get("title", ""),
        "description": whole.get("description", ""),
        "type": "object",
        "if": {"required": [EXTENDS]},
        "then": _changes_of(whole),
        "else": whole,
    }


def _changes_of(schema: Any) -> Any:
    """``schema`` for a part of a file that extends another: nothing is required, and everything may be null."""
    if isinstance(schema, list):
        return [_changes_of(one) for one in schema]
    if not isinstance(schema, dict):
        return copy.deepcopy(schema)
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("required", "allOf", "oneOf"):  # of keys that belong together, which both files may give
            continue
        if key == "properties":
            found[key] = {name: _or_null(_changes_of(one)) for name, one in value.items()}
        elif key == "additionalProperties" and isinstance(value, dict):
            found[key] = _or_null(_changes_of(value))
        elif key == "$ref":
            found[key] = value + _EXTENDING
        elif key in ("const", "default", "enum", "examples"):
            found[key] = copy.deepcopy(value)
        else:
            found[key] = _changes_of(value)
    return found


def _or_null(schema: Any) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}
