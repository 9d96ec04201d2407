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
from typing import TYPE_CHECKING

import numpy as np

from measure.campaign import Campaign, Program
from measure.errors import CampaignError, MeasureError
from measure.types import BASELINE, RunSpec
from measure.yaml_positions import Document

if TYPE_CHECKING:
    from instrumenter.build import Build
    from measure.programs import ProgramSpec


@dataclass(frozen=True)
class BuildFacts:
    """What a report says about a built program. ``warnings``: events that its counters may miss."""

    key: str
    static_instructions: int
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """All runs of a campaign in the order in which they are to be made, and the program of each group.

    ``keys``: `content_key` of each spec; ``builds``: by group, one a code layout.
    """

    campaign: Campaign
    machine_text: str
    clock_hz: int
    specs: tuple[RunSpec, ...]
    keys: tuple[str, ...]
    builds: dict[str, tuple[BuildFacts, ...]]


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
    campaign: Campaign, document: Document, notify: Callable[[str], None], target: str = "emulated"
) -> Plan:
    """Check the campaign against machine and program, build every group's program, and list the runs.

    Raises `CampaignError` for metrics that do not exist and for programs that do not build, `MeasureError`
    when the compiler itself does not work.
    """
    from emulator.errors import EmulatorError
    from emulator.pmu import select_metrics
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
        raise CampaignError(f"{document.where('hardware_metrics', index)}: {error}") from None
    builds = _build_all(campaign, document, config.clock_hz, notify)
    stdin, arguments = _input(campaign.program)
    groups = [(BASELINE, n) for n in range(campaign.baselines)]
    groups += [(v, n) for v in campaign.variant_sets() for n in range(campaign.replicates)]
    specs = []
    interval, unit = campaign.sampling.interval
    for group, replicate in groups:
        entropy = _entropy(campaign.seed, group, replicate)
        layouts = builds[group]
        build = layouts[int(np.random.default_rng([*entropy, 1]).integers(len(layouts)))]
        specs.append(
            RunSpec(
                group=group,
                replicate=replicate,
                seed=int(np.random.default_rng(entropy).integers(1 << 31)),
                build_key=build.key,
                binary=str(build.elf_path),
                arguments=arguments,
                stdin=stdin,
                files=tuple(sorted((guest, str(host)) for guest, host in campaign.program.files.items())),
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
    facts = {
        group: tuple(BuildFacts(one.key, one.static_instructions, one.warnings) for one in layouts)
        for group, layouts in builds.items()
    }
    keys = tuple(content_key(spec) for spec in shuffled)
    return Plan(campaign, machine_text, config.clock_hz, shuffled, keys, facts)


def _entropy(seed: int, group: str, replicate: int) -> list[int]:
    """Where a run's randomness comes from: not from other runs, so that adding runs leaves these as they are."""
    return [seed, replicate] if group == BASELINE else [seed, replicate, zlib.crc32(group.encode())]


def _input(program: Program) -> tuple[str | None, tuple[str, ...]]:
    """Standard input and arguments."""
    stdin = str(program.stdin) if program.stdin else None
    arguments = tuple(str(argument) for argument in program.args)
    if program.catalogue is None:
        return stdin, arguments
    spec = _catalogue_entry(program)
    if not arguments:
        arguments = spec.arguments_for(program.size or "medium")
    return stdin or (str(spec.stdin) if spec.stdin else None), arguments


def _catalogue_entry(program: Program) -> ProgramSpec:
    from measure.errors import nearest
    from measure.programs import load_catalogue

    assert program.catalogue_file is not None
    catalogue = load_catalogue(program.catalogue_file)
    if program.catalogue not in catalogue:
        hint = nearest(str(program.catalogue), catalogue)
        raise CampaignError(f"{program.catalogue_file}: no program '{program.catalogue}'{hint}")
    return catalogue[program.catalogue]


def _code_offsets(campaign: Campaign) -> list[int]:
    """Code offsets in bytes, one a layout: the first 0, the others even and below 4 KiB."""
    rng = np.random.default_rng([campaign.seed, 2])
    return [0, *(2 * (1 + rng.permutation(2046)[: campaign.noise.code_layouts - 1])).tolist()]


def _build_all(
    campaign: Campaign, document: Document, clock_hz: int, notify: Callable[[str], None]
) -> dict[str, tuple[Build, ...]]:
    from instrumenter.build import SamplerConfig, build_program
    from instrumenter.errors import InstrumenterError, SpecError, ToolchainError

    program = campaign.program
    flags, libraries = list(program.flags), [f"-l{name}" for name in program.libraries]
    if program.catalogue:
        from measure.programs import ensure_sources

        entry = _catalogue_entry(program)
        sources = ensure_sources(entry)
        flags += entry.compiler_flags()
        libraries += entry.linker_flags()
    else:
        sources = [program.source] if program.source else list(program.sources)
    sampler = None
    if campaign.sampling.mode == "signal":
        nanoseconds = round(campaign.sampling.interval[0] * 1e9 / clock_hz)
        sampler = SamplerConfig(max(1, nanoseconds), len(campaign.hardware_metrics))
    builds = {}
    for group, metrics in {BASELINE: (), **campaign.variant_sets()}.items():
        try:
            builds[group] = tuple(
                build_program(
                    sources, flags, {metric: campaign.software_metrics[metric] for metric in metrics},
                    sampler=sampler, libraries=libraries, placement=campaign.placement,
                    volatile=campaign.volatile, code_offset_bytes=offset, notify=notify,
                )
                for offset in _code_offsets(campaign)
            )  # fmt: skip
        except SpecError as error:
            metric = next((m for m in metrics if f"'{m}'" in str(error)), None)
            where = document.where("software_metrics", metric) if metric else str(document.path)
            raise CampaignError(f"{where}: {error}") from None
        except ToolchainError as error:
            raise MeasureError(str(error)) from None
        except InstrumenterError as error:
            raise CampaignError(f"{document.where('program')}: {error}") from None
    return builds
