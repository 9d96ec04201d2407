"""A hart with a page of code and a page of data, run by any engine or by the oracle alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emulator.engine.blocks import BlockCache
from emulator.engine.entry.entry import Entry
from emulator.engine.hart_state import Exit, Hart
from emulator.engine.oracle import Oracle
from emulator.engine.translator import Translator
from emulator.errors import GuestFault
from emulator.events import NOTHING, TraceSelection
from emulator.isa.decode import Instruction, assemble, decode_word
from emulator.isa.table import ROWS, Row
from emulator.memory import ADDRESS_SPACE_BYTES, EXEC, GUARD_BYTES, READ, WRITE, GuestMemory

CODE, DATA = 0x10000, 0x20000
PAGE = 4096
EBREAK = b"\x02\x90"  # c.ebreak: wherever control goes in the code page, it ends there
NEVER = 1 << 30


@dataclass
class State:
    """Everything that one execution starts from or ends with."""

    x: NDArray[np.uint64]
    f: NDArray[np.uint64]
    fcsr: int
    pc: int
    data: bytes

    def differences(self, other: State) -> list[str]:
        found = []
        for kind, ours, theirs in (("x", self.x, other.x), ("f", self.f, other.f)):
            found += [f"{kind}{n}: {int(ours[n]):#x} != {int(theirs[n]):#x}" for n in np.flatnonzero(ours != theirs)]
        found += [f"fcsr: {self.fcsr:#x} != {other.fcsr:#x}"] if self.fcsr != other.fcsr else []
        found += [f"pc: {self.pc:#x} != {other.pc:#x}"] if self.pc != other.pc else []
        return found + (["memory differs"] if self.data != other.data else [])


class NoEnvironment:
    """An environment with nothing in it."""

    def ecall(self) -> None: ...
    def instruction_fence(self) -> None: ...

    def read_csr(self, number: int) -> int | None:
        return None

    def write_csr(self, number: int, value: int) -> bool:
        return False


class Rig:
    """``engine``: "oracle", "interpreter", "templates" or "optimised"."""

    def __init__(self, engine: str, selection: TraceSelection = NOTHING) -> None:
        self.engine = engine
        self.memory = GuestMemory()
        self.memory.map(CODE, PAGE, READ | WRITE | EXEC)
        self.memory.map(DATA, PAGE, READ | WRITE)
        self.hart = Hart()
        self.oracle = Oracle(self.hart, self.memory, NoEnvironment())
        self.forget()
        self.record = np.zeros(1 << 16, np.uint32)
        self.memory.write(CODE, EBREAK * (PAGE // 2))
        if engine == "oracle":
            return
        self.hart.set("memory", self.memory.base)
        self.hart.set("memory_start", self.memory.base - GUARD_BYTES)
        self.hart.set("memory_end", self.memory.base + ADDRESS_SPACE_BYTES + GUARD_BYTES)
        self.entry = Entry.get()
        self.place = self.entry.register(self.hart.address)
        self.translator = Translator(
            self.hart, self.cache, background=False,
            templates=engine != "interpreter",
            optimise_executions=2 if engine == "optimised" else NEVER,
        )  # fmt: skip
        self.translator.select(selection)

    def forget(self) -> None:
        """Know nothing of the code: for the oracle, which is to be given other code."""
        self.cache = BlockCache(self._fetch, lambda pc, raw: GuestFault(f"illegal {raw:#x}", 4, pc))

    def close(self) -> None:
        if self.engine != "oracle":
            self.translator.close()
            self.entry.unregister(self.place)
        self.memory.close()

    def _fetch(self, pc: int) -> int:
        raw = self.memory.read_int(pc, 2)
        return raw | self.memory.read_int(pc + 2, 2) << 16 if raw & 3 == 3 else raw

    def put(self, address: int, words: list[int]) -> None:
        """Place code; must be new to the engine."""
        self.memory.write(address, b"".join(word.to_bytes(4, "little") for word in words))

    def start(self, state: State) -> None:
        hart = self.hart
        hart.x[:] = state.x
        hart.f[:] = state.f
        hart.fcsr = state.fcsr
        hart.pc = state.pc
        hart.set("reservation", DATA + 64)
        self.memory.write(DATA, state.data)

    def state(self) -> State:
        hart = self.hart
        return State(hart.x.copy(), hart.f.copy(), hart.fcsr, hart.pc, self.memory.read(DATA, PAGE))

    def run(self, state: State) -> State:
        """From ``state`` to the next ebreak."""
        self.start(state)
        while True:
            if self.engine == "oracle":
                block = self.cache.get(self.hart.pc)
                for instruction in block.instructions:
                    if instruction.row.mnemonic == "ebreak":
                        return self.state()
                    self.oracle.execute(instruction)
                continue
            self.hart.budget = 1000
            self.hart.set("record", self.record.ctypes.data)
            if not self.translator.has_entry(self.hart.pc):
                self.translator.discover(self.hart.pc)
            self.entry.enter(self.hart.address)
            reason = self.hart.get("reason")
            if reason == Exit.HOT:
                self.translator.on_hot_block(self.hart.pc)
            elif reason in (Exit.SLOW, Exit.ROUNDING):
                return self.state()
            else:
                assert reason == Exit.MISS, Exit(reason)


def encode(row: Row, rng: np.random.Generator, rm: int | None = None) -> int:
    """A random instance of ``row``; memory offsets and jumps stay inside their page."""
    fields = row.fields
    numbers = rng.permutation(np.arange(5, 32))
    rd, rs1, rs2, rs3 = (int(n) for n in numbers[:4])
    if rng.random() < 0.15:
        rd = rs1
    if rng.random() < 0.1 and row.register_kinds[0] == "x":
        rd = 0
    if "bimm7" in fields or "jimm20" in fields:
        imm = 4 * int(rng.integers(2, 100))
    elif "imm20" in fields:
        imm = int(rng.integers(1 << 20)) << 12
    elif "shamt5" in fields:
        imm = int(rng.integers(32))
    elif "shamt6" in fields:
        imm = int(rng.integers(64))
    elif row.mnemonic == "jalr":
        imm = 2 * int(rng.integers(0, 200))
    elif row.access:
        imm = 8 * int(rng.integers(-30, 30)) if "imm12" in fields or "simm7" in fields else 0
    else:
        imm = int(rng.integers(-2048, 2048))
    word = assemble(row.mnemonic, rd, rs1, rs2, imm)
    if "rs3" in fields:
        word |= rs3 << 27
    if "rm" in fields:
        word |= (7 if rm is None else rm) << 12
    return word


def instance(row: Row, rng: np.random.Generator, rm: int | None = None) -> Instruction:
    """`encode`, decoded."""
    found = decode_word(encode(row, rng, rm))
    assert found is not None
    assert found.row is row
    return found


INTEGERS = [0, 1, 2, 31, 32, 63, 0x7F, 0x80, 0xFF, 0x8000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x100000000,
            (1 << 63) - 1, 1 << 63, (1 << 64) - 1, (1 << 64) - 2, 0x0123456789ABCDEF, 0xFFFFFFFF80000000]  # fmt: skip
DOUBLES = [0, 1 << 63, 0x3FF0000000000000, 0xBFF8000000000000, 0x7FF0000000000000, 0xFFF0000000000000,
           0x7FF8000000000000, 0xFFF8000000000123, 0x7FF0000000000001, 1, 0x000FFFFFFFFFFFFF, 0x0010000000000000,
           0x7FEFFFFFFFFFFFFF, 0x41DFFFFFFFC00000, 0x41E0000000000000, 0xC1E0000000000000, 0x43E0000000000000,
           0xC3E0000000000000, 0x43F0000000000000, 0x3FE0000000000000, 0xBFE0000000000000, 0x4004000000000000,
           0x47EFFFFFF0000000, 0x36A0000000000000, 0x380FFFFFE0000000]  # fmt: skip
SINGLES = [0, 1 << 31, 0x3F800000, 0xBFC00000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0x7F800001, 1,
           0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0x4F000000, 0xCF000000, 0x5F000000, 0xDF000000, 0x5F800000,
           0x3F000000, 0xBF000000, 0x40200000, 0x4EFFFFFF]  # fmt: skip
BOX = 0xFFFFFFFF00000000


def random_state(rng: np.random.Generator, instruction: Instruction, frm: int) -> State:
    """Operands random or at the edges; addresses in the data page for accesses, in the code page for jalr."""
    x = rng.integers(0, 1 << 64, 32, np.uint64)
    edges = rng.random(32) < 0.6
    x[edges] = np.array(INTEGERS, np.uint64)[rng.integers(len(INTEGERS), size=int(edges.sum()))]
    x[0] = 0
    f = rng.integers(0, 1 << 64, 32, np.uint64)
    for n in range(32):
        draw = rng.random()
        if draw < 0.35:
            f[n] = DOUBLES[rng.integers(len(DOUBLES))]
        elif draw < 0.7:
            f[n] = BOX | SINGLES[rng.integers(len(SINGLES))]
        elif draw < 0.8:
            f[n] = BOX | int(rng.integers(1 << 32))
    row = instruction.row
    if row.access:
        base = DATA + 512 + 8 * int(rng.integers(64))
        if not {"imm12", "simm7"} & row.fields and rng.random() < 0.5:
            base = DATA + 64  # where the reservation is
        x[instruction.rs1] = base
    elif row.mnemonic == "jalr":
        x[instruction.rs1] = CODE + 1024 + int(rng.integers(64))
    data = rng.integers(0, 256, PAGE, np.uint8).tobytes()
    return State(x, f, frm << 5 | int(rng.integers(32)), CODE, data)


PLAIN_ROWS = [row for row in ROWS.values() if not row.slow]
