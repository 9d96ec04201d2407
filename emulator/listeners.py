"""Listeners: what lower parts of a guest report to parts above them, which they do not know.

There are two protocols. Each reporting part gets its listener when it is made, with two exceptions that have an
``attach``: guest memory is made, and filled by the loader or by a fork, before there is an address space for it; and a
scheduler is made with the first process's kernel, before there is a guest on a hart. `emulator.execution.guest_events`
has the order in which reports about the guest are passed on; reports about code go to the address space alone.

Memories and address spaces have the type ``Any`` here: they report to these protocols, so they lie above this file.
"""

from __future__ import annotations

from typing import Any, Protocol


class CodeListener(Protocol):
    """Follows the code of one address space. `emulator.execution.address_space.AddressSpace` implements it."""

    def code_changed(self, address: int, length_bytes: int) -> None:
        """`GuestMemory` is about to unmap, replace or write these bytes of executable pages, or to take a permission
        from them; or the guest announces that it has changed them."""

    def block_decoded(self, pc: int) -> None:
        """`BlockCache` has decoded the block at ``pc`` in Python and given it a number."""


class GuestListener(Protocol):
    """Follows a guest. `emulator.execution.guest_events.GuestEvents` implements it."""

    def memory_forked(self, memory: Any, copy: Any) -> None:
        """The scheduler's guest forks: ``copy`` is the new process's copy of ``memory``, and neither has changed."""

    def task_switched(self) -> None:
        """The scheduler has given the hart to another task, or the current one has executed another program."""

    def space_entered(self, space: Any, begins: bool) -> None:
        """`Guest` switches the hart to the address space ``space``; ``begins``: a new program begins there."""

    def process_changed(self) -> None:
        """`Guest` runs another process, or the process has changed which faults it catches."""

    def signal_due(self, info: Any) -> bool:
        """`LinuxKernel` is about to deliver a signal, `SignalInfo`, to the current thread; False discards it."""

    def selection_changed(self) -> None:
        """`Observers` have another selection."""
