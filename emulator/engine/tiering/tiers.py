"""Regions, and the tiers that they belong to: the translator's record of its translations."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from emulator.engine.address_tables import GUEST_SPACE, Table
from emulator.engine.blocks import Block
from emulator.engine.codegen.code_image import NO_CODE, CodeImage
from emulator.engine.emit.indirect_targets import IndirectTargets
from emulator.engine.persist.pending import PendingTranslations
from emulator.engine.stencils.templates import Templates
from emulator.events import TraceSelection


@dataclass
class Region:
    """A region: the blocks in it by pc, its entries, and its host code once it is compiled.

    ``callees``: the blocks that were copied in because others of the region call them. ``blocks`` is empty in a region
    from the translation store, whose blocks are decoded on demand.
    """

    name: str
    entries: list[int]
    pcs: tuple[int, ...]
    callees: frozenset[int]
    indirect_targets: IndirectTargets
    blocks: dict[int, Block]
    address: int = 0
    image: CodeImage = NO_CODE

    @property
    def own_pcs(self) -> set[int]:
        """Its blocks without the callees'."""
        return {*self.pcs} - self.callees

    @property
    def code_bytes(self) -> int:
        """Size of its host code."""
        return self.image.symbols[self.name][1]


@dataclass
class Tier:
    """Everything translated for one selection.

    ``dispatch_table``: the host function for every guest pc at which control may enter (u64 at pc / 2).
    ``interpreter``: the host function that runs blocks without a translation; ``hook``: the one that returns to Python
    for the blocks in ``hooked``, which Python executes. ``templates``: None where the host does not allow them.

    By pc: ``optimised``: entries of regions, built or under way; ``copies``: number of regions that contain a block
    other than as a callee's; ``published_executions``: executions of a block outside of regions when the last region
    with it was published; ``in_regions``: blocks that some region contains or contained.

    ``from_store``: names of the regions that an earlier process saved; ``pending``: its regions that may still become
    valid here.
    """

    selection: TraceSelection
    interpreter: int
    interpret_only: bool
    hook: int = 0
    hooked: set[int] = field(default_factory=set)
    dispatch_table: Table = field(default_factory=lambda: Table(GUEST_SPACE * 4))
    regions: list[Region] = field(default_factory=list)
    templates: Templates | None = None
    optimised: set[int] = field(default_factory=set)
    copies: Counter[int] = field(default_factory=Counter)
    published_executions: dict[int, int] = field(default_factory=dict)
    in_regions: set[int] = field(default_factory=set)
    from_store: set[str] = field(default_factory=set)
    pending: PendingTranslations | None = None

    def register(self, region: Region) -> None:
        """Account for a region that is built or will be."""
        self.copies.update(region.own_pcs)
        self.optimised.update(region.entries)

    def unregister(self, region: Region) -> None:
        """Undo `register`."""
        self.copies.subtract(region.own_pcs)
        self.optimised.difference_update(region.entries)

    def publish(self, region: Region) -> None:
        """Store the region's address in the dispatch table at its entries."""
        self.dispatch_table.view("u8")[np.array(region.entries) >> 1] = region.address
        self.in_regions.update(region.pcs)
        self.regions.append(region)

    def invalidate(self, pcs: set[int]) -> tuple[list[int], set[int]]:
        """Drop the regions with a block at ``pcs``, whose code the guest has changed. Returns the host addresses to
        unload, and the pcs of the other blocks of these regions."""
        self.hooked -= pcs
        self.optimised -= pcs
        if self.in_regions.isdisjoint(pcs):
            return [], set()
        dispatch_table = self.dispatch_table.view("u8")
        loaded: list[int] = []
        kept = []
        left: set[int] = set()
        for region in self.regions:
            if pcs.isdisjoint(region.pcs):
                kept.append(region)
                continue
            for entry in region.entries:
                if dispatch_table[entry >> 1] == region.address:
                    dispatch_table[entry >> 1] = 0
            self.unregister(region)
            loaded.append(region.address)
            left.update(region.pcs)
        self.regions = kept
        self.in_regions -= pcs
        for pc in left:
            self.published_executions.pop(pc, None)
        return loaded, left - pcs

    def close(self) -> list[int]:
        """Drop everything; the tier does not run again. Returns the host addresses to unload."""
        loaded = [region.address for region in self.regions]
        for gone in (self.regions, self.optimised, self.copies, self.published_executions, self.in_regions):
            gone.clear()
        self.from_store.clear()
        self.dispatch_table.clear()
        if self.templates is not None:
            self.templates.close()
            self.templates = None
        self.pending = None
        return loaded
