"""``measure explain``: from a campaign's results to explanations, a page and a campaign file of the best remedy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from measure.campaign.analysis import verdicts_of_variants
from measure.campaign.campaign_file import load_campaign
from measure.campaign.executor import Workers
from measure.campaign.explained import FILE, FOLDER, plan_digest
from measure.campaign.plan import Plan
from measure.campaign.run_command import load_results
from measure.campaign.store import Store, write_text_atomically
from measure.console.progress import Status
from measure.errors import CampaignError
from measure.explanation.explain_variant import Judged, explain_variant
from measure.explanation.explanation_types import Explanation
from measure.explanation.page import render_page
from measure.explanation.paired_runs import PairedRuns
from measure.explanation.remedy_file import write_remedy
from measure.explanation.summary import as_json

DEFAULT_PAIRS = 6
DEFAULT_MINUTES = 3.0


@dataclass(frozen=True)
class Explained:
    """Explanations of a campaign's variants. ``directory``: with explain.html, explain.json and, by variant, the
    campaign file of the best remedy; ``fine``: variants without a perturbed relation, and their verdicts."""

    explanations: tuple[Explanation, ...]
    fine: dict[str, str]
    directory: Path


def explain_results(
    results: Path,
    console: Console,
    *,
    variants: Sequence[str] = (),
    pairs: int = DEFAULT_PAIRS,
    minutes: float = DEFAULT_MINUTES,
    workers: int | None = None,
) -> Explained:
    """Explain the campaign whose results are in ``results``; further runs go to its folder ``explain``.

    ``variants``: those to explain, default: all with a perturbed relation. ``minutes``: for all of them
    together, after which no further order of metrics is tried. Raises `CampaignError` for what the campaign does not
    have.
    """
    result, outcome = load_results(results)
    plan = result.plan
    campaign = plan.campaign
    unknown = [name for name in variants if name not in campaign.variant_sets()]
    if unknown:
        raise CampaignError(
            f"{results}: no variant '{unknown[0]}'; it has {', '.join(campaign.variant_sets()) or 'none'}"
        )
    if not Path(plan.campaign_file).is_file():
        raise CampaignError(
            f"{results}: its campaign file {plan.campaign_file} is gone; `measure explain` needs it and the sources"
        )
    judged = {name: Judged(*found) for name, found in verdicts_of_variants(plan, outcome).items()}
    wanted = {name: one for name, one in judged.items() if not variants or name in variants}
    return explain_judged(plan, wanted, results, console, pairs=pairs, minutes=minutes, workers=workers)


def explain_judged(
    plan: Plan,
    judged: Mapping[str, Judged],
    results: Path,
    console: Console,
    *,
    pairs: int = DEFAULT_PAIRS,
    minutes: float = DEFAULT_MINUTES,
    workers: Workers | int | None = None,
) -> Explained:
    """Explain those variants of ``judged`` that have a broken relation; as `explain_results`, for verdicts at hand."""
    document = load_campaign(Path(plan.campaign_file))[1]
    broken = {name: one for name, one in judged.items() if one.broken}
    fine: dict[str, str] = {name: one.verdict for name, one in judged.items() if not one.broken}
    directory = results / FOLDER
    explanations = []
    with ExitStack() as stack:
        makers = workers if isinstance(workers, Workers) else stack.enter_context(Workers(workers))
        store, status = (stack.enter_context(one) for one in (Store(directory), Status(console, "preparing")))
        if broken:
            makers.prepare("emulated", plan.machine_text)
        paired = PairedRuns(plan, document, store, makers, pairs, lambda text: console.print(text, style="dim"))
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


def run_explain(
    results: Path, console: Console, variants: Sequence[str], pairs: int, minutes: float, workers: int | None
) -> None:  # fmt: skip
    """`explain_results`, and print the result."""
    from measure.explanation.terminal import print_explained

    found = explain_results(
        results, console, variants=variants, pairs=pairs, minutes=minutes, workers=workers
    )  # fmt: skip
    print_explained(console, found.explanations, found.fine)
    console.print(f"Page: {found.directory / 'explain.html'}", style="dim")
