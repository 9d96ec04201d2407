"""The compiler wrapper by single commands: it compiles as the compiler does, and counts what the spec says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from emulator.linux.vfs.files import VirtualFiles
from emulator.machine import Machine
from instrumenter.compiler.openmp import NOTICE
from instrumenter.compiler.toolchain import HOST_TARGET, Toolchain
from instrumenter.projects.project_tree import build_environment, write_compilers
from instrumenter.spec.counter_layout import SYMBOL
from instrumenter.wrapper.environment_spec import read_sites
from instrumenter.wrapper.help_text import help_text
from instrumenter.wrapper.listing import LOG_VARIABLE, read_listing

MAIN = """\
#include <stdio.h>
#include "f.h"
int main(void) { int n = 0; for (int i = 0; i < 9; i++) n += f(i); printf("%d\\n", n); return 0; }
"""
SPEC = """\
metrics:
  calls: {event: call, callee: f}
  entries: {event: entry, function: f}
  loops: {event: loop, function: main}
"""


class Compilers:
    """The commands, in an environment with or without a spec."""

    def __init__(self, folder: Path, commands: Path) -> None:
        self.folder, self.commands = folder, commands
        self.own: dict[str, str] = {}

    def __call__(self, *words: str, command: str = "instrument-cc", **options: Any) -> Any:
        environment = build_environment(self.commands, self.own)
        return subprocess.run(
            [self.commands / command, *words], cwd=self.folder, env=environment, capture_output=True, text=True,
            timeout=120, check=False, **options,
        )  # fmt: skip

    def count(self, spec: str = SPEC) -> None:
        (self.folder / "spec.yaml").write_text(spec)
        self.own = {"INSTRUMENT_SPEC": str(self.folder / "spec.yaml")}

    def listing(self) -> list[dict[str, Any]]:
        return read_listing(self.folder / "instrument-cc.jsonl")


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("commands") / "bin"
    write_compilers(folder)
    return folder


@pytest.fixture
def cc(tmp_path: Path, commands: Path) -> Compilers:
    """The commands in a folder with a small program."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "main.c").write_text(MAIN)
    (folder / "f.c").write_text('#include "f.h"\nint f(int x) { int unused; return x * OFFSET; }\n')
    (folder / "f.h").write_text("int f(int x);\n#ifndef OFFSET\n#define OFFSET 2\n#endif\n")
    return Compilers(folder, commands)


def execute(program: Path, metrics: Sequence[str] = ()) -> tuple[int, str, dict[str, int]]:
    """Status, output and counters of a run."""
    files = VirtualFiles()
    with Machine(program, files=files, limit_instructions=10_000_000, background=False) as machine:
        status = machine.run().status
        symbol = machine.image.find_symbol(SYMBOL)
        counters = {}
        if symbol is not None:
            counters = {m: machine.memory.read_int(symbol.address + 8 * n, 8) for n, m in enumerate(metrics)}
        assert status is not None
        return status, files.output(1).decode(), counters


def left_over(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.startswith(".instrument")]


def test_without_a_spec_it_only_compiles(cc: Compilers) -> None:
    done = cc("-O1", "-MMD", "-o", "program", "main.c", "f.c")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert execute(cc.folder / "program") == (0, "72\n", {})
    assert read_sites(cc.folder / "program") == []


@pytest.mark.parametrize("optimisation", ["-Os", "-Oz"])
def test_programs_made_for_size_keep_their_symbols_and_lines(cc: Compilers, optimisation: str) -> None:
    cc.count()
    for command in (["-c", "main.c"], ["-c", "f.c"], ["-o", "program", "main.o", "f.o"]):
        assert cc(*command, optimisation).returncode == 0
    assert execute(cc.folder / "program", ["calls", "entries", "loops"])[2] == {"calls": 9, "entries": 9, "loops": 9}
    with Machine(cc.folder / "program") as machine:
        assert {Path(row.file).name for row in machine.image.line_rows()} >= {"main.c", "f.c"}


@pytest.mark.parametrize("separately", [True, False])
def test_counts_over_several_units(cc: Compilers, separately: bool) -> None:
    cc.count()
    if separately:
        for command in (["-c", "main.c"], ["-c", "f.c", "-o", "f.o"], ["-o", "program", "main.o", "f.o"]):
            assert cc(*command, "-O2").returncode == 0
    else:
        assert cc("-O2", "f.c", "main.c", "-o", "program").returncode == 0
    found = execute(cc.folder / "program", ["calls", "entries", "loops"])
    assert found == (0, "72\n", {"calls": 9, "entries": 9, "loops": 9})
    sites = sorted((note["source"], note["sites"]) for note in read_sites(cc.folder / "program"))
    assert sites == [("f.c", {"entries": 1}), ("main.c", {"calls": 1, "loops": 1})]
    assert left_over(cc.folder) == []


def test_what_is_counted_in_a_program_can_be_asked(cc: Compilers) -> None:
    cc.count()
    assert cc("-O1", "main.c", "f.c", "-o", "program").returncode == 0
    done = cc("--instrumented", "program")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "program: f.c: entries at 1\nprogram: main.c: calls at 1, loops at 1\n"
    cc.count(SPEC + "  more: {event: entry, function: g}\n")
    done = cc("--instrumented", "program")
    assert (done.returncode, done.stderr) == (
        1, "instrument-cc: error: metric 'more' has no site in the program\n",
    )  # fmt: skip
    assert cc("--instrumented", "f.c").returncode == 2
    assert "none: cannot be read: No such file" in cc("--instrumented", "none").stderr
    assert cc("--instrumented").returncode == 2


def test_a_program_of_another_compiler_is_told_as_such(cc: Compilers) -> None:
    """It was "metric 'calls' has no site in the program", once for each metric."""
    cc.count()
    assert Toolchain(HOST_TARGET).run(["-shared", "-nostdlib", "f.c", "-o", "native"], cc.folder)[0] == 0
    done = cc("--instrumented", "native")
    machine = HOST_TARGET.partition("-")[0].replace("_", "-").replace("aarch64", "AArch64")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"instrument-cc: error: native was not linked by instrument-cc: it is for {machine}, expected RISC-V. If the "
        "makefile names its own compiler: `instrument-build 'PATH=$COMPILERS:$PATH make'`, after `make clean`, as make "
        "takes what is there\n"
    )
    spec = cc.own.pop("INSTRUMENT_SPEC")
    assert cc("main.c", "f.c", "-o", "plain").returncode == 0
    cc.own["INSTRUMENT_SPEC"] = spec
    done = cc("--instrumented", "plain")
    assert done.returncode == 1
    assert (
        "plain has no counters (no symbol __measure_counters): it was linked by another compiler, without"
        in done.stderr
    )


def test_help_says_what_the_command_is_before_the_compilers_own(cc: Compilers) -> None:
    done = cc("--help")
    first, _, compilers = done.stdout.partition("OVERVIEW: clang")
    assert (done.returncode, done.stderr) == (0, "")
    assert first.startswith("instrument-cc compiles and links C programs")
    assert all(word in first for word in ("make CC=instrument-cc", "INSTRUMENT_SPEC", "INSTRUMENT_LOG"))
    assert max(map(len, first.splitlines())) <= 80
    assert "-fsyntax-only" in compilers
    assert "instrument-c++ -O2 program.cpp" in cc("--help", command="instrument-c++").stdout
    assert cc("--help", "-c", "f.c").stdout.startswith("OVERVIEW")  # a compiler's command line
    assert help_text("cc", terminal=True).endswith("options: instrument-cc --help | less\n")


def test_static_libraries_and_partial_links(cc: Compilers) -> None:
    cc.count()
    (cc.folder / "g.c").write_text("int g(void) { return 1; }\n")
    assert cc("-c", "main.c", "f.c", "g.c", "-O1").returncode == 0
    assert cc("rc", "libf.a", "f.o", "g.o", command="instrument-ar").returncode == 0
    assert cc("libf.a", command="instrument-ranlib").returncode == 0
    assert cc("-r", "main.o", "-o", "part.o").returncode == 0
    assert cc("part.o", "-L.", "-lf", "-lm", "-s", "-Wl,-Map=x.map", "-march=native").returncode == 0
    assert execute(cc.folder / "a.out", ["calls", "entries", "loops"])[2] == {
        "calls": 9, "entries": 9, "loops": 9,
    }  # fmt: skip
    for words in (("-L", "none", "-L.", "-l:libf.a"), ("-L.", "-l", ":libf.a")):  # a library by the name of its file
        linked = cc("part.o", *words, "-o", "named")
        assert linked.returncode == 0, linked.stderr
        assert (cc.folder / "named").read_bytes() == (cc.folder / "a.out").read_bytes()
    # What the linker did not take from the library is not in the program.
    assert {note["source"] for note in read_sites(cc.folder / "a.out")} == {"main.c", "f.c"}


@pytest.mark.parametrize("counted", [False, True])
def test_diagnostics_and_status_are_the_compilers(cc: Compilers, counted: bool) -> None:
    if counted:
        cc.count()
    warned = cc("-Wall", "-c", "f.c")
    assert warned.returncode == 0
    # The text with counters has no warnings; those of the plain program are its own build's.
    assert ("f.c:2:20: warning: unused variable 'unused'" in warned.stderr) is not counted
    assert cc("-Wall", "-Werror", "-c", "f.c", "-o", "maybe.o").returncode == int(not counted)
    (cc.folder / "bad.c").write_text("int main(void) { return x; }\n")
    for words in (["-c", "bad.c"], ["bad.c", "-o", "never.o"]):
        failed = cc(*words)
        assert failed.returncode == 1
        assert "bad.c:1:25: error: use of undeclared identifier 'x'" in failed.stderr
    unlinked = cc("-o", "never.o", "main.c")
    assert unlinked.returncode == 1
    assert "undefined symbol: f" in unlinked.stderr
    assert ".instrument-" not in unlinked.stderr
    assert not (cc.folder / "bad.o").exists()
    assert not (cc.folder / "never.o").exists()
    assert left_over(cc.folder) == []


def test_dependency_files_are_those_of_the_plain_compiler(cc: Compilers) -> None:
    (cc.folder / "o").mkdir()
    commands = [
        ["-MD", "-c", "f.c", "-o", "o/f.o"], ["-MMD", "-MP", "-c", "f.c"], ["-MMD", "-MF", "x.dep", "-c", "f.c"],
        ["-MMD", "-MT", "a b", "-MF", "y.d", "-c", "f.c"], ["-Wp,-MMD,z.d", "-c", "f.c", "-o", "o/g.o"],
    ]  # fmt: skip
    files = ["o/f.d", "f.d", "x.dep", "y.d", "z.d"]

    def all_of_them() -> list[str]:
        assert [cc(*words).returncode for words in commands] == [0] * len(commands)
        texts = [(cc.folder / file).read_text() for file in files]
        for file in files:
            (cc.folder / file).unlink()
        return texts

    plain = all_of_them()
    assert plain[1].startswith("f.o: f.c f.h")
    cc.count()
    assert all_of_them() == plain


def test_what_else_compilers_are_asked(cc: Compilers) -> None:
    cc.count()
    assert "clang version" in cc("--version").stdout
    assert cc("-dumpmachine").stdout.startswith("riscv64-")
    assert "int main" in cc("-E", "main.c").stdout
    assert cc("-MM", "f.c").stdout == "f.o: f.c f.h\n"
    assert cc("-fsyntax-only", "main.c").returncode == 0
    assert cc("-c", "f.c", "-o", os.devnull).returncode == 0
    assert "\nf:" in cc("-S", "f.c", "-o", "-").stdout
    assert cc("-x", "c", "-", "-o", "empty", input="int main(void) { return 3; }").returncode == 0
    assert execute(cc.folder / "empty")[0] == 3
    assert cc("-c", "f.c", "main.c", "-o", "one.o").returncode == 1
    assert sorted(os.listdir(cc.folder)) == [
        "empty", "f.c", "f.h", "instrument-cc.jsonl", "main.c", "spec.yaml",
    ]  # fmt: skip


def test_assembly_and_preprocessed_sources_carry_the_counts(cc: Compilers) -> None:
    cc.count()
    assert cc("-S", "-O1", "f.c").returncode == 0
    (cc.folder / "main.i").write_text(cc("-E", "main.c").stdout)
    assert cc("f.s", "main.i", "-o", "sp ace", "-DOFFSET=9").returncode == 0
    assert execute(cc.folder / "sp ace", ["calls", "entries", "loops"])[2] == {
        "calls": 9, "entries": 9, "loops": 9,
    }  # fmt: skip


@pytest.mark.parametrize("counted", [False, True])
def test_assembly_has_its_dependency_file_and_no_warning_of_zigs_own(cc: Compilers, counted: bool) -> None:
    # With -MMD zig made no file, and with -Werror it refused an option that it had added itself.
    if counted:
        cc.count()
    for source in ("main.c", "f.c"):
        made = cc("-O2", "-Wall", "-Wno-unused-variable", "-Werror", "-MMD", "-MP", "-S", source, "-o", f"{source}.s")
        assert (made.returncode, made.stdout, made.stderr) == (0, "", "")
        assert (cc.folder / f"{source}.d").read_text() == f"{source}.s: {source} f.h\nf.h:\n"
        assert "\tret" in (cc.folder / f"{source}.s").read_text()
    refused = cc("-Wall", "-Werror", "-MMD", "-S", "f.c", "-o", "no.s")
    assert refused.returncode == int(not counted)  # the text with counters has no warnings
    assert ("unused variable 'unused'" in refused.stderr) is not counted


def test_what_cannot_be_instrumented_is_compiled_and_listed(cc: Compilers) -> None:
    cc.count("metrics: {n: {event: entry, function: f}, e: {event: entry, function: main, add: here}}\n")
    (cc.folder / "x.cpp").write_text('extern "C" int g() { return 1; }\n')
    (cc.folder / "y.S").write_text(".globl h\nh: ret\n")
    (cc.folder / "f.c").write_text('__attribute__((naked)) int f(int x)\n{\n__asm__("ret");\n}\n')
    for name in ("x.cpp", "y.S", "f.c", "main.c"):
        assert cc("-c", name).returncode == 0, name
    entries = [(each["source"], each["instrumented"], str(each.get("reason"))) for each in cc.listing()]
    assert entries[:3] == [
        ("x.cpp", True, "None"), ("y.S", False, "assembler: only C and C++ are instrumented"),
        ("f.c", False, "f.c:1: 'f' is a naked function: only assembly can stand in it"),
    ]  # fmt: skip
    assert entries[3][:2] == ("main.c", False)
    assert entries[3][2].startswith("metric 'e': the expression to add, 'here', is not valid")
    assert entries[3][2].endswith("main.c:3")
    assert cc.listing()[3]["wrong_spec"]


def test_a_strict_dialect_is_no_obstacle(cc: Compilers) -> None:
    """Counts are not C90; that is no reason to compile without them."""
    cc.count("metrics: {n: {event: entry, function: f}, b: {event: branch, function: f}}\n")
    (cc.folder / "f.c").write_text("int f(int x)\n{\n    int y = x ? x : 1;\n    return y ?: 2;\n}\n")
    flags = ["-std=gnu89", "-Wdeclaration-after-statement", "-Wunused-value", "-Werror"]
    assert cc(*flags, "-c", "f.c").returncode == 0
    assert cc("-std=c99", "-c", "main.c").returncode == 0
    assert cc("f.o", "main.o", "-o", "program").returncode == 0
    assert execute(cc.folder / "program", ["n", "b"])[2] == {"n": 9, "b": 8 + 9}


def test_a_device_as_output_stays(cc: Compilers) -> None:
    """Build systems try options out by links to /dev/null, which root could replace."""
    (cc.folder / "main.c").write_text("int main(void) { return 0; }\n")
    (cc.folder / "null").symlink_to("/dev/null")
    assert cc("main.c", "-o", "null").returncode == 0
    assert (cc.folder / "null").is_symlink()
    assert Path("/dev/null").is_char_device()
    done = cc("main.c", "-o", "/proc/self/fd/0", stdin=subprocess.DEVNULL)  # in a folder where nothing can be made
    assert (done.returncode, done.stderr) == (0, "")
    assert left_over(cc.folder) == []


def test_a_bad_spec_is_told_with_its_line(cc: Compilers) -> None:
    cc.count("metrics:\n  n: {event: entry}\n")
    done = cc("-c", "f.c")
    assert done.returncode == 2
    assert f"instrument-cc: error: {cc.folder}/spec.yaml:2: " in done.stderr
    assert not (cc.folder / "f.o").exists()
    cc.own = {"INSTRUMENT_SPEC": "gone.yaml"}
    done = cc("-c", "f.c")
    assert done.returncode == 2
    assert "INSTRUMENT_SPEC=gone.yaml: no such file in" in done.stderr
    assert "give the whole path" in done.stderr


def test_many_at_once_keep_their_listing_whole(cc: Compilers) -> None:
    cc.count()
    environment = build_environment(cc.commands, cc.own)
    command = [str(cc.commands / "instrument-cc"), "-c", "f.c", "-o"]
    running = [subprocess.Popen([*command, f"{n}.o"], cwd=cc.folder, env=environment) for n in range(6)]
    assert [process.wait(timeout=60) for process in running] == [0] * 6
    assert len(cc.listing()) == 6
    assert len({(cc.folder / f"{n}.o").read_bytes() for n in range(6)}) == 1


def test_openmp_that_is_left_out_is_told_where_a_program_is_linked(cc: Compilers) -> None:
    told = f"instrument-cc: {NOTICE.format(machine='the emulated machine')}\n"
    assert cc("-fopenmp", "-c", "f.c").stderr == ""
    assert cc("-fopenmp", "f.o", "main.c", "-o", "program").stderr == told
    assert cc("f.o", "main.c", "-o", "program").stderr == ""
    cc.own = {**cc.own, LOG_VARIABLE: str(cc.folder / "listing")}  # a build tells it at its end
    assert cc("-fopenmp", "f.o", "main.c", "-o", "program").stderr == ""


def test_counters_that_threads_take_back_are_told_where_a_program_is_linked(cc: Compilers) -> None:
    (cc.folder / "main.c").write_text(
        "#include <pthread.h>\nint f(int x);\nstatic void *work(void *of) { return of; }\n"
        "int main(void) { pthread_t one; return f(pthread_create(&one, 0, work, 0)); }\n"
    )
    metrics = {"entries": {"event": "entry", "function": "f"}}
    cc.count(json.dumps({"metrics": metrics}))
    told = cc("f.c", "main.c", "-o", "program").stderr
    assert told.startswith("instrument-cc: program starts threads, and its counters are not atomic: threads take back")
    cc.count(json.dumps({"metrics": metrics, "atomic": True}))
    assert cc("f.c", "main.c", "-o", "program").stderr == ""


def test_ended_by_make_it_leaves_nothing(cc: Compilers) -> None:
    cc.count()
    lines = "".join(f"int f{n}(int x) {{ return x > {n} ? f{n}(x - {n}) : x; }}\n" for n in range(1, 20000))
    (cc.folder / "long.c").write_text(lines)
    environment = build_environment(cc.commands, cc.own)
    command = [str(cc.commands / "instrument-cc"), "-O2", "-c", "long.c"]
    with subprocess.Popen(command, cwd=cc.folder, env=environment) as process:
        deadline = time.monotonic() + 30
        while not left_over(cc.folder) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 143
    assert left_over(cc.folder) == []
    assert not (cc.folder / "long.o").exists()


def test_the_listing_is_json(cc: Compilers) -> None:
    cc.count()
    cc.own["INSTRUMENT_LOG"] = str(cc.folder / "all.jsonl")
    assert cc("main.c", "f.c", "-o", "program").returncode == 0
    entries = [json.loads(line) for line in (cc.folder / "all.jsonl").read_text().splitlines()]
    assert [entry["kind"] for entry in entries] == ["unit", "unit", "link"]
    assert entries[0]["sites"] == {"calls": 1, "loops": 1}
    assert entries[2]["output"] == str(cc.folder / "program")
    assert entries[2]["words"] == ["main.c", "f.c"]


def test_objects_and_archives_of_other_names_are_linked_as_by_gcc(cc: Compilers) -> None:
    """zig refuses endings that it does not know; gcc gives such inputs to the linker."""
    cc.count()
    for source, made in (("main.c", "main.od"), ("f.c", "f.od")):
        assert cc("-c", "-o", made, source).returncode == 0
    assert cc("rcs", "library.own", "f.od", command="instrument-ar").returncode == 0
    for inputs in (("main.od", "f.od"), ("main.od", "library.own")):
        (cc.folder / "out").unlink(missing_ok=True)
        linked = cc("-o", "out", *inputs)
        assert linked.returncode == 0, linked.stderr
        status, printed, counted = execute(cc.folder / "out", ["calls", "entries", "loops"])
        assert (status, printed) == (0, "72\n")
        assert counted == {"calls": 9, "entries": 9, "loops": 9}
    (cc.folder / "notes.own").write_text("no object")
    refused = cc("-o", "out", "main.od", "f.od", "notes.own")
    assert refused.returncode != 0
    assert "notes.own" in refused.stderr
