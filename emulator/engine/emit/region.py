"""Emission of a region - many blocks with loops, one or more entries - as one LLVM function.

Guest registers are LLVM values throughout the region and reach the state buffer only where control leaves. Control
reaches a block inside the region by a branch, a block outside through the dispatch table.

For a guest that catches its memory faults (`TraceSelection.exact_faults`), registers and the pc are stored before each
access that may fault: the state buffer is exact there.
"""

from __future__ import annotations

from typing import Any

from emulator.engine.blocks import Block
from emulator.engine.emit.counter_placement import CounterPlacement
from emulator.engine.emit.dataflow import Dataflow, accesses
from emulator.engine.emit.emitter import ADDRESS_LIMIT, RARELY
from emulator.engine.emit.indirect_targets import IndirectTargets
from emulator.engine.emit.inline_calls import InlineCallEmitter
from emulator.engine.emit.region_exits import label_of_block, label_of_fetch
from emulator.engine.emit.region_symbols import counters_of, counts_branches
from emulator.engine.emit.registers import BOX
from emulator.engine.emit.volatile_loads import volatile_loads
from emulator.engine.entry.calling_convention import CONVENTION, PARAMETERS, PINNED, arguments
from emulator.engine.hart_state import Exit
from emulator.engine.instrument.columns import BlockColumns
from emulator.engine.instrument.inline_functions import calls_of
from emulator.events import ACCESS_STORE, ColumnSet, TraceSelection

V = Any


class RegionEmitter(InlineCallEmitter):
    """Emits one region. ``blocks``: by pc; ``entries``: the pcs at which control may enter from outside;
    ``indirect_targets``: targets of computed jumps inside the region."""

    def __init__(
        self,
        blocks: dict[int, Block],
        entries: list[int],
        indirect_targets: IndirectTargets,
        selection: TraceSelection,
        name: str,
        locate: bool = False,
    ) -> None:
        # Inline functions that may change registers find them in the state buffer.
        registers_change = any("registers" in one.fields for one in selection.inline)
        dataflow = Dataflow(blocks, entries, indirect_targets, selection, registers_change, registers_change)
        counters = None
        if counts_branches(selection):
            counters = CounterPlacement(blocks, entries, dataflow.successors, indirect_targets)
        super().__init__(blocks, dataflow, indirect_targets, counters, registers_change, selection.followed_lines[1])
        self._locate = locate
        self._locations: dict[tuple[int, int], int] = {}  # pcs of instruction and block, to metadata number
        self._exact_faults = selection.exact_faults
        self.entries = entries
        self.selection = selection
        self.function = name
        self._columns = {
            place: BlockColumns(self, place, one, selection.exact_faults)
            for place, one in enumerate(selection.inline)
            if isinstance(one, ColumnSet)
        }
        self._recorded = False  # whether the current block is in the record
        self._record_base = ""
        self._time = ""  # of the block's first instruction
        self._accesses = 0

    # --- the function
    def emit(self) -> str:
        """The IR text of the function.

        With ``locate`` every guest access carries a debug location whose line is the guest pc, and whose column is the
        place of the block in the region, so that the line table of the object tells which instruction a host address
        belongs to.
        """
        self._prologue()
        if self._counters:
            self._constant(counters_of(self.function))
        for pc in self.blocks:
            for copy in range(self._copies(self.blocks[pc])):
                self._block(self.blocks[pc], copy)
        self._emit_exits()
        debug = "!dbg !3 " if self._locate else ""
        head = f"define {CONVENTION} void @{self.function}({PARAMETERS}) strictfp nounwind {debug}{{\n"
        return "".join(self._constants) + head + "\n".join(self.lines) + "\n}\n" + "\n".join(self._metadata())

    @property
    def counters(self) -> CounterPlacement | None:
        """The counters on its branches; complete when the function is emitted."""
        return self._counters

    def _metadata(self) -> list[str]:
        """The debug information of the module; none without ``locate``."""
        if not self._locate:
            return []
        places = {pc: place for place, pc in enumerate(self.blocks)}
        return [
            "!llvm.dbg.cu = !{!1}",
            "!llvm.module.flags = !{!4, !5}",
            "!1 = distinct !DICompileUnit(language: DW_LANG_C99, file: !2, emissionKind: LineTablesOnly)",
            '!2 = !DIFile(filename: "guest", directory: "")',
            f'!3 = distinct !DISubprogram(name: "{self.function}", file: !2, line: 1, type: !6, unit: !1, '
            "spFlags: DISPFlagDefinition)",
            '!4 = !{i32 2, !"Debug Info Version", i32 3}',
            '!5 = !{i32 7, !"Dwarf Version", i32 4}',
            "!6 = !DISubroutineType(types: !7)",
            "!7 = !{}",
            *(
                f"!{n} = !DILocation(line: {pc}, column: {places[block]}, scope: !3)"
                for (pc, block), n in self._locations.items()
            ),
        ]

    def _number(self, what: str, block: Block) -> str:
        """The symbol of a number that `numbers_of` gives for the block; filled in when the code is loaded."""
        return self._constant(f"{what}.{block.pc:x}")

    def _constant(self, name: str) -> str:
        """The symbol ``name`` of a number."""
        text = f"@{name} = external dso_local global i8, !absolute_symbol !{{i64 0, i64 2147483648}}\n"
        self._constants[text] = None  # copies of a block have the same
        return f"@{name}"

    def _mark_accesses(self, first_line: int) -> None:
        """Give the lines from ``first_line`` on, which make up a guest access, the current pc as debug location.

        All of them, not the load alone: a load and its sign extension may become one host instruction, which gets the
        location of the extension.
        """
        number = self._locations.setdefault((self._pc, self._block_pc), 10 + len(self._locations))
        for n in range(first_line, len(self.lines)):
            if not self.lines[n].endswith(":"):
                self.lines[n] += f", !dbg !{number}"

    def _prologue(self) -> None:
        """Emit the entry of the function: load registers, check the budget, and branch to the entry at pc."""
        self.start("entry")
        self.say("%vb = alloca i64")
        self.say("%vr = alloca ptr")
        self.say("store i64 %budget, ptr %vb")
        self.say("store ptr %rec, ptr %vr")
        for columns in self._columns.values():
            columns.prologue()
        if self._resident:
            for n in PINNED:
                self.say(f"store i64 %p{n}, ptr {self._place(n)}")
        else:
            self._load_registers()
        pc = self.state_load("pc") if len(self.entries) > 1 else self.entries[0]
        if not self.selection.exact_stop:
            spent = self.let("icmp slt i64 %budget, 1")
            leave = self._label_of_return(pc, Exit.BUDGET)
            self.say(f"br i1 {spent}, label %{leave}, label %enter, {RARELY}")
            self.start("enter")
        expected = {entry: self._dataflow.nan_boxed_in[entry] for entry in self.entries}
        labels = {entry: f"e{entry:x}" if expected[entry] else self._label_of_entry(entry) for entry in self.entries}
        first = labels.pop(self.entries[0])
        if labels:
            cases = " ".join(f"i64 {entry}, label %{label}" for entry, label in labels.items())
            self.say(f"switch i64 {pc}, label %{first} [ {cases} ]")
        else:
            self.say(f"br label %{first}")
        for entry, registers in expected.items():
            if registers:
                self._expect_nan_boxed(entry, registers)
        if any(expected.values()):
            self.start("refuse")
            fallback = self.state_load("fallback", "ptr")
            passed = arguments("%budget", "%rec", {n: f"%p{n}" for n in PINNED})
            self.say(f"musttail call {CONVENTION} void {fallback}({passed})")
            self.say("ret void")

    def _expect_nan_boxed(self, entry: int, registers: set[int]) -> None:
        """Go on at ``entry`` if these registers are NaN-boxed; otherwise the fallback runs that block."""
        self.start(f"e{entry:x}")
        other: V = "false"
        for n in sorted(registers):
            raw = self.let(f"bitcast double {self.let(f'load double, ptr %r{n}')} to i64")
            other = self.let(f"or i1 {other}, {self.let(f'icmp ult i64 {raw}, {BOX}')}")
        self.say(f"br i1 {other}, label %refuse, label %{self._label_of_entry(entry)}, {RARELY}")

    def _label_of_entry(self, pc: int) -> str:
        """The label where control enters the block at ``pc`` from outside."""
        return label_of_fetch(pc) if self._code_bits else label_of_block(pc)

    def _load_registers(self) -> None:
        """Emit variables for the registers of the region, with their values."""
        for n in self._dataflow.used:
            kind = "i64" if n < 32 else "double"
            self.say(f"%r{n} = alloca {kind}")
            if n in PINNED:
                self.say(f"store i64 %p{n}, ptr %r{n}")
            else:
                pointer = self.let(f"getelementptr i8, ptr %st, i64 {8 * n}")
                self.say(f"store {kind} {self.let(f'load {kind}, ptr {pointer}')}, ptr %r{n}")

    def _block(self, block: Block, copy: int) -> None:
        """Emit one block, or one of its copies: budget, counts, record, its instructions, and its end."""
        self._copy_of_block = copy
        self._block_pc = block.pc
        budget = self._enter(block, copy)
        self._forget()
        self._unsynced = set() if self._resident else set(self._dataflow.dirty_in[block.pc])
        self._checked_registers = set(self._dataflow.checked_bases_in[block.pc])
        self._known_boxed = set(self._dataflow.nan_boxed_in[block.pc])
        left = self.let(f"sub i64 {budget}, {len(block.instructions)}")
        self.say(f"store i64 {left}, ptr %vb")
        if self.selection.counts and not self._counters:
            place = self._number("counter", block)
            self.count_at(self.let(f"getelementptr i8, ptr %st, i64 ptrtoint (ptr {place} to i64)"))
        self._accesses = 0
        if self.selection.followed_lines[0] and accesses(block):
            self._time = self.time_before(budget)
        self._recorded = self.selection.blocks
        if self._recorded:
            self._record_base = self.let("load ptr, ptr %vr")
            number = self._number("number", block)
            self.say(f"store i32 ptrtoint (ptr {number} to i32), ptr {self._record_base}")
        if (self._exact_faults or self.selection.delivers) and accesses(block):
            self._store_fault_state(left, block.pc)
        instructions = block.instructions
        if block.slow:
            instructions = instructions[:-1]
        self._target = self._condition = None
        self.unsuitable = False
        inline = calls_of(self.selection.inline, block) if self.selection.inline else []
        self._begin_columns(block, instructions, inline)
        volatile = volatile_loads(block.instructions)
        for self._place_in_block, (self._pc, self.instruction) in enumerate(zip(block.pcs, instructions, strict=False)):
            self.rm = self.instruction.rm
            if self._exact_faults and self.instruction.row.access:
                self._sync_state()
            self.volatile = "volatile " if self._exact_faults or volatile[self._place_in_block] else ""
            before = len(self.lines)
            if inline:
                kind, calls = inline[self._place_in_block]
                self._with_calls(kind, block.words[self._place_in_block], calls)
            else:
                self._execute()
            if self._locate and self.instruction.row.access:
                self._mark_accesses(before)
        if block.slow and self.selection.addresses and block.last.row.access:
            raise AssertionError("no slow instruction accesses memory")
        for columns in self._columns.values():
            columns.end()
        if self._recorded:
            words = 1 + (self._accesses if self.selection.addresses else 0)
            after = self.let(f"getelementptr i8, ptr {self._record_base}, i64 {4 * words}")
            self.say(f"store ptr {after}, ptr %vr")
        self._flush()
        if not self._resident:
            self._store(self._dataflow.stored[block.pc])
        self._terminate(block)

    def _enter(self, block: Block, copy: int) -> V:
        """Emit where control enters the block, or its copy: the budget is checked and, where fetches are followed, the
        code fetched unless control comes from the same line. Returns the budget before the block."""
        if not self._code_bits:
            self.start(label_of_block(block.pc, copy))
            return self._check_budget(block)
        begin = self.fresh_label("begin")
        self.start(label_of_fetch(block.pc, copy))
        time = self.time_before(self._check_budget(block))
        self.follow_fetch(block.pc, block.end_pc, time, self.selection)
        self.say(f"br label %{begin}")
        self.start(label_of_block(block.pc, copy))
        self._check_budget(block)
        self.say(f"br label %{begin}")
        self.start(begin)
        return self.let("load i64, ptr %vb")

    def _check_budget(self, block: Block) -> V:
        """Leave before the block if the budget is used up, where that is checked; the budget before the block."""
        budget = self.let("load i64, ptr %vb")
        if block.pc in self._dataflow.checks:
            out = self.let(f"icmp slt i64 {budget}, 1")
            go = self.fresh_label("go")
            counter = self._counters.at_start(block.pc) if self._counters else None
            leave = self._label_of_return(block.pc, Exit.BUDGET, self._dataflow.dirty_in[block.pc], counter)
            self.say(f"br i1 {out}, label %{leave}, label %{go}, {RARELY}")
            self.start(go)
        return budget

    def _store_fault_state(self, budget: V, pc: int) -> None:
        """Store the budget and the end of the record for a fault in the block at ``pc``: the block counts as executed,
        and is not in the record, unless the guest catches the fault (`emulator.execution.cut_blocks`)."""
        self.state_store_now("budget", budget)
        if self._exact_faults:
            self.state_store_now("fault_block", pc)
        if self.selection.blocks:
            self.state_store_now("record", self.let("load ptr, ptr %vr"), "ptr")

    def _terminate(self, block: Block) -> None:
        """Emit the end of the block: a branch inside the region, an exit, or a return to Python."""
        if block.slow:
            leave = self._label_after(block.pc, block.pcs[-1], Exit.SLOW)
            self.say(f"br label %{leave}")
        elif self._condition is not None:
            taken, fall = self._goto(block, self._target), self._goto(block, block.end_pc)
            self.say(f"br i1 {self._condition}, label %{taken}, label %{fall}")
        elif self.unsuitable is not False:
            leave = self._label_after(block.pc, block.end_pc, Exit.ROUNDING)
            self.say(f"br i1 {self.unsuitable}, label %{leave}, label %{self._goto(block, block.end_pc)}, {RARELY}")
        elif self._target is None:
            self.say(f"br label %{self._goto(block, block.end_pc)}")
        elif isinstance(self._target, int):
            self.say(f"br label %{self._goto(block, self._target)}")
        else:
            self._indirect(block, self._target)

    # --- memory and control
    def check_address(self, base: V, address: V) -> None:
        if base in self._checked or self.instruction.rs1 in self._checked_registers:
            return
        self._checked.add(base)
        self.fault_if(self.let(f"icmp ugt i64 {base}, {ADDRESS_LIMIT}"), address)

    def record_access(self, address: V) -> None:
        is_store = bool(self.instruction.row.access & ACCESS_STORE)
        if self.selection.followed_lines[0]:
            time = self.let(f"add i32 {self._time}, {self._place_in_block}")
            self.follow_access(address, time, is_store, self.selection)
        self._accesses += 1
        if not (self._recorded and self.selection.addresses):
            return
        low = address if isinstance(address, int) else self.let(f"trunc i64 {address} to i32")
        pointer = self.let(f"getelementptr i8, ptr {self._record_base}, i64 {4 * self._accesses}")
        kept = (
            "volatile " if self._exact_faults else ""
        )  # a later access may fault, which leaves this one in the record
        self.say(f"store {kept}i32 {low}, ptr {pointer}")
