"""Where the spread of z between baselines comes from: code layout, page frames, timer phase, and the rest.

From pairs alone: the noise that a baseline and the run of a variant paired with it share, and what is left. With
``variance_runs`` also source by source: run i of a source is baseline i with only that source drawn anew, so that half
the mean square of their difference estimates the source's variance, its interactions included. Variances are added up
over pairs of metrics, so pairs that spread most count most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from measure.run_types import BASELINE, Run, RunSpec
from measure.runs.campaign_model import Campaign
from measure.stats.correlation import fisher_z, spearman

SOURCES = {
    "layout": "code layout",
    "memory": "page frames and initial cache state",
    "phase": "timer phase",
}
"""What can be drawn anew by itself, and its words."""
REST = "the rest (stack, heap, environment, interrupts)"
_PREFIX = "noise of "
_MORE_THAN_ALL = 1.005  # as rounded to whole percent
_OTHER_LAYOUT = 1 << 31  # added to the seed of a layout; drawn seeds are below


def noise_runs(campaign: Campaign) -> int:
    """Number of runs that a campaign makes for the sources of noise."""
    return len(SOURCES) * min(campaign.variance_runs, campaign.baselines)


def planned_runs(campaign: Campaign) -> int:
    """Number of all runs of a campaign, those of the null control and for the sources of noise included."""
    compared = len(campaign.variant_sets()) + campaign.has_controls
    return campaign.baselines + campaign.replicates * compared + noise_runs(campaign)


@dataclass(frozen=True)
class Components:
    """Shares of the variance of z between baselines. ``shared``: what paired runs share, None if unpaired;
    ``sources``: by words; empty without runs for it; ``runs``: for each source.

    Interactions count in each source that takes part, so the shares of sources can add up to more than 1."""

    shared: float | None
    sources: Mapping[str, float]
    runs: int

    @property
    def text(self) -> str:
        """The shares in a sentence, and which dominates."""
        sentences = []
        if self.shared is not None:
            sentences.append(f"noise that pairs share makes {self.shared:.0%} of the variance of z, and cancels")
        if self.sources:
            shares = ", ".join(f"{words} {share:.0%}" for words, share in self.sources.items())
            largest = max(self.sources, key=lambda words: self.sources[words])
            whole = sum(self.sources.values())
            more = f" and {whole:.0%} in all, since they act together or by chance" if whole > _MORE_THAN_ALL else ""
            sentences.append(f"{shares} (rough: {self.runs} runs each{more}); {largest} dominates")
        return "; ".join(sentences) or "not estimated (`variance_runs: 4` does)"


def variant_of(source: str) -> str:
    """Name in place of a variant for the runs of a source."""
    return _PREFIX + source


def redrawn(baseline: RunSpec, source: str) -> RunSpec:
    """The run of ``baseline`` with only the noise of ``source`` drawn anew."""
    spec = replace(baseline, variant=variant_of(source))
    if source == "layout":
        return replace(spec, layout_seed=None if spec.layout_seed is None else spec.layout_seed + _OTHER_LAYOUT)
    return replace(spec, redrawn=source)


def sources_of(baseline: RunSpec) -> list[str]:
    """The sources of noise that the run has and that can be drawn anew."""
    noise = baseline.noise
    has = {
        "layout": baseline.layout_seed is not None,
        "memory": noise.page_placement or noise.cache_state,
        "phase": noise.timer_phase,
    }
    return [source for source in SOURCES if has[source]]


def components(runs: Sequence[Run], hardware: tuple[str, ...], paired: bool) -> Components:
    """The components from all ``runs`` of a campaign. ``paired``: runs of variants share their baseline's noise."""
    by_variant: dict[str, dict[int, NDArray[np.float64]]] = {}
    for run in runs:
        by_variant.setdefault(run.spec.variant, {})[run.spec.replicate] = _z(run, hardware)
    baselines = by_variant.pop(BASELINE, {})
    if len(baselines) < 2:
        return Components(None, {}, 0)
    total = _variance(list(baselines.values()))
    sources = {source: by_variant.pop(variant_of(source), {}) for source in SOURCES}
    shared = [_shared(baselines, one) for one in by_variant.values()] if paired else []
    shared = [share for share in shared if np.isfinite(share)]
    found: dict[str, float] = {}
    for source, again in sources.items():
        both = sorted(baselines.keys() & again.keys())
        if both and total > 0:
            half = np.nansum([np.mean([(again[n] - baselines[n]) ** 2 for n in both], axis=0)]) / 2
            found[SOURCES[source]] = float(half) / total
    if found and (rest := 1 - sum(found.values())) > 0:
        found[REST] = rest
    count = min((len(one) for one in sources.values() if one), default=0)
    return Components(float(np.median(shared)) if shared else None, found, count)


def _z(run: Run, hardware: tuple[str, ...]) -> NDArray[np.float64]:
    first, second = np.triu_indices(len(hardware), 1)
    return fisher_z(spearman(run.trace.counts(hardware), hardware).rho[first, second])


def _variance(z: Sequence[NDArray[np.float64]]) -> float:
    return float(np.nansum(np.var(np.array(z), axis=0, ddof=1)))


def _shared(baselines: Mapping[int, NDArray[np.float64]], runs: Mapping[int, NDArray[np.float64]]) -> float:
    """Share of the variance that is common to both runs of a pair; at least 0, nan with too few pairs."""
    both = sorted(baselines.keys() & runs.keys())
    if len(both) < 2:
        return float("nan")
    before, after = [baselines[n] for n in both], [runs[n] for n in both]
    apart = _variance(before) + _variance(after)
    together = _variance([b - a for b, a in zip(before, after, strict=True)])
    return max(0.0, 1 - together / apart) if apart > 0 else float("nan")
