"""Totals of counters in guest memory, over all processes that execute the counted program.

A process that forks hands a copy of its counters on, and a process that ends takes its own with it. Events are what
each process added, so a copy's first values are subtracted, and the last values of an ended process are kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from emulator.linux.abi.numbers import MASK_64
from emulator.memory import GuestMemory

_SIGN = 1 << 63


class CounterTotals:
    """Totals of the 64-bit counters at ``addresses``, guest addresses in the program ``image``, which is executed in
    ``memory``. Followed by `emulator.execution.address_space.AddressSpaces`."""

    def __init__(self, addresses: Sequence[int], memory: GuestMemory, image: bytes) -> None:
        self._addresses, self._image = list(addresses), image
        self._live = {memory}
        self._elsewhere = [0] * len(self._addresses)  # of ended processes, less what live ones were given by a fork

    def read(self) -> list[int]:
        """The totals so far, as signed 64-bit integers."""
        totals = list(self._elsewhere)
        for memory in self._live:
            for n, address in enumerate(self._addresses):
                totals[n] += memory.read_int(address, 8)
        return [((total + _SIGN) & MASK_64) - _SIGN for total in totals]

    def forked(self, memory: GuestMemory, copy: GuestMemory) -> None:
        """``copy`` is a new process's copy of ``memory``."""
        if memory in self._live:
            self._live.add(copy)
            self._move(copy, -1)

    def began(self, memory: GuestMemory, image: bytes) -> None:
        """A process executes the program ``image`` in the new ``memory``."""
        if image == self._image:
            self._live.add(memory)
            self._move(memory, -1)

    def closed(self, memory: GuestMemory) -> None:
        """No process uses ``memory`` any more."""
        if memory in self._live:
            self._live.remove(memory)
            self._move(memory, 1)

    def _move(self, memory: GuestMemory, sign: int) -> None:
        for n, address in enumerate(self._addresses):
            self._elsewhere[n] += sign * memory.read_int(address, 8)
