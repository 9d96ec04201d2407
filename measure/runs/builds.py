"""Builds the programs of a campaign: each variant's, in the code layouts that its runs use, several at once.

`measure.runs.plan` draws the layout of each run; `instrumenter` builds a program.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from common.suggestions import nearest
from common.yaml_document import YamlDocument
from measure.console.worker_pool import end_now, ending_with_worker, worker_pool
from measure.errors import CampaignError, MeasureError
from measure.run_types import BASELINE, NULL_CONTROL
from measure.runs.build_notices import PendingBuild, SecondRunOf, no_outputs, numbered, program_name, waiting
from measure.runs.campaign_model import EACH_RUN, Campaign, Program

if TYPE_CHECKING:
    from instrumenter.building.program_build import AnySampler, Build, CompiledProgram, Recipe
    from instrumenter.projects.project import Project, ProjectRecipe
    from instrumenter.spec.software_metrics import MetricSpec
    from measure.programs.catalogue import ProgramSpec

_TOO_FEW_FOR_PROCESSES = 4
InLayout: TypeAlias = tuple[str | SecondRunOf, int]
"""A program, of a variant or of its second run, and the number of its code layout."""
SHIFTED_LAYOUTS = 16  # of a program that cannot be linked anew for each run


@dataclass(frozen=True)
class BuildFacts:
    """Facts about a built program for the report. ``warnings``, ``notices``: as of `Build`."""

    key: str
    static_instructions: int
    warnings: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()


def catalogue_entry(program: Program) -> ProgramSpec:
    """The catalogue's entry of a program. Raises `CampaignError` for an unknown name."""
    from measure.programs.catalogue import load_catalogue

    assert program.catalogue_file is not None
    catalogue = load_catalogue(program.catalogue_file)
    if program.catalogue not in catalogue:
        hint = nearest(str(program.catalogue), catalogue)
        raise CampaignError(f"{program.catalogue_file}: no program '{program.catalogue}'{hint}")
    return catalogue[program.catalogue]


def code_offsets(campaign: Campaign) -> list[int]:
    """Code offsets in bytes, one per layout: the first 0, the others even and below 4 KiB.

    The layouts of a campaign with a layout for each run are orders of the linker; its offsets serve programs that
    cannot be linked anew.
    """
    rng = np.random.default_rng([campaign.seed, 2])
    count = shifted_layouts(campaign)
    return [0, *(2 * (1 + rng.permutation(2046)[: count - 1])).tolist()]


def shifted_layouts(campaign: Campaign) -> int:
    """Number of layouts that differ in their code offset."""
    count = campaign.noise.code_layouts
    return count if isinstance(count, int) else SHIFTED_LAYOUTS


class Builds:
    """The programs of one campaign, each of a variant or of its second run; each is built on first use and kept in the
    cache of builds.

    ``begin`` is called before the first program is built that the cache does not have, with `lacks_library`.
    """

    def __init__(
        self, campaign: Campaign, document: YamlDocument, clock_hz: int, notify: Callable[[str], None],
        begin: Callable[[bool], None] = lambda lacks_library: None,
    ) -> None:  # fmt: skip
        self._campaign, self._document, self._notify, self._begin = campaign, document, notify, begin
        self._recipe = _recipe(campaign, document, clock_hz, notify)
        self._offsets = code_offsets(campaign)
        self._metrics: dict[str | SecondRunOf, tuple[str, ...]] = {BASELINE: ()}
        for variant, metrics in campaign.variant_sets().items():
            second = campaign.in_second_run(metrics)
            self._metrics[variant] = tuple(metric for metric in metrics if metric not in second)
            if second:
                self._metrics[SecondRunOf(variant)] = second
        self._metrics[NULL_CONTROL] = ()
        self._made: dict[InLayout, Build] = {}

    def __getitem__(self, wanted: InLayout) -> Build:
        """A program in a layout. Raises as `make`."""
        if wanted not in self._made:
            self.make([wanted])
        return self._made[wanted]

    def missing(self, wanted: Sequence[InLayout]) -> list[InLayout]:
        """Those of ``wanted`` that are not in the cache."""
        missing = []
        for program, layout in dict.fromkeys(wanted):
            found = self._recipe_of(program).find(self._specs(program), self._offsets[layout])
            if found is None:
                missing.append((program, layout))
            else:
                self._made[program, layout] = found
        return missing

    def make(self, wanted: Sequence[InLayout], workers: int | None = None) -> None:
        """Build those of ``wanted`` that are not in the cache.

        Raises `CampaignError` for errors in the sources or a metric, `MeasureError` for errors of the compiler.
        """
        make_all([(self, wanted)], workers)

    @property
    def lacks_library(self) -> bool:
        """Whether a C library is missing that another process can make while the programs' sources are compiled."""
        from instrumenter.building.program_build import Recipe

        return isinstance(self._recipe, Recipe) and self._recipe.lacks_library

    def compiled(self, wanted: InLayout) -> AbstractContextManager[CompiledProgram]:
        """A program in a layout, of a list of sources, before its link."""
        from instrumenter.building.program_build import Recipe

        recipe, specs, offset = self._ordered(wanted)
        assert isinstance(recipe, Recipe)
        return recipe.compiled(specs, offset, self._notify)

    def _specs(self, program: str | SecondRunOf) -> dict[str, MetricSpec]:
        specs = {metric: self._campaign.software_metrics[metric] for metric in self._metrics[program]}
        if isinstance(program, SecondRunOf):  # the same program as for counters that are timed
            return {metric: spec.model_copy(update={"method": "counter"}) for metric, spec in specs.items()}
        return specs

    def second_program(self, variant: str) -> Build | None:
        """The program that counts for ``variant`` in a second run, None without metrics for it. Raises as `make`."""
        program = SecondRunOf(variant)
        return self[program, 0] if program in self._metrics else None

    def _recipe_of(self, program: str | SecondRunOf) -> Recipe | ProjectRecipe:
        return self._recipe.with_null_control() if program == NULL_CONTROL else self._recipe

    def _ordered(self, wanted: InLayout) -> tuple[Recipe | ProjectRecipe, dict[str, MetricSpec], int]:
        program, layout = wanted
        return self._recipe_of(program), self._specs(program), self._offsets[layout]

    def _outputs(self, wanted: InLayout) -> Callable[[], Sequence[Path]]:
        """Gives the files with what the build of a program prints; none of a list of sources."""
        from instrumenter.projects.project import ProjectRecipe

        recipe, specs, offset = self._ordered(wanted)
        return partial(recipe.outputs, specs, offset) if isinstance(recipe, ProjectRecipe) else no_outputs

    def _collect(self, wanted: InLayout, build: Callable[[], Build]) -> None:
        """Collect a built program; raise a failure in the campaign's terms, with file and line."""
        with self._failures():
            self._made[wanted] = build()

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Within it, failures of a build are raised in the campaign's terms."""
        from instrumenter.errors import InstrumenterError, SpecError, ToolchainError

        try:
            yield
        except SpecError as error:
            metric = error.metric
            where = self._document.where("software_metrics", metric) if metric else str(self._document.path)
            raise CampaignError(f"{where}: {error}") from error
        except ToolchainError as error:
            raise MeasureError(str(error)) from None
        except InstrumenterError as error:
            raise CampaignError(f"{self._where_program()}: {error}") from error
        except BrokenProcessPool:
            raise MeasureError("a build process was ended from outside: start again") from None

    def _where_program(self) -> str:
        """``file:line`` of the campaign's description of the build."""
        build = ("build",) if self._campaign.program.build is not None else ()
        return self._document.where("program", *build)

    def relinkable(self, variants: Iterable[str]) -> bool:
        """Whether the programs of all ``variants`` can be linked anew for each run. Raises as `make`."""
        variants = tuple(variants)
        self.make([(variant, 0) for variant in variants])
        return all(self._made[variant, 0].relinkable for variant in variants)

    def facts(self) -> dict[str, tuple[BuildFacts, ...]]:
        """For each variant, the facts of each layout that was built."""
        found = {program: self._facts(program) for program in self._metrics if isinstance(program, str)}
        return {variant: facts for variant, facts in found.items() if facts or variant != NULL_CONTROL}

    @property
    def program_digest(self) -> str:
        """Hash of what the program without counters is made from, wherever that lies."""
        return self._recipe.program_digest

    def second_facts(self) -> dict[str, tuple[BuildFacts, ...]]:
        """For each variant whose second run has a program that was built, the facts of it."""
        programs = [program for program in self._metrics if isinstance(program, SecondRunOf)]
        return {program.variant: facts for program in programs if (facts := self._facts(program))}

    def _facts(self, wanted: str | SecondRunOf) -> tuple[BuildFacts, ...]:
        """The facts of each layout of a program that was built."""
        built = {layout: build for (program, layout), build in self._made.items() if program == wanted}
        return tuple(
            BuildFacts(build.key, build.static_instructions, build.warnings, build.notices)
            for _, build in sorted(built.items())
        )


Wanted = Sequence[tuple[Builds, Sequence[InLayout]]]


def make_all(wanted: Wanted, workers: int | None = None, pool: ProcessPoolExecutor | None = None) -> None:
    """Build, for each `Builds` of ``wanted``, those programs that are not in the cache: all of them
    in the processes of ``pool``, which the caller ends, or else in ``workers`` own ones (default: one a processor).

    Raises as `Builds.make`.
    """
    missing = [(builds, one) for builds, chosen in wanted for one in builds.missing(chosen)]
    if not missing:
        return
    for builds in dict.fromkeys(builds for builds, _ in missing):
        builds._begin(builds.lacks_library)
    if pool is None:
        # The first alone: it shows most mistakes, and builds the C library if that is missing.
        few = len(missing) <= _TOO_FEW_FOR_PROCESSES
        _build_here(missing, len(missing) if few else 1)
        if few:
            return
        missing = missing[1:]
        builds._notify(f"Building {len(missing) + 1} programs, one for each set of counters and code layout")
        with worker_pool(min(len(missing), workers or os.cpu_count() or 1)) as own:
            try:
                _build_in(own, missing, built=1)
            except Exception:
                own.shutdown(wait=False, cancel_futures=True)
                raise
            except BaseException:
                end_now(own)
                raise
        return
    _build_in(pool, missing)


def _build_here(missing: Sequence[tuple[Builds, InLayout]], count: int) -> None:
    """Build the first ``count`` of ``missing`` in this process, one after another.

    While the C library is not there, which another process may make, sources are compiled, and linked afterwards.
    """
    names = [program_name(*one) for _, one in missing]
    with ExitStack() as kept:
        links: dict[int, Callable[[], Build]] = {}  # by number
        for number, (builds, one) in enumerate(missing[:count]):
            if builds.lacks_library:
                with waiting(builds._notify, [PendingBuild(numbered(names, number))]), builds._failures():
                    links[number] = kept.enter_context(builds.compiled(one)).link
        for number, (builds, one) in enumerate(missing[:count]):
            about = numbered(names, number)
            build = links.get(number) or partial(_build_with, *builds._ordered(one), builds._notify, about)
            with waiting(builds._notify, [PendingBuild(about, builds._outputs(one))]):
                builds._collect(one, build)


def _build_in(pool: ProcessPoolExecutor, missing: Sequence[tuple[Builds, InLayout]], built: int = 0) -> None:
    """Build all of ``missing`` in ``pool``; what has not begun when one fails is cancelled. ``built``: number of
    programs that were built before them."""
    futures: dict[int, Future[Build]] = {}  # by their number in ``missing``
    pending = [
        PendingBuild(program_name(*one), builds._outputs(one), partial(_has_ended, futures, number))
        for number, (builds, one) in enumerate(missing)
    ]
    numbered_builds = list(enumerate(missing))
    try:
        with waiting(missing[0][0]._notify, pending, built):
            for shifted in (False, True):  # which are linked from the objects of the unshifted programs
                group = [each for each in numbered_builds if bool(each[1][0]._offsets[each[1][1][1]]) == shifted]
                futures.update((number, pool.submit(_build, *builds._ordered(one))) for number, (builds, one) in group)
                for number, (builds, one) in group:
                    builds._collect(one, futures[number].result)
    except BaseException:
        for future in futures.values():
            future.cancel()
        raise


def _has_ended(futures: Mapping[int, Future[Build]], number: int) -> bool:
    return number in futures and futures[number].done()


def _build_with(
    recipe: Recipe | ProjectRecipe,
    metrics: dict[str, MetricSpec],
    code_offset_bytes: int,
    notify: Callable[[str], None],
    about: str,
) -> Build:
    """Build a program; ``about``: its name in messages."""
    from instrumenter.projects.project import ProjectRecipe

    if isinstance(recipe, ProjectRecipe):
        return recipe.build(metrics, code_offset_bytes, notify, about)
    return recipe.build(metrics, code_offset_bytes, notify)


def _build(recipe: Recipe | ProjectRecipe, metrics: dict[str, MetricSpec], code_offset_bytes: int) -> Build:
    """In a worker: build a program."""
    with ending_with_worker():
        return recipe.build(metrics, code_offset_bytes)


def _recipe(
    campaign: Campaign, document: YamlDocument, clock_hz: int, notify: Callable[[str], None]
) -> Recipe | ProjectRecipe:
    """The recipe of the campaign's program: a project with its own build, or a list of sources."""
    from instrumenter.building.program_build import HostSamplerConfig, SamplerConfig
    from instrumenter.compiler.toolchain import GUEST_TARGET, HOST_TARGET
    from instrumenter.errors import InstrumenterError, ToolchainError
    from instrumenter.projects.project import ProjectRecipe

    sampler: AnySampler | None = None
    target = GUEST_TARGET
    if campaign.host is not None:
        sampler, target = HostSamplerConfig(), HOST_TARGET
    elif campaign.sampling.mode == "signal":
        nanoseconds = round(campaign.sampling.interval[0] * 1e9 / clock_hz)
        sampler = SamplerConfig(max(1, nanoseconds), len(campaign.hardware_metrics))
    each_run = campaign.noise.code_layouts == EACH_RUN
    try:
        project = _project(campaign.program)
        if project is not None:
            return ProjectRecipe.of(project, sampler, campaign.placement, campaign.volatile, target, each_run)
        return _recipe_of_sources(campaign, sampler, target, notify)
    except ToolchainError as error:
        raise MeasureError(str(error)) from None
    except InstrumenterError as error:
        raise CampaignError(f"{document.where('program')}: {error}") from error


def _project(program: Program) -> Project | None:
    """The program as a project with its own build command, or None if it is a list of sources."""
    from instrumenter.projects.project import Project
    from measure.programs.catalogue import ensure_project

    if program.build is not None:
        assert program.directory is not None
        assert program.binary is not None
        return Project(program.directory, program.build, program.binary)
    entry = catalogue_entry(program) if program.catalogue else None
    if entry is None or entry.build is None:
        return None
    return Project(ensure_project(entry)[0], entry.build.command, entry.build.binary)


def _recipe_of_sources(
    campaign: Campaign, sampler: AnySampler | None, target: str, notify: Callable[[str], None]
) -> Recipe:
    """The recipe of a program given by its C files or by a catalogue entry with sources."""
    from instrumenter.building.generated_sources import preprocess_all
    from instrumenter.building.program_build import Recipe
    from instrumenter.compiler.toolchain import Toolchain

    program = campaign.program
    flags, libraries = list(program.flags), [f"-l{name}" for name in program.libraries]
    if program.catalogue:
        from measure.programs.catalogue import ensure_sources

        entry = catalogue_entry(program)
        sources = ensure_sources(entry)
        flags += entry.compiler_flags()
        libraries += entry.linker_flags()
    else:
        sources = [program.source] if program.source else list(program.sources)
    preprocessed = preprocess_all(sources, flags, Toolchain(target, notify))
    return Recipe(
        preprocessed, tuple(flags), tuple(libraries), sampler, campaign.placement, campaign.volatile, target,
        relinkable=campaign.noise.code_layouts == EACH_RUN,
    )  # fmt: skip
