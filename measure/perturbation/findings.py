"""Puts the result of a perturbation analysis into sentences, each with what to do next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from measure.perturbation.analysis_types import BROKEN, FEWEST_BASELINES, Kind, Pair, Perturbation
from measure.perturbation.finding import Finding
from measure.perturbation.missing_runs import forecast
from measure.perturbation.wording import (
    SHOWN_PAIRS,
    counted,
    listed_names,
    over_all,
    p_number,
    p_text,
    rhos_text,
    seldom_unseen,
)

_INNER_ADVICE = (
    "Do not reason about the pairs that changed within such a run",
    "spread the software metrics over several runs",
)
_OUTER_ADVICE = "Do not join these runs with others", "collect fewer or other metrics in one run and try again"


def advice_on(kind: Kind, one_metric: bool = False) -> Finding:
    """What to do about a comparison of this ``kind`` in which a change is shown. ``one_metric``: its runs collect a
    single software metric, which cannot be spread over runs."""
    refrain, collect = _INNER_ADVICE if kind == "inner" else _OUTER_ADVICE
    return Finding(f"{refrain}." if one_metric else f"{refrain}; {collect}.", kind="advice")


def of_one_metric(result: Perturbation) -> Perturbation:
    """``result`` of runs that collect a single software metric: without the advice to collect fewer at once."""
    advice = advice_on(result.kind, one_metric=True)
    return replace(result, said=tuple(advice if one.kind == "advice" else one for one in result.said))


def findings(
    result: Perturbation,
    *,
    identical: bool,
    smallest_p: float,
    stuck: Sequence[Pair] = (),
    noiseless: Sequence[Pair] = (),
    unchanged: bool = False,
) -> tuple[Finding, ...]:
    """Findings on ``result``, the most important first. ``stuck``: open pairs that no further runs settle;
    ``noiseless``: pairs without a scale of noise; ``unchanged``: each run has the counts of its baseline."""
    if not result.pairs:
        return (Finding("No correlation is defined in any run: all metrics are constant; choose metrics that vary."),)
    changes: list[Finding] = []
    sentences: list[str] = []
    if unchanged:
        sentences += _unchanged(result)
    elif identical:
        sentences.append(
            "The baselines do not differ from one another, so there is no scale of noise to judge a change "
            "by: effect sizes are shown without p-values; vary the set-up (layout, placement, timer phase)."
        )
    elif result.n_baseline < 2 or (result.paired and result.n_runs < 2):
        sentences.append(
            f"One {'pair' if result.paired else 'baseline'} gives no scale of noise: effect sizes are shown without "
            "p-values; add baselines."
        )
    elif result.verdict in BROKEN:
        changes = _changes(result)
    elif result.verdict == "inconclusive":
        sentences.extend(_undecided(result, smallest_p, stuck, noiseless))
    elif result.verdict == "equivalent":
        equivalent = result.of("equivalent")
        assessed = "" if len(equivalent) == len(result.pairs) else " that can be assessed"
        if result.kind == "inner":
            sentences.append(
                f"Every change{assessed} is shown to be within {result.delta:g} in z: the widest interval reaches "
                f"{max(_reach(pair, result) for pair in equivalent):.3f}."
            )
        else:
            sentences.append(
                f"No metric{assessed} is less alike across runs by {result.delta:g} in z or more; the lowest interval "
                f"begins at {min(pair.ci[0] for pair in equivalent):+.3f}. To be more alike is no perturbation."
            )
        sentences.append(_seldom(result))
    if noiseless and not identical:
        sentences.append(_without_noise(noiseless, result))
    sentences.extend(_not_assessable(result))
    if result.verdict != "perturbed" and (detectable := _detectable(result)):
        sentences.append(
            f"With these runs a change of z of {detectable[len(detectable) // 2]:.2f} is called perturbed in 80% of "
            f"campaigns (median over pairs; {detectable[-1]:.2f} in the noisiest)."
        )
    sentences.extend(_spreads(result))
    sentences.extend(_exploratory(result))
    sentences.extend(_rises(result))
    return (*changes, *map(Finding, sentences))


def _without_noise(noiseless: Sequence[Pair], result: Perturbation) -> str:
    """A sentence on pairs that are the same in all baselines, of a result in which others are not."""
    aligned = "" if result.kind == "inner" else ", or are aligned on metrics that did not"
    names = listed_names([pair.name for pair in noiseless])
    return (
        f"{len(noiseless)} of {counted(len(result.pairs), _noun(result))} did not vary between baselines at all"
        f"{aligned} ({names}), so there is no scale of noise to judge a change by: "
        "effect sizes are shown without p-values. Further runs like these do not settle it: vary the set-up from run "
        "to run (layout, placement, input, phase of the timer)."
    )


def _unchanged(result: Perturbation) -> list[str]:
    """Sentences on runs that have the counts of their baselines."""
    those = "Each of the {n} runs has" if result.n_runs > 1 else "The run has"
    return [
        f"{those.format(n=result.n_runs)} in every record exactly the counts of the baseline that shares its noise: "
        "these relations did not change, by construction.",
        _seldom(result),
    ]


def _seldom(result: Perturbation) -> str:
    """What so few runs may not show."""
    return (
        f"This is about the mean over runs: a change that happens in fewer than about "
        f"{seldom_unseen(result.n_runs)} of all runs, in some code layouts, say, may be in none of "
        f"{counted(result.n_runs, 'run')}."
    )


def _changes(result: Perturbation) -> list[Finding]:
    """Findings on a result that is perturbed or changed: the pairs, what to do, and the runs that show the size."""
    perturbed, changed = result.of("perturbed"), result.of("changed")
    worst = perturbed or changed
    shown = [Finding(f"{_change(pair, result)}.", pair=pair.name) for pair in worst[:SHOWN_PAIRS]]
    sentences = []
    if len(worst) > SHOWN_PAIRS:
        sentences.append(f"In all, {counted(len(worst), _noun(result))} are {worst[0].verdict}.")
    if perturbed and changed:
        sentences.append(
            f"{counted(len(changed), f'further {_noun(result)}')} changed by an amount that may be below or above "
            f"{result.delta:g}: {listed_names([pair.name for pair in changed])}."
        )
    if not perturbed:
        sentences += _sizes_of_changes(changed, result)
    return [*shown, *map(Finding, sentences), advice_on(result.kind)]


def _sizes_of_changes(changed: Sequence[Pair], result: Perturbation) -> list[str]:
    """What is known of the size of changes: open, or small as far as metrics tell that cannot tell it well."""
    unreliable = [pair for pair in changed if pair.within(result.delta)]
    sized = [pair.name for pair in changed if not pair.within(result.delta)]
    sentences = []
    if sized:
        sentences.append(
            f"A change is shown in {listed_names(sized)}, but not whether it exceeds {result.delta:g}: treat the "
            "relation as changed." + _more_runs(result, "show its size")
        )
    if unreliable:
        sentences.append(
            f"A change is shown in {listed_names([pair.name for pair in unreliable])}, and measured as less than "
            f"{result.delta:g}. That size cannot be relied on, for the reason given with it, and further runs do not "
            "help: choose another metric, or longer records."
        )
    return sentences


def _change(pair: Pair, result: Perturbation) -> str:
    if not _defined(pair.delta_z):
        return f"{pair.name}: {pair.note} ({p_text(pair.p_adjusted)} {over_all(result)})"
    low, high = pair.simultaneous
    if not _defined(low):
        interval = "no interval"
    elif result.kind == "inner":
        interval = f"interval {over_all(result)} {low:+.2f} to {high:+.2f}"
    else:
        interval = f"at most {high:+.2f} {over_all(result)}"
    # Step-down tests leave out pairs that are decided; intervals hold for all of them at once.
    is_sharper = pair.p_adjusted <= result.level and _defined(low) and low < 0 < high
    sharper = ", by a test that is sharper than the interval" if is_sharper else ""
    return (
        f"{pair.name}: rho went from {rhos_text(pair.baseline_rho, pair.run_rho)} "
        f"(change of z {pair.delta_z:+.2f}, {interval}, "
        f"{p_text(pair.p_adjusted)}{sharper})" + (f"; {pair.note}" if pair.note else "")
    )


def in_all_open(result: Perturbation) -> str:
    """The metric that all inconclusive pairs within a run have in common, if other pairs are not open; else ""."""
    open_pairs = result.of("inconclusive")
    if result.kind != "inner" or not open_pairs or len(open_pairs) == len(result.pairs):
        return ""
    shared = set.intersection(*({pair.a, pair.b} for pair in open_pairs))
    return shared.pop() if len(shared) == 1 else ""


def _undecided(
    result: Perturbation, smallest_p: float, stuck: Sequence[Pair], noiseless: Sequence[Pair]
) -> list[str]:  # fmt: skip
    """Sentences on an inconclusive result: the open pairs, and the runs that would settle it."""
    open_pairs = result.of("inconclusive")
    sentences = [
        f"Neither perturbation nor its absence is shown for {len(open_pairs)} of "
        f"{counted(len(result.pairs), _noun(result))}; the least certain: "
        + ", ".join(pair.name for pair in open_pairs[:SHOWN_PAIRS])
        + "."
    ]
    if metric := in_all_open(result):
        sentences.append(
            f"All of them involve {metric}, and no pair of the other metrics is open: to leave it out of the "
            "metrics is cheaper than more runs."
        )
    if smallest_p > result.level:
        share = f" (its share of {result.alpha:g} among {result.comparisons} comparisons)"
        sentences.append(
            f"{_sizes(result)} allow no p-value below {p_number(smallest_p)}, so nothing can be significant at "
            f"{result.level:.3g}{share if result.comparisons > 1 else ''}: add runs."
        )
    if stuck:
        sentences.append(
            f"Further runs do not settle {listed_names([pair.name for pair in stuck])}, which "
            f"{'is' if len(stuck) == 1 else 'are'} undefined in some runs because a metric is constant there. Look at "
            "its signal: leave these runs out if something disturbed them, else the metric; or take longer records, in "
            "which it varies."
        )
        return sentences
    more = _more_runs(result, "settle it").strip()
    # Said, with what to do: how many runs it takes so few do not tell, and none settle pairs without noise.
    if noiseless or (not more and smallest_p > result.level):
        return sentences
    sentences.append(
        more
        or "No reasonable number of further runs would settle it: a change is about as large as the limit "
        f"of {result.delta:g} itself, or a correlation is not always defined; see the notes of the pairs."
    )
    return sentences


def _more_runs(result: Perturbation, purpose: str) -> str:
    if result.extra_runs_needed is None:
        return ""
    more = counted(result.extra_runs_needed, "more baseline")
    each = f", {'each ' if result.extra_runs_needed > 1 else ''}with its instrumented run,"
    if not result.paired:
        each = " and as many more instrumented runs"
    ahead = forecast(result.extra_runs_needed, result.spread_runs)
    if ahead.affordable:
        return f" About {more}{each} would probably (80%) {purpose} ({ahead.range_text})."
    return (
        f" No reasonable number of further runs would {purpose}: about {more}{each} probably (80%) would "
        f"({ahead.range_text}), more than the {ahead.most} in all that are advised. {_in_place_of_runs(result)}"
    )


def _in_place_of_runs(result: Perturbation) -> str:
    """What settles a verdict for which too many runs are needed, and why."""
    assessed = [pair for pair in result.pairs if pair.verdict != "not assessable"]
    opened = [pair for pair in result.pairs if pair.verdict in ("inconclusive", "changed")]
    reach = max((_reach(pair, result) for pair in opened if _defined(pair.ci[0])), default=float("nan"))
    larger = f"; a delta above {reach:.2f}, to which these intervals reach, if so much does not matter to you"
    return (
        f"What does: fewer hardware metrics, as all of {counted(len(assessed), _noun(result))} must be settled; a "
        "longer program or longer records, as z scatters less between runs with more events"
        f"{larger if _defined(reach) else ''}."
    )


def _not_assessable(result: Perturbation) -> list[str]:
    unknown = result.of("not assessable")
    if not unknown:
        return []
    reasons = Counter(reason for pair in unknown for reason in pair.reasons)
    shown = "; ".join(reason for reason, _ in reasons.most_common(SHOWN_PAIRS))
    more = " and other reasons, given with the pairs" if len(reasons) > SHOWN_PAIRS else ""
    return [
        f"Not assessable, so no absence of change is shown for {len(unknown)} of "
        f"{counted(len(result.pairs), _noun(result))}: {shown}{more}."
    ]


def _spreads(result: Perturbation) -> list[str]:
    """Sentences on the pairs whose runs scatter more, or less, than the baselines."""
    sentences = []
    for how, pairs, so in (
        ("more", result.scattered, "a single instrumented run says less than a plain one"),
        ("less", result.steadier, "see whether the machine was busier, or not warm yet, when the baselines were made"),
    ):
        spread = sorted(pairs, key=lambda pair: pair.p_spread)
        shown = ", ".join(
            f"{pair.name} (standard deviation of z {pair.baseline_z_sd:.3f} to {pair.run_z_sd:.3f}, "
            f"{p_text(pair.p_spread)} {over_all(result)})"
            for pair in spread[:SHOWN_PAIRS]
        )
        more = f" and {len(spread) - SHOWN_PAIRS} more" if len(spread) > SHOWN_PAIRS else ""
        if spread:
            sentences.append(
                f"Instrumented runs scatter {how} than baselines, whatever their mean did: {shown}{more}; {so}."
            )
    return sentences


def _exploratory(result: Perturbation) -> list[str]:
    if not result.exploratory:
        return []
    if result.verdict == "equivalent" and result.n_runs == 1:
        return [
            "Exploratory: one instrumented run shows no spread of its own; the verdict holds only if such runs vary no "
            "more than baselines do; make at least 3."
        ]
    advice = "use 10 pairs (at least 6)" if result.paired else (
        f"use 20 baselines (at least {FEWEST_BASELINES}) and 5 runs, or 10 of both (at least 6) in a campaign that "
        "pairs its runs,"
    )  # fmt: skip
    return [f"Exploratory: {_sizes(result)}; {advice} before relying on it."]


def _rises(result: Perturbation) -> list[str]:
    if result.kind == "inner":
        return []
    risen = [pair.name for pair in result.pairs if pair.ci[0] > 0 and pair.delta_z > result.delta]
    if not risen:
        return []
    return [f"The runs are more alike with the baselines than these are among themselves in {listed_names(risen)}."]


def _detectable(result: Perturbation) -> list[float]:
    return sorted(pair.detectable_dz for pair in result.pairs if _defined(pair.detectable_dz))


def _reach(pair: Pair, result: Perturbation) -> float:
    return -pair.ci[0] if result.kind != "inner" else max(abs(pair.ci[0]), abs(pair.ci[1]))


def _defined(value: float) -> bool:
    return value == value


def _noun(result: Perturbation) -> str:
    return "pair" if result.kind == "inner" else "metric"


def _sizes(result: Perturbation) -> str:
    if result.paired:
        return f"{counted(result.n_runs, 'pair')} of a baseline and a run"
    return f"{counted(result.n_baseline, 'baseline')} and {counted(result.n_runs, 'run')}"
