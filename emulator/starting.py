"""What makes loading modules faster."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def starting(freeze: bool = True) -> Iterator[None]:
    """While modules are loaded and the machine is set up.

    Nothing of that becomes garbage, and looking for some takes a tenth of the time. Nor does the emulator need numpy's
    linear algebra: as soon as it is loaded its threads would spin on the other processors for tens of milliseconds, in
    case that there is work for them. They shall sleep until there is (2**4 cycles are the least that OpenBLAS takes).

    ``freeze``: leave what was loaded out of later garbage collections, too.
    """
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        if freeze:
            gc.freeze()  # the garbage collector never looks at what is loaded by now
    finally:
        if was_enabled:
            gc.enable()
