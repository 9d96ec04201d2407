"""The tree of the entries of DWARF debug information, of one unit, without their attributes.

A unit that includes the C++ library's headers has tens of thousands of entries, of which few are asked for.
Abbreviations tell how long entries are, so that one pass skips them; pyelftools, which takes many times as long for
each, decodes the entries that are asked for. Source: DWARF 5, sections 7.5.3 (abbreviations) and 7.5.6 (forms).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

_LEB, _TEXT, _BLOCK = -1, -2, -3
_COUNTED_BLOCKS = {"DW_FORM_block1": 1, "DW_FORM_block2": 2, "DW_FORM_block4": 4}
_SIZES = {
    "data1": 1, "data2": 2, "data4": 4, "data8": 8, "data16": 16, "flag": 1, "flag_present": 0, "implicit_const": 0,
    "ref1": 1, "ref2": 2, "ref4": 4, "ref8": 8, "ref_sig8": 8, "ref_sup4": 4, "ref_sup8": 8, "strx1": 1, "strx2": 2,
    "strx3": 3, "strx4": 4, "addrx1": 1, "addrx2": 2, "addrx3": 3, "addrx4": 4, "sdata": _LEB, "udata": _LEB,
    "ref_udata": _LEB, "strx": _LEB, "addrx": _LEB, "loclistx": _LEB, "rnglistx": _LEB, "string": _TEXT,
    "block": _BLOCK, "exprloc": _BLOCK,
}  # fmt: skip
_OFFSETS = ("strp", "line_strp", "strp_sup", "sec_offset", "ref_addr")
_UNIT_REFERENCES = ("ref1", "ref2", "ref4", "ref8", "ref_udata")


class _Attribute(NamedTuple):
    """``size``: in bytes, or one of the negative codes above, or -16 less the bytes of a block's length."""

    name: str
    form: str
    size: int
    constant: int | None


class _Abbreviation(NamedTuple):
    """``skips``: sizes of all attributes, those of fixed size next to each other added up."""

    tag: str
    has_children: bool
    attributes: tuple[_Attribute, ...]
    names: frozenset[str]
    skips: tuple[int, ...]


def entries_section(dwarf: Any) -> bytes:
    """The section with the entries of all units, of debug information that pyelftools has."""
    stream = dwarf.debug_info_sec.stream
    stream.seek(0)
    return bytes(stream.read())


class UnitEntries:
    """The entries of a compiled unit, each known by its offset in the section.

    ``unit``: as pyelftools has it; ``section``: from `entries_section`. ``parents``: of every entry but the first;
    ``children``: those with one of ``tags`` of every entry that has some. Raises ValueError for a form of attributes
    that is not known, KeyError and IndexError for damaged information.
    """

    def __init__(self, section: bytes, unit: Any, tags: frozenset[str]) -> None:
        self._data, self._unit, self._tags = section, unit, tags
        self.parents: dict[int, int] = {}
        self.children: dict[int, list[int]] = {}
        self._codes: dict[int, _Abbreviation] = {}
        self._begin: dict[int, int] = {}  # where the attributes of an entry are
        self._read()

    @property
    def root(self) -> int:
        """The entry of the unit itself."""
        return int(self._unit.cu_die_offset)

    def tag(self, entry: int) -> str:
        """The kind of an entry, such as ``DW_TAG_subprogram``."""
        return self._abbreviation(entry).tag

    def has(self, entry: int, attribute: str) -> bool:
        """Whether an entry has an attribute."""
        return attribute in self._abbreviation(entry).names

    def number(self, entry: int, attribute: str) -> int | None:
        """A number that an attribute has, or the offset of the entry that it refers to; None without one here."""
        abbreviation = self._abbreviation(entry)
        if attribute not in abbreviation.names:
            return None
        position = self._begin[entry]
        for one in abbreviation.attributes:
            if one.name != attribute:
                position = self._after(position, one.size)
            elif one.constant is not None:
                return one.constant
            elif one.size == _LEB and one.form != "sdata":
                value = self._leb(position)[0]
                return value + self._unit.cu_offset if one.form in _UNIT_REFERENCES else value
            elif 0 < one.size <= 8:
                value = int.from_bytes(self._data[position : position + one.size], "little")
                return value + self._unit.cu_offset if one.form in _UNIT_REFERENCES else value
            else:
                return None
        return None

    def decoded(self, entry: int) -> Any:
        """The entry with its attributes, as pyelftools has it."""
        return self._unit.get_DIE_from_refaddr(entry)

    def below(self, entry: int, into: Sequence[str]) -> Iterator[int]:
        """All entries below ``entry``, by depth first; of those with other tags than ``into`` only themselves."""
        for child in self.children.get(entry, ()):
            yield child
            if self.tag(child) in into:
                yield from self.below(child, into)

    # --- reading
    def _abbreviation(self, entry: int) -> _Abbreviation:
        return self._codes[self._leb(entry)[0]]

    def _read(self) -> None:
        data, codes, tags = self._data, self._codes, self._tags
        table = self._unit.get_abbrev_table()
        position, end = self.root, self._unit.cu_offset + self._unit.size
        parent = -1
        around: list[int] = []
        while position < end:
            entry = position
            code = data[position]
            position += 1
            if code > 0x7F:
                code, position = self._leb(entry)
            if code == 0:
                if not around:
                    return
                parent = around.pop()
                continue
            one = codes.get(code)
            if one is None:
                one = codes[code] = self._planned(table.get_abbrev(code))
            if parent >= 0:
                self.parents[entry] = parent
                if one.tag in tags:
                    self.children.setdefault(parent, []).append(entry)
            self._begin[entry] = position
            for size in one.skips:
                position = position + size if size >= 0 else self._after(position, size)
            if one.has_children:
                around.append(parent)
                parent = entry

    def _planned(self, abbreviation: Any) -> _Abbreviation:
        attributes = [
            _Attribute(str(spec.name), str(spec.form).removeprefix("DW_FORM_"), self._size(str(spec.form)),
                       spec.value if spec.form == "DW_FORM_implicit_const" else None)
            for spec in abbreviation["attr_spec"] if spec.form
        ]  # fmt: skip
        skips: list[int] = []
        for one in attributes:
            if skips and skips[-1] >= 0 and one.size >= 0:
                skips[-1] += one.size
            else:
                skips.append(one.size)
        names = frozenset(one.name for one in attributes)
        return _Abbreviation(
            str(abbreviation["tag"]), abbreviation.has_children(), tuple(attributes), names, tuple(skips)
        )

    def _size(self, form: str) -> int:
        if form in _COUNTED_BLOCKS:
            return -16 - _COUNTED_BLOCKS[form]
        name = form.removeprefix("DW_FORM_")
        if name == "addr" or (name == "ref_addr" and self._unit.header.version < 3):
            return int(self._unit.header.address_size)
        if name in _OFFSETS:
            return 8 if self._unit.dwarf_format() == 64 else 4
        if name not in _SIZES:
            raise ValueError(f"attributes of form {form} are not supported")
        return _SIZES[name]

    def _after(self, position: int, size: int) -> int:
        """The position after an attribute at ``position``."""
        if size >= 0:
            return position + size
        if size == _TEXT:
            return self._data.index(0, position) + 1
        if size == _LEB:
            return self._leb(position)[1]
        if size == _BLOCK:
            length, position = self._leb(position)
            return position + length
        n_bytes = -16 - size
        return position + n_bytes + int.from_bytes(self._data[position : position + n_bytes], "little")

    def _leb(self, position: int) -> tuple[int, int]:
        """An unsigned number of variable length, and the position after it."""
        value = shift = 0
        while True:
            byte = self._data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, position
            shift += 7
