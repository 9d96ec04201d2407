"""Real C programs: their names and lines, and on our kernel, with unicorn as the processor, the C library's view."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from emulator.linux.loader.elf import POSITION_INDEPENDENT_BASE, load_image
from emulator.linux.loader.process_image import Layout
from emulator.memory import EXEC
from tests.emulator.linux.conftest import STATIC_AND_PIE, Ended


def test_memory(run_guest: Callable[..., Ended], guest_program: Callable[..., Path]) -> None:
    ended = run_guest(guest_program(), ["memory"])
    assert (ended.status, ended.stdout, ended.stderr) == (0, "allocated 2097328 wrong 0\n", "")
    assert ended.unsupported == []


def test_files(run_guest: Callable[..., Ended], guest_program: Callable[..., Path]) -> None:
    ended = run_guest(
        guest_program(),
        ["files"],
        mapped={"/data/in/hello.txt": b"hello input\nmore\n", "/data/in/other": b""},
        capture={"/out/"},
        stdin=b"abc\nsecond line\n",
    )
    assert ended.status == 0
    assert ended.stderr == "to stderr\n"
    assert ended.stdout.splitlines() == [
        "size 8890 regular 1",
        "input hello input",
        "entry . 4",
        "entry .. 4",
        "entry hello.txt 8",
        "entry other 8",
        "absent -1 No such file or directory",
        "refused -1 Read-only file system",
        "access 0 -1",
        "mapped hello",
        "cwd /data",
        "relative 1",
        "pipe piped",
        "moved 0 gone -1",
        "stdin a|bc",
        "|second line",
        "duplicated",
    ]
    (moved,) = ended.captured.items()
    assert moved[0] == "/out/sub/moved.txt"
    assert moved[1].startswith(b"line X\nline 1\n")
    assert ended.unsupported == []


def test_time_passes_virtually(run_guest: Callable[..., Ended], guest_program: Callable[..., Path]) -> None:
    ended = run_guest(guest_program(), ["times"])
    assert ended.stdout.splitlines() == [
        "slept 15 used_little 1",
        "year 2023",
        "select 0",
        "poll 0",
        "poll 1 1",
        "rusage 0",
        "clock 1",
    ]
    assert ended.unsupported == []


def test_signals(run_guest: Callable[..., Ended], guest_program: Callable[..., Path]) -> None:
    ended = run_guest(guest_program(), ["signals"])
    assert ended.stdout.splitlines() == [
        "raised 10",
        "blocked 0 then 1",
        "info 12 code 0 value 0",
        "on alternate stack 1 kept 2.50",
        "alarm 14 left 8",
        "profiled 27",
        "info 12 code -2 value 77",
        "suspend -1",
        "waited 10",
        "broken -1 Broken pipe",
    ]
    assert ended.status == 128 + 6
    assert ended.unsupported == []


@pytest.mark.parametrize("pie", STATIC_AND_PIE)
def test_identity(run_guest: Callable[..., Ended], guest_program: Callable[..., Path], pie: bool) -> None:
    ended = run_guest(guest_program(pie), ["one", "two"], {"VARIABLE": "value"}, Layout(stack_bytes=1 << 20))
    lines = ended.stdout.splitlines()
    assert lines[:4] == [
        "Linux riscv64 3 two",
        "VARIABLE=value",
        "page 4096 secure 0 hwcap 112d execfn /bin/guest",
        "processors 1",
    ]
    assert lines[4].startswith("random ")
    assert lines[5] == "stack 1048576"
    assert ended.status == 7


def test_offsets_change_where_things_lie_and_nothing_else(
    run_guest: Callable[..., Ended], guest_program: Callable[..., Path]
) -> None:
    layouts = [
        Layout(),
        Layout(stack_offset_bytes=4080, heap_offset_bytes=1 << 16, environment_padding_bytes=999),
    ]
    plain, moved = (run_guest(guest_program(), ["memory"], layout=layout) for layout in layouts)
    assert plain == moved


@pytest.mark.parametrize("pie", STATIC_AND_PIE)
def test_a_compiled_program_has_names_and_lines(guest_program: Callable[..., Path], pie: bool) -> None:
    image = load_image(guest_program(pie))
    assert image.bias == (POSITION_INDEPENDENT_BASE if pie else 0)
    main = image.find_symbol("main")
    assert main is not None
    assert main.is_function
    assert image.symbolize(main.address + 2) == "main+0x2"
    found = image.source_line(main.address)
    assert found is not None
    source, line = found
    text = open(source).read().splitlines()  # noqa: SIM115
    assert source.endswith("guest_program.c")
    assert text[line - 1].startswith("int main(")
    rows = [row for row in image.line_rows() if row.file == source]
    assert all(row.address < row.end for row in rows)
    assert {row.line for row in rows if row.is_statement} >= {line}


def test_a_query_reads_the_units_that_have_code_there_and_tells_what_all_rows_do(
    guest_program: Callable[..., Path],
) -> None:
    image = load_image(guest_program(True))
    code = [segment for segment in image.segments if segment.prot & EXEC]
    instructions = range(code[0].address, code[0].end, 42)
    told = [image.source_line(pc) for pc in instructions]
    expected: dict[int, tuple[str, int]] = {}
    for row in image.line_rows():
        expected |= {pc: (row.file, row.line) for pc in range(row.address, row.end, 2) if row.line}
    assert told == [expected.get(pc) for pc in instructions]
    assert sum(each is not None for each in told) > len(told) / 2
