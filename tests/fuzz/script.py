"""A guest program in the making that makes one system call after the other, each with what earlier ones returned."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from emulator.isa.decode import assemble
from emulator.linux.abi.numbers import SYSTEM_CALL_NAMES
from tests.fuzz.hostile import EDGES, PATHS
from tests.fuzz.programs import CODE, DATA, elf

NUMBERS = {name: number for number, name in SYSTEM_CALL_NAMES.items()}
RESULTS, _POOL, _BUFFERS, _TEXTS, _DATA_BYTES = DATA, DATA + 0x2000, DATA + 0x6000, DATA + 0xA000, 0xC000
_WRONG = 0.06  # share of arguments that make no sense
_T0, A0, A7 = 5, 10, 17


@dataclass(frozen=True)
class Result:
    """What call number ``number`` returned."""

    number: int


@dataclass(frozen=True)
class Word:
    """The 32 bits at ``address``, such as a descriptor of a pipe."""

    address: int


Value = int | Result | Word
Story = Callable[["Script"], Iterator[None]]


@dataclass
class Script:
    """A guest program in the making; random choices by ``rng``."""

    rng: np.random.Generator
    words: list[int] = field(default_factory=list)
    pool: list[int] = field(default_factory=list)
    n_results: int = 0
    buffers: int = 0
    texts: dict[bytes, int] = field(default_factory=dict)
    data: bytearray = field(default_factory=lambda: bytearray(_DATA_BYTES))

    # --- data
    def buffer(self, contents: bytes = b"", n_bytes: int = 64) -> int:
        """The address of bytes of its own."""
        address = _BUFFERS + self.buffers % (_TEXTS - _BUFFERS)
        self.buffers += max(n_bytes, len(contents)) + 15 & -16
        self.data[address - DATA : address - DATA + len(contents)] = contents
        return address

    def text(self, path: bytes) -> int:
        if path not in self.texts:
            address = _TEXTS + sum(len(other) + 1 for other in self.texts)
            self.data[address - DATA : address - DATA + len(path)] = path
            self.texts[path] = address
        return self.texts[path]

    def pick(self, *choices: int) -> int:
        return choices[self.rng.integers(len(choices))]

    # --- code
    def call(self, name: str, *arguments: Value) -> Result:
        for n, argument in enumerate(arguments):
            self._load(A0 + n, self._nonsense() if self.rng.random() < _WRONG else argument)
        self.words += [assemble("addi", A7, 0, imm=NUMBERS[name]), assemble("ecall")]
        found = Result(self.n_results)
        self.n_results += 1
        self.words += self._far("sd", A0, RESULTS + 8 * found.number)
        return found

    def touch(self, address: Value, write: bool) -> None:
        """Use memory that a call gave, unless it failed."""
        self._load(A0, address)
        access = assemble("sd", rs1=A0, rs2=A0) if write else assemble("ld", A7, A0)
        self.words += [assemble("blt", rs1=A0, rs2=0, imm=8), access]

    def store(self, value: Value, address: int) -> None:
        self._load(A0, value)
        self.words += self._far("sw", A0, address)

    def fork(self, tell: Callable[[], None]) -> Result:
        """A child that does what ``tell`` says, and ends."""
        child = self.call("clone", 17, 0, 0, 0, 0)
        around = len(self.words)
        self.words += [0, 0]
        tell()
        self._load(A0, int(self.rng.integers(256)))
        self.words += [assemble("addi", A7, 0, imm=NUMBERS["exit_group"]), assemble("ecall")]
        self.words[around] = assemble("beq", rs1=A0, rs2=0, imm=8)
        self.words[around + 1] = assemble("jal", 0, imm=4 * (len(self.words) - around - 1))
        return child

    def _load(self, register: int, value: Value) -> None:
        if isinstance(value, Result):
            self.words += self._far("ld", register, RESULTS + 8 * value.number)
        elif isinstance(value, Word):
            self.words += self._far("lw", register, value.address)
        else:
            self.words += self._far("ld", register, _POOL + 8 * len(self.pool))
            self.pool.append(value & (1 << 64) - 1)

    @staticmethod
    def _far(name: str, register: int, address: int) -> list[int]:
        high, low = address + 0x800 & ~0xFFF, (address + 0x800 & 0xFFF) - 0x800
        access = (
            assemble(name, register, _T0, register, low) if name[0] == "l" else assemble(name, 0, _T0, register, low)
        )
        return [assemble("lui", _T0, imm=high), access]

    def _nonsense(self) -> Value:
        draw = self.rng.random()
        if draw < 0.4:
            return EDGES[self.rng.integers(len(EDGES))]
        if draw < 0.6 and self.n_results:
            return Result(int(self.rng.integers(self.n_results)))
        if draw < 0.8:
            return self.text(PATHS[self.rng.integers(len(PATHS))])
        return _BUFFERS + int(self.rng.integers(_TEXTS - _BUFFERS))

    def program(self) -> bytes:
        end = [assemble("addi", A0), assemble("addi", A7, 0, imm=NUMBERS["exit_group"]), assemble("ecall")]
        self.data[_POOL - DATA : _POOL - DATA + 8 * len(self.pool)] = struct.pack(f"<{len(self.pool)}Q", *self.pool)
        handler = [assemble("jalr", 0, 1)]
        code = b"".join(word.to_bytes(4, "little") for word in (*handler, *self.words, *end))
        whole = bytearray(elf(code, bytes(self.data)))
        whole[24:32] = (CODE + 4).to_bytes(8, "little")
        return bytes(whole)


# --- stories: each ``yield`` is where another one may go on
