"""Vulture, as pyproject.toml configures it, finds no code that cannot be reached and no name that is not used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
VULTURE = [sys.executable, "-m", "vulture"]


def test_no_dead_code_is_found() -> None:
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
