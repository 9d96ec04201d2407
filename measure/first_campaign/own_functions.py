"""The functions of a program's own sources, from its debug information: their names, and which instructions are theirs.

An instruction belongs to the innermost function around it, inlined ones included, that is written in the program's own
sources: what a function executes of the C and C++ libraries' inline functions is its own time. Functions that the
compiler made itself, such as the constructor of a class that has none, belong to what they are inlined into.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from common.cplusplus_symbols import without_arguments, without_library_details
from common.library_sources import is_library_source

_RECORDS = ("DW_TAG_class_type", "DW_TAG_structure_type", "DW_TAG_union_type")
_AROUND_FUNCTIONS = (*_RECORDS, "DW_TAG_namespace", "DW_TAG_subprogram", "DW_TAG_lexical_block")
_TREE = frozenset((*_AROUND_FUNCTIONS, "DW_TAG_inlined_subroutine"))
_WRAPPERS = {
    "DW_TAG_pointer_type": "*", "DW_TAG_reference_type": "&", "DW_TAG_rvalue_reference_type": "&&",
}  # fmt: skip
_QUALIFIERS = {"DW_TAG_const_type": "const", "DW_TAG_volatile_type": "volatile"}


class Definition(NamedTuple):
    """A function in the program's sources, all instances of a template together. ``parts``: of its qualified name, as
    the instrumenter has it: without inline and unnamed namespaces and template arguments."""

    file: str
    line: int
    parts: tuple[str, ...]

    @property
    def name(self) -> str:
        """The qualified name: ``ns::Box::push``."""
        return "::".join(self.parts)


Types = tuple[str, ...] | None
"""The types of a function's parameters; None if they cannot be written down."""


@dataclass(frozen=True)
class OwnFunctions:
    """``definitions``: all own functions, and the types of their parameters; ``owner``: for each of the instructions
    asked for the index of its function, -1 without one; ``line``: the instruction's line in that function, of one that
    is from the library's inline functions the line that calls these; 0 if it is not known, or in another file."""

    definitions: Mapping[Definition, Types]
    owner: NDArray[np.int64]
    line: NDArray[np.int64]


def own_functions(program: Path, pcs: NDArray[np.int64]) -> OwnFunctions:
    """The own functions of an ELF program, and which of them the instructions at ``pcs`` (sorted) belong to.

    Units with damaged or unknown debug information have no own functions.
    """
    from elftools.elf.elffile import ELFFile

    from emulator.linux.loader.debug_entries import entries_section

    definitions: dict[Definition, set[Types]] = {}
    owner, line = np.full(len(pcs), -1, np.int64), np.zeros(len(pcs), np.int64)
    with program.open("rb") as file:
        elf = ELFFile(file)
        if elf.has_dwarf_info():
            dwarf = elf.get_dwarf_info()
            section = entries_section(dwarf)
            for unit in dwarf.iter_CUs():
                with suppress(Exception):  # damaged information makes the parser raise almost anything
                    if not is_library_source(_text(unit.get_top_DIE(), "DW_AT_name")):
                        _Unit(dwarf, section, unit, definitions).assign(pcs, owner, line)
    types = {one: next(iter(found)) if len(found) == 1 else None for one, found in definitions.items()}
    return OwnFunctions(types, owner, line)


class _Unit:
    """One compiled source; adds its functions, and the types of their instances' parameters, to ``definitions``."""

    def __init__(
        self, dwarf: Any, section: bytes, unit: Any, definitions: dict[Definition, set[Types]]
    ) -> None:  # fmt: skip
        from emulator.linux.loader.debug_entries import UnitEntries
        from emulator.linux.loader.debug_lines import unit_files

        self._dwarf, self._unit, self._definitions = dwarf, unit, definitions
        self._lines = dwarf.line_program_for_CU(unit)
        self._files: Mapping[int, str] = unit_files(self._lines, unit) if self._lines is not None else {}
        self._entries = UnitEntries(section, unit, _TREE)
        self._indices = {one: index for index, one in enumerate(definitions)}
        self._known: dict[int, int] = {}

    def assign(self, pcs: NDArray[np.int64], owner: NDArray[np.int64], line: NDArray[np.int64]) -> None:
        """Set ``owner`` and ``line`` of the instructions of this unit."""
        entries = self._entries
        functions = [
            entry for entry in entries.below(entries.root, _AROUND_FUNCTIONS)
            if entries.tag(entry) == "DW_TAG_subprogram" and not entries.has(entry, "DW_AT_declaration")
        ]  # fmt: skip
        for entry in functions:
            self._definition(entry)
        for entry in functions:
            for low, high in self._ranges(entry):
                first, last = np.searchsorted(pcs, (low, high))
                if first < last:
                    owner[first:last] = self._definition(entry)
                    self._inlined(entry, self._definition(entry), 0, pcs, owner, line)
        if any(index >= 0 for index in self._known.values()):
            self._own_lines(pcs, owner, line)

    def _own_lines(self, pcs: NDArray[np.int64], owner: NDArray[np.int64], line: NDArray[np.int64]) -> None:
        """Set ``line`` of instructions of own functions that are not the library's, nor of another file that is
        included in the middle of a function."""
        files = np.array([one.file for one in self._indices])
        before = None
        for entry in self._lines.get_entries():
            state = entry.state
            if state is None:
                continue
            if before is not None and state.address > before[0]:
                first, last = np.searchsorted(pcs, (before[0], state.address))
                if first < last:
                    lines, owners = line[first:last], owner[first:last]
                    lines[(lines == 0) & (owners >= 0) & (files[owners] == before[2])] = before[1]
            before = None if state.end_sequence else (state.address, state.line, self._files.get(state.file, ""))

    def _parts(self, entry: int) -> tuple[str, ...]:
        """The qualified name of the function that an entry declares, as the instrumenter has it."""
        entries = self._entries
        name = without_arguments(_text(entries.decoded(entry), "DW_AT_name"))
        scope = self._around(entries.parents.get(entry))
        if scope and scope[-1].startswith("@") and name == "operator()":
            # The instrumenter names a lambda outside of functions after its variable, which is not known here.
            name, scope = f"lambda{scope[-1]}", scope[:-1] if self._in_function(entry) else ()
        return (*(part for part in scope if not part.startswith("@")), name)

    def _around(self, entry: int | None) -> tuple[str, ...]:
        """The names of an entry and those around it, without inline and unnamed namespaces; of a class without a name
        ``@`` and its line."""
        if entry is None:
            return ()
        tag = self._entries.tag(entry)
        if tag == "DW_TAG_subprogram":
            return self._parts(self._chain(entry)[-1])
        scope = self._around(self._entries.parents.get(entry))
        if tag == "DW_TAG_namespace":
            name = _text(self._entries.decoded(entry), "DW_AT_name")
            return (*scope, name) if name and not self._entries.has(entry, "DW_AT_export_symbols") else scope
        if tag in _RECORDS:
            name = _text(self._entries.decoded(entry), "DW_AT_name")
            line = self._entries.number(entry, "DW_AT_decl_line")
            return (*scope, without_arguments(name) if name else f"@{line or 0}")
        return scope

    def _in_function(self, entry: int) -> bool:
        around: int | None = self._entries.parents.get(entry)
        while around is not None and self._entries.tag(around) != "DW_TAG_subprogram":
            around = self._entries.parents.get(around)
        return around is not None

    def _chain(self, entry: int) -> list[int]:
        """An entry and those of this unit that it completes; the declaration last."""
        found = [entry]
        while True:
            links = (self._entries.number(found[-1], one) for one in ("DW_AT_abstract_origin", "DW_AT_specification"))
            link = next((one for one in links if one is not None), None)
            if link is None or link not in self._entries.parents:
                return found
            found.append(link)

    def _definition(self, entry: int) -> int:
        """The index of the definition that a function's entry is about; -1 if it is not written in own sources."""
        chain = self._chain(entry)
        place = chain[-1]
        if place not in self._known:
            file = self._files.get(self._first_number(chain, "DW_AT_decl_file"), "")
            line = self._first_number(chain, "DW_AT_decl_line")
            self._known[place] = -1
            by_compiler = any(self._entries.has(one, "DW_AT_artificial") for one in chain)
            if file and line and not by_compiler and not is_library_source(file):
                one = Definition(file, line, self._parts(place))
                self._definitions.setdefault(one, set()).add(self._parameters(place))
                self._known[place] = self._indices.setdefault(one, len(self._indices))
        return self._known[place]

    def _first_number(self, chain: Sequence[int], attribute: str) -> int:
        numbers = (self._entries.number(one, attribute) for one in chain)
        return next((number for number in numbers if number is not None), 0)

    def _inlined(
        self, entry: int, index: int, called: int, pcs: NDArray[np.int64], owner: NDArray[np.int64],
        line: NDArray[np.int64],
    ) -> None:  # fmt: skip
        """Give the code of functions inlined into ``entry`` to them, or to the function ``index`` if they are not own.

        ``called``: the line of that function where the library's code around ``entry`` is called, 0 outside of it.
        """
        for child in self._entries.children.get(entry, ()):
            inner, at = index, called
            tag = self._entries.tag(child)
            if tag == "DW_TAG_inlined_subroutine":
                inner, at = self._definition(child), 0
                if inner < 0:
                    inner, at = index, called or self._entries.number(child, "DW_AT_call_line") or 0
                for low, high in self._ranges(child):
                    first, last = np.searchsorted(pcs, (low, high))
                    owner[first:last], line[first:last] = inner, at
            if tag in ("DW_TAG_inlined_subroutine", "DW_TAG_lexical_block"):
                self._inlined(child, inner, at, pcs, owner, line)

    def _ranges(self, entry: int) -> list[tuple[int, int]]:
        """The code of an entry, without code that the linker dropped."""
        if not self._entries.has(entry, "DW_AT_low_pc") and not self._entries.has(entry, "DW_AT_ranges"):
            return []
        about = self._entries.decoded(entry).attributes
        ranges = []
        if "DW_AT_low_pc" in about and "DW_AT_high_pc" in about:
            low, high = about["DW_AT_low_pc"].value, about["DW_AT_high_pc"]
            ranges = [(low, high.value if high.form == "DW_FORM_addr" else low + high.value)]
        elif "DW_AT_ranges" in about:
            base = _number(self._unit.get_top_DIE(), "DW_AT_low_pc")
            for one in self._dwarf.range_lists().get_range_list_at_offset(about["DW_AT_ranges"].value, self._unit):
                if hasattr(one, "base_address"):
                    base = one.base_address
                else:
                    start = 0 if getattr(one, "is_absolute", False) else base
                    ranges.append((start + one.begin_offset, start + one.end_offset))
        return [(low, high) for low, high in ranges if 0 < low < high]

    # --- types of parameters, as the compiler writes them
    def _parameters(self, entry: int) -> Types:
        found: list[str] = []
        for child in self._entries.decoded(entry).iter_children():
            if child.tag == "DW_TAG_unspecified_parameters":
                return None
            if child.tag == "DW_TAG_formal_parameter" and "DW_AT_artificial" not in child.attributes:
                text = self._type(child)
                if text is None:
                    return None
                found.append(text)
        return tuple(found)

    def _type(self, die: Any) -> str | None:
        """The type of an entry: names without inline namespaces, typedefs of scalars resolved; None for others."""
        if "DW_AT_type" not in die.attributes:
            return "void"
        die = die.get_DIE_from_attribute("DW_AT_type")
        if die.tag in _WRAPPERS:
            inner = self._type(die)
            return inner and f"{inner}{'' if inner.endswith(('*', '&')) else ' '}{_WRAPPERS[die.tag]}"
        if die.tag in _QUALIFIERS:
            inner = self._type(die)
            word = _QUALIFIERS[die.tag]
            return inner and (f"{inner} {word}" if inner.endswith("*") else f"{word} {inner}")
        name = _text(die, "DW_AT_name")
        if die.tag == "DW_TAG_base_type":
            return name
        if die.tag == "DW_TAG_typedef":
            meant = die
            while meant.tag == "DW_TAG_typedef" and "DW_AT_type" in meant.attributes:
                meant = meant.get_DIE_from_attribute("DW_AT_type")
            if meant.tag not in _RECORDS:
                return self._type(die)
        elif die.tag not in (*_RECORDS, "DW_TAG_enumeration_type") or not name:
            return None
        around = self._around(self._entries.parents.get(die.offset))
        whole = "::".join((*(part for part in around if not part.startswith("@")), name))
        return without_library_details(whole)


def _text(die: Any, attribute: str) -> str:
    found = die.attributes.get(attribute)
    return str(found.value.decode("utf-8", "surrogateescape")) if found is not None else ""


def _number(die: Any, attribute: str) -> int:
    found = die.attributes.get(attribute)
    return int(found.value) if found is not None and isinstance(found.value, int) else 0
