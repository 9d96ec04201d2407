"""From a campaign to its runs: builds, seeds, and a random order."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from measure.campaign import Campaign, Program
from measure.errors import CampaignError
from measure.types import BASELINE, RunSpec
from measure.yaml_positions import Document

if TYPE_CHECKING:
    from instrumenter.build import Build
    from measure.programs import ProgramSpec


@dataclass(frozen=True)
class Plan:
    """All runs of a campaign in the order in which they are to be made, and the program of each group."""

    campaign: Campaign
    machine_text: str
    clock_hz: int
    specs: tuple[RunSpec, ...]
    builds: dict[str, tuple[Build, ...]]  # by group, one a code layout


def content_key(spec: RunSpec) -> str:
    """Hash of everything that the run's trace depends on, its input files included."""
    identity = spec.identity()
    identity["stdin"] = _file_hash(spec.stdin) if spec.stdin else None
    identity["files"] = [(guest, _file_hash(host)) for guest, host in spec.files]
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _file_hash(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def make_plan(campaign: Campaign, document: Document, notify: Callable[[str], None]) -> Plan:
    """Check the campaign against machine and program, build every group's program, and list the runs.

    Raises `CampaignError` for metrics that do not exist and for programs that do not build.
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
    rng = np.random.default_rng(campaign.seed)
    groups = [(BASELINE, n) for n in range(campaign.baselines)]
    groups += [(v, n) for v in campaign.variant_sets() for n in range(campaign.replicates)]
    specs = []
    interval, unit = campaign.sampling.interval
    for number, (group, replicate) in enumerate(groups):
        layouts = builds[group]
        build = layouts[int(np.random.default_rng([campaign.seed, number, 1]).integers(len(layouts)))]
        specs.append(
            RunSpec(
                group=group,
                replicate=replicate,
                seed=int(np.random.default_rng([campaign.seed, number]).integers(1 << 31)),
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
            )
        )
    order = rng.permutation(len(specs))
    return Plan(campaign, machine_text, config.clock_hz, tuple(specs[n] for n in order), builds)


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
    from instrumenter.errors import InstrumenterError, SpecError

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
        except InstrumenterError as error:
            raise CampaignError(f"{document.where('program')}: {error}") from None
    return builds
