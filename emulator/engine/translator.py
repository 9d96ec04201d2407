"""The tiered translator: which guest code is interpreted, which runs as templates, which as optimised regions.

The dispatch table holds one host function for every guest pc at which control may enter: null (a dispatch miss, which
returns to Python), the interpreter (the block is decoded), a template (Python has its descriptor), or a region. A block
that reaches the hotness threshold is queued for optimisation together with the hot blocks around it: a background
thread takes the hottest queued block, compiles its region, and publishes it by storing into the dispatch table. There
is one `Tier` for each `TraceSelection`; switching between selections changes one pointer. The states of regions, and
the events that change them, are in `emulator.engine.tiering.region_states`.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from emulator.engine.blocks import BlockCache
from emulator.engine.branch_counters import sums_of, unpacked_sums
from emulator.engine.decode.block_table import BlockTable
from emulator.engine.decode.operations import OPERATION_DTYPE
from emulator.engine.emit.emitter import DECLARATIONS, METADATA
from emulator.engine.emit.region_symbols import contains_numbers, counters_of, counts_branches, numbers_of
from emulator.engine.entry.entry import Entry
from emulator.engine.hart_state import COUNTERS_OFFSET, Hart
from emulator.engine.instrument.inline_functions import Inline, InlineTables, select_by_class, texts_of
from emulator.engine.persist.hand_over import regions_to_save
from emulator.engine.persist.pending import CodeSource, PendingTranslations
from emulator.engine.persist.program_translations import ProgramTranslations
from emulator.engine.tiering.background import Background
from emulator.engine.tiering.fallbacks import Fallbacks
from emulator.engine.tiering.region_formation import RegionFormer
from emulator.engine.tiering.region_states import Region, RegionEvent, RegionState
from emulator.engine.tiering.tiers import Tier
from emulator.events import TraceSelection
from emulator.native_code.code_image import unpacked
from emulator.native_code.compiler import Compiler

if TYPE_CHECKING:
    from emulator.engine.emit.region import RegionEmitter

# Compiling a region takes some 150 us for each guest instruction, on another processor; executing an instruction takes
# 3 ns in the interpreter, 0.7 ns in a template and 0.2 ns in an optimised region.
OPTIMISE_EXECUTIONS = 5000  # hotness threshold: executions outside of optimised regions
PLANNING_FACTOR = 20  # hotness thresholds from which a block is planned for the next process
MAX_PLANNED = 64  # at the end of a process: forming a region takes 0.3 ms, building one 10 to 80
_MAX_EXECUTIONS = 1 << 30


class Translator:
    """Owns the tiers of one address space and promotes hot code.

    ``background``: compile optimised translations in another thread while the guest goes on (the default);
    otherwise compile at once, which tests use to know what ran. ``templates``: whether blocks get templates.
    ``program``: begin with the regions that earlier processes saved of it; `hand_over` passes them to the next process.
    """

    def __init__(
        self,
        hart: Hart,
        cache: BlockCache,
        *,
        background: bool = True,
        templates: bool = True,
        optimise_executions: int = OPTIMISE_EXECUTIONS,
        program: ProgramTranslations | None = None,
        source: CodeSource | None = None,
    ) -> None:
        self.hart = hart
        self.cache = cache
        self.templates = templates
        self.optimise_executions = optimise_executions
        self.background = background
        self._entry = Entry.get()
        self._compiler: Compiler = self._entry.compiler
        self._program, self._source = program, source
        self._publishing = threading.Lock()  # held while dispatch tables get or lose translations
        self.block_table = BlockTable(hart, cache, source, self._compiler)
        self.fallbacks = Fallbacks(hart, cache, self.block_table, self._compiler, self._publishing)
        self._former = RegionFormer(cache, self.block_table.call_targets, self.block_table.executions)
        self._background = Background(
            self._former.form, self._build, self.block_table.all_executions, optimise_executions, self._compiler
        )
        self._tiers: dict[tuple[TraceSelection, bool], Tier] = {}
        self._inline: dict[tuple[Inline, ...], InlineTables] = {}
        self._entered_by_kernel: InlineTables | None = None  # the tables that the discovery kernel enters blocks in
        self.tier: Tier
        self._translating: Tier  # the tier that new translations belong to
        self._counted_for: Tier | None = None  # the tier whose executions the descriptors count
        hart.set("dispatch_miss", self._entry.dispatch_miss)

    # --- selection
    def select(self, selection: TraceSelection) -> Tier:
        """Switch to the tier of ``selection``, made on first use; translations of other selections stay."""
        tier = self._tiers.get((selection, False))
        if tier is None:
            tier = Tier(selection, self.fallbacks.interpreter_of(selection), False)
            if selection.hooks:
                tier.hook = self._entry.hook
            self._tiers[selection, False] = tier
            self.fallbacks.install(tier)
            if self.templates:
                self.fallbacks.use_templates(tier)
            self._load_stored(tier)
        if selection.inline:
            self._install_inline(selection.inline)
        self._translating = tier
        if tier is not self._counted_for:
            # Executions counted for another tier must not keep a block from reaching its threshold in this one.
            self.block_table.reset_profile(self._next_threshold(0))
            self._counted_for = tier
        self.tier = tier
        self.disable_discovery()
        self.hart.set("dispatch_table", tier.dispatch_table.address)
        self.hart.set("fallback", tier.interpreter)
        return tier

    def _install_inline(self, calls: tuple[Inline, ...]) -> None:
        """Let the hart use the tables of these inline functions and columns."""
        tables = self._inline.get(calls)
        if tables is None:
            tables = self._inline[calls] = InlineTables(calls)
            tables.add_blocks(self.cache.facts, self.cache.numbers())
        if select_by_class(calls) and tables is not self._entered_by_kernel and self.block_table.watch(tables):
            self._entered_by_kernel = tables
        functions, map_address = tables.set_states(calls, self._compiler)
        self.hart.set("inline", functions)
        self.hart.set("inline_map", map_address)

    def _note_inline(self, numbers: Collection[int], by_kernel: bool) -> None:
        """Enter the instructions of new blocks in the tables of inline functions. ``by_kernel``: the discovery kernel
        found them, and has entered them in one."""
        for tables in self._inline.values():
            if not by_kernel or tables is not self._entered_by_kernel:
                tables.add_blocks(self.cache.facts, numbers)

    def step_exactly(self, on: bool) -> None:
        """Switch to the interpreting tier, which stops exactly where the budget ends, or back to translations.

        One pointer changes, so a run can end at a given instruction without a check in every translated block.
        Blocks that become hot meanwhile are translated for the other tier.
        """
        self.tier = self.exact_tier() if on else self._translating
        self.hart.set("dispatch_table", self.tier.dispatch_table.address)

    def exact_tier(self) -> Tier:
        """The tier of the current selection that only interprets."""
        tier = self._translating
        if tier.interpret_only:
            return tier
        exact = self._tiers.get((tier.selection, True))
        if exact is None:
            exact = self._tiers[tier.selection, True] = Tier(tier.selection, tier.interpreter, True, tier.hook)
            self.fallbacks.install(exact)
        return exact

    def fast_and_exact(self) -> tuple[Tier, Tier]:
        """The translating and the interpreting tier of the current selection; switches to neither."""
        return self._translating, self.exact_tier()

    def _next_threshold(self, executions: int) -> int:
        """The executions at which a block with ``executions`` is reported again; 0 for never."""
        is_ready = not self.background or self._background.has_llvm
        threshold = self.optimise_executions if is_ready else self._loading_threshold
        return threshold & 0xFFFFFFFF if executions < threshold else 0

    @property
    def _loading_threshold(self) -> int:
        """Executions of one block from which LLVM is worth loading."""
        return min(self._background.fair_share.loading_factor * self.optimise_executions, _MAX_EXECUTIONS)

    @property
    def _planning_threshold(self) -> int:
        """Executions of one block from which the next process is to translate it."""
        return min(PLANNING_FACTOR * self.optimise_executions, _MAX_EXECUTIONS)

    # --- from Python's run loop
    def discover(self, pc: int) -> None:
        """Decode the block at ``pc`` and enter it in the dispatch table. Raises the guest's fault if it has no code."""
        for tier in self._tiers.values():
            if tier.pending is not None and pc in tier.pending.pending_entries:
                self._install_revalidated(tier, tier.pending)
        if self.has_entry(pc):
            return
        fallback = self.tier.interpreter
        if self.tier.hook or not self._discover_by_kernel(pc):
            block = self.cache.get(pc)
            self._note_inline([block.number], by_kernel=False)
            self.block_table.add(block, self._next_threshold(0))
            fallback = self.fallbacks.of_block(self.tier, block)
        dispatch_table = self.tier.dispatch_table.view("u8")
        with self._publishing:
            if not dispatch_table[pc >> 1]:
                dispatch_table[pc >> 1] = fallback
        self.fallbacks.emit_templates(self.tier)
        if dispatch_table[pc >> 1] == self.tier.interpreter:  # its template was emitted while another tier was in force
            self.fallbacks.install_templates(self.tier, np.array([pc >> 1]))

    def _discover_by_kernel(self, pc: int) -> bool:
        """Let the discovery kernel decode the block at ``pc``; False where Python has to."""
        if not self.block_table.number_of(pc):
            numbers = self.block_table.discover(pc, self.tier, self.tier.interpreter, self._next_threshold(0))
            if not len(numbers):
                return False
            self._add_to_tiers(numbers)
        return True

    def _add_to_tiers(self, numbers: NDArray[np.int64]) -> None:
        """Make blocks that are new in the translating tier known to the exact tier and to inline functions, too."""
        if self._inline:
            self._note_inline(numbers.tolist(), by_kernel=True)
        tier = self._translating
        exact = None if tier.interpret_only else self._tiers.get((tier.selection, True))
        if exact is not None:
            places = self.cache.facts.blocks["pc"][numbers].astype(np.int64) >> 1
            dispatch_table = exact.dispatch_table.view("u8")
            dispatch_table[places[dispatch_table[places] == 0]] = exact.interpreter

    def begin_run(self) -> None:
        """Prepare a run: let the interpreter call the discovery kernel itself, unless Python has to see new blocks."""
        tier = self.tier
        if self.block_table.ready is tier:
            return
        if tier.hook or not select_by_class(tier.selection.inline):
            self.disable_discovery()
        elif self.block_table.begin_run(tier, tier.interpreter, self._next_threshold(0)):
            self.hart.set("dispatch_miss", tier.interpreter)

    def end_run(self) -> int:
        """Take in the blocks discovered during a run and emit their templates; returns their number."""
        table, tier = self.block_table, self._translating
        n_found = 0
        if table.has_found:
            numbers = table.end_run()
            n_found = len(numbers)
            self._add_to_tiers(numbers)
        if tier.templates is not None and tier.templates.n_emitted < table.count:
            self.fallbacks.emit_templates(tier)
        return n_found

    def disable_discovery(self) -> None:
        """Let every dispatch miss return to Python, until `begin_run`."""
        self.block_table.disable_discovery()
        self.hart.set("dispatch_miss", self._entry.dispatch_miss)

    def has_entry(self, pc: int) -> bool:
        """Whether the dispatch table has an entry for ``pc``."""
        return pc & 1 == 0 and self.tier.dispatch_table.longs[pc >> 1] != 0

    def on_hot_block(self, pc: int) -> None:
        """Handle the report that the block at ``pc`` has reached its threshold: queue it for optimisation."""
        tier = self._translating
        executions = self.block_table.executions(pc)
        self.block_table.set_threshold(pc, self._next_threshold(executions))
        if tier.interpret_only or executions < self.optimise_executions or pc in tier.states.entries:
            return
        if not self.background:
            self._build_at_once(tier, tier.states.begin(Region(pc), RegionEvent.HOT))
            return
        if self._background.has_llvm:
            self._background.enqueue(tier, pc)
        elif executions >= self._loading_threshold:
            self._load_llvm(tier)

    def _load_llvm(self, tier: Tier) -> None:
        """Load LLVM, lower the thresholds, and queue every block that has reached the hotness threshold."""
        self._background.start()
        for pc in self.block_table.set_all_thresholds(self.optimise_executions):
            if pc not in tier.states.entries:
                self._background.enqueue(tier, pc)

    def invalidate(self, pcs: Sequence[int]) -> None:
        """Drop the blocks at ``pcs``, whose code the guest has changed, and all translations that contain them."""
        with self._background.excluding(set(pcs)):
            self._invalidate(pcs)

    def _invalidate(self, pcs: Sequence[int]) -> None:
        """As `invalidate`, when the background thread does not work on these blocks."""
        self.cache.invalidate(pcs)
        self.block_table.invalidate(pcs)
        gone = set(pcs)
        for tier in self._tiers.values():
            for pc in pcs:
                tier.dispatch_table.longs[pc >> 1] = 0
            with self._publishing:
                loaded, left = tier.invalidate(gone)
            if loaded:
                self._compiler.unload(loaded)
                self.block_table.reset_profile(self._next_threshold(0), left)  # so that they can become hot again
                self.fallbacks.install(tier)

    # --- from one process to the next
    def _load_stored(self, tier: Tier) -> None:
        """Begin with the regions that other processes saved for ``tier``, revalidated once their code is mapped."""
        if self._program is None or self._source is None or tier.interpret_only:
            return
        saved = self._program.regions(tier.selection)
        if saved.regions:
            self._background.fair_share.has_stored_translations = True
            tier.pending = PendingTranslations(saved, self._source, tier.states)
            self._install_revalidated(tier, tier.pending)

    def _install_revalidated(self, tier: Tier, pending: PendingTranslations) -> None:
        """Load and publish the pending translations whose code is in memory by now."""
        valid = pending.revalidate()
        self.block_table.require_python(pending.pending_entries)
        if not valid:
            return
        pcs = {pc for region, _ in valid for pc in region.pcs}
        found = self.block_table.discover_all(pcs, tier, tier.interpreter, self._next_threshold(0))
        self._note_inline(found.tolist(), by_kernel=False)
        for other in self._tiers.values():
            self.fallbacks.install(other)
        built, planned = [], []
        for region, saved in valid:
            if saved.image:
                region.image, region.sums = unpacked(saved.image), unpacked_sums(saved.sums)
                built.append(region)
            else:
                planned.append(region)
        known = self._numbers(tier, pcs)
        for region in built:
            known.update(self._counters(tier, region))
        addresses = self._compiler.load([region.image for region in built], [region.name for region in built], known)
        with self._publishing:
            for region in built:
                region.address = addresses[region.name]
                tier.publish(region)
        for region in planned:
            if self.background:
                self._background.order(tier, region)
            else:
                tier.states.change(region, RegionEvent.REVALIDATED)
                self._build_at_once(tier, region)

    def hand_over(self, max_wait_seconds: float) -> None:
        """Pass the regions to later processes of the program, if there are more than the program had.

        Waits up to ``max_wait_seconds`` for a region that an earlier process planned: a short program would otherwise
        never build it.
        """
        if self._program is None or self._source is None:
            return
        self._background.finish_one(max_wait_seconds)
        with self._publishing:
            for tier in self._tiers.values():
                if not tier.interpret_only:
                    self._hand_over(tier, self._program, self._source)

    def _hand_over(self, tier: Tier, program: ProgramTranslations, source: CodeSource) -> None:
        """As `hand_over`, for one tier."""
        dispatch_table, states = tier.dispatch_table.view("u8"), tier.states
        before = program.regions(tier.selection)
        planned_before = {region.name for region in before.regions if not region.image}
        self._plan(tier)
        planned = {
            region.name: region
            for region in states.having(RegionState.COMPILING, RegionState.ORDERED, RegionState.PLANNED)
            if region.name in planned_before or self.block_table.executions(region.head) >= self._planning_threshold
        }
        entered = [
            region for region in tier.regions if any(dispatch_table[pc >> 1] == region.address for pc in region.entries)
        ]
        found = regions_to_save(entered, planned, before, tier.pending, self.cache, source)
        if found is not None:
            program.update(tier.selection, found)

    def _plan(self, tier: Tier) -> None:
        """Choose regions around queued heads that are hot enough: they are left to the next process."""
        queued = tier.states.having(RegionState.QUEUED)
        executions = self.block_table.all_executions([region.head for region in queued])
        for place in np.argsort(-executions, kind="stable")[:MAX_PLANNED].tolist():
            region = queued[place]
            is_wanted = executions[place] >= self._planning_threshold and region.head not in tier.states.entries
            if is_wanted and tier.states.take(region):
                with tier.states.working_on(region):
                    self._former.form(tier, region)
                    tier.states.change(region, RegionEvent.LEFT)

    def _numbers(self, tier: Tier, pcs: Collection[int]) -> dict[str, int]:
        """The block numbers that code for ``tier`` is loaded with, by symbol."""
        return numbers_of(pcs, self.cache) if contains_numbers(tier.selection) else {}

    def _counters(self, tier: Tier, region: Region) -> dict[str, int]:
        """The symbol that the region's code is loaded with for its counters."""
        if not counts_branches(tier.selection):
            return {}
        numbers = np.array([self.cache.number_at(pc) for pc in region.pcs], np.int32)
        first = self.hart.branch_counters.add(region.sums, numbers)
        return {counters_of(region.name): COUNTERS_OFFSET + 8 * first}

    def close(self) -> None:
        """Stop compiling and unload all code; a region under way is finished, queued ones are dropped.

        Raises a failure of the compiling thread, after all code is unloaded.
        """
        try:
            self._background.stop()
        finally:
            for tier in self._tiers.values():
                self._compiler.unload(tier.close())
            self.block_table.close()
            self.fallbacks.close()

    # --- compiling
    def _build_at_once(self, tier: Tier, region: Region) -> None:
        """Build a queued or ordered region in the thread of the guest."""
        with tier.states.working_on(region):
            tier.states.change(region, RegionEvent.TAKEN)
            if region.state is RegionState.FORMING:
                self._former.form(tier, region)
                tier.states.change(region, RegionEvent.CHOSEN)
            self._compile(tier, region)

    def _build(self, tier: Tier, region: Region) -> None:
        self._compile(tier, region)  # looked up at each call: experiments replace `_compile`

    def _compile(self, tier: Tier, region: Region) -> None:
        """Translate and link the region, and publish its entries; safe while the guest runs in another thread."""
        # In the background the blocks of a region depend on timing: the same region hardly comes twice, so it is not
        # kept by its text.
        region.image = self._compiler.image(self._text(tier, region), keep=not self.background)
        numbers = self._numbers(tier, region.pcs) | self._counters(tier, region)
        region.address = self._compiler.load([region.image], [region.name], numbers)[region.name]
        with self._publishing:
            tier.publish(region)
        tier.published_executions.update((pc, self.block_table.executions(pc)) for pc in region.pcs)

    def _emitter(self, tier: Tier, region: Region, locate: bool = False) -> RegionEmitter:
        from emulator.engine.emit.region import RegionEmitter  # few processes compile

        blocks = region.blocks or {pc: self.cache.get(pc) for pc in region.pcs}
        targets = region.indirect_targets
        return RegionEmitter(blocks, region.entries, targets, tier.selection, region.name, locate)

    def _text(self, tier: Tier, region: Region, locate: bool = False) -> str:
        """The region's code; sets ``region.sums``, which is a part of it."""
        emitter = self._emitter(tier, region, locate)
        text = DECLARATIONS + emitter.emit() + METADATA + texts_of(tier.selection.inline)
        if emitter.counters is not None:
            region.sums = sums_of(emitter.counters.sums, region.pcs)
        return text

    # --- faults
    def guest_pc_of(self, host_pc: int) -> int | None:
        """The pc of the guest instruction that the host instruction at ``host_pc`` belongs to; None when unknown.

        Translations carry no such table: the region is translated once more with debug locations, which do not
        change the code, and the object's line table is read.
        """
        from emulator.engine.entry.fault_location import access_at

        tier, region = self.region_at(host_pc)
        if tier is not None and region is not None:
            if tier.selection.exact_faults:
                return self.hart.get("fault_pc")
            text = self._text(tier, region, locate=True)
            found = access_at(self._compiler.object(text), region.image, region.name, host_pc - region.address)
            if found is None:
                return None
            pc, place = found
            self._count_owed(tier, region, region.pcs[place])
            return pc
        if any(tier.templates is not None and tier.templates.covers(host_pc) for tier in self._tiers.values()):
            return self.hart.get("fault_pc")
        operation = self.hart.get("operation")  # set by an interpreter
        if operation:
            return ctypes.c_uint64.from_address(operation + OPERATION_DTYPE.fields["pc"][1]).value  # type: ignore[index]
        return None

    def count_to_fault(self) -> None:
        """Count what a region owed in the block in which it found a fault itself."""
        function = self.hart.get("fault_function")
        if function:
            self.hart.set("fault_function", 0)
            tier, region = self.region_at(function)
            if tier is not None and region is not None:
                self._count_owed(tier, region, self.hart.get("fault_block"))

    def _count_owed(self, tier: Tier, region: Region, pc: int) -> None:
        """Count what the region owes in its block at ``pc``: the block counts as executed."""
        counters = self._emitter(tier, region).counters
        if counters is not None:
            for block, times in counters.after(pc).items():
                self.hart.counts[self.cache.number_at(block)] += times

    def region_at(self, host_pc: int) -> tuple[Tier | None, Region | None]:
        """The region with the host instruction at ``host_pc``, and its tier; None for none."""
        for tier in self._tiers.values():
            for region in tier.regions:
                if 0 <= host_pc - region.address < region.code_bytes:
                    return tier, region
        return None, None
