"""numba with its cache where it belongs: under the user's cache directory, never in the source tree."""

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
    """Compile ``function`` with numba on first use and keep the machine code for later processes."""
    import numba

    numba.config.CACHE_DIR = str(cache_directory() / "numba")  # type: ignore[attr-defined]
    return numba.njit(cache=True, nogil=True, error_model="numpy")(function)
