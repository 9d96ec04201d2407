"""Selections by name in what is mapped while a program runs; and, where there is one, in a real dynamic program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from emulator.analyzers.analysis_session import Session
from emulator.analyzers.analyzer import Analyzer
from emulator.analyzers.batch import Batch
from emulator.analyzers.callgraph import CallGraph
from emulator.analyzers.event_selection import SelectionError
from emulator.analyzers.mix import InstructionMix
from emulator.linux.vfs.files import VirtualFiles
from emulator.machine import Machine

SOURCE = Path(__file__).parent / "guest" / "mapping.c"
COMPILER = [
    sys.executable, "-m", "ziglang", "cc", "-target", "riscv64-linux-musl", "-O1", "-g", "-nostdlib", "-fPIC",
    "-ffreestanding", "-fno-stack-protector",
]  # fmt: skip
BASE = 0x4000_0000


class Pcs(Analyzer):
    def __init__(self, selection: str = "fields=pc") -> None:
        self.selection = selection
        self.pcs: list[int] = []

    def consume(self, batch: Batch) -> None:
        self.pcs += batch.pc.tolist()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program, its dynamic linker, and a library that this maps: stripped, so that only names for others are left."""
    directory = tmp_path_factory.mktemp("root")
    (directory / "lib").mkdir()
    loader, part = directory / "lib" / "own-loader.so", directory / "lib" / "part.so"
    linker = "-Wl,-dynamic-linker,/lib/own-loader.so"
    for command in (
        ["-DLOADER", "-shared", "-Wl,-e,_start", "-o", loader],
        ["-DPART", "-shared", "-Wl,-e,triple", "-Wl,-s", "-o", part],
        ["-pie", "-dynamic", "-Wl,-e,_start", linker, "-o", directory / "program", loader],
    ):
        subprocess.run([*COMPILER, str(SOURCE), *map(str, command)], check=True)
    return directory


def watch(root: Path, *analyzers: Analyzer, **options: Any) -> Session:
    with Machine(root / "program", files=VirtualFiles(root=root), **options) as machine:
        session = Session(machine, analyzers)
        ending = session.run()
        assert ending is not None
        assert ending.status == 5
        session.finish()
        return session


@pytest.mark.parametrize("engine", ["translated", "oracle"])
def test_functions_of_a_library_that_comes_later(root: Path, engine: str) -> None:
    every, by_symbol, by_library = Pcs(), Pcs("symbol=triple fields=pc"), Pcs("library=part.so fields=pc")
    watch(root, every, engine=engine)
    watch(root, by_symbol, engine=engine)
    watch(root, by_library, engine=engine)
    inside = [pc for pc in every.pcs if BASE <= pc < BASE + (1 << 20)]
    assert len(inside) >= 10
    assert len(inside) % 5 == 0
    assert by_symbol.pcs == inside
    assert by_library.pcs == inside


def test_several_places_at_once(root: Path) -> None:
    """Names of the program, of what is there from the start, and of what comes; each selection its own."""
    every, one, both = Pcs(), Pcs("symbol=_start fields=pc"), Pcs("symbol=trip*,_dl_debug_* fields=pc")
    session = watch(root, every, one, both)
    image = session.machine.image
    linker = session.machine.process.interpreter
    assert linker is not None
    starts = [linker.find_symbol("_start"), image.find_symbol("_start")]
    assert all(start is not None and start.address in one.pcs for start in starts)
    state = linker.find_symbol("_dl_debug_state")
    assert state is not None
    assert both.pcs.count(state.address) == 2
    assert sum(BASE <= pc < BASE + (1 << 20) for pc in both.pcs) >= 10
    assert set(both.pcs) < set(every.pcs)


def test_source_files_and_stops_in_what_comes_later(root: Path) -> None:
    pcs = Pcs("source=mapping.c fields=pc")
    with Machine(root / "program", files=VirtualFiles(root=root)) as machine:
        session = Session(machine, [pcs], paused=True)
        session.at("triple", session.resume)
        session.run()
        session.finish()
        image = machine.process.interpreter
        assert image is not None
    assert pcs.pcs
    assert any(image.start <= pc < image.end for pc in pcs.pcs)
    assert not any(BASE <= pc < BASE + (1 << 20) for pc in pcs.pcs)  # it has no debug information


def test_what_never_comes_is_said_at_the_end(root: Path) -> None:
    for selection, words in (
        ("symbol=_strat", r"/program: it and its libraries have no function '_strat'; did you mean _start\?"),
        ("source=absent.c", r"/program: it has no code from source file 'absent.c'"),
        (
            "library=libc.so",
            r"no code is mapped from a library 'libc.so'; expected one of program, own-loader.so",
        ),
    ):
        pcs = Pcs(f"{selection} fields=pc")
        with pytest.raises(SelectionError, match=words):
            watch(root, pcs)
        assert not pcs.pcs
    with Machine(root / "program", files=VirtualFiles(root=root)) as machine:
        session = Session(machine, [])
        session.at("nothing", session.pause)
        session.run()
        with pytest.raises(SelectionError, match="no function 'nothing'"):
            session.finish()


def test_counts_by_name_and_calls_into_libraries(root: Path) -> None:
    every, mix, calls = Pcs("symbol=triple fields=pc"), InstructionMix(), CallGraph()
    mix.restrict("symbol=load")
    session = watch(root, mix, calls, every)
    assert sum(mix.counts.values()) > 50
    assert calls.functions["triple"] == (5, len(every.pcs), len(every.pcs))
    assert calls.edges["load", "triple"][0] == 5
    assert calls.edges["load", "_dl_debug_state"][0] == 2
    assert session.objects.loads_libraries


def test_code_without_a_name_is_called_by_its_place(root: Path) -> None:
    """What was mapped only for a while and looked for by nobody; and a place in a file."""
    calls = CallGraph()
    session = watch(root, calls)
    assert calls.functions["_dl_debug_state"][0] == 2
    assert calls.edges["load", "(0x40001000..)"][0] == 5
    image = session.machine.image
    assert session.objects.name_of(image.entry) == "_start"
    headers = session.objects.name_of(image.start)
    assert headers == "(program+0x0..)"
