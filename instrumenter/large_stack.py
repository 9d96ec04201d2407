"""Calls functions that use libclang on a large stack: it goes into expressions by recursion, and a sum of 20,000 terms,
as generated sources have them, is as deep."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TypeVar

_STACK_BYTES = 1 << 29  # of address space: what is not used takes no memory
_Result = TypeVar("_Result")


def on_large_stack(call: Callable[[], _Result]) -> _Result:
    """The result of ``call``, in a thread with a stack of `_STACK_BYTES` where the machine allows one. Raises what it
    raises."""
    results: list[_Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)

    # Otherwise libclang parses in a thread of its own, with a small stack. Not by os.environ: it is not for builds.
    os.putenv("LIBCLANG_NOTHREADS", "1")
    thread = threading.Thread(target=run, daemon=True)  # Ctrl-C does not wait for it
    before = threading.stack_size(_STACK_BYTES)
    try:
        thread.start()
    except RuntimeError:  # the address space is limited
        return call()
    finally:
        threading.stack_size(before)
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
