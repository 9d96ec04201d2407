"""``measure explain``: from a directory of results to explanations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from measure.analysis.analysis import verdicts_of_variants
from measure.analysis.stored_runs import load_results
from measure.cluster.choice import workers_on
from measure.console.progress import Status
from measure.errors import CampaignError
from measure.explanation.explain_campaign import DEFAULT_MINUTES, DEFAULT_PAIRS, Explained, explain_judged
from measure.explanation.explain_variant import VariantPerturbation
from measure.result_files import check_writable_results
from measure.runs.campaign_file import load_campaign

if TYPE_CHECKING:
    from distributed import Client


def explain_results(
    results: Path,
    console: Console,
    *,
    variants: Sequence[str] = (),
    pairs: int = DEFAULT_PAIRS,
    minutes: float = DEFAULT_MINUTES,
    workers: int | None = None,
    scheduler: str | Client | None = None,
) -> Explained:
    """Explain the campaign whose results are in ``results``; further runs go to its folder ``explain``.

    For a campaign file these are the results in ``results/NAME``, where `measure run` leaves them.

    ``variants``: those to explain, default: all with a perturbed relation. ``minutes``: for all of them
    together, after which no further order of metrics is tried. ``workers``: processes of this machine, or
    ``scheduler``: a Dask cluster (see `measure.cluster.dask_workers.connect`). Raises `CampaignError` for what the
    campaign does not have.
    """
    results = _directory(results)
    if results.is_dir():
        check_writable_results(results, "`measure explain` keeps its runs and its page")
    with Status(console, "reading the results"):
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
    with workers_on(scheduler, workers, console.print) as makers:
        with Status(console, "judging the campaign's runs"):
            verdicts = verdicts_of_variants(plan, outcome, makers.aligner)
        judged = {name: VariantPerturbation(*found) for name, found in verdicts.items()}
        without_runs = [name for name in campaign.variant_sets() if name not in judged]
        if lacking := [name for name in variants if name in without_runs]:
            raise CampaignError(
                f"{results}: no run of {lacking[0]} is there, so nothing can be explained; "
                f"`measure run {plan.campaign_words}` makes them"
            )
        if without_runs:
            console.print(f"Not explained, as no run of it is there: {', '.join(without_runs)}.", style="yellow")
        wanted = {name: one for name, one in judged.items() if not variants or name in variants}
        return explain_judged(plan, wanted, results, console, pairs=pairs, minutes=minutes, workers=makers)


def _directory(results: Path) -> Path:
    """The directory of results; for a campaign file, where `measure run` leaves its results."""
    if not results.is_file():
        return results
    directory = Path("results") / load_campaign(results)[0].name
    if not directory.is_dir():
        raise CampaignError(f"{directory}: no such directory; `measure run {results}` makes it")
    return directory


def run_explain(
    results: Path, console: Console, variants: Sequence[str], pairs: int, minutes: float, workers: int | None,
    scheduler: str | None,
) -> None:  # fmt: skip
    """`explain_results`, and print the result."""
    from measure.explanation.terminal import print_explained

    found = explain_results(
        results, console, variants=variants, pairs=pairs, minutes=minutes, workers=workers, scheduler=scheduler
    )  # fmt: skip
    print_explained(console, found.explanations, found.fine)
    console.print(f"Page: {found.directory / 'explain.html'}", style="dim")
