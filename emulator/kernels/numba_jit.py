"""Kernels compiled by numba: functions of analyzers that the project's own compiler (`emulator.kernels.jit`) refuses.

numba's reference counting is switched off (``_nrt``): it would cost several times the work itself. So kernels must not
allocate, and their caller keeps every array alive.

numba's cache notices changes of a kernel's own file only, but the machine code also contains kernels and constants of
other files. So the cache directory is named by a hash of all these files, under the user's cache directory and never in
the source tree.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common.file_cache import cache_directory
from common.source_digest import source_digest


def numba_kernel(function: Callable[..., Any]) -> Any:
    """Make ``function`` a kernel: it is compiled on first use, and its code is kept for later processes."""
    return _compile(function, forceinline=False)


def inline_numba_kernel(function: Callable[..., Any]) -> Any:
    """As `numba_kernel`, for small functions that are inlined into each caller."""
    return _compile(function, forceinline=True)


@functools.cache
def _kernel_directory() -> str:
    emulator = Path(__file__).parents[1]
    digest = source_digest([emulator / "kernels", emulator / "analyzers", emulator / "events.py"])
    return str(cache_directory() / "numba" / f"emulator-{digest[:16]}")


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
    settings.CACHE_DIR = _kernel_directory()  # numba reads it when a function is decorated
    try:
        return numba.njit(cache=True, **options)(function)
    finally:
        settings.CACHE_DIR = outer
