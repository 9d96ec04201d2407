"""The order in which reports about a guest are passed on: the one place where its parts call each other back.

A switch of tasks, for example, is reported by the scheduler; the guest follows it, and reports another process and
another address space; the engine then makes or takes that address space's translator, and selects anew before the next
run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from emulator.execution.address_space import AddressSpace
from emulator.execution.guest import Guest
from emulator.linux.kernel.signals import SignalInfo
from emulator.memory import GuestMemory


class GuestEngine(Protocol):
    """What executes the guest: `OracleRunner` or `TranslatedRunner`."""

    def enter(self, space: AddressSpace, begins: bool) -> None:
        """Switch to another address space; ``begins``: a new program begins there."""

    def reselect(self) -> None:
        """Ask for the selection anew before the next run."""


class GuestEvents:
    """Implements `emulator.listeners.GuestListener` for one machine.

    The reporting parts get it when they are made; guest and engine, which consist of these parts, come with `attach`.
    Nothing is reported before that.
    """

    _guest: Guest
    _engine: GuestEngine

    def __init__(self) -> None:
        self.signal_watcher: Callable[[SignalInfo], bool] | None = None
        """Called before each signal is delivered; False discards it."""

    def attach(self, guest: Guest, engine: GuestEngine) -> None:
        """Pass reports on to ``guest`` and ``engine`` from now on."""
        self._guest, self._engine = guest, engine

    def memory_forked(self, memory: GuestMemory, copy: GuestMemory) -> None:
        self._guest.address_spaces.fork(memory, copy)

    def task_switched(self) -> None:
        self._guest.follow_scheduler()

    def space_entered(self, space: AddressSpace, begins: bool) -> None:
        self._engine.enter(space, begins)

    def process_changed(self) -> None:
        self._engine.reselect()

    def signal_due(self, info: SignalInfo) -> bool:
        return self.signal_watcher is None or self.signal_watcher(info)

    def selection_changed(self) -> None:
        self._engine.reselect()
