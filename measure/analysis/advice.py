"""Advises on a variant that perturbs: which of its software metrics cause it, and the command to run next; and on one
that more runs would settle.

Sentences state only what the runs show: that a smaller set changes nothing, and which metrics' counters add most of
the instructions. Neither proves a cause: counters also move code and data.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from measure.console.time_left import range_text
from measure.perturbation.analysis_types import BROKEN, Verdict
from measure.perturbation.finding import RESULTS, Finding
from measure.perturbation.findings import in_all_open
from measure.perturbation.missing_runs import Forecast, forecast
from measure.report.model import VariantReport
from measure.run_types import Run
from measure.runs.campaign_model import Campaign
from measure.runs.record_lengths import CYCLES, INSTRUCTIONS, uneven_records
from measure.runs.variance import planned_runs

if TYPE_CHECKING:
    from measure.judging.controls import Controls

_MOST_SHARE = 0.8
"""Metrics are named, the most frequent first, until they have this fraction of the events."""


@dataclass(frozen=True)
class Counted:
    """Counts of a variant's counters in a run, means over its runs.

    ``events``: by metric that counts events; ``sums``: metrics that add up an expression, whose counter does not show
    how often it grew. ``added_instructions``: over the mean baseline. ``free``: metrics that the machine counts at no
    cost or a second run counts, which are in neither. ``starts_tasks``: whether the program starts threads or
    processes, of which no second run counts anything.
    """

    events: Mapping[str, float]
    sums: tuple[str, ...]
    added_instructions: float
    free: tuple[str, ...] = ()
    starts_tasks: bool = False


def advice(
    variants: Sequence[VariantReport], counted: Mapping[str, Counted], campaign: Campaign, campaign_words: str
) -> list[Finding]:
    """Findings on the smallest perturbed or changed variants: the metrics behind it, then the command; empty without.

    A variant that adds metrics to such a one is left out, since the smaller one is more specific.
    ``counted``: by variant; ``campaign_words``: see `Plan.campaign_words`. On the host, only runs as they are can be
    made. In a campaign that is a partition already (`_is_partition`), the search for one would say again what its file
    says: there the broken group is split.
    """
    all_perturbed = [variant for variant in variants if variant.verdict in BROKEN]
    perturbed = _smallest(all_perturbed)
    found = []
    for variant in perturbed:
        behind = _metrics_behind(variant, variants, counted[variant.name])
        found += [Finding(text, variant=variant.name, heading=variant.name) for text in behind]
    if campaign.host is not None and all_perturbed:
        found.append(
            Finding(
                "give the same program and counters an emulated machine (`machine:` a file, `sampling: {every:}` in "
                "cycles): if they perturb there, too, `measure explain` says why and tries remedies.",
                "next",
            )
        )
        return _until_explained(found)
    if all_perturbed:
        split = ""
        if any(len(variant.software_metrics) > 1 for variant in all_perturbed) and not _is_partition(campaign):
            search = _settings_once(f"measure partition {campaign_words}")
            may_be_found = not campaign.cumulative and len(campaign.variants) == 1
            if may_be_found:  # by a search before: measure anew
                search = _anew(search, campaign)
            split = (
                f"; `{search}` looks for the fewest sets of these metrics that are each shown to change no relation by "
                "more than delta"
            )
        what = f"says why and tries remedies{split}."
        found.append(
            replace(
                _next(f"`measure explain`, given the directory of these results, {what}", campaign),
                in_results=f"`measure explain {RESULTS}` {what}",
            )
        )  # fmt: skip
    if _is_partition(campaign):
        found += _split_groups(perturbed, counted, campaign, campaign_words)
    for variant in perturbed:
        if len(variant.software_metrics) != 1:
            continue
        if counted[variant.name].free:
            text = (
                f"{variant.name} collects one metric only, and without an instruction of a counter, so a rarer event "
                "does not help: count at another place, where the compiler makes the same code"
            )
            if not counted[variant.name].starts_tasks:
                text += ", or with `method: second_run`, which keeps the measured program plain"
            text += "."
        else:
            text = (
                f"{variant.name} collects one metric only, which cannot be split: count a rarer event, or fewer places "
                f"of this one (`function:`, `file:`, `line:`); `measure run --counts {campaign_words}` "
                "shows how often each happens."
            )
        found.append(Finding(text, variant=variant.name))
    return _until_explained(found)


def _until_explained(found: Iterable[Finding]) -> list[Finding]:
    """The findings, marked to give way to an explanation of their variant."""
    return [replace(one, until_explained=True) for one in found]


def more_runs(
    variants: Sequence[VariantReport], campaign: Campaign, campaign_words: str, looks: int, missing: bool = False,
    run_seconds: float = 0.0, controls: Controls | None = None,
) -> list[Finding]:  # fmt: skip
    """The command that would probably settle the inconclusive variants, or else show the size of changes, and the one
    after ``controls`` that failed, in a finding each; empty without one.

    ``campaign_words``: see `Plan.campaign_words`; ``looks``: at the results so far. While fewer than planned, runs are
    added to those that there are; else they make a new campaign, with another seed, as no chance of a false alarm is
    left for these. ``missing``: some runs of the plan are still to be made, which comes before any other.
    ``run_seconds``: of one run, while others run on the other processors; 0 if unknown.
    """
    if missing:
        return []
    sentences = []
    needed, changed = _needed(variants, "inconclusive"), _needed(variants, "changed")
    hopeless = [name for name, one in needed.items() if not one.affordable]
    needed, changed = (
        {name: one for name, one in found.items() if one.affordable} for found in (needed, changed)
    )  # fmt: skip
    if controls and controls.false_alarm:
        how = _with_more(0, campaign, campaign_words, campaign.looks, run_seconds)
        sentences.append(f"whether the null control is {controls.false_alarm} by chance shows in other runs: {how}.")
    if controls and controls.overlooks:
        more = max(campaign.baselines, *(one.extra for one in needed.values()), 0)
        how = _with_more(more, campaign, campaign_words, looks, run_seconds)
        sentences.append(f"with twice the runs, or more, the positive control may be found: {how}.")
    elif needed or hopeless:
        metric, involved = _behind_most([one for one in variants if one.name in (*needed, *hopeless)])
        if metric and len(campaign.hardware_metrics) > 2:
            others = {name: one for name, one in needed.items() if name not in involved}
            more = max((one.extra for one in others.values()), default=0)
            how = _without(metric, more, campaign, campaign_words, run_seconds)
            whose = "" if len(involved) == len(needed) + len(hopeless) else f" of {_named(involved)}"
            also = f", and with the runs that would settle {_named(others)}" if others else ""
            settled = (*involved, *others)
            where = "" if {*needed, *hopeless} <= {*settled} else f" in {_named(settled)}"
            sentences.append(
                f"without {metric}, which every open pair{whose} involves{also}, nothing may be open{where}: {how}."
            )
        if needed:
            what = f"settle {_named(needed)}"
            sentences.append(_by_more_runs(what, needed, campaign, campaign_words, looks, run_seconds))
        if hopeless:
            sentences.append(
                f"no reasonable number of further runs settles {_named(hopeless)}. A campaign with fewer "
                f"hardware metrics, a longer program, longer records or a larger delta may: `measure run --dry-run "
                f"{campaign_words}`, with such changes by --set, says what it would find."
            )
    elif changed:
        what = f"show whether the change of {', '.join(changed)} exceeds delta"
        sentences.append(_by_more_runs(what, changed, campaign, campaign_words, looks, run_seconds))
    return [_next(text, campaign) for text in sentences]


def _by_more_runs(
    what: str, needed: Mapping[str, Forecast], campaign: Campaign, campaign_words: str, looks: int, run_seconds: float
) -> str:  # fmt: skip
    """That as many more runs as the largest of ``needed`` would probably do ``what``, and how; as in `more_runs`."""
    most = max(needed.values(), key=lambda one: one.extra)
    how = _with_more(most.extra, campaign, campaign_words, looks, run_seconds)
    return f"more runs would probably {what}: {how}. {most.extra:,} more of each is a forecast ({most.range_text})."


def _is_partition(campaign: Campaign) -> bool:
    """Whether the campaign divides its metrics over several variants, as `measure partition` writes it."""
    collected = [metric for metrics in campaign.variants.values() for metric in metrics]
    return not campaign.cumulative and len(campaign.variants) > 1 and len(collected) == len(set(collected))


def _next(text: str, campaign: Campaign) -> Finding:
    """What to do next, with the place of the results in ``text`` as `RESULTS`: their default place if it is unknown."""
    default = shlex.quote(f"results/{campaign.name}")
    return Finding(text.replace(RESULTS, default), "next", in_results=text if RESULTS in text else "")


def _anew(command: str, campaign: Campaign, name: str = "") -> str:
    """``command`` with another seed, and results of its own beside those of ``campaign``, called after ``name`` or the
    seed."""
    seed = campaign.seed + 1
    return f"{_settings_once(f'{command} --set seed={seed}')} --out {RESULTS}-{shlex.quote(name or f'seed{seed}')}"


def _split_groups(
    broken: Sequence[VariantReport], counted: Mapping[str, Counted], campaign: Campaign, campaign_words: str
) -> list[Finding]:
    """The command for a new campaign in which each ``broken`` group of several metrics is split and the others stay, in
    a finding; empty without such a group.

    The metric with most events gets a group of its own; where events are not known, each metric does.
    """
    import yaml

    groups = {name: list(metrics) for name, metrics in campaign.variants.items()}
    split, apart = [], []
    for variant in broken:
        events, metrics = counted[variant.name].events, list(variant.software_metrics)
        if len(metrics) == 1:
            continue
        alone = [max(events, key=lambda metric: events[metric])] if any(events.values()) else metrics
        rest = [metric for metric in metrics if metric not in alone]
        del groups[variant.name]
        for name, part in (*((metric, [metric]) for metric in alone), *([("rest", rest)] if rest else [])):
            groups[_unused(f"{variant.name}-{name}", groups)] = part
        split.append(variant.name)
        apart += alone
    if not split:
        return []
    setting = f"variants={yaml.safe_dump(groups, default_flow_style=True, sort_keys=False, width=math.inf).strip()}"
    command = f"measure run {campaign_words} --set {shlex.quote(setting)}"
    larger = campaign.model_copy(update={"variants": groups})
    how = _new_campaign(command, campaign, planned_runs(larger), 0.0, f"split{campaign.seed + 1}")
    own = "a variant of its own" if len(apart) == 1 else "variants of their own"
    return [
        _next(
            f"the variants share no metric, so they are a partition already, of which only {', '.join(split)} must "
            f"be split: {how}, with {', '.join(apart)} in {own}.",
            campaign,
        )
    ]


def _unused(name: str, taken: Collection[str]) -> str:
    """``name``, with as many underscores as make it none of ``taken``."""
    while name in taken:
        name += "_"
    return name


def even_records(
    campaign: Campaign, runs: Sequence[Run], campaign_words: str, run_seconds: float = 0.0
) -> list[Finding]:  # fmt: skip
    """The command for a new campaign with even records, in a finding; empty where those of ``runs`` are even. The
    other arguments are as for `more_runs`.

    It watches cycles in place of instructions, of which each of its records has as many.
    """
    uneven = uneven_records(campaign, runs)
    if uneven is None:
        return []
    every = uneven.even_interval
    settings = [f"sampling.every={every}"]
    if INSTRUCTIONS in campaign.hardware_metrics:
        metrics = [CYCLES if one == INSTRUCTIONS else one for one in campaign.hardware_metrics]
        settings.append(_hardware_metrics(dict.fromkeys(metrics)))
    command = " ".join([f"measure run {campaign_words}", *(f"--set {shlex.quote(one)}" for one in settings)])
    how = _new_campaign(command, campaign, planned_runs(campaign), run_seconds, "instructions")
    return [
        _next(f"records of {every} are even, so that verdicts rest on relations of metrics alone: {how}.", campaign)
    ]


def _hardware_metrics(names: Iterable[str]) -> str:
    """The setting of a campaign that watches these metrics."""
    return f"hardware_metrics=[{', '.join(names)}]"


def _needed(variants: Sequence[VariantReport], verdict: Verdict) -> dict[str, Forecast]:
    """By name of the variants with this ``verdict`` that more runs would probably settle: how many more."""
    needed: dict[str, Forecast] = {}
    for variant in variants:
        opened = [one for one in (variant.inner, variant.outer_held_out) if one and one.verdict == verdict]
        forecasts = [
            forecast(one.extra_runs_needed, one.spread_runs) for one in opened if one.extra_runs_needed is not None
        ]
        if variant.verdict == verdict and len(forecasts) == len(opened):
            needed[variant.name] = max(forecasts, key=lambda one: one.extra)
    return needed


def _named(names: Collection[str]) -> str:
    """``the variant x``, ``the variants x, y``."""
    return f"the variant{'s' if len(names) > 1 else ''} {', '.join(names)}"


def _behind_most(variants: Sequence[VariantReport]) -> tuple[str, tuple[str, ...]]:
    """The metric that all open pairs of most ``variants``, and across runs their open metrics, involve, and the names
    of these; "" for none."""
    involved: dict[str, tuple[str, ...]] = {}
    for variant in variants:
        metrics = {in_all_open(variant.inner)} if variant.inner.verdict == "inconclusive" else set[str]()
        if variant.outer_held_out is not None:
            metrics |= {pair.a for pair in variant.outer_held_out.of("inconclusive")}
        if len(metrics) == 1 and (metric := metrics.pop()):
            involved[metric] = (*involved.get(metric, ()), variant.name)
    metric = max(involved, key=lambda one: len(involved[one]), default="")
    return metric, involved.get(metric, ())


def _without(metric: str, more: int, campaign: Campaign, campaign_words: str, run_seconds: float) -> str:
    """The command for a new campaign that leaves a hardware ``metric`` out and makes ``more`` baselines and replicates,
    and what it makes."""
    larger = _larger(campaign, more)
    settings = [
        _hardware_metrics(one for one in campaign.hardware_metrics if one != metric),
        *(f"{key}={value}" for key, value in larger.items()),
    ]
    command = f"measure run {campaign_words}" + "".join(f" --set {shlex.quote(one)}" for one in settings)
    runs = planned_runs(campaign.model_copy(update=larger))
    return _new_campaign(command, campaign, runs, run_seconds, f"without-{metric}")


def _larger(campaign: Campaign, more: int) -> dict[str, int]:
    """The settings for ``more`` baselines and replicates than ``campaign`` has; none for 0."""
    return {"baselines": campaign.baselines + more, "replicates": campaign.replicates + more} if more else {}


def _with_more(more: int, campaign: Campaign, campaign_words: str, looks: int, run_seconds: float) -> str:
    """The command that makes ``more`` baselines and replicates than ``campaign`` has, what it makes, and why so."""
    larger = _larger(campaign, more)
    runs = planned_runs(campaign.model_copy(update=larger))
    settings = "".join(f" --set {key}={value}" for key, value in larger.items())
    command = _settings_once(f"measure run {campaign_words}{settings}")
    if looks < campaign.looks:
        price = _price(runs - planned_runs(campaign), run_seconds)
        return f"`{command}` adds {price} to these, as look {looks + 1} of {campaign.looks} that are planned"
    why = ", since no further look at this one is planned" if more else ""
    return _new_campaign(command, campaign, runs, run_seconds) + why


def _new_campaign(command: str, campaign: Campaign, runs: int, run_seconds: float, name: str = "") -> str:
    """`_anew`, and what it makes."""
    return f"`{_anew(command, campaign, name)}` makes a new campaign of {_price(runs, run_seconds)}"


def _settings_once(command: str) -> str:
    """``command`` without the settings (``--set KEY=VALUE``) that a later one of the same key overrides."""
    words, kept, keys = shlex.split(command), list[str](), set[str]()
    for n in range(len(words) - 1, -1, -1):
        if n and words[n - 1] == "--set":
            key = words[n].partition("=")[0]
            if key in keys:
                words[n - 1] = ""
                continue
            keys.add(key)
        if words[n]:
            kept.append(shlex.quote(words[n]))
    return " ".join(reversed(kept))


def _price(runs: int, run_seconds: float) -> str:
    seconds = runs * run_seconds
    return f"{runs:,} runs ({range_text(0.85 * seconds, 1.15 * seconds)})" if seconds else f"{runs:,} runs"


def _smallest(variants: Sequence[VariantReport]) -> list[VariantReport]:
    """The variants whose metrics include those of no other variant; of equal ones the first."""
    sets = [frozenset(variant.software_metrics) for variant in variants]
    return [
        variant
        for n, variant in enumerate(variants)
        if not any(other < sets[n] for other in sets) and sets[n] not in sets[:n]
    ]


def _metrics_behind(variant: VariantReport, variants: Sequence[VariantReport], counted: Counted) -> list[str]:
    """Sentences on the metrics of a perturbed ``variant`` that most likely cause its perturbation."""
    sentences = []
    mine = set(variant.software_metrics)
    smaller = [
        one for one in variants if one.verdict == "equivalent" and set(one.software_metrics) < mine
    ]  # fmt: skip
    if smaller:
        nearest = max(smaller, key=lambda one: len(one.software_metrics))
        more = [metric for metric in variant.software_metrics if metric not in nearest.software_metrics]
        sentences.append(
            f"{nearest.name} collects all of its metrics but {', '.join(more)}, and is equivalent: what "
            f"{'this metric adds' if len(more) == 1 else 'these metrics add'} "
            f"{'perturbs' if variant.verdict == 'perturbed' else 'changes the relations'}."
        )
    total = sum(counted.events.values())
    if total > 0 and counted.added_instructions > 0:
        most, covered = [], 0.0
        for metric, events in sorted(counted.events.items(), key=lambda item: -item[1]):
            if covered >= _MOST_SHARE * total:
                break
            most.append(metric)
            covered += events
        rest = f" ({', '.join(counted.sums)} not counted: they add up values)" if counted.sums else ""
        cost = counted.added_instructions / total
        each = f", about {cost:.1f} instructions an event" if not counted.sums else ""
        sentences.append(
            f"most of its {variant.overhead} come from {', '.join(most)}: {covered / total:.0%} of the {total:,.0f} "
            f"events in the records of a run{rest}{each}."
        )
    elif counted.free and not counted.events and not counted.sums:
        sentences.append(
            f"none of its metrics costs the measured program an instruction (method probe or second_run): its "
            f"{variant.overhead} come from code that the compiler makes otherwise where a probe stands."
        )
    elif not total and not counted.sums:
        sentences.append(
            f"its counters counted no event, so its {variant.overhead} and the change come from code and data that "
            "moved; more baselines and replicates, each in a code layout of its own, show whether it stays."
        )
    return sentences
