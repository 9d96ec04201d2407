"""The tree of debug information's entries against pyelftools."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from emulator.linux.loader.debug_entries import UnitEntries, entries_section
from instrumenter.compiler.toolchain import Toolchain

SOURCE = """
namespace geo { template <class T> struct Stack { T items[9]; int n = 0; void push(T one) { items[n++ % 9] = one; } }; }
enum class Kind : signed char { a = -1, b };
static geo::Stack<long> longs;
struct Far { Kind kind; unsigned narrow : 3; double values[1000]; } far;
static inline int twice(int n) { for (int i = 0; i < n; i++) longs.push(i * n); return longs.n; }
int main(int argc, char **) { far.narrow = argc; auto turn = [&](int n) { return twice(n); }; return turn(argc) != 1; }
"""
TAGS = frozenset({"DW_TAG_namespace", "DW_TAG_subprogram", "DW_TAG_inlined_subroutine", "DW_TAG_structure_type"})


@pytest.fixture(scope="module", params=["-gdwarf-4", "-gdwarf-5"])
def dwarf(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("entries")
    (folder / "far.cpp").write_text(SOURCE)
    toolchain = Toolchain()
    toolchain.compile(folder / "far.cpp", ["-O1", "-g", request.param], folder / "far.o")
    # Linked as other programs are: for other options the compiler would make its C++ library anew.
    toolchain.link([folder / "far.o"], ["-O2"], folder / "far", "c++")
    return ELFFile(io.BytesIO((folder / "far").read_bytes())).get_dwarf_info()


def test_entries_are_those_of_pyelftools(dwarf: Any) -> None:
    """In all units, those of the C and C++ libraries as well."""
    section, numbers = entries_section(dwarf), 0
    for unit in dwarf.iter_CUs():
        entries = UnitEntries(section, unit, TAGS)
        expected = [die for die in unit.iter_DIEs() if not die.is_null()]
        assert sorted([entries.root, *entries.parents]) == [die.offset for die in expected]
        for die in expected:
            assert entries.tag(die.offset) == die.tag
            assert entries.parents.get(die.offset) == (die.get_parent().offset if die.get_parent() else None)
            below = [child.offset for child in die.iter_children() if child.tag in TAGS] if die.has_children else []
            assert entries.children.get(die.offset, []) == below
            for name, attribute in die.attributes.items():
                assert entries.has(die.offset, name)
                if name in ("DW_AT_decl_line", "DW_AT_decl_file", "DW_AT_call_line"):
                    assert entries.number(die.offset, name) == attribute.value
                    numbers += 1
                elif attribute.form == "DW_FORM_ref4":
                    assert entries.number(die.offset, name) == die.get_DIE_from_attribute(name).offset
                    numbers += 1
            assert entries.number(die.offset, "DW_AT_producers") is None
    assert numbers > 1000


def test_below_goes_into_the_tags_that_are_given(dwarf: Any) -> None:
    unit = next(unit for unit in dwarf.iter_CUs() if b"far.cpp" in unit.get_top_DIE().attributes["DW_AT_name"].value)
    entries = UnitEntries(entries_section(dwarf), unit, TAGS)

    def tags(*into: str) -> set[str]:
        return {entries.tag(entry) for entry in entries.below(entries.root, into)}

    assert tags() == {"DW_TAG_namespace", "DW_TAG_structure_type", "DW_TAG_subprogram"}
    assert tags("DW_TAG_subprogram") == TAGS
    root_only = set(entries.children[entries.root])
    assert set(entries.below(entries.root, ())) == root_only


def test_damaged_entries_raise_and_never_hang(dwarf: Any) -> None:
    unit = next(dwarf.iter_CUs())
    section = entries_section(dwarf)
    with pytest.raises((KeyError, IndexError, ValueError)):
        UnitEntries(section[: unit.cu_die_offset + 1] + b"\xff" * len(section), unit, TAGS)
    with pytest.raises((KeyError, IndexError, ValueError)):
        UnitEntries(section[: unit.cu_offset + unit.size // 2], unit, TAGS)
