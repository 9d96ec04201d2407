"""Does sampling perturb what it reports? Cycle-close traces against full ones, by the statistics of the main job.

The baselines are full simulations under different seeds; each variant is one way of sampling, several seeds of
it. What instrumentation is to a measured program, the sampling's warm-up and profiling are to its traces: an
equivalent variant keeps every correlation of the metrics (within and across runs), shown, not assumed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from measure.campaign import Campaign, Count, Sampling, StrictModel, load_campaign_as
from measure.cycleclose.predictors import predictor_named
from measure.errors import MeasureError
from measure.executor import Outcome
from measure.perturbation import inner_perturbation, outer_perturbation
from measure.perturbation_findings import INNER_ADVICE, OUTER_ADVICE
from measure.perturbation_types import Perturbation, Verdict
from measure.plan import Plan, content_key, make_plan
from measure.stats.correlation import spearman
from measure.types import BASELINE, Run
from measure.yaml_positions import Document

SIMULATED = "simulated_millionths"
SUMMARY_FORMAT = "perturbation-check-1"
_ADVICE = (
    "Do not reason about these metrics from such traces; simulate more: roll_back or samples leave nothing unsampled, "
    "warm_up: lines and a lower threshold bring estimates closer."
)


class Way(StrictModel):
    """One way of sampling; what is left out is the paper's."""

    dimensions: int = Field(32, ge=1, le=65536, description="Entries of a signature. Default: 32")
    threshold: float = Field(
        0.25,
        gt=0,
        le=1,
        description="Distance up to which intervals are one phase, of the base. Default: 0.25",
    )
    base: Literal["L", "2L"] = Field("2L", description="The interval's length, or twice it. Default: 2L")
    entries: int = Field(1024, ge=1, description="Phases in the table. Default: 1024")
    when_full: Literal["oldest", "closest"] = Field(
        "oldest", description="What a full table does. Default: oldest"
    )
    update: Literal["sample", "mean", "never"] = Field(
        "sample", description="What a phase's signature becomes. Default: sample"
    )
    predictor: str = Field("rle-2", description="last or rle-N. Default: rle-2")
    unsampled: Literal["last", "closest"] = Field(
        "last", description="Estimate of an interval whose phase has no sample. Default: last"
    )
    warm_up: Literal["queues", "lines"] = Field(
        "queues",
        description="What a sample begins with: the last references and branches, or every line touched last. "
        "Default: queues",
    )
    warm_references: Count = Field(
        50_000, ge=0, description="Memory references that warm up before a sample. Default: 50k"
    )
    warm_branches: Count = Field(
        50_000, ge=0, description="Branches that warm up before a sample. Default: 50k"
    )
    wait_step: float = Field(
        0.0,
        ge=0,
        le=10,
        description="Sample intervals of a phase apart that wait for memory so differently, in shares of an "
        "instruction's time; 0: phases are code alone. Default: 0",
    )
    every: Count = Field(
        0,
        ge=0,
        description="Length of an interval in instructions, a multiple of the check's; 0: the check's. Default: 0",
    )
    everything: bool = Field(
        False, description="Simulate everything: the control, which ought to be equivalent. Default: false"
    )
    roll_back: bool = Field(
        False,
        description="Go back and simulate what turned out to be new instead of predicting. Default: false",
    )
    samples: int = Field(
        0, ge=0, description="Samples of each phase when the program is run twice; 0: run once. Default: 0"
    )

    @field_validator("predictor")
    @classmethod
    def _known(cls, value: str) -> str:
        predictor_named(value)
        return value


class SamplingCheck(Campaign):
    """A campaign whose variants are ways of sampling."""

    ways: dict[str, Way] = Field(default={}, description="Ways of sampling to compare with full simulation")
    sweep: dict[str, list[str | int | float]] = Field(
        default={},
        description="A setting of a way, or warm for references and branches together, to values in order; each "
        "gives a way of the name SETTING=VALUE",
    )
    common: dict[str, Any] = Field(default={}, description="Settings of the ways of the sweep")

    @model_validator(mode="after")
    def _something_to_check(self) -> Self:
        if not self.ways and not self.sweep:
            raise ValueError("'ways' is missing: expected ways of sampling, or a sweep")
        for way in self.all_ways().values():
            length, _ = self.sampling.interval
            if way.every % length:
                raise ValueError(
                    f"got ways of {way.every} instructions an interval, expected multiples of {length}"
                )
        return self

    def all_ways(self) -> dict[str, Way]:
        """The ways, those of the sweep last."""
        found = dict(self.ways)
        for setting, values in self.sweep.items():
            for value in values:
                names = ("warm_references", "warm_branches") if setting == "warm" else (setting,)
                found[f"{setting}={value}"] = Way.model_validate(
                    {**self.common, **dict.fromkeys(names, value)}
                )
        return found


@dataclass(frozen=True)
class WayResult:
    """What became of one way. ``simulated``: share of instructions simulated in detail, mean over runs;
    ``seconds``: of a run, mean; ``speedup``: of a full simulation's time."""

    name: str
    way: Way
    simulated: float
    seconds: float
    speedup: float
    inner: Perturbation
    outer: Perturbation

    @property
    def verdict(self) -> Verdict:
        verdicts = (self.inner.verdict, self.outer.verdict)
        for gravest in ("perturbed", "inconclusive"):
            if gravest in verdicts:
                return gravest
        return "equivalent"


def load_check(path: Path) -> tuple[SamplingCheck, Document]:
    """Read a check's file. Raises `CampaignError`."""
    return load_campaign_as(path, SamplingCheck)


def plan_check(check: SamplingCheck, document: Document, notify: Callable[[str], None]) -> Plan:
    """The runs: baselines in full, and every way under seeds of its own."""
    length, unit = check.sampling.interval
    if unit != "instructions":
        from measure.errors import CampaignError

        raise CampaignError(
            f"{document.where('sampling', 'every')}: got an interval in cycles, expected instructions: the cycles are "
            "what is estimated"
        )
    ways = check.all_ways()
    runs = check.baselines + check.replicates * len(ways)
    together = check.model_copy(
        update={
            "software_metrics": {}, "variants": {}, "baselines": runs,
            "sampling": Sampling(mode="ideal", every=f"{length} instructions"),
        }
    )  # fmt: skip
    plan = make_plan(together, document, notify, "cycleclose")
    names = list(ways)
    specs = []
    for spec in plan.specs:
        extra = spec.replicate - check.baselines
        group, replicate = (BASELINE, spec.replicate) if extra < 0 else (
            names[extra // check.replicates], extra % check.replicates
        )  # fmt: skip
        specs.append(replace(
            spec, group=group, replicate=replicate, counters=((SIMULATED, "", 0),),
            interval=length if extra < 0 else ways[group].every or length, cycleclose=_settings(ways, group),
        ))  # fmt: skip
    return replace(plan, specs=tuple(specs), keys=tuple(content_key(spec) for spec in specs))


def _settings(ways: dict[str, Way], group: str) -> tuple[tuple[str, Any], ...]:
    if group == BASELINE:
        return (("everything", True),)
    return tuple(sorted(ways[group].model_dump(exclude={"every"}).items()))


def analyse_check(
    check: SamplingCheck, outcome: Outcome, progress: Callable[[str], None] = lambda what: None
) -> list[WayResult]:
    """Compare every way with the baselines. Raises `MeasureError` when too little is left to compare."""
    metrics = check.hardware_metrics
    baselines = [run for run in outcome.runs if run.spec.group == BASELINE]
    if len(baselines) < 2:
        raise MeasureError(f"{len(baselines)} full simulations succeeded, expected at least 2")
    values = [run.trace.columns(metrics) for run in baselines]
    length = check.sampling.interval[0]
    full_seconds = float(np.mean([run.seconds for run in baselines]))
    aligned: dict[int, Any] = {}
    correlations: dict[int, Any] = {}
    results = []
    for name, way in check.all_ways().items():
        runs = [run for run in outcome.runs if run.spec.group == name]
        if not runs:
            continue
        mine = [run.trace.columns(metrics) for run in runs]
        levels: dict[str, Any] = {"delta": check.delta, "alpha": check.alpha, "seed": check.seed}
        times = max(1, way.every // length)
        full = [longer(one, times) for one in values]
        if times not in correlations:
            correlations[times] = [spearman(one, metrics) for one in full]
        progress(f"{name}: within runs")
        inner = inner_perturbation(correlations[times], [spearman(one, metrics) for one in mine], **levels)
        progress(f"{name}: across runs")
        memo = aligned.setdefault(times, {})
        # Intervals of equal progress correspond as they are: aligning them could only hide or make up a difference.
        outer = outer_perturbation(
            *corresponding(full, mine, [_skipped(run, length * times) for run in runs]), metrics,
            held_out=False, aligned=True, memo=memo, **levels,
        )  # fmt: skip
        simulated = float(np.mean([run.trace.columns((SIMULATED,))[0, 0] for run in runs])) / 1e6
        seconds = float(np.mean([run.seconds for run in runs]))
        results.append(
            WayResult(name, way, simulated, seconds, full_seconds / seconds, _advised(inner), _advised(outer))
        )
    return results


def _advised(found: Perturbation) -> Perturbation:
    """With advice about sampling where that about software metrics stands: there are none."""
    told = [_ADVICE if text in (INNER_ADVICE, OUTER_ADVICE) else text for text in found.findings]
    return replace(found, findings=tuple(told))


def _skipped(run: Run, length: int) -> int:
    """How many intervals the trace lacks at its beginning, for want of an estimate."""
    return int(run.trace.boundaries_instructions[0]) // length


def corresponding(
    full: Sequence[NDArray[np.float64]], mine: Sequence[NDArray[np.float64]], skipped: Sequence[int]
) -> tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]]:
    """The intervals that all traces have: the k-th trace of ``mine`` lacks the first ``skipped[k]``."""
    begin = max(skipped)
    end = min(
        *(len(one) for one in full), *(skip + len(one) for skip, one in zip(skipped, mine, strict=True))
    )
    return [one[begin:end] for one in full], [
        one[begin - skip : end - skip] for skip, one in zip(skipped, mine, strict=True)
    ]


def longer(values: NDArray[np.float64], times: int) -> NDArray[np.float64]:
    """A trace of events, (n, metrics), in intervals so many times as long; what is left over at the end is left out."""
    whole = len(values) // times
    return np.asarray(values[: whole * times].reshape(whole, times, -1).sum(axis=1))


def equivalent_from(
    check: SamplingCheck, results: Sequence[WayResult]
) -> dict[str, dict[str, str | int | float | None]]:
    """For each setting that is swept: the first value from which on all are equivalent, within a run (``inner``), and
    in both respects (``both``); None when the last one is not."""
    by_name = {one.name: one for one in results}
    found: dict[str, dict[str, str | int | float | None]] = {}
    for setting, values in check.sweep.items():
        mine = [by_name[f"{setting}={value}"] for value in values if f"{setting}={value}" in by_name]
        kinds = {
            "inner": [one.inner.verdict == "equivalent" for one in mine],
            "both": [one.verdict == "equivalent" for one in mine],
        }
        found[setting] = {}
        for kind, good in kinds.items():
            first = len(good)
            while first and good[first - 1]:
                first -= 1
            found[setting][kind] = values[first] if first < len(good) else None
    return found


def summary_of(check: SamplingCheck, results: Sequence[WayResult], outcome: Outcome) -> dict[str, Any]:
    """What summary.json holds."""
    return {
        "format": SUMMARY_FORMAT,
        "check": check.name,
        "interval_instructions": check.sampling.interval[0],
        "runs": {"done": len(outcome.runs), "reused": outcome.reused, "failed": len(outcome.failures)},
        "equivalent_from": equivalent_from(check, results),
        "ways": {
            one.name: {
                "verdict": one.verdict,
                "settings": one.way.model_dump(),
                "simulated_share": one.simulated,
                "seconds": one.seconds,
                "speedup": one.speedup,
                "inner": _perturbation(one.inner),
                "outer": _perturbation(one.outer),
            }
            for one in results
        },
    }


def _perturbation(found: Perturbation) -> dict[str, Any]:
    def known(value: float) -> float | None:
        return float(value) if np.isfinite(value) else None

    return {
        "verdict": found.verdict,
        "p": known(found.p_value),
        "pairs": [
            {
                "a": pair.a, "b": pair.b, "baseline_rho": known(pair.baseline_rho), "run_rho": known(pair.run_rho),
                "delta_z": known(pair.delta_z), "interval": [known(pair.ci[0]), known(pair.ci[1])],
                "p_adjusted": known(pair.p_adjusted), "verdict": pair.verdict,
            }
            for pair in found.pairs
        ],
        "findings": list(found.findings),
    }  # fmt: skip
