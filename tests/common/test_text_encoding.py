"""Commands in environments whose encoding has no other characters than those of ASCII."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
CAMPAIGN = """\
name: demo
program: {source: größe.c}
machine: machine.yaml
sampling: {every: 4000 cycles}
hardware_metrics: [PAPI_TOT_INS, PAPI_LD_INS]
software_metrics: {rounds: {event: entry, function: work}}
"""


def run(module: str, *arguments: object, folder: Path) -> subprocess.CompletedProcess[bytes]:
    code = f"import sys; from {module} import main; main(prog_name=sys.argv.pop(1))"
    name = {"measure.cli": "measure", "emulator.cli": "emulate", "instrumenter.cli": "instrument"}[module]
    return subprocess.run(
        [sys.executable, "-c", code, name, *map(str, arguments)], cwd=folder, capture_output=True, check=False,
        env={**os.environ, **ASCII, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def test_a_file_name_that_cannot_be_encoded_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CAMPAIGN, encoding="utf-8")
    done = run("measure.cli", "run", "--counts", "c.yaml", folder=tmp_path)
    told = done.stderr.decode("ascii")
    assert done.returncode == 2, told
    assert "Traceback" not in told
    assert r"gr\xf6\xdfe.c: got a name with '\xf6\xdf', which the encoding of file names here, ascii, lacks" in told
    assert "set PYTHONUTF8=1 or LC_ALL=C.UTF-8" in told


def test_instrument_and_emulate_end_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text("sources: [größe.c]\nmetrics: {a: {event: alloc}}\n", encoding="utf-8")
    for done in (
        run("instrumenter.cli", "spec.yaml", "--out", "out", folder=tmp_path),
        run("emulator.cli", "größe", folder=tmp_path),
    ):
        assert done.returncode == 2
        assert b"Traceback" not in done.stderr


def test_streams_show_names_by_their_bytes_and_other_characters_as_escapes(tmp_path: Path) -> None:
    program = (
        "import sys; from common.text_encoding import any_text\n"
        "with any_text('x'):\n"
        "    print(sys.argv[1], '\\u251c', 'plain')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "Größe".encode()], capture_output=True, check=False, cwd=tmp_path,
        env={**os.environ, **ASCII, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stdout == "Größe".encode() + b" \\u251c plain\n", done.stderr
