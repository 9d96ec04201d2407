"""Explains the variants of a campaign whose verdicts are known: page, data and campaign files of the best remedies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from rich.console import Console

from measure.analysis.explained import FILE, FOLDER
from measure.console.progress import Status, line_width
from measure.explanation.explain_variant import VariantPerturbation, chosen, expected_efforts, explain_variant
from measure.explanation.explanation_types import Explanation
from measure.explanation.outlook import Outlook
from measure.explanation.page import render_page
from measure.explanation.paired_runs import PLAIN, PairedRuns
from measure.explanation.remedy_file import write_remedy
from measure.explanation.summary import as_json
from measure.result_files import write_result, write_text_atomically
from measure.run_types import BASELINE
from measure.runs.campaign_file import load_campaign
from measure.runs.executor import Workers
from measure.runs.machine_kind import check_emulated
from measure.runs.plan import Plan
from measure.runs.store import Store

DEFAULT_PAIRS = 6
DEFAULT_MINUTES = 3.0
_LONG_SECONDS = 900.0
_SHORTER = (
    "Most of that is one order of metrics, whatever --minutes says. Shorter: `measure explain` with --variant NAME and "
    "--pairs 3, or a campaign with fewer software metrics or less input."
)
_PLAIN = "a second run counts all of its metrics and the measured program is the plain one"


@dataclass(frozen=True)
class Explained:
    """Explanations of a campaign's variants. ``directory``: with explain.html, explain.json and, by variant, the
    campaign file of the best remedy; ``fine``: variants without a perturbed relation, and their verdicts, with where
    nothing can be assessed."""

    explanations: tuple[Explanation, ...]
    fine: dict[str, str]
    directory: Path


def explain_judged(
    plan: Plan,
    judged: Mapping[str, VariantPerturbation],
    results: Path,
    console: Console,
    *,
    pairs: int = DEFAULT_PAIRS,
    minutes: float = DEFAULT_MINUTES,
    workers: Workers,
) -> Explained:
    """Explain those variants of ``judged`` that have a broken relation; as `explain_results`, for verdicts at hand."""
    document = load_campaign(Path(plan.campaign_file))[1]
    check_emulated(plan.campaign, document, "measure explain")
    fine = {name: one.in_words for name, one in judged.items() if not one.broken}
    for name, one in judged.items():
        if one.broken and not chosen(plan.campaign, name).metrics:
            fine[name] = f"{one.in_words}, though {_PLAIN}"
    broken = {name: one for name, one in judged.items() if name not in fine}
    directory = results / FOLDER
    explanations = []
    with Store(results, only_read=True) as made:
        run_seconds = made.finished()[1]
        more = _instructions_percent(made, plan, list(broken))
    broken = {name: replace(one, instructions_percent=more[name]) for name, one in broken.items()}
    with Store(directory) as store, Status(console, "preparing the explanation") as status:
        paired = PairedRuns(plan, document, store, workers, pairs, lambda text: console.print(text, style="dim"))
        if broken:
            workers.prepare("emulated", plan.machine_text)
            paired.outlook = _outlook(paired, list(broken), run_seconds, workers.count, status)
            console.print(paired.outlook.begin_text(), style="dim", markup=False, highlight=False)
            if paired.outlook.seconds()[1] > _LONG_SECONDS:
                console.print(_SHORTER, style="dim", markup=False, highlight=False)
            outlook = paired.outlook
            # A log has whole names.
            status.update(lambda: outlook.describe(line_width(console)))
        for name, one in broken.items():
            explanations.append(explain_variant(paired, name, one, directory, 60 * minutes / len(broken)))
    found = Explained(tuple(explanations), fine, directory)
    _write(found, plan, directory)
    return found


def _instructions_percent(store: Store, plan: Plan, variants: Sequence[str]) -> dict[str, float]:
    """Mean instructions of each variant's runs in ``store`` over those of the baselines; nan without runs of both."""
    wanted = {BASELINE, *variants} if variants else set()
    totals: dict[str, list[int]] = {name: [] for name in wanted}
    for key, spec in zip(plan.keys, plan.specs, strict=True):
        if spec.variant in wanted and not spec.redrawn:
            run, _ = store.load(key, spec)
            if run is not None:
                totals[spec.variant].append(run.total_instructions)
    means = {name: fmean(found) if found else math.nan for name, found in totals.items()}
    return {name: 100 * (means[name] / means[BASELINE] - 1) for name in variants}


def _outlook(
    paired: PairedRuns, broken: Sequence[str], run_seconds: float, at_once: int, status: Status
) -> Outlook:  # fmt: skip
    """What is to be done for the variants ``broken``; a line is printed at each step where there is no terminal."""
    expected = {name: expected_efforts(paired, name, first=name == broken[0]) for name in broken}
    # The first program that was built may have waited for the C library.
    seconds = [paired.build(one).seconds for one in (PLAIN, *(chosen(paired.campaign, name) for name in broken))]
    build_seconds = min(filter(math.isfinite, seconds), default=0.0)
    return Outlook(expected, run_seconds, build_seconds, at_once, stored=paired.stored, say=status.say_if_quiet)


def _write(found: Explained, plan: Plan, directory: Path) -> None:
    """Write page, data, and for each variant the campaign file of `Explanation.written`. One of an earlier explanation
    goes where this one recommends none."""
    campaign = plan.campaign
    for one in found.explanations:
        path = directory / f"{one.variant}.yaml"
        if one.written is not None:
            write_remedy(campaign, one.variant, one.written, path)
        else:
            path.unlink(missing_ok=True)
    write_result(directory / FILE, as_json(found.explanations, found.fine, plan.history.design))
    write_text_atomically(directory / "explain.html", render_page(campaign.name, found.explanations, found.fine))
