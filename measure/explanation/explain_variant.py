"""Explains one variant of a campaign: the metrics, the mechanisms, the compiler's decisions, and remedies."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from emulator.linux.loader.elf import load_image
from measure.errors import MeasureError
from measure.explanation.compiler_decisions import compare_decisions
from measure.explanation.counter_code import CounterCode
from measure.explanation.explanation_types import Explanation
from measure.explanation.keep_inlining import kept_inlining
from measure.explanation.mechanisms import find_mechanisms
from measure.explanation.metric_effects import MetricEffects
from measure.explanation.paired_runs import PLAIN, PairedRuns, ProgramChoice
from measure.explanation.remedies import Judge, candidates, try_remedies
from measure.perturbation.analysis_types import Perturbation

_MOST_LINES = 12


def broken_relations(perturbation: Perturbation) -> list[tuple[str, str]]:
    """Relations to explain, worst first: those of which a change is shown."""
    return [(p.a, p.b) for p in perturbation.pairs if p.verdict in ("perturbed", "changed")]


def explain_variant(
    paired: PairedRuns,
    variant: str,
    perturbation: Perturbation,
    directory: Path,
    seconds: float,
    status: Callable[[str], None] = lambda text: None,
) -> Explanation:
    """Explain the broken relations of ``variant``.

    ``perturbation``: the variant's verdict within a run; ``directory``: for edited sources;
    ``seconds``: when they have passed no further order of metrics is begun.

    Raises `MeasureError` for a variant without a broken relation.
    """
    started = time.monotonic()
    before = paired.n_runs
    broken = broken_relations(perturbation)
    if not broken:
        raise MeasureError(
            f"{variant} is {perturbation.verdict} within a run: there is no perturbed relation to explain"
        )
    kept = [_index(paired.relations, relation) for relation in broken]
    choice = ProgramChoice(paired.campaign.variant_sets()[variant])
    status(f"{variant}: with and without each metric")
    effects = MetricEffects(paired, choice, kept)
    one_by_one = effects.one_by_one()
    metrics = effects.shapley(started + seconds, paired.campaign.seed)
    guilty = [part.name for part in metrics.parts]
    status(f"{variant}: at each place of {guilty[0]}")
    sites = effects.sites(guilty[0])
    status(f"{variant}: counterfactual runs")
    mechanisms = find_mechanisms(paired, choice, kept)
    plain, full = (Path(paired.build(one).elf_path) for one in (PLAIN, choice))
    decisions = compare_decisions(plain, full, mechanisms.code.instructions)
    edited = kept_inlining(
        paired.campaign.program, plain, full, mechanisms.code.instructions, directory / "sources" / variant
    )
    status(f"{variant}: trying remedies")
    tried = try_remedies(
        paired, Judge(paired), choice, candidates(paired, variant, choice, guilty, edited)
    )  # fmt: skip
    runs = paired.runs([choice, PLAIN])
    return Explanation(
        campaign=paired.campaign.name,
        variant=variant,
        relations=tuple(broken),
        verdict=perturbation.verdict,
        baseline_z=paired.z(runs[PLAIN])[:, kept],
        run_z=paired.z(runs[choice])[:, kept],
        metrics=metrics,
        effects=one_by_one,
        sites=sites,
        mechanisms=mechanisms.change,
        decisions=decisions,
        remedies=tried.remedies,
        refused=tried.refused,
        counter_lines=_lines(full, mechanisms.code),
        own_instructions_percent=100 * (mechanisms.own_ratio - 1),
        runs=paired.n_runs - before,
        seconds=time.monotonic() - started,
    )


def _index(relations: Sequence[tuple[str, str]], relation: tuple[str, str]) -> int:
    """The index of a relation, in either order of its metrics."""
    return next(n for n, one in enumerate(relations) if set(one) == set(relation))


def _lines(program: Path, code: CounterCode) -> tuple[tuple[str, int], ...]:
    """Lines with counters' instructions and the executions of these, most first."""
    image = load_image(program)
    executed: Counter[str] = Counter()
    for pc, count in zip(code.instructions, code.executed, strict=True):
        line = image.source_line(pc)
        executed[f"{Path(line[0]).name}:{line[1]}" if line is not None else image.symbolize(pc)] += count
    return tuple(executed.most_common(_MOST_LINES))
