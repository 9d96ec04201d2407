"""What runs the blocks of a tier that are in no region: interpreter, templates, or a hook that returns to Python."""

from __future__ import annotations

import contextlib
import threading

import numpy as np
from numpy.typing import NDArray

from emulator.engine.blocks import Block, BlockCache
from emulator.engine.decode.block_table import BlockTable
from emulator.engine.emit.emitter import DECLARATIONS, METADATA
from emulator.engine.hart_state import Hart
from emulator.engine.persist.translation_store import sources_identity
from emulator.engine.selections import emitted_selection, is_hooked, overlapping
from emulator.engine.stencils.stencil_set import stencils_for
from emulator.engine.stencils.templates import Templates
from emulator.engine.tiering.tiers import Tier
from emulator.events import TraceSelection
from emulator.native_code.compiler import Compiler


class Fallbacks:
    """Makes the fallbacks of all tiers of an address space, and enters them in dispatch tables. ``publishing``: held
    while a dispatch table gets translations, which another thread may publish, too."""

    def __init__(
        self, hart: Hart, cache: BlockCache, block_table: BlockTable, compiler: Compiler, publishing: threading.Lock
    ) -> None:
        self._hart, self._cache, self._block_table, self._compiler = hart, cache, block_table, compiler
        self._publishing = publishing
        self._interpreters: list[int] = []  # host addresses, to be unloaded

    def interpreter_of(self, selection: TraceSelection) -> int:
        """The host address of the interpreter for ``selection``."""
        name = "interpreter"

        def text() -> str:
            from emulator.engine.emit.interpreter import InterpreterEmitter

            return DECLARATIONS + InterpreterEmitter(selection, name).emit() + METADATA

        key = f"interpreter {emitted_selection(selection)} {sources_identity()}"
        address = self._compiler.compile(text, [name], key=key)[name]
        self._interpreters.append(address)
        return address

    def install(self, tier: Tier) -> None:
        """Point the empty entries of known blocks to the tier's interpreter, hook or templates."""
        dispatch_table = tier.dispatch_table.view("u8")
        places = self._block_table.places()
        places = places[dispatch_table[places] == 0]
        dispatch_table[places] = tier.interpreter
        if tier.hook:
            ranges = tier.selection.hook_ranges
            inside = overlapping(self._block_table.facts_at(places), ranges) if ranges else slice(None)
            for place in places[inside]:
                dispatch_table[place] = self.of_block(tier, self._cache.get(2 * int(place)))
        self.install_templates(tier, places)

    def install_templates(self, tier: Tier, places: NDArray[np.int64]) -> None:
        """Replace the interpreter by templates in the entries at ``places`` (pc / 2)."""
        dispatch_table = tier.dispatch_table.view("u8")
        if tier.templates is not None:
            emitted = tier.templates.entries[self._block_table.numbers_at(places)]
            instead = (emitted != 0) & (dispatch_table[places] == tier.interpreter)
            dispatch_table[places[instead]] = emitted[instead]

    def of_block(self, tier: Tier, block: Block) -> int:
        """The host function that runs ``block`` in ``tier`` while it has no translation."""
        if tier.hook and is_hooked(tier.selection, block):
            tier.hooked.add(block.pc)
            return tier.hook
        return tier.interpreter

    def use_templates(self, tier: Tier) -> None:
        """Emit a template for every known block in ``tier``, and from now on for every new block."""
        tables = self._hart.get("blocks"), self._hart.get("block_index"), tier.dispatch_table.address
        with contextlib.suppress(OSError):  # a host that does not allow writable and executable memory
            stencils = stencils_for(self._compiler, emitted_selection(tier.selection))
            tier.templates = Templates(self._compiler, stencils, tier.interpreter, *tables)
        self.emit_templates(tier)

    def emit_templates(self, tier: Tier) -> None:
        """Emit templates of the blocks that are new since the last call."""
        if tier.templates is not None and tier.templates.n_emitted < len(self._block_table):
            with self._publishing:
                tier.templates.emit(len(self._block_table))

    def close(self) -> None:
        """Unload the interpreters."""
        self._compiler.unload(self._interpreters)
