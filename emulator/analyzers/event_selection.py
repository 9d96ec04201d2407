"""Event selections of analyzers: the instructions, and the fields of their events.

A selection is written ``key=value,value key=value ...``::

    class=load,store symbol=search fields=pc,address,value

``class`` and ``mnemonic`` select kinds of instructions; ``symbol``, ``source``, ``library`` and ``range`` select
addresses, C++ functions also by the names that people write, such as ``symbol=ns::Box*::push``. An instruction is
selected if it matches one of the kinds (or none is given) and one of the addresses (or none is given). For
translations, a selection becomes a `ColumnSet` or a `TraceSelection` with hooks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from common.cplusplus_symbols import readable_name
from common.listed_names import listed
from emulator.errors import EmulatorError
from emulator.events import COLUMN_TYPES, ColumnSet, OpClass, Ranges, TraceSelection, merged

if TYPE_CHECKING:
    from emulator.isa.table import Row
    from emulator.linux.loader.elf import ElfImage

# Fields of an event, in the order in which they are delivered.
FIELDS = tuple(COLUMN_TYPES)
INLINE_FIELDS = (*FIELDS, "registers", "memory")  # the last two for inline functions only
_GROUPS: dict[str, tuple[OpClass, ...]] = {
    "load": (OpClass.LOAD, OpClass.FP_LOAD),
    "store": (OpClass.STORE, OpClass.FP_STORE),
    "memory": (OpClass.LOAD, OpClass.FP_LOAD, OpClass.STORE, OpClass.FP_STORE, OpClass.ATOMIC),
    "control": tuple(OpClass(n) for n in range(OpClass.BRANCH, OpClass.INDIRECT_CALL + 1)),
    "fp": tuple(OpClass(n) for n in range(OpClass.FP_ADD, OpClass.FP_MOVE + 1)),
    "all": tuple(OpClass),
}
CLASSES: dict[str, tuple[OpClass, ...]] = {
    **{kind.name.lower(): (kind,) for kind in OpClass}, **_GROUPS
}  # fmt: skip
# The classes of the two jump instructions depend on their registers and on the previous instruction.
_JUMPS = {
    "jal": (OpClass.JUMP, OpClass.CALL),
    "jalr": (OpClass.JUMP, *(OpClass(n) for n in range(OpClass.CALL, OpClass.INDIRECT_CALL + 1))),
}
_KEYS = {
    "class": "classes",
    "mnemonic": "mnemonics",
    "symbol": "symbols",
    "source": "sources",
    "library": "libraries",
    "range": "ranges",
}


NOWHERE: Ranges = ((0, 1),)
"""A range without executable code."""


class SelectionError(EmulatorError):
    """A selection is not valid, or has a name that the program does not have."""


@dataclass(frozen=True)
class Selection:
    """A selection of instructions and of the fields of their events.

    ``classes``: keys of `CLASSES`; ``symbols``: names of functions, with ``*`` and ``?``; ``sources``: source files
    by the end of their path; ``libraries``: files from which code is mapped, likewise; ``ranges``: half-open ranges of
    guest addresses. Empty: all.
    Raises `SelectionError` for unknown classes, mnemonics and fields.
    """

    classes: tuple[str, ...] = ()
    mnemonics: tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    ranges: Ranges = ()
    fields: tuple[str, ...] = ("pc", "address")

    def __post_init__(self) -> None:
        from emulator.isa.table import ROWS

        for what, got, known in (
            ("class", self.classes, CLASSES),
            ("mnemonic", self.mnemonics, ROWS),
            ("field", self.fields, INLINE_FIELDS),
        ):
            for name in got:
                if name not in known:
                    raise SelectionError(f"{what} {name!r} is unknown; {_expected(name, known)}")
        object.__setattr__(self, "fields", tuple(sorted(set(self.fields), key=INLINE_FIELDS.index)))

    @classmethod
    def parse(cls, text: str, default: Selection | None = None) -> Selection:
        """Parse a selection; keys that ``text`` leaves out are taken from ``default``. Raises `SelectionError`."""
        found: dict[str, tuple[str, ...]] = {}
        for item in text.split():
            key, equals, value = item.partition("=")
            if not equals or key not in (*_KEYS, "fields") or not value:
                raise SelectionError(
                    f"selection {text!r}: got {item!r}, expected KEY=VALUE,VALUE with a key of "
                    f"{', '.join((*_KEYS, 'fields'))}, such as class=load,store fields=pc,address"
                )
            name = _KEYS.get(key, key)
            found[name] = (*found.get(name, ()), *(part for part in value.split(",") if part))
        ranges = merged([_range(part) for part in found.pop("ranges", ())])
        base = default or cls()
        if default is not None and found.keys() & {"classes", "mnemonics"}:
            base = replace(base, classes=(), mnemonics=())
        return replace(base, **found, ranges=ranges or base.ranges)

    def __str__(self) -> str:
        parts = []
        for one in fields(self):
            values: Iterable[object] = getattr(self, one.name)
            texts = [f"{v[0]:#x}-{v[1]:#x}" if isinstance(v, tuple) else str(v) for v in values]
            keys = [key for key, name in _KEYS.items() if name == one.name]
            if texts:
                parts.append(f"{(keys or ['fields'])[0]}={','.join(texts)}")
        return " ".join(parts)

    # --- kinds
    def kinds(self) -> frozenset[OpClass]:
        """The classes of which all instructions are selected."""
        if not self.classes and not self.mnemonics:
            return frozenset(OpClass)
        return frozenset(kind for name in self.classes for kind in CLASSES[name])

    def may_take(self, row: Row) -> bool:
        """Whether instructions of ``row`` can be selected."""
        return row.mnemonic in self.mnemonics or not self.kinds().isdisjoint(_JUMPS.get(row.mnemonic, (row.op_class,)))

    # --- addresses
    @property
    def has_names(self) -> bool:
        """Whether the selection has names, which have to be resolved again after libraries were mapped."""
        return bool(self.symbols or self.sources or self.libraries)

    def resolve(
        self, images: Sequence[ElfImage], mapped: Sequence[tuple[int, int, str]]
    ) -> tuple[Ranges, list[SelectionError]]:
        """The address ranges selected in ELF files, the program first, () for all addresses; and an error for each name
        that none of them has. ``mapped``: start, end and path of the code mapped from files."""
        if not (self.has_names or self.ranges):
            return (), []
        found, missing = list(self.ranges), []
        for names, where in ((self.symbols, _of_symbol), (self.sources, _of_source)):
            for name in names:
                new = [one for image in images for one in where(image, name)]
                found += new
                if not new:
                    missing.append(SelectionError(_UNKNOWN[where](images, name)))
        for name in self.libraries:
            new = [(low, high) for low, high, path in mapped if _ends(path, name)]
            found += new
            if not new:
                names = tuple({path.rpartition("/")[2] for _, _, path in mapped})
                missing.append(SelectionError(f"no code is mapped from a library {name!r}; {_expected(name, names)}"))
        return merged(found) or NOWHERE, missing

    # --- selections for translations
    def columns(self, ranges: Ranges, number: int) -> ColumnSet:
        """The columns of the selected events in ``ranges`` for analyzer ``number``, without the address of their
        memory.

        Raises `SelectionError` for a field that only inline functions have."""
        for name in self.fields:
            if name not in FIELDS:
                raise SelectionError(f"field {name!r} is available for inline functions only, not in batches of events")
        return ColumnSet(
            place=number, fields=self.fields, kinds=tuple(sorted(map(int, self.kinds()))),
            mnemonics=tuple(sorted(self.mnemonics)), ranges=ranges, state=0,
        )  # fmt: skip

    def hooks(self, ranges: Ranges) -> TraceSelection:
        """The selection that makes the machine call hooks before and after the selected instructions in ``ranges``."""
        from emulator.isa.table import TABLE

        mnemonics = sorted(row.mnemonic for row in TABLE if self.may_take(row))
        return TraceSelection(hooks=tuple(mnemonics), hook_ranges=ranges)


def _expected(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), 3)
    if close:
        return f"did you mean {' or '.join(close)}?"
    # Names of a compiler's library have dots (compiler_rt.addf3), those of the C library's own parts underscores.
    names = sorted(known, key=lambda name: ("." in name, name.startswith("_"), name))
    return f"expected one of {listed(names, 24 if len(names) <= 24 else 8)}"


def _range(text: str) -> tuple[int, int]:
    low, dash, high = text.partition("-")
    try:
        found = int(low, 0), int(high, 0)
    except ValueError:
        found = 0, 0
    if not dash or found[0] >= found[1]:
        raise SelectionError(f"range {text!r}: expected LOW-HIGH with LOW below HIGH, such as 0x10000-0x12000")
    return found


def _ends(path: str, name: str) -> bool:
    return f"/{path}".endswith("/" + name.lstrip("/"))


def _of_symbol(image: ElfImage, name: str) -> Sequence[tuple[int, int]]:
    functions = [symbol for symbol in image.symbols if symbol.is_function]
    found = [symbol for symbol in functions if _is_named(symbol.name, name)]
    found = found or [symbol for symbol in functions if _is_named(readable_name(symbol.name), name)]
    starts = sorted({symbol.address for symbol in functions}) if found else []
    ranges = []
    for symbol in found:
        later = [start for start in starts if start > symbol.address]
        end = symbol.address + symbol.size_bytes if symbol.size_bytes else min(later, default=image.end)
        ranges.append((symbol.address, end))
    return ranges


def _is_named(own: str, name: str) -> bool:
    return own == name or fnmatchcase(own, name)


def _of_source(image: ElfImage, name: str) -> Sequence[tuple[int, int]]:
    return [(row.address, row.end) for row in image.line_rows() if row.line and _ends(row.file, name)]


def _unknown_symbol(images: Sequence[ElfImage], name: str) -> str:
    names = {readable_name(symbol.name) for image in images for symbol in image.symbols if symbol.is_function}
    hint = _expected(name, names) if names else "the program is stripped; use range=LOW-HIGH"
    return f"{_owners(images)} no function {name!r}; {hint}"


def _unknown_source(images: Sequence[ElfImage], name: str) -> str:
    names = {row.file.rpartition("/")[2] for image in images for row in image.line_rows() if row.line}
    hint = _expected(name, names) if names else "it has no debug information; compile it with -g"
    return f"{images[0].name}: it has no code from source file {name!r}; {hint}"


def _owners(images: Sequence[ElfImage]) -> str:
    return f"{images[0].name}: it {'has' if len(images) == 1 else 'and its libraries have'}"


_UNKNOWN = {_of_symbol: _unknown_symbol, _of_source: _unknown_source}
