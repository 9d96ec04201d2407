"""Programs written by others, run to their end by the emulator and compared with QEMU or the host's own.

    python experiments/programs/run.py [NAME...]       run all, or these, and write results.csv and programs.md
    python experiments/programs/run.py --list

What is compared: everything on the standard output, the exit status, and (with QEMU) the contents of every file that
the program leaves in its folder. The packages are fetched and checked by `root.py`; the table is programs.yaml.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import yaml
from root import LOCK, TABLE, ensure_root

from common.atomic_files import filling, write_text
from measure.programs.source_archive import ProgramError

HERE = Path(__file__).parent
INPUTS, RESULTS, PAGE = HERE / "inputs", HERE / "results.csv", HERE / "programs.md"
LIMIT_SECONDS = 900
QEMU = "qemu-riscv64" if shutil.which("qemu-riscv64") else "qemu-riscv64-static"
GUEST_WORK = "/work"
SAME, DIFFERENT = "yes", "no"


@dataclass(frozen=True)
class Outcome:
    """How a run ended: exit status as a shell shows it, standard output, and the files left (path to digest)."""

    status: int
    output: bytes
    files: dict[str, str]
    instructions: int = 0
    unsupported: tuple[str, ...] = ()
    message: str = ""


@dataclass(frozen=True)
class Row:
    """A line of the results; ``same``: yes, no, or a dash when there was nothing to compare with."""

    program: str
    does: str
    package: str
    language: str
    libc: str
    instructions: int
    reference: str
    same: str
    why: str


def prepare(work: Path) -> None:
    """The folder that a program starts in, always the same."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    for path in sorted(INPUTS.iterdir()):
        shutil.copyfile(path, work / path.name.removesuffix(".in"))
    lines = [f"{number * 7919 % 10007} word{number % 17} {number * number}\n" for number in range(1, 2001)]
    (work / "words.txt").write_text("".join(lines))


def environment(work: str, path: str) -> dict[str, str]:
    return {
        "PATH": path, "HOME": work, "TMPDIR": work, "LC_ALL": "C.UTF-8", "TZ": "UTC",
        "XDG_CACHE_HOME": f"{work}/.cache", "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip


def left(work: Path) -> dict[str, str]:
    found = {}
    for path in sorted(work.rglob("*")):
        name = str(path.relative_to(work))
        if name.startswith(".cache"):
            continue  # what is kept there depends on the time
        if path.is_symlink():
            found[name] = f"link to {os.readlink(path)}"
        elif path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def input_of(program: dict[str, Any], work: Path) -> bytes:
    if "input_file" in program:
        return (work / program["input_file"]).read_bytes()
    return str(program.get("input", "")).encode()


def inside(name: str, root: Path, work: Path) -> None:
    """Run a program by the emulator in this process, and print its outcome as JSON."""
    from emulator.errors import EmulatorError
    from emulator.linux.vfs.files import VirtualFiles
    from emulator.machine import Machine

    program = table()[name]
    # The guest sees the folder at the same place on every host, so that its instructions repeat.
    files = VirtualFiles(root=root, mapped={GUEST_WORK: work}, writable=[GUEST_WORK], stdin=input_of(program, work))
    files.working_directory = GUEST_WORK
    first, *arguments = program["command"]
    with Machine(
        root / first.lstrip("/"), arguments, environment=environment(GUEST_WORK, "/usr/bin:/bin"), files=files,
        keep_translations=True,
    ) as machine:  # fmt: skip
        try:
            ending = machine.run()
            status, message = ending.status, ending.message or ""
        except EmulatorError as error:
            status, message = -1, str(error)
        machine.save_translations()
        said = {
            "status": status, "output": files.output(1).hex(), "instructions": machine.instructions,
            "unsupported": list(machine.kernel.unsupported), "message": message or files.output(2).decode()[-500:],
        }  # fmt: skip
    print(json.dumps(said), flush=True)
    os._exit(0)  # a translation that is still being compiled is of no use to anyone


def run_ours(name: str, root: Path, work: Path) -> Outcome:
    command = [sys.executable, __file__, "--inside", name, str(root), str(work)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=LIMIT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return Outcome(-1, b"", {}, message=f"not at its end after {LIMIT_SECONDS} s")
    if done.returncode or not done.stdout:
        return Outcome(-1, b"", {}, message=done.stderr.decode(errors="replace").strip()[-500:])
    said = json.loads(done.stdout)
    return Outcome(
        said["status"], bytes.fromhex(said["output"]), left(work), said["instructions"],
        tuple(said["unsupported"]), said["message"],
    )  # fmt: skip


def run_other(command: list[str], path: str, work: Path, given: bytes) -> Outcome:
    try:
        done = subprocess.run(
            command, cwd=work, env=environment(str(work), path), input=given, capture_output=True,
            timeout=LIMIT_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Outcome(-1, b"", {}, message=f"not at its end after {LIMIT_SECONDS} s")
    status = done.returncode if done.returncode >= 0 else 128 - done.returncode
    message = done.stderr.decode(errors="replace").strip()[-500:]
    return Outcome(status, done.stdout, left(work), message=message)


def run_reference(program: dict[str, Any], root: Path, work: Path) -> Outcome | None:
    """What the program should do; None when neither QEMU nor the host can tell."""
    first, *arguments = program["command"]
    given = input_of(program, work)
    if program["reference"] == "text":
        return Outcome(0, program["expected"].encode(), {})
    if program["reference"] == "qemu":
        if shutil.which(QEMU) is None:
            return None
        command = [QEMU, "-L", str(root), str(root / first.lstrip("/")), *arguments]
        return run_other(command, "/usr/bin:/bin", work, given)
    first, *arguments = program.get("host", program["command"])
    found = shutil.which(Path(first).name, path=os.defpath)
    return None if found is None else run_other([found, *arguments], os.defpath, work, given)


def differences(program: dict[str, Any], ours: Outcome, other: Outcome) -> list[str]:
    found = []
    if ours.status != other.status:
        found.append(f"status {ours.status} and not {other.status}: {ours.message.splitlines()[-1:]}")
    if ours.output != other.output:
        pairs = zip(ours.output.splitlines(), other.output.splitlines(), strict=False)
        first = next(((a, b) for a, b in pairs if a != b), (b"its end", b"its end"))
        found.append(f"output: {first[0][:60]!r} and not {first[1][:60]!r}")
    if program["reference"] == "qemu":
        names = {*ours.files, *other.files}
        changed = sorted(name for name in names if ours.files.get(name) != other.files.get(name))
        if changed:
            found.append(f"files: {', '.join(changed[:3])}")
    return found


def table() -> dict[str, dict[str, Any]]:
    return {program["name"]: program for program in yaml.safe_load(TABLE.read_text())["programs"]}


def version_of(package: str) -> str:
    packages = yaml.safe_load(TABLE.read_text())["packages"]
    if package in packages:
        registry = "npm" if "npm" in packages[package] else "PyPI"
        return f"{package} {packages[package]['version']} ({registry})"
    lines = (line.split() for line in LOCK.read_text().splitlines())
    return next(f"{name} {version}" for name, version, *_ in lines if name == package)


def measure(program: dict[str, Any], root: Path, work: Path) -> Row:
    prepare(work)
    ours = run_ours(program["name"], root, work)
    prepare(work)
    other = run_reference(program, root, work)
    why = [] if other is None else differences(program, ours, other)
    why += [f"asked for {what}, which is not supported" for what in ours.unsupported]
    same = "-" if other is None else DIFFERENT if differences(program, ours, other) else SAME
    if other is None:
        why.append(f"no {program['reference']} here; status {ours.status}")
    return Row(
        program["name"], program["does"], version_of(program["package"]), program["language"], program["libc"],
        ours.instructions, program["reference"], same, "; ".join(why) or str(program.get("note", "")),
    )  # fmt: skip


def read_results() -> dict[str, Row]:
    if not RESULTS.exists():
        return {}
    with open(RESULTS, newline="") as file:
        lines: list[dict[str, Any]] = [*csv.DictReader(file)]
    rows = [Row(**{**line, "instructions": int(line["instructions"])}) for line in lines]
    return {row.program: row for row in rows}


def write_results(rows: dict[str, Row]) -> None:
    ordered = [rows[name] for name in table() if name in rows]
    with filling(RESULTS) as part, part.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in ordered)
    write_text(PAGE, page(ordered))


def page(rows: list[Row]) -> str:
    n_same = sum(row.same == SAME for row in rows)
    compared = [row for row in rows if row.same != "-"]
    names = {"qemu": "QEMU", "host": "the host's", "text": "text"}
    lines = [
        "# Programs written by others", "",
        f"{n_same} of {len(compared)} end as their reference does. Each runs from its package's own binary, in a root "
        "of Debian packages, wheels and npm packages for riscv64 (`debian.txt` and `programs.yaml` have versions and "
        "SHA-256). Compared are the output, the exit status, and with QEMU every file left behind. QEMU's user mode "
        "starts the host's programs where a guest starts others; for these the reference is the same command with the "
        "host's own programs. *Instructions* are of all processes and threads together.", "",
        "    python experiments/programs/run.py", "",
        "| program | what it does | package | language | libc | instructions | compared with | same | remarks |",
        "|---|---|---|---|---|---:|---|---|---|",
    ]  # fmt: skip
    for row in rows:
        cells = [row.program, row.does, row.package, row.language, row.libc, f"{row.instructions / 1e6:,.1f} M",
                 names[row.reference], row.same, row.why]  # fmt: skip
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    if sys.argv[1:2] == ["--inside"]:
        inside(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs of the table; default: all")
    parser.add_argument("--list", action="store_true", help="say what there is")
    parser.add_argument("--mirror", help="of Debian; default: the host's own")
    arguments = parser.parse_args()
    programs = table()
    if arguments.list:
        print("\n".join(f"{name:<18} {program['does']}" for name, program in programs.items()))
        return
    unknown = [name for name in arguments.names if name not in programs]
    if unknown:
        raise SystemExit(f"run.py: got {', '.join(unknown)}, expected names that --list tells")
    try:
        root = ensure_root(arguments.mirror)
    except ProgramError as error:
        raise SystemExit(f"run.py: {error}") from None
    rows = read_results()
    with tempfile.TemporaryDirectory(prefix="programs-") as folder:
        for name in arguments.names or programs:
            rows[name] = row = measure(programs[name], root, Path(folder, "work"))
            print(f"{name:<18} {row.same:<4} {row.instructions:>14,}  {row.why}", flush=True)
            write_results(rows)


if __name__ == "__main__":
    main()
