"""Options and sources for another processor: what is left out, what is refused, and what the user is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from instrumenter.building.program_build import build_program
from instrumenter.compiler.processor_options import explain_other_processor, is_probe, notices_about_flags, without
from instrumenter.compiler.toolchain import GUEST_TARGET, HOST_TARGET
from instrumenter.errors import SourceError
from instrumenter.projects.project import Project, ProjectRecipe
from instrumenter.wrapper.arguments import Kind, read_command_line
from tests.instrumenter.guest_output import output_of
from tests.instrumenter.small_project import project_with

pytestmark = pytest.mark.usefixtures("own_cache")

PROGRAM = """\
#include <stdio.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif
int main(void) { puts("portable"); }
"""
TOLD = (
    "Compiled without options for another processor than the emulated RISC-V machine: {}. Where the sources choose "
    "code by what the processor has, their portable code is measured"
)
FOREIGN = [
    "-mavx2", "-mno-avx512f", "-msse4.2", "-mssse3", "-mfma", "-mbmi2", "-mpopcnt", "-mcx16", "-maes", "-mpclmul",
    "-mfpmath=sse", "-march=haswell", "-march=x86-64-v3", "-march=native", "-mcpu=cortex-a53", "-march=armv8-a+crc",
    "-mfpu=neon", "-mfloat-abi=hard", "-maltivec", "-mtune=znver4",
]  # fmt: skip


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return project_with(tmp_path, PROGRAM)


@pytest.mark.parametrize("option", FOREIGN)
def test_options_of_other_processors_are_left_out(option: str) -> None:
    line = read_command_line(["-c", "a.c", option, "-O2"], Path("/nowhere"))
    assert line.processor_options == (option,)
    assert line.words(Kind.LEFT_OUT) == [option]
    assert line.all_words() == ["-c", "a.c", "-O2"]
    assert without(["-O2", option], GUEST_TARGET) == ["-O2"]
    assert notices_about_flags(["-O2", option, option], GUEST_TARGET) == [TOLD.format(option)]


@pytest.mark.parametrize(
    "option", ["-m64", "-mno-red-zone", "-march=rv64gc", "-mcpu=sifive_u74", "-mcmodel=medany", "-mstrict-align", "-O3"]
)
def test_other_options_are_not_of_another_processor(option: str) -> None:
    assert read_command_line(["-c", "a.c", option], Path("/nowhere")).processor_options == ()
    assert notices_about_flags([option], GUEST_TARGET) == []


def test_programs_for_this_machine_keep_theirs() -> None:
    line = read_command_line(["-c", "a.c", "-mavx2"], Path("/nowhere"), target=HOST_TARGET)
    assert line.all_words() == ["-c", "a.c", "-mavx2"]
    assert without(["-mavx2"], HOST_TARGET) == without(["-mavx2"], None) == ["-mavx2"]


@pytest.mark.parametrize(
    ("source", "directory", "expected"),
    [
        ("conftest.c", "/p", True), ("-", "/p", True), ("/dev/null", "/p", True),
            ("testfile.c", "/p/meson-private/tmp7", True),
        ("/p/CMakeFiles/CMakeScratch/TryCompile-x/src.c", "/p", True), ("src.c", "/p/CMakeFiles/CMakeTmp", True),
        ("src.c", "/p/CMakeFiles/CMakeTmp/d", True), ("src/conftest_main.c", "/p", False), ("app.c", "/p", False),
    ],
)  # fmt: skip
def test_who_asks_whether_the_compiler_has_an_option(source: str, directory: str, expected: bool) -> None:
    assert is_probe([source], Path(directory)) is expected


def test_a_project_with_such_options_is_built_and_says_so(directory: Path) -> None:
    said: list[str] = []
    command = "$CC -O2 -march=native -mavx2 -c app.c && $CC app.o -o app"
    program = ProjectRecipe.of(Project(directory, command, "app")).build({}, notify=said.append)
    assert output_of(program.elf_path) == "portable\n"
    assert said[-1] == TOLD.format("-march=native, -mavx2")
    assert (program.warnings, program.notices) == ((), (said[-1],))


def test_a_configure_script_hears_that_there_is_no_such_option(directory: Path) -> None:
    (directory / "conftest.c").write_text("int main(void) { return 0; }\n")
    command = "if $CC -mavx2 conftest.c -o conftest; then exit 3; else $CC -O2 app.c -o app; fi"
    program = ProjectRecipe.of(Project(directory, command, "app")).build({})
    assert output_of(program.elf_path) == "portable\n"
    assert (program.warnings, program.notices) == ((), ())


def test_a_build_of_sources_says_so(directory: Path) -> None:
    build = build_program([directory / "app.c"], ["-O1", "-mavx2"], {})
    assert (build.warnings, build.notices) == ((), (TOLD.format("-mavx2"),))
    assert output_of(build.elf_path) == "portable\n"


@pytest.mark.parametrize(
    "text",
    [
        "#include <immintrin.h>\nint main(void) { return 0; }",
        "#include <x86intrin.h>\nint main(void) { return 0; }",
        'int main(void) { unsigned a, d; __asm__("rdtsc" : "=a"(a), "=d"(d)); return a + d; }',
        'int main(void) { __asm__ volatile("cpuid" ::: "eax"); return 0; }',
        'int main(void) { __asm__ volatile("mfence"); return 0; }',
        "int main(void) { __builtin_ia32_pause(); return 0; }",
        "int main(void) { return (int) _mm_popcnt_u32(7); }",
        "#include <arm_neon.h>\nint main(void) { return 0; }",
    ],
)
def test_sources_for_another_processor_are_explained(directory: Path, text: str) -> None:
    (directory / "app.c").write_text(text)
    with pytest.raises(SourceError, match="the emulated machine is a RISC-V"):
        ProjectRecipe.of(Project(directory, "$CC -O2 app.c -o app", "app")).build({})


def test_other_errors_are_not_of_another_processor() -> None:
    assert explain_other_processor("app.c:1:2: error: use of undeclared identifier 'mm_max'") is None
    assert explain_other_processor("app.c:1:10: fatal error: 'openssl/sha.h' file not found") is None
