"""OpenMP programs: built without its runtime, run on one thread, and the user is told."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from instrumenter.building.program_build import build_program
from instrumenter.compiler.openmp import ENTRY, NOTICE, openmp_notices, without
from instrumenter.compiler.toolchain import HOST_TARGET
from instrumenter.errors import SourceError
from instrumenter.projects.project import Project, ProjectRecipe, linked_programs
from instrumenter.spec.software_metrics import MetricSpec
from instrumenter.wrapper.arguments import Kind, read_command_line
from instrumenter.wrapper.listing import LOG_VARIABLE, note_left_out, read_listing
from tests.instrumenter.guest_output import output_of
from tests.instrumenter.small_project import project_with

pytestmark = pytest.mark.usefixtures("own_cache")

TOLD = NOTICE.format(machine="the emulated machine")
# Names of its own for functions of the C library, and a check of every group of routines.
PROGRAM = """\
#include <omp.h>
#include <stdio.h>
double time = 3;
static int part(int k) { return k * k; }
int main(void)
{
    omp_lock_t lock;
    omp_nest_lock_t nested;
    omp_sched_t kind;
    int chunk = 7, sum = 0, tries = 0, k;
    double begin = omp_get_wtime();
    char *memory = (char *) omp_aligned_calloc(64, 3, 64, omp_default_mem_alloc);
    omp_set_num_threads(8);
    omp_set_dynamic(1);
#pragma omp parallel for reduction(+ : sum) num_threads(4)
    for (k = 0; k < 5; k++)
        sum += part(k) + 100 * omp_get_thread_num() + 1000 * (omp_get_num_threads() - 1);
    omp_init_lock(&lock);
    tries = omp_test_lock(&lock) + 2 * omp_test_lock(&lock);
    omp_unset_lock(&lock);
    omp_set_lock(&lock);
    omp_destroy_lock(&lock);
    omp_init_nest_lock(&nested);
    omp_set_nest_lock(&nested);
    omp_set_nest_lock(&nested);
    tries += 10 * omp_test_nest_lock(&nested);
    omp_unset_nest_lock(&nested);
    omp_get_schedule(&kind, &chunk);
    printf("%d %d %d %d %d", sum, tries, omp_get_max_threads(), omp_get_num_procs(), omp_in_parallel());
    printf(" %d %d %d %d", omp_get_level(), kind == omp_sched_static, chunk, omp_get_team_size(1));
    printf(" %d %d", omp_get_wtime() >= begin && begin > 0 && omp_get_wtick() > 0, memory[191]);
#ifdef _OPENMP
    printf(" openmp");
#endif
    puts("");
    omp_free(memory, omp_null_allocator);
    return time != 3;
}
"""
OUTPUT = "30 31 1 1 0 0 1 0 -1 1 0\n"
# As the header's routines say that they behave: a sum of squares, two tests of a lock, a third level, one thread.


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return project_with(tmp_path, PROGRAM)


@pytest.mark.parametrize("option", [
    "-fopenmp", "-fopenmp=libomp", "-fopenmp=libgomp", "-fopenmp=libiomp5", "-qopenmp", "-fiopenmp", "-lgomp", "-lomp",
    "-liomp5", "-l gomp", "-Xclang -fopenmp", "-Xpreprocessor -fopenmp", "-fopenmp-targets=nvptx64",
    "-fopenmp-version=51",
])  # fmt: skip
def test_options_for_openmp_are_left_out(option: str) -> None:
    line = read_command_line(["-c", "a.c", *option.split(), "-O2"], Path("/nowhere"))
    assert line.without_openmp
    assert line.words(Kind.LEFT_OUT) == option.split()
    assert line.all_words() == ["-c", "a.c", "-O2"]


@pytest.mark.parametrize("option", ["-fopenmp-simd", "-fno-openmp", "-lgomperts", "-o -lgomp", "-DX=-fopenmp"])
def test_other_options_are_kept(option: str) -> None:
    line = read_command_line(["a.c", *option.split()], Path("/nowhere"))
    assert not line.without_openmp
    assert line.all_words() == ["a.c", *option.split()]


@pytest.mark.parametrize("command", [
    "$CC -O1 -fopenmp app.c -o app -lgomp", "$CC -std=c99 -pedantic -Wall -Wextra -Werror -c app.c && $CC app.o -o app",
    "$CC -ansi -fopenmp=libomp -c app.c && $CC app.o -fopenmp -o app",
])  # fmt: skip
def test_a_program_runs_on_one_thread_with_and_without_counters(directory: Path, command: str) -> None:
    recipe = ProjectRecipe.of(Project(directory, command, "app"))
    said: list[str] = []
    assert output_of(recipe.build({}, notify=said.append).elf_path) == OUTPUT
    wants = "openmp" in command
    assert said == [f"Building the project by its own command: {command}", *([TOLD] if wants else [])]
    counted = recipe.build({"parts": MetricSpec(event="entry", function="part")}, notify=said.append)
    assert counted.sites == {"parts": 1}
    about_openmp = tuple(one for one in counted.notices if not one.startswith("Compiled without optimisation"))
    assert about_openmp == recipe.build({}).notices == ((TOLD,) if wants else ())
    assert (about_openmp == counted.notices) == ("-O1" in command)
    assert counted.warnings == ()
    assert output_of(counted.elf_path) == OUTPUT
    assert said.count(TOLD) == wants


@pytest.mark.parametrize("flags", [["-O1", "-fopenmp"], ["-O1", "-lgomp"], ["-O1"]])
def test_a_build_of_sources_says_that_openmp_is_left_out(directory: Path, flags: list[str]) -> None:
    build = build_program([directory / "app.c"], flags, {"parts": MetricSpec(event="entry", function="part")})
    assert build.notices == ((TOLD,) if len(flags) > 1 else ())
    assert output_of(build.elf_path) == OUTPUT


def test_a_program_for_this_machine_runs_on_one_thread_too(directory: Path) -> None:
    said: list[str] = []
    recipe = ProjectRecipe.of(Project(directory, "$CC -fopenmp app.c -o app", "app"), target=HOST_TARGET)
    program = recipe.build({}, notify=said.append).elf_path
    assert said[-1] == NOTICE.format(machine="static programs of this machine")
    if platform.system() == "Linux":
        assert subprocess.run([program], capture_output=True, text=True, check=True).stdout == OUTPUT


def test_a_header_of_the_project_comes_first(directory: Path) -> None:
    (directory / "mine").mkdir()
    (directory / "mine/omp.h").write_text("#define MINE 1\n")
    (directory / "app.c").write_text("#include <omp.h>\nint main(void) { return MINE - 1; }\n")
    command = "$CC -fopenmp -idirafter mine app.c -o app"
    assert output_of(ProjectRecipe.of(Project(directory, command, "app")).build({}).elf_path) == ""


@pytest.mark.parametrize("standard", ["-std=c++98", "-std=c++20"])
def test_the_header_is_cplusplus_too(directory: Path, standard: str) -> None:
    text = PROGRAM.replace("double time = 3;\n", "").replace("time != 3", "0")
    (directory / "app.cpp").write_text(text)
    command = f"$CXX {standard} -pedantic -Wall -Wextra -Werror -fopenmp app.cpp -o app"
    assert output_of(ProjectRecipe.of(Project(directory, command, "app")).build({}).elf_path) == OUTPUT


@pytest.mark.parametrize("command", [
    "$CC -E app.c", "$CC -M app.c", "$CC -x c -E - < app.c", "$CC -c -x c - -o x.o < app.c", "$CC -x c -c app.c",
    "$CC -c a.s", "$CC -x assembler -c - -o x.o < a.s", "$CC -c i.i", "$CC -c a.s i.i", "$CC a.s app.c -o app",
])  # fmt: skip
def test_only_sources_that_are_preprocessed_get_the_header(directory: Path, command: str) -> None:
    """The compiler finds it where it is included, and does not warn of an option that it does not use."""
    (directory / "a.s").write_text(".text\nnop\n")
    (directory / "i.i").write_text("int x;\n")
    linked_programs(directory, f"({command}) 2> words && ! grep idirafter words", lambda text: None)


@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")
@pytest.mark.parametrize("find", [
    "find_package(OpenMP REQUIRED)", "find_package(OpenMP)", "find_package(OpenMP 4.5 REQUIRED COMPONENTS C)",
])  # fmt: skip
def test_cmake_finds_openmp(directory: Path, find: str) -> None:
    (directory / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.10)\nproject(app C CXX)\n{find}\nadd_executable(app app.c)\n"
        "target_link_libraries(app OpenMP::OpenMP_C)\n"
    )
    said: list[str] = []
    recipe = ProjectRecipe.of(Project(directory, "cmake -B out . && cmake --build out", "out/app"))
    assert output_of(recipe.build({}, notify=said.append).elf_path) == OUTPUT
    assert said[-1] == TOLD


def test_a_trial_of_a_configure_script_is_not_told(directory: Path) -> None:
    said: list[str] = []
    command = "$CC -fopenmp app.c -o conftest && rm conftest && $CC app.c -o app"
    assert linked_programs(directory, command, said.append) == ["app"]
    assert said == [f"Building the project by its own command: {command}"]


def test_a_notice_needs_an_output_that_is_there(tmp_path: Path) -> None:
    entry = {"kind": ENTRY, "output": str(tmp_path)}
    assert openmp_notices([{**entry, "output": f"{tmp_path}/no"}, {"kind": "link"}], "it") == []
    assert openmp_notices([entry, entry], "it") == [NOTICE.format(machine="it")]


def test_a_build_that_wants_openmp_defined_fails_with_the_reason(directory: Path) -> None:
    (directory / "app.c").write_text("#ifndef _OPENMP\n#error needs OpenMP\n#endif\nint main(void) { return 0; }\n")
    with pytest.raises(SourceError, match="error: needs OpenMP"):
        linked_programs(directory, "$CC -fopenmp app.c -o app", lambda text: None)


@pytest.mark.parametrize(
    ("command", "made"),
    [
        ("-fopenmp -c a/b.c c.c", ["b.o", "c.o"]), ("-S -qopenmp a/b.c", ["b.s"]), ("b.c -lgomp", ["a.out"]),
        ("-fopenmp b.o -o d/app", ["d/app"]), ("-fopenmp -E b.c", []), ("-c b.c", []),
        ("-fopenmp -fsyntax-only b.c", []),
    ],
)  # fmt: skip
def test_the_listing_names_what_is_made_without_openmp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, made: list[str]
) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    line = read_command_line(command.split(), folder)
    note_left_out(line, folder)
    assert list(folder.iterdir()) == []  # without a listing of the whole build there is none for this
    monkeypatch.setenv(LOG_VARIABLE, str(folder / "listing"))
    note_left_out(line, folder)
    assert read_listing(folder / "listing") == [{"kind": ENTRY, "output": str(folder / name)} for name in made]


def test_flags_of_sources_lose_openmp_and_nothing_else() -> None:
    flags = ["-O2", "-fopenmp", "-lgomp", "-D", "omp", "-fopenmp-simd", "-lm"]
    assert without(flags) == ["-O2", "-D", "omp", "-fopenmp-simd", "-lm"]
