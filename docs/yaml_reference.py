"""Makes docs/yaml_reference.md, the reference of every key of the YAML files, from the JSON Schemas.

    python docs/yaml_reference.py [FILE]

`tests/docs/test_yaml_reference.py` holds that the page in the repository is what this script makes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

PAGE = Path(__file__).with_name("yaml_reference.md")
_INTRODUCTION = """\
# Every key of the YAML files

Made from the schemas by `python docs/yaml_reference.py`; `measure schema campaign` and so on print them, for editors.
A *quantity* may have a unit prefix: `200k`, `1.5M`, `2G`. Unknown keys are errors, with file and line.
"""
_KINDS = (
    ("A campaign", "campaign", "`measure run`, `measure partition`, `measure report`"),
    ("A check of sampling", "sampling-check", "`measure check-sampling`"),
    ("A machine", "machine", "`machine:` of a campaign, `--machine` of commands"),
)
_QUANTITY = "\\d[\\d_]*"
_DEFAULT = re.compile(r"\s*Default:? ((?:[^.]|\.(?=\d))*)\.?$")  # the last sentence of a description


def schemas() -> dict[str, dict[str, Any]]:
    """The JSON Schemas of the files, by the names that `measure schema` knows."""
    from emulator.timing.machine_config import MachineConfig
    from measure.runs.campaign_model import Campaign
    from measure.sampling_check.check import SamplingCheck

    found: dict[str, type[BaseModel]] = {
        "campaign": Campaign,
        "sampling-check": SamplingCheck,
        "machine": MachineConfig,
    }
    return {kind: model.model_json_schema() for kind, model in found.items()}


def page() -> str:
    """The text of the page."""
    parts = [_INTRODUCTION]
    all_schemas = schemas()
    campaign_keys = set(all_schemas["campaign"]["properties"])
    campaign_parts = set(all_schemas["campaign"].get("$defs", {}))
    for title, kind, used_by in _KINDS:
        schema = all_schemas[kind]
        is_check = kind == "sampling-check"
        left_out = campaign_keys if is_check else set()
        shared = [f"`{key}`" for key in schema["properties"] if key in left_out]
        besides = f" Of the keys of a campaign it has {', '.join(shared)}, and no others." if shared else ""
        parts.append(f"## {title}\n\nFor {used_by}.{besides}\n\n" + "\n".join(_table(schema, left_out)))
        for name, part in schema.get("$defs", {}).items():
            if "properties" in part and not (is_check and name in campaign_parts):
                about = _plain(part.get("description", ""))
                parts.append(f"### {_words(name)}\n\n{about}\n\n" + "\n".join(_table(part, set())))
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _table(schema: dict[str, Any], left_out: set[str]) -> Iterator[str]:
    yield "| key | value | default | meaning |"
    yield "|---|---|---|---|"
    required = schema.get("required", ())
    for key, about in schema["properties"].items():
        if key in left_out:
            continue
        default = "required" if key in required else _default(about)
        part = schema.get("$defs", {}).get(about.get("$ref", "").rpartition("/")[2], {})
        text = _DEFAULT.sub("", _plain(about.get("description") or part.get("description", "")))
        yield f"| `{key}` | {_value(about)} | {default} | {text} |"


def _value(about: dict[str, Any]) -> str:
    """What a key takes, in words."""
    if "$ref" in about:
        name = _words(about["$ref"].rpartition("/")[2])
        return f"[{name}](#{name.lower().replace(' ', '-')})"
    if "enum" in about:
        return ", ".join(f"`{_shown(one)}`" for one in about["enum"])
    if "const" in about:
        return f"`{_shown(about['const'])}`"
    if "anyOf" in about:
        kinds = [_value(one) for one in about["anyOf"] if one.get("type") != "null"]
        if any(_QUANTITY in one.get("pattern", "") for one in about["anyOf"]):
            kinds = ["quantity", *(kind for kind in kinds if kind not in ("whole number", "number", "text"))]
        return " or ".join(dict.fromkeys(kinds))
    kind = about.get("type")
    if kind == "array":
        items = about.get("items") or about.get("prefixItems", [{}])[0]
        return f"list of {_value(items)}"
    if kind == "object":
        inner = about.get("additionalProperties")
        return f"map of name to {_value(inner)}" if isinstance(inner, dict) else "map"
    return {"string": "text", "integer": "whole number", "number": "number", "boolean": "`true` or `false`"}.get(
        str(kind), "any"
    ) + _range(about)


def _range(about: dict[str, Any]) -> str:
    low, high = about.get("minimum"), about.get("maximum")
    low = f"above {about['exclusiveMinimum']:g}" if "exclusiveMinimum" in about else low
    high = f"below {about['exclusiveMaximum']:g}" if "exclusiveMaximum" in about else high
    if low is None and high is None:
        return ""
    if low is None or high is None:
        return f", at {'most' if low is None else 'least'} {high if low is None else low}".replace("at least ab", "ab")
    return f", {low} to {high}"


def _default(about: dict[str, Any]) -> str:
    said = _DEFAULT.search(_plain(about.get("description", "")))
    if said:
        return f"`{said[1]}`"
    value = about.get("default")
    return "" if value is None or value in ({}, [], "") else f"`{_shown(value)}`"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        import json

        return json.dumps(value)
    return str(value)


def _plain(text: str) -> str:
    """A description on one line of a table."""
    return " ".join(text.replace("``", "`").split()).replace("|", "\\|")


def _words(name: str) -> str:
    """`CacheConfig` as "cache config"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).capitalize()


def main() -> None:
    """Write the page."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE
    path.write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
