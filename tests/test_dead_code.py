"""Vulture finds no code that cannot be reached and no name that is not used.

As pyproject.toml configures it, it looks at the whole tree for unreachable code, imports and parameters; then at the
product with experiments as its users, for definitions that only tests use.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from emulator.linux.syscalls.table import ALL_SYSTEM_CALLS

ROOT = Path(__file__).parents[1]
VULTURE = [sys.executable, "-m", "vulture"]
PRODUCT_AND_USERS = ["common", "measure", "instrumenter", "emulator", "experiments"]

DECORATORS = [
    "@field_validator*", "@model_validator*",  # called by pydantic
    "@main.command*",  # called by click
]  # fmt: skip
USED_BY_NAME = {
    "__getattr__": "Python calls it for the lazy exports of a package",
    "__dir__": "as above",
    "_repr_*_": "notebooks call these",
    "do_GET": "http.server calls it",
    "log_message": "http.server calls it",
    "main_*": "scripts that pyproject.toml installs",
    "BranchPredictors": "an analyzer that emulator/analyzers/registry.py names",
    "CacheSweep": "as above",
    "CallGraph": "as above",
    "Coverage": "as above",
    "Footprint": "as above",
    "InstructionMix": "as above",
    "ValueLocality": "as above",
    "_auxv": "a file of procfs, called by its name",
    "_cmdline": "as above",
    "_comm": "as above",
    "_environ": "as above",
    "_maps": "as above",
    "_stat": "as above",
    "_statm": "as above",
    "n_reference": "an attribute of what `measure.align` returns",
    "n_other": "as above",
}
"""Names that vulture cannot see used, with the reason."""


def test_no_unreachable_code_and_no_unused_parameter_or_import_is_found() -> None:
    done = subprocess.run(VULTURE, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_dead_code_would_be_found(tmp_path: Path) -> None:
    (tmp_path / "dead.py").write_text("import json\n\n\ndef f(used, unused):\n    return used\n    f(1, 2)\n")
    command = [*VULTURE, "--config", str(ROOT / "pyproject.toml"), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = [line.split(": ", 1)[1] for line in done.stdout.splitlines()]
    assert found == [
        "unused import 'json' (90% confidence)", "unused variable 'unused' (100% confidence)",
        "unreachable code after 'return' (100% confidence)",
    ]  # fmt: skip
    assert done.returncode == 3


def unused_definitions(*paths: str) -> list[str]:
    """Functions, methods, properties and classes in ``paths`` that nothing there uses. Variables are left out: fields
    of models, of structures and of messages of other programs are written here and read elsewhere."""
    options = ["--min-confidence", "60", "--ignore-decorators", ",".join(DECORATORS)]
    command = [*VULTURE, *paths, *options, "--ignore-names", ",".join(USED_BY_NAME)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    handlers = {call.place.rpartition(".")[2] for call in ALL_SYSTEM_CALLS.values()}
    found = []
    for line in done.stdout.splitlines():
        unused = re.search(r": unused (?:function|method|property|class) '(\w+)'", line)
        if unused and not (line.startswith("emulator/linux/syscalls/") and unused[1] in handlers):
            found.append(line)
    return found


def test_the_product_has_no_definition_that_only_tests_use() -> None:
    assert unused_definitions(*PRODUCT_AND_USERS) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def lonely():\n    pass\n", ["function 'lonely'"]),
        ("class Lonely:\n    def own(self):\n        pass\n", ["class 'Lonely'", "method 'own'"]),
        ("def used():\n    pass\n\n\nused()\n", []),
    ],
)
def test_an_unused_definition_would_be_found(tmp_path: Path, text: str, found: list[str]) -> None:
    (tmp_path / "dead.py").write_text(text)
    assert [line.split("unused ")[1].partition(" (")[0] for line in unused_definitions(str(tmp_path))] == found
