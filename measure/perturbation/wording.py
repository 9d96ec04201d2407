"""Puts numbers and verdicts into words, in one form for sentences, tables and pages."""

from __future__ import annotations

import math

from measure.perturbation.analysis_types import Pair, Perturbation

UNKNOWN = "unknown"
_SMALLEST_P = 0.001


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


def percent(value: float) -> str:
    """A change in percent; "unknown" for nan, which traces of other tools may have."""
    return f"{value:+.2f}%" if math.isfinite(value) else UNKNOWN


def in_words(perturbation: Perturbation) -> str:
    """The meaning of a verdict, with the p-value of a change of any size.

    A p-value answers whether there is any change, a verdict whether the change matters: an equivalent run may have
    changed measurably. Both questions are answered in turn.
    """
    p = perturbation.p_value
    if math.isnan(p):
        changed = {"equivalent": "changed by less than delta", "inconclusive": "not tested"}
        return f"{changed.get(perturbation.verdict, 'changed by more than delta')} ({p_text(p)})"
    measurable = p <= perturbation.alpha
    if perturbation.verdict == "perturbed":
        meaning = "changed by more than delta"
    elif perturbation.verdict == "equivalent":
        meaning = "changed measurably, by less than delta" if measurable else "no measurable change, less than delta"
    elif measurable:
        meaning = "changed measurably, perhaps by more than delta"
    else:
        meaning = "no measurable change, but delta is not excluded"
    return f"{meaning} ({p_text(p)})"


def pair_in_words(pair: Pair, alpha: float) -> str:
    """A pair's verdict in one or two words: `equivalent` beside a small p-value would read as a contradiction."""
    if pair.verdict == "equivalent" and pair.p_adjusted <= alpha:
        return "changed < delta"
    return pair.verdict
