"""A guest under unicorn with a hook that does nothing, `python -m experiments.shade.under_unicorn HOOK GUEST SIZE`."""

from __future__ import annotations

import sys
from typing import Any

from experiments.benchmarks.emulation_speed import run_unicorn


def _ignore(*_: Any) -> None:
    """What is called for each block, instruction or access."""


def main(hook: str, guest: str, size: str) -> None:
    """``hook``: none, block, code or memory."""
    import unicorn

    kinds = {
        "none": 0, "block": unicorn.UC_HOOK_BLOCK, "code": unicorn.UC_HOOK_CODE,
        "memory": unicorn.UC_HOOK_MEM_READ | unicorn.UC_HOOK_MEM_WRITE,
    }  # fmt: skip

    def watch(engine: Any) -> None:
        if kinds[hook]:
            engine.hook_add(kinds[hook], _ignore)

    run_unicorn(guest, size, watch)


if __name__ == "__main__":
    main(*sys.argv[1:])
