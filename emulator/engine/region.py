"""Translation of a region - many blocks with loops, one or more entries - into one LLVM function.

In an optimised region guest registers become LLVM values for the whole of it and reach the state buffer only
where control leaves; that takes LLVM's passes and its register allocator. A quick one leaves them in the state
buffer between blocks: nothing to load at its entries and to store at its exits, so that every block can be an
entry and the code to generate is short. A block inside the region is reached by a branch; one outside through
the table of entry points.

For a guest that catches its memory faults (`TraceSelection.exact_faults`) registers are stored before each access
that may fault, and so is its pc: the state buffer is exact there whatever LLVM does with the rest.
"""

from __future__ import annotations

from typing import Any

from emulator.engine.abi import CONVENTION, PARAMETERS, PINNED, arguments
from emulator.engine.anchors import loose_loads
from emulator.engine.blocks import Block
from emulator.engine.emit import ADDRESS_LIMIT, RARELY, Emitter
from emulator.engine.lines import noted
from emulator.engine.state import COUNTS_OFFSET, Exit
from emulator.events import VALUE_MEMORY, VALUE_RD, VALUE_RS1, VALUE_TARGET, TraceSelection
from emulator.isa.decode import Instruction
from emulator.isa.softfloat import F64, Format

V = Any
BOX = 0xFFFFFFFF_00000000
MAX_UNCHECKED_INSTRUCTIONS = 256
COUNTS = "counts"  # the symbol of a quick region's execution counters


def registers_of(instruction: Instruction) -> tuple[list[int], int | None]:
    """All registers that an instruction names (f registers from 32 on) and the one that it writes."""
    kinds = instruction.row.register_kinds
    numbers = (instruction.rd, instruction.rs1, instruction.rs2, instruction.rs3)
    named = [
        number + (32 if kind == "f" else 0)
        for kind, number in zip(kinds, numbers, strict=True)
        if kind != "-" and not (kind == "x" and number == 0)
    ]
    written = None
    if kinds[0] == "f":
        written = instruction.rd + 32
    elif kinds[0] == "x" and instruction.rd:
        written = instruction.rd
    return named, written


def _accesses(block: Block) -> bool:
    return any(instruction.row.access for instruction in block.instructions)


class RegionEmitter(Emitter):
    """Emits one region. ``blocks``: by pc; ``entries``: the pcs at which control may arrive from outside.

    ``quick`` regions count the executions of their blocks (in `COUNTS`: one u32 a block, in the order of
    ``blocks``) and report a block that reaches ``hot``; their loop heads move over to whatever the table of
    entry points has come to hold for them: the quick tier on its way to the optimised one.
    """

    def __init__(
        self,
        blocks: dict[int, Block],
        entries: list[int],
        selection: TraceSelection,
        name: str,
        quick: bool = False,
        hot: int = 0,
        locate: bool = False,
    ) -> None:
        super().__init__()
        self._locate = locate
        self._locations: dict[int, int] = {}  # guest pc to metadata number
        self._quick = quick
        self._exact = selection.exact_faults
        self._hot = hot
        self.blocks = blocks
        self.entries = entries
        self.selection = selection
        self.function = name
        self._order = {pc: place for place, pc in enumerate(blocks)}
        self.instruction: Instruction
        self._pc = 0
        self._values: dict[int, V] = {}  # x registers: current value
        self._fp: dict[int, tuple[Format | None, V]] = {}  # f registers: (format or None for raw, value)
        self._dirty: set[int] = set()  # written in this block and not in their places yet
        self._stale: set[int] = set()  # written and not in the state buffer yet, if it is to be exact
        self._checked: set[V] = set()  # values that were found to be addresses in this block
        self._sound: set[int] = set()  # registers that were found to hold addresses before it
        self._masks = dict(selection.values)  # of mnemonics
        self._recorded = False  # whether the record has the current block
        self._value_base = ""
        self._n_values = 0  # written in this block
        self._record_base = ""
        self._time = ""  # of the block's first instruction
        self._noted: list[bool] = []  # which of its accesses are noted
        self._place_in_block = 0
        self._accesses = 0
        self._faults: list[tuple[str, V, int]] = []  # label of what notes it, address, pc
        self._leaves: list[tuple[str, V, int, set[int]]] = []  # label, pc, reason, registers to spill
        self._exits: list[tuple[str, int, int]] = []  # label, from block, target pc
        self._departures: list[tuple[str, V]] = []  # label, pc
        self._target: V = None
        self._condition: V = None
        used: set[int] = set(PINNED)
        self._written: dict[int, set[int]] = {}
        self._unsettled: dict[int, set[int]] = {}  # by the block's last access or later
        for block in blocks.values():
            written: set[int] = set()
            unsettled: set[int] = set()
            for instruction in block.instructions:
                named, target = registers_of(instruction)
                used.update(named)
                if instruction.row.access:
                    unsettled.clear()
                if target is not None:
                    written.add(target)
                    unsettled.add(target)
            self._written[block.pc], self._unsettled[block.pc] = written, unsettled
        self._used = sorted(used)

    # --- the function
    def emit(self) -> str:
        """The IR text of the function.

        With ``locate`` every guest access carries a debug location whose line is the guest pc, so that the
        line table of the object tells which instruction a host address belongs to.
        """
        self._analyse()
        self._prologue()
        for pc in self.blocks:
            self._block(self.blocks[pc])
        for label, source, target in self._exits:
            self._exit(label, source, target)
        self._epilogue()
        debug = "!dbg !3 " if self._locate else ""
        counts = (
            f"@{COUNTS} = dso_local global [{len(self.blocks)} x i32] zeroinitializer\n"
            if self._quick
            else ""
        )
        head = (
            f"{counts}define {CONVENTION} void @{self.function}({PARAMETERS}) strictfp nounwind {debug}{{\n"
        )
        return head + "\n".join(self.lines) + "\n}\n" + "\n".join(self._metadata())

    def _metadata(self) -> list[str]:
        if not self._locate:
            return []
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
            *(f"!{n} = !DILocation(line: {pc}, scope: !3)" for pc, n in self._locations.items()),
        ]

    def _mark_accesses(self, first_line: int) -> None:
        """Give what is emitted from ``first_line`` on, a guest access, the current pc as its location.

        Not the load alone: with a sign extension behind it, it may become one host instruction, and that is located
        where the extension is.
        """
        number = self._locations.setdefault(self._pc, 10 + len(self._locations))
        for n in range(first_line, len(self.lines)):
            if not self.lines[n].endswith(":"):
                self.lines[n] += f", !dbg !{number}"

    def _inner_edges(self, block: Block) -> list[int]:
        """Successors that are reached by a branch inside the region."""
        if block.slow:
            return []
        found = []
        if not block.transfers:
            found.append(block.end_pc)
        else:
            if block.target_pc is not None:
                found.append(block.target_pc)
            if block.last.row.mnemonic.startswith("b"):
                found.append(block.end_pc)
        return [pc for pc in found if pc in self.blocks]

    def _analyse(self) -> None:
        """Which registers may differ from the state buffer at each block's end; where to check the budget."""
        into: dict[int, set[int]] = {pc: set() for pc in self.blocks}
        work = list(self.blocks)
        settled: set[int] = set()
        if self._exact:
            settled = {pc for pc, block in self.blocks.items() if _accesses(block)}
            if not self._quick:
                for pc in self.entries:
                    into[pc].update(PINNED)  # they come in host registers
        self._dirty_in = into
        self._dirty_out: dict[int, set[int]] = {pc: set() for pc in self.blocks}
        self._loop_heads: set[int] = set()
        while work:
            pc = work.pop()
            out = self._unsettled[pc] if pc in settled else into[pc] | self._written[pc]
            self._dirty_out[pc] = out
            for successor in self._inner_edges(self.blocks[pc]):
                if successor <= pc:
                    self._loop_heads.add(successor)
                if not out <= into[successor]:
                    into[successor] |= out
                    work.append(successor)
        self._sound_in = self._sound_bases()
        # An endless loop passes a loop head of the region or an entry, which a quick region checks as one.
        if self.selection.exact_stop:
            self._checks = set(self.blocks)
        else:
            self._checks = self._loop_heads if self._quick else self._loop_heads | set(self.entries)
            self._check_long_ways()

    def _check_long_ways(self) -> None:
        """Check the budget often enough that no way without a check is longer than `MAX_UNCHECKED_INSTRUCTIONS`."""
        unchecked = dict.fromkeys(self.blocks, 0)  # instructions since the last check, at most
        for pc, block in sorted(self.blocks.items()):  # what goes back goes to a loop head, which is checked
            if (
                pc not in self._checks
                and unchecked[pc] + len(block.instructions) > MAX_UNCHECKED_INSTRUCTIONS
            ):
                self._checks = self._checks | {pc}
            ran = (0 if pc in self._checks else unchecked[pc]) + len(block.instructions)
            for successor in self._inner_edges(block):
                unchecked[successor] = max(unchecked[successor], ran)

    def _sound_bases(self) -> dict[int, set[int]]:
        """Registers that were checked as bases of accesses, on every way to each block, and not written since."""
        gained: dict[int, set[int]] = {}
        lost: dict[int, set[int]] = {}
        before: dict[int, list[int]] = {pc: [] for pc in self.blocks}
        for pc, block in self.blocks.items():
            checked: set[int] = set()
            for instruction in block.instructions:
                if instruction.row.access:
                    checked.add(instruction.rs1)
                checked.discard(registers_of(instruction)[1] or 0)
            gained[pc], lost[pc] = checked, self._written[pc]
            for successor in self._inner_edges(block):
                before[successor].append(pc)
        every = set(range(1, 32))
        into = {pc: set() if pc in self.entries or not before[pc] else set(every) for pc in self.blocks}
        changed = True
        while changed:
            changed = False
            for pc in self.blocks:
                if not into[pc]:
                    continue
                sound = into[pc].intersection(*((into[p] - lost[p]) | gained[p] for p in before[pc]))
                changed |= sound != into[pc]
                into[pc] = sound
        return into

    def _prologue(self) -> None:
        self.start("entry")
        self.say("%vb = alloca i64")
        self.say("%vr = alloca ptr")
        self.say("store i64 %budget, ptr %vb")
        self.say("store ptr %rec, ptr %vr")
        if self._masks:
            self.say("%vv = alloca ptr")
            self.say(f"store ptr {self.state_load('values', 'ptr')}, ptr %vv")
        if self._quick:
            for n in PINNED:
                self.say(f"store i64 %p{n}, ptr {self._place(n)}")
            if not self.selection.exact_stop:
                spent = self.let("icmp slt i64 %budget, 1")
                leave = self._leave(self.state_load("pc"), Exit.BUDGET)
                self.say(f"br i1 {spent}, label %{leave}, label %arrive, {RARELY}")
                self.start("arrive")
        else:
            self._load_registers()
        if len(self.entries) == 1:
            self.say(f"br label %b{self.entries[0]:x}")
        else:
            pc = self.state_load("pc")
            cases = " ".join(f"i64 {entry}, label %b{entry:x}" for entry in self.entries[1:])
            self.say(f"switch i64 {pc}, label %b{self.entries[0]:x} [ {cases} ]")

    def _load_registers(self) -> None:
        for n in self._used:
            kind = "i64" if n < 32 else "double"
            self.say(f"%r{n} = alloca {kind}")
            if n in PINNED:
                self.say(f"store i64 %p{n}, ptr %r{n}")
            else:
                pointer = self.let(f"getelementptr i8, ptr %st, i64 {8 * n}")
                self.say(f"store {kind} {self.let(f'load {kind}, ptr {pointer}')}, ptr %r{n}")

    def _place(self, n: int) -> str:
        """Where register ``n`` is between blocks. In the state buffer each use names the place anew: the quick
        code generator folds an address into the access only within one LLVM block."""
        return self.let(f"getelementptr i8, ptr %st, i64 {8 * n}") if self._quick else f"%r{n}"

    def _block(self, block: Block) -> None:
        self.start(f"b{block.pc:x}")
        self._values.clear()
        self._fp.clear()
        self._dirty.clear()
        self._stale = set() if self._quick else set(self._dirty_in[block.pc])
        self._checked.clear()
        self._sound = set(self._sound_in[block.pc])
        budget = self.let("load i64, ptr %vb")
        if block.pc in self._checks:
            out = self.let(f"icmp slt i64 {budget}, 1")
            go = self.fresh_label("go")
            leave = self._leave(block.pc, Exit.BUDGET, self._dirty_in[block.pc])
            self.say(f"br i1 {out}, label %{leave}, label %{go}, {RARELY}")
            self.start(go)
        if self._quick:
            self._count_execution(block.pc)
        left = self.let(f"sub i64 {budget}, {len(block.instructions)}")
        self.say(f"store i64 {left}, ptr %vb")
        if self.selection.counts:
            self.count_at(self.let(f"getelementptr i8, ptr %st, i64 {COUNTS_OFFSET + 8 * block.number}"))
        self._accesses = 0
        self._noted = noted(block.instructions) if self.selection.line_bits else []
        if any(self._noted):
            self._time = self.time_before(budget)
        self._recorded = self.selection.covers(block.pc, block.end_pc)
        if self._recorded:
            self._record_base = self.let("load ptr, ptr %vr")
            self.say(f"store i32 {block.number}, ptr {self._record_base}")
        self._n_values = 0
        has_values = self._recorded and any(i.row.mnemonic in self._masks for i in block.instructions)
        if has_values:
            self._value_base = self.let("load ptr, ptr %vv")
        if self._exact and _accesses(block):
            self._begin_exactly(left)
        instructions = block.instructions
        if block.slow:
            instructions = instructions[:-1]
        self._target = self._condition = None
        loose = [False] * len(instructions) if self._quick else loose_loads(block.instructions)
        for self._place_in_block, (self._pc, self.instruction) in enumerate(
            zip(block.pcs, instructions, strict=False)
        ):
            self.rm = self.instruction.rm
            if self._exact and self.instruction.row.access:
                self._settle()
            self.volatile = "volatile " if self._exact or loose[self._place_in_block] else ""
            before = len(self.lines)
            if has_values:
                self._with_values()
            else:
                self._execute()
            if self._locate and self.instruction.row.access:
                self._mark_accesses(before)
        if block.slow and self.selection.addresses and block.last.row.access:
            raise AssertionError("no slow instruction accesses memory")
        if has_values:
            after = self.let(f"getelementptr i8, ptr {self._value_base}, i64 {8 * self._n_values}")
            self.say(f"store ptr {after}, ptr %vv")
        if self._recorded:
            words = 1 + (self._accesses if self.selection.addresses else 0)
            after = self.let(f"getelementptr i8, ptr {self._record_base}, i64 {4 * words}")
            self.say(f"store ptr {after}, ptr %vr")
        self._flush()
        self._terminate(block)

    def _begin_exactly(self, budget: V) -> None:
        """Store what a fault in this block leaves: it counts as executed, and is not in the record."""
        self.state_store_now("budget", budget)
        if self.selection.blocks:
            self.state_store_now("record", self.let("load ptr, ptr %vr"), "ptr")
        if self._masks:
            self.state_store_now("values", self.let("load ptr, ptr %vv"), "ptr")

    def _settle(self) -> None:
        """Bring the state buffer up to date: the current instruction may fault."""
        for n in sorted(self._stale):
            value = self._x(n) if n < 32 else self._raw(n)
            self.say(f"store volatile i64 {value}, ptr {self.let(f'getelementptr i8, ptr %st, i64 {8 * n}')}")
        if self._quick:
            self._dirty -= self._stale
        self._stale.clear()
        self.state_store_now("fault_pc", self._pc)

    def _execute(self) -> None:
        semantics = self.instruction.row.semantics
        if self.instruction.fixed:
            self.rounded_as_told(self.instruction.rm, lambda: semantics(self))
        else:
            semantics(self)

    def _with_values(self) -> None:
        """Emit the current instruction and what is selected of its values."""
        instruction, row = self.instruction, self.instruction.row
        mask = self._masks.get(row.mnemonic, 0)
        self.keeps_memory = bool(mask & VALUE_MEMORY and row.access)
        values = []
        for place, number in enumerate((instruction.rs1, instruction.rs2, instruction.rs3)):
            if mask & VALUE_RS1 << place and row.register_kinds[1 + place] != "-":
                values.append(self._register_value(row.register_kinds[1 + place], number))
        self._execute()
        if self.keeps_memory:
            values.append(self.memory_value)
            self.keeps_memory = False
        if mask & VALUE_RD and row.register_kinds[0] != "-":
            values.append(self._register_value(row.register_kinds[0], instruction.rd))
        if mask & VALUE_TARGET and self._target is not None:
            values.append(
                self._target
                if self._condition is None
                else self.select(self._condition, self._target, self.next_pc())
            )
        self.put_values(self._value_base, self._n_values, values)
        self._n_values += len(values)

    def _register_value(self, kind: str, number: int) -> V:
        return self._raw(32 + number) if kind == "f" else self._x(number)

    def _count_execution(self, pc: int) -> None:
        """Count; report a block that becomes hot; leave a loop for something better when it is there."""
        counter = f"getelementptr (i8, ptr @{COUNTS}, i64 {4 * self._order[pc]})"
        count = self.let(f"add i32 {self.let(f'load i32, ptr {counter}')}, 1")
        self.say(f"store i32 {count}, ptr {counter}")
        is_hot = self.let(f"icmp eq i32 {count}, {self._hot}")
        cool = self.fresh_label("cool")
        self.say(f"br i1 {is_hot}, label %{self._leave(pc, Exit.HOT)}, label %{cool}, {RARELY}")
        self.start(cool)
        if pc not in self._loop_heads:
            return
        stay, move = self.fresh_label("stay"), self.fresh_label("move")
        slot = self.let(f"getelementptr i8, ptr {self.state_load('slots', 'ptr')}, i64 {4 * pc}")
        function = self.let(f"load ptr, ptr {slot}")
        same = self.let(f"icmp eq ptr {function}, @{self.function}")
        self.say(f"br i1 {same}, label %{stay}, label %{move}")
        self.start(move)
        self._depart(pc)
        self.start(stay)

    def _terminate(self, block: Block) -> None:
        if block.slow:
            reason = Exit.SLOW_VALUES if self._masks and self._recorded else Exit.SLOW
            leave = self._leave(block.pcs[-1], reason, self._dirty_out[block.pc])
            self.say(f"br label %{leave}")
        elif self._condition is not None:
            taken, fall = self._goto(block, self._target), self._goto(block, block.end_pc)
            self.say(f"br i1 {self._condition}, label %{taken}, label %{fall}")
        elif self._target is None:
            self.say(f"br label %{self._goto(block, block.end_pc)}")
        elif isinstance(self._target, int):
            self.say(f"br label %{self._goto(block, self._target)}")
        else:
            self._indirect(block, self._target)

    def _goto(self, block: Block, target: int) -> str:
        """The label to branch to for ``target``: a block of this region or an exit."""
        if target in self.blocks:
            return f"b{target:x}"
        label = self.fresh_label("exit")
        self._exits.append((label, block.pc, target))
        return label

    def _flush(self) -> None:
        for n in sorted(self._dirty):
            if n < 32:
                self.say(f"store i64 {self._values[n]}, ptr {self._place(n)}")
                continue
            fmt, value = self._fp[n]
            if fmt is not F64:
                raw = self._raw(n)
                value = raw if fmt is F64 else self.let(f"bitcast i64 {raw} to double")
            self.say(f"store double {value}, ptr {self._place(n)}")

    # --- leaving
    def _spill(self, registers: set[int]) -> None:
        if self._quick:
            return  # they are where they belong
        for n in sorted(registers - set(PINNED)):
            kind = "i64" if n < 32 else "double"
            value = self.let(f"load {kind}, ptr %r{n}")
            pointer = self.let(f"getelementptr i8, ptr %st, i64 {8 * n}")
            self.say(f"store {kind} {value}, ptr {pointer}")

    def _tail_call(self, function: str) -> None:
        if self._masks:
            self.state_store("values", self.let("load ptr, ptr %vv"), "ptr")
        pinned = {n: self.let(f"load i64, ptr {self._place(n)}") for n in PINNED}
        budget = self.let("load i64, ptr %vb")
        record = self.let("load ptr, ptr %vr")
        self.say(f"musttail call {CONVENTION} void {function}({arguments(budget, record, pinned)})")
        self.say("ret void")

    def _leave(self, pc: V, reason: Exit, registers: set[int] = frozenset()) -> str:  # type: ignore[assignment]
        """The label to branch to in order to return to Python. Each has code of its own: values that met in a
        common place would need to be moved there, which costs LLVM more than the code."""
        label = self.fresh_label("leave")
        self._leaves.append((label, pc, reason, registers))
        return label

    def _go_to(self, pc: V) -> None:
        """Go on at ``pc`` outside the region: with what the table of entry points has, or back to Python."""
        self.state_store("pc", pc)
        offset = 4 * pc if isinstance(pc, int) else self.let(f"shl i64 {pc}, 2")
        slot = self.let(f"getelementptr i8, ptr {self.state_load('slots', 'ptr')}, i64 {offset}")
        function = self.let(f"load ptr, ptr {slot}")
        unknown = self.let(f"icmp eq ptr {function}, null")
        miss = self.state_load("miss", "ptr")
        self._tail_call(self.let(f"select i1 {unknown}, ptr {miss}, ptr {function}"))

    def _depart(self, target: V) -> None:
        """Leave a quick region for ``target``, through the one place where it does so."""
        self._departures.append((self.label, target))
        self.say("br label %depart")

    def _exit(self, label: str, source: int, target: int) -> None:
        """Leave for a known address."""
        self.start(label)
        if not 0 <= target <= ADDRESS_LIMIT:
            self.say(f"br label %{self._leave(target, Exit.ILLEGAL_PC, self._dirty_out[source])}")
        elif self._quick:
            self._depart(target)
        else:
            self._spill(self._dirty_out[source])
            self._go_to(target)

    def _indirect(self, block: Block, target: V) -> None:
        """Leave for a computed address: the table serves as a perfect indirect-branch cache."""
        bad = self.let(f"icmp ugt i64 {target}, {ADDRESS_LIMIT}")
        good = self.fresh_label("good")
        leave = self._leave(target, Exit.ILLEGAL_PC, self._dirty_out[block.pc])
        self.say(f"br i1 {bad}, label %{leave}, label %{good}, {RARELY}")
        self.start(good)
        if self._quick:
            self._depart(target)
        else:
            self._spill(self._dirty_out[block.pc])
            self._go_to(target)

    def _epilogue(self) -> None:
        if self._departures:
            self.start("depart")
            pcs = ", ".join(f"[ {pc}, %{label} ]" for label, pc in self._departures)
            self._go_to(self.let(f"phi i64 {pcs}"))
        for label, pc, reason, registers in self._leaves:
            self.start(label)
            self._spill(registers)
            self.state_store("pc", pc)
            self.state_store("reason", int(reason))
            self._tail_call(self.state_load("leave", "ptr"))
        for label, address, pc in self._faults:
            self.start(label)
            self.state_store("fault_address", address)
            self.state_store("fault_pc", pc)
            self.say("br label %fault")
        if self._faults:
            # Where the guest catches faults its registers are in the state buffer; else it ends here.
            self.start("fault")
            self.state_store("reason", int(Exit.FAULT))
            self.state_store("budget", self.let("load i64, ptr %vb"))
            self.state_store("record", self.let("load ptr, ptr %vr"), "ptr")
            if self._masks:
                self.state_store("values", self.let("load ptr, ptr %vv"), "ptr")
            self.say("ret void")

    # --- operands
    def _x(self, number: int) -> V:
        if number == 0:
            return 0
        value = self._values.get(number)
        if value is None:
            value = self._values[number] = self.let(f"load i64, ptr {self._place(number)}")
        return value

    def rs1(self) -> V:
        return self._x(self.instruction.rs1)

    def rs2(self) -> V:
        return self._x(self.instruction.rs2)

    def imm(self) -> int:
        return self.instruction.imm & ((1 << 64) - 1)

    def pc(self) -> int:
        return self._pc

    def next_pc(self) -> int:
        return self._pc + self.instruction.length_bytes

    def rs1_number(self) -> int:
        return self.instruction.rs1

    def rd_number(self) -> int:
        return self.instruction.rd

    def wx(self, value: V) -> None:
        if self.instruction.rd:
            self._values[self.instruction.rd] = value
            self._dirty.add(self.instruction.rd)
            self._stale.add(self.instruction.rd)
            self._sound.discard(self.instruction.rd)

    def _raw(self, number: int) -> V:
        """The 64-bit pattern of an f register (numbered from 32)."""
        fmt, value = self._fp_register(number)
        if fmt is None:
            return value
        bits = self.to_bits(fmt, value)
        return bits if fmt is F64 else self.let(f"or i64 {bits}, {BOX}")

    def _fp_register(self, number: int) -> tuple[Format | None, V]:
        found = self._fp.get(number)
        if found is None:
            found = self._fp[number] = (F64, self.let(f"load double, ptr {self._place(number)}"))
        return found

    def _fp_value(self, fmt: Format, number: int) -> V:
        held, value = self._fp_register(number)
        if held is fmt:
            return value
        raw = self._raw(number)
        return self.from_bits(F64, raw) if fmt is F64 else self.unbox(raw)

    def rf1(self, fmt: Format) -> V:
        return self._fp_value(fmt, 32 + self.instruction.rs1)

    def rf2(self, fmt: Format) -> V:
        return self._fp_value(fmt, 32 + self.instruction.rs2)

    def rf3(self, fmt: Format) -> V:
        return self._fp_value(fmt, 32 + self.instruction.rs3)

    def rf1_bits(self, fmt: Format) -> V:
        return self.to_bits(fmt, self.rf1(fmt))

    def rf2_bits(self, fmt: Format) -> V:
        return self.to_bits(fmt, self.rf2(fmt))

    def rf1_raw(self) -> V:
        return self._raw(32 + self.instruction.rs1)

    def rf2_raw(self) -> V:
        return self._raw(32 + self.instruction.rs2)

    def wf(self, fmt: Format, value: V) -> None:
        number = 32 + self.instruction.rd
        self._fp[number] = (fmt, value)
        self._dirty.add(number)
        self._stale.add(number)

    def wf_bits(self, fmt: Format, bits: V) -> None:
        number = 32 + self.instruction.rd
        self._fp[number] = (None, bits if fmt is F64 else self.let(f"or i64 {bits}, {BOX}"))
        self._dirty.add(number)
        self._stale.add(number)

    # --- memory and control
    def check_address(self, base: V, address: V) -> None:
        if base in self._checked or self.instruction.rs1 in self._sound:
            return
        self._checked.add(base)
        wild = self.let(f"icmp ugt i64 {base}, {ADDRESS_LIMIT}")
        fault, fine = self.fresh_label("wild"), self.fresh_label("at")
        self._faults.append((fault, address, self._pc))
        self.say(f"br i1 {wild}, label %{fault}, label %{fine}, {RARELY}")
        self.start(fine)

    def record_access(self, address: V) -> None:
        if self.selection.line_bits and self._noted[self._place_in_block]:
            time = self.let(f"add i32 {self._time}, {self._place_in_block}")
            self.touch(address, time, self.selection)
        self._accesses += 1
        if not (self._recorded and self.selection.addresses):
            return
        low = address if isinstance(address, int) else self.let(f"trunc i64 {address} to i32")
        pointer = self.let(f"getelementptr i8, ptr {self._record_base}, i64 {4 * self._accesses}")
        self.say(f"store i32 {low}, ptr {pointer}")

    def jump(self, target: V) -> None:
        self._target = target

    def branch(self, condition: V, target: V) -> None:
        self._condition, self._target = condition, target
