"""Whether two campaigns measure the same program: by its name, and by what it is made from without counters."""

from __future__ import annotations

from pathlib import PurePath

from measure.run_types import BASELINE
from measure.runs.plan import Plan


def different_programs(before: Plan, after: Plan) -> tuple[str, str] | None:
    """The names of the programs of the two campaigns, unless they are one program or two versions of one: one of them
    has a file of the other, or the same name."""
    names = [_program_names(plan) for plan in (before, after)]
    return None if names[0] & names[1] or same_program(before, after) else (_joined(names[0]), _joined(names[1]))


def program_name(plan: Plan) -> str:
    """The program for a reader: its name, or those of its files."""
    return _joined(_program_names(plan))


def same_program(before: Plan, after: Plan) -> bool | None:
    """Whether the programs without counters of the two campaigns are one, and not two versions of it, say.

    None where that is not known: a plan of an earlier version tells it only of programs in one place, and of a project
    with a build of its own files may differ that the program is not made from.
    """
    digests = before.program_digest, after.program_digest
    keys = [plan.builds[BASELINE][0].key if plan.builds.get(BASELINE) else "" for plan in (before, after)]
    if (digests[0] and digests[0] == digests[1]) or (keys[0] and keys[0] == keys[1]):
        return True
    builds_itself = any(plan.campaign.program.build is not None for plan in (before, after))
    return False if all(digests) and not builds_itself else None


def _program_names(plan: Plan) -> frozenset[str]:
    program = plan.campaign.program
    if program.catalogue:
        return frozenset([program.catalogue])
    if program.binary:
        return frozenset([PurePath(program.binary).name])
    return frozenset(path.name for path in (program.source, *program.sources) if path is not None)


def _joined(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))
