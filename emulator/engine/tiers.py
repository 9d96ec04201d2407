"""What the translator keeps: regions, and the tiers that they belong to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from emulator.engine.blocks import Block
from emulator.engine.code_image import NO_CODE, CodeImage
from emulator.engine.remembered import Remembered
from emulator.engine.tables import GUEST_SPACE, Table
from emulator.engine.templates import Templates
from emulator.engine.ways import Ways
from emulator.events import TraceSelection


@dataclass
class Region:
    """A region on its way to being compiled, or compiled: its host code and the blocks in it, by pc.

    ``callees``: those of its blocks that are there because others call them. ``blocks`` is empty in a region from the
    archive, which is not decoded until somebody asks.
    """

    name: str
    entries: list[int]
    pcs: tuple[int, ...]
    callees: frozenset[int]
    ways: Ways
    blocks: dict[int, Block]
    address: int = 0
    image: CodeImage = NO_CODE

    @property
    def own(self) -> set[int]:
        """Those of its blocks that it was made for."""
        return {*self.pcs} - self.callees

    @property
    def code_bytes(self) -> int:
        """Size of its host code."""
        return self.image.symbols[self.name][1]


@dataclass
class Tier:
    """Everything translated for one selection.

    ``slots``: the host function for every guest pc that control may arrive at (u64 at pc / 2). ``interpreter``: the one
    that runs what is not translated; ``hook``: what goes back to Python for blocks that it executes, ``hooked``.
    ``templates``: of blocks, None where there are none. ``optimised``: entries of regions, also of one being compiled;
    ``copies``: in how many regions a block is, those aside that have it as a callee's; ``covered``: how often it had
    been executed outside of them when the last one with it was published; ``taken``: names of those that an earlier
    process has left; ``remembered``: those that it may still take. ``within``: blocks that some region has or had.
    """

    selection: TraceSelection
    interpreter: int
    interpret_only: bool
    hook: int = 0
    hooked: set[int] = field(default_factory=set)
    slots: Table = field(default_factory=lambda: Table(GUEST_SPACE * 4))
    regions: list[Region] = field(default_factory=list)
    templates: Templates | None = None
    optimised: set[int] = field(default_factory=set)
    copies: Counter[int] = field(default_factory=Counter)
    covered: dict[int, int] = field(default_factory=dict)
    within: set[int] = field(default_factory=set)
    taken: set[str] = field(default_factory=set)
    remembered: Remembered | None = None

    def expect(self, region: Region) -> None:
        """It is going to be built, or is."""
        self.copies.update(region.own)
        self.optimised.update(region.entries)

    def drop(self, region: Region) -> None:
        """It is not, or no more."""
        self.copies.subtract(region.own)
        self.optimised.difference_update(region.entries)

    def publish(self, region: Region) -> None:
        """Let control arrive there from now on."""
        self.slots.view("u8")[np.array(region.entries) >> 1] = region.address
        self.within.update(region.pcs)
        self.regions.append(region)

    def forget(self, pcs: set[int]) -> tuple[list[int], set[int]]:
        """The guest has changed the code at ``pcs``: regions with it are not valid any more. Addresses of what may be
        unloaded, and of the blocks that were in them."""
        self.hooked -= pcs
        self.optimised -= pcs
        if self.within.isdisjoint(pcs):
            return [], set()
        slots = self.slots.view("u8")
        loaded: list[int] = []
        kept = []
        left: set[int] = set()
        for region in self.regions:
            if pcs.isdisjoint(region.pcs):
                kept.append(region)
                continue
            for entry in region.entries:
                if slots[entry >> 1] == region.address:
                    slots[entry >> 1] = 0
            self.drop(region)
            loaded.append(region.address)
            left.update(region.pcs)
        self.regions = kept
        self.within -= pcs
        for pc in left:
            self.covered.pop(pc, None)
        return loaded, left - pcs

    def close(self) -> list[int]:
        """Nobody runs any of this again. Addresses of what may be unloaded."""
        loaded = [region.address for region in self.regions]
        for gone in (self.regions, self.optimised, self.copies, self.covered, self.within, self.taken):
            gone.clear()
        self.slots.clear()
        if self.templates is not None:
            self.templates.close()
            self.templates = None
        self.remembered = None
        return loaded
