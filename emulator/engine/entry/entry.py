"""The entry into translated code from Python, `enter`, and the signal handler that turns host faults into guest faults.

`enter` installs the guest's MXCSR, loads the pinned registers and calls the host function of the guest's pc; it returns
when a translation returns. A guest access to unmapped memory faults on the host. The handler finds the machine whose
address space contains the address, stores the address and the host's pc in its state, and makes the translation return
to `enter` as if it had reached a ``ret``. Any other fault goes to the previous handler. The host code of all this is in
`emulator.engine.emit.entry_emitter`.

Other libraries of the process install handlers of their own: libclang does when it parses its first file,
`faulthandler` when it is enabled. So the run loop calls `claim_faults` whenever it begins to run a guest.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading

from emulator.engine.entry.entry_symbols import (
    ACCESS_GATE,
    ENTER,
    FETCH_GATE,
    HOOK,
    MAX_MACHINES,
    MISS,
    ON_FAULT,
    SIGBUS,
    SIGSEGV,
)
from emulator.engine.persist.translation_store import sources_identity
from emulator.errors import EmulatorError
from emulator.native_code.compiler import Compiler

_SIGNALS = (SIGSEGV, SIGBUS)
_NAMES = ENTER, ON_FAULT, MISS, HOOK, ACCESS_GATE, FETCH_GATE
_SA_SIGINFO, _SA_ONSTACK, _SA_NODEFER = 4, 0x08000000, 0x40000000


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
        self._machines, self._previous = (ctypes.c_void_p * MAX_MACHINES)(), (ctypes.c_void_p * 4)()
        known = {"machines": ctypes.addressof(self._machines), "previous": ctypes.addressof(self._previous)}

        def text() -> str:
            from emulator.engine.emit.entry_emitter import EntryEmitter

            return EntryEmitter().emit()

        addresses = self.compiler.compile(text, _NAMES, f"entry {sources_identity()}", known)
        self.dispatch_miss, self.hook = addresses[MISS], addresses[HOOK]
        self.access_gate, self.fetch_gate = addresses[ACCESS_GATE], addresses[FETCH_GATE]
        # A CFUNCTYPE call releases the GIL, so background compilation goes on meanwhile.
        self.enter_address = addresses[ENTER]
        self.enter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.enter_address)
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._action = _SigAction(handler=addresses[ON_FAULT], flags=_SA_SIGINFO | _SA_ONSTACK | _SA_NODEFER)
        self._found = _SigAction()  # the handler that `claim_faults` finds; allocated once, for it is called often
        for index, signal in enumerate(_SIGNALS):
            self._replace(index, signal)
            self._previous[2 + index] = self._previous[index]

    def claim_faults(self) -> None:
        """Install the fault handler again if another library has replaced it; that one gets the faults of the host."""
        found = ctypes.byref(self._found)
        for index, signal in enumerate(_SIGNALS):
            if self._libc.sigaction(signal, None, found) != 0 or self._found.handler != self._action.handler:
                with self._lock:
                    self._replace(index, signal)

    def _replace(self, index: int, signal: int) -> None:
        if self._libc.sigaction(signal, None, ctypes.byref(self._found)) != 0:
            raise EmulatorError(f"the host refuses to read the handler of signal {signal} (sigaction)")
        if self._found.handler == self._action.handler:
            return
        self._previous[index] = self._found.handler
        if self._libc.sigaction(signal, ctypes.byref(self._action), None) != 0:
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
