"""Keeps a plan beside its results, so that `measure report DIR` needs neither sources nor compiler."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from measure.errors import CampaignError
from measure.result_files import command_of, write_text_atomically
from measure.run_types import RunSpec
from measure.runs.builds import BuildFacts
from measure.runs.campaign_model import Campaign
from measure.runs.looks import History
from measure.runs.plan import Plan

FILE_NAME = "plan.json"
_FORMAT = "perturbation-plan-3"


def save_plan(plan: Plan, directory: Path) -> None:
    """Write ``directory``/plan.json. Raises `StoreError` when the disk is full."""
    text = json.dumps(
        {
            "format": _FORMAT,
            "campaign_file": plan.campaign_file,
            "settings": list(plan.settings),
            "history": asdict(plan.history),
            "campaign": plan.campaign.model_dump(mode="json"),
            "machine_text": plan.machine_text,
            "clock_hz": plan.clock_hz,
            "program_digest": plan.program_digest,
            "runs": [{"key": key, "spec": asdict(spec)} for key, spec in zip(plan.keys, plan.specs, strict=True)],
            "builds": _builds_as_json(plan.builds),
            "second_builds": _builds_as_json(plan.second_builds),
        },
        indent=1,
    )

    write_text_atomically(directory / FILE_NAME, text)


def load_plan(directory: Path) -> Plan:
    """The plan whose runs are in ``directory``. Raises `CampaignError` when there is none or it is damaged."""
    path = directory / FILE_NAME
    if not directory.exists():
        raise CampaignError(
            f"{directory} has no results of a campaign: there is no such file or directory; expected a directory of "
            "`measure run`"
        )
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise CampaignError(
            f"{directory} has no results of a campaign ({path.name}: {error.strerror}); expected a directory of "
            f"`measure run`, or a campaign file{_advice(directory)}"
        ) from None
    try:
        saved = json.loads(text)
        if saved["format"] != _FORMAT:
            raise CampaignError(f"{path}: got format {saved['format']!r}, expected {_FORMAT}")
        return Plan(
            Campaign.model_validate(saved["campaign"]),
            saved["machine_text"],
            saved["clock_hz"],
            tuple(RunSpec.from_json(run["spec"]) for run in saved["runs"]),
            tuple(run["key"] for run in saved["runs"]),
            _builds_from_json(saved["builds"]),
            saved["campaign_file"],
            History.from_json(saved["history"]),
            tuple(saved["settings"]),
            _builds_from_json(saved["second_builds"]),
            saved.get("program_digest", ""),  # plans of earlier versions have none
        )
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise CampaignError(
            f"{path} is damaged ({type(error).__name__}); delete it and give the campaign file instead: "
            "`measure report CAMPAIGN.yaml --out DIR`, which does not know of earlier looks at the results"
        ) from None


def _advice(directory: Path) -> str:
    """What a directory without a plan is, if it has results of another command, and where its verdicts are."""
    partition = directory / "partition.yaml"
    if partition.is_file():
        return f"; it is of `measure partition`: `measure run {shlex.quote(str(partition))}` makes the runs"
    command = command_of(directory)
    pages = [name for name in ("report.html", "compare.html", "trace.html", "phases.html", "partition.html")
             if (directory / name).is_file()]  # fmt: skip
    what = f"; what it found is in {directory / pages[0]}" if pages else ""
    return f"; it is of `{command}`, which keeps no runs{what}" if command else ""


def _builds_as_json(builds: Mapping[str, Sequence[BuildFacts]]) -> dict[str, Any]:
    return {variant: [asdict(one) for one in layouts] for variant, layouts in builds.items()}


def _builds_from_json(saved: Mapping[str, Any]) -> dict[str, tuple[BuildFacts, ...]]:
    return {
        variant: tuple(
            BuildFacts(one["key"], one["static_instructions"], tuple(one["warnings"]), tuple(one["notices"]))
            for one in layouts
        )
        for variant, layouts in saved.items()
    }
