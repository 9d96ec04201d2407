"""What the kernel needs from a hart, and how a guest ends."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Hart(Protocol):
    """Architectural state of the one hart.

    ``x``, ``f``: uint64 ``(32,)`` views of the registers (``f`` raw, NaN-boxed). ``registers``: the same 64 words, x
    first, in less time for single ones and for all. ``pc``: where execution goes on; at a system call it is already
    the address after the ``ecall``. ``fcsr``: rounding mode and flags.
    """

    x: NDArray[np.uint64]
    f: NDArray[np.uint64]
    registers: memoryview
    pc: int
    fcsr: int


class GuestExit(Exception):
    """The guest has ended: ``status`` as a shell shows it, ``signal`` when a signal ended it."""

    def __init__(self, status: int, signal: int | None = None) -> None:
        super().__init__(f"the guest ended with status {status}")
        self.status = status
        self.signal = signal
