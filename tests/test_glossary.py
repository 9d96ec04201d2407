"""Words that docs/glossary.md retires do not come back as names of modules, classes or public functions."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("common", "emulator", "instrumenter", "measure")
# Whole words of a name, and names in which a retired word has another meaning, which is the field's.
RETIRED = {
    "anchor", "anchors", "archive", "awaited", "barren", "depart", "doubt", "doubts", "driver", "flow", "heat",
    "hindsight", "noted", "piece", "pieces", "remembered", "rights", "runner", "slot", "slots", "stops", "way",
    "ways",
}  # fmt: skip
ALLOWED = {
    "measure.programs.source_archive": "a source archive is a file",
    "archive": "of a package registry",
    "Archive": "of a package registry",
    "fetch_archive": "of a package registry",
    "unpack_archive": "of a package registry",
    "OracleRunner": "runs on the oracle",
    "TranslatedRunner": "runs translations",
    "emulator.execution.oracle_runner": "runs on the oracle",
    "emulator.execution.translated_runner": "runs translations",
    "heat_maps": "a heat map is a picture",
    "is_under_way": "of a memory access",
    "stops": "of a signal: it stops the process",
    "stops_waiting": "of a job: it stops the process",
}


def words_of(name: str) -> set[str]:
    """The words of a name in snake case or camel case."""
    return {word.lower() for part in name.split("_") for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", part)}


def names() -> list[tuple[str, str]]:
    """Modules, classes and public functions: where each is, and its name."""
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found.append((module, module))
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                    found.append((f"{module}:{node.lineno}", node.name))
    return found


def test_a_retired_word_is_no_name() -> None:
    wrong = {
        f"{where}: {name}"
        for where, name in names()
        if name not in ALLOWED and RETIRED & words_of(name.rsplit(".", 1)[-1])
    }
    assert not wrong, f"with a word that docs/glossary.md retires: {', '.join(sorted(wrong))}"


def test_words_of_names() -> None:
    assert words_of("NotedCode") == {"noted", "code"}
    assert words_of("run_until_TLB") == {"run", "until", "tlb"}
    assert words_of("heat_maps") == {"heat", "maps"}
