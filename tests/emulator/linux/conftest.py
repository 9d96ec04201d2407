"""A fake hart, hand-made ELF files, a kernel that tests call by name, and real guests run on unicorn."""

from __future__ import annotations

import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emulator.linux.abi.numbers import SYSTEM_CALL_NAMES
from emulator.linux.kernel.hart_protocol import GuestExit
from emulator.linux.linux_kernel import LinuxKernel
from emulator.linux.loader.elf import load_image
from emulator.linux.loader.process_image import Layout, build_process
from emulator.linux.vfs.files import VirtualFiles
from emulator.memory import READ, WRITE, GuestMemory
from experiments.benchmarks.host import qemu
from instrumenter.compiler.toolchain import Toolchain

NUMBERS = {name: number for number, name in SYSTEM_CALL_NAMES.items()}
CODE_ADDRESS, DATA_ADDRESS = 0x10000, 0x20000
SCRATCH, SCRATCH_BYTES = 0x4000_0000, 0x10_0000


class FakeHart:
    """Registers and nothing else."""

    def __init__(self) -> None:
        both = np.zeros(64, np.uint64)
        self.x, self.f, self.registers = both[:32], both[32:], both.data.cast("B").cast("Q")
        self.pc = CODE_ADDRESS
        self.fcsr = 0


@dataclass
class ElfFile:
    """A tiny executable: a header, program headers, code, data and (optionally) a symbol table."""

    header: dict[str, int] = field(default_factory=dict)
    interpreter: bytes | None = None
    symbols: list[tuple[str, int, int, int]] = field(default_factory=list)  # name, kind, address, size
    data_address: int = DATA_ADDRESS
    data_memory_bytes: int = 0x2000

    def build(self) -> bytes:
        code, data = bytes.fromhex("13000000") * 4, b"initialised data"
        parts = [
            (1, 5, CODE_ADDRESS, code, len(code)),
            (1, 6, self.data_address, data, self.data_memory_bytes),
        ]
        if self.interpreter is not None:
            parts.append((3, 4, 0, self.interpreter, len(self.interpreter)))
        offset = 64 + 56 * len(parts)
        table, contents = b"", b""
        for kind, flags, address, blob, memory_bytes in parts:
            where = offset + len(contents)
            table += struct.pack("<IIQQQQQQ", kind, flags, where, address, address, len(blob), memory_bytes, 4096)
            contents += blob
        sections, section_count = b"", 0
        if self.symbols:
            names = b"\0"
            entries = bytes(24)
            for name, kind, address, size in self.symbols:
                entries += struct.pack("<IBBHQQ", len(names), kind, 0, 1, address, size)
                names += name.encode() + b"\0"
            first = offset + len(contents)
            contents += entries + names
            blank = bytes(64)
            symtab = struct.pack("<IIQQQQIIQQ", 0, 2, 0, 0, first, len(entries), 2, 0, 8, 24)
            strtab = struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, first + len(entries), len(names), 0, 0, 1, 0)
            sections, section_count = blank + symtab + strtab, 3
        fields = {
            "type": 2,
            "machine": 243,
            "version": 1,
            "entry": CODE_ADDRESS,
            "phoff": 64,
            "shoff": offset + len(contents) if sections else 0,
            "flags": 5,
            "ehsize": 64,
            "phentsize": 56,
            "phnum": len(parts),
            "shentsize": 64,
            "shnum": section_count,
            "shstrndx": 0,
        }
        identity = {"class": 2, "order": 1, "os": 0}
        fields.update({k: v for k, v in self.header.items() if k in fields})
        identity.update({k: v for k, v in self.header.items() if k in identity})
        head = b"\x7fELF" + bytes([identity["class"], identity["order"], 1, identity["os"]]) + bytes(8)
        return head + struct.pack("<HHIQQQIHHHHHH", *fields.values()) + table + contents + sections


class Guest:
    """A process without code: tests make its system calls."""

    def __init__(self, files: VirtualFiles | None = None, layout: Layout | None = None, **options: Any) -> None:
        self.now = 0
        self.memory = GuestMemory()
        self.image = load_image(ElfFile().build(), "/bin/guest")
        self.process = build_process(self.memory, self.image, ["guest", "argument"], {"A": "b"}, layout)
        self.kernel = LinuxKernel(self.memory, self.process, files, lambda: self.now, **options)
        self.files = self.kernel.files
        self.hart = FakeHart()
        self.hart.x[2] = self.process.stack_pointer
        self.memory.map(SCRATCH, SCRATCH_BYTES, READ | WRITE)
        self._next = SCRATCH

    def put(self, data: bytes | str) -> int:
        """Address of a copy of ``data`` (text gets its terminating zero)."""
        data = data.encode() + b"\0" if isinstance(data, str) else data
        address = self._next
        self.memory.write(address, data)
        self._next += len(data) + 15 & -16
        return address

    def space(self, n_bytes: int) -> int:
        return self.put(bytes(n_bytes))

    def call(self, name: str, *arguments: int | str | bytes) -> int:
        """Result of a system call, negative for errors; texts and bytes are passed by address."""
        values = [a if isinstance(a, int) else self.put(a) for a in arguments]
        self.hart.x[10:16] = [v & (2**64 - 1) for v in values] + [0] * (6 - len(values))
        self.hart.x[17] = NUMBERS[name]
        self.kernel.syscall(self.hart)
        return int(self.hart.x[10].astype(np.int64))

    def words(self, address: int, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}q", self.memory.read(address, 8 * count))


@pytest.fixture
def hart() -> FakeHart:
    return FakeHart()


@pytest.fixture(scope="session")
def elf_file() -> type[ElfFile]:
    return ElfFile


@pytest.fixture
def make_guest() -> Iterator[Callable[..., Guest]]:
    """Makes guests and frees their memory afterwards."""
    made = []

    def make(**options: Any) -> Guest:
        made.append(Guest(**options))
        return made[-1]

    yield make
    for guest in made:
        guest.files.close()
        guest.memory.close()


@pytest.fixture
def guest(make_guest: Callable[..., Guest]) -> Guest:
    return make_guest()


GUEST_SOURCE = Path(__file__).with_name("guest_program.c")
# For the latter the compiler makes a C library, which takes a minute: the tests are in one file, so that one process of
# the tests waits for it, not each.
STATIC_AND_PIE = [pytest.param(False, id="static"), pytest.param(True, id="static-pie")]


@pytest.fixture(scope="session")
def guest_program(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Path of ``guest_program.c`` compiled; ``guest_program(pie=True)`` for a position-independent one."""
    directory = tmp_path_factory.mktemp("guest")

    def compile_it(pie: bool = False) -> Path:
        target = directory / f"guest{'_pie' if pie else ''}"
        if not target.exists():
            if pie:  # with the compiler's own C library
                command = [sys.executable, "-m", "ziglang", "cc", "-target", "riscv64-linux-musl", "-g", "-O1"]
                subprocess.run([*command, "-fPIE", "-pie", str(GUEST_SOURCE), "-o", str(target)], check=True)
            else:
                Toolchain().link([GUEST_SOURCE], ["-g", "-O1"], target)
        return target

    return compile_it


@dataclass(frozen=True)
class Ended:
    """How a real guest ended."""

    status: int
    stdout: str
    stderr: str
    captured: dict[str, bytes]
    unsupported: list[str]


@pytest.fixture(scope="session")
def run_guest() -> Callable[..., Ended]:
    """Runs a program on unicorn's processor and our kernel; a basic block takes 10 virtual nanoseconds."""
    unicorn = pytest.importorskip("unicorn")
    const = pytest.importorskip("unicorn.riscv_const")

    def run(
        program: Path,
        arguments: list[str],
        environment: dict[str, str] | None = None,
        layout: Layout | None = None,
        **files: Any,
    ) -> Ended:
        memory = GuestMemory()
        image = load_image(program, "/bin/guest")
        process = build_process(memory, image, ["guest", *arguments], environment, layout)
        blocks = 0
        kernel = LinuxKernel(memory, process, VirtualFiles(**files), lambda: blocks * 10)
        hart = FakeHart()
        machine = unicorn.Uc(unicorn.UC_ARCH_RISCV, unicorn.UC_MODE_RISCV64)
        machine.mem_map_ptr(0, 1 << 31, unicorn.UC_PROT_ALL, memory.base)
        machine.reg_write(const.UC_RISCV_REG_MSTATUS, 0x6000)
        x_ids = [const.UC_RISCV_REG_X0 + number for number in range(32)]
        f_ids = [const.UC_RISCV_REG_F0 + number for number in range(32)]

        def leave() -> None:
            hart.x[:] = machine.reg_read_batch(x_ids)
            hart.f[:] = machine.reg_read_batch(f_ids)
            hart.pc = machine.reg_read(const.UC_RISCV_REG_PC)
            hart.fcsr = machine.reg_read(const.UC_RISCV_REG_FCSR)

        def enter() -> None:
            for number in range(1, 32):
                machine.reg_write(x_ids[number], int(hart.x[number]))
            for number in range(32):
                machine.reg_write(f_ids[number], int(hart.f[number]))
            machine.reg_write(const.UC_RISCV_REG_FCSR, hart.fcsr)

        called = False

        def on_trap(machine: Any, number: int, _: Any) -> None:
            nonlocal called
            called = True
            machine.emu_stop()

        def on_block(machine: Any, address: int, size: int, _: Any) -> None:
            nonlocal blocks
            blocks += 1
            deadline = kernel.scheduler.next_deadline()
            if deadline is not None and deadline <= blocks * 10:
                machine.emu_stop()

        machine.hook_add(unicorn.UC_HOOK_INTR, on_trap)
        machine.hook_add(unicorn.UC_HOOK_BLOCK, on_block)
        hart.pc, hart.x[2] = process.entry, process.stack_pointer
        try:
            while True:
                called = False
                enter()
                machine.emu_start(hart.pc, 0xFFFF_FFFF_FFFF)
                leave()
                if called:
                    kernel.syscall(hart)
                kernel.fire_timers()
                kernel.serve_signals(hart)
        except GuestExit as end:
            return Ended(
                end.status,
                kernel.files.output(1).decode(),
                kernel.files.output(2).decode(),
                kernel.files.captured(),
                kernel.unsupported,
            )
        finally:
            kernel.files.close()
            memory.close()

    return run


@pytest.fixture(scope="session")
def compile_guest(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Compiles a C program of this directory, by its name, to a static riscv64 one; its path."""
    directory = tmp_path_factory.mktemp("guests")

    def compile_it(name: str) -> Path:
        target = directory / name.removesuffix(".c")
        if not target.exists():
            Toolchain().link([Path(__file__).with_name(name)], ["-O1"], target)
        return target

    return compile_it


@pytest.fixture(scope="session")
def by_qemu() -> Callable[..., str]:
    """Standard output of a program run by QEMU, which has the host's kernel make the system calls."""
    command_of_qemu = qemu()
    if command_of_qemu is None:
        pytest.skip("qemu-riscv64 is not installed")

    def run(program: Path, *arguments: str, **options: Any) -> str:
        with tempfile.TemporaryFile() as output:  # a pipe would be waited for until all children have ended
            command = [command_of_qemu, str(program), *arguments]
            subprocess.run(command, stdout=output, timeout=60, check=False, **options)
            output.seek(0)
            return output.read().decode()

    return run
