"""How the designs of two campaigns differ: program, machine, metrics, seeds and all other settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import yaml

from measure.run_types import BASELINE
from measure.runs.plan import Plan

_ABSENT = "-"
_MOST_MACHINE_FACTS = 12


@dataclass(frozen=True)
class DesignFact:
    """A setting in which two campaigns differ, with both values as text."""

    name: str
    before: str
    after: str


def differing_facts(before: Plan, after: Plan) -> tuple[DesignFact, ...]:
    """What differs, program and machine first."""
    facts = [_program(before, after), *_machine(before, after)]
    values = [dict(_flat(_settings(plan))) for plan in (before, after)]
    for key in dict.fromkeys([*values[0], *values[1]]):
        texts = [value.get(key, _ABSENT) for value in values]
        if texts[0] != texts[1]:
            facts.append(DesignFact(key, *texts))
    return tuple(one for one in facts if one is not None)


def different_programs(before: Plan, after: Plan) -> tuple[str, str] | None:
    """The names of the programs of the two campaigns, unless one of them has a file of the other, or the same name."""
    names = [_program_names(plan) for plan in (before, after)]
    return None if names[0] & names[1] else (_joined(names[0]), _joined(names[1]))


def _program_names(plan: Plan) -> frozenset[str]:
    program = plan.campaign.program
    if program.catalogue:
        return frozenset([program.catalogue])
    if program.binary:
        return frozenset([PurePath(program.binary).name])
    return frozenset(path.name for path in (program.source, *program.sources) if path is not None)


def _joined(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))


def _program(before: Plan, after: Plan) -> DesignFact | None:
    """Whether the plain programs differ, by the hash of everything that they were built from."""
    keys = [plan.builds[BASELINE][0].key[:12] if plan.builds.get(BASELINE) else _ABSENT for plan in (before, after)]
    return DesignFact("what the plain program is built from", *keys) if keys[0] != keys[1] else None


def _machine(before: Plan, after: Plan) -> list[DesignFact]:
    """The differing values of the machine descriptions."""
    values = [dict(_flat(yaml.safe_load(plan.machine_text))) for plan in (before, after)]
    differ = [key for key in dict.fromkeys([*values[0], *values[1]]) if values[0].get(key) != values[1].get(key)]
    facts = [
        DesignFact(f"machine {key}", values[0].get(key, _ABSENT), values[1].get(key, _ABSENT))
        for key in differ[:_MOST_MACHINE_FACTS]
    ]
    if more := len(differ) - len(facts):
        facts.append(DesignFact("machine, further values", f"{more} differ", f"{more} differ"))
    return facts


def _settings(plan: Plan) -> dict[str, Any]:
    """The campaign's settings, without names and paths of its files."""
    settings = plan.campaign.model_dump(mode="json", exclude={"name", "machine"}, exclude_none=True)
    for key in ("source", "directory", "catalogue_file"):
        settings["program"].pop(key, None)
    settings["program"]["sources"] = [path.name for path in plan.campaign.program.sources]
    settings["program"]["files"] = sorted(plan.campaign.program.files)
    settings["variants"] = plan.campaign.variant_sets()
    settings["software_metrics"] = {
        name: "; ".join(
            f"{key} {_text(value)}" for key, value in spec.model_dump(mode="json", exclude_defaults=True).items()
        )
        for name, spec in plan.campaign.software_metrics.items()
    }
    return settings


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Dotted keys and texts of the values; lists are values."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(item, f"{name}.{key}" if name else str(key))
    else:
        yield name, _text(value)


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
