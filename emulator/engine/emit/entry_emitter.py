"""Emission of the host functions between Python and translations: the entry, the returns, and the fault handler.

Host: Linux on x86-64 (glibc or musl: the kernel's own signal frame).
"""

from __future__ import annotations

from emulator.engine.emit.emitter import Emitter, V
from emulator.engine.entry.calling_convention import CONVENTION, PARAMETERS, PINNED, arguments
from emulator.engine.entry.entry_symbols import (
    ACCESS_GATE,
    ENTER,
    FETCH_GATE,
    HOOK,
    MAX_MACHINES,
    MISS,
    ON_FAULT,
    SIGBUS,
)
from emulator.engine.hart_state import Exit

# ucontext_t on x86-64 Linux: gregs begin at byte 40; REG_RBP = 10, REG_RSP = 15, REG_RIP = 16.
_GREG_RBP, _GREG_RSP, _GREG_RIP = 40 + 8 * 10, 40 + 8 * 15, 40 + 8 * 16
_SI_ADDR = 16
_DECLARATIONS = f"""
@machines = external global [{MAX_MACHINES} x ptr]
@previous = external global [4 x ptr]
declare ptr @llvm.addressofreturnaddress()
declare void @llvm.x86.sse.ldmxcsr(ptr)
declare void @llvm.x86.sse.stmxcsr(ptr)
declare ptr @signal(i32, ptr)
"""


class EntryEmitter(Emitter):
    """Emits the module of `emulator.engine.entry.entry`.

    It refers to two tables outside. ``machines`` holds the addresses of the states of live machines, null for none.
    ``previous`` holds the handlers of SIGSEGV and SIGBUS that the fault handler replaced last, then those that it
    replaced first.
    """

    def emit(self) -> str:
        """The IR text of the module."""
        self._gate()
        self._enter()
        self._return_to_python(MISS, Exit.MISS)
        self._return_to_python(HOOK, Exit.HOOK)
        self._call_missing(ACCESS_GATE, "access")
        self._call_missing(FETCH_GATE, "fetch")
        self._on_fault()
        return _DECLARATIONS + "\n".join(self.lines) + "\n"

    def _begin(self, head: str) -> None:
        self.say(f"define {head} nounwind {{")
        self.start("entry")

    def _end(self) -> None:
        self.say("ret void")
        self.say("}")

    def _at(self, base: str, offset_bytes: V) -> str:
        return self.let(f"getelementptr i8, ptr {base}, i64 {offset_bytes}")

    def _gate(self) -> None:
        """Emit ``@gate``, which stores its return slot and tail-calls the host function of the guest's pc."""
        self._begin(f"{CONVENTION} void @gate({PARAMETERS})")
        self.state_store("return_slot", self.let("call ptr @llvm.addressofreturnaddress()"), "ptr")
        frame_pointer = self.let('call i64 asm sideeffect "movq %rbp, $0", "=r"()')
        self.state_store("frame_pointer", frame_pointer)
        offset = self.shl(self.state_load("pc"), 2)
        entry = self._at(self.state_load("dispatch_table", "ptr"), offset)
        function = self.let(f"load ptr, ptr {entry}")
        passed = arguments("%budget", "%rec", {n: f"%p{n}" for n in PINNED})
        self.say(f"musttail call {CONVENTION} void {function}({passed})")
        self._end()

    def _enter(self) -> None:
        """Emit ``@enter(state)``: it installs the guest's MXCSR and passes the pinned registers to the gate."""
        self._begin(f"void @{ENTER}(ptr %st)")
        host, guest = self.state_pointer("host_mxcsr"), self.state_pointer("guest_mxcsr")
        self.say(f"call void @llvm.x86.sse.stmxcsr(ptr {host})")
        self.say(f"call void @llvm.x86.sse.ldmxcsr(ptr {guest})")
        self.say(f"%mem = load ptr, ptr {self.state_pointer('memory')}")
        budget, record = self.state_load("budget"), self.state_load("record", "ptr")
        pinned = {n: self.let(f"load i64, ptr {self._at('%st', 8 * n)}") for n in PINNED}
        self.say(f"call {CONVENTION} void @gate({arguments(budget, record, pinned)})")
        self.say(f"call void @llvm.x86.sse.stmxcsr(ptr {guest})")
        self.say(f"call void @llvm.x86.sse.ldmxcsr(ptr {host})")
        self._end()

    def _call_missing(self, name: str, what: str) -> None:
        """Emit ``@name(state)``, which calls a function of held lines and preserves nearly all host registers: what
        translations keep there need not be saved where nothing is missing."""
        self._begin(f"preserve_mostcc void @{name}(ptr %st)")
        function, argument = (self.state_load(f"{what}_{part}", "ptr") for part in ("missing", "argument"))
        self.say(f"call void {function}(ptr {argument})")
        self._end()

    def _return_to_python(self, name: str, reason: Exit) -> None:
        """Emit the host function ``@name``, which a translation leaves to and which returns with ``reason``."""
        self._begin(f"{CONVENTION} void @{name}({PARAMETERS})")
        for n in PINNED:
            self.say(f"store i64 %p{n}, ptr {self._at('%st', 8 * n)}")
        self.state_store("budget", "%budget")
        self.state_store("record", "%rec", "ptr")
        self.state_store("reason", int(reason))
        self._end()

    def _on_fault(self) -> None:
        """Emit the handler: it looks for the machine whose address space has the faulting address."""
        self._begin(f"void @{ON_FAULT}(i32 %signal, ptr %info, ptr %context)")
        address = self.let(f"load i64, ptr {self._at('%info', _SI_ADDR)}")
        self.say("br label %loop")
        self.start("loop")
        self.say("%i = phi i64 [ 0, %entry ], [ %next, %again ]")
        place = self.let(f"getelementptr [{MAX_MACHINES} x ptr], ptr @machines, i64 0, i64 %i")
        self.say(f"%st = load volatile ptr, ptr {place}")
        self.say(f"br i1 {self.let('icmp eq ptr %st, null')}, label %again, label %look")
        self.start("look")
        is_above = self.not_(self.lt_u(address, self.state_load("memory_start")))
        is_below = self.lt_u(address, self.state_load("memory_end"))
        self.say(f"br i1 {self.both(is_above, is_below)}, label %ours, label %again")
        self.start("again")
        self.say("%next = add i64 %i, 1")
        self.say(f"br i1 {self.eq('%next', MAX_MACHINES)}, label %foreign, label %loop")
        self.start("ours")
        self._leave_translation(address)
        self.start("foreign")
        self._call_previous()
        self.say("}")

    def _leave_translation(self, address: V) -> None:
        """Store a guest fault at the host address ``address``, and let the translation return as by ``ret``."""
        self.state_store("fault_address", self.sub(address, self.state_load("memory")))
        host_pc = self._at("%context", _GREG_RIP)
        self.state_store("host_pc", self.let(f"load i64, ptr {host_pc}"))
        self.state_store("reason", int(Exit.FAULT))
        slot = self.state_load("return_slot", "ptr")
        self.say(f"store i64 {self.let(f'load i64, ptr {slot}')}, ptr {host_pc}")
        stack_pointer = self.add(self.let(f"ptrtoint ptr {slot} to i64"), 8)
        self.say(f"store i64 {stack_pointer}, ptr {self._at('%context', _GREG_RSP)}")
        self.say(f"store i64 {self.state_load('frame_pointer')}, ptr {self._at('%context', _GREG_RBP)}")
        self.say("ret void")

    def _call_previous(self) -> None:
        """Pass a fault of somebody else to the previous handler; without one the signal gets its default action.

        A handler that was installed later than the fault handler has this one as its own previous handler, and may
        raise the signal again. Meanwhile the fault handler passes faults to the handler that it replaced first.
        """
        which = self.flag(self.let(f"icmp eq i32 %signal, {SIGBUS}"))
        place = self.let(f"getelementptr [4 x ptr], ptr @previous, i64 0, i64 {which}")
        first_place = self.let(f"getelementptr [4 x ptr], ptr @previous, i64 0, i64 {self.add(which, 2)}")
        handler = self.let(f"load volatile ptr, ptr {place}")
        is_callable = self.lt_u(1, self.let(f"ptrtoint ptr {handler} to i64"))  # 0 and 1: SIG_DFL, SIG_IGN
        self.say(f"br i1 {is_callable}, label %pass, label %reset")
        self.start("pass")
        first = self.let(f"load volatile ptr, ptr {first_place}")
        self.say(f"store volatile ptr {first}, ptr {place}")
        self.say(f"call void {handler}(i32 %signal, ptr %info, ptr %context)")
        self.say(f"store volatile ptr {handler}, ptr {place}")
        self.say("ret void")
        self.start("reset")
        self.let("call ptr @signal(i32 %signal, ptr null)")
        self.say("ret void")
