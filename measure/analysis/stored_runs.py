"""The plan and the runs that ``measure run`` left in a directory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from measure.errors import RunError
from measure.ground_truth.prepare import Prepared, load_prepared
from measure.run_types import RunSpec
from measure.runs.executor import Failure, Outcome
from measure.runs.plan import Plan
from measure.runs.plan_file import load_plan
from measure.runs.store import Store


@dataclass(frozen=True)
class CampaignResult:
    """A plan, and its ground truth's preparation if the campaign has one."""

    plan: Plan
    truth: Prepared | None = None

    @property
    def specs(self) -> Sequence[RunSpec]:
        """All runs to make."""
        return self.truth.specs if self.truth else self.plan.specs

    @property
    def keys(self) -> Sequence[str]:
        """`content_keys` of the specs."""
        return self.truth.keys if self.truth else self.plan.keys


def load_results(directory: Path) -> tuple[CampaignResult, Outcome]:
    """Plan and runs that `run_campaign` left in ``directory``. Raises `CampaignError` without a plan."""
    result = with_truth(load_plan(directory), directory)
    return result, stored_runs(result, directory)


def with_truth(plan: Plan, directory: Path) -> CampaignResult:
    """``plan`` with its ground truth as ``directory`` has it."""
    return CampaignResult(plan, load_prepared(directory, plan) if plan.campaign.ground_truth else None)


def stored_runs(result: CampaignResult, directory: Path) -> Outcome:
    """What became of the runs of ``result``, as ``directory`` has it."""
    with Store(directory, only_read=True) as store:
        found = [store.load(key, spec) for key, spec in zip(result.keys, result.specs, strict=True)]
        reasons = store.failures()
    runs = tuple(run for run, _ in found if run is not None)
    warnings = tuple(f"{damage}; `measure run` makes its run again." for _, damage in found if damage)
    absent = [(key, spec) for key, spec, (run, _) in zip(result.keys, result.specs, found, strict=True) if run is None]
    failures = tuple(Failure(spec, RunError(reasons[key])) for key, spec in absent if key in reasons)
    untried = tuple(spec for key, spec in absent if key not in reasons)
    return Outcome(runs, failures, len(runs), warnings, untried)
