"""The entry into translated code from Python, `enter`, and the signal handler that turns host faults into guest faults.

`enter` installs the guest's MXCSR, loads the pinned registers and calls the host function of the guest's pc; it returns
when a translation returns. A guest access to unmapped memory faults on the host. The handler finds the machine whose
address space contains the address, stores the address and the host's pc in its state, and makes the translation return
to `enter` as if it had reached a ``ret``. Any other fault goes to the previous handler. Host: Linux on x86-64 (glibc or
musl: the kernel's own signal frame).
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading

from emulator.engine.codegen.calling_convention import CONVENTION, PARAMETERS, PINNED, arguments
from emulator.engine.codegen.compiler import Compiler
from emulator.engine.hart_state import OFFSETS, Exit
from emulator.errors import EmulatorError

MAX_MACHINES = 64
_SIGSEGV, _SIGBUS = 11, 7
_SA_SIGINFO, _SA_ONSTACK, _SA_NODEFER = 4, 0x08000000, 0x40000000

# ucontext_t on x86-64 Linux: gregs begin at byte 40; REG_RBP = 10, REG_RSP = 15, REG_RIP = 16.
_GREG_RBP, _GREG_RSP, _GREG_RIP = 40 + 8 * 10, 40 + 8 * 15, 40 + 8 * 16
_SI_ADDR = 16


def _at(name: str, base: str = "%st") -> str:
    return f"getelementptr i8, ptr {base}, i64 {OFFSETS[name]}"


def _enter_ir() -> str:
    """``@enter(state)``, and ``@gate``, which stores its return slot and tail-calls the host function of the guest's
    pc."""
    lines = [
        f"define {CONVENTION} void @gate({PARAMETERS}) nounwind {{",
        "%slot = call ptr @llvm.addressofreturnaddress()",
        f"%p_slot = {_at('return_slot')}",
        "store ptr %slot, ptr %p_slot",
        '%rbp = call i64 asm sideeffect "movq %rbp, $0", "=r"()',
        f"%p_rbp = {_at('frame_pointer')}",
        "store i64 %rbp, ptr %p_rbp",
        f"%p_pc = {_at('pc')}",
        "%pc = load i64, ptr %p_pc",
        f"%p_slots = {_at('dispatch_table')}",
        "%dispatch_table = load ptr, ptr %p_slots",
        "%offset = shl i64 %pc, 2",
        "%entry = getelementptr i8, ptr %dispatch_table, i64 %offset",
        "%function = load ptr, ptr %entry",
        f"musttail call {CONVENTION} void %function("
        + arguments("%budget", "%rec", {n: f"%p{n}" for n in PINNED})
        + ")",
        "ret void",
        "}",
        "declare ptr @llvm.addressofreturnaddress()",
        "declare void @llvm.x86.sse.ldmxcsr(ptr)",
        "declare void @llvm.x86.sse.stmxcsr(ptr)",
        "define void @enter(ptr %st) nounwind {",
        f"%p_host = {_at('host_mxcsr')}",
        f"%p_guest = {_at('guest_mxcsr')}",
        "call void @llvm.x86.sse.stmxcsr(ptr %p_host)",
        "call void @llvm.x86.sse.ldmxcsr(ptr %p_guest)",
        f"%p_mem = {_at('memory')}",
        "%mem = load ptr, ptr %p_mem",
        f"%p_budget = {_at('budget')}",
        "%budget = load i64, ptr %p_budget",
        f"%p_rec = {_at('record')}",
        "%rec = load ptr, ptr %p_rec",
    ]
    for n in PINNED:
        lines += [f"%a{n} = getelementptr i8, ptr %st, i64 {8 * n}", f"%v{n} = load i64, ptr %a{n}"]
    lines += [
        f"call {CONVENTION} void @gate(" + arguments("%budget", "%rec", {n: f"%v{n}" for n in PINNED}) + ")",
        "call void @llvm.x86.sse.stmxcsr(ptr %p_guest)",
        "call void @llvm.x86.sse.ldmxcsr(ptr %p_host)",
        "ret void",
        "}",
    ]
    return "\n".join(lines)


def _exits_to_python_ir() -> str:
    """The host functions that return to Python: ``@miss``, for a dispatch miss; ``@hook``, for a block that Python
    executes."""
    lines = []
    for name, reason in (("miss", Exit.MISS), ("hook", Exit.HOOK)):
        lines.append(f"define {CONVENTION} void @{name}({PARAMETERS}) nounwind {{")
        for n in PINNED:
            lines += [f"%a{n} = getelementptr i8, ptr %st, i64 {8 * n}", f"store i64 %p{n}, ptr %a{n}"]
        lines += [f"%p_budget = {_at('budget')}", "store i64 %budget, ptr %p_budget"]
        lines += [f"%p_rec = {_at('record')}", "store ptr %rec, ptr %p_rec"]
        lines += [f"%p_reason = {_at('reason')}", f"store i64 {int(reason)}, ptr %p_reason"]
        lines += ["ret void", "}"]
    return "\n".join(lines) + "\n"


def _handler_ir() -> str:
    """The handler. ``@machines``: state addresses of live machines; ``@previous``: the handlers that it replaced."""
    return f"""
@machines = external global [{MAX_MACHINES} x ptr]
@previous = external global [2 x ptr]
define void @on_fault(i32 %signal, ptr %info, ptr %context) nounwind {{
entry:
  %p_address = getelementptr i8, ptr %info, i64 {_SI_ADDR}
  %address = load i64, ptr %p_address
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %again ]
  %p = getelementptr [{MAX_MACHINES} x ptr], ptr @machines, i64 0, i64 %i
  %st = load volatile ptr, ptr %p
  %empty = icmp eq ptr %st, null
  br i1 %empty, label %again, label %look
look:
  %p_start = {_at("memory_start")}
  %start = load i64, ptr %p_start
  %p_end = {_at("memory_end")}
  %end = load i64, ptr %p_end
  %above = icmp uge i64 %address, %start
  %below = icmp ult i64 %address, %end
  %inside = and i1 %above, %below
  br i1 %inside, label %ours, label %again
again:
  %next = add i64 %i, 1
  %done = icmp eq i64 %next, {MAX_MACHINES}
  br i1 %done, label %foreign, label %loop
ours:
  %p_mem = {_at("memory")}
  %mem = load i64, ptr %p_mem
  %guest = sub i64 %address, %mem
  %p_fault = {_at("fault_address")}
  store i64 %guest, ptr %p_fault
  %p_rip = getelementptr i8, ptr %context, i64 {_GREG_RIP}
  %rip = load i64, ptr %p_rip
  %p_host = {_at("host_pc")}
  store i64 %rip, ptr %p_host
  %p_reason = {_at("reason")}
  store i64 {int(Exit.FAULT)}, ptr %p_reason
  %p_slot = {_at("return_slot")}
  %slot = load ptr, ptr %p_slot
  %return = load i64, ptr %slot
  store i64 %return, ptr %p_rip
  %slot_int = ptrtoint ptr %slot to i64
  %sp = add i64 %slot_int, 8
  %p_rsp = getelementptr i8, ptr %context, i64 {_GREG_RSP}
  store i64 %sp, ptr %p_rsp
  %p_saved = {_at("frame_pointer")}
  %saved = load i64, ptr %p_saved
  %p_rbp = getelementptr i8, ptr %context, i64 {_GREG_RBP}
  store i64 %saved, ptr %p_rbp
  ret void
foreign:
  %is_bus = icmp eq i32 %signal, {_SIGBUS}
  %which = zext i1 %is_bus to i64
  %p_previous = getelementptr [2 x ptr], ptr @previous, i64 0, i64 %which
  %handler = load ptr, ptr %p_previous
  %number = ptrtoint ptr %handler to i64
  %callable = icmp ugt i64 %number, 1
  br i1 %callable, label %pass, label %reset
pass:
  call void %handler(i32 %signal, ptr %info, ptr %context)
  ret void
reset:
  %old = call ptr @signal(i32 %signal, ptr null)
  ret void
}}
declare ptr @signal(i32, ptr)
"""


class _SigAction(ctypes.Structure):
    # struct sigaction of the C library on x86-64 Linux
    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_uint8 * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class Entry:
    """`enter` and the fault handler, compiled once a process; machines register their state here."""

    _instance: Entry | None = None
    _lock = threading.Lock()

    @classmethod
    def get(cls) -> Entry:
        with cls._lock:
            if cls._instance is None:
                cls._instance = cls()
            return cls._instance

    def __init__(self) -> None:
        machine = os.uname().machine
        if sys.platform != "linux" or machine != "x86_64":
            raise EmulatorError(f"got a host with {sys.platform} on {machine}, expected Linux on x86-64")
        self.compiler = Compiler()
        self._machines, previous = (ctypes.c_void_p * MAX_MACHINES)(), (ctypes.c_void_p * 2)()
        known = {"machines": ctypes.addressof(self._machines), "previous": ctypes.addressof(previous)}
        text = f"{_enter_ir()}\n{_exits_to_python_ir()}{_handler_ir()}"
        addresses = self.compiler.compile(text, ["enter", "on_fault", "miss", "hook"], known=known)
        self.dispatch_miss, self.hook = addresses["miss"], addresses["hook"]
        # A CFUNCTYPE call releases the GIL, so background compilation goes on meanwhile.
        self.enter_address = addresses["enter"]
        self.enter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.enter_address)
        self._previous = previous  # lives as long as the handler
        libc = ctypes.CDLL(None, use_errno=True)
        for index, signal in enumerate((_SIGSEGV, _SIGBUS)):
            action = _SigAction(handler=addresses["on_fault"], flags=_SA_SIGINFO | _SA_ONSTACK | _SA_NODEFER)
            old = _SigAction()
            if libc.sigaction(signal, None, ctypes.byref(old)) != 0:
                raise EmulatorError(f"the host refuses to read the handler of signal {signal} (sigaction)")
            previous[index] = old.handler
            if libc.sigaction(signal, ctypes.byref(action), None) != 0:
                raise EmulatorError(f"the host refuses a handler for signal {signal} (sigaction)")

    def register(self, state_address: int) -> int:
        """Let the handler handle faults of the machine with this state; returns its place for `unregister`."""
        with self._lock:
            for place in range(MAX_MACHINES):
                if not self._machines[place]:
                    self._machines[place] = state_address
                    return place
        raise EmulatorError(f"got more than {MAX_MACHINES} machines at once in one process; close some (Machine.close)")

    def unregister(self, place: int) -> None:
        self._machines[place] = None
