"""Makes loading modules faster."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def starting(freeze: bool = True) -> Iterator[None]:
    """Context in which modules are loaded and the machine is set up.

    Nothing loaded there becomes garbage, and garbage collection would take a tenth of the time, so it is off. The
    emulator does not need numpy's linear algebra, whose threads would spin on the other processors for tens of
    milliseconds after loading, in case there is work for them; they are made to sleep (2**4 cycles are the least that
    OpenBLAS takes).

    ``freeze``: exclude what was loaded from later garbage collections, too.
    """
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        if freeze:
            gc.freeze()  # the garbage collector never examines objects loaded by now
    finally:
        if was_enabled:
            gc.enable()
