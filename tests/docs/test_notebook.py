"""The notebook runs from top to bottom, and its stored outputs are of the code that it has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"


def cells() -> list[str]:
    """The text of its code cells."""
    book = json.loads(NOTEBOOK.read_text("utf-8"))
    return ["".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "code"]


def test_every_cell_was_executed_without_an_error() -> None:
    book = json.loads(NOTEBOOK.read_text("utf-8"))
    outputs = [cell["outputs"] for cell in book["cells"] if cell["cell_type"] == "code"]
    assert all(outputs[1:])  # the first only defines
    assert not any(output["output_type"] == "error" for cell in outputs for output in cell)


@pytest.mark.slow
def test_the_cells_run_in_order(tmp_path: Path) -> None:
    """With a little less work for the program."""
    lines = [
        *cells(),
        'assert {"light", "heavy"} == set(result.verdicts["variant"])',
        'print(found.verdicts["verdict"])',
    ]
    script = "\n".join(lines).replace("args: [4]", "args: [3]")
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=NOTEBOOK.parent, capture_output=True, text=True, timeout=600, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "verdict" in done.stdout
