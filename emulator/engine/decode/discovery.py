"""Block discovery by a compiled kernel: the kernel's tables, accessed from the instruction table, and its calls."""

from __future__ import annotations

import ctypes
import functools
from array import array
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from common.file_cache import OBJECTS, cache_directory, read_checked, write_checked
from emulator.engine.address_tables import GUEST_SPACE
from emulator.engine.blocks import BlockCache
from emulator.engine.codegen.compiler import Compiler
from emulator.engine.decode import discovery_kernel as k
from emulator.engine.decode.operations import (
    DESCRIPTOR_DTYPE,
    FALL_THROUGH,
    HANDLERS,
    OPERATION_DTYPE,
    RESTORE_ROUNDING,
    SCRATCH_REGISTER,
    SET_ROUNDING,
    SLOW,
)
from emulator.engine.hart_state import MAX_BLOCKS, MXCSR_ROUNDING
from emulator.engine.instrument.line_timestamps import NEARBY_BYTES
from emulator.engine.persist.translation_store import sources_identity
from emulator.events import BLOCK_DTYPE, INSTRUCTION_DTYPE, MAX_BLOCK_INSTRUCTIONS, OpClass
from emulator.isa.base_rows import writes_whole_csr
from emulator.isa.decode import CANDIDATES, DYNAMIC_ROUNDING, expand_compressed, needs_host_rounding
from emulator.isa.table import TABLE, Row

_CHUNK_OPERATIONS = 1 << 16
_MAX_OPERATIONS = 3 * MAX_BLOCK_INSTRUCTIONS + 1  # of a block
_NAME = "discover"
_IMMEDIATES = {
    "imm12": k.IMM_12, "simm7": k.IMM_STORE, "bimm7": k.IMM_BRANCH, "imm20": k.IMM_20, "jimm20": k.IMM_JUMP,
    "shamt6": k.IMM_SHIFT_6, "shamt5": k.IMM_SHIFT_5, "csr": k.IMM_CSR,
}  # fmt: skip
_JUMPS = {"jal": k.JAL, "jalr": k.JALR, "auipc": k.AUIPC}


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
    ``words``: the words of the job; ``n_known``: descriptors that Python knows; ``n_blocks``: (1,) number of blocks,
    with those that `collect` has not taken in yet.
    """

    def __init__(
        self, compiler: Compiler, cache: BlockCache, pages: Pages, descriptors: NDArray[np.void],
        index: NDArray[np.uint32],
    ) -> None:  # fmt: skip
        self.address, self._static = _kernel(compiler, pages.executable)
        self._call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(self.address)
        self._cache = cache
        self._descriptors = descriptors
        self._job = np.zeros(k.JOB_WORDS, np.int64)
        self.words = self._job.data
        self.n_blocks = self._job[k.N_BLOCKS : k.N_BLOCKS + 1]
        self._arrays = np.zeros(21, np.uint64)
        self.table = self._arrays.ctypes.data
        self._chunk: NDArray[np.void] = np.zeros(0, OPERATION_DTYPE)
        self._used = 0  # operations in the chunk
        self._blocks: Any = None
        self._instructions: Any = None
        self._arrays[0] = self._job.ctypes.data
        self._arrays[1], self._arrays[2] = pages.base, pages.permissions.ctypes.data
        self._arrays[6], self._arrays[7] = descriptors.ctypes.data, index.ctypes.data
        self._arrays[9:16] = [array.ctypes.data for array in self._static]
        self._arrays[18:21] = [table.ctypes.data for table in pages.shadow_tables]
        self.n_known = 0

    def begin(self, fallback: int, dispatch_table: int, threshold: int, n_descriptors: int) -> None:
        """Make room and set the job's parameters: the host function ``fallback`` runs new blocks, ``dispatch_table`` is
        the table's host address, new blocks are reported after ``threshold`` executions, and ``n_descriptors`` are in
        use."""
        facts, job, arrays = self._cache.facts, self._job, self._arrays
        facts.reserve(MAX_BLOCK_INSTRUCTIONS)
        blocks, instructions = facts.tables
        if blocks is not self._blocks or instructions is not self._instructions:
            self._blocks, self._instructions = blocks, instructions
            arrays[3], arrays[4] = blocks.ctypes.data, instructions.ctypes.data
        interned = self._cache.interned
        if interned is not None:
            interned.catch_up()
            arrays[16], arrays[17] = interned.latest.ctypes.data, interned.older.ctypes.data
        if self._used + _MAX_OPERATIONS > len(self._chunk):
            self._chunk, self._used = np.zeros(_CHUNK_OPERATIONS, OPERATION_DTYPE), 0
            arrays[5] = job[k.OPERATIONS_AT] = self._chunk.ctypes.data
        arrays[8] = dispatch_table
        words = self.words
        words[k.FALLBACK], words[k.THRESHOLD] = fallback, threshold
        words[k.N_BLOCKS : k.N_BLOCKS + 12] = array("l", (
            facts.n_blocks, facts.n_instructions, self._used, n_descriptors + 1,
            min(len(blocks), MAX_BLOCKS - 1), len(instructions), len(self._chunk), MAX_BLOCKS - 1, interned is not None,
            0, 0, 0,
        ))  # fmt: skip
        self.n_known = n_descriptors

    def discover(self, pc: int) -> bool:
        """Discover the block at ``pc``; False when Python has to."""
        self._job[k.PC] = pc
        return self._call(self.table) > 0

    @property
    def has_found(self) -> bool:
        """Whether there is something to `collect`."""
        return self.words[k.N_DESCRIPTORS] > self.n_known + 1

    def collect(self) -> tuple[NDArray[np.void], NDArray[np.int64]]:
        """Make the blocks discovered since `begin` known to Python: their operations, concatenated, and their numbers,
        int64."""
        facts, words = self._cache.facts, self.words
        operations = self._chunk[self._used : words[k.N_OPERATIONS]]
        self._used = words[k.N_OPERATIONS]
        found = self._descriptors[self.n_known + 1 : words[k.N_DESCRIPTORS]]
        self.n_known = words[k.N_DESCRIPTORS] - 1
        facts.add(words[k.N_BLOCKS] - facts.n_blocks, words[k.N_INSTRUCTIONS] - facts.n_instructions)
        numbers = found["number"].astype(np.int64)
        self._cache.add(found["pc"].tolist(), numbers.tolist())
        return operations, numbers


@functools.cache
def _kernel(compiler: Compiler, executable: int) -> tuple[int, tuple[NDArray[Any], ...]]:
    """The address of the kernel, and the constant arrays of its argument."""
    static = _static_tables(executable)

    def text() -> str:
        from emulator.kernels.llvm_text import kernel_text

        arrays: tuple[NDArray[Any], ...] = (
            np.zeros(k.JOB_WORDS, np.int64), np.zeros(GUEST_SPACE, np.uint8), np.zeros(1, np.uint8),
            np.zeros(1, BLOCK_DTYPE), np.zeros(1, INSTRUCTION_DTYPE), np.zeros(1, OPERATION_DTYPE),
            np.zeros(1, DESCRIPTOR_DTYPE), np.zeros(1, np.uint32), np.zeros(1, np.uint64), *static,
            np.zeros(1, np.uint32), np.zeros(1, np.uint32), np.zeros(1, np.uint16), np.zeros(1, np.uint16),
            np.zeros(1, np.uint8),
        )  # fmt: skip
        return kernel_text(_NAME, k.discover, (k.observed_register, k.put, k.immediate, k.signed, k.note), arrays)

    return compiler.compile(text, [_NAME], f"kernel {_NAME} {sources_identity()}")[_NAME], static


def _static_tables(executable: int) -> tuple[NDArray[Any], ...]:
    """The constant arrays of the kernel's argument: instruction tables, rounding modes, numbers, scratch."""
    rounding = np.zeros(8, np.int64)
    for mode, bits in MXCSR_ROUNDING.items():
        rounding[mode] = bits
    numbers = np.zeros(k.N_NUMBERS, np.int64)
    for place, value in (
        (k.TO_CALL, OpClass.CALL), (k.TO_JUMP, OpClass.JUMP), (k.TO_RETURN, OpClass.RETURN),
        (k.TO_INDIRECT_CALL, OpClass.INDIRECT_CALL), (k.TO_INDIRECT_JUMP, OpClass.INDIRECT_JUMP),
        (k.TO_BRANCH, OpClass.BRANCH), (k.OP_SLOW, SLOW), (k.OP_FALL_THROUGH, FALL_THROUGH),
        (k.OP_SET_ROUNDING, SET_ROUNDING), (k.OP_RESTORE_ROUNDING, RESTORE_ROUNDING), (k.X0_RESULT, SCRATCH_REGISTER),
        (k.MAX_INSTRUCTIONS, MAX_BLOCK_INSTRUCTIONS), (k.EXECUTABLE, executable), (k.TOP, GUEST_SPACE),
        (k.NEARBY, NEARBY_BYTES),
    ):  # fmt: skip
        numbers[place] = value
    accessed = np.zeros((32, 1 + MAX_BLOCK_INSTRUCTIONS), np.int64)
    return *_instruction_tables(), rounding, numbers, accessed


def _instruction_tables() -> tuple[NDArray[Any], ...]:
    """The 32-bit instruction for each 16-bit one, 0 for none; begin and end of the candidates for each opcode and
    funct3; the candidates; the rows. They are kept on disk, for expanding 65,536 compressed instructions takes long."""
    path = cache_directory() / OBJECTS / f"instructions-{sources_identity()[:32]}"
    raw = read_checked(path)
    if raw is None:
        raw = b"".join(array.tobytes() for array in _make_instruction_tables())
        write_checked(path, raw)
    words = np.frombuffer(raw, np.int64)
    expanded, groups, rows = (1 << 16) // 2, 1024, len(words) - k.ROW_COLUMNS * len(TABLE)
    return (
        words[:expanded].view(np.uint32), words[expanded : expanded + groups].view(np.int32).reshape(-1, 2),
        words[expanded + groups : rows].reshape(-1, 3), words[rows:].reshape(-1, k.ROW_COLUMNS),
    )  # fmt: skip


def _make_instruction_tables() -> tuple[NDArray[Any], ...]:
    """As `_instruction_tables`, computed."""
    expanded = np.array([expand_compressed(half) or 0 for half in range(1 << 16)], np.uint32)
    groups = np.zeros((1024, 2), np.int32)
    candidates: list[tuple[int, int, int]] = []
    for (opcode, funct3), rows in sorted(CANDIDATES.items()):
        groups[opcode | funct3 << 7] = len(candidates), len(candidates) + len(rows)
        candidates += [(row.mask, row.match, row.index) for row in rows]
    table = np.array([_row(row) for row in TABLE], np.int64).reshape(-1, k.ROW_COLUMNS)
    return expanded, groups, np.array(candidates, np.int64), table


def _row(row: Row) -> list[int]:
    """A row of the instruction table as the kernel's columns."""
    fields = row.fields
    kinds = ["-xf".index(kind) for kind in row.register_kinds]
    shape = next((kind for name, kind in _IMMEDIATES.items() if name in fields), k.IMM_NONE)
    dynamic = HANDLERS.get((row.index, DYNAMIC_ROUNDING), 0)
    return [
        "rd" in fields, shape, *kinds, row.access, row.access_bytes, row.op_class, row.ends_block, row.slow,
        "rm" in fields, needs_host_rounding(row), _JUMPS.get(row.mnemonic, k.NO_JUMP),
        k.NO_CSR if "csr" not in fields else k.CSR_SWAPS if writes_whole_csr(row.mnemonic) else k.CSR_CHANGES,
        *(HANDLERS.get((row.index, variant), dynamic) for variant in range(8)),
    ]  # fmt: skip
