"""Compares the records of counts from a second run with those of probes, in the campaigns of this folder.

A probe counts entries of a function in the measured program itself, exactly, where the compiler has inlined none of its
calls. Writes placement.json: for each such metric its events, and how many are in another record than the probe has
them in.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from emulator.linux.loader.elf import load_image
from experiments.remedies.explain_and_compare import CAMPAIGNS, HERE
from measure.result_files import write_text_atomically
from measure.run_types import BASELINE, PLACE_GAP, PROBE, ProbePlaces, RunSpec
from measure.runs.campaign_file import load_campaign
from measure.runs.campaign_model import Campaign
from measure.runs.plan import Plan, make_plan
from measure.targets.emulated import EmulatedTarget
from measure.targets.program_file import program_of

_BEYOND = 0.02
RUNS = 2  # of each variant, in layouts of their own


def compare(name: str) -> Iterator[dict[str, Any]]:
    """Each metric of a campaign that counts entries or calls of a function that the plain program has."""
    path = HERE / "campaigns" / f"{name}.yaml"
    metrics = load_campaign(path)[0].software_metrics
    settings = [f"software_metrics.{metric}.method=second_run" for metric in metrics]
    campaign, document = load_campaign(path, settings)
    plan = make_plan(campaign, document, lambda text: None)
    for variant, names in campaign.variant_sets().items():
        for number in range(RUNS):
            yield from _compared(campaign, variant, names, *_pair(plan, variant, number))


def _pair(plan: Plan, variant: str, number: int) -> tuple[RunSpec, RunSpec]:
    found = {spec.variant: spec for spec in plan.specs if spec.replicate == number}
    return found[BASELINE], found[variant]


def _compared(
    campaign: Campaign, variant: str, names: tuple[str, ...], base: RunSpec, spec: RunSpec
) -> Iterator[dict[str, Any]]:
    image = load_image(program_of(base))
    probes = []
    for metric in names:
        about = campaign.software_metrics[metric]
        function = {"entry": about.function, "call": about.callee}.get(about.event)
        place = image.find_symbol(function) if function else None
        if place is not None:
            probes.append(ProbePlaces(metric, (place.address,), ()))
    exact = EmulatedTarget().execute(replace(base, probes=tuple(probes))).trace
    run = EmulatedTarget().execute(spec).trace
    same = np.array_equal(exact.counts(campaign.hardware_metrics), run.counts(campaign.hardware_metrics))
    gaps = run.counts((PLACE_GAP,))
    for probe in probes:
        wanted, found = exact.counts((PROBE + probe.name,)), run.counts((probe.name,))
        # Where some calls are inlined, a probe misses their events; else totals differ by what is beyond the records.
        if abs(int(found.sum() - wanted.sum())) <= 1 + _BEYOND * int(wanted.sum()):
            yield {
                "campaign": campaign.name, "variant": variant, "metric": probe.name, "run": spec.replicate,
                "events": int(wanted.sum()), "misplaced": int(np.abs(np.cumsum(found - wanted)).sum()),
                "records": len(wanted), "hardware_counts_are_the_same": bool(same),
                "gap_instructions_median": float(np.median(gaps)), "gap_instructions_most": int(gaps.max()),
            }  # fmt: skip


def main() -> None:
    """Compare all campaigns."""
    found = [one for name in CAMPAIGNS for one in compare(name)]
    write_text_atomically(HERE / "placement.json", json.dumps(found, indent=1) + "\n")
    events, misplaced = (sum(one[key] for one in found) for key in ("events", "misplaced"))
    metrics = {(one["campaign"], one["metric"]) for one in found}
    print(f"{len(metrics)} metrics, {events:,} events, {misplaced} in another record")


if __name__ == "__main__":
    main()
