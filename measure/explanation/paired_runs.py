"""Makes pairs of runs: the plain program and a changed one with the same seed and code layout, so that all noise that
they can share is shared."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np

from common.yaml_document import YamlDocument
from instrumenter.building.program_build import Build
from instrumenter.spec.software_metrics import MetricSpec
from measure.errors import MeasureError
from measure.explanation.outlook import Outlook
from measure.program_code.counter_code import CounterCode
from measure.program_code.shared_code import SecondRuns
from measure.program_code.unseen_counters import UnseenCounters
from measure.run_types import BASELINE, CounterPlace, Intervention, Run, RunSpec
from measure.runs.builds import Builds, make_all, shifted_layouts
from measure.runs.campaign_model import Campaign
from measure.runs.executor import Workers, execute_plan
from measure.runs.plan import Plan, content_keys, sampled_counters
from measure.runs.store import Store
from measure.stats.correlation import Correlations, spearman
from measure.targets.program_file import program_of

_STREAM = 18  # of random numbers, beside those of the campaign


@dataclass(frozen=True)
class ProgramChoice:
    """A program to run. ``metrics``: those that it counts; the other fields replace what the campaign says.

    ``specs``: other events for some metrics; ``sources``: edited and preprocessed sources, which are built
    with ``flags`` and ``libraries``; ``unseen``: metrics whose counters the machine does not see; ``second_run``:
    metrics that a second run counts.
    """

    metrics: tuple[str, ...] = ()
    specs: tuple[tuple[str, MetricSpec], ...] = ()
    placement: Literal["packed", "cache_line"] | None = None
    volatile: bool | None = None
    sources: tuple[Path, ...] = ()
    flags: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    sampling: Literal["ideal", "signal"] | None = None
    unseen: tuple[str, ...] = ()
    second_run: tuple[str, ...] = ()

    @property
    def programs(self) -> tuple[ProgramChoice, ...]:
        """The programs that its runs need: itself, or what is measured and what counts in a second run."""
        if not self.second_run:
            return (self,)
        rest = [metric for metric in self.metrics if metric not in self.second_run]
        return self.only(rest), replace(self, metrics=self.second_run, second_run=(), unseen=())

    def only(self, metrics: Collection[str]) -> ProgramChoice:
        """This choice with those of its metrics that are in ``metrics``, counted as here, in the same order."""
        kept = [tuple(m for m in some if m in metrics) for some in (self.metrics, self.unseen, self.second_run)]
        return replace(self, metrics=kept[0], unseen=kept[1], second_run=kept[2])

    def changed(self, campaign: Campaign) -> Campaign:
        """The campaign with this choice's settings, without variants."""
        changes: dict[str, Any] = {"variants": {}, "cumulative": None}
        metrics = campaign.software_metrics | dict(self.specs)
        metrics |= {name: metrics[name].model_copy(update={"method": "counter"}) for name in metrics}
        metrics |= {name: metrics[name].model_copy(update={"method": "probe"}) for name in self.unseen}
        changes["software_metrics"] = metrics
        for key in ("placement", "volatile"):
            if getattr(self, key) is not None:
                changes[key] = getattr(self, key)
        if self.sampling is not None:
            changes["sampling"] = campaign.sampling.model_copy(update={"mode": self.sampling})
        if self.sources:
            changes["program"] = campaign.program.model_copy(
                update={
                    "source": None,
                    "catalogue": None,
                    "sources": self.sources,
                    "flags": self.flags,
                    "libraries": self.libraries,
                }
            )
        return campaign.model_copy(update=changes)


PLAIN = ProgramChoice()


class PairedRuns:
    """Runs of a campaign's programs in pairs.

    ``plan``, ``document``: of the campaign; ``store``, ``workers``: where runs are kept and made; ``n_pairs``: pairs of
    runs, of which pair i always has the same seed and code layout. `outlook` is told of builds and runs.
    """

    def __init__(
        self, plan: Plan, document: YamlDocument, store: Store, workers: Workers, n_pairs: int,
        notify: Callable[[str], None] = lambda text: None,
    ) -> None:  # fmt: skip
        self.campaign, self.plan, self.n_pairs = plan.campaign, plan, n_pairs
        self._document, self._store, self._workers = document, store, workers
        self._notify = notify
        self.outlook = Outlook({}, 0, 0, workers.count)
        self._template = next(spec for spec in plan.specs if spec.variant == BASELINE)
        self._builds: dict[tuple[ProgramChoice, int], Build] = {}
        self._made: dict[RunSpec, Run] = {}
        self._relinks = self._template.layout_seed is not None
        self._linked = TemporaryDirectory(prefix="perturbation-explain-")  # until the last copy of this object is gone
        self._first_pair, self._next_pair = 0, n_pairs
        self._unseen = UnseenCounters()
        self._second_runs = SecondRuns()
        self.hardware = plan.campaign.hardware_metrics

    @property
    def n_runs(self) -> int:
        """Runs that were needed so far."""
        return len(self._made)

    def samples_by_signal(self, choice: ProgramChoice) -> bool:
        """Whether a sampler in the guest, which a timer calls, takes the records of ``choice``."""
        return (choice.sampling or self.campaign.sampling.mode) == "signal"

    def further(self, n_pairs: int) -> PairedRuns:
        """The same programs in ``n_pairs`` further pairs, whose noise these do not share."""
        found = copy(self)
        found.n_pairs, found._first_pair, found._next_pair = n_pairs, self._next_pair, self._next_pair + n_pairs
        return found

    def first(self, n_pairs: int) -> PairedRuns:
        """The first ``n_pairs`` of these pairs; its further pairs are those of all of them."""
        found = copy(self)
        found.n_pairs = n_pairs
        return found

    def seed(self, pair: int) -> int:
        """Seed of both runs of a pair."""
        number = self._first_pair + pair
        return int(np.random.default_rng([self.campaign.seed, _STREAM, number]).integers(1 << 31))

    def layout(self, pair: int) -> int:
        """Number of the build that both runs of a pair have: one of its own, as long as there are more; 0 for all where
        runs are linked anew."""
        return 0 if self._relinks else (self._first_pair + pair) % shifted_layouts(self.campaign)

    @property
    def layouts(self) -> list[int]:
        """Numbers of the builds that the runs of all pairs have, see `layout`."""
        return sorted({self.layout(pair) for pair in range(self.n_pairs)})

    def layout_seed(self, pair: int) -> int | None:
        """Order of functions and data in which both programs of a pair are linked; None: as they were built.

        Runs of the explanation vary as those of the campaign do. In layouts that only shift the code, plain runs are
        more alike than in the campaign, and what changes the code changes relations across runs by more.
        """
        if not self._relinks:
            return None
        number = self._first_pair + pair
        return int(np.random.default_rng([self.campaign.seed, _STREAM, number, 1]).integers(1 << 31))

    @property
    def stored(self) -> int:
        """Number of runs in the store; 0 if the first that is needed is not, as after a change of the emulator."""
        (key,) = content_keys([self.spec(PLAIN, 0)])
        return self._store.finished()[0] if self._store.trace_path(key).exists() else 0

    def build(self, choice: ProgramChoice, pair: int = 0) -> Build:
        """The program of a choice in the layout of a pair."""
        if (choice, self.layout(pair)) not in self._builds:
            self.build_all([choice])
        return self._builds[choice, self.layout(pair)]

    def build_all(self, choices: Sequence[ProgramChoice]) -> None:
        """Build what is missing, several at once. Raises `CampaignError` and `MeasureError` as `Builds`."""
        layouts = self.layouts
        needed = dict.fromkeys(program for choice in choices for program in choice.programs)
        missing = [one for one in needed if any((one, n) not in self._builds for n in layouts)]
        by_settings: dict[ProgramChoice, list[ProgramChoice]] = {}
        for choice in missing:
            by_settings.setdefault(replace(choice, metrics=()), []).append(choice)
        wanted = []
        for settings, alike in by_settings.items():
            names = {f"the program with {', '.join(choice.metrics)}": choice for choice in alike if choice.metrics}
            campaign = settings.changed(self.campaign)
            campaign = campaign.model_copy(
                update={
                    "variants": {name: choice.metrics for name, choice in names.items()}
                    or {"unused": tuple(campaign.software_metrics)[:1]}
                }
            )
            if settings in alike:  # the settings without metrics are the plain program's
                names[BASELINE] = settings
            wanted.append((Builds(campaign, self._document, self.plan.clock_hz, self._notify), names))
        programs = [(builds, [(name, n) for name in names for n in layouts]) for builds, names in wanted]
        if n_programs := sum(len(builds.missing(chosen)) for builds, chosen in programs):
            with self.outlook.building(n_programs):
                make_all(programs, self._workers.count, self._workers.local_pool)
        for builds, names in wanted:
            for name, choice in names.items():
                for layout in layouts:
                    self._builds[choice, layout] = builds[name, layout]

    def spec(self, choice: ProgramChoice, pair: int, intervention: Intervention | None = None) -> RunSpec:
        """The specification of one run."""
        if intervention is not None:
            return replace(self.placed(choice, pair), unread=self._unread(choice), intervention=intervention)
        if choice.second_run:
            first, second = choice.programs
            built = [replace(self._as_built(one, pair), seed=self._template.seed) for one in (first, second)]
            return self._second_runs.spec(self.spec(first, pair), built[0], built[1], choice.metrics)
        if choice.unseen:
            plain = self.placed(replace(choice, metrics=(), specs=(), unseen=()), pair)
            spec = self.placed(choice, pair)
            self.code(choice, pair, choice.unseen)
            intervention = self._unseen.intervention(spec, plain, choice.unseen)
            return replace(spec, unread=self._unread(choice), intervention=intervention)
        return replace(self._as_built(choice, pair), layout_seed=self.layout_seed(pair))

    def _unread(self, choice: ProgramChoice) -> tuple[str, ...]:
        """The counters of ``choice`` that no sampler in the guest reads, as it does not know them."""
        return choice.unseen if self.samples_by_signal(choice) else ()

    def placed(self, choice: ProgramChoice, pair: int) -> RunSpec:
        """The specification of a run without an intervention whose ``binary`` is the program as it is run, so that its
        addresses can be referred to."""
        spec, seed = self._as_built(choice, pair), self.layout_seed(pair)
        if seed is None:
            return spec
        path = Path(self._linked.name) / f"{spec.build_key}-{seed}"
        if not path.exists():
            path.write_bytes(program_of(replace(spec, layout_seed=seed)))
        return replace(spec, binary=str(path), build_key=f"{spec.build_key}-{seed}")

    def code(self, choice: ProgramChoice, pair: int, metrics: Collection[str]) -> CounterCode:
        """The code of the counters of ``metrics`` in the program of a pair."""
        self.code_as_built(choice, metrics)  # has debug information; in other layouts its code is found by moving it
        return self._unseen.code(self.placed(choice, pair), metrics)

    def code_as_built(self, choice: ProgramChoice, metrics: Collection[str]) -> CounterCode:
        """The code of the counters of ``metrics`` in the program that `build` returns."""
        return self._unseen.code(self._as_built(choice, 0), metrics)

    def _as_built(self, choice: ProgramChoice, pair: int) -> RunSpec:
        build = self.build(choice, pair)
        return replace(
            self._template,
            variant=BASELINE if not choice.metrics else "+".join(choice.metrics),
            replicate=self._first_pair + pair,
            seed=self.seed(pair),
            build_key=build.key,
            binary=str(build.elf_path),
            layout_seed=None,
            seldom=True,
            counters=tuple(CounterPlace(m, at.symbol, at.offset_bytes) for m, at in build.counters.items()),
            sampling_mode=choice.sampling or self.campaign.sampling.mode,
            sampled=sampled_counters(self.campaign.software_metrics | dict(choice.specs), tuple(build.counters)),
        )

    def make(self, specs: Sequence[RunSpec]) -> list[Run]:
        """The runs of ``specs``, made where they are not stored. Raises `MeasureError` when one fails."""
        missing = [spec for spec in dict.fromkeys(specs) if spec not in self._made]
        if missing:
            self.outlook.need(len(missing))
            outcome = execute_plan(
                missing, self._store, workers=self._workers, progress=self.outlook.advance,
                started=lambda to_do, there, at_once: self.outlook.found(there, to_do),
            )  # fmt: skip
            if outcome.failures:
                failure = outcome.failures[0]
                whose = "of the plain program" if failure.spec.variant == BASELINE else f"of {failure.spec.variant}"
                raise MeasureError(f"a run {whose} failed: {failure.reason}")
            self._made |= dict(zip(missing, outcome.runs, strict=True))
        return [self._made[spec] for spec in specs]

    def runs(self, choices: Sequence[ProgramChoice]) -> dict[ProgramChoice, list[Run]]:
        """The runs of each choice, a list with one a pair."""
        self.build_all(choices)
        wanted = list(dict.fromkeys(choices))
        specs = [self.spec(choice, pair) for choice in wanted for pair in range(self.n_pairs)]
        made = self.make(specs)
        n = self.n_pairs
        return {choice: made[index * n : (index + 1) * n] for index, choice in enumerate(wanted)}

    def correlations(self, runs: Sequence[Run]) -> list[Correlations]:
        """Correlations of the hardware metrics of each run."""
        return [spearman(run.trace.columns(self.hardware), self.hardware) for run in runs]
