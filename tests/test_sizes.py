"""Functions stay short enough to read, and files short enough to keep in mind."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent
MAX_FUNCTION_LINES, MAX_FILE_LINES = 100, 500
FOLDERS = ("common", "docs", "emulator", "experiments", "instrumenter", "measure", "tests")


def test_functions_and_files_are_short() -> None:
    too_long = {}
    for path in (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        text, name = path.read_text(), str(path.relative_to(ROOT))
        if len(text.splitlines()) > MAX_FILE_LINES:
            too_long[name] = len(text.splitlines())
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= MAX_FUNCTION_LINES:
                too_long[f"{name}:{node.lineno}"] = (node.end_lineno or 0) - node.lineno + 1
    assert not too_long
