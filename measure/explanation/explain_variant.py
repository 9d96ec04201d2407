"""Explains one variant of a campaign: the metrics, the mechanisms, the compiler's decisions, and remedies."""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from measure.errors import MeasureError
from measure.explanation.added_counts import change_by_added_counts
from measure.explanation.compiler_decisions import compare_decisions
from measure.explanation.explanation_types import CAUSE, LEVEL, Explanation
from measure.explanation.keep_inlining import kept_inlining
from measure.explanation.mechanisms import COMPILER, find_mechanisms
from measure.explanation.metric_effects import MOST_SITES, MetricEffects
from measure.explanation.outlook import Effort, efforts
from measure.explanation.paired_runs import PLAIN, PairedRuns, ProgramChoice
from measure.explanation.relations import Relation, Relations, broken_relations, judged_changes, reproduction
from measure.explanation.remedies import CONFIRMING_PAIRS, try_remedies
from measure.explanation.remedy_candidates import candidates
from measure.perturbation.analysis_types import Perturbation, Verdict, gravest
from measure.program_code.counter_code import CounterCode, program_image
from measure.runs.campaign_model import Campaign

FIRST_PAIRS = 4
"""Pairs of runs after which the causes are looked at first. If one metric and one mechanism are shown to change most,
no more are made; the two looks share the error of that (Bonferroni)."""
_MOST_LINES = 12


@dataclass(frozen=True)
class VariantPerturbation:
    """A variant's perturbation within a run and across runs, None where runs were not aligned.

    ``instructions_percent``: mean instructions of its runs over those of the baselines, nan if they are not known.
    """

    inner: Perturbation
    outer: Perturbation | None
    instructions_percent: float = math.nan

    @property
    def verdict(self) -> Verdict:
        """That of the campaign: the graver of both."""
        return gravest(one.verdict for one in (self.inner, self.outer) if one is not None)

    @property
    def in_words(self) -> str:
        """The verdict, and where nothing can be assessed beside it."""
        blind = [
            f"not assessable {where}"
            for one, where in ((self.inner, "within a run"), (self.outer, "across runs"))
            if one is not None and one.verdict == "not assessable" != self.verdict
        ]
        return ", ".join([self.verdict, *blind])

    @property
    def broken(self) -> list[Relation]:
        """Relations to explain, those within a run first."""
        return broken_relations(self.inner, self.outer)

    @property
    def where(self) -> str:
        """Where relations are broken: ``within a run``, ``across runs``, both, or "" for none."""
        within = "within a run" if broken_relations(self.inner) else ""
        across = "across runs" if broken_relations(self.outer) else ""
        return " and ".join(one for one in (within, across) if one)


def explain_variant(
    paired: PairedRuns,
    variant: str,
    judged: VariantPerturbation,
    directory: Path,
    seconds: float,
) -> Explanation:
    """Explain the broken relations of ``variant``.

    ``paired``: the pairs of runs that are made at most, see `FIRST_PAIRS`; ``judged``: the variant's verdicts;
    ``directory``: for edited sources; ``seconds``: when they have passed no further order of metrics is begun.

    Raises `MeasureError` for a variant without a broken relation.
    """
    started = time.monotonic()
    before = paired.n_runs
    broken = judged.broken
    if not broken:
        raise MeasureError(f"{variant} is {judged.verdict}: there is no perturbed relation to explain")
    relations = Relations(broken, paired.hardware, paired.campaign.alignment_setting)
    choice, begin_step = chosen(paired.campaign, variant), paired.outlook.begin_step
    looks = sorted({min(FIRST_PAIRS, paired.n_pairs), paired.n_pairs})
    for n_pairs in looks:
        few = paired.first(n_pairs)
        again = f"now in {n_pairs} pairs" if n_pairs > looks[0] else ""
        begin_step(variant, "metrics", again)
        effects = MetricEffects(few, choice, relations)
        metrics = effects.shapley(started + seconds, paired.campaign.seed)
        begin_step(variant, "mechanisms", again)
        mechanisms = find_mechanisms(few, choice, relations)
        if all(change.first_is_clear(1 - (1 - LEVEL) / len(looks)) for change in (metrics, mechanisms.change)):
            break
    first = metrics.parts[0].name
    shares = [(part.name, metrics.share(part)) for part in metrics.parts]
    guilty = [name for name, share in shares if share.mean >= CAUSE and share.low > 0] or [first]
    by_compiler = any(part.name == COMPILER for part in mechanisms.change.causes)
    added = change_by_added_counts(few, choice, guilty, relations) if by_compiler else None
    begin_step(variant, "places")
    sites = effects.sites(first)
    plain, full = (Path(paired.build(one).elf_path) for one in (PLAIN, choice))
    code = mechanisms.code
    decisions = compare_decisions(plain, full, code.instructions, code.entries)
    edited = kept_inlining(paired.campaign.program, plain, full, code.instructions, directory / "sources" / variant)
    begin_step(variant, "remedies")
    few = few.first(min(few.n_pairs, FIRST_PAIRS))
    tried = try_remedies(few, relations, choice, candidates(few, variant, choice, guilty, edited), mechanisms.change,
                        lambda: begin_step(variant, "confirming"))  # fmt: skip
    runs = paired.first(len(metrics.whole)).runs([choice, PLAIN])
    shown = reproduction(
        metrics.whole, judged_changes(broken, judged.inner, judged.outer), runs[choice], runs[PLAIN],
        judged.instructions_percent,
    )  # fmt: skip
    return Explanation(
        campaign=paired.campaign.name,
        variant=variant,
        relations=tuple(broken),
        verdict=judged.verdict,
        where=judged.where,
        baseline_z=relations.values(runs[PLAIN], runs[PLAIN]),
        run_z=relations.values(runs[choice], runs[PLAIN]),
        metrics=metrics,
        effects=effects.left_out_and_alone(),
        sites=sites,
        mechanisms=mechanisms.change,
        cuts=mechanisms.cuts,
        added_counts=added,
        decisions=decisions,
        remedies=tried.remedies,
        refused=tried.refused,
        counter_lines=_lines(full, code),
        own_instructions_percent=100 * (mechanisms.own_ratio - 1),
        reproduction=shown,
        probes=choice.unseen,
        runs=paired.n_runs - before,
        seconds=time.monotonic() - started,
    )


def chosen(campaign: Campaign, variant: str) -> ProgramChoice:
    """The program that the campaign measures for ``variant``: its probes are unseen, and what a second run counts has
    no counter in it. Without metrics where a second run counts all of them: then it is the plain program."""
    metrics = campaign.variant_sets()[variant]
    second = campaign.in_second_run(metrics)
    measured = tuple(metric for metric in metrics if metric not in second)
    return ProgramChoice(measured, unseen=tuple(m for m in measured if campaign.software_metrics[m].method == "probe"))


def expected_efforts(paired: PairedRuns, variant: str, *, first: bool) -> dict[str, Effort]:
    """How many runs and programs the explanation of ``variant`` probably needs; ``first``: it is the first one."""
    choice = chosen(paired.campaign, variant)
    places = max(map(len, paired.build(choice).places.values()), default=1)
    pairs = min(FIRST_PAIRS, paired.n_pairs), paired.n_pairs
    fresh = set(paired.further(CONFIRMING_PAIRS).layouts) - set(paired.layouts)
    return efforts(
        paired.campaign, choice.metrics, min(places, MOST_SITES), pairs, first=first,
        layouts=len(paired.first(pairs[0]).layouts), further_layouts=len(fresh),
    )  # fmt: skip


def _lines(program: Path, code: CounterCode) -> tuple[tuple[str, int], ...]:
    """Lines with counters' instructions and the executions of these, most first."""
    image = program_image(program)
    executed: Counter[str] = Counter()
    for pc, count in zip(code.instructions, code.executed, strict=True):
        line = image.source_line(pc)
        executed[f"{Path(line[0]).name}:{line[1]}" if line is not None else image.symbolize(pc)] += count
    return tuple(executed.most_common(_MOST_LINES))
