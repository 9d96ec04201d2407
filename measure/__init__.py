"""Measure a program, and learn what the measurement itself changed.

The library behind the `measure` command. It prints nothing; progress is shown in a terminal or a notebook only.

```python
import measure

result = measure.run("configs/campaigns/quickstart.yaml")
result.verdicts             # a DataFrame: one row a variant and comparison
result.pairs("heavy")       # a DataFrame: how the relation of two metrics changed
result.trace("heavy", 0)    # a DataFrame: events of each record, by time
result.plot.pairs("heavy")  # matplotlib Axes
```

Every name below is loaded when it is first used, so that importing this package takes milliseconds.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from measure.alignment.dtw import Alignment
    from measure.errors import CampaignError, MeasureError
    from measure.explanation.explanation_types import Explanation, Remedy
    from measure.library.campaign_comparisons import CampaignComparison, compare
    from measure.library.campaigns import Result, load, run
    from measure.library.comparisons import Comparison, perturb
    from measure.library.explanations import explain
    from measure.library.plots import CampaignPlots, Plots
    from measure.library.programs import CycleCloseTrace, PhaseResult, cycleclose, partition, phases
    from measure.library.traces import align, merge
    from measure.partitioning.result import CollectedGroup, PartitionResult
    from measure.perturbation.analysis_types import Pair, Perturbation

# In the order of the API page.
__all__ = [  # noqa: RUF022
    "run",
    "load",
    "compare",
    "perturb",
    "align",
    "merge",
    "explain",
    "partition",
    "phases",
    "cycleclose",
    "Result",
    "Comparison",
    "CampaignComparison",
    "Perturbation",
    "Pair",
    "Plots",
    "CampaignPlots",
    "Alignment",
    "Explanation",
    "Remedy",
    "PartitionResult",
    "CollectedGroup",
    "PhaseResult",
    "CycleCloseTrace",
    "MeasureError",
    "CampaignError",
]

_MODULES = {
    "measure.alignment.dtw": ("Alignment",),
    "measure.errors": ("CampaignError", "MeasureError"),
    "measure.explanation.explanation_types": ("Explanation", "Remedy"),
    "measure.library.campaign_comparisons": ("CampaignComparison", "compare"),
    "measure.library.campaigns": ("Result", "load", "run"),
    "measure.library.comparisons": ("Comparison", "perturb"),
    "measure.library.explanations": ("explain",),
    "measure.library.plots": ("CampaignPlots", "Plots"),
    "measure.library.programs": ("CycleCloseTrace", "PhaseResult", "cycleclose", "partition", "phases"),
    "measure.library.traces": ("align", "merge"),
    "measure.partitioning.result": ("CollectedGroup", "PartitionResult"),
    "measure.perturbation.analysis_types": ("Pair", "Perturbation"),
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
