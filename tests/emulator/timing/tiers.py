"""Options of a machine for each way in which the emulator executes a guest."""

from __future__ import annotations

from typing import Any

TIERS: dict[str, dict[str, Any]] = {
    "oracle": {"engine": "oracle"},
    "interpreted": {"templates": False, "optimise_executions": 1 << 30, "background": False},
    "templates": {"optimise_executions": 1 << 30, "background": False},
    "optimised": {"optimise_executions": 4, "background": False},
    "background": {"optimise_executions": 20},
}
