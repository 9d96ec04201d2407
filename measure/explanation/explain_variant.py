"""Explains one variant of a campaign: the metrics, the mechanisms, the compiler's decisions, and remedies."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from emulator.linux.loader.elf import load_image
from measure.campaign.campaign_model import Campaign
from measure.errors import MeasureError
from measure.explanation.compiler_decisions import compare_decisions
from measure.explanation.counter_code import CounterCode
from measure.explanation.explanation_types import BEST_FIRST, Explanation
from measure.explanation.keep_inlining import kept_inlining
from measure.explanation.mechanisms import find_mechanisms
from measure.explanation.metric_effects import MetricEffects
from measure.explanation.paired_runs import PLAIN, PairedRuns, ProgramChoice
from measure.explanation.relations import Relation, Relations, broken_relations
from measure.explanation.remedies import try_remedies
from measure.explanation.remedy_candidates import candidates
from measure.perturbation.analysis_types import Perturbation, Verdict

_MOST_LINES = 12


@dataclass(frozen=True)
class Judged:
    """A variant's perturbation within a run and across runs, None where runs were not aligned."""

    inner: Perturbation
    outer: Perturbation | None

    @property
    def verdict(self) -> Verdict:
        """The worse of both."""
        found = [one.verdict for one in (self.inner, self.outer) if one is not None]
        return max(found, key=BEST_FIRST.index)

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
    judged: Judged,
    directory: Path,
    seconds: float,
    status: Callable[[str], None] = lambda text: None,
) -> Explanation:
    """Explain the broken relations of ``variant``.

    ``judged``: the variant's verdicts; ``directory``: for edited sources;
    ``seconds``: when they have passed no further order of metrics is begun.

    Raises `MeasureError` for a variant without a broken relation.
    """
    started = time.monotonic()
    before = paired.n_runs
    broken = judged.broken
    if not broken:
        raise MeasureError(f"{variant} is {judged.verdict}: there is no perturbed relation to explain")
    relations = Relations(broken, paired.hardware, paired.campaign.alignment_setting)
    choice = ProgramChoice(_seen(paired.campaign, variant))
    status(f"{variant}: with and without each metric")
    effects = MetricEffects(paired, choice, relations)
    one_by_one = effects.one_by_one()
    metrics = effects.shapley(started + seconds, paired.campaign.seed)
    guilty = [part.name for part in metrics.parts]
    status(f"{variant}: at each place of {guilty[0]}")
    sites = effects.sites(guilty[0])
    status(f"{variant}: counterfactual runs")
    mechanisms = find_mechanisms(paired, choice, relations)
    plain, full = (Path(paired.build(one).elf_path) for one in (PLAIN, choice))
    decisions = compare_decisions(plain, full, mechanisms.code.instructions)
    edited = kept_inlining(
        paired.campaign.program, plain, full, mechanisms.code.instructions, directory / "sources" / variant
    )
    status(f"{variant}: trying remedies")
    tried = try_remedies(paired, relations, choice, candidates(paired, variant, choice, guilty, edited))
    runs = paired.runs([choice, PLAIN])
    return Explanation(
        campaign=paired.campaign.name,
        variant=variant,
        relations=tuple(broken),
        verdict=judged.verdict,
        where=judged.where,
        baseline_z=relations.values(runs[PLAIN], runs[PLAIN]),
        run_z=relations.values(runs[choice], runs[PLAIN]),
        metrics=metrics,
        effects=one_by_one,
        sites=sites,
        mechanisms=mechanisms.change,
        cuts=mechanisms.cuts,
        decisions=decisions,
        remedies=tried.remedies,
        refused=tried.refused,
        counter_lines=_lines(full, mechanisms.code),
        own_instructions_percent=100 * (mechanisms.own_ratio - 1),
        runs=paired.n_runs - before,
        seconds=time.monotonic() - started,
    )


def _seen(campaign: Campaign, variant: str) -> tuple[str, ...]:
    """The variant's metrics whose counters the machine sees; all of them, seen, if it sees none."""
    metrics = campaign.variant_sets()[variant]
    return tuple(one for one in metrics if campaign.software_metrics[one].method == "counter") or metrics


def _lines(program: Path, code: CounterCode) -> tuple[tuple[str, int], ...]:
    """Lines with counters' instructions and the executions of these, most first."""
    image = load_image(program)
    executed: Counter[str] = Counter()
    for pc, count in zip(code.instructions, code.executed, strict=True):
        line = image.source_line(pc)
        executed[f"{Path(line[0]).name}:{line[1]}" if line is not None else image.symbolize(pc)] += count
    return tuple(executed.most_common(_MOST_LINES))
