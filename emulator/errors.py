"""Errors of the emulator: one base class, few children."""

from __future__ import annotations


class EmulatorError(Exception):
    """Base of every error that the emulator raises on purpose; the message is meant for the user."""


class GuestImageError(EmulatorError):
    """The file is not an executable that this machine can run."""


class MachineConfigError(EmulatorError):
    """A machine description is not valid; the message names file and line where there is one."""


class GuestFault(EmulatorError):
    """The guest did something that a real kernel would end it for; ``signal`` is the Linux number."""

    def __init__(self, message: str, signal: int, pc: int, address: int | None = None) -> None:
        super().__init__(message)
        self.signal = signal
        self.pc = pc
        self.address = address
        self.mapped = False  # the address exists and the access is not allowed


def misaligned_text(address: int, size_bytes: int) -> str:
    """What an atomic access that is not naturally aligned is told to be."""
    return f"atomic access to {address:#x}: the address must be a multiple of {size_bytes}"


class TooMuchCode(EmulatorError):
    """The guest has more basic blocks than can be numbered."""


class InstructionLimit(EmulatorError):
    """The guest executed more instructions than it was allowed to."""
