"""From a campaign to its runs: builds, seeds, and a random order.

Making the runs is left to `measure.executor`, keeping a plan beside its results to `measure.plan_file`.
"""

from __future__ import annotations

import functools
import hashlib
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from measure.builds import BuildFacts, Builds, catalogue_entry
from measure.campaign import Campaign, Program
from measure.errors import CampaignError
from measure.programs import ensure_project
from measure.types import BASELINE, RunSpec
from measure.yaml_positions import Document


@dataclass(frozen=True)
class Plan:
    """All runs of a campaign in the order in which they are to be made, and the program of each group.

    ``keys``: `content_key` of each spec; ``builds``: by group, one a code layout that a run has; ``campaign_file``:
    where the campaign was read, empty if that is not known.
    """

    campaign: Campaign
    machine_text: str
    clock_hz: int
    specs: tuple[RunSpec, ...]
    keys: tuple[str, ...]
    builds: dict[str, tuple[BuildFacts, ...]]
    campaign_file: str = ""


def content_key(spec: RunSpec) -> str:
    """Hash of everything that the run's trace depends on: its input files and the emulator included."""
    identity = spec.identity()
    if spec.target == "emulated":
        identity["emulator"] = _emulator_digest()
    identity["stdin"] = _file_hash(spec.stdin) if spec.stdin else None
    identity["files"] = [(guest, _file_hash(host)) for guest, host in spec.files]
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _file_hash(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


@functools.cache
def _emulator_digest() -> str:
    """Hash of the emulator's sources: runs of one version are not continued by another."""
    import emulator

    root = Path(emulator.__path__[0])
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def make_plan(
    campaign: Campaign,
    document: Document,
    notify: Callable[[str], None],
    target: str = "emulated",
    begin: Callable[[], None] = lambda: None,
) -> Plan:
    """Check the campaign against machine and program, build every group's program, and list the runs.

    ``begin`` is called before the first build, if there is one to make.
    Raises `CampaignError` for metrics that do not exist and for programs that do not build, `MeasureError`
    when the compiler itself does not work.
    """
    from emulator.errors import EmulatorError
    from emulator.pmu import TooManyEventsError, select_metrics
    from emulator.timing.load import parse_machine

    machine_text = campaign.machine.read_text(encoding="utf-8")
    try:
        config = parse_machine(machine_text, str(campaign.machine))
    except EmulatorError as error:
        raise CampaignError(str(error)) from None
    try:
        select_metrics(campaign.hardware_metrics, config)
    except EmulatorError as error:
        index = next((n for n, name in enumerate(campaign.hardware_metrics) if name in str(error)), 0)
        split = "; `measure partition` splits them" if isinstance(error, TooManyEventsError) else ""
        raise CampaignError(f"{document.where('hardware_metrics', index)}: {error}{split}") from None
    stdin, arguments, files = program_input(campaign.program)
    groups = [(BASELINE, n) for n in range(campaign.baselines)]
    groups += [(v, n) for v in campaign.variant_sets() for n in range(campaign.replicates)]
    layouts = [_layout(campaign, group, replicate) for group, replicate in groups]
    builds = Builds(campaign, document, config.clock_hz, notify, begin)
    builds.make([(group, layout) for (group, _), layout in zip(groups, layouts, strict=True)])
    specs = []
    interval, unit = campaign.sampling.interval
    for (group, replicate), layout in zip(groups, layouts, strict=True):
        entropy = _entropy(campaign.seed, group, replicate)
        build = builds[group, layout]
        specs.append(
            RunSpec(
                group=group,
                replicate=replicate,
                seed=int(np.random.default_rng(entropy).integers(1 << 31)),
                build_key=build.key,
                binary=str(build.elf_path),
                arguments=arguments,
                stdin=stdin,
                files=tuple(sorted((guest, str(host)) for guest, host in files.items())),
                machine=machine_text,
                machine_name=str(campaign.machine),
                hardware_metrics=campaign.hardware_metrics,
                counters=tuple((m, at.symbol, at.offset_bytes) for m, at in build.counters.items()),
                sampling_mode=campaign.sampling.mode,
                interval=interval,
                interval_unit=unit,
                noise=campaign.noise.model_dump(),
                limit_instructions=campaign.limits.instructions,
                target=target,
            )
        )
    order = np.random.default_rng(campaign.seed).permutation(len(specs))
    shuffled = tuple(specs[n] for n in order)
    keys = tuple(content_key(spec) for spec in shuffled)
    return Plan(
        campaign, machine_text, config.clock_hz, shuffled, keys, builds.facts(), str(document.path.resolve())
    )


def _entropy(seed: int, group: str, replicate: int) -> list[int]:
    """Where a run's randomness comes from: not from other runs, so that adding runs leaves these as they are."""
    return [seed, replicate] if group == BASELINE else [seed, replicate, zlib.crc32(group.encode())]


def _layout(campaign: Campaign, group: str, replicate: int) -> int:
    """Which of the code layouts a run has."""
    rng = np.random.default_rng([*_entropy(campaign.seed, group, replicate), 1])
    return int(rng.integers(campaign.noise.code_layouts))


def program_input(program: Program) -> tuple[str | None, tuple[str, ...], dict[str, Path]]:
    """Standard input, arguments, and files by guest path."""
    stdin = str(program.stdin) if program.stdin else None
    arguments = tuple(str(argument) for argument in program.args)
    if program.catalogue is None:
        return stdin, arguments, program.files
    spec = catalogue_entry(program)
    if not arguments:
        arguments = spec.arguments_for(program.size or "medium")
    own = ensure_project(spec)[1] if spec.build is not None else {}
    return stdin or (str(spec.stdin) if spec.stdin else None), arguments, {**own, **program.files}
