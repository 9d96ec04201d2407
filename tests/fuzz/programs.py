"""Random guest programs: a body of instructions that is executed a few times, from any state of the registers.

A program is a list of items, each of which stands alone: a branch says how many items it skips, so a program with an
item less is a program again, which is what `minimise` needs. Some registers are kept as they are: the base of the
window of memory, a loop counter, and the address of the body.
"""

from __future__ import annotations

import struct
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from emulator.isa.decode import assemble, decode, expand_compressed
from emulator.isa.table import ROWS, Row

CODE, DATA, DATA_BYTES = 0x10000, 0x20000, 8192
WINDOW, COUNTER, BODY, STACK = 8, 9, 18, 2  # registers: s0, s1, s2, sp
KEPT = (WINDOW, COUNTER, BODY, STACK)
MIDDLE = DATA + DATA_BYTES // 2
GETPID = 172
MOST_SKIPPED = 6

INTEGERS = [0, 1, 2, 31, 32, 63, 0x7F, 0x80, 0xFF, 0x8000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 32,
            (1 << 63) - 1, 1 << 63, (1 << 64) - 1, (1 << 64) - 2, 0x0123456789ABCDEF, 0xFFFFFFFF80000000,
            MIDDLE, MIDDLE + 8, DATA, CODE]  # fmt: skip
DOUBLES = [0, 1 << 63, 0x3FF0000000000000, 0xBFF8000000000000, 0x7FF0000000000000, 0xFFF0000000000000,
           0x7FF8000000000000, 0xFFF8000000000123, 0x7FF0000000000001, 1, 0x000FFFFFFFFFFFFF, 0x0010000000000000,
           0x7FEFFFFFFFFFFFFF, 0x41DFFFFFFFC00000, 0x43E0000000000000, 0xC3E0000000000000,
           0x3FE0000000000000]  # fmt: skip
SINGLES = [0, 1 << 31, 0x3F800000, 0xBFC00000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0x7F800001, 1,
           0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0x4F000000, 0xDF000000, 0x3F000000]  # fmt: skip
BOX = 0xFFFFFFFF00000000
CSRS = (1, 1, 2, 3, 3, 0xC00, 0xC01, 0xC02, 0x123)  # the last does not exist
READ_ONLY = 0xC00

BRANCHES = [row for row in ROWS.values() if "bimm7" in row.fields]
CSR_ROWS = [row for row in ROWS.values() if "csr" in row.fields]
PLAIN = [row for row in ROWS.values() if not row.access and not row.ends_block and not row.slow]
INTEGER = [row for row in PLAIN if "f" not in row.register_kinds]
FLOATING = [row for row in PLAIN if "f" in row.register_kinds]
ACCESSES = [row for row in ROWS.values() if row.access]


# Passes over the instruction: those that may fault have 4 bytes. a2 is the context, its registers begin with the pc.
_HANDLER = (
    assemble("ld", 5, 12, imm=176), assemble("addi", 5, 5, imm=4), assemble("sd", rs1=12, rs2=5, imm=176),
    assemble("jalr", 0, 1),
)  # fmt: skip


@dataclass(frozen=True)
class Item:
    """``kind``: "code" (``word``, of 2 or 4 bytes), or a transfer that skips ``skip`` items: "branch" (``word`` without
    its offset), "jal" and "jalr" (``word`` is the link register), "c.j", "c.beqz" or "c.bnez" (of ``word``), or
    "call" (a system call)."""

    kind: str
    word: int
    skip: int = 0

    @property
    def n_bytes(self) -> int:
        if self.kind == "code":
            return 4 if self.word & 3 == 3 else 2
        return 2 if self.kind.startswith("c.") else 8 if self.kind == "call" else 4


@dataclass(frozen=True)
class Program:
    """``items``, executed ``rounds`` times from the registers given, with the window filled from ``seed``: with
    bytes, or
    with ``floats``, numbers of both formats.

    ``catches``: a handler for SIGSEGV passes over instructions that fault; what it sees is in the window's memory.
    """

    items: tuple[Item, ...]
    x: tuple[int, ...]
    f: tuple[int, ...]
    fcsr: int
    rounds: int
    seed: int
    catches: bool = False
    floats: bool = False

    def with_items(self, items: tuple[Item, ...]) -> Program:
        return replace(self, items=items)

    def to_json(self) -> dict[str, Any]:
        found = asdict(self)
        found["x"], found["f"] = [hex(v) for v in self.x], [hex(v) for v in self.f]
        found["items"] = [[item.kind, hex(item.word), item.skip] for item in self.items]
        return found

    @staticmethod
    def from_json(found: dict[str, Any]) -> Program:
        return Program(
            tuple(Item(kind, int(word, 16), skip) for kind, word, skip in found["items"]),
            tuple(int(v, 16) for v in found["x"]), tuple(int(v, 16) for v in found["f"]),
            found["fcsr"], found["rounds"], found["seed"], found["catches"], found.get("floats", False),
        )  # fmt: skip

    @property
    def data(self) -> bytes:
        if self.floats:
            rng = np.random.default_rng(self.seed)
            return b"".join(random_float(rng).to_bytes(8, "little") for _ in range(DATA_BYTES // 8))
        return np.random.default_rng(self.seed).integers(0, 256, DATA_BYTES, np.uint8).tobytes()

    @property
    def is_integer(self) -> bool:
        """Whether it has nothing but integer instructions, memory and branches."""
        for item in self.items:
            if item.kind == "call":
                return False
            if item.kind == "code":
                instruction = decode(item.word)
                if instruction is None or "f" in instruction.row.register_kinds or instruction.row.slow:
                    return False
                if instruction.row.mnemonic.startswith(("lr.", "sc.")):
                    return False
        return True

    def code(self) -> tuple[bytes, int]:
        """The bytes at CODE, and the offset of what follows the last round (exit with status 0)."""
        offsets = [0]
        for item in self.items:
            offsets.append(offsets[-1] + item.n_bytes)
        body = b"".join(
            _encoded(item, offsets[n], offsets[min(n + 1 + item.skip, len(self.items))])
            for n, item in enumerate(self.items)
        )
        # The last transfer back is longer than a branch may be: around it with a short one.
        end = [assemble("addi", COUNTER, COUNTER, imm=-1), assemble("beq", rs1=COUNTER, rs2=0, imm=8)]
        end.append(assemble("jal", 0, imm=-(len(body) + 8)))
        leave = [assemble("addi", 10, 0, imm=0), assemble("addi", 17, 0, imm=93), assemble("ecall")]
        words = b"".join(word.to_bytes(4, "little") for word in (*end, *leave, *_HANDLER))
        return body + words, len(body) + 12

    @property
    def handler(self) -> int:
        """Where the handler for SIGSEGV is."""
        return CODE + self.code()[1] + 12

    def elf(self) -> bytes:
        return elf(self.code()[0], self.data)


def _encoded(item: Item, here: int, target: int) -> bytes:
    if item.kind == "call":
        words = (assemble("addi", 17, 0, imm=item.word), assemble("ecall"))
        return b"".join(word.to_bytes(4, "little") for word in words)
    offset = target - here
    if item.kind == "code":
        word = item.word
    elif item.kind == "branch":
        word = item.word | assemble("beq", imm=offset) & ~ROWS["beq"].match
    elif item.kind == "jal":
        word = assemble("jal", item.word, imm=offset)
    elif item.kind == "jalr":
        if target >= 2048:
            return _encoded(Item("jal", item.word), here, target)
        word = assemble("jalr", item.word, BODY, imm=target)
    elif item.kind == "c.j":
        word = 0xA001 | _scattered(
            offset,
            ((11, 12), (4, 11), (9, 10), (8, 9), (10, 8), (6, 7), (7, 6), (3, 5), (2, 4), (1, 3), (5, 2)),
        )
    else:
        word = (0xC001 if item.kind == "c.beqz" else 0xE001) | (item.word & 7) << 7
        word |= _scattered(offset, ((8, 12), (4, 11), (3, 10), (7, 6), (6, 5), (2, 4), (1, 3), (5, 2)))
    return word.to_bytes(item.n_bytes, "little")


def _scattered(offset: int, places: tuple[tuple[int, int], ...]) -> int:
    return sum((offset >> bit & 1) << place for bit, place in places)


def elf(code: bytes, data: bytes, data_flags: int = 6) -> bytes:
    """An executable of two segments: code at CODE, data at DATA."""
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 2, 243, 1, CODE, 64, 0, 5, 64, 56, 2, 64, 0, 0)
    start = 4096
    after = start + (len(code) + 4095 & -4096)
    table = struct.pack("<IIQQQQQQ", 1, 5, start, CODE, CODE, len(code), len(code), 4096)
    table += struct.pack("<IIQQQQQQ", 1, data_flags, after, DATA, DATA, len(data), len(data), 4096)
    return (head + table).ljust(start, b"\0") + code.ljust(after - start, b"\0") + data


# --- making them
def random_program(seed: int, length: int = 40) -> Program:
    """The program of ``seed``: one of several mixtures of integer, floating-point and memory instructions."""
    rng = np.random.default_rng(seed)
    mixture = int(rng.integers(4))
    floating = (0.0, 0.15, 0.5, 0.3)[mixture]
    catches = rng.random() < 0.2
    wild = 0.2 if catches else 0.02 if rng.random() < 0.2 else 0.0
    items = tuple(random_item(rng, floating, wild) for _ in range(int(rng.integers(3, length + 1))))
    x = [
        INTEGERS[rng.integers(len(INTEGERS))] if rng.random() < 0.6 else int(rng.integers(1 << 63)) * 2 + 1
        for _ in range(32)
    ]
    x[0] = 0
    rounds = int(rng.integers(4, 12))
    x[WINDOW] = x[STACK] = MIDDLE
    x[COUNTER], x[BODY] = rounds, CODE
    frm = int(rng.integers(5)) if mixture else 0
    f = tuple(random_float(rng) for _ in range(32))
    return Program(items, tuple(x), f, frm << 5 | int(rng.integers(32)), rounds, seed, catches)


def random_float(rng: np.random.Generator) -> int:
    draw = rng.random()
    if draw < 0.4:
        return DOUBLES[rng.integers(len(DOUBLES))]
    if draw < 0.7:
        return BOX | SINGLES[rng.integers(len(SINGLES))]
    if draw < 0.9:  # exponents that meet, and few bits set, so that ties and exact results come up
        is_single = draw < 0.8
        bits, bias = (23, 127) if is_single else (52, 1023)
        fraction = sum({1 << int(rng.integers(bits)) for _ in range(int(rng.integers(4)))})
        number = (bias + int(rng.integers(-bits - 2, bits + 2))) << bits | fraction
        number |= int(rng.integers(2)) << (31 if is_single else 63)
        return BOX | number if is_single else number
    return int(rng.integers(1 << 63)) * 2 + 1


def random_item(rng: np.random.Generator, floating: float, wild: float) -> Item:
    draw, skip = rng.random(), int(rng.integers(MOST_SKIPPED + 1))
    if draw < 0.10:
        row = BRANCHES[rng.integers(len(BRANCHES))]
        rs1, rs2 = (int(n) for n in rng.integers(0, 32, 2))
        return Item("branch", row.match | rs1 << 15 | rs2 << 20, skip)
    if draw < 0.14:
        return Item(("jal", "jalr")[rng.integers(2)], free_register(rng), skip)
    if draw < 0.18:
        return Item(("c.j", "c.beqz", "c.bnez")[rng.integers(3)], int(rng.integers(8)), skip)
    if draw < 0.28:
        return compressed_item(rng)
    if draw < 0.45:
        return Item("code", _access(rng, floating, wild))
    if floating and draw < 0.48:
        return Item("code", _csr(rng, CSRS if wild else CSRS[:-1]))
    if floating and draw < 0.49:
        return Item("call", GETPID)
    if draw < 0.50:
        return Item("code", ROWS[("fence", "fence.i")[rng.integers(2)]].match)
    rows = FLOATING if rng.random() < floating else INTEGER
    return Item("code", plain_word(rng, rows[rng.integers(len(rows))]))


def free_register(rng: np.random.Generator) -> int:
    """A register that may be written to."""
    while True:
        number = int(rng.integers(32))
        if number not in KEPT:
            return number


def plain_word(rng: np.random.Generator, row: Row) -> int:
    word = row.match
    if "rd" in row.fields:
        word |= (free_register(rng) if row.register_kinds[0] == "x" else int(rng.integers(32))) << 7
    if "rs1" in row.fields:
        word |= int(rng.integers(32)) << 15
    if "rs2" in row.fields:
        word |= int(rng.integers(32)) << 20
    if "rs3" in row.fields:
        word |= int(rng.integers(32)) << 27
    if "rm" in row.fields:
        word |= (7 if rng.random() < 0.7 else int(rng.integers(5))) << 12
    if "imm12" in row.fields:
        word |= int(rng.choice([0, 1, 0x7FF, 0x800, 0xFFF, int(rng.integers(4096))])) << 20
    if "shamt6" in row.fields:
        word |= int(rng.integers(64)) << 20
    if "shamt5" in row.fields:
        word |= int(rng.integers(32)) << 20
    if "imm20" in row.fields:
        word |= int(rng.integers(1 << 20)) << 12
    return word


def _access(rng: np.random.Generator, floating: float, wild: float) -> int:
    while True:
        row = ACCESSES[rng.integers(len(ACCESSES))]
        if floating or "f" not in row.register_kinds:
            break
    base = int(rng.integers(32)) if rng.random() < wild else WINDOW
    offset = int(rng.integers(-256, 256)) * (1 if rng.random() < 0.3 else 8)
    rd = free_register(rng) if row.register_kinds[0] != "f" else int(rng.integers(32))
    word = assemble(row.mnemonic, rd, base, int(rng.integers(32)), offset if {"imm12", "simm7"} & row.fields else 0)
    if "aq" in row.fields:
        word |= int(rng.integers(4)) << 25
    return word


def _csr(rng: np.random.Generator, known: tuple[int, ...]) -> int:
    row, number = CSR_ROWS[rng.integers(len(CSR_ROWS))], known[rng.integers(len(known))]
    source = int(rng.integers(32))
    if number >= READ_ONLY:
        row, source = ROWS["csrrs"], 0
    return row.match | free_register(rng) << 7 | source << 15 | number << 20


def compressed_item(rng: np.random.Generator) -> Item:
    """Any 16-bit instruction that goes on behind itself and keeps what is to be kept."""
    while True:
        half = int(rng.integers(1 << 16))
        word = expand_compressed(half) if half & 3 != 3 else None
        instruction = None if word is None else decode(half)
        if instruction is None or instruction.row.ends_block or instruction.row.slow:
            continue
        if instruction.row.register_kinds[0] == "x" and instruction.rd in KEPT:
            continue
        if instruction.row.access and instruction.rs1 not in (WINDOW, STACK):
            continue
        return Item("code", half)
