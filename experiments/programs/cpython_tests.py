"""A slice of CPython's own test suite, run in the guest and under QEMU's user mode, test by test.

    python experiments/programs/cpython_tests.py [MODULE...]     run what has no result yet; named modules are run anew
    python experiments/programs/cpython_tests.py --seconds 600   the time limit of a module, for each of the two
    python experiments/programs/cpython_tests.py --page          write cpython_tests.md from cpython_tests.csv

The interpreter and its test suite are Debian's packages for riscv64, fetched and checked by `root.py`. The results of a
module are written to cpython_tests.csv as soon as the module has ended, so an interrupted run goes on with the next
module. A test that does not end within the time limit counts as *no end*; the tests after it are run without it.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import yaml
from root import ensure_root

from common.atomic_files import filling, move_directory, write_text
from measure.programs.source_archive import ProgramError

HERE = Path(__file__).parent
RESULTS, PAGE, REASONS = HERE / "cpython_tests.csv", HERE / "cpython_tests.md", HERE / "cpython_tests.yaml"
MODULES = (
    "test_struct", "test_math", "test_json", "test_float", "test_os", "test_posix", "test_subprocess", "test_mmap",
    "test_select", "test_epoll", "test_fcntl", "test_socket", "test_signal", "test_threading", "test_eintr",
)  # fmt: skip
LIMIT_SECONDS = 1200
MOST_RUNS = 4  # of one module: each but the last one ended with a test that did not end
QEMU = "qemu-riscv64"
LIBRARY, GUEST_WORK = "usr/lib/python3.13", "/work"
PASSED, FAILED, SKIPPED, NO_END, NOT_RUN = "passed", "failed", "skipped", "no end", "not run"

_START = re.compile(r"^(?P<name>\w+) \((?P<place>test\.[\w.<>]+)\)(?P<sub> [\[(].*)? \.\.\. ?(?P<rest>.*)$")
_PLACE = re.compile(r"^\w+ \((?P<place>test\.[\w.<>]+)\)(?: [\[(].*)?$")
_ENDS = {
    "ok": PASSED, "FAIL": FAILED, "ERROR": FAILED, "expected failure": PASSED, "unexpected success": FAILED,
}  # fmt: skip
_END = re.compile(r"(?:^|\s)(?P<end>ok|FAIL|ERROR|expected failure|unexpected success|skipped (?P<why>['\"].*['\"]))$")
_REPORT = re.compile(r"^(?:FAIL|ERROR): \w+ \((?P<place>test\.[\w.<>]+)\)")
_EXCEPTION = re.compile(r"[\w.]+: |\w+(Error|Exception|Expired)$")
_DONE = re.compile(r"^Ran \d+ tests? in ", re.MULTILINE)
_RULE = re.compile(r"^(?:={60,}|-{60,})$")


Start = Callable[[list[str], Path], "subprocess.Popen[bytes]"]


@dataclass(frozen=True)
class Row:
    """The results of one test; ``why``: the message with which ours failed, or the reason that is known."""

    module: str
    test: str
    ours: str
    qemu: str
    why: str = ""
    why_qemu: str = ""


@dataclass(frozen=True)
class Result:
    end: str
    why: str = ""


def parse(text: str) -> tuple[dict[str, Result], str | None]:
    """The result of each test in what ``python -m test -v`` said, and the test that had begun and not ended.

    A test with failed subtests has failed. Other output may come between a test's name and its result.
    """
    results: dict[str, Result] = {}
    running: str | None = None
    for line in text.splitlines():
        if _RULE.match(line) and running is None:
            continue
        started = _START.match(line.lstrip())
        rest = line
        if started:
            place = started["place"]
            if started["sub"]:  # of a subtest only what did not pass is told
                ended = _END.search(started["rest"])
                if ended and _ENDS.get(ended["end"]) == FAILED:
                    results[place] = Result(FAILED)
                continue
            running, rest = place, started["rest"]
        else:
            alone = _PLACE.match(line)
            if alone:  # the first line of its docstring follows
                running = alone["place"]
                continue
        ended = _END.search(rest)
        if running is None or not ended:
            continue
        found = Result(SKIPPED, ended["why"].strip("'\"")) if ended["why"] else Result(_ENDS[ended["end"]])
        if running not in results or results[running].end != FAILED:
            results[running] = found
        running = None
    for place, why in _reports(text):
        results[place] = Result(FAILED, why)
    return results, None if _DONE.search(text) else running


def _reports(text: str) -> Iterable[tuple[str, str]]:
    """Test and last line of each traceback at the end."""
    body: list[str] = []
    place, rules = "", 0
    for line in [*text.splitlines(), "=" * 70]:
        found = _REPORT.match(line)
        if _RULE.match(line):
            rules += 1
            if place and rules > 1:
                yield place, _message(body)
                place = ""
        elif found and not place:
            place, body, rules = found["place"], [], 0
        elif place:
            body.append(line)


def _message(traceback: list[str]) -> str:
    """The line that names the exception, or the last one that is not indented."""
    told = [line for line in traceback if line and not line[0].isspace() and not line.startswith("Traceback")]
    return next((line for line in told if _EXCEPTION.match(line)), told[-1] if told else "")


def run_module(start: Start, module: str, seconds: float) -> dict[str, Result]:
    """The results of all tests of a module. ``start`` begins regrtest with more arguments and its output to a file."""
    results: dict[str, Result] = {}
    with tempfile.TemporaryDirectory(prefix="cpython-") as folder:
        output = Path(folder, "output")
        for _ in range(MOST_RUNS):
            ignored = [argument for place in results for argument in ("--ignore", place)]
            process = start([*ignored, module], output)
            ended = True
            try:
                process.wait(timeout=seconds)
            except subprocess.TimeoutExpired:
                ended = False
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            text = output.read_text(errors="replace")
            found, running = parse(text)
            results.update(found)
            if running is None:
                break
            last = text.strip().splitlines()[-1][:200]
            results[running] = Result(NO_END, "" if ended is False else f"the interpreter ended: {last}")
    if not results:
        results[f"test.{module}"] = Result(FAILED, text.strip()[-300:].replace("\n", " "))
    return results


# --- the two that run it


def environment(work: str) -> dict[str, str]:
    return {
        "PATH": "/usr/bin:/bin", "HOME": work, "TMPDIR": work, "LC_ALL": "C.UTF-8", "TZ": "UTC",
        "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip


REGRTEST = ["-m", "test", "-v", "-u", "walltime", "--randseed", "1"]


def inside(arguments: list[str], root: Path, work: Path, writable: list[str], output: int) -> int:
    """Run the interpreter in a guest, in this process."""
    from emulator.errors import EmulatorError
    from emulator.linux.vfs.files import VirtualFiles
    from emulator.machine import Machine

    files = VirtualFiles(
        root=root, mapped={GUEST_WORK: work}, writable=[GUEST_WORK, *writable], stdout=output, stderr=output
    )
    files.working_directory = GUEST_WORK
    with Machine(
        root / "usr/bin/python3.13", arguments, environment=environment(GUEST_WORK), files=files,
        keep_translations=True,
    ) as machine:  # fmt: skip
        try:
            ending = machine.run()
            status, message = ending.status, ending.message or ""
        except EmulatorError as error:
            status, message = -1, str(error)
        machine.save_translations()
    asked = ", ".join(machine.kernel.unsupported)
    os.write(output, f"\nended with status {status}. {message}\nnot supported: {asked}\n".encode())
    return status


def _spawn(command: list[str], output: Path, **options: Any) -> subprocess.Popen[bytes]:
    with open(output, "wb") as file:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True, **options
        )  # fmt: skip


def in_guest(root: Path, work: Path) -> Start:
    def start(arguments: list[str], output: Path) -> subprocess.Popen[bytes]:
        return _spawn([sys.executable, __file__, "--inside", str(root), str(work), *REGRTEST, *arguments], output)

    return start


def in_qemu(root: Path, work: Path) -> Start:
    """A script of the host stands for the interpreter, so that tests can start it again."""
    script = work.parent / "python3"
    script.write_text(f'#!/bin/sh\nexec {QEMU} -L {root} -0 {script} {root}/usr/bin/python3.13 "$@"\n')
    script.chmod(0o755)

    def start(arguments: list[str], output: Path) -> subprocess.Popen[bytes]:
        return _spawn([str(script), *REGRTEST, *arguments], output, env=environment(str(work)), cwd=work)

    return start


def compiled_root(mirror: str | None = None) -> Path:
    """The root with the library compiled, as the package's script would have done. Raises `ProgramError`."""
    root = ensure_root(mirror)
    target = root.with_name(f"{root.name}-cpython")
    if target.is_dir():
        return target
    making = target.with_name(f"{target.name}.making")
    shutil.rmtree(making, ignore_errors=True)
    shutil.copytree(root, making, symlinks=True, copy_function=os.link)
    # Whatever the time that a file shows on the host and in the guest, what was compiled is good.
    command = ["-m", "compileall", "-q", "-x", "/(idlelib|lib2to3|tkinter|test/[^/]*data|crashers)/",
               "--invalidation-mode", "unchecked-hash", f"/{LIBRARY}"]  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="cpython-") as work:
        inside(command, making, Path(work), [f"/{LIBRARY}"], 2)
    move_directory(making, target)
    return target


# --- results


def read_results() -> dict[str, list[Row]]:
    """Rows by module; those of a module are complete."""
    found: dict[str, list[Row]] = {}
    if RESULTS.exists():
        with open(RESULTS, newline="") as file:
            for line in csv.DictReader(file):
                row = Row(**line)
                found.setdefault(row.module, []).append(row)
    return found


def write_results(results: dict[str, list[Row]]) -> None:
    with filling(RESULTS) as part, part.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)], lineterminator="\n")
        writer.writeheader()
        for module in MODULES:
            writer.writerows(asdict(row) for row in results.get(module, ()))


def measured(
    where: str, begin: Callable[[Path, Path], Start], root: Path, work: Path, module: str, seconds: float
) -> dict[str, Result]:
    """The results of a module, run in an empty folder."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    found = run_module(begin(root, work), module, seconds)
    print(f"{module} {where}:", dict(Counter(result.end for result in found.values())), flush=True)
    return found


def rows_of(module: str, ours: dict[str, Result], qemu: dict[str, Result]) -> list[Row]:
    nothing = Result(NOT_RUN)
    return [
        Row(module, test, (a := ours.get(test, nothing)).end, (b := qemu.get(test, nothing)).end, a.why, b.why)
        for test in sorted({*ours, *qemu})
    ]


def to_do(names: list[str], results: dict[str, list[Row]]) -> list[str]:
    """Modules to be run: those named, or those without results. Raises ValueError for a name that is none."""
    unknown = [name for name in names if name not in MODULES]
    if unknown:
        raise ValueError(f"got {', '.join(unknown)}, expected some of: {', '.join(MODULES)}")
    return names or [module for module in MODULES if module not in results]


def page(results: dict[str, list[Row]], reasons: dict[str, str]) -> str:
    lines = [
        "# A slice of CPython's own test suite", "",
        "CPython 3.13 of Debian for riscv64, in the guest and under QEMU's user mode (7.2), with `-u walltime`. QEMU's "
        "user mode hands system calls to the host's kernel: what the tests ask for and the host refuses fails there, "
        "too. Each line of `cpython_tests.csv` is a test.", "",
        "    python experiments/programs/cpython_tests.py", "",
        "| | | in the guest | | | | by QEMU | | | |", "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
        "| module | tests | passed | failed | skipped | no end | passed | failed | skipped | no end |",
    ]  # fmt: skip
    total: list[int] = [0] * 9
    for module in MODULES:
        if module not in results:
            continue
        rows = results[module]
        ours, qemu = Counter(row.ours for row in rows), Counter(row.qemu for row in rows)
        counts = [
            len(rows),
            *(side[end] for side in (ours, qemu) for end in (PASSED, FAILED, SKIPPED, NO_END)),
        ]
        total = [a + b for a, b in zip(total, counts, strict=True)]
        lines.append("| " + " | ".join([module, *map(str, counts)]) + " |")
    lines.append("| " + " | ".join(["**all**", *map(str, total)]) + " |")
    every = [row for module in MODULES for row in results.get(module, ())]
    only_ours = [row for row in every if row.ours in (FAILED, NO_END)]
    lines += ["", "## What fails in the guest", "", "| test | by QEMU | why |", "|---|---|---|"]
    lines += [f"| {_short(row)} | {row.qemu} | {_cell(reasons.get(row.test) or row.why)} |" for row in only_ours]
    skipped = [row for row in every if row.ours == SKIPPED and row.qemu == PASSED]
    lines += ["", "## Skipped in the guest, passed by QEMU", "", "| test | why |", "|---|---|"]
    lines += [f"| {_short(row)} | {_cell(reasons.get(row.test) or row.why)} |" for row in skipped]
    only_qemu = [row for row in every if row.qemu in (FAILED, NO_END) and row.ours == PASSED]
    lines += ["", "## Passed in the guest, not by QEMU", "", "| test | by QEMU | why |", "|---|---|---|"]
    lines += [f"| {_short(row)} | {row.qemu} | {_cell(row.why_qemu)} |" for row in only_qemu]
    return "\n".join(lines) + "\n"


def _short(row: Row) -> str:
    return row.test.removeprefix("test.")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")[:200]


def main() -> None:
    if sys.argv[1:2] == ["--inside"]:
        status = inside(sys.argv[4:], Path(sys.argv[2]), Path(sys.argv[3]), [], 1)
        os._exit(max(0, status))  # a translation that is still being compiled is of no use to anyone
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="MODULE", help="such as test_os; default: all without results")
    parser.add_argument("--seconds", type=float, default=LIMIT_SECONDS, help="time limit of each module")
    parser.add_argument("--guest-only", action="store_true", help="keep the results of QEMU that are there")
    parser.add_argument("--page", action="store_true", help="only write the page from the results")
    parser.add_argument("--mirror", help="of Debian; default: the host's own")
    arguments = parser.parse_args()
    results = read_results()
    reasons = yaml.safe_load(REASONS.read_text()) if REASONS.exists() else {}
    try:
        wanted = [] if arguments.page else to_do(arguments.names, results)
        root = compiled_root(arguments.mirror) if wanted else None
    except (ProgramError, ValueError) as error:
        raise SystemExit(f"cpython_tests.py: {error}") from None
    for module in wanted:
        assert root is not None
        with tempfile.TemporaryDirectory(prefix="cpython-", ignore_cleanup_errors=True) as folder:
            work = Path(folder, "work")
            ours = measured("in the guest", in_guest, root, work, module, arguments.seconds)
            if arguments.guest_only and module in results:
                qemu = {row.test: Result(row.qemu, row.why_qemu) for row in results[module]}
            elif shutil.which(QEMU) is None:
                qemu = {}
            else:
                qemu = measured("under QEMU", in_qemu, root, work, module, arguments.seconds)
        results[module] = rows_of(module, ours, qemu)
        write_results(results)
    write_text(PAGE, page(results, reasons))


if __name__ == "__main__":
    main()
