"""The memory of a new process: segments, heap, stack with arguments, environment and auxiliary vector.

The layout is the same in every run except for the offsets of `Layout`, with which a campaign varies the placement of
stack, heap and environment without touching the program. System calls are left to `emulator.linux.syscalls`.

From low to high: the image, the heap (brk), free space that mmap fills from the top, a gap that catches stack
overflows, the stack, and one page with the code that returns from signal handlers.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from emulator.errors import EmulatorError, GuestImageError
from emulator.linux.abi.numbers import CLOCK_TICKS_PER_SECOND, GID, UID
from emulator.linux.loader.elf import POSITION_INDEPENDENT_BASE, ElfImage, load_image
from emulator.memory import EXEC, PAGE_BYTES, READ, WRITE, GuestMemory, page_ceiling, page_floor

STACK_TOP = 0x7FFE_0000
TRAMPOLINE_ADDRESS = 0x7FFF_0000
STACK_GUARD_BYTES = 1 << 20

# addi a7, zero, 139 (rt_sigreturn); ecall
_TRAMPOLINE_CODE = struct.pack("<II", 139 << 20 | 17 << 7 | 0x13, 0x73)

# AT_HWCAP has one bit for each letter of the base extensions.
_HARDWARE_CAPABILITIES = sum(1 << (ord(letter) - ord("A")) for letter in "IMAFDC")

_AT_NULL, _AT_PHDR, _AT_PHENT, _AT_PHNUM, _AT_PAGESZ, _AT_BASE, _AT_FLAGS, _AT_ENTRY = 0, 3, 4, 5, 6, 7, 8, 9
_AT_UID, _AT_EUID, _AT_GID, _AT_EGID, _AT_HWCAP, _AT_CLKTCK, _AT_SECURE = 11, 12, 13, 14, 16, 17, 23
_AT_RANDOM, _AT_EXECFN = 25, 31

_INTERPRETER_ALIGNMENT = 0x1_0000  # the largest page size that libraries are linked for
_PADDING_NAME = "ENVIRONMENT_PADDING"


@dataclass(frozen=True)
class Layout:
    """Sizes and offsets of a process's memory; ``seed`` determines the bytes of AT_RANDOM.

    ``stack_offset_bytes`` lowers the initial stack pointer (multiple of 16). ``heap_offset_bytes`` raises the
    start of the brk area and lowers that of the mmap area (multiple of 4096: allocators round to pages).
    ``environment_padding_bytes`` is the length of an extra environment value.
    """

    stack_bytes: int = 8 << 20
    stack_offset_bytes: int = 0
    heap_offset_bytes: int = 0
    environment_padding_bytes: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, unit in (
            ("stack_bytes", PAGE_BYTES),
            ("stack_offset_bytes", 16),
            ("heap_offset_bytes", PAGE_BYTES),
        ):
            value = getattr(self, name)
            if value < 0 or value % unit:
                raise EmulatorError(f"{name} is {value}: expected a multiple of {unit}, zero or more")
        if self.environment_padding_bytes < 0:
            raise EmulatorError(f"environment_padding_bytes is {self.environment_padding_bytes}: expected zero or more")
        if self.stack_bytes < 16 * PAGE_BYTES:
            raise EmulatorError(f"stack_bytes is {self.stack_bytes}: expected at least {16 * PAGE_BYTES}")


class ProcessImage(NamedTuple):
    """The guest addresses of a new process's parts."""

    image: ElfImage
    layout: Layout
    arguments: tuple[str, ...]
    entry: int
    stack_pointer: int
    stack_low: int
    stack_high: int
    brk_start: int
    mmap_high: int
    trampoline: int
    interpreter: ElfImage | None = None  # the dynamic linker at its load address
    environment: tuple[str, ...] = ()
    auxiliary: bytes = b""  # the auxiliary vector as it lies on the stack

    def is_stack_overflow(self, address: int) -> bool:
        """Whether a fault at ``address`` is a stack overflow: an access to the gap below the stack."""
        return self.stack_low - STACK_GUARD_BYTES <= address < self.stack_low


def build_process(
    memory: GuestMemory,
    image: ElfImage,
    arguments: Sequence[str],
    environment: Mapping[str, str] | None = None,
    layout: Layout | None = None,
    read_file: Callable[[str], bytes] | None = None,
) -> ProcessImage:
    """Build a process in an empty ``memory``; ``arguments`` begin with the program's name.

    ``read_file`` returns the contents of a guest file; it reads the interpreter of a dynamically linked program.
    Raises `EmulatorError` (arguments that do not fit, an image that overlaps the stack), `GuestImageError` for an
    interpreter that cannot be found, and `MemoryLimit`.
    """
    layout = layout or Layout()
    stack_low = STACK_TOP - layout.stack_bytes
    mmap_high = stack_low - STACK_GUARD_BYTES - layout.heap_offset_bytes
    brk_start = page_ceiling(image.end) + layout.heap_offset_bytes
    if brk_start >= mmap_high:
        raise EmulatorError(
            f"{image.name}: the program ends at {image.end:#x}, and its {layout.stack_bytes} bytes of stack "
            f"begin at {stack_low:#x}: no room for a heap; give it a smaller stack or heap offset"
        )
    interpreter = _load_interpreter(image, mmap_high, read_file)
    _load_segments(memory, image)
    if interpreter is not None:
        _load_segments(memory, interpreter)
    variables = dict(environment or {})
    if layout.environment_padding_bytes:
        variables[_PADDING_NAME] = "x" * layout.environment_padding_bytes
    memory.map(TRAMPOLINE_ADDRESS, PAGE_BYTES, READ | WRITE)
    memory.write(TRAMPOLINE_ADDRESS, _TRAMPOLINE_CODE)
    memory.protect(TRAMPOLINE_ADDRESS, PAGE_BYTES, READ | EXEC)
    memory.map(stack_low, layout.stack_bytes, READ | WRITE)
    auxiliary = _auxiliary_vector(image, interpreter)
    stack_pointer, auxiliary_bytes = _build_stack(memory, image, arguments, variables, layout, auxiliary)
    return ProcessImage(
        image=image,
        layout=layout,
        arguments=tuple(arguments),
        entry=image.entry if interpreter is None else interpreter.entry,
        stack_pointer=stack_pointer,
        stack_low=stack_low,
        stack_high=STACK_TOP,
        brk_start=brk_start,
        mmap_high=mmap_high,
        trampoline=TRAMPOLINE_ADDRESS,
        interpreter=interpreter,
        environment=tuple(f"{name}={value}" for name, value in variables.items()),
        auxiliary=auxiliary_bytes,
    )


def _load_interpreter(image: ElfImage, mmap_high: int, read_file: Callable[[str], bytes] | None) -> ElfImage | None:
    """The dynamic linker of ``image``, loaded at the top of the mmap area; None for a static program."""
    path = image.interpreter
    if path is None:
        return None
    try:
        data = read_file(path) if read_file is not None else None
    except OSError:
        data = None
    if data is None:
        raise GuestImageError(
            f"{image.name}: the program is dynamically linked, and its interpreter {path} is not among the guest's "
            "files; give a root directory that contains it and the libraries (--root), or link with -static"
        )
    size = load_image(data, path).end - POSITION_INDEPENDENT_BASE
    found = load_image(data, path, (mmap_high - size) & -_INTERPRETER_ALIGNMENT)
    if found.interpreter is not None or not found.bias:
        raise GuestImageError(f"{path}: the interpreter of {image.name} is not a position-independent dynamic linker")
    return found


def _load_segments(memory: GuestMemory, image: ElfImage) -> None:
    loaded_end = 0
    for segment in image.segments:
        start = max(page_floor(segment.address), loaded_end)
        end = page_ceiling(segment.end)
        if end > start:
            memory.map(start, end - start, READ | WRITE)
        memory.write(segment.address, segment.data)
        loaded_end = max(loaded_end, end)
    previous_end, previous_prot = 0, 0
    for segment in image.segments:
        start, end = page_floor(segment.address), page_ceiling(segment.end)
        if start < previous_end:  # a page that two segments share has the permissions of both
            previous_prot |= segment.prot
            memory.protect(start, previous_end - start, previous_prot)
            start = previous_end
        if end > start:
            memory.protect(start, end - start, segment.prot)
            previous_end, previous_prot = end, segment.prot


def _c_string(text: str, what: str) -> bytes:
    encoded = os.fsencode(text)
    if b"\0" in encoded:
        raise EmulatorError(f"{what} {text!r} contains a zero byte: expected text that a C string can hold")
    return encoded + b"\0"


def _build_stack(
    memory: GuestMemory,
    image: ElfImage,
    arguments: Sequence[str],
    environment: dict[str, str],
    layout: Layout,
    auxiliary: list[tuple[int, int]],
) -> tuple[int, bytes]:
    """Write the initial stack (RISC-V ELF psABI, process initialisation); return the stack pointer and the complete
    auxiliary vector."""
    argument_strings = [_c_string(argument, "argument") for argument in arguments]
    variable_strings = [_c_string(f"{name}={value}", "variable") for name, value in environment.items()]
    file_name = _c_string(image.name, "program name")

    strings = b"".join([*argument_strings, *variable_strings, file_name])
    room = min(layout.stack_bytes // 4, layout.stack_bytes - layout.stack_offset_bytes - 4 * PAGE_BYTES)
    if len(strings) > room:
        raise EmulatorError(
            f"arguments and environment take {len(strings)} bytes and there is room for {room} on a stack of "
            f"{layout.stack_bytes} bytes: shorten them or give a larger stack"
        )
    position = STACK_TOP - 16 - layout.stack_offset_bytes - len(strings)
    memory.write(position, strings)
    addresses = []
    for text in [*argument_strings, *variable_strings, file_name]:
        addresses.append(position)
        position += len(text)
    file_name_address = addresses.pop()
    random_address = (addresses[0] if addresses else file_name_address) - 16 & -16
    memory.write(random_address, random.Random(f"AT_RANDOM {layout.seed}").randbytes(16))

    auxiliary = [
        *auxiliary,
        (_AT_RANDOM, random_address),
        (_AT_EXECFN, file_name_address),
        (_AT_NULL, 0),
    ]
    words = [len(arguments), *addresses[: len(arguments)], 0, *addresses[len(arguments) :], 0]
    words += [word for pair in auxiliary for word in pair]
    stack_pointer = random_address - 8 * len(words) & -16
    memory.write(stack_pointer, struct.pack(f"<{len(words)}Q", *words))
    return stack_pointer, b"".join(struct.pack("<QQ", *pair) for pair in auxiliary)


def _auxiliary_vector(image: ElfImage, interpreter: ElfImage | None) -> list[tuple[int, int]]:
    """The entries that do not depend on the stack. AT_ENTRY is the program's entry, to which the interpreter jumps."""
    return [
        (_AT_PHDR, image.phdr_address),
        (_AT_PHENT, image.phdr_entry_bytes),
        (_AT_PHNUM, image.phdr_count),
        (_AT_PAGESZ, PAGE_BYTES),
        (_AT_BASE, 0 if interpreter is None else interpreter.bias),
        (_AT_FLAGS, 0),
        (_AT_ENTRY, image.entry),
        (_AT_UID, UID),
        (_AT_EUID, UID),
        (_AT_GID, GID),
        (_AT_EGID, GID),
        (_AT_HWCAP, _HARDWARE_CAPABILITIES),
        (_AT_CLKTCK, CLOCK_TICKS_PER_SECOND),
        (_AT_SECURE, 0),
    ]
