"""Errors of the emulator: one base class, few children."""

from __future__ import annotations


class EmulatorError(Exception):
    """Base of every error that the emulator raises on purpose; the message is meant for the user."""


class GuestImageError(EmulatorError):
    """The file is not an executable that this machine can run."""


class MachineConfigError(EmulatorError):
    """A machine description is not valid; the message names file and line where there is one."""


class GuestFault(EmulatorError):
    """The guest did something for which a kernel sends it a signal; ``signal``: the Linux number."""

    def __init__(self, message: str, signal: int, pc: int, address: int | None = None) -> None:
        super().__init__(message)
        self.signal = signal
        self.pc = pc
        self.address = address
        self.mapped = False  # whether the address is mapped and its page forbids the access
        self.exact = True  # whether the guest's registers are those of its instruction


def misaligned_text(address: int, size_bytes: int) -> str:
    """The message for an atomic access that is not naturally aligned."""
    return f"atomic access to {address:#x}: the address must be a multiple of {size_bytes}"


class TooMuchCode(EmulatorError):
    """The guest has executed more basic blocks than the block table can number."""


class InstructionLimit(EmulatorError):
    """The guest executed more instructions than it was allowed to."""


class RestoreError(EmulatorError):
    """The guest has a state that cannot be restored later."""
