"""Reads from an ELF file's debug information what probes need: functions, variables and lines of each source."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.dwarf.dwarf_expr import DWARFExprParser
from elftools.elf.elffile import ELFFile

from common.cplusplus_symbols import without_arguments
from instrumenter.errors import InstrumenterError

_POINTER_BYTES = 8
_ALIASES = ("DW_TAG_typedef", "DW_TAG_const_type", "DW_TAG_volatile_type", "DW_TAG_atomic_type")
_SCOPES = (
    "DW_TAG_namespace", "DW_TAG_class_type", "DW_TAG_structure_type", "DW_TAG_union_type", "DW_TAG_subprogram",
)  # fmt: skip
_SCALARS = ("DW_TAG_base_type", "DW_TAG_pointer_type", "DW_TAG_enumeration_type")


@dataclass(frozen=True)
class Row:
    """A row of the line table: code from ``address`` on belongs to this place; ``column`` counts from 1."""

    address: int
    file: str
    line: int
    column: int


@dataclass(frozen=True)
class Variable:
    """A variable at ``[low, high)``; ``store_bytes``: size of its scalar or array element, None for other types."""

    low: int
    high: int
    store_bytes: int | None
    external: bool
    volatile: bool


@dataclass(frozen=True)
class Body:
    """Code ``[low, high)`` of a function; ``names``: its qualified name with template arguments; its symbol."""

    code: tuple[int, int]
    names: tuple[str, ...]
    symbol: str


@dataclass
class UnitInfo:
    """One compiled source: code ``[low, high)`` of its functions, its global and static variables, its lines.

    ``functions``: by name, for C; ``bodies``: all code by ``file:line:name`` of the definition, in C++, where overloads
    share names and instances of a template a definition; ``wrappers``: versions of constructors and destructors that
    only call the others. ``inlined``: functions with copies inside other functions. ``rows`` are sorted by address.
    """

    functions: dict[str, tuple[int, int]] = field(default_factory=dict)
    bodies: dict[str, list[Body]] = field(default_factory=dict)
    wrappers: dict[str, list[Body]] = field(default_factory=dict)
    inlined: set[str] = field(default_factory=set)
    variables: dict[str, list[Variable]] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)

    def rows_between(self, low: int, high: int) -> list[Row]:
        """The rows of code ``[low, high)``."""
        first = bisect_left(self.rows, low, key=lambda row: row.address)
        return self.rows[first : bisect_left(self.rows, high, key=lambda row: row.address)]


class DebugInfo:
    """Debug information of the sources named ``sources`` in an ELF program: ``units`` by these names.

    Raises `InstrumenterError` for a file that is not ELF, and for one without debug information on a source.
    """

    def __init__(self, path: Path, sources: Sequence[str]) -> None:
        try:
            with path.open("rb") as file:
                elf: Any = ELFFile(file)
                dwarf = elf.get_dwarf_info()
                table = elf.get_section_by_name(".symtab")
                self.symbols = {symbol.name for symbol in table.iter_symbols()} if table else set()
                code = elf.get_section_by_name(".text")
                self._code_start, self._code = code["sh_addr"], code.data()
                units = {_name_of(unit): unit for unit in dwarf.iter_CUs()}
                for name in sources:
                    if name not in units:
                        raise InstrumenterError(f"{path}: no debug information on {name}; compile it with -g")
                self.units = {name: _read_unit(dwarf, units[name]) for name in sources}
        except (OSError, ELFError) as error:
            raise InstrumenterError(f"{path}: cannot be read as an ELF program: {error}") from None

    def instructions(self, low: int, high: int, encodings: Mapping[bytes, int]) -> Iterator[int]:
        """Addresses in ``[low, high)`` of RISC-V instructions with one of these encodings (and their lengths)."""
        position = low - self._code_start
        while position < high - self._code_start:
            length = 4 if self._code[position] & 3 == 3 else 2
            if encodings.get(self._code[position : position + length]) == length:
                yield position + self._code_start
            position += length


def _name_of(unit: Any) -> str | None:
    attribute = unit.get_top_DIE().attributes.get("DW_AT_name")
    return PurePath(attribute.value.decode()).name if attribute else None


def _read_unit(dwarf: Any, unit: Any) -> UnitInfo:
    info = UnitInfo()
    files = _file_names(dwarf, unit)
    scopes: dict[int, tuple[str, ...]] = {}
    dies = list(_with_scopes(unit.get_top_DIE(), (), scopes))
    for die in dies:
        if die.tag == "DW_TAG_subprogram" and "DW_AT_low_pc" in die.attributes:
            low = die.attributes["DW_AT_low_pc"].value
            high = die.attributes["DW_AT_high_pc"]
            end = high.value if high.form == "DW_FORM_addr" else low + high.value
            if low:  # a copy of an inline function that the linker dropped is at 0
                _add_body(info, die, files, scopes, (low, end))
        elif die.tag == "DW_TAG_inlined_subroutine":
            info.inlined.update((_die_name(die), _definition_key(die, files)))
        elif die.tag == "DW_TAG_variable":
            _read_variable(dwarf, unit, die, info)
    info.rows = sorted(_rows(dwarf, unit), key=lambda row: row.address)
    return info


def _with_scopes(die: Any, scope: tuple[str, ...], scopes: dict[int, tuple[str, ...]]) -> Iterator[Any]:
    """The entries below ``die``; ``scopes`` gets the names around each function, by the entry's offset."""
    for child in die.iter_children():
        yield child
        if child.tag == "DW_TAG_subprogram":
            scopes[child.offset] = scope
        if child.has_children:
            inner = (*scope, _die_name(child)) if child.tag in _SCOPES else scope
            yield from _with_scopes(child, inner, scopes)


def _chain(die: Any) -> Iterator[Any]:
    """An entry, and those that it completes."""
    while True:
        yield die
        link = next((link for link in ("DW_AT_abstract_origin", "DW_AT_specification") if link in die.attributes), None)
        if link is None:
            return
        die = die.get_DIE_from_attribute(link)


def _attribute(die: Any, name: str) -> Any:
    return next((one.attributes[name].value for one in _chain(die) if name in one.attributes), None)


def _definition_key(die: Any, files: Sequence[str]) -> str:
    """Where a function is defined, and its name: ``file:line:name``, as `instrumenter.find.cplusplus` has it."""
    number, line = _attribute(die, "DW_AT_decl_file"), _attribute(die, "DW_AT_decl_line")
    file = files[number] if number is not None and number < len(files) else ""
    return f"{file}:{line}:{without_arguments(_die_name(die))}"


def _add_body(
    info: UnitInfo, die: Any, files: Sequence[str], scopes: Mapping[int, tuple[str, ...]], code: tuple[int, int]
) -> None:
    """Add a function's code. Of a constructor's or destructor's versions only those that have its own text count."""
    linkage = _attribute(die, "DW_AT_linkage_name")
    linked = linkage.decode("utf-8", "surrogateescape") if linkage is not None else _die_name(die)
    scope = next((scopes[one.offset] for one in reversed(list(_chain(die))) if scopes.get(one.offset)), ())
    key = _definition_key(die, files)
    info.functions[_die_name(die)] = code
    version = re.search(r"([CD])([0-5])E", linked) if scope and linked.startswith("_Z") else None
    name = _die_name(die).split("<", 1)[0]
    special = scope and name.removeprefix("~") == scope[-1].split("<", 1)[0]
    bodies = info.bodies.setdefault(key, [])
    if special and version is not None and version[2] != "2" and (version[1] == "D" or _calls_base_version(die)):
        info.wrappers.setdefault(key, []).append(Body(code, (*scope, _die_name(die)), linked))
        return
    bodies.append(Body(code, (*scope, _die_name(die)), linked))


def _calls_base_version(die: Any) -> bool:
    """Whether the version of a constructor for complete objects only calls the one for bases.

    It has the text itself in a class with virtual bases, which it constructs, and with a variable number of parameters,
    which it cannot pass on.
    """
    declaration = list(_chain(die))[-1]
    variadic = any(child.tag == "DW_TAG_unspecified_parameters" for child in declaration.iter_children())
    return not variadic and not _has_virtual_base(declaration.get_parent())


def _has_virtual_base(record: Any) -> bool:
    for child in record.iter_children():
        if child.tag == "DW_TAG_inheritance":
            base = child.get_DIE_from_attribute("DW_AT_type")
            while base.tag in _ALIASES and "DW_AT_type" in base.attributes:
                base = base.get_DIE_from_attribute("DW_AT_type")
            if "DW_AT_virtuality" in child.attributes or _has_virtual_base(base):
                return True
    return False


def _die_name(die: Any) -> str:
    while "DW_AT_name" not in die.attributes:
        for link in ("DW_AT_abstract_origin", "DW_AT_specification"):
            if link in die.attributes:
                die = die.get_DIE_from_attribute(link)
                break
        else:
            return ""
    return str(die.attributes["DW_AT_name"].value.decode("utf-8", "surrogateescape"))


def _read_variable(dwarf: Any, unit: Any, die: Any, info: UnitInfo) -> None:
    low = _address(dwarf, unit, die)
    if low is None:
        return
    name, external = _die_name(die), "DW_AT_external" in die.attributes
    size, store_bytes, volatile = _type(die)
    if size is not None:
        variable = Variable(low, low + size, store_bytes, external, volatile)
        info.variables.setdefault(name, []).append(variable)


def _address(dwarf: Any, unit: Any, die: Any) -> int | None:
    """The fixed address of a variable; None if it is on the stack, in registers, or has no location."""
    location = die.attributes.get("DW_AT_location")
    if location is None or location.form != "DW_FORM_exprloc":
        return None
    address = None
    for operation in DWARFExprParser(dwarf.structs).parse_expr(location.value):
        if operation.op_name == "DW_OP_addr":
            address = operation.args[0]
        elif operation.op_name == "DW_OP_addrx":
            address = dwarf.get_addr(unit, operation.args[0])
        elif operation.op_name == "DW_OP_plus_uconst" and address is not None:
            address += operation.args[0]  # variables that the compiler merged into one
        else:
            return None
    return address


def _type(die: Any) -> tuple[int | None, int | None, bool]:
    """Bytes of a variable and of the scalars that it consists of, and whether these are volatile."""
    elements, volatile = 1, False
    while "DW_AT_type" in die.attributes:
        die = die.get_DIE_from_attribute("DW_AT_type")
        if die.tag == "DW_TAG_array_type":
            for bound in die.iter_children():
                count = bound.attributes.get("DW_AT_count")
                if count is None or not isinstance(count.value, int):
                    return None, None, False
                elements *= count.value
        elif die.tag not in _ALIASES:
            break
        volatile = volatile or die.tag == "DW_TAG_volatile_type"
    if die.tag == "DW_TAG_pointer_type":
        size = _POINTER_BYTES
    elif "DW_AT_byte_size" in die.attributes:
        size = die.attributes["DW_AT_byte_size"].value
    else:
        return None, None, False
    return elements * size, size if die.tag in _SCALARS else None, volatile


def _rows(dwarf: Any, unit: Any) -> Iterator[Row]:
    """The rows of a unit's line table, with whole file names."""
    program = dwarf.line_program_for_CU(unit)
    if program is None:
        return
    names = _file_names(dwarf, unit)
    for entry in program.get_entries():
        state = entry.state
        if state is not None and not state.end_sequence and state.line and state.column:
            yield Row(state.address, names[state.file], state.line, state.column)


def _file_names(dwarf: Any, unit: Any) -> list[str]:
    """The whole names of the files of a unit's line table, by the number that entries give them."""
    program = dwarf.line_program_for_CU(unit)
    if program is None:
        return []
    version = program["version"]
    folders = program["include_directory"]
    names = [""] if version < 5 else []  # older versions count from 1
    for entry in program["file_entry"]:
        index = entry.dir_index if version >= 5 else entry.dir_index - 1
        folder = folders[index] if 0 <= index < len(folders) else b""
        if version >= 5:
            folder = getattr(folder, "DW_LNCT_path", folder)
        names.append(
            str(PurePath(folder.decode("utf-8", "surrogateescape"), entry.name.decode("utf-8", "surrogateescape")))
        )
    return names
