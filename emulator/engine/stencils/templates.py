"""Templates: host code of single blocks, emitted from stencils in no more time than decoding takes.

The interpreter takes some 3 ns for an instruction, a template 1 ns, and emitting it 50 ns; so every block gets a
template as soon as Python has its descriptor. A template counts executions and reports hot blocks as the interpreter
does.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
from collections.abc import Callable

import numpy as np

from emulator.engine.address_tables import Table
from emulator.engine.codegen.compiler import Compiler
from emulator.engine.decode.operations import DESCRIPTOR_DTYPE, OPERATION_DTYPE
from emulator.engine.hart_state import MAX_BLOCKS
from emulator.engine.persist.translation_store import sources_identity
from emulator.engine.stencils.stencil_compiler import (
    CODE_AREA_SHIFT,
    EXIT_STUB,
    FAULT_STUB,
    HEAD,
    HOLES,
    N_VALUES,
    PROLOGUE,
)
from emulator.engine.stencils.stencil_set import ABSENT, ENDS, HOLE_DTYPE, STENCIL_DTYPE, StencilSet
from emulator.events import MAX_BLOCK_INSTRUCTIONS

_MAP_NORESERVE = 0x4000
_CODE_AREA_BYTES = 1 << CODE_AREA_SHIFT
_MARGIN_BYTES = 3 * MAX_BLOCK_INSTRUCTIONS * 512  # more than a block takes
_CODE_ALIGNMENT = 64
MUCH_CODE = 4000  # blocks, 1.5 MB of code: from there on large pages save thousands of page faults
# Places in the argument of the kernel.
(
    _CODE, _STENCILS, _HOLES, _VALUES, _DESCRIPTORS, _DISPATCH_TABLE, _INDEX, _ENTRIES, _OUT, _LIMIT, _FIRST, _END,
    _FALLBACK
) = range(13)  # fmt: skip


class Templates:
    """The templates of one tier, which run blocks instead of the host function ``fallback``.

    ``descriptors``, ``index``, ``dispatch_table``: host addresses of the block table's and the tier's tables.
    ``entries``: host addresses by descriptor, u64, 0 for none; ``n_emitted``: descriptors that were handled.
    Raises `OSError` where the host does not allow writable and executable memory.
    """

    def __init__(
        self,
        compiler: Compiler,
        stencils: StencilSet,
        fallback: int,
        descriptors: int,
        index: int,
        dispatch_table: int,
    ) -> None:
        self.fallback = fallback
        self._stencils = stencils
        protection = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        self._map = mmap.mmap(-1, 2 * _CODE_AREA_BYTES, flags=flags, prot=protection)
        view = np.frombuffer(self._map, np.uint8)
        self._start = -(-view.ctypes.data >> CODE_AREA_SHIFT) << CODE_AREA_SHIFT
        self._entries_table = Table(MAX_BLOCKS * 8)
        self.entries = self._entries_table.view("u8")
        self.n_emitted = 0
        self._values = np.zeros(N_VALUES, np.uint64)
        constants = stencils.constants
        view[self._start - view.ctypes.data :][: len(constants)] = constants
        values = self._values
        values[HOLES["constants"]] = self._start
        values[HOLES["code_area"]] = self._start >> CODE_AREA_SHIFT
        values[HOLES["prologue_bytes"]] = stencils.stencils["size"][PROLOGUE]
        self._emit, place = _kernel(compiler)
        self._table = np.zeros(16, np.uint64)
        self._table_address = self._table.ctypes.data  # numpy takes microseconds to give it
        table = self._table
        arrays = {_CODE: stencils.code, _STENCILS: stencils.stencils, _HOLES: stencils.holes, _VALUES: values}
        for at, array in arrays.items():
            table[at] = array.ctypes.data
        table[_DESCRIPTORS], table[_INDEX], table[_DISPATCH_TABLE] = descriptors, index, dispatch_table
        table[_FALLBACK] = fallback
        table[_ENTRIES] = self._entries_table.address
        table[_OUT] = self._start + -(-len(constants) // _CODE_ALIGNMENT) * _CODE_ALIGNMENT
        table[_LIMIT] = self._start + _CODE_AREA_BYTES - _MARGIN_BYTES
        for name, stencil in (("exit_stub", EXIT_STUB), ("fault_stub", FAULT_STUB)):
            values[HOLES[name]] = table[_OUT]
            if place(table.ctypes.data, stencil) == ABSENT:
                raise OSError("the host's code of a template's exit stub calls a library function")

    def emit(self, n_descriptors: int) -> None:
        """Emit the blocks of all descriptors up to ``n_descriptors``, and enter them in the dispatch table where it has
        the fallback."""
        if self.n_emitted < MUCH_CODE <= n_descriptors:
            with contextlib.suppress(OSError):  # a host without large pages
                self._map.madvise(mmap.MADV_HUGEPAGE)
        self._table[_FIRST], self._table[_END] = self.n_emitted + 1, n_descriptors + 1
        self._emit(self._table_address)
        self.n_emitted = n_descriptors

    def close(self) -> None:
        """Give the code's memory back; the templates do not run again."""
        self._map.madvise(mmap.MADV_DONTNEED)
        self._entries_table.clear()

    @property
    def code_bytes(self) -> int:
        """Bytes of host code so far, with constants."""
        return int(self._table[_OUT]) - self._start

    def covers(self, address: int) -> bool:
        """Whether the host address lies in a template."""
        return address >> CODE_AREA_SHIFT == self._start >> CODE_AREA_SHIFT


def _field(dtype: np.dtype[np.void], name: str) -> int:
    fields = dtype.fields
    assert fields is not None
    return int(fields[name][1])


@functools.cache
def _kernel(compiler: Compiler) -> tuple[Callable[[int], int], Callable[[int, int], int]]:
    """The functions ``emit`` and ``place`` of the kernel, compiled once for all templates of all processes."""
    functions = compiler.compile(_kernel_ir, ["emit", "place"], key=f"templates {sources_identity()}")
    # Short calls, which keep the GIL: another thread would hold it for milliseconds.
    emit = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(functions["emit"])
    place = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(functions["place"])
    return emit, place


def _kernel_ir() -> str:
    """The kernel. ``@place(table, stencil)`` copies one stencil and fills its holes; returns its kind, or `ABSENT` if a
    value does not fit. ``@emit(table)`` emits the blocks of the descriptors from `_FIRST` to before `_END`, as long as
    the code area has room."""
    lines: list[str] = []

    def say(*texts: str) -> None:
        lines.extend(texts)

    def address(base: str, offset: int | str) -> str:
        lines.append(f"%a{len(lines)} = getelementptr i8, ptr {base}, i64 {offset}")
        return f"%a{len(lines) - 1}"

    def get(base: str, offset: int | str, kind: str = "i64", name: str = "") -> str:
        """Load a field of ``base`` as an i64 or pointer."""
        where = address(base, offset)
        name = name or f"%g{len(lines)}"
        if kind in ("i64", "ptr"):
            lines.append(f"{name} = load {kind}, ptr {where}, align 1")
        else:
            lines.append(f"{name}n = load {kind}, ptr {where}, align 1")
            lines.append(f"{name} = zext {kind} {name}n to i64")
        return name

    def put(base: str, offset: int | str, value: str | int) -> None:
        lines.append(f"store i64 {value}, ptr {address(base, offset)}")

    def let(text: str) -> str:
        lines.append(f"%l{len(lines)} = {text}")
        return f"%l{len(lines) - 1}"

    def field(dtype: np.dtype[np.void], base: str, name: str, kind: str) -> str:
        return get(base, _field(dtype, name), kind)

    branch_target = HOLES["branch_target"]
    say("define i64 @place(ptr %t, i64 %stencil) nounwind {", "entry:")
    row = address(get("%t", 8 * _STENCILS, "ptr"), let(f"mul i64 %stencil, {STENCIL_DTYPE.itemsize}"))
    kind = field(STENCIL_DTYPE, row, "kind", "i64")
    size = field(STENCIL_DTYPE, row, "size", "i32")
    code = address(get("%t", 8 * _CODE, "ptr"), field(STENCIL_DTYPE, row, "offset", "i32"))
    out = get("%t", 8 * _OUT, "ptr", "%out")
    first, end = field(STENCIL_DTYPE, row, "first_hole", "i32"), field(STENCIL_DTYPE, row, "end_hole", "i32")
    holes, values = get("%t", 8 * _HOLES, "ptr"), get("%t", 8 * _VALUES, "ptr", "%values")
    say(f"call void @llvm.memcpy.p0.p0.i64(ptr {out}, ptr {code}, i64 {size}, i1 false)")
    after = let(f"ptrtoint ptr {address(out, size)} to i64")
    put(values, 8 * HOLES["next"], after)
    say(f"%absent = icmp eq i64 {kind}, {ABSENT}", "br i1 %absent, label %fail, label %head", "head:")
    say(f"%n = phi i64 [ {first}, %entry ], [ %m, %filled ]")
    say(f"%done = icmp uge i64 %n, {end}", "br i1 %done, label %fine, label %fill", "fill:")
    hole = address(holes, let(f"mul i64 %n, {HOLE_DTYPE.itemsize}"))
    which = field(HOLE_DTYPE, hole, "value", "i16")
    value = let(
        f"add i64 {get(values, let(f'shl i64 {which}, 3'))}, {field(HOLE_DTYPE, hole, 'addend', 'i64')}"
    )
    where = address(out, field(HOLE_DTYPE, hole, "offset", "i32"))
    relative = let(f"icmp ne i64 {field(HOLE_DTYPE, hole, 'relative', 'i8')}, 0")
    base = let(f"select i1 {relative}, i64 {let(f'ptrtoint ptr {where} to i64')}, i64 0")
    value = let(f"sub i64 {value}, {base}")
    # A block that branches outside of the address space is left to the interpreter.
    is_target, is_high = let(f"icmp eq i64 {which}, {branch_target}"), let(f"icmp ugt i64 {value}, 2147483647")
    outside = let(f"and i1 {is_target}, {is_high}")
    wide = let(f"icmp ne i64 {field(HOLE_DTYPE, hole, 'wide', 'i8')}, 0")
    say(
        f"br i1 {outside}, label %fail, label %store",
        "store:",
        f"br i1 {wide}, label %long, label %short",
    )
    say("long:", f"store i64 {value}, ptr {where}, align 1", "br label %filled", "short:")
    low = let(f"trunc i64 {value} to i32")
    fits = let(f"icmp eq i64 {let(f'sext i32 {low} to i64')}, {value}")
    say(
        f"br i1 {fits}, label %fitting, label %fail",
        "fitting:",
        f"store i32 {low}, ptr {where}, align 1",
    )
    say("br label %filled", "filled:", "%m = add i64 %n, 1", "br label %head", "fine:")
    put("%t", 8 * _OUT, after)
    say(f"ret i64 {kind}", "fail:", f"ret i64 {ABSENT}", "}")

    say("define i64 @emit(ptr %t) nounwind {", "entry:")
    values, dispatch_table = get("%t", 8 * _VALUES, "ptr"), get("%t", 8 * _DISPATCH_TABLE, "ptr")
    index, entries = get("%t", 8 * _INDEX, "ptr"), get("%t", 8 * _ENTRIES, "ptr")
    descriptors, fallback = get("%t", 8 * _DESCRIPTORS, "ptr"), get("%t", 8 * _FALLBACK)
    first, end, limit = get("%t", 8 * _FIRST), get("%t", 8 * _END), get("%t", 8 * _LIMIT)
    dispatch_table_address = let(f"ptrtoint ptr {dispatch_table} to i64")
    say("br label %next", "next:", f"%d = phi i64 [ {first}, %entry ], [ %d1, %again ]")
    begin = get("%t", 8 * _OUT)
    room, left = let(f"icmp ult i64 {begin}, {limit}"), let(f"icmp ult i64 %d, {end}")
    say(f"br i1 {let(f'and i1 {room}, {left}')}, label %block, label %out", "block:")
    descriptor = address(descriptors, let(f"mul i64 %d, {DESCRIPTOR_DTYPE.itemsize}"))
    first_operation = get(descriptor, _field(DESCRIPTOR_DTYPE, "operations"), "ptr")
    start = field(OPERATION_DTYPE, first_operation, "pc", "i64")
    put(values, 8 * HOLES["descriptor"], let(f"ptrtoint ptr {descriptor} to i64"))
    put(values, 8 * HOLES["pc"], start)
    put(values, 8 * HOLES["length"], field(DESCRIPTOR_DTYPE, descriptor, "n_instructions", "i32"))
    let(f"call i64 @place(ptr %t, i64 {PROLOGUE})")
    head = let(f"call i64 @place(ptr %t, i64 {HEAD})")
    say(f"%nohead = icmp eq i64 {head}, {ABSENT}", "br i1 %nohead, label %failed, label %operation")
    say("operation:", f"%op = phi ptr [ {first_operation}, %block ], [ %op1, %goeson ]")
    for name in ("rd", "rs1", "rs2", "rs3"):
        put(values, 8 * HOLES[name], let(f"shl i64 {field(OPERATION_DTYPE, '%op', name, 'i8')}, 3"))
    put(values, 8 * HOLES["timestamped"], field(OPERATION_DTYPE, "%op", "timestamped", "i16"))
    immediate, pc = field(OPERATION_DTYPE, "%op", "imm", "i64"), field(OPERATION_DTYPE, "%op", "pc", "i64")
    following = field(OPERATION_DTYPE, "%op", "next_pc", "i64")
    target = let(f"add i64 {pc}, {immediate}")
    known = {"imm": immediate, "pc": pc, "next_pc": following, "branch_target": target, "far_branch_target": target}
    for name, value in known.items():
        put(values, 8 * HOLES[name], value)
    for name, value in (("next_entry", following), ("branch_target_entry", target)):
        put(values, 8 * HOLES[name], let(f"add i64 {dispatch_table_address}, {let(f'shl i64 {value}, 2')}"))
    placed = let(f"call i64 @place(ptr %t, i64 {field(OPERATION_DTYPE, '%op', 'handler', 'i16')})")
    say(
        f"switch i64 {placed}, label %goeson [ i64 {ABSENT}, label %failed i64 {ENDS}, label %emitted ]",
        "goeson:",
    )
    say(
        f"%op1 = getelementptr i8, ptr %op, i64 {OPERATION_DTYPE.itemsize}",
        "br label %operation",
        "emitted:",
    )
    put(entries, let("shl i64 %d, 3"), begin)
    # Publish unless the guest has changed the code meanwhile, or a region runs the block.
    current = get(index, let(f"shl i64 {start}, 1"), "i32")
    entry = let(f"shl i64 {start}, 2")
    same, runs = let(f"icmp eq i64 {current}, %d"), let(f"icmp eq i64 {get(dispatch_table, entry)}, {fallback}")
    say(f"br i1 {let(f'and i1 {same}, {runs}')}, label %publish, label %again", "publish:")
    put(dispatch_table, entry, begin)
    say("br label %again", "failed:")
    put("%t", 8 * _OUT, begin)
    say("br label %again", "again:", "%d1 = add i64 %d, 1", "br label %next", "out:", "ret i64 %d", "}")
    return "\n".join(["declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)", *lines])
