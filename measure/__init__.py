"""Measure a program, and learn what the measurement itself changed.

The library behind the `measure` command. It prints nothing; progress is shown in a terminal or a notebook only.

    import measure

    result = measure.run("configs/campaigns/quickstart.yaml")
    result.verdicts             # a DataFrame: one row a variant and comparison
    result.pairs("heavy")       # a DataFrame: how the relation of two metrics changed
    result.trace("heavy", 0)    # a DataFrame: events of each record, by time
    result.plot.pairs("heavy")  # matplotlib Axes

Every name below is loaded when it is first used, so that importing this package takes milliseconds.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from measure.errors import CampaignError, MeasureError
    from measure.library.campaigns import Result, load, run
    from measure.library.comparisons import Comparison, compare
    from measure.library.programs import CycleCloseTrace, PhaseResult, cycleclose, partition, phases
    from measure.library.traces import align, merge

__all__ = [
    "CampaignError",
    "Comparison",
    "CycleCloseTrace",
    "MeasureError",
    "PhaseResult",
    "Result",
    "align",
    "compare",
    "cycleclose",
    "load",
    "merge",
    "partition",
    "phases",
    "run",
]

_MODULES = {
    "measure.errors": ("CampaignError", "MeasureError"),
    "measure.library.campaigns": ("Result", "load", "run"),
    "measure.library.comparisons": ("Comparison", "compare"),
    "measure.library.programs": ("CycleCloseTrace", "PhaseResult", "cycleclose", "partition", "phases"),
    "measure.library.traces": ("align", "merge"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'measure' has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
