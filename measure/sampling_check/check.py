"""Checks whether sampled simulation (cycle-close traces: only some intervals of each phase are simulated) reports the
same correlations of metrics as full simulation.

The baselines are full simulations under different seeds; each variant is one sampling configuration under several
seeds. Warm-up and profiling may perturb a trace as instrumentation may perturb a program: an equivalent variant is
shown to keep every correlation of the metrics, within and across runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from common.plain_json import plain_json
from common.quantities import SHORTEST_TRACED_INTERVAL
from common.yaml_document import YamlDocument
from measure.cycle_close.predictors import predictor_named
from measure.errors import CampaignError, MeasureError
from measure.perturbation.analysis_types import Perturbation, Verdict, gravest
from measure.perturbation.perturbation import inner_perturbation, outer_perturbation
from measure.run_types import BASELINE, Run
from measure.runs.campaign_file import load_campaign_as
from measure.runs.campaign_model import Campaign, Count, Sampling, SharedKeys, StrictModel
from measure.runs.executor import Outcome
from measure.runs.machine_kind import check_emulated
from measure.runs.plan import Plan, content_keys, make_plan
from measure.stats.correlation import spearman

SIMULATED = "simulated_millionths"
SUMMARY_FORMAT = "perturbation-check-2"
ADVICE = "Do not reason about these metrics from such traces."


class SamplingConfiguration(StrictModel):
    """One sampling configuration; defaults are the paper's."""

    dimensions: int = Field(32, ge=1, le=65536, description="Entries of a signature. Default: 32")
    signature: Literal["balanced", "hashed"] = Field(
        "hashed",
        description="Which entry a branch adds to: the one with the fewest instructions, which a frequent branch keeps "
        "for itself, or one by a hash of its address, by which loops of unlike code may look the same. Default: hashed",
    )
    threshold: float = Field(
        0.25,
        gt=0,
        le=1,
        description="Largest distance of two intervals of one phase, as a fraction of `base`. Default: 0.25",
    )
    base: Literal["L", "2L"] = Field("2L", description="The interval's length, or twice it. Default: 2L")
    entries: int = Field(1024, ge=1, description="Phases in the table. Default: 1024")
    when_full: Literal["oldest", "closest"] = Field("oldest", description="What a full table does. Default: oldest")
    update: Literal["sample", "mean", "never"] = Field(
        "sample", description="What a phase's signature becomes. Default: sample"
    )
    predictor: str = Field("rle-2", description="last or rle-N. Default: rle-2")
    unsampled: Literal["last", "closest"] = Field(
        "last", description="Estimate of an interval whose phase has no sample. Default: last"
    )
    warm_up: Literal["queues", "lines"] = Field(
        "queues",
        description="What a sample begins with: the last references and branches, or caches, TLBs and a branch "
        "predictor that are kept up to date while the program runs fast. Default: queues",
    )
    warm_references: Count = Field(
        50_000, ge=0, description="Memory references that warm up before a sample. Default: 50k"
    )
    warm_branches: Count = Field(50_000, ge=0, description="Branches that warm up before a sample. Default: 50k")
    wait_step: float = Field(
        0.0,
        ge=0,
        le=10,
        description="Take separate samples of intervals of a phase whose waiting for memory differs by this fraction "
        "of an instruction's time; 0: phases are code alone. Default: 0",
    )
    every: Count = Field(
        0,
        ge=0,
        description="Length of an interval in instructions, a multiple of the check's; 0: the check's. Default: 0",
    )
    everything: bool = Field(
        False, description="Simulate everything: the control, expected to be equivalent. Default: false"
    )
    roll_back: bool = Field(
        False,
        description="Go back and simulate what was new instead of predicting. Default: false",
    )
    samples: int = Field(
        0, ge=0, description="Samples of each phase when the program is run twice; 0: run once. Default: 0"
    )

    @field_validator("predictor")
    @classmethod
    def _predictor_exists(cls, value: str) -> str:
        predictor_named(value)
        return value


class SamplingCheck(SharedKeys):
    """Full simulations of a program, and sampling configurations: the key ``configurations`` has them by name."""

    configurations: dict[str, SamplingConfiguration] = Field(
        default={},
        description="Sampling configurations to compare with full simulation",
    )
    sweep: dict[str, list[str | int | float]] = Field(
        default={},
        description="A setting, or warm for references and branches together, to values in order; each value gives "
        "a configuration of the name SETTING=VALUE",
    )
    common: dict[str, Any] = Field(default={}, description="Settings of all configurations of the sweep")

    @model_validator(mode="after")
    def _something_to_check(self) -> Self:
        if not self.configurations and not self.sweep:
            raise ValueError("'configurations' is missing: expected sampling configurations, or a sweep")
        for configuration in self.all_configurations().values():
            length, _ = self.sampling.interval
            if configuration.every % length:
                raise ValueError(
                    f"got intervals of {configuration.every} instructions in 'configurations', "
                    f"expected multiples of {length}"
                )
        return self

    def all_configurations(self) -> dict[str, SamplingConfiguration]:
        """The configurations by name, those of the sweep last."""
        configurations = dict(self.configurations)
        for setting, values in self.sweep.items():
            for value in values:
                names = ("warm_references", "warm_branches") if setting == "warm" else (setting,)
                configurations[f"{setting}={value}"] = SamplingConfiguration.model_validate(
                    {**self.common, **dict.fromkeys(names, value)}
                )
        return configurations


@dataclass(frozen=True)
class SamplingResult:
    """The result of one configuration. ``simulated``: fraction of instructions simulated in detail, mean over runs;
    ``seconds``: of a run, mean; ``speedup``: over a full simulation."""

    name: str
    configuration: SamplingConfiguration
    simulated: float
    seconds: float
    speedup: float
    inner: Perturbation
    outer: Perturbation

    @property
    def verdict(self) -> Verdict:
        return gravest((self.inner.verdict, self.outer.verdict))

    @property
    def caveat(self) -> str:
        """Restriction of an *equivalent* verdict: where nothing could be seen. Empty without any."""
        if self.verdict != "equivalent":
            return ""
        compared = ((self.inner, "within a run"), (self.outer, "across runs"))
        return "; ".join(f"not assessable {where}" for one, where in compared if one.verdict == "not assessable")


def load_check(path: Path, settings: Sequence[str] = ()) -> tuple[SamplingCheck, YamlDocument]:
    """Read a check's file, as `load_campaign` does a campaign's. Raises `CampaignError`."""
    return load_campaign_as(path, SamplingCheck, settings)


def plan_check(check: SamplingCheck, document: YamlDocument, notify: Callable[[str], None]) -> Plan:
    """The runs: full simulations as baselines, and every configuration under seeds of its own."""
    check_emulated(check, document, "measure check-sampling")
    length, unit = check.sampling.interval
    if unit != "instructions":
        raise CampaignError(
            f"{document.where('sampling', 'every')}: got an interval in {unit}, expected instructions: cycles "
            "are only estimated"
        )
    if length < SHORTEST_TRACED_INTERVAL:
        raise CampaignError(
            f"{document.where('sampling', 'every')}: got an interval of {length:,} instructions, expected at least "
            f"{SHORTEST_TRACED_INTERVAL:,}"
        )
    configurations = check.all_configurations()
    runs = check.baselines + check.replicates * len(configurations)
    together = Campaign.model_validate({key: getattr(check, key) for key in SharedKeys.model_fields}).model_copy(
        update={"baselines": runs, "sampling": Sampling(mode="ideal", every=f"{length} instructions")}
    )
    plan = make_plan(together, document, notify, "cycleclose")
    names = list(configurations)
    specs = []
    for spec in plan.specs:
        extra = spec.replicate - check.baselines
        variant, replicate = (BASELINE, spec.replicate) if extra < 0 else (
            names[extra // check.replicates], extra % check.replicates
        )  # fmt: skip
        specs.append(replace(
            spec, variant=variant, replicate=replicate, extra_columns=(SIMULATED,),
            interval=length if extra < 0 else configurations[variant].every or length,
            cycleclose=_settings(configurations, variant),
        ))  # fmt: skip
    return replace(plan, specs=tuple(specs), keys=content_keys(specs))


def _settings(configurations: dict[str, SamplingConfiguration], variant: str) -> tuple[tuple[str, Any], ...]:
    if variant == BASELINE:
        return (("everything", True),)
    return tuple(sorted(configurations[variant].model_dump(exclude={"every"}).items()))


def analyse_check(
    check: SamplingCheck, outcome: Outcome, progress: Callable[[str], None] = lambda what: None
) -> list[SamplingResult]:
    """Compare every configuration with the baselines, within and across runs; these comparisons share alpha. A control
    is tested as strictly, and costs the others nothing. Raises `MeasureError` with fewer than 2 baselines."""
    metrics = check.hardware_metrics
    baselines = [run for run in outcome.runs if run.spec.variant == BASELINE]
    if len(baselines) < 2:
        raise MeasureError(f"{len(baselines)} full simulations succeeded, expected at least 2")
    values = [run.trace.columns(metrics) for run in baselines]
    length = check.sampling.interval[0]
    full_seconds = float(np.mean([run.seconds for run in baselines]))
    aligned: dict[int, Any] = {}
    results = []
    configurations = check.all_configurations()
    comparisons = max(1, 2 * sum(not one.everything for one in configurations.values()))
    for name, configuration in configurations.items():
        runs = [run for run in outcome.runs if run.spec.variant == name]
        if not runs:
            continue
        mine = [run.trace.columns(metrics) for run in runs]
        levels: dict[str, Any] = {
            "delta": check.delta, "alpha": check.alpha, "comparisons": comparisons, "seed": check.seed
        }  # fmt: skip
        times = max(1, configuration.every // length)
        full = [merge_intervals(one, times) for one in values]
        full, mine = common_intervals(full, mine, [_skipped(run, length * times) for run in runs])
        progress(f"{name}: within runs")
        inner = inner_perturbation(
            [spearman(one, metrics) for one in full], [spearman(one, metrics) for one in mine], **levels
        )
        progress(f"{name}: across runs")
        memo = aligned.setdefault(times, {})
        # Intervals of equal progress correspond as they are: aligning them could only hide or make up a difference.
        outer = outer_perturbation(
            full, mine, metrics, held_out=False, aligned=True, memo=memo, **levels,
        )  # fmt: skip
        simulated = float(np.mean([run.trace.columns((SIMULATED,))[0, 0] for run in runs])) / 1e6
        seconds = float(np.mean([run.seconds for run in runs]))
        results.append(
            SamplingResult(
                name, configuration, simulated, seconds, full_seconds / seconds, _advised(inner), _advised(outer)
            )
        )
    return results


def _advised(found: Perturbation) -> Perturbation:
    """``found`` with advice on sampling in place of advice on software metrics."""
    said = (replace(one, sentence=ADVICE) if one.kind == "advice" else one for one in found.said)
    return replace(found, said=tuple(said))


def _skipped(run: Run, length: int) -> int:
    """Number of intervals without an estimate, which the trace lacks at its beginning."""
    return int(run.trace.boundaries_instructions[0]) // length


def common_intervals(
    full: Sequence[NDArray[np.float64]], mine: Sequence[NDArray[np.float64]], skipped: Sequence[int]
) -> tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]]:
    """The intervals that all traces have; the k-th trace of ``mine`` lacks the first ``skipped[k]``."""
    begin = max(skipped)
    end = min(*(len(one) for one in full), *(skip + len(one) for skip, one in zip(skipped, mine, strict=True)))
    return [one[begin:end] for one in full], [
        one[begin - skip : end - skip] for skip, one in zip(skipped, mine, strict=True)
    ]


def merge_intervals(values: NDArray[np.float64], times: int) -> NDArray[np.float64]:
    """A trace of events, (n, metrics), with each ``times`` intervals merged into one; an incomplete one is dropped."""
    whole = len(values) // times
    return np.asarray(values[: whole * times].reshape(whole, times, -1).sum(axis=1))


def equivalent_from(
    check: SamplingCheck, results: Sequence[SamplingResult]
) -> dict[str, dict[str, str | int | float | None]]:
    """For each setting of the sweep, the first value from which on all values are equivalent within a run (``inner``),
    and within and across runs (``both``); None when the last value is not."""
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


def summary_of(check: SamplingCheck, results: Sequence[SamplingResult], outcome: Outcome) -> dict[str, Any]:
    """The content of summary.json."""
    return {
        "format": SUMMARY_FORMAT,
        "check": check.name,
        "interval_instructions": check.sampling.interval[0],
        "runs": {"done": len(outcome.runs), "reused": outcome.reused, "failed": len(outcome.failures)},
        "equivalent_from": equivalent_from(check, results),
        "configurations": {
            one.name: {
                "verdict": one.verdict,
                "caveat": one.caveat or None,
                "settings": one.configuration.model_dump(),
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
    """A perturbation as plain JSON types, nan as null."""
    found_json: dict[str, Any] = plain_json({
        "verdict": found.verdict,
        "p": found.p_value,
        "alpha": found.alpha,
        "comparisons": found.comparisons,
        "pairs": [
            {
                "a": pair.a, "b": pair.b, "baseline_rho": pair.baseline_rho, "run_rho": pair.run_rho,
                "delta_z": pair.delta_z, "interval": pair.ci,
                "p_adjusted": pair.p_adjusted, "verdict": pair.verdict,
            }
            for pair in found.pairs
        ],
        "findings": found.findings,
    })  # fmt: skip
    return found_json
