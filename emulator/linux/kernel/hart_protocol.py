"""The interface of a hart that the kernel uses, and the exception that ends a guest."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Hart(Protocol):
    """Architectural state of the one hart.

    ``x``, ``f``: uint64 ``(32,)`` views of the registers (``f`` raw, NaN-boxed). ``registers``: the same 64 words, x
    first; faster than the views for single registers and for all of them. ``pc``: the next instruction; at a system
    call already the one after the ``ecall``. ``fcsr``: rounding mode and flags.
    """

    x: NDArray[np.uint64]
    f: NDArray[np.uint64]
    registers: memoryview
    pc: int
    fcsr: int


class GuestExit(Exception):
    """The guest has ended: ``status`` as a shell reports it; ``signal``: the signal that ended it, or None."""

    def __init__(self, status: int, signal: int | None = None) -> None:
        super().__init__(f"the guest ended with status {status}")
        self.status = status
        self.signal = signal
