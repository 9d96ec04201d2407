"""Puts numbers and verdicts into words, in one form for sentences, tables and pages."""

from __future__ import annotations

import math
from collections.abc import Sequence

from common.listed_names import listed
from measure.perturbation.analysis_types import Pair, Perturbation
from measure.stats.correlation import RHO_CEILING, is_at_ceiling

UNKNOWN = "unknown"
SHOWN_PAIRS = 3
"""Pairs that a sentence names, of many."""
_SMALLEST_P = 0.001


def counted(number: int, noun: str) -> str:
    """``1 metric``, ``2 metrics``."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def listed_names(names: Sequence[str]) -> str:
    """``a, b, c and 4 more``."""
    return listed(names, SHOWN_PAIRS)


def unlike_records(lengths: Sequence[str]) -> str:
    """A sentence on records of different lengths: they correlate differently, whatever the program does. ``lengths``:
    each with the trace, run or campaign that has it."""
    return (
        f"Records are not of one length ({', '.join(lengths)}): this alone changes correlations; sample all runs alike."
    )


def unlike_sampling(modes: str) -> str:
    """A sentence on records that are taken in different ways. ``modes``: each with the run or campaign that has it."""
    return (
        f"Records are not taken in one way (mode {modes}): a handler of signals is in the traces of one of them only, "
        "which alone changes correlations; sample all runs alike."
    )


def number_text(value: float | None, sign: bool = False) -> str:
    """A number with three digits, ``-`` where it is not known. ``sign``: also that of a positive one."""
    return "-" if value is None or math.isnan(value) else f"{value:+.3f}" if sign else f"{value:.3f}"


def p_number(p: float) -> str:
    """A p-value without its letter: ``0.042``, ``< 0.001``, ``-`` for nan."""
    if math.isnan(p):
        return "-"
    return f"< {_SMALLEST_P:g}" if p < _SMALLEST_P else f"{p:.3f}"


def p_text(p: float) -> str:
    """A p-value in a sentence: ``p = 0.042``, ``p < 0.001``, ``no p-value``."""
    if math.isnan(p):
        return "no p-value"
    return f"p {p_number(p)}" if p < _SMALLEST_P else f"p = {p_number(p)}"


def over_all(perturbation: Perturbation) -> str:
    """Over what p-values and simultaneous intervals hold together: the comparison's pairs, or those of all that were
    tested together."""
    return "over all pairs of the campaign" if perturbation.together > 1 else "over all pairs"


def rho_text(rho: float, digits: int = 2) -> str:
    """A correlation ``0.71``; ``0.99 or more`` where z is cut off, so that it is not known better; ``-`` for nan."""
    if is_at_ceiling(rho):
        return f"{RHO_CEILING:g} or more" if rho > 0 else f"{-RHO_CEILING:g} or less"
    return "-" if math.isnan(rho) else f"{rho:.{digits}f}"


def rhos_text(before: float, after: float) -> str:
    """Two correlations, ``0.71 to 0.25``, with as many digits as tell them apart, two to four."""
    for digits in (2, 3, 4):
        texts = [rho_text(rho, digits) for rho in (before, after)]
        if texts[0] != texts[1]:
            break
    return " to ".join(texts)


def percent(value: float) -> str:
    """A change in percent; "unknown" for nan, which traces of other tools may have."""
    return f"{value:+z.2f}%" if math.isfinite(value) else UNKNOWN


def in_words(perturbation: Perturbation) -> str:
    """The meaning of a verdict, with the p-value of a change of any size.

    A p-value answers whether there is any change, a verdict whether the change matters: an equivalent run may have
    changed measurably. Both questions are answered in turn. Of an inconclusive comparison, what changed measurably is
    known to have changed by less than delta, or the verdict would be *changed*; other pairs are open. Unless the runs
    drift in their order, for which a change that is measured is left open (`measure.perturbation.run_order`). A p-value
    below alpha is stated with the share of alpha by which it is judged, if it is above that.
    """
    p = perturbation.p_value
    above = f", above its level of {perturbation.level:.3g}" if perturbation.level < p <= perturbation.alpha else ""
    measurable = p <= perturbation.level
    if perturbation.verdict == "not assessable":
        seen = "changed measurably, by less than delta; elsewhere " if measurable else ""
        return f"{seen}an absence of change cannot be shown ({p_text(p)}{above})"
    if math.isnan(p):
        return f"not tested ({p_text(p)})"
    drifting = any(
        pair.verdict == "inconclusive" and pair.p_adjusted <= perturbation.level for pair in perturbation.pairs
    )
    delta = perturbation.delta
    grave = perturbation.of("perturbed")
    beyond = [pair for pair in grave if pair.simultaneous[0] > delta or pair.simultaneous[1] < -delta]
    meaning = {
        "perturbed": "a metric is constant in the runs or in the baselines, and not in the others"
        if grave and not beyond
        else "changed by more than delta",
        "changed": "changed measurably, perhaps by more than delta",
        "equivalent": "changed measurably, by less than delta"
        if measurable
        else "no measurable change, less than delta",
        "inconclusive": "changed measurably, perhaps by a drift in the order of the runs"
        if drifting
        else "delta is not excluded; what changed measurably changed by less"
        if measurable
        else "too few runs to show a change, and delta is not excluded"
        if perturbation.too_few
        else "no measurable change, but delta is not excluded",
    }[perturbation.verdict]
    return f"{meaning} ({p_text(p)}{above})"


def beside(perturbation: Perturbation) -> str:
    """The restriction to state beside an *equivalent* verdict that rests on less than it seems; empty without any."""
    if perturbation.verdict != "equivalent":
        return ""
    parts = []
    if unknown := len(perturbation.of("not assessable")):
        noun = "pairs" if perturbation.kind == "inner" else "metrics"
        parts.append(f"{unknown} of {len(perturbation.pairs)} {noun} {'is' if unknown == 1 else 'are'} not assessable")
    if perturbation.n_runs == 1:
        parts.append("it rests on one run")
    elif perturbation.exploratory:
        parts.append(f"it rests on {perturbation.n_runs} runs and {perturbation.n_baseline} baselines, which are few")
    return " and ".join(parts)


def seldom_unseen(runs: int) -> str:
    """What share of all runs may be changed, and none of so many ``runs`` with 5% probability: ``26%`` of 10."""
    return f"{1 - 0.05 ** (1 / runs):.0%}"


def pair_in_words(pair: Pair, level: float) -> str:
    """A pair's verdict in one or two words: `equivalent` beside a small p-value would read as a contradiction."""
    if pair.verdict == "equivalent" and pair.p_adjusted <= level:
        return "changed < delta"
    return pair.verdict
