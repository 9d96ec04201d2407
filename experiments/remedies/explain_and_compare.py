"""Runs the campaigns of this folder, explains their broken variants, and judges every set of their metrics.

Writes results.json, with an entry for each campaign on each machine. Started again, it makes the missing entries only.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any, Self

import numpy as np
from rich.console import Console

from experiments.remedies.statements import aggregated_statements
from measure.analysis.analysis import verdicts_of_variants
from measure.analysis.explained import FOLDER
from measure.campaign.run_command import make_campaign
from measure.explanation.explain_campaign import DEFAULT_PAIRS, explain_judged
from measure.explanation.explain_variant import VariantPerturbation
from measure.explanation.explanation_types import Explanation
from measure.explanation.paired_runs import PLAIN, PairedRuns, ProgramChoice
from measure.explanation.relations import Relations
from measure.explanation.remedies import CONFIRMING_PAIRS, Judge, largest_change
from measure.explanation.summary import as_json
from measure.programs.catalogue import ensure_sources
from measure.result_files import write_text_atomically
from measure.run_types import Run
from measure.runs.builds import catalogue_entry
from measure.runs.campaign_file import load_campaign
from measure.runs.campaign_model import Campaign
from measure.runs.executor import Workers
from measure.runs.store import Store

HERE = Path(__file__).parent
MACHINES = ("desktop", "strongarm")
CAMPAIGNS = ("chess", "netsimplex", "ooosim", "bwtzip", "lua", "sqlite")
Entry = dict[str, Any]


def examine(
    name: str, machine: str, directory: Path, workers: int | None, size: str | None = None, *, sets: bool = True
) -> Entry:  # fmt: skip
    """Run one campaign on one machine into ``directory``; explain what is broken. ``size``: another size of the
    program than the campaign's; ``sets``: also judge every set of metrics."""
    path = HERE / "campaigns" / f"{name}.yaml"
    settings = [f"machine={HERE.parents[1] / 'configs' / 'machines' / machine}.yaml"]
    settings += [f"program.size={size}"] if size else []
    with Timed() as campaign_time:
        finished = make_campaign(path, directory, Console(quiet=True), workers=workers, settings=settings)
    plan = finished.result.plan
    judged = {
        variant: VariantPerturbation(*found) for variant, found in verdicts_of_variants(plan, finished.outcome).items()
    }
    with Timed() as explain_time, Workers(workers) as makers:
        explained = explain_judged(plan, judged, directory, Console(quiet=True), workers=makers)
    variants: dict[str, Entry] = {
        variant: {"verdict": one.verdict, "where": one.where} for variant, one in judged.items()
    }  # fmt: skip
    with Workers(workers) as makers, Store(directory / FOLDER) as store:
        paired = PairedRuns(plan, load_campaign(path, settings)[1], store, makers, DEFAULT_PAIRS)
        for found in explained.explanations:
            variants[found.variant] |= _explanation(found, judged[found.variant])
            if sets:
                variants[found.variant]["sets"] = sets_of_metrics(paired, found.variant, judged[found.variant])
    print(f"{name} on {machine}: {campaign_time.seconds:.0f} s, {explain_time.seconds:.0f} s", flush=True)
    return {
        "campaign": name, "machine": machine,
        "seconds": round(campaign_time.seconds, 1), "processor_seconds": round(campaign_time.processor_seconds, 1),
        "explain_seconds": round(explain_time.seconds, 1),
        "explain_processor_seconds": round(explain_time.processor_seconds, 1),
        "variants": variants, "events": _events(finished.outcome.runs, plan.campaign),
        "functions": {
            metric: spec.callee or spec.function for metric, spec in plan.campaign.software_metrics.items()
        },
        "statements": _statements(plan.campaign),
    }  # fmt: skip


class Timed:
    """As a context manager: ``seconds`` and ``processor_seconds`` of what was done in it, by this process and by
    processes that it started and that have ended."""

    def __enter__(self) -> Self:
        self._began = time.monotonic(), _processor_seconds()
        return self

    def __exit__(self, *details: object) -> None:
        self.seconds = time.monotonic() - self._began[0]
        self.processor_seconds = _processor_seconds() - self._began[1]


def _processor_seconds() -> float:
    used = [resource.getrusage(which) for which in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _explanation(found: Explanation, judged: VariantPerturbation) -> Entry:
    """What `measure explain` says of a variant."""
    entry: Entry = as_json([found], {}, "")["variants"][found.variant]
    for key in ("counter_lines", "compiler_decisions", "sentences", "relations", "sites"):
        del entry[key]
    return entry | {
        "n_relations": len(found.relations),
        "within_the_campaigns_interval": _confirmed(found, judged),
        "decisions": [one.text for one in found.decisions if one.kind == "inlining"],
    }  # fmt: skip


def sets_of_metrics(paired: PairedRuns, variant: str, judged: VariantPerturbation) -> list[Entry]:
    """Every set of the variant's metrics, judged as the best remedies are, in further pairs of runs."""
    paired = paired.further(CONFIRMING_PAIRS)
    metrics = paired.campaign.variant_sets()[variant]
    relations = Relations(judged.broken, paired.hardware, paired.campaign.alignment_setting)
    judge = Judge(paired, relations)
    plain = paired.runs([PLAIN])[PLAIN]
    found = []
    for count in range(1, len(metrics) + 1):
        for chosen in combinations(metrics, count):
            runs = paired.runs([ProgramChoice(chosen)])[ProgramChoice(chosen)]
            verdict = judge(runs)
            found.append({
                "metrics": list(chosen), "verdict": verdict.verdict, "left_dz": round(largest_change(verdict), 4),
                "cycles_percent": _overhead(runs, plain, "total_cycles"),
                "instructions_percent": _overhead(runs, plain, "total_instructions"),
            })  # fmt: skip
    return found


def _overhead(runs: list[Run], plain: list[Run], key: str) -> float:
    ratios = [getattr(run, key) / getattr(base, key) for run, base in zip(runs, plain, strict=True)]
    return round(100 * (float(np.mean(ratios)) - 1), 4)


def _confirmed(found: Explanation, judged: VariantPerturbation) -> int:
    """Relations whose change in the explanation's own pairs of runs lies in the interval of the campaign's."""
    wide = {
        (pair.a, pair.b): pair.simultaneous
        for one in (judged.inner, judged.outer) if one is not None
        for pair in one.pairs
    }  # fmt: skip
    changes = (found.run_z - found.baseline_z).mean(axis=0)
    return sum(
        bool(wide[relation][0] <= change <= wide[relation][1])
        for relation, change in zip(found.relations, changes, strict=True)
    )


def _events(runs: Sequence[Run], campaign: Campaign) -> Mapping[str, float]:
    """Mean events of each software metric in a run, and ``seconds`` that a run takes on the simulated machine."""
    found: dict[str, list[float]] = {}
    for run in runs:
        for counter in run.spec.counters:
            found.setdefault(counter.metric, []).append(float(run.trace.columns((counter.metric,)).sum()))
    seconds = np.mean([run.total_cycles for run in runs]) / clock_hz(campaign)
    return {metric: float(np.mean(values)) for metric, values in found.items()} | {"seconds": float(seconds)}


def clock_hz(campaign: Campaign) -> int:
    """The clock of the campaign's machine."""
    from emulator.timing.machine_file import load_machine

    return load_machine(campaign.machine_file).clock_hz


def _statements(campaign: Campaign) -> Mapping[str, int]:
    entry = catalogue_entry(campaign.program)
    return aggregated_statements(ensure_sources(entry), entry.compiler_flags())


def read_entries(path: Path) -> list[Entry]:
    """The entries of a file of results; none without one."""
    found: list[Entry] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    return found


def main() -> None:
    """Make the missing entries."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("campaigns", nargs="*", default=CAMPAIGNS, help="default: all")
    parser.add_argument("--machine", choices=MACHINES, action="append", help="repeatable; default: both")
    parser.add_argument("--without-sets", action="store_true", help="only explain; do not judge every set of metrics")
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    given = parser.parse_args()
    for machine, name in product(given.machine or MACHINES, given.campaigns):
        entries = read_entries(given.out)
        if any((one["campaign"], one["machine"]) == (name, machine) for one in entries):
            continue
        with tempfile.TemporaryDirectory() as directory:
            entries.append(examine(name, machine, Path(directory), given.workers, sets=not given.without_sets))
        write_text_atomically(given.out, json.dumps(entries, indent=1) + "\n")


if __name__ == "__main__":
    main()
