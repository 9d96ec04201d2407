"""Turns a campaign into its runs: builds programs, draws seeds, and interleaves the runs.

`measure.runs.executor` makes the runs, `measure.runs.plan_file` keeps a plan beside its results.
"""

from __future__ import annotations

import functools
import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from common.source_digest import source_digest
from common.yaml_document import YamlDocument
from instrumenter.spec.software_metrics import MetricSpec
from measure.console.command_words import words_of_campaign
from measure.errors import CampaignError, TakesTurnsError
from measure.programs.catalogue import ensure_project
from measure.run_types import BASELINE, HOST, NULL_CONTROL, RECORD_FLAGS, CounterPlace, RunNoise, RunSpec
from measure.runs.builds import BuildFacts, Builds, catalogue_entry, shifted_layouts
from measure.runs.campaign_model import EACH_RUN, Campaign, Program
from measure.runs.looks import History, first_look
from measure.runs.machine_kind import uncounted_metrics
from measure.runs.variance import redrawn, sources_of
from measure.targets import target_sources

if TYPE_CHECKING:
    from emulator.timing.machine_config import MachineConfig


@dataclass(frozen=True)
class Plan:
    """All runs of a campaign in the order of their execution, and the program of each variant.

    ``keys``: `content_keys` of the specs; ``builds``: by variant, one per code layout in use; ``campaign_file``: path
    of the campaign file; ``history``: its design and the looks at its results; ``settings``: changes of the file's
    values by ``--set``, each ``KEY=VALUE``; ``second_builds``: programs that count in second runs, by variant;
    ``program_digest``: hash of what the program without counters is made from, "" where it is not known.
    """

    campaign: Campaign
    machine_text: str
    clock_hz: int
    specs: tuple[RunSpec, ...]
    keys: tuple[str, ...]
    builds: dict[str, tuple[BuildFacts, ...]]
    campaign_file: str
    history: History
    settings: tuple[str, ...]
    second_builds: dict[str, tuple[BuildFacts, ...]] = field(default_factory=dict)
    program_digest: str = ""

    @property
    def campaign_words(self) -> str:
        """The campaign file and the settings that it was run with, as a command line has them."""
        return words_of_campaign(self.campaign_file, self.settings)


def content_keys(specs: Sequence[RunSpec]) -> tuple[str, ...]:
    """For each run, the hash of everything that its trace depends on: its input files and its target's code included.

    Each input file is read once.
    """
    return versioned_keys(specs, drawn_keys(specs))


def versioned_keys(specs: Sequence[RunSpec], drawn: Sequence[str]) -> tuple[str, ...]:
    """The `content_keys` of runs whose `drawn_keys` are ``drawn``."""
    return tuple(_key(f"{key} {_target_digest(spec.target)}") for spec, key in zip(specs, drawn, strict=True))


def drawn_keys(specs: Iterable[RunSpec]) -> tuple[str, ...]:
    """For each run, the hash of what was drawn and chosen for it: of everything but its target's code."""

    @functools.cache
    def file_hash(path: str) -> str:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()

    def key(spec: RunSpec) -> str:
        identity = spec.identity()
        identity["stdin"] = file_hash(spec.stdin) if spec.stdin else None
        identity["files"] = [(guest, file_hash(host)) for guest, host in spec.files]
        return _key(json.dumps(identity, sort_keys=True, separators=(",", ":")))

    return tuple(key(spec) for spec in specs)


def _key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@functools.cache
def _target_digest(target: str) -> str:
    """Hash of the sources of ``target``: runs of one version are not mixed with those of another."""
    return source_digest(target_sources(target))


def checked_machine(
    campaign: Campaign, document: YamlDocument, *, by_counters: bool = True
) -> tuple[str, MachineConfig]:  # fmt: skip
    """The description of the campaign's machine, as text and parsed; ``by_counters``: see `select_metrics`.

    Raises `CampaignError` for a description that is not valid, and for hardware metrics that the machine cannot count.
    """
    from emulator.errors import EmulatorError
    from emulator.pmu import PmuError, TooManyEventsError, select_metrics
    from emulator.timing.machine_file import machine_text, parse_machine

    try:
        text = machine_text(campaign.machine_file)
        config = parse_machine(text, campaign.machine_name)
    except EmulatorError as error:
        raise CampaignError(str(error)) from None
    try:
        select_metrics(campaign.hardware_metrics, config, by_counters=by_counters)
    except EmulatorError as error:
        names = campaign.hardware_metrics
        about = [n for n, name in enumerate(names) if isinstance(error, PmuError) and name == error.metric]
        split = "; `measure partition` splits them" if isinstance(error, TooManyEventsError) else ""
        # Of a metric that is given twice, the second time is wrong.
        raise CampaignError(f"{document.where('hardware_metrics', *about[-1:])}: {error}{split}") from None
    return text, config


def checked_any_machine(campaign: Campaign, document: YamlDocument, target: str) -> tuple[str, int]:
    """The description of the campaign's machine, emulated or the host, as text, and its clock [Hz].

    ``target``: makes the runs. Raises as `checked_machine`, on the host with everything that is missing.
    """
    if campaign.host is None:
        text, config = checked_machine(campaign, document, by_counters=target != "cycleclose")
        return text, config.clock_hz
    from measure.host.description import NANOSECONDS_HZ, host_text

    if uncounted := uncounted_metrics(campaign, document):
        raise CampaignError("\n".join([*uncounted, "`measure metrics host` lists what this machine counts"]))
    try:
        return host_text(campaign.host.cpu), NANOSECONDS_HZ
    except ValueError as error:
        raise CampaignError(f"{document.where('machine', 'cpu')}: {error}") from None


def make_plan(
    campaign: Campaign,
    document: YamlDocument,
    notify: Callable[[str], None],
    target: str = "emulated",
    begin: Callable[[bool], None] = lambda lacks_library: None,
) -> Plan:
    """Check the campaign against machine and program, build every variant's program, and list the runs.

    ``begin`` is called before the first build, if one is needed (`Builds`). Raises `CampaignError` for unknown metrics
    and for programs that do not build, `MeasureError` when the compiler itself does not work.
    """
    machine_text, clock_hz = checked_any_machine(campaign, document, target)
    target = HOST if campaign.host is not None and target == "emulated" else target
    stdin, arguments, files = program_input(campaign.program)
    numbered = [(BASELINE, n) for n in range(campaign.baselines)]
    variants = [*campaign.variant_sets(), *([NULL_CONTROL] if campaign.has_controls else [])]
    numbered += [(variant, n) for variant in variants for n in range(campaign.replicates)]
    builds = Builds(campaign, document, clock_hz, notify, begin)
    drawn = _layouts(campaign, numbered, builds)
    builds.make([(variant, layout.number) for (variant, _), layout in zip(numbered, drawn, strict=True)])
    _check_second_runs(campaign, document, target)
    specs = []
    interval, unit = campaign.sampling.interval
    for (variant, replicate), layout in zip(numbered, drawn, strict=True):
        entropy = _entropy(campaign, variant, replicate)
        build = builds[variant, layout.number]
        specs.append(
            RunSpec(
                variant=variant,
                replicate=replicate,
                seed=int(np.random.default_rng(entropy).integers(1 << 31)),
                build_key=build.key,
                binary=str(build.elf_path),
                arguments=arguments,
                stdin=stdin,
                files=tuple(sorted((guest, str(host)) for guest, host in files.items())),
                machine=machine_text,
                machine_name=campaign.machine_name,
                hardware_metrics=campaign.hardware_metrics,
                counters=tuple(
                    CounterPlace(metric, at.symbol, at.offset_bytes) for metric, at in build.counters.items()
                ),
                sampling_mode=campaign.sampling.mode,
                interval=interval,
                interval_unit=unit,
                noise=RunNoise(**campaign.noise.model_dump()),
                limit_instructions=campaign.limits.instructions,
                exit_status=campaign.program.exit_status,
                program_name=campaign.program.started_as,
                target=target,
                extra_columns=RECORD_FLAGS if target == HOST else (),
                limit_seconds=campaign.limits.seconds if target == HOST else None,
                layout_seed=layout.seed,
                sampled=sampled_counters(campaign.software_metrics, tuple(build.counters)),
            )
        )
    if target == "emulated":
        specs = _with_second_runs(_with_probes(specs, builds, drawn, campaign), builds, drawn, campaign, document)
    specs += _noise_runs(specs, campaign.variance_runs)
    ordered = interleaved(specs, campaign.seed)
    design_keys = drawn_keys(ordered)
    keys = versioned_keys(ordered, design_keys)
    facts, second_facts = builds.facts(), builds.second_facts()
    # Another version of the target makes all runs again, but draws nothing anew: that is no further look.
    history = first_look(campaign, machine_text, design_keys, facts, second_facts)
    path = str(document.path.resolve())
    return Plan(
        campaign, machine_text, clock_hz, ordered, keys, facts, path, history, document.settings, second_facts,
        builds.program_digest,
    )  # fmt: skip


def _noise_runs(specs: Sequence[RunSpec], count: int) -> list[RunSpec]:
    """Of the first ``count`` baselines, a run with each source of noise drawn anew."""
    baselines = [spec for spec in specs if spec.variant == BASELINE][:count]
    return [redrawn(spec, source) for spec in baselines for source in sources_of(spec)]


def interleaved(specs: Sequence[RunSpec], seed: int) -> tuple[RunSpec, ...]:
    """``specs`` in the order of their execution: blocks with an equal share of each variant, random inside a block.

    There is a block for each run of the variant with the fewest. What drifts while runs are made then hits all
    variants alike, and when the work stops early, every variant has about as many runs as the others.
    """
    counts = Counter(spec.variant for spec in specs)
    blocks = min(counts.values(), default=1)
    rank: Counter[str] = Counter()
    places = []
    for spec in sorted(specs, key=lambda spec: spec.replicate):
        places.append((rank[spec.variant] * blocks // counts[spec.variant], spec))
        rank[spec.variant] += 1
    within = np.random.default_rng([seed, 4]).permutation(len(places)).tolist()
    order = sorted(range(len(places)), key=lambda n: (places[n][0], within[n]))
    return tuple(places[n][1] for n in order)


def _with_probes(
    specs: Sequence[RunSpec], builds: Builds, layouts: Sequence[_Layout], campaign: Campaign
) -> list[RunSpec]:
    """The specs, in which the counters of metrics with ``method: probe`` are unseen."""
    probed = _probed(campaign)
    if not probed:
        return list(specs)
    from measure.program_code.unseen_counters import UnseenCounters

    unseen = UnseenCounters()
    found = []
    with TemporaryDirectory(prefix="perturbation-plan-") as name:
        for spec, layout in zip(specs, layouts, strict=True):
            mine = [counter.metric for counter in spec.counters if counter.metric in probed]
            if mine:
                build = builds[BASELINE, layout.number]
                plain = replace(spec, binary=str(build.elf_path), build_key=build.key)
                unseen.code(replace(spec, layout_seed=None), mine)  # has debug information, which other layouts lack
                placed, plain_placed = (_placed(one, Path(name)) for one in (spec, plain))
                unread = tuple(mine) if spec.sampling_mode == "signal" else ()
                spec = replace(spec, unread=unread, intervention=unseen.intervention(placed, plain_placed, mine))
            found.append(spec)
    return found


def _placed(spec: RunSpec, folder: Path) -> RunSpec:
    """``spec`` with its program as it is run, in ``folder``, so that its addresses can be referred to."""
    if spec.layout_seed is None:
        return spec
    from measure.targets.program_file import program_of

    path = folder / f"{spec.build_key}-{spec.layout_seed}"
    if not path.exists():
        path.write_bytes(program_of(spec))
    return replace(spec, binary=str(path), layout_seed=None)


def _check_second_runs(campaign: Campaign, document: YamlDocument, target: str) -> None:
    """Raises `CampaignError` for metrics that a second run counts, on a target that makes none."""
    for metric in campaign.in_second_run(tuple(campaign.software_metrics)) if target == "cycleclose" else ():
        where = document.where("software_metrics", metric, "method")
        raise CampaignError(f"{where}: a cycle-close trace has no second run: use a counter (leave the key out)")


def no_second_run(metric: str, document: YamlDocument, error: TakesTurnsError) -> CampaignError:
    """The error of a campaign that counts ``metric`` in a second run, which ``error`` rules out."""
    where = document.where("software_metrics", metric, "method")
    return CampaignError(f"{where}: got method second_run for {metric}, but {error}")


def _with_second_runs(
    specs: Sequence[RunSpec], builds: Builds, layouts: Sequence[_Layout], campaign: Campaign, document: YamlDocument
) -> list[RunSpec]:
    """The specs, in which metrics with ``method: second_run`` are counted so. Raises `MeasureError` when a run that
    compares the programs fails, and `CampaignError` when it starts threads or processes."""
    if not campaign.in_second_run(tuple(campaign.software_metrics)):
        return list(specs)
    from measure.program_code.shared_code import SecondRuns

    second_runs = SecondRuns()
    sets = campaign.variant_sets()
    first = next(spec for spec in specs if spec.variant == BASELINE)
    found = []
    for spec, layout in zip(specs, layouts, strict=True):
        build = builds.second_program(spec.variant)
        if build is not None:
            measured = builds[spec.variant, layout.number]
            compared = replace(first, binary=str(measured.elf_path), build_key=measured.key, layout_seed=None)
            second = replace(
                compared,
                variant=spec.variant,
                binary=str(build.elf_path),
                build_key=build.key,
                counters=tuple(CounterPlace(m, at.symbol, at.offset_bytes) for m, at in build.counters.items()),
            )
            metrics = sets[spec.variant]
            try:
                spec = second_runs.spec(spec, compared, second, metrics)
            except TakesTurnsError as error:
                raise no_second_run(campaign.in_second_run(metrics)[0], document, error) from None
        found.append(spec)
    return found


def sampled_counters(specs: Mapping[str, MetricSpec], counted: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Those of the metrics ``counted`` that count every Nth event, with N."""
    return tuple((metric, n) for metric in counted if (n := specs[metric].sampled) is not None)


def _probed(campaign: Campaign) -> set[str]:
    """The software metrics with ``method: probe``."""
    return {metric for metric, spec in campaign.software_metrics.items() if spec.method == "probe"}


def _entropy(campaign: Campaign, variant: str, replicate: int) -> list[int]:
    """Seed of a run's random numbers; independent of other runs, so that adding runs changes no other run.

    In a paired campaign it is the same for all runs of a replicate.
    """
    if campaign.pairs or variant == BASELINE:
        return [campaign.seed, replicate]
    return [campaign.seed, replicate, zlib.crc32(variant.encode())]


class _Layout(NamedTuple):
    """A code layout: number of the build, and ``seed`` of the order in which the run links it (None: as built)."""

    number: int
    seed: int | None


def _layouts(campaign: Campaign, runs: Sequence[tuple[str, int]], builds: Builds) -> list[_Layout]:
    """The code layout of each of ``runs``, pairs of variant and replicate."""
    each_run = campaign.noise.code_layouts == EACH_RUN
    relinked = each_run and builds.relinkable(dict.fromkeys(variant for variant, _ in runs))
    found = []
    for variant, replicate in runs:
        rng = np.random.default_rng([*_entropy(campaign, variant, replicate), 1])
        if relinked:
            found.append(_Layout(0, int(rng.integers(1 << 31))))
        else:
            found.append(_Layout(int(rng.integers(shifted_layouts(campaign))), None))
    return found


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
