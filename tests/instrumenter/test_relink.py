"""Programs linked anew in an order of functions and data for each run."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.linux.loader.elf import ElfImage, load_image
from emulator.linux.vfs.files import VirtualFiles
from emulator.machine import Machine
from instrumenter.building.generated_sources import preprocess_all
from instrumenter.building.program_build import Build, Recipe
from instrumenter.building.relink import COMMAND_NAME, OBJECTS, PADDING, can_relink, keep_link, relinked, symbol_order
from instrumenter.compiler.toolchain import Toolchain, linker_arguments
from instrumenter.errors import SourceError
from instrumenter.spec.software_metrics import MetricSpec
from tests.measure.demo_program import PROGRAM

WORK = {"work": MetricSpec(event="entry", function="work")}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    source = tmp_path_factory.mktemp("relink") / "demo.c"
    source.write_text(PROGRAM)
    return Recipe(preprocess_all([source], ("-O2",), Toolchain()), relinkable=True)


@pytest.fixture(scope="module")
def plain(recipe: Recipe) -> Build:
    return recipe.build({})


def own(image: ElfImage) -> list[str]:
    """Functions and variables by address, without gaps."""
    symbols = [one for one in image.symbols if one.size_bytes and not one.name.startswith(PADDING)]
    return [one.name for one in sorted(symbols, key=lambda one: (one.address, one.name))]


def output_of(program: bytes) -> bytes:
    files = VirtualFiles()
    with Machine(program, (), files=files, background=False) as machine:
        machine.run()
        assert machine.ending is not None
        assert machine.ending.status == 0
    return bytes(files.output(1))


def test_the_linkers_call_is_the_programs_own() -> None:
    """On first use the compiler links parts of its C library before the program."""
    messages = b"ld.lld -r -m elf64lriscv -o crt1.o a.o\noutput\nld.lld -m elf64lriscv -static -o program b.o libc.a\n"
    assert linker_arguments(messages) == ["-m", "elf64lriscv", "-static", "-o", "program", "b.o", "libc.a"]
    assert linker_arguments(b"ld.lld -r -o crt1.o a.o\n") == []
    assert linker_arguments(b"") == []


def test_a_call_that_makes_no_program_is_not_kept(plain: Build, tmp_path: Path) -> None:
    folder = tmp_path / "build"
    folder.mkdir()
    shutil.copy(plain.elf_path, folder / "program")
    (source := tmp_path / "part.c").write_text("int part;\n")
    Toolchain().compile(source, [], tmp_path / "part.o")
    assert not keep_link(folder, ["-r", "-m", "elf64lriscv", str(tmp_path / "part.o")])
    assert [path.name for path in folder.iterdir()] == ["program"]


def test_a_program_that_the_linker_compiles(recipe: Recipe, plain: Build, tmp_path: Path) -> None:
    """By -flto, objects are no ELF files."""
    source = tmp_path / "demo.c"
    source.write_text(PROGRAM)
    whole = Recipe(preprocess_all([source], ("-O2", "-flto"), Toolchain()), relinkable=True).build(WORK)
    expected = output_of(plain.elf_path.read_bytes())
    assert output_of(whole.elf_path.read_bytes()) == expected
    assert whole.sites == recipe.build(WORK).sites
    assert whole.relinkable
    assert len({hashlib.sha256(relinked(whole.elf_path, seed)).digest() for seed in range(3)}) == 3
    assert output_of(relinked(whole.elf_path, 1)) == expected


def test_a_shifted_program_is_linked_from_the_objects_of_the_unshifted_one(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    unshifted = recipe.build(WORK)
    compiled: list[str] = []
    compile_one = Toolchain.compile

    def compile_and_note(self: Toolchain, source: Path, flags: list[str], output: Path) -> None:
        compiled.append(source.name)
        compile_one(self, source, flags, output)

    monkeypatch.setattr(Toolchain, "compile", compile_and_note)
    shifted = recipe.build(WORK, 1234)
    assert compiled in ([], ["layout.c"])  # none if an earlier run left it in the cache
    assert shifted.relinkable
    assert (shifted.sites, shifted.places, shifted.counters) == (unshifted.sites, unshifted.places, unshifted.counters)
    assert shifted.static_instructions == unshifted.static_instructions
    before, after = (load_image(one.elf_path.read_bytes()) for one in (unshifted, shifted))
    moved = {name: after.find_symbol(name).address - before.find_symbol(name).address for name in ("work", "main")}  # type: ignore[union-attr]
    assert len(set(moved.values())) == 1
    assert moved["work"] in range(1234, 1234 + 128)  # the padding's unwind table lies before the code, too
    assert after.source_line(after.find_symbol("work").address) is not None  # type: ignore[union-attr]
    assert output_of(shifted.elf_path.read_bytes()) == output_of(unshifted.elf_path.read_bytes())
    assert output_of(relinked(shifted.elf_path, 5)) == output_of(shifted.elf_path.read_bytes())


def test_each_seed_gives_another_order_of_the_same_program(plain: Build) -> None:
    assert plain.relinkable
    programs = [relinked(plain.elf_path, seed) for seed in (1, 2, 3)]
    images = [load_image(program) for program in programs]
    orders = [own(image) for image in images]
    assert len({tuple(order) for order in orders}) == 3
    assert len({tuple(sorted(order)) for order in orders}) == 1
    assert len({image.find_symbol("work").address for image in images}) == 3  # type: ignore[union-attr]
    assert len({image.find_symbol("table").address for image in images}) == 3  # type: ignore[union-attr]
    assert len({output_of(program) for program in (*programs, plain.elf_path.read_bytes())}) == 1


def test_the_same_seed_gives_the_same_program_to_the_bit(plain: Build) -> None:
    first, second = (hashlib.sha256(relinked(plain.elf_path, 7)).digest() for _ in range(2))
    assert first == second


def test_programs_of_one_seed_have_their_shared_functions_in_the_same_order(recipe: Recipe, plain: Build) -> None:
    counting, control = recipe.build(WORK), recipe.with_null_control().build({})
    for seed in range(3):
        orders = [own(load_image(relinked(build.elf_path, seed))) for build in (plain, counting, control)]
        shared = set(orders[0]).intersection(*orders)
        assert {"work", "next", "main"} <= shared
        kept = [[name for name in order if name in shared] for order in orders]
        assert kept[0] == kept[1] == kept[2]
    assert "__measure_null_control" in orders[2]
    assert "__measure_null_control" not in orders[0] + orders[1]
    image = load_image(relinked(counting.elf_path, 1))
    assert image.find_symbol(counting.counters["work"].symbol) is not None


def test_the_gaps_are_not_counted_as_the_programs_instructions(recipe: Recipe, plain: Build) -> None:
    whole = Recipe(recipe.preprocessed).build({})
    assert plain.text_bytes > whole.text_bytes
    assert plain.static_instructions <= whole.static_instructions


@given(names=st.lists(st.text(min_size=1), unique=True), seed=st.integers(0, 2**31), kept=st.data())
def test_a_part_of_the_symbols_has_the_order_of_the_whole(names: list[str], seed: int, kept: st.DataObject) -> None:
    part = kept.draw(st.sets(st.sampled_from(names))) if names else set()
    whole = symbol_order(names, seed)
    assert sorted(whole) == sorted(names)
    assert symbol_order(sorted(part), seed) == [name for name in whole if name in part]


def test_a_program_whose_objects_are_gone_cannot_be_linked_and_is_built_again(recipe: Recipe) -> None:
    metrics = {"next": MetricSpec(event="entry", function="next")}
    build = recipe.build(metrics)
    shutil.rmtree(build.elf_path.parent / OBJECTS)
    assert not can_relink(build.elf_path)
    with pytest.raises(SourceError, match=r"cannot be linked anew: .*cannot open"):
        relinked(build.elf_path, 1)
    assert recipe.find(metrics) is None
    assert recipe.build(metrics).relinkable
    assert relinked(build.elf_path, 1)


def test_a_command_without_its_files_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "program").write_bytes(b"")
    assert not keep_link(tmp_path, [])
    assert not keep_link(tmp_path, ["-O3", "-o", "x", str(tmp_path / "missing.o")])
    assert not (tmp_path / COMMAND_NAME).exists()


def test_a_symbol_is_none_of_the_files(plain: Build, tmp_path: Path) -> None:
    """Symbols of C++ may be longer than names of files may be, and a program may have the name of a function."""
    folder, directory = tmp_path / "folder", tmp_path / "project"
    shutil.copytree(plain.elf_path.parent, folder)
    words = json.loads((folder / COMMAND_NAME).read_text())["words"]
    inputs = [str(folder / word) if word.startswith(f"{OBJECTS}/") else word for word in words]
    directory.mkdir()
    (directory / "work").write_text("not an object")
    named = ["-u", "work", "-u", f"_Z300{'x' * 300}"]
    assert keep_link(folder, [*named, *inputs], directory)
    assert json.loads((folder / COMMAND_NAME).read_text())["words"][: len(named)] == named
    assert output_of(relinked(folder / "program", 1)) == output_of(plain.elf_path.read_bytes())


def test_the_linkers_arguments_are_found_in_the_compilers_messages() -> None:
    assert linker_arguments(b"warning: w\nld.lld -static -o p a.o\nother\n") == ["-static", "-o", "p", "a.o"]
    assert linker_arguments(b"nothing\n") == []
