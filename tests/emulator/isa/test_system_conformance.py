"""CSRs, environment calls, breakpoints, fences, reserved rounding modes and hints, on every engine."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import pytest

from emulator.linux.abi.numbers import Signal
from emulator.machine import Machine
from tests.emulator.isa.kernels import ENGINE_NAMES, engine_named
from tests.emulator.isa.reference_compressed import LISTING
from tests.emulator.isa.reference_encoding import encode
from tests.fuzz.programs import CODE, DATA, elf

TESTED = ["csrrw", "csrrs", "csrrc", "csrrwi", "csrrsi", "csrrci", "ecall", "ebreak", "fence", "fence.i"]
FFLAGS, FRM, FCSR, CYCLE, TIME, INSTRET = 1, 2, 3, 0xC00, 0xC01, 0xC02
GETPID, EXIT = 172, 93
ROUNDS = 12  # of a loop, so that it is translated
LEAVE = [encode("addi", 17, 0, imm=EXIT), encode("ecall")]


@dataclass(frozen=True)
class End:
    status: int
    signal: int | None
    message: str
    x: list[int]
    f: list[int]
    fcsr: int


def run(code: bytes | list[int], engine: str, writable: bool = False) -> End:
    """Run ``code`` to its end: words, or bytes."""
    if isinstance(code, list):
        code = b"".join(word.to_bytes(4, "little") for word in code)
    program = bytearray(elf(code, bytes(64)))
    program[64 + 4] |= 2 * writable
    chosen = engine_named(engine)
    with Machine(
        bytes(program), engine=chosen.kind, background=False, templates=chosen.templates,
        optimise_executions=chosen.optimise_executions, limit_instructions=100_000,
    ) as machine:  # fmt: skip
        ending = machine.run()
        hart = machine.hart
        return End(ending.status, ending.signal, ending.message or "", hart.x.tolist(), hart.f.tolist(), hart.fcsr)


def looped(body: list[int]) -> list[int]:
    """``body``, executed ROUNDS times; x9 counts."""
    return [encode("addi", 9, 0, imm=ROUNDS), *body, encode("addi", 9, 9, imm=-1),
            encode("bne", 0, 9, 0, -4 * len(body) - 4), *LEAVE]  # fmt: skip


@pytest.mark.parametrize("engine", ENGINE_NAMES)
def test_floating_point_csrs(engine: str) -> None:
    """fflags and frm are fields of fcsr; what does not fit is dropped; old values are read before new ones are
    written."""
    value = 0x1FF
    end = run(looped([
        encode("addi", 5, 0, imm=value), encode("csrrw", 20, 5, imm=FCSR), encode("csrrs", 21, 0, imm=FCSR),
        encode("csrrwi", 22, 0b10101, imm=FFLAGS), encode("csrrs", 23, 0, imm=FCSR),
        encode("csrrwi", 24, 0b01010, imm=FRM), encode("csrrs", 25, 0, imm=FCSR),
        encode("csrrci", 26, 0b00100, imm=FFLAGS), encode("csrrsi", 27, 0b00101, imm=FRM),
        encode("addi", 5, 0, imm=0x11), encode("csrrc", 28, 5, imm=FCSR), encode("csrrs", 29, 0, imm=FFLAGS),
        encode("csrrs", 30, 0, imm=FRM), encode("addi", 5, 0, imm=0x28), encode("csrrs", 31, 5, imm=FCSR),
    ]), engine)  # fmt: skip
    assert end.status == 0
    assert end.x[21:32] == [0xFF, 0x1F, 0xF5, 7, 0x55, 0x15, 2, 0xF1, 0, 7, 0xE0]
    assert end.x[20] == end.fcsr == 0xE8


@pytest.mark.parametrize("engine", ENGINE_NAMES)
def test_a_csr_is_written_only_when_an_operand_is_named(engine: str) -> None:
    """csrrs and csrrc of x0, csrrsi and csrrci of 0 read counters, which cannot be written; a register that holds 0
    writes; csrrw to x0 does not read."""
    for name, operand in (("csrrs", 0), ("csrrc", 0), ("csrrsi", 0), ("csrrci", 0)):
        assert run([encode(name, 5, operand, imm=INSTRET), *LEAVE], engine).status == 0
    for name, operand in (
        ("csrrs", 6),
        ("csrrc", 6),
        ("csrrsi", 1),
        ("csrrci", 1),
        ("csrrw", 0),
        ("csrrwi", 0),
    ):
        end = run([encode("addi", 6), encode(name, 5, operand, imm=INSTRET), *LEAVE], engine)
        assert end.signal == Signal.SIGILL, name


@pytest.mark.parametrize("engine", ENGINE_NAMES)
def test_counters(engine: str) -> None:
    """instret counts instructions; cycle and time never go back."""
    end = run(looped([
        encode("csrrs", 20, 0, imm=INSTRET), encode("csrrs", 21, 0, imm=CYCLE), encode("csrrs", 22, 0, imm=TIME),
        encode("addi", 0), encode("addi", 0), encode("csrrs", 23, 0, imm=INSTRET), encode("csrrs", 24, 0, imm=CYCLE),
        encode("csrrs", 25, 0, imm=TIME),
    ]), engine)  # fmt: skip
    assert end.x[23] - end.x[20] == 5
    assert end.x[24] > end.x[21]
    assert end.x[25] >= end.x[22]
    assert end.x[20] > 10 * (ROUNDS - 1)


@pytest.mark.parametrize("engine", ENGINE_NAMES)
def test_reserved_rounding_modes(engine: str) -> None:
    """frm may hold 5, 6 or 7, but then a dynamic rounding mode is illegal, even where nothing is rounded; a mode in the
    instruction is not, nor are instructions without one."""
    one = [encode("addi", 5, 0, imm=1), encode("fcvt.d.w", 1, 5, rm=0)]
    for frm in (5, 6, 7):
        start = [*one, encode("csrrwi", 0, frm, imm=FRM)]
        for name in ("fadd.d", "fmul.s", "fcvt.d.s", "fcvt.d.w", "fcvt.w.d", "fsqrt.d", "fmadd.d"):
            end = run([*start, encode(name, 2, 1, 0 if name[:4] in ("fcvt", "fsqr") else 1)], engine)
            assert end.signal == Signal.SIGILL, (name, frm)
            assert f"{CODE + 12:#x}" in end.message
        fine = [encode("fadd.d", 2, 1, 1, rm=1), encode("fsgnj.d", 3, 2, 2), encode("fmin.d", 4, 2, 1),
                encode("feq.d", 20, 1, 1), encode("fclass.d", 21, 1), encode("fmv.x.d", 22, 2),
                encode("csrrs", 23, 0, imm=FRM)]  # fmt: skip
        end = run([*start, *fine, *LEAVE], engine)
        assert end.status == 0
        assert end.x[20:24] == [1, 1 << 6, 0x4000000000000000, frm]
        assert end.f[4] == 0x3FF0000000000000


@pytest.mark.parametrize("engine", ENGINE_NAMES)
def test_rounding_mode_changes_between_instructions(engine: str) -> None:
    """1/3 in all five modes, frm written between two divisions of one round, and sticky flags cleared."""
    words = [
        encode("addi", 5, 0, imm=1),
        encode("addi", 6, 0, imm=3),
        encode("fcvt.d.w", 1, 5),
        encode("fcvt.d.w", 2, 6),
    ]
    for frm in range(5):
        words += [
            encode("csrrwi", 0, frm, imm=FRM),
            encode("csrrwi", 0, 0, imm=FFLAGS),
            encode("fdiv.d", 10 + frm, 1, 2),
        ]
        words += [encode("fmv.x.d", 20 + frm, 10 + frm), encode("csrrs", 25 + frm, 0, imm=FFLAGS)]
    end = run(looped([*words, encode("csrrwi", 0, 0, imm=FCSR)]), engine)
    below = 0x3FD5555555555555
    assert end.x[20:25] == [below, below, below, below + 1, below]
    assert end.x[25:30] == [1] * 5


@pytest.mark.parametrize("engine", ENGINE_NAMES)
def test_ecall_and_ebreak(engine: str) -> None:
    """An ecall goes on behind itself with a0 changed alone; ebreak, long and short, is SIGTRAP at its address."""
    body = [encode("addi", n, 0, imm=n) for n in range(5, 32) if n not in (9, 17)]
    end = run(looped([*body, encode("addi", 17, 0, imm=GETPID), encode("ecall"), encode("addi", 5, 10)]), engine)
    assert end.x[5] == end.x[10] != 10
    assert end.status == end.x[5] & 0xFF
    assert [end.x[n] for n in range(6, 32) if n not in (9, 10, 17)] == [n for n in range(6, 32) if n not in (9, 10, 17)]
    for word, size in ((encode("ebreak"), 4), (0x9002, 2)):
        code = encode("addi", 20, 0, imm=5).to_bytes(4, "little") + word.to_bytes(size, "little")
        end = run(code, engine)
        assert (end.signal, end.x[20]) == (Signal.SIGTRAP, 5)
        assert f"{CODE + 4:#x}" in end.message


@pytest.mark.parametrize("engine", ENGINE_NAMES)
def test_fences(engine: str) -> None:
    """A fence, whatever its fields, changes nothing; after fence.i new code is executed, in a loop that is
    translated."""
    fences = [
        encode("fence", rd, rs1, imm=imm) for rd, rs1, imm in ((0, 0, 0xFF), (0, 0, 0x833), (3, 7, 0), (0, 0, 0x10))
    ]
    assert run(looped([*fences, encode("addi", 20, 20, imm=1)]), engine).x[20] == ROUNDS
    step = encode("addi", 21, 21, imm=1)
    body = [  # each round adds one more than the last
        encode("auipc", 5), encode("lw", 6, 5, imm=24), encode("lui", 7, imm=1 << 20), encode("add", 6, 6, 7),
        encode("sw", 0, 5, 6, 24), encode("fence.i", imm=0), step,
    ]  # fmt: skip
    assert run(looped(body), engine, writable=True).x[21] == sum(range(2, ROUNDS + 2))


@pytest.mark.parametrize("engine", ENGINE_NAMES)
def test_hints_change_nothing(engine: str) -> None:
    """All encodings that would write x0, or shift by 0, of both lengths."""
    words = [
        encode("lui", 0, imm=0x1000), encode("auipc", 0, imm=0x1000), encode("addi", 0, 5, imm=7),
        encode("add", 0, 5, 6),
        encode("slti", 0, 5, imm=1), encode("sub", 0, 5, 6), encode("sraiw", 0, 5, imm=3), encode("mul", 0, 5, 6),
        encode("clz", 0, 5), encode("fmv.x.d", 0, 1), encode("feq.d", 0, 1, 1),
    ]  # fmt: skip
    halves = [
        0x0005,
        0x1001,
        0x4015,
        0x6005,
        0x0006,
        0x1002,
        0x8016,
        0x9016,
        0x8001,
        0x8401,
        0x8081,
        0x0086 & ~0x7C,
    ]
    assert all(any(row.fields(half) for row in LISTING) for half in halves)
    setting = [encode("addi", n, 0, imm=n) for n in range(1, 32) if n != 9]
    code = b"".join(word.to_bytes(4, "little") for word in (*setting, *words))
    code += b"".join(half.to_bytes(2, "little") for half in halves)
    count = len(setting) + len(words)
    rest = [encode("addi", 9, 9, imm=-1), encode("bne", 0, 9, 0, -4 * count - 2 * len(halves) - 4), *LEAVE]
    code = encode("addi", 9, 0, imm=ROUNDS).to_bytes(4, "little") + code
    end = run(code + b"".join(word.to_bytes(4, "little") for word in rest), engine)
    assert [end.x[n] for n in range(32) if n not in (9, 17)] == [n for n in range(32) if n not in (9, 17)]


ACCESSES = ("lb", "lhu", "lw", "lwu", "ld", "flw", "fld", "sb", "sd", "fsw", "fsd", "lr.w", "lr.d", "sc.w", "sc.d",
            "amoadd.w", "amoadd.d", "amomaxu.w", "amoswap.d")  # fmt: skip


@pytest.mark.parametrize("engine", ENGINE_NAMES)
@pytest.mark.parametrize("good_rounds", [0, ROUNDS])
def test_a_bad_access_is_located(engine: str, good_rounds: int) -> None:
    """It ends the guest with the access's own address and instruction, in the first round or after a loop was
    translated, with other accesses before and after it."""
    for name in ACCESSES:
        rs2 = 0 if name.startswith("lr.") else 6
        body = [
            encode("sltiu", 7, 9, imm=1), encode("slli", 7, 7, imm=20), encode("add", 7, 5, 7),
            encode("lw", 8, 5, imm=16), encode(name, 20, 7, rs2), encode("lw", 8, 5, imm=24),
            encode("addi", 9, 9, imm=-1),
            encode("jal", 0, imm=-28),
        ]  # fmt: skip
        end = run([encode("lui", 5, imm=DATA), encode("addi", 9, 0, imm=good_rounds), *body], engine)
        assert end.signal == Signal.SIGSEGV, name
        assert f"{DATA + 0x100000:#x}" in end.message
        assert f"at {CODE + 24:#x}" in end.message, (name, end.message)
        assert f"{name} " in end.message


@pytest.mark.parametrize("engine", ENGINE_NAMES)
@pytest.mark.parametrize("good_rounds", [0, ROUNDS])
def test_a_misaligned_atomic_is_a_bus_error(engine: str, good_rounds: int) -> None:
    """Ordinary accesses may be misaligned, atomics not, whether anything is mapped there or not."""
    names = ("lr.w", "lr.d", "sc.w", "sc.d", "amoadd.w", "amoswap.d")
    for (name, skew), base in product(product(names, (1, 2, 4)), (DATA, DATA + 0x100000)):
        if skew == 4 and name.endswith(".w"):
            continue
        rs2 = 0 if name.startswith("lr.") else 6
        body = [  # in the last round x7 has another address
            encode("sltiu", 7, 9, imm=1), encode("sub", 7, 0, 7), encode("and", 7, 7, 21), encode("add", 7, 7, 5),
            encode("lw", 8, 5, imm=17), encode(name, 20, 7, rs2), encode("addi", 9, 9, imm=-1),
            encode("jal", 0, imm=-28),
        ]  # fmt: skip
        start = [
            encode("lui", 5, imm=DATA), encode("addi", 9, 0, imm=good_rounds), encode("lui", 21, imm=base - DATA),
            encode("addi", 21, 21, imm=skew),
        ]  # fmt: skip
        end = run([*start, *body], engine)
        assert end.signal == Signal.SIGBUS, (name, end)
        assert f"{base + skew:#x}: the address must be a multiple of {8 if name[-1] == 'd' else 4}" in end.message
        assert f"at {CODE + 36:#x}" in end.message


@pytest.mark.parametrize("engine", ENGINE_NAMES)
def test_a_jump_to_nothing_is_located(engine: str) -> None:
    end = run([encode("lui", 5, imm=DATA + 0x100000), encode("jalr", 0, 5)], engine)
    assert end.signal == Signal.SIGSEGV
    assert f"{DATA + 0x100000:#x}" in end.message
