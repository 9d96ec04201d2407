"""The reference of YAML keys is the one that the schemas give, and each key is explained."""

from __future__ import annotations

import re

from docs.yaml_reference import PAGE, page, schemas


def test_the_page_in_the_repository_is_current() -> None:
    assert PAGE.read_text("utf-8") == page(), "run: python docs/yaml_reference.py"


def test_every_key_has_a_meaning() -> None:
    rows = re.findall(r"^\| `(\w+)` \|.*\| ([^|]*) \|$", page(), re.MULTILINE)
    assert len(rows) > 100
    assert [key for key, meaning in rows if not meaning.strip()] == []


def test_every_key_of_every_schema_is_on_the_page() -> None:
    text = page()
    for schema in schemas().values():
        for part in (schema, *schema.get("$defs", {}).values()):
            for key in part.get("properties", {}):
                assert f"| `{key}` |" in text
