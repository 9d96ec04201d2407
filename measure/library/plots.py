"""Pictures of a comparison, as matplotlib Axes that the caller may change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from common.suggestions import nearest
from measure.arguments import list_of
from measure.errors import MeasureError
from measure.perturbation.analysis_types import Perturbation
from measure.report import figures
from measure.report.model import ReportData, VariantReport
from measure.report.style import BASELINE as BASELINE_COLOUR
from measure.report.style import LINES, new_figure, short

if TYPE_CHECKING:
    import pandas as pd

Kind = Literal["inner", "outer_joint", "outer_held_out"]


class Compared(Protocol):
    """The part of `measure.Comparison` that pictures are drawn from."""

    @property
    def report(self) -> ReportData: ...
    def variant(self, name: str) -> VariantReport: ...
    def perturbation(self, variant: str, comparison: Kind = "inner") -> Perturbation: ...


class WithTraces(Compared, Protocol):
    """The part of `measure.Result` that pictures are drawn from."""

    def trace(self, variant: str, replicate: int) -> pd.DataFrame: ...


class Plots:
    """Pictures of a comparison, from `Comparison.plot`. A notebook shows ``axes.figure``.

    ```python
    import measure

    axes = measure.load("results/quickstart").plot.pairs("heavy")
    axes.figure.savefig("pairs.png")
    ```
    """

    def __init__(self, comparison: Compared) -> None:
        self._comparison = comparison

    def pairs(self, variant: str, comparison: Kind = "inner", most: int = 28) -> Any:
        """The pairs of metrics that changed most: change of their correlation (as z) with its confidence interval.

        ``variant``: name of a variant; ``comparison``: "inner", "outer_joint" or "outer_held_out"; ``most``: number of
        pairs to show. Changes that are too small to count are shaded. Raises `MeasureError` as `Comparison.pairs` does.
        """
        return figures.changes(self._comparison.perturbation(variant, comparison), most).axes[0]

    def correlations(self, variant: str) -> Any:
        """Heat maps of correlations, an array of Axes: baselines, the runs of ``variant``, their difference."""
        drawn = figures.heat_maps(self._comparison.report, self._comparison.variant(variant))
        return np.array(drawn.axes[:3])


class CampaignPlots(Plots):
    """Pictures of a campaign, from `Result.plot`: those of its comparison, and its traces.

    ```python
    import measure

    result = measure.load("results/quickstart")
    for axes in result.plot.trace("heavy", 0, ["PAPI_LD_INS"]):
        axes.set_title("loads of the first run")
    ```
    """

    def __init__(self, result: WithTraces) -> None:
        super().__init__(result)
        self._result = result

    def trace(self, variant: str, replicate: int = 0, metrics: Sequence[str] = ()) -> Any:
        """Events per record over time, one Axes a metric; an array of Axes.

        ``variant``: a variant, or "baseline"; ``replicate``: number of the run, from 0; ``metrics``: all hardware
        metrics by default.

        Raises `MeasureError` for a run or a metric that does not exist.
        """
        table = self._result.trace(variant, replicate)
        chosen = list_of("metrics", metrics, "names of metrics") or tuple(self._result.report.hardware_metrics)
        for metric in chosen:
            if metric not in table.columns:
                known = [name for name in table.columns if not name.startswith(("begin_", "end_"))]
                raise MeasureError(
                    f"{variant}/{replicate} has no metric {metric!r}: expected one of {', '.join(known)}"
                    f"{nearest(metric, known)}"
                )
        figure, axes = new_figure(8.0, 0.9 + 1.1 * len(chosen), len(chosen), sharex=True, squeeze=False)
        for n, (axis, metric) in enumerate(zip(axes[:, 0], chosen, strict=True)):
            colour = BASELINE_COLOUR if variant == "baseline" else LINES[n % len(LINES)]
            axis.plot(1e3 * table.index, table[metric], color=colour, linewidth=0.8)
            axis.set_ylabel(short(metric), rotation=0, ha="right", va="center", fontsize=8.5)
        axes[-1, 0].set_xlabel("time [ms]")
        figure.align_ylabels()
        return axes[:, 0]
