"""numba for the statistics kernels, with its cache under the user's cache directory, never in the source
tree.

Importing this module is cheap; numba is imported when the first kernel is declared. Only `*_kernel.py` files
declare kernels, and they are imported by the functions that need them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def cache_directory() -> Path:
    """Where everything compiled is kept between processes (``$XDG_CACHE_HOME/perturbation``)."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "perturbation"


def njit(function: Callable[..., Any]) -> Any:
    """Compile ``function`` on first use, free of the interpreter lock, and keep the code for other processes."""
    return _compiler(fastmath=False)(function)


def njit_relaxed(function: Callable[..., Any]) -> Any:
    """As `njit`, for estimates: a product and a sum may be rounded once, minima come in any order, no NaN is met."""
    return _compiler(fastmath={"contract", "nnan", "nsz"})(function)


def _compiler(fastmath: bool | set[str]) -> Any:
    import numba

    numba.config.CACHE_DIR = str(cache_directory() / "numba")  # type: ignore[attr-defined]
    return numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=fastmath)
