"""A variant is explained as the campaign runs it: its probes are in the program, and the machine does not see them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from measure.alignment.setting import DEFAULT_ALIGNMENT
from measure.explanation.explain_campaign import explain_judged
from measure.explanation.explain_variant import VariantPerturbation, chosen
from measure.explanation.explanation_types import Change
from measure.explanation.mechanisms import ACCESSES, BESIDE_PROBES, COMPILER, EXECUTED, LAYOUT, find_mechanisms
from measure.explanation.metric_effects import MetricEffects
from measure.explanation.paired_runs import PLAIN, PairedRuns, ProgramChoice
from measure.explanation.record_cuts import change_by_cuts
from measure.explanation.relations import Relations
from measure.explanation.remedies import _needless
from measure.explanation.remedy_candidates import SECOND_RUN, candidates
from measure.explanation.remedy_file import remedy_campaign
from measure.runs.campaign_model import Campaign
from measure.runs.executor import Workers
from tests.measure.explanation.conftest import Planted
from tests.measure.explanation.made_up import explanation
from tests.measure.explanation.test_planted_causes import STORES

# Beside a probe in `mixed` the compiler stores `seed` at each turn of its loop; the counter in `fill` costs next to
# nothing.
SMALL = STORES.replace("turn < 400", "turn < 30")
MIXES = {"event": "loop", "function": "mixed", "method": "probe"}
FILLS = {"event": "entry", "function": "fill"}
HARDWARE = ["PAPI_TOT_INS", "PAPI_SR_INS", "PAPI_BR_CN"]
BROKEN = [("PAPI_TOT_INS", "PAPI_SR_INS"), ("PAPI_SR_INS", "PAPI_BR_CN")]


def relations_of(paired: PairedRuns) -> Relations:
    return Relations(BROKEN, paired.hardware, DEFAULT_ALIGNMENT)


def whole_change(paired: PairedRuns, choice: ProgramChoice) -> np.ndarray:
    relations, made = relations_of(paired), paired.runs([choice, PLAIN])
    return relations.values(made[choice], made[PLAIN]) - relations.values(made[PLAIN], made[PLAIN])


def shares(change: Change) -> dict[str, float]:
    return {part.name: change.share(part).mean for part in change.parts}


def test_the_program_that_is_explained_is_the_one_that_the_campaign_runs(planted: Planted) -> None:
    """A probe beside a counter was dropped, and a variant of probes was explained with counters that cost."""
    metrics = {
        "mixes": MIXES, "fills": {**FILLS, "local": True}, "sweeps": {"event": "entry", "function": "sweep"},
        "draws": {"event": "entry", "function": "draw", "method": "second_run"},
        "turns": {"event": "loop", "function": "main", "sampled": 8},
    }  # fmt: skip
    variants = {"both": ["mixes", "fills", "turns"], "probe": ["mixes"], "second": ["draws"], "all": list(metrics)}
    paired = planted(SMALL, metrics, variants=variants, hardware_metrics=HARDWARE, controls=False)
    assert chosen(paired.campaign, "all") == ProgramChoice(("mixes", "fills", "sweeps", "turns"), unseen=("mixes",))
    assert chosen(paired.campaign, "probe") == ProgramChoice(("mixes",), unseen=("mixes",))
    assert chosen(paired.campaign, "second") == ProgramChoice()
    for variant in ("both", "probe"):
        run = next(spec for spec in paired.plan.specs if spec.variant == variant)
        mine = paired.spec(chosen(paired.campaign, variant), 0)
        assert (mine.build_key, mine.counters, mine.sampled) == (run.build_key, run.counters, run.sampled)
        assert mine.intervention == run.intervention is not None


@pytest.mark.slow
def test_what_a_probe_does_to_the_compiler_is_its_share_beside_a_counter(planted: Planted) -> None:
    """The counter beside it had 100% of a change that it did not make."""
    paired = planted(SMALL, {"mixes": MIXES, "fills": FILLS}, hardware_metrics=HARDWARE, pairs=2)
    choice = chosen(paired.campaign, "all")
    whole = whole_change(paired, choice)
    assert np.abs(whole).max() > 0.2
    metrics = MetricEffects(paired, choice, relations_of(paired)).shapley(0, 1)
    assert np.allclose(metrics.whole, whole)
    assert shares(metrics)["mixes"] > 0.8
    found = find_mechanisms(paired, choice, relations_of(paired))
    assert np.allclose(found.change.whole, whole)
    assert {part.name for part in found.change.parts} == {COMPILER, BESIDE_PROBES, LAYOUT}
    assert shares(found.change)[COMPILER] > 0.8
    assert found.cuts is None


def test_a_probe_alone_changes_by_the_compilers_decisions_only(planted: Planted) -> None:
    """39% of the change of a probe came from its executed instructions, of which the machine sees none."""
    paired = planted(SMALL, {"mixes": MIXES}, hardware_metrics=HARDWARE, pairs=2)
    choice = chosen(paired.campaign, "all")
    found = find_mechanisms(paired, choice, relations_of(paired), with_cuts=False)
    assert [part.name for part in found.change.parts] == [COMPILER]
    assert np.allclose(found.change.whole, whole_change(paired, choice))
    assert np.abs(found.change.whole).max() > 0.2
    codes = [paired.code(choice, pair, choice.metrics) for pair in range(2)]
    cuts = change_by_cuts(paired, choice, relations_of(paired), codes)
    assert np.isfinite(cuts).all()
    assert np.abs(cuts).max() < 2 * np.abs(found.change.whole).max()


def test_what_may_help_against_a_probe_is_tried(planted: Planted) -> None:
    """A probe was tried as a remedy for the probe, and one in 16 events, which a probe cannot count."""
    paired = planted(SMALL, {"mixes": MIXES, "fills": FILLS}, hardware_metrics=HARDWARE, pairs=1)
    choice = chosen(paired.campaign, "all")
    wanted = candidates(paired, "all", choice, ["mixes"], None)
    names = [one.name for one in wanted]
    assert names[:5] == [
        SECOND_RUN, f"{SECOND_RUN} for mixes", "entries of mixed in place of mixes", "all without mixes",
        "mixes in a run of its own",
    ]  # fmt: skip
    assert not [name for name in names if name.startswith(("probe", "one in", "counters in local"))]
    assert [one.unless for one in wanted[1:4]] == [SECOND_RUN] * 3
    assert [one.unseen for one in wanted[2].runs_of] == [("mixes",)]
    assert wanted[3].runs_of == (ProgramChoice(("fills",)),)
    assert wanted[4].runs_of == (ProgramChoice(("fills",)), ProgramChoice(("mixes",), unseen=("mixes",)))
    alone = candidates(paired, "all", choice.only(["mixes"]), ["mixes"], None)
    assert not [one for one in alone if one.name in ("all without mixes", "probe for mixes")]
    tried = replace(explanation().remedies[0])
    for one in wanted:
        written = Campaign.model_validate(
            remedy_campaign(paired.campaign, "all", replace(tried, campaign=one.campaign))
        )
        collected = {metric for metrics in written.variant_sets().values() for metric in metrics}
        assert {m for choice in one.runs_of for m in choice.metrics} <= collected
    (entries,) = (one for one in wanted if one.name.startswith("entries of"))
    written = Campaign.model_validate(
        remedy_campaign(paired.campaign, "all", replace(tried, campaign=entries.campaign))
    )
    assert (written.software_metrics["mixes"].event, written.software_metrics["mixes"].method) == ("entry", "probe")
    # Counters may be guilty, too.
    assert "probes for all metrics" in [one.name for one in candidates(paired, "all", choice, ["fills", "mixes"], None)]
    cache_line = next(one for one in wanted if one.name == "a cache line for each counter")
    only_compiler = replace(explanation().mechanisms, parts=())
    assert {ACCESSES, LAYOUT, BESIDE_PROBES} == set(cache_line.against)
    assert EXECUTED not in cache_line.against
    assert _needless(cache_line, only_compiler) == f"it is against {ACCESSES} (0% of the change)"


def test_metrics_of_a_second_run_alone_leave_nothing_to_explain(
    planted: Planted, tmp_path: Path, workers: Workers
) -> None:  # fmt: skip
    """They were explained with counters in the measured program, which the campaign's does not have."""
    paired = planted(SMALL, {"fills": {**FILLS, "method": "second_run"}}, hardware_metrics=HARDWARE, controls=False)
    judged = explanation().remedies[1].perturbation
    pairs = (replace(judged.pairs[0], verdict="perturbed"), *judged.pairs[1:])
    one = VariantPerturbation(replace(judged, verdict="perturbed", pairs=pairs), None)
    (tmp_path / "results").mkdir()
    found = explain_judged(paired.plan, {"all": one}, tmp_path / "results", Console(quiet=True), workers=workers)
    assert found.explanations == ()
    assert found.fine == {
        "all": "perturbed, though a second run counts all of its metrics and the measured program is the plain one"
    }
    assert paired.n_runs == 0
    assert (found.directory / "explain.html").read_text().count("measured program is the plain one") == 1
