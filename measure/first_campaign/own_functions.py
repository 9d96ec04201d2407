"""The functions of a program's own sources, from its debug information: their names, and which instructions are theirs.

An instruction belongs to the innermost function around it, inlined ones included, that is written in the program's own
sources: what a function executes of the C and C++ libraries' inline functions is its own time. Functions that the
compiler made itself, such as the constructor of a class that has none, belong to what they are inlined into.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_LIBRARIES = "/ziglang/"  # in the paths of the C and C++ libraries' sources
_RECORDS = ("DW_TAG_class_type", "DW_TAG_structure_type", "DW_TAG_union_type")
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
    asked for the index of its function, -1 without one; ``line``: the line in that function that calls the library's
    function which the instruction is from, 0 outside of these."""

    definitions: Mapping[Definition, Types]
    owner: NDArray[np.int64]
    line: NDArray[np.int64]


def own_functions(program: Path, pcs: NDArray[np.int64]) -> OwnFunctions:
    """The own functions of an ELF program, and which of them the instructions at ``pcs`` (sorted) belong to."""
    from elftools.elf.elffile import ELFFile

    definitions: dict[Definition, set[Types]] = {}
    owner, line = np.full(len(pcs), -1, np.int64), np.zeros(len(pcs), np.int64)
    with program.open("rb") as file:
        dwarf = ELFFile(file).get_dwarf_info()
        for unit in dwarf.iter_CUs():
            name = unit.get_top_DIE().attributes.get("DW_AT_name")
            if name is None or _LIBRARIES not in name.value.decode("utf-8", "surrogateescape"):
                _Unit(dwarf, unit, definitions).assign(pcs, owner, line)
    types = {one: next(iter(found)) if len(found) == 1 else None for one, found in definitions.items()}
    return OwnFunctions(types, owner, line)


class _Unit:
    """One compiled source; adds its functions, and the types of their instances' parameters, to ``definitions``."""

    def __init__(self, dwarf: Any, unit: Any, definitions: dict[Definition, set[Types]]) -> None:
        from emulator.linux.loader.debug_lines import unit_files

        self._dwarf, self._unit, self._definitions = dwarf, unit, definitions
        table = dwarf.line_program_for_CU(unit)
        self._files: Mapping[int, str] = unit_files(table, unit) if table is not None else {}
        self._scopes: dict[int, tuple[str, ...]] = {}
        self._indices = {one: index for index, one in enumerate(definitions)}
        self._known: dict[int, int] = {}

    def assign(self, pcs: NDArray[np.int64], owner: NDArray[np.int64], line: NDArray[np.int64]) -> None:
        """Set ``owner`` and ``line`` of the instructions of this unit."""
        functions = list(self._functions(self._unit.get_top_DIE(), ()))
        for die in functions:
            if "DW_AT_declaration" not in die.attributes:
                self._definition(die)
        for die in functions:
            for low, high in self._ranges(die):
                first, last = np.searchsorted(pcs, (low, high))
                if first < last:
                    owner[first:last] = self._definition(die)
                    self._inlined(die, self._definition(die), 0, pcs, owner, line)

    def _functions(self, die: Any, scope: tuple[str, ...]) -> Iterator[Any]:
        """The functions below ``die``, whose scopes are noted."""
        for child in die.iter_children():
            if child.tag == "DW_TAG_subprogram":
                self._scopes[child.offset] = scope
                yield child
            if child.tag == "DW_TAG_inlined_subroutine" or not child.has_children:
                continue
            inner = scope
            name = _text(child, "DW_AT_name")
            if child.tag == "DW_TAG_namespace":
                inner = (*scope, name) if name and "DW_AT_export_symbols" not in child.attributes else scope
            elif child.tag in _RECORDS:
                inner = (*scope, _without_arguments(name) if name else f"@{_number(child, 'DW_AT_decl_line')}")
            elif child.tag == "DW_TAG_subprogram":
                inner = self._parts(child)
            yield from self._functions(child, inner)

    def _parts(self, die: Any) -> tuple[str, ...]:
        """The qualified name of a function, as the instrumenter has it."""
        last = _chain(die)[-1]
        scope, name = self._scopes.get(last.offset, ()), _without_arguments(_text(last, "DW_AT_name"))
        if scope and scope[-1].startswith("@") and name == "operator()":
            # The instrumenter names a lambda outside of functions after its variable, which is not known here.
            name, scope = f"lambda{scope[-1]}", scope[:-1] if _in_function(last) else ()
        return (*(part for part in scope if not part.startswith("@")), name)

    def _definition(self, die: Any) -> int:
        """The index of the definition that a function's entry is about; -1 if it is not written in own sources."""
        chain = _chain(die)
        place = chain[-1].offset
        if place not in self._known:
            number = next((_number(one, "DW_AT_decl_file") for one in chain if "DW_AT_decl_file" in one.attributes), 0)
            line = next((_number(one, "DW_AT_decl_line") for one in chain if "DW_AT_decl_line" in one.attributes), 0)
            file = self._files.get(number, "")
            by_compiler = any("DW_AT_artificial" in one.attributes for one in chain)
            self._known[place] = -1
            if file and line and not by_compiler and _LIBRARIES not in file:
                one = Definition(file, line, self._parts(die))
                self._definitions.setdefault(one, set()).add(self._parameters(chain))
                self._known[place] = self._indices.setdefault(one, len(self._indices))
        return self._known[place]

    def _inlined(
        self, die: Any, index: int, called: int, pcs: NDArray[np.int64], owner: NDArray[np.int64],
        line: NDArray[np.int64],
    ) -> None:  # fmt: skip
        """Give the code of functions inlined into ``die`` to them, or to the function ``index`` if they are not own.

        ``called``: the line of that function where the library's code around ``die`` is called, 0 outside of it.
        """
        for child in die.iter_children():
            inner, at = index, called
            if child.tag == "DW_TAG_inlined_subroutine":
                inner, at = self._definition(child), 0
                if inner < 0:
                    inner, at = index, called or _number(child, "DW_AT_call_line")
                for low, high in self._ranges(child):
                    first, last = np.searchsorted(pcs, (low, high))
                    owner[first:last], line[first:last] = inner, at
            if child.has_children and child.tag in ("DW_TAG_inlined_subroutine", "DW_TAG_lexical_block"):
                self._inlined(child, inner, at, pcs, owner, line)

    def _ranges(self, die: Any) -> list[tuple[int, int]]:
        """The code of an entry, without code that the linker dropped."""
        about = die.attributes
        if "DW_AT_low_pc" in about and "DW_AT_high_pc" in about:
            low, high = about["DW_AT_low_pc"].value, about["DW_AT_high_pc"]
            ranges = [(low, high.value if high.form == "DW_FORM_addr" else low + high.value)]
        elif "DW_AT_ranges" in about:
            base = _number(self._unit.get_top_DIE(), "DW_AT_low_pc")
            ranges = []
            for one in self._dwarf.range_lists().get_range_list_at_offset(about["DW_AT_ranges"].value, self._unit):
                if hasattr(one, "base_address"):
                    base = one.base_address
                else:
                    start = 0 if getattr(one, "is_absolute", False) else base
                    ranges.append((start + one.begin_offset, start + one.end_offset))
        else:
            ranges = []
        return [(low, high) for low, high in ranges if 0 < low < high]

    # --- types of parameters, as the compiler writes them
    def _parameters(self, chain: Sequence[Any]) -> Types:
        found: list[str] = []
        for child in chain[-1].iter_children():
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
        return "::".join((*_around(die), name))


def _in_function(die: Any) -> bool:
    parent = die.get_parent()
    while parent is not None and parent.tag != "DW_TAG_subprogram":
        parent = parent.get_parent()
    return parent is not None


def _around(die: Any) -> tuple[str, ...]:
    """The namespaces and classes around a type."""
    parts: list[str] = []
    parent = die.get_parent()
    while parent is not None and parent.tag in ("DW_TAG_namespace", *_RECORDS):
        name = _text(parent, "DW_AT_name")
        if name and "DW_AT_export_symbols" not in parent.attributes:
            parts.append(name)
        parent = parent.get_parent()
    return tuple(reversed(parts))


def _chain(die: Any) -> list[Any]:
    """An entry and those that it completes; the declaration last."""
    found = [die]
    while True:
        link = next((one for one in ("DW_AT_abstract_origin", "DW_AT_specification") if one in die.attributes), None)
        if link is None:
            return found
        die = die.get_DIE_from_attribute(link)
        found.append(die)


def _text(die: Any, attribute: str) -> str:
    found = die.attributes.get(attribute)
    return str(found.value.decode("utf-8", "surrogateescape")) if found is not None else ""


def _number(die: Any, attribute: str) -> int:
    found = die.attributes.get(attribute)
    return int(found.value) if found is not None and isinstance(found.value, int) else 0


def _without_arguments(name: str) -> str:
    """A name without template arguments: ``push`` for ``push<int>``, ``operator<<`` for ``operator<< <int>``."""
    operator = re.match(r"operator(?:\"\"\s*\w+|\(\)|<=>|<<=?|<=?|->\*?|>>=?|>=?|[^\w\s<(]+)", name)
    return operator[0] if operator else name.split("<", 1)[0]
