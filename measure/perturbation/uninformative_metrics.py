"""Finds uninformative metrics: they never fire, never vary, have one value in most records, or hardly vary.

A correlation needs two metrics that vary. A metric that counted nothing is left out of every comparison, and a verdict
on the others must not be taken for a verdict on it. Such metrics are therefore findings of their own, shown before
verdicts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from measure.stats.correlation import average_ranks

TIED = 0.5
"""A metric is tied when one value fills more than this fraction of a run's records, in the mean over a group's runs.

Ranks cannot distinguish these records, so the metric's correlations rest on fewer than half of them.
"""

NEAR, NEARLY_ALL = 0.005, 0.95
"""A metric is nearly constant when so much of a run's records, in every run, is as near as that to the run's median.

So is the metric by which records are cut: instructions, where each record has as many. Ranks show how far the machine
overshoots the end of a record, which is nothing about the program.
"""

Problem = Literal["no events", "constant", "tied", "nearly constant"]
Kind = Literal["hardware", "software"]
PROBLEMS = (
    "no events: 0 in every record; constant: one value in all records of a run; "
    f"tied: one value in more than {TIED:.0%} of the records, in the mean over a variant's runs; "
    f"nearly constant: {NEARLY_ALL:.0%} of the records within {NEAR:.1%} of their run's median"
)
"""What the problems mean, for those who read them in files."""
_GRAVEST: dict[Problem, int] = {"no events": 0, "constant": 1, "tied": 2, "nearly constant": 3}


@dataclass(frozen=True)
class MetricFinding:
    """A metric about which the runs of ``variants`` show little.

    ``problem``: *no events* (0 in every record of every run), *constant* (one value in every record of every run),
    *tied* (see `TIED`), *nearly constant* (see `NEAR`); ``share``: fraction of records with a run's most frequent
    value, mean over these runs; ``runs``: number of runs examined; ``records``: in all of them; ``events``: their sum;
    ``varies_elsewhere``: whether other variants, or the baselines, have not this problem.
    """

    metric: str
    kind: Kind
    problem: Problem
    variants: tuple[str, ...]
    share: float
    runs: int
    records: int
    events: float
    varies_elsewhere: bool = False

    @property
    def rank(self) -> int:
        """Position in a list: metrics that show nothing come before those that show little."""
        return _GRAVEST[self.problem]

    @property
    def text(self) -> str:
        """The finding as a sentence."""
        where = f"in {self.runs} run{'' if self.runs == 1 else 's'} of {', '.join(self.variants)}"
        what = f"{self.metric} ({self.kind} metric)"
        if self.undefines:
            state = "counted no event" if self.problem == "no events" else "is constant"
            return f"{what} {state} {where}, but not in the others: its correlations are undefined there, a change."
        if self.problem == "no events":
            return f"{what} counted no event within the records {where}: no verdict says anything about it."
        if self.problem == "constant":
            return f"{what} is constant {where}: it correlates with nothing, and no verdict says anything about it."
        if self.problem == "nearly constant":
            return (
                f"{what} is nearly constant {where}: {NEARLY_ALL:.0%} of the records are within {NEAR:.1%} of one "
                "value, as where records are cut by this metric. Its correlations are of the rest: leave it out."
            )
        return (
            f"{what} holds one value in {self._percent} of the records {where} (tied: more than {TIED:.0%}): its "
            "correlations rest on the others."
        )

    @property
    def undefines(self) -> bool:
        """Whether the metric's correlations are undefined in some runs only, so that they changed."""
        return self.varies_elsewhere and self.kind == "hardware" and self.problem in ("no events", "constant")

    @property
    def brief(self) -> str:
        """The finding in a few words, to stand beside a verdict."""
        return f"{self.metric} ({f'{self._percent} tied' if self.problem == 'tied' else self.problem})"

    @property
    def _percent(self) -> str:
        """The share in percent, with decimals where it would else read as the limit, or as all records."""
        rounded = f"{self.share:.0%}"
        return f"{self.share:.2%}" if rounded in (f"{TIED:.0%}", "100%") and self.share < 1 else rounded


def metric_findings(
    tables: Mapping[str, Sequence[NDArray[np.float64]]], metrics: Sequence[str], kind: Kind, tied: float = TIED
) -> list[MetricFinding]:
    """The uninformative ones among ``metrics``, the gravest first.

    ``tables``: group to its runs, ``(n_i, m)`` events per record each, a column a metric; nan: not measured.
    ``tied``: the fraction beyond which a metric is tied.
    """
    found = []
    for column, metric in enumerate(metrics):
        by_problem: dict[Problem, list[tuple[str, float, Sequence[NDArray[np.float64]]]]] = {}
        for group, runs in tables.items():
            columns = [values[:, column][np.isfinite(values[:, column])] for values in runs]
            columns = [values for values in columns if len(values)]
            share = float(np.mean([_share(values) for values in columns])) if columns else 0.0
            problem = _problem(columns, share, tied)
            if problem is not None:
                by_problem.setdefault(problem, []).append((group, share, columns))
        for problem, groups in by_problem.items():
            concerned = [values for _, _, columns in groups for values in columns]
            found.append(
                MetricFinding(
                    metric, kind, problem, tuple(group for group, _, _ in groups),
                    sum(share * len(columns) for _, share, columns in groups) / max(1, len(concerned)),
                    len(concerned), sum(map(len, concerned)),
                    float(sum(values.sum() for values in concerned)), len(groups) < len(tables),
                )
            )  # fmt: skip
    return sorted(found, key=lambda one: one.rank)


def caveat(findings: Sequence[MetricFinding]) -> str:
    """The restriction to state beside a verdict that involves or leaves out these metrics; empty without any.

    Hardware metrics are in the pairs of a verdict, or are left out of them. Software metrics are not, but a set of
    counters that never ran has not been shown to change nothing.
    """
    parts = []
    for verb, problems, kind in (
        ("leaves out", ("no events", "constant"), "hardware"),
        ("involves", ("tied", "nearly constant"), "hardware"),
        ("collects", tuple(_GRAVEST), "software"),
    ):
        names = [one.brief for one in findings if one.problem in problems and one.kind == kind and not one.undefines]
        if names:
            parts.append(f"{verb} {', '.join(names)}")
    return f"it {' and '.join(parts)}" if parts else ""


def tied_reasons(metrics: Sequence[str], *groups: Sequence[NDArray[np.float64]]) -> list[str]:
    """For each of m metrics that it is tied in some group, "" if it is not; ``groups``: of runs, each the fraction
    ``(m,)`` of its records with its most frequent value."""
    shares = np.max([np.mean(group, axis=0) for group in groups], axis=0)
    return [
        f"{metric} is tied: one value in {share:.0%} of its records" if share > TIED else ""
        for metric, share in zip(metrics, shares.tolist(), strict=True)
    ]


def _problem(columns: Sequence[NDArray[np.float64]], share: float, tied: float) -> Problem | None:
    if not columns:
        return None
    if not any(values.any() for values in columns):
        return "no events"
    if all((values == values[0]).all() for values in columns):
        return "constant"
    if share > tied:
        return "tied"
    return "nearly constant" if all(map(_is_nearly_constant, columns)) else None


def _is_nearly_constant(values: NDArray[np.float64]) -> bool:
    middle = float(np.median(values))
    return middle > 0 and float(np.mean(np.abs(values - middle) <= NEAR * middle)) >= NEARLY_ALL


def _share(values: NDArray[np.float64]) -> float:
    return average_ranks(values)[1] / len(values)
