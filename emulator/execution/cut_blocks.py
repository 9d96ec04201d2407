"""Blocks that a fault has cut short: what the guest has executed of one counts, and the rest of it does not.

Engines account for a block as a whole when it begins. If an access in it faults, and the guest catches that, it has
executed the instructions before. They become a block of their own (`BlockFacts.begin_of`), which takes the place of the
whole one in counts, record and columns. The instruction that has faulted has not been executed. All work is done at the
fault.
"""

from __future__ import annotations

from emulator.engine.blocks import Block
from emulator.execution.guest import Guest, caught_faults
from emulator.execution.observers import Observers
from emulator.execution.virtual_time import VirtualTime


class CutBlocks:
    """Corrects what was accounted for of blocks that faults of the ``guest`` cut short."""

    def __init__(self, guest: Guest, observers: Observers, time: VirtualTime) -> None:
        self._guest = guest
        self._observers = observers
        self._time = time

    def cut(self, block: Block, pc: int) -> None:
        """The instruction of ``block`` at ``pc`` has faulted. The record ends before the block, and has the addresses
        of its accesses behind its end."""
        guest, record = self._guest, self._observers.record
        if pc not in block.pcs or not any(caught_faults(guest.kernel)):
            return
        executed = block.pcs.index(pc)
        left = len(block.pcs) - executed
        self._time.instructions -= left
        record.instructions -= left
        space = guest.address_space
        selection = self._observers.selection.in_program(space.program)
        if selection.counts:
            guest.hart.counts[block.number] -= 1
        if executed == 0:
            return
        number = space.cache.begin_of(block, executed)
        if selection.counts:
            guest.hart.counts[number] += 1
        if selection.blocks:
            record.keep(number, int(space.cache.facts.blocks["n_accesses"][number]) if selection.addresses else 0)
        begin = list(zip(block.instructions, block.pcs, strict=True))[:executed]
        for place, columns in enumerate(self._observers.selection.columns):
            if columns in selection.inline:
                taken = (columns.takes(one.row.mnemonic, one.op_class, at) for one, at in begin)
                record.keep_events(place, sum(taken))
