"""Explains the variants of a campaign whose verdicts are known: page, data and campaign files of the best remedies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from measure.campaign.campaign_file import load_campaign
from measure.campaign.executor import Workers
from measure.campaign.explained import FILE, FOLDER, plan_digest
from measure.campaign.machine_kind import check_emulated
from measure.campaign.plan import Plan
from measure.campaign.store import Store
from measure.console.progress import Status
from measure.explanation.explain_variant import Judged, explain_variant
from measure.explanation.explanation_types import Explanation
from measure.explanation.page import render_page
from measure.explanation.paired_runs import PairedRuns
from measure.explanation.remedy_file import write_remedy
from measure.explanation.summary import as_json
from measure.result_files import write_text_atomically

DEFAULT_PAIRS = 6
DEFAULT_MINUTES = 3.0


@dataclass(frozen=True)
class Explained:
    """Explanations of a campaign's variants. ``directory``: with explain.html, explain.json and, by variant, the
    campaign file of the best remedy; ``fine``: variants without a perturbed relation, and their verdicts."""

    explanations: tuple[Explanation, ...]
    fine: dict[str, str]
    directory: Path


def explain_judged(
    plan: Plan,
    judged: Mapping[str, Judged],
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
    broken = {name: one for name, one in judged.items() if one.broken}
    fine: dict[str, str] = {name: one.verdict for name, one in judged.items() if not one.broken}
    directory = results / FOLDER
    explanations = []
    with ExitStack() as stack:
        store = stack.enter_context(Store(directory))
        status = stack.enter_context(Status(console, "preparing"))
        if broken:
            workers.prepare("emulated", plan.machine_text)
        paired = PairedRuns(plan, document, store, workers, pairs, lambda text: console.print(text, style="dim"))
        for name, one in broken.items():
            explanations.append(
                explain_variant(paired, name, one, directory, 60 * minutes / len(broken), status.update)
            )  # fmt: skip
    found = Explained(tuple(explanations), fine, directory)
    _write(found, plan, directory)
    return found


def _write(found: Explained, plan: Plan, directory: Path) -> None:
    """Write page, data, and the campaign file of each best remedy that helps."""
    campaign = plan.campaign
    for one in found.explanations:
        if one.remedies and one.remedies[0].campaign:
            write_remedy(campaign, one.variant, one.remedies[0], directory / f"{one.variant}.yaml")
    text = json.dumps(as_json(found.explanations, found.fine, plan_digest(plan)), indent=1, allow_nan=False)
    write_text_atomically(directory / FILE, text)
    write_text_atomically(directory / "explain.html", render_page(campaign.name, found.explanations, found.fine))
