"""The commands of the tutorial, in order, as written, on its program with less work."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorial.md"
MEASURE = "import sys; sys.argv[0] = 'measure'; from measure.cli import main; main()"


def commands() -> list[list[str]]:
    """The commands of the page."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", TUTORIAL.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.splitlines()]


@pytest.mark.slow
def test_the_commands_work_in_order(tmp_path: Path) -> None:
    source = (ROOT / "docs" / "tutorial" / "index.c").read_text("utf-8")
    assert ": 15, chapter" in source
    (tmp_path / "index.c").write_text(source.replace(": 15, chapter", ": 1, chapter"), "utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    found = commands()
    assert [words[:2] for words in found][:1] == [["measure", "init"]]
    for words in found:
        if words[1] == "partition":
            words = [*words[:-1], "0.05"]
        if words[1] == "explain":
            words = [*words, "--pairs", "3", "--minutes", "0.05"]
        done = subprocess.run(
            [sys.executable, "-c", MEASURE, *words[1:]], cwd=tmp_path, env=environment, capture_output=True, text=True,
            timeout=600, check=False,
        )  # fmt: skip
        out_of_time = words[1] == "partition" and "No group was measured in the time limit" in done.stdout
        assert done.returncode == (1 if out_of_time else 0), f"{shlex.join(words)}: {done.stdout}{done.stderr}"
        if words[1] == "init":
            _with_fewer_runs(tmp_path / "index.yaml")
    for name in ("report.html", "summary.json", "pairs.csv", "explain/explain.html"):
        assert (tmp_path / "results" / "index" / name).is_file()
    shutil.rmtree(tmp_path / "results")


def _with_fewer_runs(campaign: Path) -> None:
    text = campaign.read_text("utf-8")
    assert text.count(": 10\n") == 2
    campaign.write_text(text.replace(": 10\n", ": 6\n"), "utf-8")
