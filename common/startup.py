"""Makes loading modules faster."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager


def rest_linear_algebra() -> None:
    """Let the threads of numpy's linear algebra sleep while they have no work; call this before numpy is loaded.

    After loading, they would spin on the other processors for tens of milliseconds, in case there is work for them.
    The variable is the logarithm of the cycles that they spin; 4 is the least that OpenBLAS takes. A value that the
    user has set stays.
    """
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")


@contextmanager
def starting() -> Iterator[None]:
    """Context in which modules are loaded and the machine is set up.

    Nothing loaded there becomes garbage, and garbage collection would take a tenth of the time, so it is off, and later
    ones leave out what was loaded. The threads of linear algebra rest, see `rest_linear_algebra`.
    """
    rest_linear_algebra()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()  # the garbage collector never examines objects loaded by now
    finally:
        if was_enabled:
            gc.enable()


def load_meanwhile(*modules: str) -> None:
    """Load modules in another thread, for the end of a command whose work, translated code, leaves Python to others.

    An import of one of these modules waits until it is loaded. An error while a module is loaded is raised by the
    import that needs the module, not by the thread.
    """

    def load() -> None:
        for module in modules:
            with contextlib.suppress(Exception):
                importlib.import_module(module)

    threading.Thread(target=load, name="modules for the end", daemon=True).start()
