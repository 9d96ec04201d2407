"""Words that docs/glossary.md retires do not come back as names of modules, classes or public functions."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("common", "emulator", "experiments", "instrumenter", "measure")  # names of tests are sentences
# Retired words that are the field's own for something else, and single names in which one is.
OTHER_MEANINGS = {
    "boxed": "NaN-boxed",
    "control": "of jobs, of sockets, of experiments",
    "miss": "of a cache",
    "space": "address space",
    "watch": "of inotify, of intervals, of a running campaign",
}
ALLOWED = {
    "measure.programs.source_archive": "a source archive is a file",
    "archive": "of a package registry",
    "Archive": "of a package registry",
    "fetch_archive": "of a package registry",
    "unpack_archive": "of a package registry",
    "heat_maps": "a heat map is a picture",
    "stops": "of a signal: it stops the process",
    "stops_waiting": "of a job: it stops the process",
}


def words_of(name: str) -> list[str]:
    """The words of a name in snake case or camel case."""
    return [word.lower() for part in name.split("_") for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", part)]


def retired_words() -> set[str]:
    """The last column of the glossary's tables: words, and phrases of several words."""
    rows = re.findall(r"^\|[^|]*\|[^|]*\|([^|]*)\|$", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    cells = [cell.strip() for cell in rows]
    return {word.strip() for cell in cells if cell not in ("", "---", "retired") for word in cell.split(",")}


def uses(name: str, retired: str) -> bool:
    """Whether the words of ``retired``, or of its plural with an s, follow one another in ``name``."""
    return bool(re.search(rf"\b{retired}s?\b", " ".join(words_of(name))))


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
    retired = retired_words() - OTHER_MEANINGS.keys()
    wrong = {
        f"{where}: {name}"
        for where, name in names()
        if name not in ALLOWED and any(uses(name.rsplit(".", 1)[-1], word) for word in retired)
    }
    assert not wrong, f"with a word that docs/glossary.md retires: {', '.join(sorted(wrong))}"


def test_exceptions_are_needed() -> None:
    assert OTHER_MEANINGS.keys() <= retired_words()
    assert ALLOWED.keys() <= {name for _, name in names()}


def test_retired_words_are_those_of_the_glossary() -> None:
    assert {"way", "heat", "count anew"} <= retired_words()
    assert "campaign" not in retired_words()


def test_words_of_names() -> None:
    assert words_of("NotedCode") == ["noted", "code"]
    assert words_of("run_until_TLB") == ["run", "until", "tlb"]
    assert uses("NotedCode", "noted code")
    assert uses("two_ways", "way")
    assert not uses("code_noted", "noted code")
    assert not uses("stop_reply", "stops")
