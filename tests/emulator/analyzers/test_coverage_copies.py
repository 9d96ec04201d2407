"""Coverage of code that the compiler has copied: a line ran as often as all of its copies together."""

from __future__ import annotations

from pathlib import Path

from emulator.analyzers.analysis_session import Session
from emulator.analyzers.coverage import Coverage
from emulator.machine import Machine
from instrumenter.building.program_build import build_program

SOURCE = """\
static volatile long seen;
static inline __attribute__((always_inline)) void step(long n)
{
    seen += n;
}
__attribute__((noinline)) void often(void) { for (int i = 0; i < 300; i++) step(i); }
__attribute__((noinline)) void seldom(void) { for (int i = 0; i < 20; i++) step(-i); }
int main(void) { often(); seldom(); seldom(); return 0; }
"""


def test_copies_in_several_functions_are_added_up(tmp_path: Path) -> None:
    """It was 300, of the copy that is executed most."""
    source = tmp_path / "copies.c"
    source.write_text(SOURCE)
    coverage = Coverage(out=str(tmp_path / "coverage.info"))
    with Machine(build_program([source], ["-O1", "-g"]).elf_path) as machine:
        session = Session(machine, [coverage])
        session.run()
        session.finish()
    (lines,) = (found for name, found in coverage.lines.items() if name.endswith("copies.c"))
    assert lines[4] == 340
    assert lines[8] == 1
