"""`measure phases` on a real program and on files of other tools."""

from __future__ import annotations

import html
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

from measure.cli import main
from measure.program_phases.bbv import from_dense
from measure.program_phases.bbv_files import read_bb, read_points, write_bb
from tests.measure.report.page_structure import csv_in, figures_without_caption_or_data, problems

MACHINE = str(Path(__file__).parents[3] / "configs" / "machines" / "strongarm.yaml")
TWO_PHASES = """
static volatile int data[1 << 14];
int main(int argc, char **argv) {
  long s = 1;
  for (int k = 0; k < 8; k++) {
    for (long i = 0; i < 20000; i++) s += data[(i * 17) & 0x3fff];
    for (long i = 0; i < 30000; i++) s = s * 31 + (s >> 7);
  }
  return argc > 1 ? 3 : s == 42;
}
"""


def measure(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["phases", *map(str, arguments)])


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("phases")
    (folder / "two.c").write_text(TWO_PHASES)
    result = measure("--interval", "20k", "--machine", MACHINE, "--out", folder / "out", folder / "two.c")
    assert result.exit_code == 0, result.output
    assert "Rates of totals by (error); intervals cut out of full simulation, warm" in result.output
    assert "Rates of the points' totals by warm-up (error)" in result.output
    assert "Mean of the intervals' own rates (standard deviation in percent of it)" in result.output
    return folder


def test_a_program_against_full_simulation(traced: Path) -> None:
    out = traced / "out"
    about = json.loads((out / "summary.json").read_text())
    assert 2 <= about["k"] <= 40
    told = about["estimates"]
    table = pd.read_parquet(out / "trace.parquet")
    cpi = table["cycles"].sum() / table["instructions"].sum()
    assert told["full simulation"]["cpi"]["value"] == pytest.approx(cpi)
    misses, accesses = table["l1d_misses"].sum(), table["l1d_accesses"].sum()
    assert told["full simulation"]["l1d_hit_rate"]["value"] == pytest.approx(1 - misses / accesses)
    assert told["simulation points"]["cpi"]["error_percent"] < 3
    by_warm_up = {
        warm_up: told[f"simulation points, {warm_up}"]["cpi"]["value"]
        for warm_up in ("no warm-up", "after 1 M", "exact lines")
    }
    warm, full = told["simulation points"]["cpi"]["value"], told["full simulation"]["cpi"]["value"]
    assert by_warm_up["no warm-up"] > 1.002 * warm  # what a user without warm-up gets
    assert by_warm_up["after 1 M"] == pytest.approx(warm, rel=2e-4)  # longer than the program before it
    assert by_warm_up["exact lines"] == pytest.approx(warm, rel=5e-4)
    assert told["simulation points, no warm-up"]["cpi"]["error_percent"] == pytest.approx(
        100 * abs(by_warm_up["no warm-up"] / full - 1)
    )
    assert told["first N"]["cpi"]["error_percent"] > told["simulation points"]["cpi"]["error_percent"]
    vectors = read_bb(out / "two.bb")
    assert vectors.instructions.tolist() == (table["end_instructions"] - table["begin_instructions"]).tolist()
    labels = np.loadtxt(out / "two.labels")[:, 0]
    assert table["phase"].tolist() == labels.tolist()
    assert (out / "phases.png").stat().st_size > 10_000


def test_the_page_has_points_errors_by_warm_up_and_files(traced: Path) -> None:
    out = traced / "out"
    page, about = (out / "phases.html").read_text(), json.loads((out / "summary.json").read_text())
    assert problems(page) == []
    assert figures_without_caption_or_data(page) == []
    told = {(metric, method): float(error) for metric, method, _, error in csv_in(page, "estimates")[1:] if error}
    for warm_up in ("no warm-up", "after 1 M", "exact lines"):
        error = about["estimates"][f"simulation points, {warm_up}"]["cpi"]["error_percent"]
        assert told["cpi", f"points, {warm_up}"] == pytest.approx(error)
        assert f"({error:.2f}%)" in page
    rows = csv_in(page, "simulation-points")[1:]
    assert [(int(row[0]), int(row[2])) for row in rows] == [
        (one["phase"], one["interval"]) for one in about["simulation_points"]
    ]
    uniform = pd.read_csv(out / "homogeneity.csv")
    assert len(csv_in(page, "homogeneity")) == len(uniform) + 1
    for name in out.iterdir():
        assert name.name == "phases.html" or f"<code>{name.name}</code>" in page
    assert f"--take-simpoint-checkpoints={out}/two.simpoints,{out}/two.weights,20000,1000000" in page


def test_phases_are_more_uniform_than_the_program(traced: Path) -> None:
    uniform = pd.read_csv(traced / "out" / "homogeneity.csv", index_col="phase")
    table = pd.read_parquet(traced / "out" / "trace.parquet")
    assert uniform.index[0] == "program"
    cpi = table["cycles"].sum() / table["instructions"].sum()
    assert uniform.loc["program", "cpi_mean"] == pytest.approx(cpi)
    phases = uniform.drop(index="program")
    assert (phases["cpi_cov"] * phases["share"]).sum() < 0.5 * uniform["cpi_cov"]["program"]


def test_written_vectors_give_the_same_points(traced: Path) -> None:
    code = measure("--interval", "20k", "--out", traced / "code", traced / "two.c")
    assert code.exit_code == 0, code.output
    assert "Simulate everything once on a machine" in (traced / "code" / "phases.html").read_text()
    again = measure("--out", traced / "bb", traced / "code" / "two.bb")
    assert again.exit_code == 0, again.output
    assert not (traced / "bb" / "phases.html").exists()  # would take longer than everything else
    pictured = measure("--picture", "--out", traced / "pictured", traced / "code" / "two.bb")
    assert pictured.exit_code == 0, pictured.output
    assert "phases.html" in pictured.output
    page = (traced / "pictured" / "phases.html").read_text()
    assert 'data-traces="similarity"' in page
    assert "measure phases" not in page  # a file of vectors does not say which program it is of
    for name in ("two.simpoints", "two.weights", "two.labels"):
        assert (traced / "bb" / name).read_bytes() == (traced / "code" / name).read_bytes()


def numbers_of(estimates: dict[str, Any], above: str = "") -> dict[str, float]:
    """The numbers of nested objects by their path."""
    found: dict[str, float] = {}
    for name, value in estimates.items():
        if isinstance(value, dict):
            found |= numbers_of(value, f"{above}{name}/")
        else:
            found[above + name] = float("nan") if value is None else value
    return found


def test_points_made_elsewhere(traced: Path, tmp_path: Path) -> None:
    out = traced / "out"
    files = ("--points", out / "two.simpoints", "--weights", out / "two.weights")
    common = ("--interval", "20k", "--out", tmp_path / "out")
    result = measure(*files, *common, "--machine", MACHINE, traced / "two.c")
    assert result.exit_code == 0, result.output
    theirs = json.loads((tmp_path / "out" / "summary.json").read_text())
    ours = json.loads((out / "summary.json").read_text())
    wanted = numbers_of(ours["estimates"])
    assert len(wanted) > 20
    assert numbers_of(theirs["estimates"]) == pytest.approx(wanted, rel=1e-9, nan_ok=True)  # weights were rounded
    page = (tmp_path / "out" / "phases.html").read_text()
    assert problems(page) == []
    assert "points of another tool" in page
    rows, same = (csv_in(one, "estimates")[1:] for one in (page, (out / "phases.html").read_text()))
    assert [row[:2] for row in rows] == [row[:2] for row in same]
    assert not (tmp_path / "out" / "phases.png").exists()
    wrong = measure(*files, "--interval", "10M", "--out", tmp_path, "--machine", MACHINE, traced / "two.c")
    assert wrong.exit_code == 2
    assert "give --interval the length" in " ".join(wrong.output.split())
    for arguments, message in (
        ((*files, traced / "two.c"), "--points needs --machine"),
        ((*files[:2], traced / "two.c"), "--points and --weights go together"),
        ((*files, "--machine", MACHINE, out / "two.bb"), "is a file of vectors"),
        (("--interval", "20k", out / "two.bb"), "--interval is about running a program"),
        (("--stdin", out / "two.bb", out / "two.bb"), "--stdin is about running a program"),
        (("--map", "/x=.", out / "two.bb"), "--map is about running a program"),
        ((out / "two.bb", "--k", "3"), "options go before it: measure phases --k 3 "),
        ((out / "two.bb", "--machine", MACHINE), "a file of vectors and takes no arguments"),
    ):
        refused = measure(*arguments)
        assert refused.exit_code == 2
        assert message in " ".join(refused.output.split())


def test_files_that_only_an_earlier_run_wrote_do_not_stay(traced: Path, tmp_path: Path) -> None:
    shutil.copytree(traced / "out", tmp_path / "out")
    result = measure("--interval", "50k", "--no-picture", "--out", tmp_path / "out", traced / "two.c")
    assert result.exit_code == 0, result.output
    left = {path.name for path in (tmp_path / "out").iterdir()}
    assert left == {"summary.json", "two.bb", "two.labels", "two.simpoints", "two.weights"}


def test_a_program_that_fails_is_said_to(traced: Path, tmp_path: Path) -> None:
    result = measure("--interval", "20k", "--out", tmp_path, traced / "two.c", "argument")
    assert result.exit_code == 1
    assert "exit status 3" in result.output
    assert "no file of yours" not in result.output
    assert (tmp_path / "two.simpoints").exists()
    good = measure("--interval", "20k", "--out", tmp_path, "--exit-status", "3", traced / "two.c", "argument")
    assert good.exit_code == 0, good.output
    assert "ended badly" not in good.output


def test_a_program_that_misses_its_file_is_told_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "reads.c"
    source.write_text(
        "#include <stdio.h>\nint main(int n, char **names) {\n"
        "    for (volatile int k = 0; k < 100000; k++) {}\n"
        '    FILE *file = fopen(names[1], "r");\n    if (!file) perror(names[1]);\n    return file ? 0 : 2;\n}\n'
    )
    (tmp_path / "in.txt").write_text("1")
    out = ("--interval", "20k", "--out", tmp_path / "out")
    monkeypatch.chdir(tmp_path)
    missing = measure(*out, source, "in.txt")
    assert missing.exit_code == 1
    assert (
        "reads.c: exit status 2: in.txt: No such file or directory; the program did not find in.txt: it sees no file "
        "of this machine without `--map in.txt`, before PROGRAM"
    ) in " ".join(missing.output.split())
    assert measure(*out, "--map", "in.txt", source, "in.txt").exit_code == 0
    source.write_text("int main(void) { return 0; }\n")  # it ends well without its file, and early
    too_short = " ".join(measure(*out, source, "in.txt").output.split())
    assert "more work for the program; the program did not find in.txt: it sees no file of this machine" in too_short
    assert "did not find" not in measure(*out, "--map", "in.txt", source, "in.txt").output


def vectors_file(folder: Path, n: int = 120) -> Path:
    rng = np.random.default_rng(5)
    mixes = rng.dirichlet(np.full(30, 0.2), 4)
    counts = [rng.multinomial(10_000 * (1 + i % 2), mixes[i // 10 % 4]) for i in range(n)]
    write_bb(folder / "made.bb", from_dense(np.array(counts)))
    return folder / "made.bb"


@pytest.mark.parametrize("options", [
    ["--search", "bisect"], ["--search", "all"], ["--k", "4"], ["--start-method", "sample"],
    ["--start-method", "furthest"], ["--fixed-length"], ["--variable"], ["--seed", "7", "--dimensions", "20"],
    ["--compat", "simpoint-3.2", "--search", "all"], ["--compat", "simpoint-3.2", "--start-method", "furthest"],
    ["--compat", "simpoint-3.2", "--k", "4", "--variable", "--seed", "5"],
])  # fmt: skip
def test_every_way_finds_the_four_phases(options: list[str], tmp_path: Path) -> None:
    result = measure("--out", tmp_path / "out", *options, vectors_file(tmp_path))
    assert result.exit_code == 0, result.output
    labels = np.loadtxt(tmp_path / "out" / "made.labels")[:, 0].astype(np.int64)
    about = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert about["rules"] == ("simpoint-3.2" if "--compat" in options else "own")
    truth = np.arange(120) // 10 % 4
    # SimPoint's starts may put two into one group, so that it may find more phases than there are, or merge some
    if "--compat" not in options and "sample" not in options:
        assert about["k"] == 4
        assert len(set(zip(labels.tolist(), truth.tolist(), strict=True))) == 4
    points = read_points(tmp_path / "out" / "made.simpoints", tmp_path / "out" / "made.weights")
    assert points.weights.sum() == pytest.approx(1)
    assert labels[points.intervals].tolist() == points.phases.tolist()


def test_coverage_keeps_the_largest_phases(tmp_path: Path) -> None:
    path = vectors_file(tmp_path, n=90)  # of 3, 2, 2 and 2 stretches
    assert measure("--out", tmp_path / "out", "--coverage", "50", path).exit_code == 0
    points = read_points(tmp_path / "out" / "made.simpoints", tmp_path / "out" / "made.weights")
    assert len(points.phases) == 2
    np.testing.assert_allclose(points.weights, [3 / 5, 2 / 5], atol=0.01)


def test_bad_input_is_refused_with_status_2(tmp_path: Path) -> None:
    damaged = tmp_path / "x.bb"
    damaged.write_text("T:1:5\nT:1:x\n")
    for arguments, message in (
        ([damaged], "x.bb:2: got ':1:x' at column 2"),
        ([tmp_path / "none.bb"], "none.bb: cannot be read: No such file"),
        ([tmp_path / "none.c"], "no such file"),
        (
            ["--compat", "simpoint-3.2", "--start-method", "kmeans++", vectors_file(tmp_path)],
            "has no kmeans++",
        ),
        (["--compat", "simpoint-3.2", "--seed", "1", vectors_file(tmp_path)], "got the seed 1"),
        (["--interval", "10", tmp_path / "none.c"], "expected at least 1000"),
    ):
        result = measure("--out", tmp_path / "out", *arguments)
        assert result.exit_code == 2, result.output
        assert message in " ".join(result.output.split())


def test_the_interval_of_vectors_is_their_own(tmp_path: Path) -> None:
    path = tmp_path / "made.bb"
    path.write_text("T:1:4000 :2:1010 \n" * 30 + "T:1:7 \n")
    assert measure("--out", tmp_path / "out", path).exit_code == 0
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["interval_instructions"] == 5010
    assert not (tmp_path / "out" / "phases.png").exists()
    assert measure("--out", tmp_path / "out", "--picture", path).exit_code == 0
    assert (tmp_path / "out" / "phases.png").stat().st_size > 10_000


def test_an_interval_longer_than_the_program_is_refused(traced: Path, tmp_path: Path) -> None:
    for options in ([], ["--machine", MACHINE]):
        result = measure("--interval", "50M", "--out", tmp_path / "out", *options, traced / "two.c")
        assert result.exit_code == 2
        assert re.search(
            r"--interval: got intervals of 50,000,000 instructions, but .*two\.c executes [\d,]+ in all: expected a "
            r"shorter interval, [\d,]+ for about 10\d of them, or more work",
            " ".join(result.output.split()),
        )
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["phases", "cycleclose"])
def test_a_program_shorter_than_any_interval_is_told_to_do_more(kind: str, tmp_path: Path) -> None:
    program = tmp_path / "tiny.c"
    program.write_text("int main(void) { return 0; }")
    result = CliRunner().invoke(main, [kind, "--interval", "1000", "--out", str(tmp_path / "out"), str(program)])
    assert result.exit_code == 2
    assert re.search(
        r"executes \d+ in all: an interval has 1,000 at least, so expected more work for the program by its arguments",
        " ".join(result.output.split()),
    )
    result = CliRunner().invoke(main, [kind, "--interval", "1M", "--out", str(tmp_path / "out"), str(program)])
    assert "an interval has 1,000 at least" in " ".join(result.output.split())


def test_fewer_phases_than_asked_for_are_told(traced: Path, tmp_path: Path) -> None:
    vectors = traced / "out" / "two.bb"
    many = CliRunner().invoke(main, ["phases", "--out", str(tmp_path), "--k", "5000", str(vectors)])
    assert many.exit_code == 0, many.output
    assert "not the 5000 of --k: the program's" in " ".join(many.output.split())
    few = CliRunner().invoke(main, ["phases", "--out", str(tmp_path), "--k", "2", str(vectors)])
    assert "of --k" not in few.output


def test_points_without_an_access_to_the_l2_cache_have_no_rate_of_it(tmp_path: Path) -> None:
    source = tmp_path / "small.c"
    source.write_text("int main(void) { for (volatile int i = 0; i < 50000; i++); return 0; }")
    machine = Path(MACHINE).with_name("desktop.yaml")
    options = ("--interval", "20k", "--k", "1", "--machine", machine)
    result = measure(*options, "--out", tmp_path / "out", source)
    assert result.exit_code == 0, result.output
    page = (tmp_path / "out" / "phases.html").read_text()
    row = re.search(r"<td[^>]*>L2 hits</td>(.*?)</tr>", page) or re.search(r"L2 hit.*?</t[hd]>(.*?)</tr>", page)
    assert row is not None
    assert ">-</td>" in row[1]


def test_exactly_so_many_phases_are_cut_only_on_request(tmp_path: Path) -> None:
    source = tmp_path / "walk.c"  # the same code, in and out of the caches
    source.write_text("""
static volatile int data[1 << 22];
int main(void) {
  for (int k = 0; k < 8; k++)
    for (long i = 0, mask = k & 1 ? 0x3fffff : 0xff; i < 20000; i++) data[(i * 4099) & mask]++;
  return 0;
}
""")

    def found(*options: object) -> int:
        out = ("--interval", "20k", "--machine", MACHINE, "--no-picture", "--out", tmp_path / "out")
        result = measure(*out, *options, source)
        assert result.exit_code == 0, result.output
        return int(json.loads((tmp_path / "out" / "summary.json").read_text())["k"])

    assert found("--k", 2) == 2
    assert found("--k", 2, "--wait-step", 20) > 2


@pytest.mark.parametrize("command", ["phases", "cycleclose"])
def test_options_after_the_program_are_its_own_which_is_told(command: str, tmp_path: Path) -> None:
    source = tmp_path / "arguments.c"
    source.write_text("#include <stdio.h>\nint main(int n, char **a) { puts(a[n - 1]); return 0; }")
    words = [source, "--interval", "10k", "--mine", "--k=3", "-1"]
    result = CliRunner().invoke(main, [command, "--out", str(tmp_path / "out"), *map(str, words)])
    names = "--interval, --k go" if command == "phases" else "--interval goes"
    assert f"Note: {names} to the program; " in " ".join(result.stderr.split())
    assert f"{command}` must stand before {source}." in " ".join(result.stderr.split())
    plain = CliRunner().invoke(main, [command, "--out", str(tmp_path / "out"), str(source), "-1", "x"])
    assert "Note:" not in plain.stderr


def test_a_program_reads_what_is_mapped_for_it(tmp_path: Path) -> None:
    """The options of `emulate`; a device is an input, too."""
    (tmp_path / "reads.c").write_text(READS)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").write_text("7")
    guest = ["--map", f"/in={tmp_path / 'data'}", "--env", "WANTED=/in/file", "--stdin", "/dev/null"]
    common = ["--interval", "20k", "--out", tmp_path / "out", tmp_path / "reads.c"]
    assert measure(*guest, "--seed", "3", *common).exit_code == 0
    page = html.unescape((tmp_path / "out" / "phases.html").read_text())
    seen = shlex.join(["--seed", "3", *guest[4:], *guest[:4], str(tmp_path / "reads.c")])
    shipped = [f"configs/machines/{name}.yaml" for name in ("strongarm", "desktop")]  # of the checkout of these tests
    for command in (f"measure phases --interval 20000 --machine {shipped[0]}", f" --machine {shipped[1]}"):
        assert f"{command} {seen}<" in page
    assert measure(*guest[2:], *common).exit_code == 1
    missing = measure("--stdin", tmp_path / "none", *common)
    assert missing.exit_code == 2
    assert "none: No such file or directory; expected a file" in " ".join(missing.output.split())


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


@pytest.mark.parametrize("arguments", [["--help"], ["phases", "--help"], ["phases", "made.bb"]])
def test_vectors_need_little(arguments: list[str], tmp_path: Path) -> None:
    """Neither compilers of Python nor tables nor pictures nor the emulator are loaded, once kernels are kept."""
    vectors_file(tmp_path)
    assert measure("--out", tmp_path / "out", tmp_path / "made.bb").exit_code == 0  # now they are
    code = (
        "import sys; from measure.cli import main\n"
        f"try: main({arguments!r})\nexcept SystemExit as end: assert not end.code, end.code\n"
        "heavy = {'numba', 'llvmlite.binding', 'scipy', 'pandas', 'matplotlib', 'pyarrow', 'pydantic', 'clang', "
        "'emulator.machine'}\nprint('HEAVY', sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "HEAVY []"
