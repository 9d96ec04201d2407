"""`measure cycleclose` as a user meets it."""

from __future__ import annotations

import html
import io
import json
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from common.quantities import parse_count
from emulator.timing.machine_events import Event
from measure.built_in.machine import built_in_machine
from measure.cli import main
from measure.console import progress
from measure.cycle_close import command
from measure.cycle_close.rates import ENERGY, about_blank
from measure.cycle_close.results import write_table
from measure.cycle_close.trace_page import _command, duration_text
from measure.cycle_close.tracer import BY_DEFAULT, TracerSettings
from tests.measure.report.page_structure import csv_in, figures_without_caption_or_data, problems

ROOT = Path(__file__).parent.parent.parent.parent
STRONGARM = ROOT / "configs" / "machines" / "strongarm.yaml"
DESKTOP = ROOT / "configs" / "machines" / "desktop.yaml"
PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
static volatile int data[1 << 14];
int main(int argc, char **argv) {
  long s = 0;
  for (int k = 0; k < 20; k++) {
    for (long i = 0; i < 20000; i++) s += data[(i * 17) & 0x3fff];
    for (long i = 0; i < 30000; i++) s = s * 1103515245 + (s >> 16 & 1 ? 3 : 5);
    if (argc > 1 && k == 10) { fprintf(stderr, "no more\\n"); exit(atoi(argv[1])); }
  }
  printf("%ld\\n", s);
  return 0;
}
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "two.c"
    path.write_text(PROGRAM)
    return path


def cycleclose(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["cycleclose", *map(str, arguments)])


@pytest.mark.parametrize("width", [80, 60])
def test_deviations_are_shown_whole_in_a_terminal_of_any_width(width: int) -> None:
    rates = ("cpi", "l1d_hit_rate", "l1i_hit_rate", "l2_hit_rate", "branch_hit_rate", ENERGY)
    kinds = ("deviation", "simulated", "matched", "unsampled", "whole_run")
    percent = {f"{kind}_percent": 187.68 if kind == "unsampled" else 14.52 for kind in kinds}
    percent |= {"percentile_99_percent": 33.0, "largest_percent": 44.0}
    others = {"absolute": 0.000875, "accesses_per_1000_instructions": 387.4}
    rows = [{"metric": name, **percent, **others} for name in rates]
    out = io.StringIO()
    command._print_deviations(Console(file=out, width=width), pd.DataFrame(rows))
    assert out.getvalue().splitlines()[0].rstrip() == "Deviation from the full simulation [%]"
    assert "…" not in out.getvalue()
    assert (out.getvalue().count("14.5"), out.getvalue().count("188")) == (len(rates) * 4, len(rates))
    assert max(map(len, out.getvalue().splitlines())) <= width
    if width == 80:
        assert "┃ metric" in out.getvalue()


@pytest.mark.parametrize(
    "extra", [[], ["--paper"], ["--roll-back"], ["--twice", "2"], ["--twice", "1", "--wait-step", "0"]]
)
def test_a_trace_is_written_and_validated(source: Path, tmp_path: Path, extra: list[str]) -> None:
    result = cycleclose(
        "--machine", STRONGARM, "--interval", "20k", "--out", tmp_path, "--validate", "--picture", *extra, source
    )
    assert result.exit_code == 0, result.output
    assert "Deviation from the full simulation" in result.output
    table = pd.read_parquet(tmp_path / "trace.parquet")
    assert (table["end_instructions"].iloc[:-1] == table["begin_instructions"].iloc[1:].to_numpy()).all()
    assert {"cpi", "actual_cpi", "energy_nj_per_instruction", "phase", "category"} <= set(table.columns)
    assert set(table["category"]) <= {"simulated", "matched", "unsampled"}
    about = json.loads((tmp_path / "summary.json").read_text())
    assert about["complete"] is True
    assert about["intervals"] == len(table)
    assert sum(about["share"].values()) == pytest.approx(1)
    assert about["validation"]["metrics"]["cpi"]["deviation_percent"] < 10
    assert "Events: for the whole run " in result.output
    events, known = about["validation"]["events"], table[table["cpi"].notna()]
    for name in ("stores", "l1d_misses"):
        assert events[name]["estimated"] == pytest.approx(known[name].sum())
        assert events[name]["off_percent"] == pytest.approx(100 * (known[name].sum() / events[name]["full"] - 1))
    assert all(isinstance(one["full"], int) for one in events.values())
    counts = table.loc[table["category"] == "simulated", [event.name.lower() for event in Event]]
    assert (counts == counts.round()).to_numpy().all()
    assert events["cycles"]["full"] == pytest.approx(known["actual_cycles"].sum())
    assert (about["share"]["unsampled"] == 0) == bool({"--twice", "--roll-back"} & set(extra))
    assert (tmp_path / "trace.png").read_bytes()[:4] == b"\x89PNG"
    check_page(tmp_path, table, about)
    blank = "1 interval has no estimate, as no interval had been simulated before it ended; figures of the whole run"
    assert about["blank_intervals"] == table["cpi"].isna().sum() == ("--paper" in extra)
    for told in (result.output, (tmp_path / "trace.html").read_text()):
        assert (blank in " ".join(told.split())) == ("--paper" in extra)


def test_intervals_without_an_estimate_are_told_with_the_reason() -> None:
    assert about_blank(0, "last") == ""
    assert about_blank(1200, "none") == (
        "1,200 intervals have no estimate, as --unsampled none estimates no interval whose phase had no sample; "
        "figures of the whole run leave them out."
    )


def check_page(folder: Path, table: pd.DataFrame, about: dict[str, Any]) -> None:
    """The page says of each phase what the table says."""
    page = (folder / "trace.html").read_text()
    assert problems(page) == []
    assert figures_without_caption_or_data(page) == []
    assert {row[0]: float(row[3]) for row in csv_in(page, "events")[1:]} == pytest.approx(
        {name: found["off_percent"] for name, found in about["validation"]["events"].items()}
    )
    head, *rows = csv_in(page, "phases-sampled")
    assert [int(row[0]) for row in rows] == sorted(set(table["phase"]))
    for row in (dict(zip(head, one, strict=True)) for one in rows):
        mine = table[table["phase"] == int(row["phase"])]
        for category in ("simulated", "matched", "unsampled"):
            assert int(row[category]) == (mine["category"] == category).sum()
        known = mine[mine["cycles"].notna()]
        cpi = known["cycles"].sum() / known["instructions"].sum() if len(known) else float("nan")
        assert float(row["CPI"]) == pytest.approx(cpi, nan_ok=True)
    assert f"{about['validation']['metrics']['cpi']['deviation_percent']:.2f}%</td>" in page
    assert "--validate" not in re.sub(r"<script.*", "", page, flags=re.S)


def test_a_good_end_may_be_another_status_than_0(source: Path, tmp_path: Path) -> None:
    options = ("--machine", STRONGARM, "--interval", "20k", "--out", tmp_path, "--exit-status")
    result = cycleclose(*options, "3", source, "3")
    assert result.exit_code == 0, result.output
    assert "ended badly" not in result.output
    about = json.loads((tmp_path / "summary.json").read_text())
    assert about["complete"] is True
    assert about["options"] == ["--exit-status", "3"]  # of the commands on the page
    result = cycleclose(*options, "4", source, "3")
    assert result.exit_code == 1
    assert "exit status 3, expected 4: no more" in result.output
    assert json.loads((tmp_path / "summary.json").read_text())["complete"] is False


def test_a_good_end_may_be_a_signal(tmp_path: Path) -> None:
    (tmp_path / "ends.c").write_text(PROGRAM.replace("exit(atoi", "abort(), (void)(atoi"))
    for kind in ("cycleclose", "phases"):
        options = ("--interval", "20k", "--out", str(tmp_path / kind), "--exit-status")
        result = CliRunner().invoke(main, [kind, *options, "134", str(tmp_path / "ends.c"), "3"])
        assert result.exit_code == 0, result.output
        assert "ended badly" not in result.output
        result = CliRunner().invoke(main, [kind, *options, "139", str(tmp_path / "ends.c"), "3"])
        assert result.exit_code == 1
        assert "ended by signal 6 (SIGABRT), expected 139 (signal 11)\n" in result.output


def test_a_bad_end_keeps_the_trace_and_says_so(source: Path, tmp_path: Path) -> None:
    result = cycleclose("--machine", STRONGARM, "--interval", "20k", "--out", tmp_path, source, "3")
    assert result.exit_code == 1
    assert (
        "exit status 3: no more; if it ends so when all is well, give --exit-status 3, before PROGRAM" in result.output
    )
    shown = result.stdout.splitlines()
    words = r"The program ended badly after [\d,]+ instructions; what follows is of the time before\."
    assert re.fullmatch(words, shown[0])
    assert len(pd.read_parquet(tmp_path / "trace.parquet")) > 10
    assert json.loads((tmp_path / "summary.json").read_text())["complete"] is False
    assert "The trace ends early" in (tmp_path / "trace.html").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--warm-up", "50000"], "got '50000', expected 'lines' or two counts M,B, such as 50000,50000"),
        (["--predictor", "rle-0"], "got the predictor 'rle-0', expected 'last' or 'rle-N'"),
        (["--interval", "10"], "an interval of 10 instructions, expected at least 1000"),
        (["--interval", "many"], "expected a count such as 500000, 500k or 2G"),
        (["--threshold", "0"], "0<x<=100"),
    ],
)
def test_bad_options(source: Path, options: list[str], message: str) -> None:
    result = cycleclose("--machine", STRONGARM, *options, source)
    assert result.exit_code == 2
    assert message in result.output


def test_missing_files(source: Path, tmp_path: Path) -> None:
    result = cycleclose("--machine", tmp_path / "none.yaml", "--out", tmp_path, source)
    assert result.exit_code == 2
    assert "none.yaml: cannot be read" in result.output
    result = cycleclose("--machine", STRONGARM, "--out", tmp_path, tmp_path / "none.c")
    assert result.exit_code == 2
    assert "no such file" in result.output
    result = cycleclose("--machine", STRONGARM, "--out", tmp_path, "--stdin", tmp_path / "none.txt", source)
    assert result.exit_code == 2
    assert "none.txt" in result.output


def test_without_a_machine_it_is_the_built_in_one_and_the_page_repeats_the_command(
    source: Path, tmp_path: Path
) -> None:
    result = cycleclose("--out", tmp_path / "out", "--interval", "10k", source)
    assert result.exit_code == 0, result.output
    told = " ".join(result.output.split())
    assert "Machine: the built-in desktop.yaml, of which `measure init` writes a copy" in told
    about = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert about["machine"] == "the built-in desktop.yaml"
    command = _command(about, "--validate")
    assert command.startswith("measure cycleclose --interval 10000 --validate ")
    named = cycleclose("--machine", DESKTOP, "--out", tmp_path / "named", "--interval", "10k", source)
    assert named.exit_code == 0, named.output
    again = json.loads((tmp_path / "named" / "summary.json").read_text())
    assert again["estimate"] == about["estimate"]
    assert built_in_machine().read_bytes() == DESKTOP.read_bytes()


@pytest.mark.parametrize("name", ["mine.png", "mine"])
def test_a_name_after_picture_is_no_program(source: Path, name: str) -> None:
    result = cycleclose("--machine", STRONGARM, "--picture", name, source)
    assert result.exit_code == 2
    told = " ".join(result.output.split())
    assert f"--picture takes no name: leave out {name}; the picture is trace.png in the directory that --out" in told


def test_options_become_the_settings_of_their_names(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[TracerSettings] = []

    def run(job: object, settings: TracerSettings, *others: object) -> tuple[int, None]:
        asked.append(settings)
        return 0, None

    monkeypatch.setattr(command, "run_cycleclose", run)
    given = ["--interval", "5k", "--dimensions", "7", "--threshold", "10", "--base", "L", "--entries", "9",
             "--when-full", "closest", "--update", "mean", "--predictor", "last", "--unsampled", "none",
             "--warm-up", "11,13", "--wait-step", "30", "--signature", "hashed"]  # fmt: skip
    for options in ([], given, ["--paper"], ["--roll-back"]):
        assert cycleclose(*options, source).exit_code == 0
    chosen = TracerSettings(
        interval_instructions=5000, dimensions=7, threshold=0.1, base="L", entries=9, when_full="closest",
        update="mean", predictor="last", unsampled="none", warm_up="queues", warm_references=11, warm_branches=13,
        wait_step=0.3, signature="hashed",
    )  # fmt: skip
    assert asked == [BY_DEFAULT, chosen, TracerSettings(), replace(BY_DEFAULT, roll_back=True)]


def test_gdb_needs_somebody_to_press_the_key(source: Path) -> None:
    result = cycleclose("--machine", STRONGARM, "--gdb-port", "1234", source)
    assert result.exit_code == 2
    assert "--gdb-port is for the key g while the trace is shown: in a terminal" in result.output


TINY = """
#include <stdio.h>
int main(void) { puts("hello"); return 0; }
"""


def test_an_interval_longer_than_the_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tiny.c").write_text(TINY)
    result = cycleclose("--machine", STRONGARM, "--out", tmp_path / "out", tmp_path / "tiny.c")
    assert result.exit_code == 2
    said = " ".join(result.output.split())
    assert re.search(r"--interval: got intervals of 200,000 instructions, but .*tiny\.c executes [\d,]+ in all", said)
    assert not (tmp_path / "out").exists()


NO_INPUT = """\
#include <stdio.h>
int main(void) { if (getchar() == EOF) { fputs("no input\\n", stderr); return 1; } return 0; }
"""


def test_a_program_that_fails_before_an_interval_is_over_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "reads.c").write_text(NO_INPUT)
    for options in ([], ["--validate"], ["--twice", "1"]):
        result = cycleclose("--machine", STRONGARM, *options, "--out", tmp_path / "out", tmp_path / "reads.c")
        assert result.exit_code == 1
        assert "no input; the program read its standard input, which is empty without `--stdin FILE`" in result.output
        assert "It ended before one interval of 200,000 instructions was over" in result.output
        assert not (tmp_path / "out").exists()


def test_nothing_sampled_is_refused_with_the_way_out(source: Path, tmp_path: Path) -> None:
    """One interval is over before its phase could be predicted."""
    out = tmp_path / "out"
    assert cycleclose("--machine", STRONGARM, "--interval", "5M", "--out", tmp_path / "two", source).exit_code == 0
    whole = json.loads((tmp_path / "two" / "summary.json").read_text())["instructions"]
    result = cycleclose("--machine", STRONGARM, "--interval", whole, "--out", out, source)
    assert result.exit_code == 2, result.output
    said = " ".join(result.output.split())
    assert "none of its 1 intervals was simulated" in said
    assert "--roll-back or --twice 1" in said
    assert not out.exists()
    way_out = ["--roll-back", "--interval", whole, "--out", out]
    assert cycleclose("--machine", STRONGARM, *way_out, source).exit_code == 0


def test_a_program_that_forks_is_traced_twice_instead_of_rolled_back(tmp_path: Path) -> None:
    source = tmp_path / "forks.c"
    source.write_text(
        "#include <sys/wait.h>\n#include <unistd.h>\nvolatile long sum;\n"
        "int main(void) { if (!fork()) _exit(0); wait(0); for (long i = 0; i < 200000; i++) sum += i; return 0; }\n"
    )
    options = ["--machine", STRONGARM, "--interval", "20k", "--out", tmp_path / "out"]
    result = cycleclose(*options, "--roll-back", source)
    assert result.exit_code == 2
    said = " ".join(result.output.split())
    assert "--roll-back: a guest that has started processes cannot go back to an earlier state; use --twice" in said
    assert cycleclose(*options, "--twice", "1", source).exit_code == 0
    # The directory of a trace is not one for phases.
    refused = CliRunner().invoke(main, ["phases", "--out", str(tmp_path / "out"), str(source)])
    assert refused.exit_code == 2
    assert "has results of `measure cycleclose`, which would be lost" in " ".join(refused.output.split())


def test_a_trace_that_ends_badly_before_a_sample_is_drawn(source: Path, tmp_path: Path) -> None:
    cycleclose("--machine", STRONGARM, "--interval", "20k", "--out", tmp_path, source, "3")
    most = json.loads((tmp_path / "summary.json").read_text())["instructions"] - 1
    result = cycleclose("--machine", STRONGARM, "--interval", most, "--picture", "--out", tmp_path, source, "3")
    assert result.exit_code == 1
    assert "exit status 3: no more" in result.output
    assert json.loads((tmp_path / "summary.json").read_text())["estimate"]["cpi"] is None
    assert (tmp_path / "trace.png").exists()


def test_a_trace_needs_neither_pandas_nor_matplotlib(source: Path, tmp_path: Path) -> None:
    """They take longer to load than all else that a trace of a short program needs. A picture that is not asked for is
    not made, and an earlier one, of another trace, goes."""
    (tmp_path / "trace.png").write_bytes(b"an earlier picture")
    options = ["--machine", str(STRONGARM), "--interval", "20k", "--out", str(tmp_path)]
    code = (
        "import sys; from measure.cli import main\n"
        f"try: main({['cycleclose', *options, str(source)]!r})\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "print('HEAVY', sorted({'pandas', 'matplotlib', 'scipy', 'jinja2'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "HEAVY []"
    assert {one.name for one in tmp_path.iterdir()} == {"trace.html", "trace.parquet", "summary.json"}


@given(
    st.lists(
        st.tuples(st.floats(), st.integers(-(2**63), 2**63 - 1), st.sampled_from(["simulated", "matched", "é", ""])),
        min_size=1,
    )
)
def test_a_table_holds_what_was_written(rows: list[tuple[float, int, str]]) -> None:
    columns = {
        name: np.array(values, kind)
        for name, values, kind in zip("abc", zip(*rows, strict=True), (float, np.int64, object), strict=True)
    }
    with tempfile.TemporaryDirectory() as folder:
        write_table(Path(folder), columns, None)
        found = pd.read_parquet(Path(folder) / "trace.parquet")
    pd.testing.assert_frame_equal(found, pd.DataFrame(columns), check_dtype=False)


def test_what_an_interruption_leaves_out_is_said(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the trace, as by the key q; of the full simulation, as by Ctrl-C and SIGTERM."""
    real = command.trace_job
    for number, stage, status in ((0, "was not begun", 130), (1, "was interrupted", 143)):
        asked: list[bool] = []

        def interrupted(*arguments: Any, number: int = number, status: int = status, asked: list[bool] = asked) -> Any:
            asked.append(arguments[3].everything)
            found = real(*arguments)
            return replace(found, interrupted=status) if len(asked) == number + 1 else found

        monkeypatch.setattr(command, "trace_job", interrupted)
        out = tmp_path / str(number)
        result = cycleclose("--machine", STRONGARM, "--interval", "20k", "--out", out, "--validate", source)
        assert result.exit_code == status, result.output
        assert f"--validate was skipped: the full simulation {stage}" in " ".join(result.output.split())
        assert asked == [False, True][: number + 1]
        assert "actual_cpi" not in pd.read_parquet(out / "trace.parquet").columns
        assert "validation" not in json.loads((out / "summary.json").read_text())


def test_the_trace_is_there_before_the_full_simulation(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed there, it is kept, and what was half-written goes the next time."""
    seen: list[list[str]] = []
    out = tmp_path / "out"
    out.mkdir()
    (out / ".trace.parquet.1.part").write_text("half")

    def killed(*arguments: Any) -> Any:
        seen.append(sorted(path.name for path in out.iterdir()))
        raise SystemExit(9)

    monkeypatch.setattr(command, "_simulated_in_full", killed)
    result = cycleclose("--machine", STRONGARM, "--interval", "20k", "--out", out, "--validate", source)
    assert result.exit_code == 9
    assert seen == [["summary.json", "trace.html", "trace.parquet"]]
    assert json.loads((out / "summary.json").read_text())["complete"]


def test_the_guest_sees_what_is_mapped_and_a_device_is_an_input(tmp_path: Path) -> None:
    (tmp_path / "reads.c").write_text(READS)
    (tmp_path / "file").write_text("7")
    guest = ["--map", f"/in={tmp_path / 'file'}", "--env", "WANTED=/in"]
    common = ["--machine", STRONGARM, "--interval", "20k", "--out", tmp_path / "out", "--stdin", "/dev/null"]
    result = cycleclose(*guest, *common, tmp_path / "reads.c")
    assert result.exit_code == 0, result.output
    page = html.unescape((tmp_path / "out" / "trace.html").read_text())
    seen = shlex.join(["--validate", "--stdin", "/dev/null", *guest, str(tmp_path / "reads.c")])
    assert f" {seen}<" in page  # a command without them would fail
    assert cycleclose(*guest[2:], *common, tmp_path / "reads.c").exit_code == 1


READS = """
#include <stdio.h>
#include <stdlib.h>
int main(void) {
  FILE *file = fopen(getenv("WANTED"), "r");
  volatile long s = 0;
  for (long i = 0; i < 100000; i++) s += i;
  return !(file && fgetc(file) == '7' && getchar() == EOF);
}
"""


def test_without_a_terminal_the_full_simulation_is_followed_by_lines(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_LEAST_SECONDS", 0.0)
    result = cycleclose("--machine", STRONGARM, "--interval", "20k", "--out", tmp_path, "--validate", source)
    assert result.exit_code == 0
    shares = re.findall(r"full simulation, to compare: (\d+)%, \d:\d\d, .*(?:left|known yet)", result.output)
    assert [int(share) // 10 for share in shares] == list(range(1, 10))


def test_the_page_leaves_out_just_the_options_that_have_their_default() -> None:
    """Else the commands that it offers to copy would mean something else."""
    from measure.cycle_close.cli import cycleclose as declared
    from measure.cycle_close.trace_page import _OPTIONS
    from measure.cycle_close.tracer import BY_DEFAULT

    defaults = {name: option.default for option in declared.params for name in option.opts}
    for setting, option in _OPTIONS.items():
        default = getattr(BY_DEFAULT, setting)
        given = 100 * default if isinstance(default, float) else default
        found = defaults[option]
        assert (parse_count(str(found)) if option == "--interval" else found) == given, option


def test_a_program_of_several_files_is_told_how_to_become_an_executable(tmp_path: Path) -> None:
    (tmp_path / "two.c").write_text("int other(void); int main(void) { return other(); }\n")
    (tmp_path / "two.cc").write_text("int main() { return 0; }\n")
    (tmp_path / "two.yaml").write_text("name: two\n")
    advice = (
        "`make CC=instrument-cc CXX=instrument-c++` in a copy of its directory, or `instrument-cc -O2 -g -o PROGRAM"
    )
    for program in (tmp_path, tmp_path / "two.cc", tmp_path / "two.yaml", tmp_path / "two.c"):
        result = cycleclose("--machine", STRONGARM, "--out", tmp_path / "out", program)
        assert result.exit_code == 2, result.output
        assert result.output.startswith(f"measure: {program}: ")
        assert advice in result.output
        assert ("undefined symbol: other" in result.output) == (program.suffix == ".c")
    (tmp_path / "two.c").write_text("int main(void) { return x; }\n")
    assert advice not in cycleclose("--machine", STRONGARM, tmp_path / "two.c").output
    (tmp_path / "two.c").write_text('#include "common.h"\nint main(void) { return 0; }\n')
    assert "instrument-cc -O2 -g -I DIRECTORY -o" in cycleclose("--machine", STRONGARM, tmp_path / "two.c").output


def test_a_trace_that_took_longer_than_full_simulation_says_why() -> None:
    assert duration_text({"full_seconds": 6.0, "speedup": 3.04}) == "6.00 s, 3.0 times as long"
    assert duration_text({"full_seconds": 0.34, "speedup": 0.04}).startswith("0.34 s, less than the trace: ")
