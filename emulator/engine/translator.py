"""Tiers: which code runs interpreted, which translated, and when it moves up.

The table of entry points (``slots``) has one host function for every guest pc that control may arrive at: none
(nothing known: back to Python), the interpreter (decoded), a template (since Python knows of the block), or a region.
A block that has been executed a number of times is wanted optimised, with the hot blocks around it: a background
thread takes the hottest of the wanted ones, compiles, and publishes by storing into the table. One `Tier` exists for
each `TraceSelection`; switching between selections changes one pointer.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from emulator.engine.archive import SavedRegion, SavedRegions, sources_identity
from emulator.engine.background import Background
from emulator.engine.blocks import Block, BlockCache
from emulator.engine.code_image import NO_CODE, unpacked
from emulator.engine.compiler import Compiler
from emulator.engine.emit import DECLARATIONS, METADATA
from emulator.engine.entry import Entry
from emulator.engine.formation import RegionFormer
from emulator.engine.inline import Inline, InlineTables, texts_of
from emulator.engine.interpreter import InterpreterEmitter
from emulator.engine.known import KnownCode
from emulator.engine.operations import OPERATION_DTYPE
from emulator.engine.programs import Program
from emulator.engine.region import RegionEmitter, contains_numbers, numbers_of
from emulator.engine.remembered import CodeSource, Remembered, spans_of, stretches_of, united
from emulator.engine.state import Hart
from emulator.engine.stencil_set import stencils_for
from emulator.engine.templates import Templates
from emulator.engine.tiers import Region, Tier
from emulator.events import Ranges, TraceSelection

# An optimised translation costs some 150 us an instruction, but another processor's; an instruction takes 3 ns
# interpreted, 0.7 ns in a template and 0.2 ns in an optimised region.
OPTIMISE_EXECUTIONS = 5000  # outside of optimised regions, before one is wanted
# LLVM takes 30 ms of the guest's thread to load, and slows it down while it works: who does not run long, or has
# translations of an earlier process, does without.
WORTH_LOADING = 6  # times as many executions as are enough otherwise; where nothing is kept of the program
WORTH_ADDING = 20  # the same where something is, and from which on a block is planned for the next process
_MOST_EXECUTIONS = 1 << 30
_NEAR = 32  # blocks that are met at once


class Translator:
    """Keeps the tables of one machine and promotes hot code.

    ``background``: compile optimised translations in another thread while the guest goes on (the default);
    otherwise compile at once, which tests use to know what ran. ``templates``: whether there are any. ``program``:
    begin with what other processes translated of it; `leave` leaves it to the next.
    """

    def __init__(
        self,
        hart: Hart,
        cache: BlockCache,
        *,
        background: bool = True,
        templates: bool = True,
        optimise_executions: int = OPTIMISE_EXECUTIONS,
        program: Program | None = None,
        source: CodeSource | None = None,
    ) -> None:
        self.hart = hart
        self.cache = cache
        self.templates = templates
        self.optimise_executions = optimise_executions
        self.background = background
        self._entry = Entry.get()
        self._compiler: Compiler = self._entry.compiler
        self._interpreters: list[int] = []  # addresses, to be unloaded
        self._program, self._source = program, source
        self.code = KnownCode(hart, cache, source, self._compiler)
        self._background = Background(
            self._form, self._build, self.code.all_executions, optimise_executions, self._compiler
        )
        self._former = RegionFormer(cache, self.code.call_targets, self.code.executions)
        self._tiers: dict[tuple[TraceSelection, bool], Tier] = {}
        self._inline: dict[tuple[Inline, ...], InlineTables] = {}
        self.tier: Tier
        self._translating: Tier  # the one that is being translated for
        self._counted_for: Tier | None = None  # the one whose executions the descriptors count
        hart.set("miss", self._entry.miss)
        self._publishing = threading.Lock()

    # --- selection
    def select(self, selection: TraceSelection) -> Tier:
        """Run with ``selection`` from now on; translations of other selections stay."""
        tier = self._tiers.get((selection, False))
        if tier is None:
            tier = Tier(selection, self._compile_interpreter(selection), False)
            if selection.hooks:
                tier.hook = self._entry.hook
            self._tiers[selection, False] = tier
            self._interpret_known(tier)
            if self.templates:
                self._use_templates(tier)
            self._remember(tier)
        if selection.inline:
            self._enter_inline(selection.inline)
        self._translating = tier
        if tier is not self._counted_for:
            # What was counted for another tier must not keep a block from ever reaching a threshold in this one.
            self.code.count_anew(self._next_threshold(0))
            self._counted_for = tier
        self.tier = tier
        self.discover_nothing()
        self.hart.set("slots", tier.slots.address)
        self.hart.set("runner", tier.interpreter)
        return tier

    def _use_templates(self, tier: Tier) -> None:
        """Lay every block that is known in ``tier``, and from now on every new one."""
        tables = self.hart.get("blocks"), self.hart.get("block_index"), tier.slots.address
        with contextlib.suppress(OSError):  # a host that does not let us write code
            stencils = stencils_for(self._compiler, _emitted(tier.selection))
            tier.templates = Templates(self._compiler, stencils, tier.interpreter, *tables)
        self._lay(tier)

    def _lay(self, tier: Tier) -> None:
        if tier.templates is not None and tier.templates.laid < len(self.code):
            with self._publishing:
                tier.templates.lay(len(self.code))

    def _enter_inline(self, calls: tuple[Inline, ...]) -> None:
        tables = self._inline.get(calls)
        if tables is None:
            tables = self._inline[calls] = InlineTables(calls)
            tables.note(self.cache.facts, self.cache.numbers())
        functions, map_address = tables.enter(calls, self._compiler)
        self.hart.set("inline", functions)
        self.hart.set("inline_map", map_address)

    def _note_inline(self, numbers: Collection[int]) -> None:
        """These blocks are known from now on."""
        for tables in self._inline.values():
            tables.note(self.cache.facts, numbers)

    def step_exactly(self, on: bool) -> None:
        """Interpret what is selected, stopping exactly where the budget ends, or go back to translations.

        One pointer changes, so this is how to end a stretch at a given instruction without a check in every
        translated block. What becomes hot meanwhile is translated for the tier that is left.
        """
        self.tier = self.exact_tier() if on else self._translating
        self.hart.set("slots", self.tier.slots.address)

    def exact_tier(self) -> Tier:
        """The tier that only interprets what is selected."""
        tier = self._translating
        if tier.interpret_only:
            return tier
        exact = self._tiers.get((tier.selection, True))
        if exact is None:
            exact = self._tiers[tier.selection, True] = Tier(
                tier.selection, tier.interpreter, True, tier.hook
            )
            self._interpret_known(exact)
        return exact

    def fast_and_exact(self) -> tuple[Tier, Tier]:
        """The tier in force and the one that only interprets; nothing is set."""
        return self._translating, self.exact_tier()

    def _interpret_known(self, tier: Tier) -> None:
        """Let the interpreter of a new tier run the blocks that are known and not translated."""
        slots = tier.slots.view("u8")
        places = self.code.places()
        places = places[slots[places] == 0]
        slots[places] = tier.interpreter
        if tier.hook:
            ranges = tier.selection.hook_ranges
            inside = _reaching(self.code.facts_at(places), ranges) if ranges else slice(None)
            for place in places[inside]:
                slots[place] = self._runner(tier, self.cache.get(2 * int(place)))
        self._run_laid(tier, places)

    def _run_laid(self, tier: Tier, places: NDArray[np.int64]) -> None:
        """Let templates run the blocks at ``places`` that the interpreter is to run."""
        slots = tier.slots.view("u8")
        if tier.templates is not None:
            laid = tier.templates.entries[self.code.numbers_at(places)]
            instead = (laid != 0) & (slots[places] == tier.interpreter)
            slots[places[instead]] = laid[instead]

    def _runner(self, tier: Tier, block: Block) -> int:
        """What runs ``block`` in ``tier`` while it is not translated."""
        if tier.hook and is_hooked(tier.selection, block):
            tier.hooked.add(block.pc)
            return tier.hook
        return tier.interpreter

    def _compile_interpreter(self, selection: TraceSelection) -> int:
        name = "interpreter"

        def text() -> str:
            return DECLARATIONS + InterpreterEmitter(selection, name).emit() + METADATA

        address = self._compiler.compile(text, [name], key=_interpreter_key(selection))[name]
        self._interpreters.append(address)
        return address

    def _next_threshold(self, executions: int) -> int:
        """At how many executions a block is reported again; 0 for never."""
        enough = self.optimise_executions if not self.background or self._background.has_llvm else self._worth
        return enough & 0xFFFFFFFF if executions < enough else 0

    @property
    def _worth(self) -> int:
        """Executions of one block from which on LLVM is worth loading."""
        times = WORTH_ADDING if self._background.fair_share.has_begun_before else WORTH_LOADING
        return min(times * self.optimise_executions, _MOST_EXECUTIONS)

    @property
    def _worth_planning(self) -> int:
        """Executions of one block from which on the next process is to translate it."""
        return min(WORTH_ADDING * self.optimise_executions, _MOST_EXECUTIONS)

    # --- from Python's run loop
    def discover(self, pc: int) -> None:
        """Decode the block at ``pc`` and let the interpreter run it. Raises the guest's fault if it cannot."""
        for tier in self._tiers.values():
            if tier.remembered is not None and pc in tier.remembered.awaited:
                self._take_arrived(tier, tier.remembered)
        if self.is_known(pc):
            return
        runner = self.tier.interpreter
        if self.tier.hook or not self._meet(pc):
            block = self.cache.get(pc)
            self._note_inline([block.number])
            self.code.add(block, self._next_threshold(0))
            runner = self._runner(self.tier, block)
        slots = self.tier.slots.view("u8")
        with self._publishing:
            if not slots[pc >> 1]:
                slots[pc >> 1] = runner
        self._lay(self.tier)
        if slots[pc >> 1] == self.tier.interpreter:  # it was laid while another tier was in force
            self._run_laid(self.tier, np.array([pc >> 1]))

    def _meet(self, pc: int) -> bool:
        """Know the block at ``pc`` without Python's decoding it; False where that cannot be done.

        Coming back for a block takes longer than a kernel needs for many. Where functions of an analyzer are called for
        some instructions the interpreter returns at every new block, so that those are taken that it will come to next.
        """
        if not self.code.number_of(pc):
            near = _NEAR if self.tier.selection.inline else 1
            tier, report_at = self.tier, self._next_threshold(0)
            numbers = self.code.meet_near(pc, tier, tier.interpreter, report_at, near)
            if not len(numbers):
                return False
            self._let_tiers_know(numbers)
        return True

    def _let_tiers_know(self, numbers: NDArray[np.int64]) -> None:
        """The blocks of these numbers are new, and the tier in force can run them: let the exact one, too."""
        if self._inline:
            self._note_inline(numbers.tolist())
        tier = self._translating
        exact = None if tier.interpret_only else self._tiers.get((tier.selection, True))
        if exact is not None:
            places = self.cache.facts.blocks["pc"][numbers].astype(np.int64) >> 1
            slots = exact.slots.view("u8")
            slots[places[slots[places] == 0]] = exact.interpreter

    def begin(self, may_discover: bool = True) -> None:
        """The guest is about to run: let the interpreter discover blocks by itself where nobody else has to look."""
        tier = self.tier
        if self.code.ready is tier and may_discover:
            return
        if tier.hook or not may_discover:
            self.discover_nothing()
        elif self.code.begin(tier, tier.interpreter, self._next_threshold(0)):
            self.hart.set("miss", tier.interpreter)

    def end(self) -> int:
        """The guest has run; how many blocks it has met."""
        code, tier = self.code, self._translating
        n_found = 0
        if code.has_found:
            numbers = code.end()
            n_found = len(numbers)
            self._let_tiers_know(numbers)
        if tier.templates is not None and tier.templates.laid < code.count:
            self._lay(tier)
        return n_found

    def discover_nothing(self) -> None:
        """Let the guest come back wherever nothing is known, until `begin`."""
        self.code.discover_nothing()
        self.hart.set("miss", self._entry.miss)

    def is_known(self, pc: int) -> bool:
        """Whether control may arrive at ``pc`` without asking Python."""
        return pc & 1 == 0 and self.tier.slots.longs[pc >> 1] != 0

    def heat(self, pc: int) -> None:
        """The block at ``pc`` has been executed often enough to be wanted."""
        tier = self._translating
        executions = self.code.executions(pc)
        self.code.report_at(pc, self._next_threshold(executions))
        if tier.interpret_only or executions < self.optimise_executions or pc in tier.optimised:
            return
        if not self.background:
            self._compile(tier, self._form(tier, pc))
            return
        if self._background.has_llvm:
            self._background.want(tier, pc)
        elif executions >= self._worth:
            self._load_llvm(tier)

    def _load_llvm(self, tier: Tier) -> None:
        """It is worth it: from now on everything is wanted that has run often enough."""
        self._background.start()
        for pc in self.code.report_all_at(self.optimise_executions):
            if pc not in tier.optimised:
                self._background.want(tier, pc)

    def forget(self, pcs: Sequence[int]) -> None:
        """The guest has changed the code of the blocks at ``pcs``, which are known no more."""
        tiers = self._tiers.values()
        unfinished = [(tier, region) for tier in tiers for region in self._background.unfinished(tier)]
        with self._background.excluding(set(pcs)) as was_stopped:
            if was_stopped:
                for tier, region in unfinished:
                    if region not in tier.regions:
                        tier.drop(region)
            self._forget(pcs)

    def _forget(self, pcs: Sequence[int]) -> None:
        self.cache.forget(pcs)
        self.code.forget(pcs)
        gone = set(pcs)
        for tier in self._tiers.values():
            for pc in pcs:
                tier.slots.longs[pc >> 1] = 0
            with self._publishing:
                loaded, left = tier.forget(gone)
            if loaded:
                self._compiler.unload(loaded)
                self.code.count_anew(self._next_threshold(0), left)  # they are to become hot again
                self._interpret_known(tier)

    # --- from one process to the next
    def _remember(self, tier: Tier) -> None:
        """Begin with what other processes have translated for ``tier``, as soon as the code is in memory."""
        if self._program is None or self._source is None or tier.interpret_only:
            return
        saved = self._program.regions(tier.selection)
        if saved.regions:
            self._background.fair_share.has_begun_before = True
            tier.remembered = Remembered(saved, self._source)
            self._take_arrived(tier, tier.remembered)

    def _take_arrived(self, tier: Tier, remembered: Remembered) -> None:
        """Take the translations whose code is in memory by now."""
        regions = remembered.arrive()
        self.code.ask_for(remembered.awaited)
        if not regions:
            return
        pcs = {pc for region in regions for pc in region.blocks}
        self._note_inline(self.code.meet(pcs, tier, tier.interpreter, self._next_threshold(0)).tolist())
        for other in self._tiers.values():
            self._interpret_known(other)
        made = [
            Region(
                one.name, list(one.entries), one.blocks, frozenset(one.callees), one.ways, {},
                image=unpacked(one.image) if one.image else NO_CODE,
            )
            for one in regions
        ]  # fmt: skip
        built = [region for region in made if region.image is not NO_CODE]
        addresses = self._compiler.load(
            [region.image for region in built], [region.name for region in built], self._numbers(tier, pcs)
        )
        with self._publishing:
            for region in built:
                region.address = addresses[region.name]
                tier.taken.add(region.name)
                tier.publish(region)
            for region in made:
                tier.expect(region)
        planned = [region for region in made if region.image is NO_CODE]
        for region in planned:
            if self.background:
                self._background.order(tier, region)
            else:
                self._compile(tier, region)
        if planned and self.background:
            self._load_llvm(tier)

    def leave(self, patience_seconds: float) -> None:
        """Leave what is translated by now to other processes of the program, if it is more than there was.

        Waits so long at most for what an earlier process had no time for: or short programs would never get to it.
        """
        if self._program is None or self._source is None:
            return
        self._background.finish_one(patience_seconds)
        with self._publishing:
            for tier in self._tiers.values():
                if not tier.interpret_only:
                    self._leave(tier, self._program, self._source)

    def _leave(self, tier: Tier, program: Program, source: CodeSource) -> None:
        slots = tier.slots.view("u8")
        waiting, waiting_code = ([], []) if tier.remembered is None else tier.remembered.waiting()
        before = {region.name for region in program.regions(tier.selection).regions if not region.image}
        before -= {region.name for region in waiting}
        planned = {
            region.name: region
            for region in (*self._background.unfinished(tier), *self._plans(tier))
            if region.name in before or self.code.executions(region.entries[0]) >= self._worth_planning
        }
        kept = [
            region
            for region in tier.regions
            if any(slots[pc >> 1] == region.address for pc in region.entries)
        ]
        for region in kept:
            planned.pop(region.name, None)
        if planned.keys() == before and all(region.name in tier.taken for region in kept):
            return
        kept += planned.values()
        pcs = np.unique(np.array([pc for region in kept for pc in region.pcs], np.int64))
        blocks = self.cache.facts.blocks[[self.cache.number_at(pc) for pc in pcs.tolist()]]
        code = united([*stretches_of(spans_of(blocks), source), *waiting_code])
        # Not what was made from code of which it is not known for certain what it was.
        starts = np.array([start for start, _ in code], np.int64)
        ends = np.array([start + len(part) for start, part in code], np.int64)
        places = np.searchsorted(starts, blocks["pc"], side="right") - 1
        inside = places >= 0
        inside[inside] = blocks["end_pc"][inside] <= ends[places[inside]]
        certain = set(pcs[inside].tolist())
        saved = [
            SavedRegion(
                region.name, tuple(region.entries), region.pcs, tuple(region.callees), region.ways,
                b"" if region.name in planned else region.image.packed(),
            )
            for region in kept
            if certain.issuperset(region.pcs)
        ]  # fmt: skip
        program.learn(tier.selection, SavedRegions((*saved, *waiting), tuple(code)))

    def _plans(self, tier: Tier) -> list[Region]:
        """What was worth to be translated, and has waited in vain: the next process begins with it."""
        wanted = np.array(self._background.wanted(tier), np.int64)
        executions = self.code.all_executions(wanted)
        hottest = np.argsort(-executions, kind="stable")[: int((executions >= self._worth_planning).sum())]
        return [self._form(tier, pc) for pc in wanted[hottest].tolist() if pc not in tier.optimised]

    def _numbers(self, tier: Tier, pcs: Collection[int]) -> dict[str, int]:
        """What code for ``tier`` is loaded with."""
        return numbers_of(pcs, self.cache) if contains_numbers(tier.selection) else {}

    def close(self) -> None:
        """Stop compiling and unload what was compiled; what is under way is finished, what is wanted is not begun."""
        self._background.stop()
        for tier in self._tiers.values():
            self._compiler.unload(tier.close())
        self.code.close()
        self._compiler.unload(self._interpreters)

    # --- compiling
    def _form(self, tier: Tier, pc: int) -> Region:
        region = self._former.around(tier, pc)
        tier.expect(region)
        return region

    def _build(self, tier: Tier, region: Region) -> None:
        self._compile(tier, region)  # whoever may stand around it by now

    def _compile(self, tier: Tier, region: Region) -> None:
        """Translate, link, and make the entries known; safe while the guest runs in another thread."""
        # In the background it depends on the moment which blocks are in a region: the same one will hardly come again.
        region.image = self._compiler.image(self._text(tier, region), keep=not self.background)
        numbers = self._numbers(tier, region.pcs)
        region.address = self._compiler.load([region.image], [region.name], numbers)[region.name]
        with self._publishing:
            tier.publish(region)
        tier.covered.update((pc, self.code.executions(pc)) for pc in region.pcs)

    def _text(self, tier: Tier, region: Region, locate: bool = False) -> str:
        blocks = region.blocks or {pc: self.cache.get(pc) for pc in region.pcs}
        text = RegionEmitter(blocks, region.entries, region.ways, tier.selection, region.name, locate).emit()
        inlined = texts_of(tier.selection.inline)
        return DECLARATIONS + text + METADATA + inlined

    # --- faults
    def guest_pc_of(self, host_pc: int) -> int | None:
        """The guest instruction whose access the host instruction at ``host_pc`` is; None when unknown.

        Translations carry no such table. The region is translated once more with debug locations, which do not
        change the code, and the object's line table is read.
        """
        from emulator.engine.fault_location import pc_at

        for tier in self._tiers.values():
            for region in tier.regions:
                offset = host_pc - region.address
                if 0 <= offset < region.code_bytes:
                    if tier.selection.exact_faults:
                        return self.hart.get("fault_pc")
                    text = self._text(tier, region, locate=True)
                    return pc_at(self._compiler.object(text), region.image, region.name, offset)
            if tier.templates is not None and tier.templates.covers(host_pc):
                return self.hart.get("fault_pc")
        operation = self.hart.get("operation")  # of an interpreter
        if operation:
            return ctypes.c_uint64.from_address(operation + OPERATION_DTYPE.fields["pc"][1]).value  # type: ignore[index]
        return None


def _reaching(blocks: np.ndarray, ranges: Ranges) -> np.ndarray:
    """Which rows of `BlockFacts` are of blocks that reach into ``ranges``."""
    found = np.zeros(len(blocks), np.bool_)
    for low, high in ranges:
        found |= (blocks["pc"] < high) & (blocks["end_pc"] > low)
    return found


def is_hooked(selection: TraceSelection, block: Block) -> bool:
    """Whether Python is to be called for an instruction of ``block``."""
    return any(
        instruction.row.mnemonic in selection.hooks
        and (not selection.hook_ranges or any(low <= pc < high for low, high in selection.hook_ranges))
        for instruction, pc in zip(block.instructions, block.pcs, strict=True)
    )


def _interpreter_key(selection: TraceSelection) -> str:
    return f"interpreter {_emitted(selection)} {sources_identity()}"


def _emitted(selection: TraceSelection) -> TraceSelection:
    """As far as it matters to what runs blocks that are not in regions: which ones it runs is in the entry points, and
    which of their instructions are watched is in a table."""
    inline = tuple(replace(one, ranges=()) for one in selection.inline)
    return replace(selection, hooks=(), hook_ranges=(), inline=inline, exact_faults=False)
