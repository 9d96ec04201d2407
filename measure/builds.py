"""The programs of a campaign: each group's, in the code layouts that its runs draw, several built at once.

Which run draws which layout is left to `measure.plan`, how one program is made to `instrumenter`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from measure.campaign import Campaign, Program
from measure.errors import CampaignError, MeasureError, nearest
from measure.interrupts import TERMINATED, Terminated, terminable
from measure.processes import end_now, worker_pool
from measure.types import BASELINE
from measure.yaml_positions import Document

if TYPE_CHECKING:
    from instrumenter.build import Build, Recipe, SamplerConfig
    from instrumenter.project import Project, ProjectRecipe
    from instrumenter.spec import MetricSpec
    from measure.programs import ProgramSpec

_TOO_FEW_FOR_PROCESSES = 4


@dataclass(frozen=True)
class BuildFacts:
    """What a report says about a built program. ``warnings``: events that its counters may miss."""

    key: str
    static_instructions: int
    warnings: tuple[str, ...] = ()


def catalogue_entry(program: Program) -> ProgramSpec:
    """The catalogue's description of a program. Raises `CampaignError` for a name that is not there."""
    from measure.programs import load_catalogue

    assert program.catalogue_file is not None
    catalogue = load_catalogue(program.catalogue_file)
    if program.catalogue not in catalogue:
        hint = nearest(str(program.catalogue), catalogue)
        raise CampaignError(f"{program.catalogue_file}: no program '{program.catalogue}'{hint}")
    return catalogue[program.catalogue]


def code_offsets(campaign: Campaign) -> list[int]:
    """Code offsets in bytes, one a layout: the first 0, the others even and below 4 KiB."""
    rng = np.random.default_rng([campaign.seed, 2])
    return [0, *(2 * (1 + rng.permutation(2046)[: campaign.noise.code_layouts - 1])).tolist()]


class Builds:
    """The programs of one campaign, each made when it is first asked for and kept in the cache of builds."""

    def __init__(
        self, campaign: Campaign, document: Document, clock_hz: int, notify: Callable[[str], None]
    ) -> None:
        self._campaign, self._document, self._notify = campaign, document, notify
        self._recipe = _recipe(campaign, document, clock_hz, notify)
        self._offsets = code_offsets(campaign)
        self._metrics = {BASELINE: (), **campaign.variant_sets()}
        self._made: dict[tuple[str, int], Build] = {}

    def __getitem__(self, wanted: tuple[str, int]) -> Build:
        """The program of a group in a layout. Raises as `make` does."""
        if wanted not in self._made:
            self.make([wanted])
        return self._made[wanted]

    def make(self, wanted: Sequence[tuple[str, int]], workers: int | None = None) -> None:
        """Build what is missing of ``wanted``, pairs of group and layout.

        Raises `CampaignError` where the sources or a metric are at fault, `MeasureError` where the compiler is.
        """
        missing = []
        for group, layout in dict.fromkeys(wanted):
            found = self._recipe.find(self._specs(group), self._offsets[layout])
            if found is None:
                missing.append((group, layout))
            else:
                self._made[group, layout] = found
        if not missing:
            return
        # The first alone: it finds most mistakes, and makes the C library if that is still to be made.
        self._collect([missing[0]], [lambda: self._recipe.build(*self._ordered(missing[0]), self._notify)])
        others = missing[1:]
        if len(others) < _TOO_FEW_FOR_PROCESSES:
            self._collect(others, [partial(self._recipe.build, *self._ordered(one)) for one in others])
            return
        self._notify(f"Building {len(missing)} programs, one for each set of counters and code layout")
        count = min(len(others), workers or os.cpu_count() or 1)
        with worker_pool(count, _prepare_worker, (self._recipe,)) as pool:
            try:
                self._collect(others, [pool.submit(_build, *self._ordered(one)).result for one in others])
            except Exception:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            except BaseException:
                end_now(pool)
                raise

    def _specs(self, group: str) -> dict[str, MetricSpec]:
        return {metric: self._campaign.software_metrics[metric] for metric in self._metrics[group]}

    def _ordered(self, wanted: tuple[str, int]) -> tuple[dict[str, MetricSpec], int]:
        return self._specs(wanted[0]), self._offsets[wanted[1]]

    def _collect(self, wanted: Sequence[tuple[str, int]], builds: Sequence[Callable[[], Build]]) -> None:
        """Keep what is built; say in the campaign's terms why something is not."""
        from instrumenter.errors import InstrumenterError, SpecError, ToolchainError

        for (group, layout), build in zip(wanted, builds, strict=True):
            try:
                self._made[group, layout] = build()
            except SpecError as error:
                metric = next((m for m in self._metrics[group] if f"metric '{m}'" in str(error)), None)
                where = (
                    self._document.where("software_metrics", metric) if metric else str(self._document.path)
                )
                raise CampaignError(f"{where}: {error}") from None
            except ToolchainError as error:
                raise MeasureError(str(error)) from None
            except InstrumenterError as error:
                raise CampaignError(f"{self._where_program()}: {error}") from None
            except BrokenProcessPool:
                raise MeasureError("a process that builds was ended from outside: start again") from None

    def _where_program(self) -> str:
        """Where the campaign says how the program is made."""
        build = ("build",) if self._campaign.program.build is not None else ()
        return self._document.where("program", *build)

    def facts(self) -> dict[str, tuple[BuildFacts, ...]]:
        """By group, for each of its layouts that was built."""
        found: dict[str, list[BuildFacts]] = {group: [] for group in self._metrics}
        for (group, _), build in sorted(self._made.items(), key=lambda item: item[0][1]):
            found[group].append(BuildFacts(build.key, build.static_instructions, build.warnings))
        return {group: tuple(facts) for group, facts in found.items()}


_worker_recipe: Recipe | ProjectRecipe | None = None


def _prepare_worker(recipe: Recipe | ProjectRecipe) -> None:
    global _worker_recipe
    _worker_recipe = recipe


def _build(metrics: dict[str, MetricSpec], code_offset_bytes: int) -> Build:
    assert _worker_recipe is not None
    try:
        with terminable():  # for the compiler to be ended, too
            return _worker_recipe.build(metrics, code_offset_bytes)
    except Terminated:
        os._exit(TERMINATED)  # the next build that the pool has for this process is not wanted either


def _recipe(
    campaign: Campaign, document: Document, clock_hz: int, notify: Callable[[str], None]
) -> Recipe | ProjectRecipe:
    from instrumenter.build import SamplerConfig
    from instrumenter.errors import InstrumenterError, ToolchainError
    from instrumenter.project import ProjectRecipe

    sampler = None
    if campaign.sampling.mode == "signal":
        nanoseconds = round(campaign.sampling.interval[0] * 1e9 / clock_hz)
        sampler = SamplerConfig(max(1, nanoseconds), len(campaign.hardware_metrics))
    try:
        project = _project(campaign.program)
        if project is not None:
            return ProjectRecipe.of(project, sampler, campaign.placement, campaign.volatile)
        return _recipe_of_sources(campaign, sampler, notify)
    except ToolchainError as error:
        raise MeasureError(str(error)) from None
    except InstrumenterError as error:
        raise CampaignError(f"{document.where('program')}: {error}") from None


def _project(program: Program) -> Project | None:
    """The program as its own build makes it, or None if it is a list of sources."""
    from instrumenter.project import Project
    from measure.programs import ensure_project

    if program.build is not None:
        assert program.directory is not None
        assert program.binary is not None
        return Project(program.directory, program.build, program.binary)
    entry = catalogue_entry(program) if program.catalogue else None
    if entry is None or entry.build is None:
        return None
    return Project(ensure_project(entry)[0], entry.build.command, entry.build.binary)


def _recipe_of_sources(
    campaign: Campaign, sampler: SamplerConfig | None, notify: Callable[[str], None]
) -> Recipe:
    from instrumenter.build import Recipe, preprocess_all
    from instrumenter.toolchain import Toolchain

    program = campaign.program
    flags, libraries = list(program.flags), [f"-l{name}" for name in program.libraries]
    if program.catalogue:
        from measure.programs import ensure_sources

        entry = catalogue_entry(program)
        sources = ensure_sources(entry)
        flags += entry.compiler_flags()
        libraries += entry.linker_flags()
    else:
        sources = [program.source] if program.source else list(program.sources)
    preprocessed = preprocess_all(sources, flags, Toolchain(notify=notify))
    return Recipe(
        preprocessed, tuple(flags), tuple(libraries), sampler, campaign.placement, campaign.volatile
    )
