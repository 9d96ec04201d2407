"""Tiers: everything translated for one selection, with its dispatch table."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from emulator.engine.address_tables import GUEST_SPACE, Table
from emulator.engine.persist.pending import PendingTranslations
from emulator.engine.stencils.templates import Templates
from emulator.engine.tiering.region_states import Region, RegionEvent, RegionState, RegionStates
from emulator.events import TraceSelection


@dataclass(eq=False)
class Tier:
    """Everything translated for one selection.

    ``dispatch_table``: the host function for every guest pc at which control may enter (u64 at pc / 2).
    ``interpreter``: the host function that runs blocks without a translation; ``hook``: the one that returns to Python
    for the blocks in ``hooked``, which Python executes. ``templates``: None where the host does not allow them.
    ``states``: its regions, wanted, compiled and published; ``published_executions``: by pc, executions of a block
    outside of regions when the last region with it was published; ``pending``: compares the code of its regions that
    an earlier process saved.
    """

    selection: TraceSelection
    interpreter: int
    interpret_only: bool
    hook: int = 0
    hooked: set[int] = field(default_factory=set)
    dispatch_table: Table = field(default_factory=lambda: Table(GUEST_SPACE * 4))
    templates: Templates | None = None
    states: RegionStates = field(default_factory=RegionStates)
    published_executions: dict[int, int] = field(default_factory=dict)
    pending: PendingTranslations | None = None

    @property
    def regions(self) -> list[Region]:
        """Its published regions, in the order of their publication."""
        return self.states.having(RegionState.PUBLISHED)

    def publish(self, region: Region) -> None:
        """Store the region's address in the dispatch table at its entries."""
        self.dispatch_table.view("u8")[np.array(region.entries) >> 1] = region.address
        self.states.change(region, RegionEvent.PUBLISH)

    def invalidate(self, pcs: set[int]) -> tuple[list[int], set[int]]:
        """Drop the regions with a block at ``pcs``, whose code the guest has changed. Returns the host addresses to
        unload, and the pcs of the other blocks of these regions."""
        self.hooked -= pcs
        gone = self.states.invalidate(pcs)
        dispatch_table = self.dispatch_table.view("u8")
        left: set[int] = set()
        for region in gone:
            for entry in region.entries:
                if dispatch_table[entry >> 1] == region.address:
                    dispatch_table[entry >> 1] = 0
            left.update(region.pcs)
        for pc in left:
            self.published_executions.pop(pc, None)
        return [region.address for region in gone], left - pcs

    def close(self) -> list[int]:
        """Drop everything; the tier does not run again. Returns the host addresses to unload."""
        loaded = [region.address for region in self.states.close()]
        self.published_executions.clear()
        self.dispatch_table.clear()
        if self.templates is not None:
            self.templates.close()
            self.templates = None
        self.pending = None
        return loaded
