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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.engine.address_tables import Table
from emulator.engine.decode.operations import DESCRIPTOR_DTYPE, OPERATION_DTYPE
from emulator.engine.hart_state import MAX_BLOCKS
from emulator.engine.persist.translation_store import sources_identity
from emulator.engine.stencils import template_kernel as k
from emulator.engine.stencils.stencil_layout import (
    CODE_AREA_SHIFT,
    EXIT_STUB,
    FAULT_STUB,
    HOLES,
    N_VALUES,
    PROLOGUE,
)
from emulator.engine.stencils.stencil_set import ABSENT, HOLE_DTYPE, STENCIL_DTYPE, StencilSet
from emulator.events import MAX_BLOCK_INSTRUCTIONS
from emulator.native_code.compiler import Compiler

_MAP_NORESERVE = 0x4000
_CODE_AREA_BYTES = 1 << CODE_AREA_SHIFT
_MARGIN_BYTES = 3 * MAX_BLOCK_INSTRUCTIONS * 512  # more than a block takes
_CODE_ALIGNMENT = 64
_NAME = "emit_templates"
MUCH_CODE = 4000  # blocks, 1.5 MB of code: from there on large pages save thousands of page faults
# Places of the words of the kernel's job.
_WORD = {name: place for place, name in enumerate(k.JOB_DTYPE.names or ())}
_OUT, _LIMIT, _FIRST, _END, _STUB = (_WORD[name] for name in ("out", "limit", "first", "end", "stub"))


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
        protection = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        self._map = mmap.mmap(-1, 2 * _CODE_AREA_BYTES, flags=flags, prot=protection)
        view = np.frombuffer(self._map, np.uint8)
        self._start = -(-view.ctypes.data >> CODE_AREA_SHIFT) << CODE_AREA_SHIFT
        self._entries_table = Table(MAX_BLOCKS * 8)
        self.entries = self._entries_table.view("u8")
        self.n_emitted = 0
        self._values = np.zeros(N_VALUES, np.int64)
        constants = stencils.constants
        view[self._start - view.ctypes.data :][: len(constants)] = constants
        values = self._values
        values[HOLES["constants"]] = self._start
        values[HOLES["code_area"]] = self._start >> CODE_AREA_SHIFT
        values[HOLES["prologue_bytes"]] = stencils.stencils["size"][PROLOGUE]
        self._emit = _kernel(compiler)
        self._job = np.zeros(1, k.JOB_DTYPE)
        self._job[0] = (
            self._start + -(-len(constants) // _CODE_ALIGNMENT) * _CODE_ALIGNMENT,
            self._start + _CODE_AREA_BYTES - _MARGIN_BYTES, 0, 0, fallback, stencils.code.ctypes.data, descriptors,
            dispatch_table, k.NO_STUB,
        )  # fmt: skip
        self._words = self._job.view(np.int64).data
        # The addresses of all arrays of the kernel's arguments in order; three of them are not read.
        self._table = np.array(
            [
                self._job.ctypes.data, stencils.stencils.ctypes.data, stencils.holes.ctypes.data, values.ctypes.data,
                descriptors, 0, index, dispatch_table, self._entries_table.address, 0, 0,
            ],
            np.uint64,
        )  # fmt: skip
        self._table_address = self._table.ctypes.data  # numpy takes microseconds to give it
        for name, stencil in (("exit_stub", EXIT_STUB), ("fault_stub", FAULT_STUB)):
            values[HOLES[name]] = self._words[_OUT]
            self._words[_STUB] = stencil
            if self._emit(self._table_address) == ABSENT:
                raise OSError("the host's code of a template's exit stub calls a library function")
        self._words[_STUB] = k.NO_STUB

    def emit(self, n_descriptors: int) -> None:
        """Emit the blocks of all descriptors up to ``n_descriptors``, and enter them in the dispatch table where it has
        the fallback."""
        if self.n_emitted < MUCH_CODE <= n_descriptors:
            with contextlib.suppress(OSError):  # a host without large pages
                self._map.madvise(mmap.MADV_HUGEPAGE)
        self._words[_FIRST], self._words[_END] = self.n_emitted + 1, n_descriptors + 1
        self._emit(self._table_address)
        self.n_emitted = n_descriptors

    def close(self) -> None:
        """Give the code's memory back; the templates do not run again."""
        self._map.madvise(mmap.MADV_DONTNEED)
        self._entries_table.clear()

    @property
    def code_bytes(self) -> int:
        """Bytes of host code so far, with constants."""
        return self._words[_OUT] - self._start

    def covers(self, address: int) -> bool:
        """Whether the host address lies in a template."""
        return address >> CODE_AREA_SHIFT == self._start >> CODE_AREA_SHIFT


@functools.cache
def _kernel(compiler: Compiler) -> Callable[[int], int]:
    """The kernel, compiled once for all templates of all processes."""

    def text() -> str:
        from emulator.kernels.llvm_text import kernel_text

        def one(dtype: Any) -> NDArray[Any]:
            return np.zeros(1, dtype)

        arguments = (
            one(k.JOB_DTYPE), k.Stencils(one(STENCIL_DTYPE), one(HOLE_DTYPE), one(np.int64)),
            k.TemplateTables(
                one(DESCRIPTOR_DTYPE), one(OPERATION_DTYPE), one(np.uint32), one(np.int64), one(np.int64)
            ),
            k.Words(one(np.int64), one(np.int32)),
        )  # fmt: skip
        return kernel_text(_NAME, k.emit, k.HELPERS, arguments)

    address = compiler.compile(text, [_NAME], key=f"kernel {_NAME} {sources_identity()}")[_NAME]
    # A short call, which keeps the GIL: another thread would hold it for milliseconds.
    return ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address)
