"""The interpreter as one LLVM function, emitted from the instruction table, for code that runs a few times.

It walks pre-decoded operations (`OPERATION_DTYPE`) through a switch, keeps all guest registers in the state
buffer, counts executions of each block, and tail-calls a translation where the dispatch table has one for the pc.
"""

from __future__ import annotations

from typing import Any

from emulator.engine.decode.discovery_kernel import ASK_PYTHON
from emulator.engine.decode.operations import (
    DESCRIPTOR_DTYPE,
    FALL_THROUGH,
    HANDLERS,
    OPERATION_DTYPE,
    RESTORE_ROUNDING,
    SCRATCH_REGISTER,
    SET_ROUNDING,
)
from emulator.engine.emit.emitter import ADDRESS_LIMIT, RARELY
from emulator.engine.emit.float_emitter import FloatEmitter
from emulator.engine.entry.calling_convention import CONVENTION, PARAMETERS, PINNED, arguments
from emulator.engine.hart_state import CLASS_SHIFT, COUNTS_OFFSET, OFFSETS, WORD_SHIFT, Exit
from emulator.engine.instrument.columns import column_places, emit_append, emit_begin, emit_commit
from emulator.engine.instrument.inline_functions import (
    Inline,
    address_of,
    emit_call,
    may_take,
)
from emulator.events import ACCESS_STORE, InlineCall, TraceSelection
from emulator.isa.decode import DYNAMIC_ROUNDING, ONE_WAY
from emulator.isa.softfloat import F32, F64, Format
from emulator.isa.table import TABLE, Row

V = Any
BOX = 0xFFFFFFFF_00000000


class InterpreterEmitter(FloatEmitter):
    """Emits the interpreter for one selection."""

    def __init__(self, selection: TraceSelection, name: str) -> None:
        super().__init__()
        self.selection = selection
        self.function = name
        self._row: Row
        self._variant = DYNAMIC_ROUNDING  # of the handler being emitted
        self._columns = column_places(selection.inline)
        self._calls: list[tuple[int, Inline]] = []  # inline calls that the current instruction may make
        self._known: dict[str, V] = {}  # the values of their fields
        self._watch_word = ""  # the instruction's entry in ``inline_map``

    def emit(self) -> str:
        """The IR text of the function."""
        self._prologue()
        self._head()
        labels = [f"h{number}" for number in HANDLERS.values()]
        cases = " ".join(f"i16 {n}, label %{label}" for n, label in enumerate(labels))
        self.start("dispatch")
        self.say(f"%handler = load i16, ptr {self._op()}")
        cases += f" i16 {FALL_THROUGH}, label %fallthrough"
        cases += f" i16 {SET_ROUNDING}, label %setrounding i16 {RESTORE_ROUNDING}, label %restorerounding"
        self.say(f"switch i16 %handler, label %slow [ {cases} ]")
        for (index, variant), number in HANDLERS.items():
            self._handler(TABLE[index], variant, number)
        self.start("setrounding")
        self.set_host_rounding(self.let(f"trunc i64 {self._field('imm')} to i32"))
        self._step()
        self.start("restorerounding")
        self.set_host_rounding(self.host_rounding_of_guest())
        self._step()
        self.start("fallthrough")
        self._block_end(self._field("next_pc"))
        self.start("slow")
        emit_commit(self, self._columns)
        self._return_to_python(self._field("pc"), Exit.SLOW)
        self._exit_blocks()
        head = f"define {CONVENTION} void @{self.function}({PARAMETERS}) strictfp nounwind {{\n"
        return head + "\n".join(self.lines) + "\n}\n"

    # --- frame
    def _prologue(self) -> None:
        """Emit the entry of the function: registers to the state buffer, pointers to the tables."""
        self.start("entry")
        self.say("%vop = alloca ptr")
        self.say("%vb = alloca i64")
        self.say("%vr = alloca ptr")
        self.say("%vpc = alloca i64")
        self.say("%vt = alloca i32")
        self.say("store i64 %budget, ptr %vb")
        self.say("store ptr %rec, ptr %vr")
        for n in PINNED:
            self.say(f"store i64 %p{n}, ptr {self.let(f'getelementptr i8, ptr %st, i64 {8 * n}')}")
        self.say("%dispatch_table = load ptr, ptr " + self.state_pointer("dispatch_table"))
        self.say("%index = load ptr, ptr " + self.state_pointer("block_index"))
        self.say("%blocks = load ptr, ptr " + self.state_pointer("blocks"))
        self.say("%oppointer = getelementptr i8, ptr %st, i64 " + str(OFFSETS["operation"]))
        self.say(f"store i64 {self.state_load('pc')}, ptr %vpc")
        self.say("br label %head")

    def _head(self) -> None:
        """Emit the start of a block: check the budget, find the descriptor, or go to ``miss``."""
        self.start("head")
        pc = self.let("load i64, ptr %vpc")
        budget = self.let("load i64, ptr %vb")
        spent = self.let(f"icmp slt i64 {budget}, 1")
        self.say(f"br i1 {spent}, label %outofbudget, label %counting, {RARELY}")
        self.start("counting")
        where = self.let(f"getelementptr i8, ptr %index, i64 {self.let(f'shl i64 {pc}, 1')}")
        index = self.let(f"load i32, ptr {where}")
        is_unknown = self.let(f"icmp uge i32 {self.let(f'sub i32 {index}, 1')}, {ASK_PYTHON - 1}")
        self.say(f"br i1 {is_unknown}, label %miss, label %known, {RARELY}")
        self.start("known")
        number = self.let(f"zext i32 {index} to i64")
        descriptor = self.let(
            f"getelementptr i8, ptr %blocks, i64 {self.let(f'mul i64 {number}, {DESCRIPTOR_DTYPE.itemsize}')}"
        )
        self._begin_block(budget, descriptor, pc)
        self.say(f"store ptr {self.let(f'load ptr, ptr {descriptor}')}, ptr %vop")
        self.say("br label %dispatch")
        self.start("outofbudget")
        self._return_to_python(pc, Exit.BUDGET)
        self.start("washot")
        self._return_to_python(pc, Exit.HOT)

    def _begin_block(self, budget: V, descriptor: V, pc: V) -> None:
        """Account for the block of ``descriptor`` at ``pc``, which is about to run; go to ``washot`` at its hotness
        threshold."""
        fields = DESCRIPTOR_DTYPE.fields
        assert fields is not None
        count_pointer = self.let(f"getelementptr i8, ptr {descriptor}, i64 {fields['count'][1]}")
        count = self.let(f"add i32 {self.let(f'load i32, ptr {count_pointer}')}, 1")
        self.say(f"store i32 {count}, ptr {count_pointer}")
        pointer = self.let(f"getelementptr i8, ptr {descriptor}, i64 {fields['threshold'][1]}")
        is_hot = self.let(f"icmp eq i32 {count}, {self.let(f'load i32, ptr {pointer}')}")
        self.say(f"br i1 {is_hot}, label %washot, label %go, {RARELY}")
        self.start("go")
        left = self.let(f"sub i64 {budget}, {self._length(descriptor)}")
        self.say(f"store i64 {left}, ptr %vb")
        self.state_store("budget", left)  # for an access that faults on the host
        if self.selection.exact_faults:
            self.state_store("fault_block", pc)
        if self.selection.blocks:
            record = self.let("load ptr, ptr %vr")
            self.state_store("record", record, "ptr")  # an access that faults takes the block back
            pointer = self.let(f"getelementptr i8, ptr {descriptor}, i64 {fields['number'][1]}")
            self.say(f"store i32 {self.let(f'load i32, ptr {pointer}')}, ptr {record}")
            self.say(f"store ptr {self.let(f'getelementptr i8, ptr {record}, i64 4')}, ptr %vr")
        if self.selection.counts:
            pointer = self.let(f"getelementptr i8, ptr {descriptor}, i64 {fields['number'][1]}")
            row = self.let(f"zext i32 {self.let(f'load i32, ptr {pointer}')} to i64")
            place = self.let(f"getelementptr i8, ptr %st, i64 {self.let(f'shl i64 {row}, 3')}")
            self.count_at(self.let(f"getelementptr i8, ptr {place}, i64 {COUNTS_OFFSET}"))
        if any(self.selection.followed_lines):
            time = self.time_before(budget)
            self.say(f"store i32 {time}, ptr %vt")
            if self.selection.followed_lines[1]:  # without looking the lines up: hot blocks are in regions
                places = [self.let(f"getelementptr i8, ptr {descriptor}, i64 {fields[n][1]}") for n in ("pc", "end_pc")]
                begin, end = (self.let(f"zext i32 {self.let(f'load i32, ptr {place}')} to i64") for place in places)
                self.call_missing("fetch", begin, end, time)
        emit_begin(self, self._columns)

    def _length(self, descriptor: str) -> V:
        """The number of instructions of the descriptor's block."""
        fields = DESCRIPTOR_DTYPE.fields
        assert fields is not None
        pointer = self.let(f"getelementptr i8, ptr {descriptor}, i64 {fields['n_instructions'][1]}")
        return self.let(f"zext i32 {self.let(f'load i32, ptr {pointer}')} to i64")

    def _handler(self, row: Row, variant: int, number: int) -> None:
        """Emit the handler ``number`` of a row's variant."""
        self.start(f"h{number}")
        self._row = row
        self._variant = variant
        self.rm = variant if "rm" in row.fields else DYNAMIC_ROUNDING
        self._ended = False
        self.unsuitable = False
        self._begin_calls()
        self.keeps_memory = bool(row.access) and any("value" in call.fields for _, call in self._calls)
        row.semantics(self)
        if not self._ended:
            self._finish()
            self._return_if_unsuitable()
            self._step()

    def _return_if_unsuitable(self) -> None:
        """Return to Python after an instruction that has chosen a rounding mode that the host does not have."""
        if self.unsuitable is False:
            return
        leave, stay = self.fresh_label("unsuitable"), self.fresh_label("suitable")
        self.say(f"br i1 {self.unsuitable}, label %{leave}, label %{stay}, {RARELY}")
        self.start(leave)
        emit_commit(self, self._columns)
        self._return_to_python(self.next_pc(), Exit.ROUNDING)
        self.start(stay)

    def _step(self) -> None:
        """Go on with the next operation."""
        step = self.let(f"getelementptr i8, ptr {self._op()}, i64 {OPERATION_DTYPE.itemsize}")
        self.say(f"store ptr {step}, ptr %vop")
        self.say("br label %dispatch")

    def _begin_calls(self) -> None:
        """Emit the inline calls before the current instruction, and compute the fields for those after it."""
        self._calls = [(n, call) for n, call in enumerate(self.selection.inline) if may_take(call, self._row)]
        if not self._calls:
            return
        wanted = {name for _, call in self._calls for name in call.fields}
        place = self.let(f"shl i64 {self._field('pc')}, 2")
        table = self.state_load("inline_map", "ptr")
        self._watch_word = self.let(f"load i64, ptr {self.let(f'getelementptr i8, ptr {table}, i64 {place}')}")
        self._known = {
            "pc": self._field("pc"),
            "opcode": self._row.index,
            "word": self.shr_u(self._watch_word, WORD_SHIFT),
            "class": self.and_(self.shr_u(self._watch_word, CLASS_SHIFT), 255),
        }
        self._known |= self._operands(wanted)
        if self._make_calls(after=False):
            self._known |= self._operands(wanted)

    def _operands(self, wanted: set[str]) -> dict[str, V]:
        """The fields in ``wanted`` that are known before the current instruction."""
        names = zip(("rs1", "rs2", "rs3"), self._row.register_kinds[1:], strict=True)
        found: dict[str, V] = {n: 0 if kind == "-" else self._raw(n) for n, kind in names if n in wanted}
        if "address" in wanted:
            found["address"] = address_of(self, self._row) if self._row.access else 0
        return found

    def _make_calls(self, after: bool) -> bool:
        """Emit the inline calls before or after the instruction; returns whether registers may have changed."""
        made = [(n, call) for n, call in self._calls if call.after == after]
        for n, call in made:
            bit = self.and_(self._watch_word, 1 << n)
            make, on = self.fresh_label("make"), self.fresh_label("on")
            self.say(f"br i1 {self.ne(bit, 0)}, label %{make}, label %{on}")
            self.start(make)
            if isinstance(call, InlineCall):
                emit_call(self, n, call, self._known, direct=False)
            else:
                emit_append(self, n, call, self._known)
            self.say(f"br label %{on}")
            self.start(on)
        return any("registers" in call.fields for _, call in made)

    def _finish(self, target: V = None) -> None:
        """Emit the inline calls after the current instruction; ``target``: where a control transfer goes, else None."""
        if not any(call.after for _, call in self._calls):
            return
        self._known["value"] = self.memory_value if self._row.access else 0
        self._known["rd"] = self._destination() if self._row.register_kinds[0] != "-" else 0
        self._known["target"] = self._known["taken"] = 0
        if target is not None:
            self._known["target"] = target
            self._known["taken"] = self.flag(self.ne(target, self.next_pc()))
        self._make_calls(after=True)

    def _destination(self) -> V:
        value = self._raw("rd")
        if self._row.register_kinds[0] == "x":
            return self.select(self.eq(self._field("rd"), SCRATCH_REGISTER), 0, value)
        return value

    def _block_end(self, pc: V) -> None:
        emit_commit(self, self._columns)
        self.say(f"store i64 {pc}, ptr %vpc")
        self.say("br label %next")

    def _return_to_python(self, pc: V, reason: Exit) -> None:
        self.say(f"store i64 {pc}, ptr %vpc")
        self.state_store("reason", int(reason))
        self.say("br label %leave")

    def _exit_blocks(self) -> None:
        """The blocks ``next``: go on at %vpc, here or in a translation, ``miss``, and ``leave``: return to Python."""
        self.start("next")
        pc = self.let("load i64, ptr %vpc")
        bad = self.let(f"icmp ugt i64 {pc}, {ADDRESS_LIMIT}")
        self.say(f"br i1 {bad}, label %badpc, label %look, {RARELY}")
        self.start("look")
        entry = self.let(f"getelementptr i8, ptr %dispatch_table, i64 {self.let(f'shl i64 {pc}, 2')}")
        function = self.let(f"load ptr, ptr {entry}")
        here = self.let(f"icmp eq ptr {function}, @{self.function}")
        self.say(f"br i1 {here}, label %head, label %other")
        self.start("other")
        unknown = self.let(f"icmp eq ptr {function}, null")
        self.say(f"br i1 {unknown}, label %miss, label %translated, {RARELY}")
        self.start("translated")
        self.state_store("pc", pc)
        pinned = {n: self.let(f"load i64, ptr {self.let(f'getelementptr i8, ptr %st, i64 {8 * n}')}") for n in PINNED}
        budget, record = self.let("load i64, ptr %vb"), self.let("load ptr, ptr %vr")
        self.say(f"musttail call {CONVENTION} void {function}({arguments(budget, record, pinned)})")
        self.say("ret void")
        self.start("miss")
        discover = self.state_load("discover", "ptr")
        self.say(f"br i1 {self.let(f'icmp eq ptr {discover}, null')}, label %missed, label %try")
        self.start("try")
        table = self.state_load("discovery", "ptr")
        here = self.let("load i64, ptr %vpc")
        self.say(f"store i64 {here}, ptr {self.let(f'load ptr, ptr {table}')}")
        found = self.let(f"icmp sgt i64 {self.let(f'call i64 {discover}(ptr {table})')}, 0")
        self.say(f"br i1 {found}, label %head, label %missed")
        self.start("missed")
        self._return_to_python(self.let("load i64, ptr %vpc"), Exit.MISS)
        self.start("badpc")
        self._return_to_python(pc, Exit.ILLEGAL_PC)
        self.start("leave")
        self.state_store("pc", self.let("load i64, ptr %vpc"))
        self.state_store("budget", self.let("load i64, ptr %vb"))
        self.state_store("record", self.let("load ptr, ptr %vr"), "ptr")
        self.say("ret void")
        self._fault_block()

    def _fault_block(self) -> None:
        """The block ``wild``: return to Python with a fault at the current operation."""
        self.start("wild")
        self.say(f"store ptr {self._op()}, ptr %oppointer")
        self.state_store("reason", int(Exit.FAULT))
        self.state_store("fault_pc", self._field("pc"))
        self.state_store("budget", self.let("load i64, ptr %vb"))
        self.say("ret void")

    # --- operands, by number from the operation
    def _op(self) -> str:
        return self.let("load ptr, ptr %vop")

    def _field(self, name: str) -> V:
        """A field of the current operation, an i64."""
        fields = OPERATION_DTYPE.fields
        assert fields is not None
        dtype, offset = fields[name][:2]
        pointer = self.let(f"getelementptr i8, ptr {self._op()}, i64 {offset}")
        value = self.let(f"load i{8 * dtype.itemsize}, ptr {pointer}")
        return value if dtype.itemsize == 8 else self.let(f"zext i{8 * dtype.itemsize} {value} to i64")

    def _register(self, field: str) -> str:
        offset = self.let(f"shl i64 {self._field(field)}, 3")
        return self.let(f"getelementptr i8, ptr %st, i64 {offset}")

    def rs1(self) -> V:
        return self.let(f"load i64, ptr {self._register('rs1')}")

    def rs2(self) -> V:
        return self.let(f"load i64, ptr {self._register('rs2')}")

    def imm(self) -> V:
        return self._field("imm")

    def pc(self) -> V:
        return self._field("pc")

    def next_pc(self) -> V:
        return self._field("next_pc")

    def csr_number(self) -> int:
        return self._variant & ~ONE_WAY

    def csr_immediate(self) -> V:
        return self._field("rs1")

    def rs1_field_is_0(self) -> bool:
        return bool(self._variant & ONE_WAY)

    rd_field_is_0 = rs1_field_is_0  # an instruction asks about only one of them: swaps about rd, others about rs1

    def wx(self, value: V) -> None:
        self.say(f"store i64 {value}, ptr {self._register('rd')}")

    def _raw(self, field: str) -> V:
        return self.let(f"load i64, ptr {self._register(field)}")

    def _fp(self, fmt: Format, field: str) -> V:
        raw = self._raw(field)
        return self.from_bits(F64, raw) if fmt is F64 else self.unbox(raw)

    def rf1(self, fmt: Format) -> V:
        return self._fp(fmt, "rs1")

    def rf2(self, fmt: Format) -> V:
        return self._fp(fmt, "rs2")

    def rf3(self, fmt: Format) -> V:
        return self._fp(fmt, "rs3")

    def rf1_bits(self, fmt: Format) -> V:
        return self.to_bits(fmt, self.rf1(fmt))

    def rf2_bits(self, fmt: Format) -> V:
        return self.to_bits(fmt, self.rf2(fmt))

    def rf1_raw(self) -> V:
        return self._raw("rs1")

    def rf2_raw(self) -> V:
        return self._raw("rs2")

    def wf(self, fmt: Format, value: V) -> None:
        self.wf_bits(fmt, self.to_bits(fmt, value))

    def wf_bits(self, fmt: Format, bits: V) -> None:
        raw = bits if fmt is not F32 else self.let(f"or i64 {bits}, {BOX}")
        self.say(f"store i64 {raw}, ptr {self._register('rd')}")

    # --- memory and control
    def check_address(self, base: V, address: V) -> None:
        # The host's own fault finds the operation here.
        self.say(f"store ptr {self._op()}, ptr %oppointer")
        self.state_store("fault_address", address)
        self._fault_if(self.let(f"icmp ugt i64 {address}, {ADDRESS_LIMIT}"))

    def fault_if(self, condition: V, address: V) -> None:
        self.state_store("fault_address", address)
        self._fault_if(condition)

    def _fault_if(self, condition: V) -> None:
        fine = self.fresh_label("at")
        self.say(f"br i1 {condition}, label %wild, label %{fine}, {RARELY}")
        self.start(fine)

    def record_access(self, address: V) -> None:
        if self.selection.followed_lines[0]:
            place = self.let(f"trunc i64 {self._field('moment')} to i32")
            time = self.let(f"add i32 {self.let('load i32, ptr %vt')}, {place}")
            self.follow_access(address, time, bool(self._row.access & ACCESS_STORE), self.selection)
        if self.selection.addresses:
            record = self.let("load ptr, ptr %vr")
            self.say(f"store i32 {self.let(f'trunc i64 {address} to i32')}, ptr {record}")
            self.say(f"store ptr {self.let(f'getelementptr i8, ptr {record}, i64 4')}, ptr %vr")

    def jump(self, target: V) -> None:
        self._ended = True
        self._finish(target)
        self._block_end(target)

    def branch(self, condition: V, target: V) -> None:
        self._ended = True
        goes_to = self.select(condition, target, self.next_pc())
        self._finish(goes_to)
        self._block_end(goes_to)
