"""numba for what the project's own compiler of kernels (`emulator.jit`) does not understand: functions of analyzers.

The kernels allocate nothing and own nothing: who calls them holds every array. Counting references to the
arrays on each call between kernels would cost several times the work itself.

numba keeps a kernel's machine code until the kernel's own file changes, although the code contains other
kernels and constants of other files. So it is kept in a directory named after the contents of all of them,
under the user's cache directory and never in the source tree.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from emulator.kept import cache_directory


def numba_kernel(function: Callable[..., Any]) -> Any:
    """Compile ``function`` on first use and keep the machine code for later processes."""
    return _compile(function, forceinline=False)


def inline_numba_kernel(function: Callable[..., Any]) -> Any:
    """As `numba_kernel`, for small functions that are worth a copy at each place that calls them."""
    return _compile(function, forceinline=True)


@functools.cache
def _kernel_directory() -> str:
    digest = hashlib.sha256()
    here = Path(__file__).parent
    for path in (*sorted(here.glob("*.py")), *sorted((here / "analyzers").glob("*.py"))):
        digest.update(path.read_bytes())
    return str(cache_directory() / "numba" / f"emulator-{digest.hexdigest()[:16]}")


def _compile(function: Callable[..., Any], forceinline: bool) -> Any:
    import numba

    settings: Any = numba.config
    options: dict[str, Any] = {
        "error_model": "numpy",
        "nogil": True,
        "forceinline": forceinline,
        "_nrt": False,
    }
    outer = settings.CACHE_DIR
    settings.CACHE_DIR = _kernel_directory()  # read when a function is decorated, not when it is compiled
    try:
        return numba.njit(cache=True, **options)(function)
    finally:
        settings.CACHE_DIR = outer
