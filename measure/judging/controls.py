"""Controls of a campaign: a variant that must not be perturbed, and a known change that must be found.

The *null control* has counters in code that never runs: it is built, linked, run and judged as a variant, so a verdict
of *perturbed* or *changed* is a false alarm of the whole chain. The *positive control* takes the null control's traces
and changes the correlation of one pair of hardware metrics by a known amount, twice delta: if the test does not find
it, the campaign has too few runs or too noisy ones, and its verdicts other than *perturbed* say little. It makes no
runs. Where no change of that size can be made, a smaller one that the test overlooks is told, and is no failure.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from measure.judging.comparison import VariantComparison
from measure.perturbation.analysis_types import BROKEN, Perturbation, Verdict, gravest
from measure.perturbation.wording import p_text
from measure.run_types import Run
from measure.stats.correlation import fisher_z, spearman

INJECTED_DELTAS = 2.0
"""Injected change of z, in multiples of delta."""
CONTROL_NAMES = ("null control", "positive control")
_HIGHEST_Z = math.atanh(0.99)
_STEPS = 12


@dataclass(frozen=True)
class Injection:
    """A known change: ``fraction`` of the records of metric ``a`` are shuffled, or sorted by ``b`` if ``coupled``.

    ``injected``: mean change of z of the pair ``a``, ``b`` in the traces that it was made in; ``wanted``: the size
    that it was to have at least.
    """

    a: str
    b: str
    coupled: bool
    fraction: float
    injected: float
    wanted: float

    @property
    def is_too_small(self) -> bool:
        """Whether these traces leave no room for the wanted change."""
        return abs(self.injected) < self.wanted

    @property
    def pair(self) -> tuple[str, str]:
        """The metrics."""
        return self.a, self.b


@dataclass(frozen=True)
class Controls:
    """Result of the controls. ``null``: within runs, and across them unless alignment is off; ``injection``: None when
    no pair of metrics can be changed; ``found``: whether the test found it, with ``p`` over all pairs."""

    null: tuple[Perturbation, ...]
    injection: Injection | None
    found: bool
    p: float

    @property
    def false_alarm(self) -> Verdict | None:
        """*Perturbed* or *changed* if that is the gravest verdict of the null control, else None."""
        verdict = gravest([one.verdict for one in self.null])
        return verdict if verdict in BROKEN else None

    @property
    def overlooks(self) -> bool:
        """Whether the test did not find an injected change of the wanted size."""
        return self.injection is not None and not self.found and not self.injection.is_too_small

    @property
    def failures(self) -> dict[str, str]:
        """A sentence on each control that failed, to be read before any verdict."""
        sentences: dict[str, str] = {}
        if self.false_alarm:
            sentences[CONTROL_NAMES[0]] = (
                f"The null control is {self.false_alarm}: counters in code that never runs changed a relation of "
                f"metrics, so this campaign's verdicts of {' and '.join(BROKEN)} may be false alarms; more runs, or "
                "another seed, show whether it stays."
            )
        if self.injection is None:
            sentences[CONTROL_NAMES[1]] = (
                "There is no positive control: no pair of metrics can be assessed, so none can be changed."
            )
        elif self.overlooks:
            sentences[CONTROL_NAMES[1]] = (
                f"The positive control was not found: {self._injected} was not significant over all pairs. This "
                "campaign can overlook changes of that size; more baselines and replicates are needed."
            )
        return sentences

    @property
    def text(self) -> str:
        """Both results in a sentence."""
        null = ", ".join(
            f"{one.verdict} {'within a run' if one.kind == 'inner' else 'across runs'}" for one in self.null
        )
        if self.injection is None:
            return f"null control: {null}; no positive control"
        found = "found" if self.found else "not found"
        return f"null control: {null}; positive control: {self._injected} {found} ({p_text(self.p)})"

    @property
    def _injected(self) -> str:
        assert self.injection is not None
        one = self.injection
        size = f"a change of z of {one.injected:+.2f} injected into {one.a} - {one.b}"
        if one.is_too_small:
            return f"{size}, the largest that can be made there and less than the {one.wanted:.2f} wanted,"
        return size


def choose_injection(
    tables: Sequence[NDArray[Any]],
    metrics: Sequence[str],
    delta: float,
    seed: int,
    left_out: Collection[frozenset[str]] = (),
) -> Injection | None:
    """The change to inject into ``tables``, one ``(n, m)`` a run: of a pair as far from rho = 0 as leaves room.

    A pair with |z| above the change is weakened; if there is none, the pair with the largest |z| is strengthened. The
    fraction is the smallest that bisection finds with a change of at least twice ``delta``, and 1 if none has it.
    None when no pair is defined in all runs and not ``left_out``.
    """
    wanted = INJECTED_DELTAS * delta
    first, second = np.triu_indices(len(metrics), 1)
    z = np.array([fisher_z(spearman(table, metrics).rho[first, second]) for table in tables]).mean(axis=0)
    kept = [
        frozenset((metrics[i], metrics[j])) not in left_out
        for i, j in zip(first.tolist(), second.tolist(), strict=True)
    ]
    usable = np.isfinite(z) & (np.abs(z) < _HIGHEST_Z) & np.array(kept)
    if not usable.any():
        return None
    strength = np.where(usable, np.abs(z), -1.0)
    pair = int(strength.argmax())
    coupled = bool(strength[pair] <= wanted * 1.25)
    a, b = int(first[pair]), int(second[pair])

    def injection(fraction: float) -> Injection:
        trial = Injection(metrics[a], metrics[b], coupled, fraction, 0.0, wanted)
        changed = inject(tables, metrics, trial, seed)
        after = [fisher_z(np.array([spearman(table[:, [a, b]], trial.pair).rho[0, 1]])) for table in changed]
        return replace(trial, injected=float(np.mean(after) - z[pair]))

    chosen = injection(1.0)
    if chosen.is_too_small:
        return chosen
    too_low = 0.0
    for _ in range(_STEPS):  # bisection: the change grows with the fraction, in steps where records are few
        trial = injection((too_low + chosen.fraction) / 2)
        if trial.is_too_small:
            too_low = trial.fraction
        else:
            chosen = trial
    return chosen


def inject(
    tables: Sequence[NDArray[Any]], metrics: Sequence[str], injection: Injection, seed: int
) -> list[NDArray[Any]]:
    """Copies of ``tables`` with the change; each metric keeps its values, in another order."""
    a, b = (list(metrics).index(name) for name in injection.pair)
    found = []
    for number, table in enumerate(tables):
        rng = np.random.default_rng([seed, 8, number])
        chosen = rng.permutation(len(table))[: round(injection.fraction * len(table))]
        changed = table.copy()
        if injection.coupled:
            changed[chosen[np.argsort(table[chosen, b], kind="stable")], a] = np.sort(table[chosen, a])
        else:
            changed[chosen, a] = rng.permutation(table[chosen, a])
        found.append(changed)
    return found


def judge_controls(comparison: VariantComparison, runs: Sequence[Run]) -> Controls:
    """The controls of a campaign from the ``runs`` of its null control."""
    campaign = comparison.campaign
    null = [comparison.inner(runs)]
    if campaign.outer:
        null.append(comparison.outer(runs, held_out=True))
    tables = comparison.tables(runs)
    silent = {frozenset((pair.a, pair.b)) for pair in null[0].pairs if pair.verdict == "not assessable"}
    injection = choose_injection(tables, campaign.hardware_metrics, campaign.delta, campaign.seed, silent)
    if injection is None:
        return Controls(tuple(null), None, False, math.nan)
    changed = inject(tables, campaign.hardware_metrics, injection, campaign.seed)
    return Controls(tuple(null), injection, *is_found(injection, comparison.inner(runs, changed)))


def is_found(injection: Injection, perturbation: Perturbation) -> tuple[bool, float]:
    """Whether the injected pair's change is significant over all pairs, and its p."""
    for pair in perturbation.pairs:
        if {pair.a, pair.b} == set(injection.pair):
            return bool(pair.p_adjusted <= perturbation.level), float(pair.p_adjusted)
    return False, math.nan
