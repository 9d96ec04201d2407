"""How the designs of two campaigns differ: program, machine, metrics, seeds and all other settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import yaml

from measure.perturbation.analysis_types import BROKEN, Perturbation
from measure.perturbation.wording import counted, p_text, rhos_text, unlike_records, unlike_sampling
from measure.run_types import BASELINE
from measure.runs.plan import Plan
from measure.runs.program_identity import different_programs

_ABSENT = "-"
_MOST_MACHINE_FACTS = 12
_MOST_RELATIONS = 3


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


def unlike_designs(
    before: Plan, after: Plan, names: tuple[str, str], baselines: Perturbation | None = None
) -> tuple[str, ...]:
    """Sentences on what alone can make relations differ in the two campaigns, whatever the counters do: another
    program, machine, input or cut of the records. ``names``: of the campaigns, for the reader; ``baselines``: those of
    the second compared with those of the first, within runs, None if they were not."""
    first, second = names
    plans, found = (before, after), []
    if programs := different_programs(before, after):
        found.append(f"{first} measures {programs[0]}, and {second} {programs[1]}: {_of_baselines(baselines)}")
    samplings = [plan.campaign.sampling for plan in plans]
    if samplings[0].interval != samplings[1].interval:
        found.append(unlike_records([f"{one.described} in {name}" for one, name in zip(samplings, names, strict=True)]))
    if samplings[0].mode != samplings[1].mode:
        modes = " and ".join(f"{one.mode} in {name}" for one, name in zip(samplings, names, strict=True))
        found.append(unlike_sampling(modes))
    if before.machine_text != after.machine_text:
        machines = [PurePath(plan.campaign.machine_name).name for plan in plans]
        what = " and ".join(machines) if machines[0] != machines[1] else f"two descriptions of {machines[0]}"
        found.append(
            f"The machines differ ({what}): relations differ between machines without any instrumentation, so a "
            "difference may say how two machines react, not two versions of the counters."
        )
    inputs = [(plan.campaign.program.args, plan.campaign.program.size) for plan in plans]
    if inputs[0] != inputs[1] and not programs:
        words = [" ".join(map(str, args)) or size or "none" for args, size in inputs]
        found.append(
            f"The programs have other arguments ({words[0]} in {first}, {words[1]} in {second}): this alone may change "
            "correlations."
        )
    return tuple(found)


def _of_baselines(found: Perturbation | None) -> str:
    """What the baselines tell of the relations of two programs without instrumentation, as the end of a sentence."""
    two_programs = (
        "so a difference says how two programs react, not what a new version of one or another set of metrics does."
    )
    if found is not None and found.verdict in BROKEN:
        broken = [pair for pair in found.pairs if pair.verdict in BROKEN]
        shown = ", ".join(
            f"{pair.name} {rhos_text(pair.baseline_rho, pair.run_rho)}" for pair in broken[:_MOST_RELATIONS]
        )
        return (
            f"their relations differ without any instrumentation, in {len(broken)} of "
            f"{counted(len(found.pairs), 'pair')} of metrics ({p_text(found.p_value)}; rho of {shown}), {two_programs}"
        )
    if found is not None and found.verdict == "equivalent":
        assessed = "" if len(found.of("equivalent")) == len(found.pairs) else " that can be assessed"
        return (
            f"without instrumentation all their relations{assessed} are alike, within {found.delta:g} in z, so that a "
            "difference is one of what the instrumentation does to either."
        )
    return (
        "their relations may differ without any instrumentation, which the baselines neither show nor exclude; then a "
        "difference says how two programs react, not what a new version of one or another set of metrics does."
    )


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
