"""Block discovery by a compiled kernel (`discovery_kernel`): its argument, made from the instruction table, and its
calls."""

from __future__ import annotations

import ctypes
import functools
from array import array
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from common.file_cache import checked_or_made, object_path
from emulator.engine.address_tables import Table
from emulator.engine.blocks import BlockCache
from emulator.engine.decode import discovery_kernel as k
from emulator.engine.decode.operations import (
    DESCRIPTOR_DTYPE,
    HANDLERS,
    OPERATION_DTYPE,
)
from emulator.engine.hart_state import MAX_BLOCKS, MXCSR_ROUNDING
from emulator.engine.persist.translation_store import sources_identity
from emulator.events import BLOCK_DTYPE, INSTRUCTION_DTYPE, MAX_BLOCK_INSTRUCTIONS
from emulator.isa.base_rows import writes_whole_csr
from emulator.isa.decode import CANDIDATES, DYNAMIC_ROUNDING, expand_compressed, needs_host_rounding
from emulator.isa.table import TABLE, Row
from emulator.native_code.compiler import Compiler

_CHUNK_OPERATIONS = 1 << 16
_MAX_OPERATIONS = 3 * MAX_BLOCK_INSTRUCTIONS + 1  # of a block
_NAME = "discover"
_ROUNDING_MODES = 8
_IMMEDIATES = {
    "imm12": k.IMM_12, "simm7": k.IMM_STORE, "bimm7": k.IMM_BRANCH, "imm20": k.IMM_20, "jimm20": k.IMM_JUMP,
    "shamt6": k.IMM_SHIFT_6, "shamt5": k.IMM_SHIFT_5, "csr": k.IMM_CSR,
}  # fmt: skip
_JUMPS = {"jal": k.JAL, "jalr": k.JALR, "auipc": k.AUIPC}

# Places of the words of the job, and of the addresses in the kernel's argument, which is a table of the addresses of
# all its arrays.
_WORD = {name: place for place, name in enumerate(k.JOB_DTYPE.names or ())}
_PC, _FALLBACK, _THRESHOLD, _OPERATIONS_AT = (_WORD[name] for name in ("pc", "fallback", "threshold", "operations_at"))
_N_BLOCKS, _N_INSTRUCTIONS, _N_OPERATIONS, _N_DESCRIPTORS = (
    _WORD[name] for name in ("n_blocks", "n_instructions", "n_operations", "n_descriptors")
)
_STRUCTURES = (k.GuestCode, k.BlockTables, k.InstructionSet, k.Interned, k.Shadow, k.Watches)
_PLACE = {name: place for place, name in enumerate(["job", *(name for one in _STRUCTURES for name in one._fields)])}


class Pages(NamedTuple):
    """Guest memory as the kernel reads it: the host address of guest address 0, permissions by page (uint8), the
    permission bit of code, and the tables of `CodeShadow`."""

    base: int
    permissions: NDArray[np.uint8]
    executable: int
    shadow_tables: tuple[NDArray[np.uint16], NDArray[np.uint16], NDArray[np.uint8]]


class Discovery:
    """Discovers blocks of ``cache`` in ``pages`` and enters them in the interpreter's tables.

    ``descriptors``, ``index``: the tables of `BlockTable`. The interpreter calls the kernel itself at an unknown pc;
    `collect` takes the new blocks in afterwards. ``address``: host address of the kernel; ``table``: of its argument;
    ``n_known``: descriptors that Python knows; ``n_blocks``: (1,) number of blocks,
    with those that `collect` has not taken in yet.
    """

    def __init__(
        self, compiler: Compiler, cache: BlockCache, pages: Pages, descriptors: NDArray[np.void],
        index: NDArray[np.uint32],
    ) -> None:  # fmt: skip
        self.address, self._isa = _kernel(compiler)
        self._call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(self.address)
        self._cache = cache
        self._descriptors = descriptors
        self._job = np.zeros(len(_WORD), np.int64)
        self._words = self._job.data
        self._words[_WORD["executable"]] = pages.executable
        self._words[_WORD["program"]] = cache.program
        self.n_blocks = self._job[_N_BLOCKS : _N_BLOCKS + 1]
        self._addresses = np.zeros(len(_PLACE), np.uint64)
        self.table = self._addresses.ctypes.data
        self._chunk: NDArray[np.void] = np.zeros(0, OPERATION_DTYPE)
        self._used = 0  # operations in the chunk
        self._blocks: Any = None
        self._instructions: Any = None
        self._put(job=self._job, permissions=pages.permissions, descriptors=descriptors, block_index=index)
        self._put(**self._isa._asdict(), **k.Shadow(*pages.shadow_tables)._asdict())
        self._addresses[_PLACE["memory"]] = pages.base
        self.n_known = 0

    def _put(self, **arrays: NDArray[Any]) -> None:
        """Put the addresses of arrays into the kernel's argument, by name."""
        for name, one in arrays.items():
            self._addresses[_PLACE[name]] = one.ctypes.data

    def watch(self, by_class: NDArray[np.uint64], inline_map: Table) -> None:
        """Enter the instructions of all blocks discovered from now on in ``inline_map``; see `k.Watches`."""
        self._put(by_class=by_class)
        self._addresses[_PLACE["inline_map"]] = inline_map.address
        self._words[_WORD["has_watches"]] = 1

    def begin(self, fallback: int, dispatch_table: int, threshold: int, n_descriptors: int) -> None:
        """Make room and set the job's parameters: the host function ``fallback`` runs new blocks, ``dispatch_table`` is
        the table's host address, new blocks are reported after ``threshold`` executions, and ``n_descriptors`` are in
        use."""
        facts, words = self._cache.facts, self._words
        facts.reserve(MAX_BLOCK_INSTRUCTIONS)
        blocks, instructions = facts.tables
        if blocks is not self._blocks or instructions is not self._instructions:
            self._blocks, self._instructions = blocks, instructions
            self._put(blocks=blocks, instructions=instructions)
        interned = self._cache.interned
        if interned is not None:
            interned.catch_up()
            self._put(latest=interned.latest, older=interned.older)
        if self._used + _MAX_OPERATIONS > len(self._chunk):
            self._chunk, self._used = np.zeros(_CHUNK_OPERATIONS, OPERATION_DTYPE), 0
            self._put(operations=self._chunk)
            words[_OPERATIONS_AT] = self._chunk.ctypes.data
        self._addresses[_PLACE["dispatch_table"]] = dispatch_table
        words[_FALLBACK], words[_THRESHOLD] = fallback, threshold
        words[_N_BLOCKS:] = array("l", (  # the rest of the job
            facts.n_blocks, facts.n_instructions, self._used, n_descriptors + 1,
            min(len(blocks), MAX_BLOCKS - 1), len(instructions), len(self._chunk), MAX_BLOCKS - 1, interned is not None,
        ))  # fmt: skip
        self.n_known = n_descriptors

    def discover(self, pc: int) -> bool:
        """Discover the block at ``pc``; False when Python has to."""
        self._words[_PC] = pc
        return self._call(self.table) > 0

    @property
    def has_found(self) -> bool:
        """Whether there is something to `collect`."""
        return self._words[_N_DESCRIPTORS] > self.n_known + 1

    def collect(self) -> tuple[NDArray[np.void], NDArray[np.int64]]:
        """Make the blocks discovered since `begin` known to Python: their operations, concatenated, and their numbers,
        int64."""
        facts, words = self._cache.facts, self._words
        operations = self._chunk[self._used : words[_N_OPERATIONS]]
        self._used = words[_N_OPERATIONS]
        found = self._descriptors[self.n_known + 1 : words[_N_DESCRIPTORS]]
        self.n_known = words[_N_DESCRIPTORS] - 1
        facts.add(words[_N_BLOCKS] - facts.n_blocks, words[_N_INSTRUCTIONS] - facts.n_instructions)
        numbers = found["number"].astype(np.int64)
        self._cache.add(found["pc"].tolist(), numbers.tolist())
        return operations, numbers


@functools.cache
def _kernel(compiler: Compiler) -> tuple[int, k.InstructionSet]:
    """The address of the kernel, and the constant arrays of its argument."""
    isa = _instruction_set()

    def text() -> str:
        from emulator.kernels.llvm_text import kernel_text

        def one(dtype: Any) -> NDArray[Any]:
            return np.zeros(1, dtype)

        tables = k.BlockTables(
            one(BLOCK_DTYPE), one(INSTRUCTION_DTYPE), one(OPERATION_DTYPE), one(DESCRIPTOR_DTYPE), one(np.uint32),
            one(np.uint64),
        )  # fmt: skip
        arguments = (
            one(k.JOB_DTYPE), k.GuestCode(one(np.uint8), one(np.uint8)), tables, isa,
            k.Interned(one(np.uint32), one(np.uint32)), k.Shadow(one(np.uint16), one(np.uint16), one(np.uint8)),
            k.Watches(one(np.uint64), one(np.uint64)),
        )  # fmt: skip
        return kernel_text(_NAME, k.discover, k.HELPERS, arguments)

    return compiler.compile(text, [_NAME], f"kernel {_NAME} {sources_identity()}")[_NAME], isa


def _instruction_set() -> k.InstructionSet:
    """The instruction table for the kernel. It is kept on disk, for expanding 65,536 compressed instructions takes
    long."""
    raw = checked_or_made(
        object_path(f"instructions {sources_identity()}"),
        lambda: b"".join(array.tobytes() for array in _make_instruction_set()),
    )
    words = np.frombuffer(raw, np.int64)
    # Words of ``expanded`` (uint32), ``groups`` (int32) and ``candidates``; the other three have a known length, too.
    ends = [(1 << 16) // 2, 1024, 0, k.ROW_DTYPE.itemsize // 8 * len(TABLE), k.N_VARIANTS * len(TABLE), _ROUNDING_MODES]
    ends[2] = len(words) - sum(ends)
    expanded, groups, candidates, rows, handlers, rounding = np.split(words, np.cumsum(ends)[:-1])
    return k.InstructionSet(
        expanded.view(np.uint32), groups.view(np.int32).reshape(-1, 2), candidates.reshape(-1, 3),
        rows.view(k.ROW_DTYPE), handlers.reshape(-1, k.N_VARIANTS), rounding,
    )  # fmt: skip


def _make_instruction_set() -> k.InstructionSet:
    """As `_instruction_set`, computed."""
    expanded = np.array([expand_compressed(half) or 0 for half in range(1 << 16)], np.uint32)
    groups = np.zeros((1024, 2), np.int32)
    candidates: list[tuple[int, int, int]] = []
    for (opcode, funct3), rows in sorted(CANDIDATES.items()):
        groups[opcode | funct3 << 7] = len(candidates), len(candidates) + len(rows)
        candidates += [(row.mask, row.match, row.index) for row in rows]
    rounding = np.zeros(_ROUNDING_MODES, np.int64)
    for mode, bits in MXCSR_ROUNDING.items():
        rounding[mode] = bits
    return k.InstructionSet(
        expanded, groups, np.array(candidates, np.int64), np.array([_row(row) for row in TABLE], k.ROW_DTYPE),
        np.array([_handlers(row) for row in TABLE], np.int64), rounding,
    )  # fmt: skip


def _row(row: Row) -> tuple[int, ...]:
    """A row of the instruction table as one of `ROW_DTYPE`."""
    fields = row.fields
    kinds = ["-xf".index(kind) for kind in row.register_kinds]
    shape = next((kind for name, kind in _IMMEDIATES.items() if name in fields), k.IMM_NONE)
    return (
        "rd" in fields, shape, *kinds, row.access, row.access_bytes, row.op_class, row.ends_block, row.slow,
        "rm" in fields, needs_host_rounding(row), _JUMPS.get(row.mnemonic, k.NO_JUMP),
        k.NO_CSR if "csr" not in fields else k.CSR_SWAPS if writes_whole_csr(row.mnemonic) else k.CSR_CHANGES,
    )  # fmt: skip


def _handlers(row: Row) -> list[int]:
    """The handlers of a row by variant."""
    dynamic = HANDLERS.get((row.index, DYNAMIC_ROUNDING), 0)
    return [HANDLERS.get((row.index, variant), dynamic) for variant in range(k.N_VARIANTS)]
