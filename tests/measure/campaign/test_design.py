"""The design of a campaign: paired seeds, interleaved runs, looks, and what the plan can find."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from measure.errors import CampaignError
from measure.judging.comparison import compared
from measure.judging.power import Spread, assumed_spread, detectable_change, measured_spread, plan_text
from measure.perturbation.verdict import Family
from measure.run_types import BASELINE, NULL_CONTROL, Run, RunSpec, Trace
from measure.runs.campaign_file import load_campaign
from measure.runs.campaign_model import Campaign
from measure.runs.looks import History, Other, after_look, continued, first_look, load_history
from measure.runs.plan import Plan, interleaved, make_plan
from measure.runs.plan_file import save_plan
from tests.measure.demo_program import PROGRAM, source_file
from tests.measure.perturbation.test_family import evidence

ROOT = Path(__file__).parents[3]
CAMPAIGN = f"""\
name: c
program: {{source: p.c}}
machine: {ROOT}/configs/machines/strongarm.yaml
hardware_metrics: [PAPI_TOT_INS, PAPI_LD_INS, PAPI_L1_DCM]
software_metrics: {{work: {{event: entry, function: work}}, next: {{event: entry, function: next}}}}
variants: {{light: [work], heavy: [work, next]}}
"""
SPEC = RunSpec(
    variant=BASELINE, replicate=0, seed=1, build_key="k", binary="b", arguments=(), stdin=None, files=(), machine="m",
    machine_name="m", hardware_metrics=("x", "y"), counters=(), sampling_mode="ideal", interval=10,
    interval_unit="cycles",
)  # fmt: skip


def plan_of(folder: Path, more: str = "") -> Plan:
    if not (folder / "p.c").exists():
        (folder / "p.c").symlink_to(source_file(PROGRAM))
    (folder / "c.yaml").write_text(CAMPAIGN + more)
    return make_plan(*load_campaign(folder / "c.yaml"), lambda text: None, "fake")


def run_of(variant: str, replicate: int) -> Run:
    none = np.zeros((0, 2), np.int64)
    spec = replace(SPEC, variant=variant, replicate=replicate)
    return Run(spec, Trace(np.zeros(1, np.int64), np.zeros(1, np.int64), none, ("x", "y")), 0, 0, 0.0, "")


# --- pairs
def test_runs_of_a_replicate_share_seed_and_layout_and_replicates_do_not(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "baselines: 6\nreplicates: 6\n")
    drawn = {(spec.variant, spec.replicate): (spec.seed, spec.layout_seed) for spec in plan.specs}
    assert len(drawn) == 24
    assert {variant for variant, _ in drawn} == {BASELINE, "light", "heavy", NULL_CONTROL}
    for replicate in range(6):
        assert len({drawn[variant, replicate] for variant in (BASELINE, "light", "heavy", NULL_CONTROL)}) == 1
    assert len({seed for seed, _ in drawn.values()}) == len({layout for _, layout in drawn.values()}) == 6
    assert None not in {layout for _, layout in drawn.values()}


@pytest.mark.parametrize("more", ["baselines: 6\nreplicates: 6\npaired: false\n", "baselines: 20\nreplicates: 5\n"])
def test_unpaired_runs_share_nothing(tmp_path: Path, more: str) -> None:
    plan = plan_of(tmp_path, more)
    assert plan.campaign.pairs == 0
    assert len({spec.seed for spec in plan.specs}) == len({spec.layout_seed for spec in plan.specs}) == len(plan.specs)


def test_a_number_of_layouts_is_a_number_of_builds(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "controls: false\nnoise: {code_layouts: 3}\n")
    assert {spec.layout_seed for spec in plan.specs} == {None}
    assert len({spec.binary for spec in plan.specs if spec.variant == BASELINE}) == 3
    layout = {(spec.variant, spec.replicate): spec.binary for spec in plan.specs}
    by_build: dict[str, set[int]] = {}
    for (variant, replicate), binary in layout.items():
        if variant == BASELINE:
            by_build.setdefault(binary, set()).add(replicate)
    assert all(len({layout["light", replicate] for replicate in alike}) == 1 for alike in by_build.values())


def test_more_replicates_change_no_run(tmp_path: Path) -> None:
    few = plan_of(tmp_path, "baselines: 6\nreplicates: 6\n")
    many = plan_of(tmp_path, "baselines: 8\nreplicates: 8\n")
    assert set(few.keys) < set(many.keys)


def test_pairs_are_matched_by_replicate_however_few_are_left(tmp_path: Path) -> None:
    campaign = plan_of(tmp_path, "baselines: 8\nreplicates: 8\n").campaign
    baselines, runs = ([run_of(variant, n) for n in range(8)] for variant in (BASELINE, "light"))
    left = compared(campaign, [run for run in baselines if run.spec.replicate != 3], runs[1:])
    assert left.paired
    both = [1, 2, 4, 5, 6, 7]
    assert [run.spec.replicate for run in left.runs] == both
    assert [run.spec.replicate for run in left.baselines] == [*both, 0]  # the last has no partner
    few = compared(campaign, baselines[3:], runs[:7])
    assert few.paired
    assert few.has_few_pairs
    assert [run.spec.replicate for run in few.runs] == [3, 4, 5, 6]
    assert [run.spec.replicate for run in few.baselines] == [3, 4, 5, 6, 7]
    none = compared(campaign, baselines[:3], runs[3:])
    assert not none.paired
    assert (len(none.baselines), len(none.runs)) == (3, 5)


# --- order
@given(counts=st.lists(st.integers(1, 12), min_size=1, max_size=4), seed=st.integers(0, 999))
def test_every_block_has_its_share_of_each_variant(counts: list[int], seed: int) -> None:
    specs = [replace(SPEC, variant=f"v{v}", replicate=n) for v, count in enumerate(counts) for n in range(count)]
    ordered = interleaved(specs, seed)
    assert sorted(ordered, key=specs.index) == specs
    assert interleaved(specs, seed) == ordered
    blocks, so_far, begin = min(counts), Counter[str](), 0
    for block in range(1, blocks + 1):
        wanted = {f"v{v}": -(-count * block // blocks) for v, count in enumerate(counts)}
        end = sum(wanted.values())
        so_far.update(spec.variant for spec in ordered[begin:end])
        assert so_far == wanted
        begin = end


def test_the_order_inside_blocks_is_random() -> None:
    specs = [replace(SPEC, variant=variant, replicate=n) for variant in "abc" for n in range(20)]
    firsts = Counter(spec.variant for spec in interleaved(specs, 1)[::3])
    assert len(firsts) == 3
    assert interleaved(specs, 1) != interleaved(specs, 2)


# --- looks
def history(campaign: Campaign, keys: tuple[str, ...] = ("a",)) -> History:
    return first_look(campaign, "machine", keys, {})


def test_an_extended_campaign_is_a_further_look_and_its_alpha_is_paid_for(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "baselines: 6\nreplicates: 6\nlooks: 2\n")
    campaign = plan.campaign
    assert campaign.alpha_of_a_look == campaign.alpha / 2
    first = history(campaign)
    larger = history(campaign.model_copy(update={"baselines": 9, "replicates": 9}), ("a", "b"))
    assert (first.kind, first.design) != (larger.kind, larger.design)
    assert first.kind == larger.kind
    assert continued(first, None, False) == first
    assert continued(first, first, True) == first
    second = continued(larger, first, True)
    assert [(look.baselines, look.replicates) for look in second.looks] == [(6, 6), (9, 9)]
    assert second.warnings(campaign) == ()
    assert "look 2 of 2 planned (6 + 6, then 9 + 9 runs), each at alpha 0.025" in second.text(campaign)
    once = campaign.model_copy(update={"looks": 1})
    assert ", look 2, 1 planned (6 + 6, then 9 + 9 runs)" in second.text(once)
    assert "is up to 10.0%, not 5.0%" in second.warnings(once)[0]


def test_results_that_nobody_saw_are_no_look(tmp_path: Path) -> None:
    campaign = plan_of(tmp_path).campaign
    first = history(campaign)
    larger = history(campaign.model_copy(update={"baselines": 20, "replicates": 20}), ("a", "b"))
    assert continued(larger, first, False).looks == larger.looks


def test_a_look_before_all_runs_are_made_is_a_look_of_its_own(tmp_path: Path) -> None:
    # Who read the report of an interrupted campaign, and went on, looked twice, and once was counted.
    campaign = plan_of(tmp_path, "baselines: 6\nreplicates: 6\n").campaign
    first = history(campaign)
    early = after_look(first, 5, 12)
    assert [look.made for look in early.looks] == [5]
    assert after_look(early, 5, 12) == early  # the same runs, read again
    assert [look.made for look in after_look(early, 8, 12).looks] == [5, 8]
    resumed = continued(first, early, True)
    assert resumed.text(campaign).startswith(f"{first.design[:12]}, look 2, 1 planned (5 of 6 + 6, then 6 + 6 runs)")
    assert "is up to 10.0%, not 5.0%" in resumed.warnings(campaign)[0]
    assert continued(first, resumed, True) == resumed  # interrupted again, and not looked at
    assert after_look(resumed, 12, 12) == resumed
    assert after_look(resumed, 5, 12) == early  # no run came in addition
    assert History.from_json(json.loads(json.dumps(asdict(resumed)))) == resumed
    larger = history(campaign.model_copy(update={"baselines": 9, "replicates": 9}), ("a", "b"))
    assert continued(larger, early, False).looks == (*early.looks, *larger.looks)


def test_another_design_in_the_same_directory_is_counted(tmp_path: Path) -> None:
    campaign = plan_of(tmp_path).campaign
    first = history(campaign)
    other = history(campaign.model_copy(update={"delta": 0.3}))
    assert continued(other, first, True) == replace(other, replaced=1, others=(Other(first.kind, first.looks),))
    assert continued(other, first, False).replaced == 0
    smaller = history(campaign.model_copy(update={"baselines": 6, "replicates": 6}), ("b",))
    assert continued(smaller, first, True).replaced == 1
    assert "; other designs run in this directory before: 1" in continued(other, first, True).text(campaign)


def test_another_design_between_does_not_hide_a_look(tmp_path: Path) -> None:
    # A campaign between two looks at another made the second a first one, at all of alpha.
    campaign = plan_of(tmp_path).campaign
    first = history(campaign)
    larger = history(campaign.model_copy(update={"baselines": 20, "replicates": 20}), ("a", "b"))
    other = history(campaign.model_copy(update={"delta": 0.3}))
    between = History.from_json(json.loads(json.dumps(asdict(continued(other, first, True)))))
    back = continued(larger, between, True)
    assert back.looks == (*first.looks, *larger.looks)
    assert back.replaced == 1
    assert back.others == (Other(other.kind, other.looks),)
    assert "is up to 10.0%, not 5.0%" in back.warnings(campaign)[0]
    assert continued(first, between, True).looks == first.looks  # the same look again
    unseen = continued(larger, continued(other, first, True), False)
    assert (unseen.looks, unseen.replaced, unseen.others) == (back.looks, 0, ())


def test_the_history_is_kept_in_the_plan(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    assert load_history(tmp_path / "plan.json") is None
    save_plan(plan, tmp_path)
    assert load_history(tmp_path / "plan.json") == plan.history
    for damaged in ("", "{}", '{"history": null}'):
        (tmp_path / "plan.json").write_text(damaged)
        with pytest.raises(CampaignError, match=r"plan\.json is damaged .* not known how often the results were"):
            load_history(tmp_path / "plan.json")
    assert plan_of(tmp_path).history == plan.history
    assert plan_of(tmp_path, "seed: 2\n").history != plan.history


# --- what it can find
def test_the_stated_change_is_found_as_often_as_stated(tmp_path: Path) -> None:
    campaign = plan_of(tmp_path).campaign
    spread, rng = Spread(0.1, 0), np.random.default_rng(1)
    change = detectable_change(campaign, 0.05, spread)
    pairs = 3
    found = 0
    for _ in range(400):
        differences = rng.normal(0, spread.difference, (campaign.pairs, pairs))
        differences[:, 0] += change
        scaled = differences / np.sqrt((differences**2).mean(axis=0))
        signs = rng.choice([-1.0, 1.0], (400, campaign.pairs))
        largest = np.abs(signs @ scaled).max(axis=1)
        found += np.mean(largest >= abs(scaled[:, 0].sum())) <= 0.05
    assert 0.74 <= found / 400 <= 0.95


def test_the_change_that_a_plan_can_find_follows_the_joint_threshold(tmp_path: Path) -> None:
    """Several variants in 6 pairs find something, which by equal shares of alpha nothing could; more cost little."""
    campaign = plan_of(tmp_path).campaign
    six = campaign.model_copy(update={"baselines": 6, "replicates": 6})
    changes = [detectable_change(six, 0.05, Spread(0.1, 0), variants) for variants in (1, 2, 8)]
    assert changes == sorted(changes)
    assert math.isfinite(changes[2])
    one, eight = (detectable_change(campaign, 0.05, Spread(0.1, 0), variants) for variants in (1, 8))
    assert one < eight < 1.5 * one
    assert math.isinf(detectable_change(six, 0.01, Spread(0.1, 0)))
    # Compared with the family test itself, on variants of which one changed by what is stated.
    stated, rng, found = detectable_change(campaign, 0.05, Spread(0.1, 0), 2), np.random.default_rng(3), 0
    for _ in range(200):
        baseline = rng.normal(0, 0.1 / np.sqrt(2), (campaign.pairs, 3))
        runs = rng.normal(0, 0.1 / np.sqrt(2), (2, campaign.pairs, 3))
        runs[0, :, 0] += stated
        family = Family([evidence(0.3 + baseline, 0.3 + one) for one in runs], delta=0.2, alpha=0.05)
        changed = next(pair for pair in family.judgements()[0].pairs if (pair.a, pair.b) == ("a", "b"))
        found += changed.p_adjusted <= 0.05
    assert 0.74 <= found / 200 <= 0.97


def test_pairs_that_are_alike_find_less_change_and_few_runs_find_none(tmp_path: Path) -> None:
    campaign = plan_of(tmp_path).campaign
    alone = campaign.model_copy(update={"paired": False})
    assert assumed_spread(campaign).difference < assumed_spread(alone).difference
    assert math.isinf(
        detectable_change(campaign.model_copy(update={"replicates": 1, "baselines": 2}), 0.05, Spread(1, 0))
    )
    text = plan_text(campaign, 0.05, Spread(0.1, 40), ["light", "heavy"])
    runs = "40 runs: 10 baselines, 10 of each of 2 variants, 10 of the null control, compared in 10 pairs of runs"
    assert runs in text
    assert "spread by 0.10 (measured in 40 runs)" in text
    one = plan_text(campaign, 0.05, Spread(0.1, 40), ["light"])
    assert "30 runs: 10 baselines, 10 of the variant, 10 of the null control, compared" in one
    assert "in no verdict" not in text
    more = campaign.model_copy(update={"replicates": 13})
    assert (
        "compared in 10 pairs of runs (replicates without a baseline to be paired with, 3 of each variant, are in no "
        "verdict: `baselines: 13` pairs them). "
    ) in plan_text(more, 0.05, Spread(0.1, 40), ["light", "heavy"])
    few = campaign.model_copy(update={"baselines": 4, "replicates": 4})
    # 70 ways to share out 8 runs allow p-values from 0.014 on.
    assert (
        "compared unpaired (pairs need `baselines` and `replicates` of 6 or more): too few for any p below 0.0125 (its "
        "share of 0.05 among 4 comparisons)."
    ) in plan_text(few, 0.05, Spread(0.1, 40), ["light", "heavy"])


def test_a_plan_without_variants_compares_nothing(tmp_path: Path) -> None:
    nothing = plan_of(tmp_path).campaign.model_copy(update={"software_metrics": {}, "variants": {}})
    text = plan_text(nothing, 0.05, assumed_spread(nothing), [])
    assert text == "10 runs: 10 baselines, compared with nothing: the campaign has no software metrics."


def test_the_spread_is_measured_in_pairs_or_apart() -> None:
    rng = np.random.default_rng(2)
    shared, own = rng.normal(0, 0.3, (200, 5)), rng.normal(0, 0.1, (2, 200, 5))
    z = {
        BASELINE: dict(enumerate(shared + own[0])),
        "v": dict(enumerate(shared + own[1])),
        "w": {0: shared[0]},
    }
    paired, apart = (measured_spread(z, BASELINE, one) for one in (True, False))
    assert paired is not None
    assert apart is not None
    assert paired.difference == pytest.approx(0.1 * math.sqrt(2), rel=0.15)
    assert apart.difference == pytest.approx(math.sqrt(2 * 0.1), rel=0.15)
    assert paired.measured == 400
    assert measured_spread({BASELINE: z[BASELINE]}, BASELINE, True) is None
