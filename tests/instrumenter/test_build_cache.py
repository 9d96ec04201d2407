"""Builds on disk: taken again, whole or not at all, also with several builders at once; and runs of the compiler."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import BinaryIO

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from common.file_cache import cache_directory
from common.source_digest import SUFFIXES
from emulator.linux.kernel.clock import EPOCH_SECONDS
from instrumenter.building import program_build as build_module
from instrumenter.building.program_build import Build, Recipe, SamplerConfig, build_program
from instrumenter.compiler.toolchain import BUILD_DATE, GUEST_TARGET, Toolchain, without_preprocessor_flags
from instrumenter.errors import SourceError, ToolchainError
from instrumenter.projects import project as project_module
from instrumenter.projects.project import Project, ProjectRecipe
from instrumenter.spec.counter_layout import Placement
from instrumenter.spec.software_metrics import MetricSpec

METRICS = {"loops": MetricSpec(event="loop", function="main")}


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where builds go, empty; the compiler keeps its own cache, which takes long to fill."""
    zig = cache_directory() / "zig"
    zig.mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "cache/perturbation").mkdir(parents=True)
    (tmp_path / "cache/perturbation/zig").symlink_to(zig)
    return tmp_path / "cache/perturbation/builds"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A small program."""
    path = tmp_path / "program.c"
    path.write_text("int main(void) { volatile int n = 0; for (int i = 0; i < 3; i++) n += i; return n - 3; }\n")
    return path


def count_links(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    links: list[Path] = []
    link = Toolchain.link

    def counted(self: Toolchain, inputs: list[Path], flags: list[str], output: Path, driver: str) -> None:
        links.append(output)
        link(self, inputs, flags, output, driver)

    monkeypatch.setattr(Toolchain, "link", counted)
    return links


@pytest.mark.slow
def test_the_same_content_is_built_once(builds: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    links = count_links(monkeypatch)
    first = build_program([source], ["-O1"], METRICS, target=None)
    assert first.elf_path.parent == builds / first.key
    assert build_program([source], ["-O1"], METRICS, target=None) == first
    assert len(links) == 2  # of the program without counters, too, which tells whether they have to be atomic
    others = [
        build_program([source], ["-O0"], METRICS, target=None, atomic=False),
        build_program([source], ["-O1"], target=None),
        build_program([source], ["-O1"], METRICS, target=None, placement="cache_line"),
        build_program([source], ["-O1"], METRICS, target=None, volatile=False),
        build_program([source], ["-O1"], {"other": METRICS["loops"]}, target=None),
        build_program([source], ["-O1"], METRICS, target=None, atomic=True),
        build_program([source], ["-O1"], METRICS, target=None, libraries=["-lm"], atomic=False),
    ]
    source.write_text(source.read_text().replace("i < 3", "i < 3 + 0"))
    others.append(build_program([source], ["-O1"], METRICS, target=None, atomic=False))
    assert len({first.key, *(other.key for other in others)}) == 1 + len(others) == len(links)
    assert sorted(path.name for path in builds.iterdir()) == sorted([first.key, *(other.key for other in others)])


def test_rebuilt_programs_are_the_same_bytes(
    builds: Path, source: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = build_program([source], ["-O1"], METRICS, target=None).elf_path.read_bytes()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    (tmp_path / "elsewhere/perturbation").mkdir(parents=True)
    (tmp_path / "elsewhere/perturbation/zig").symlink_to((builds.parent / "zig").resolve())
    again = build_program([source], ["-O1"], METRICS, target=None)
    assert again.elf_path.is_relative_to(tmp_path / "elsewhere")
    assert again.elf_path.read_bytes() == first


def test_the_date_of_a_build_is_that_of_the_start_of_guests(builds: Path, source: Path) -> None:
    """zig refuses __DATE__ in optimised code."""
    source.write_text('#include <stdio.h>\nint main(void) { puts(__DATE__ " " __TIME__); return 0; }\n')
    metrics = {"starts": MetricSpec(event="entry", function="main")}
    for target in (None, GUEST_TARGET):
        program = build_program([source], ["-O2"], metrics, target=target).elf_path
        assert b"Nov 14 2023 22:13:20" in program.read_bytes()
    assert int(BUILD_DATE) == EPOCH_SECONDS
    assert datetime.fromtimestamp(EPOCH_SECONDS, UTC) == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


@pytest.mark.parametrize("damage", ["cut", "no facts", "wrong facts"])
def test_a_damaged_build_is_made_again(builds: Path, source: Path, damage: str) -> None:
    first = build_program([source], ["-O1"], METRICS, target=None)
    whole = first.elf_path.read_bytes()
    facts = first.elf_path.parent / "build.json"
    if damage == "cut":
        first.elf_path.write_bytes(whole[:100])
    elif damage == "no facts":
        facts.unlink()
    else:
        facts.write_text("{")
    assert build_program([source], ["-O1"], METRICS, target=None) == first
    assert first.elf_path.read_bytes() == whole


def test_a_failing_compilation_leaves_nothing(builds: Path, source: Path) -> None:
    source.write_text("int missing(void); int main(void) { return missing(); }\n")
    with pytest.raises(SourceError, match="missing"):
        build_program([source], ["-O1"], target=None)
    assert list(builds.iterdir()) == []


def test_builders_at_the_same_time(builds: Path, source: Path) -> None:
    def make(_: int) -> Build:
        return build_program([source], ["-O1"], METRICS, target=None)

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(make, range(4)))
    assert len({result.key for result in results}) == 1
    plain = build_program([source], ["-O1"], target=None)
    assert {path.name for path in builds.iterdir()} == {results[0].key, plain.key}
    assert subprocess.run([results[0].elf_path], check=False).returncode == 0


def test_a_killed_builder_leaves_no_build(builds: Path, source: Path, tmp_path: Path) -> None:
    """Killed in the middle of a compilation, by force: the next one builds as if nothing had been."""
    script = tmp_path / "build.py"
    script.write_text(
        textwrap.dedent(f"""
        from pathlib import Path
        from instrumenter.compiler import toolchain
        from instrumenter.building.program_build import build_program
        link = toolchain.Toolchain.link
        def slow(self, *arguments):
            link(self, *arguments)
            print("linked", flush=True)
            import time; time.sleep(60)
        toolchain.Toolchain.link = slow
        build_program([Path({str(source)!r})], ["-O1"], target=None)
    """)
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(build_module.__file__).parents[2])}
    with subprocess.Popen([sys.executable, script], env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "linked\n"
        process.send_signal(signal.SIGKILL)
    build = build_program([source], ["-O1"], target=None)
    assert subprocess.run([build.elf_path], check=False).returncode == 0


def code(program: Path) -> dict[str, bytes]:
    with program.open("rb") as file:
        return {
            section.name: section.data()
            for section in ELFFile(file).iter_sections()
            if section.name in (".text", ".rodata", ".data")
        }


@pytest.mark.parametrize("target", ["riscv64-linux-musl", None])
def test_without_metrics_the_code_is_that_of_the_plain_build(builds: Path, tmp_path: Path, target: str | None) -> None:
    source = Path(__file__).parents[2] / "experiments/workloads/nbody.c"
    flags = ["-O2", "-DNOTHING=1", "-I", str(tmp_path)]
    ours = build_program([source], flags, libraries=["-lm"], target=target)
    plain = Toolchain(target)
    # Of a source, zig puts the object behind all libraries that the link names, which moves code.
    plain.compile(source, [*flags, "-g", "-w"], tmp_path / "nbody.o")
    plain.link([tmp_path / "nbody.o"], ["-O2", "-g", "-w", "-lm"], tmp_path / "plain")
    assert code(ours.elf_path) == code(tmp_path / "plain")
    assert (ours.counters, ours.sites, ours.warnings) == ({}, {}, ())
    assert ours.text_bytes > 0
    assert (ours.static_instructions > 1000) == (target is not None)


def symbols_of(file: BinaryIO) -> SymbolTableSection:
    """The symbol table of an ELF file."""
    section = ELFFile(file).get_section_by_name(".symtab")
    assert isinstance(section, SymbolTableSection)
    return section


def test_counters_lie_where_the_build_says(builds: Path, source: Path) -> None:
    metrics = {"loops": METRICS["loops"], "main": MetricSpec(event="entry", function="main")}
    cases: tuple[tuple[Placement, int], ...] = (("packed", 8), ("cache_line", 64))
    for placement, stride in cases:
        build = build_program([source], ["-O1"], metrics, placement=placement)
        assert {name: at.offset_bytes for name, at in build.counters.items()} == {"loops": 0, "main": stride}
        with build.elf_path.open("rb") as file:
            (symbol,) = symbols_of(file).get_symbol_by_name("__measure_counters") or []
        assert symbol["st_value"] % 64 == 0
        assert symbol["st_size"] == 2 * stride


def test_the_sampler_is_independent_of_the_programs_dialect(builds: Path, source: Path) -> None:
    source.write_text("main() { return 0; }\n")
    build = build_program([source], ["-O0", "-std=c89"], sampler=SamplerConfig(1000, 29))
    with build.elf_path.open("rb") as file:
        names = {symbol.name for symbol in symbols_of(file).iter_symbols()}
    assert "take_record" in names or "on_timer" in names


def test_what_the_preprocessor_was_told_is_not_said_twice(builds: Path, tmp_path: Path) -> None:
    (tmp_path / "defs.h").write_text("int from_header = 1;\n")
    source = tmp_path / "twice.c"
    source.write_text("int WORD = 2;\nint main(void) { return from_header + other - 3; }\n")
    flags = ["-DWORD=other", "-include", "defs.h", "-O1", f"-I{tmp_path}"]
    build = build_program([source], flags, {"n": MetricSpec(event="entry", function="main")}, target=None)
    assert subprocess.run([build.elf_path], check=False).returncode == 0
    assert without_preprocessor_flags([*flags, "-D", "A", "-O2", "-Umain", "-isystem", "x"]) == ["-O1", "-O2"]


def test_the_first_use_of_the_compiler_is_announced_and_builds_the_libraries_on_all_processors(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "fresh"))
    monkeypatch.setattr("os.cpu_count", lambda: 6)
    said: list[str] = []
    drivers: list[tuple[str, str]] = []

    def run(self: Toolchain, arguments: list[str], directory: Path, driver: str = "cc") -> tuple[int, bytes, bytes]:
        drivers.append((driver, arguments[0]))
        return 0, b"", b""

    monkeypatch.setattr(Toolchain, "run", run)
    monkeypatch.setattr(Toolchain, "prepare_common_library", lambda self: False)  # with which C++ is tried as C
    toolchain = Toolchain("riscv64-linux-musl", said.append)
    toolchain.link([source], [], tmp_path / "out", "c++")
    toolchain.link([source], [], tmp_path / "out", "c++")
    assert said == [
        "First use of the compiler for riscv64-linux-musl, or its cache was emptied: it builds its C++ library now, "
        "which takes about two minutes on two processors and is kept."
    ]
    assert [driver for driver, _ in drivers] == ["build-exe", "c++", "c++"]
    assert drivers[0] == ("build-exe", "-j8")


def test_a_compiler_that_takes_too_long_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = tmp_path / "child"
    sleeper = [
        sys.executable,
        "-c",
        f"import os, time; open({str(marker)!r}, 'w').write(str(os.getpid())); time.sleep(60)",
    ]
    monkeypatch.setattr(Toolchain, "command", lambda self, arguments, driver: sleeper)
    (tmp_path / "x.c").write_text("")
    with pytest.raises(ToolchainError) as caught:
        Toolchain(None, timeout_seconds=1.0).compile(tmp_path / "x.c", ["-O1"], tmp_path / "x.o")
    assert str(caught.value).startswith("the compiler did not finish within 1 s: zig cc ")
    deadline = time.monotonic() + 5
    while marker.exists() and time.monotonic() < deadline:
        try:
            os.kill(int(marker.read_text()), 0)
        except ProcessLookupError:
            break
    else:
        pytest.fail("the compiler is still running")


def test_flags_that_spoil_the_preprocessors_output_are_left_out(tmp_path: Path) -> None:
    source = tmp_path / "comments.c"
    source.write_text("int n; /* one */\nint m;\n")
    assert Toolchain(None).preprocess(source, ["-C", "-P"]) == Toolchain(None).preprocess(source, [])


def test_builds_are_kept_by_all_sources_of_the_instrumenter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of flags that are left out and of the C library were missing: old builds were taken after a change."""
    monkeypatch.setattr(build_module, "source_digest", lambda paths: " ".join(map(str, paths)))
    hashed = [Path(path) for path in build_module.generator_digest.__wrapped__().split()]
    files = [path for path in build_module.PACKAGE.rglob("*.*") if path.is_file() and path.suffix != ".pyc"]
    assert build_module.PACKAGE / "compiler" / "left_out_flags.py" in files
    assert [path for path in files if path.suffix not in SUFFIXES or not any(map(path.is_relative_to, hashed))] == []


@pytest.mark.parametrize("module", [build_module, project_module])
def test_a_build_of_another_instrumenter_is_not_taken(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def key() -> str:
        if module is build_module:
            return Recipe({Path("a.c"): ""})._cache_path({}, 0).name
        recipe = ProjectRecipe(Project(Path("a"), "make", "a"), "tree", "environment")
        return recipe._cache_path(recipe._spec({}, 0)).name

    before = key()
    assert key() == before
    monkeypatch.setattr(module, "generator_digest", lambda: "another")
    assert key() != before


def test_the_digest_of_a_program_is_the_same_in_any_folder(tmp_path: Path) -> None:
    """It tells two versions of a program apart, and no copies: of places, comments and metrics it knows nothing."""

    def digest(folder: str, text: str, flags: tuple[str, ...] = ("-O2",)) -> str:
        path = tmp_path / folder / "program.c"
        path.parent.mkdir()
        path.write_text(text)
        (path.parent / "own.h").write_text("static const char *where(void) { return __FILE__; }\n")
        chosen = (*flags, f"-I{path.parent}")
        preprocessed = build_module.preprocess_all([path], chosen, Toolchain(GUEST_TARGET))
        return Recipe(preprocessed, chosen, placement="cache_line" if folder == "b" else "packed").program_digest

    text = "#include \"own.h\"\nint main(void) { return where()[0] == '/'; }\n"
    first = digest("a", text)
    assert digest("b", text + "/* The same. */\n\n") == first
    assert digest("c", text.replace("== '/'", "== '.'")) != first
    assert digest("d", text, ("-O1",)) != first
    project = Project(tmp_path / "a", "make", "program")
    made_from = [("tree", "variables"), ("another tree", "variables"), ("tree", "other variables")]
    assert len({ProjectRecipe(project, *each).program_digest for each in made_from}) == 3
