"""Shares, sentences, page and campaign file of an explanation, from made-up values."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from rich.console import Console

from instrumenter.spec.software_metrics import MetricSpec
from measure.analysis import explained
from measure.explanation.explain_campaign import Explained, _write
from measure.explanation.explanation_types import (
    Decision,
    Estimate,
    Explanation,
    Part,
    Remedy,
    Reproduction,
    ordered,
    share_text,
)
from measure.explanation.page import render_page
from measure.explanation.remedy_file import remedy_campaign, write_remedy
from measure.explanation.summary import CYCLES_ARE, as_json, remedy_words, sentences
from measure.explanation.terminal import print_explained
from measure.runs.campaign_file import load_campaign
from measure.runs.campaign_model import Campaign
from measure.runs.plan import Plan
from tests.measure.explanation.made_up import explanation
from tests.measure.report.page_structure import csv_in, problems

QUICKSTART = Path(__file__).parents[3] / "configs" / "campaigns" / "quickstart.yaml"


def test_parts_add_up_and_the_largest_share_comes_first() -> None:
    one = explanation()
    for change in (one.metrics, one.mechanisms):
        assert np.allclose(sum(part.values for part in change.parts), change.whole)
        shares = [change.share(part) for part in change.parts]
        assert [round(share.mean, 6) for share in shares] == [0.75, 0.25]
        assert all(share.low < share.mean < share.high for share in shares)
    assert one.metrics.parts[0].of(1).mean == pytest.approx(0.75 * one.metrics.whole[:, 1].mean())


def test_sentences_name_metric_line_mechanism_decision_and_remedy() -> None:
    text = " ".join(sentences(explanation()))
    for wanted in ("comes from many, most at a.c:7", "by executed instructions", "f no longer inlines g",
                   "few interacts", "Best remedy that was tried: b",
                   "in 10 further pairs of runs"):  # fmt: skip
        assert wanted in text


def test_a_relation_that_its_runs_do_not_show_to_change_is_named() -> None:
    """Of a pair that a campaign called broken an explanation showed -0.90 and -0.90, and said nothing of it."""
    one = explanation()
    assert not [text for text in sentences(one) if "no change is shown" in text]
    whole = one.metrics.whole * [1, 0] + np.outer([0.1, -0.1, 0.05, -0.05, 0.01], [0, 1])
    (said,) = (
        text for text in sentences(replace(one, metrics=ordered(whole, one.metrics.parts))) if "shown of" in text
    )
    assert said.startswith("In these 5 pairs of runs, other ones than the campaign judged, no change is shown of loads")
    assert "loads across runs (+0.00 in z, -0.10 to +0.10): the shares" in said


def test_what_does_not_reproduce_the_campaign_is_said_first_and_recommends_nothing(tmp_path: Path) -> None:
    """A campaign with a change of -0.82 was explained by runs with one of -0.06, and a remedy against that was written
    as confirmed: the campaign with it was as perturbed as the first."""
    one = explanation()
    helps = replace(one.remedies[0], campaign={"software_metrics": {"slides": {"method": "probe"}}})
    one = replace(one, remedies=(helps, one.remedies[1]))
    campaign, _ = load_campaign(QUICKSTART)
    plan = cast(Plan, SimpleNamespace(campaign=campaign, history=SimpleNamespace(design="")))
    _write(Explained((one,), {}, tmp_path), plan, tmp_path)
    assert (tmp_path / "heavy.yaml").is_file()
    small = replace(one, reproduction=replace(one.reproduction, share=Estimate(0.07, 0.03, 0.11)))
    said = sentences(small)
    assert said[0].startswith(
        "This does not explain the campaign's verdict: in these 5 pairs of runs, other ones than the campaign judged, "
        "the relations change by 7% (3 to 11) of what they change in the campaign. The shares are of another change"
    )
    assert said[1:] == sentences(one)[:-1]
    assert (small.written, one.written) == (None, helps)
    found = as_json([small], {}, "")["variants"]["heavy"]
    assert (found["remedy"], found["reproduced"]["failed"]) == (None, True)
    assert found["reproduced"]["change"] == [0.07, 0.03, 0.11]
    assert as_json([one], {}, "")["variants"]["heavy"]["reproduced"]["failed"] is False
    _write(Explained((small,), {}, tmp_path), plan, tmp_path)
    assert not (tmp_path / "heavy.yaml").exists()  # of the explanation before
    other = replace(one, reproduction=replace(one.reproduction, judged_instructions_percent=26.21))
    assert "executes +2.00% instructions over the plain one, in the campaign +26.21%." in sentences(other)[0]
    assert other.written is None


@pytest.mark.parametrize(
    ("share", "instructions", "judged", "failed"),
    [
        (Estimate(0.9, 0.7, 1.1), Estimate(5.0, 4.9, 5.1), 5.2, False),
        (Estimate(0.6, -0.2, 1.4), Estimate(5.0, 4.9, 5.1), 5.2, False),  # may be all of it
        (Estimate(0.45, 0.3, 0.6), Estimate(5.0, 4.9, 5.1), 5.2, False),  # may be half of it
        (Estimate(0.4, 0.35, 0.45), Estimate(5.0, 4.9, 5.1), 5.2, True),
        (Estimate(0.2, -0.3, 0.7), Estimate(5.0, 4.9, 5.1), 5.2, True),  # not told from nothing
        (Estimate(0.1, np.nan, np.nan), Estimate(5.0, np.nan, np.nan), 5.2, True),
        (Estimate(0.9, 0.7, 1.1), Estimate(32.2, 32.1, 32.3), 26.2, True),
        (Estimate(0.9, 0.7, 1.1), Estimate(0.2, 0.1, 0.3), 1.2, False),
        (Estimate(0.9, 0.7, 1.1), Estimate(0.2, 0.1, 0.3), np.nan, False),
    ],
)
def test_when_a_change_is_another_than_the_campaigns(
    share: Estimate, instructions: Estimate, judged: float, failed: bool
) -> None:
    assert Reproduction(share, instructions, judged).failed is failed


def test_of_a_probe_it_is_said_that_it_changes_by_the_compilers_decisions() -> None:
    one = explanation()
    (said,) = set(sentences(replace(one, probes=("many",)))) - set(sentences(one))
    assert said.startswith("The machine does not see what a probe (many) executes.")
    assert as_json([replace(one, probes=("many",))], {}, "")["variants"]["heavy"]["probes"] == ["many"]


def test_decisions_about_calls_that_are_never_made_are_no_sentence() -> None:
    """The call of a function that prints the usage came before the loops of the hottest function."""
    one = explanation()
    idle = Decision("inlining", "main", "a.c:9", "main no longer inlines usage", True)
    loops = Decision("loops", "main", "a.c:9", "main has 23 loops in machine code, 20 before")
    size = Decision("size", "main", "a.c:9", "main is 8 bytes larger")
    text = " ".join(sentences(replace(one, decisions=(loops, size, idle))))
    assert "The compiler decided otherwise: main has 23 loops in machine code, 20 before." in text
    assert not [said for said in sentences(replace(one, decisions=(size, idle))) if "decided otherwise" in said]


def test_what_counters_would_change_without_the_compiler_is_said_where_it_is_more_than_their_part() -> None:
    one = explanation()
    alone = replace(one, added_counts=0.95 * one.mechanisms.whole)
    (said,) = set(sentences(alone)) - set(sentences(one))
    assert said.startswith("Without these decisions 95% (93 to 97) of the change is there, too")
    assert as_json([alone], {}, "")["variants"]["heavy"]["made_by_added_counts"][0] == pytest.approx(0.95)
    assert sentences(replace(one, added_counts=0.8 * one.mechanisms.whole)) == sentences(one)


def test_a_metric_that_is_not_shown_is_no_cause() -> None:
    """60% (-20 to 140) of a change were said to come from a metric."""
    one = explanation()
    noise = np.outer([4.0, -4.0, 4.0, -4.0, 0.0], [1.0, -1.0])
    parts = [Part("many", "most", one.metrics.whole + noise), Part("few", "some", -noise)]
    unsure = replace(one, metrics=ordered(one.metrics.whole, parts))
    said = sentences(unsure)
    assert re.match(
        r"No metric is shown to make the change in 5 pairs of runs; the largest share is that of many, \d+% \(-",
        said[0],
    )
    assert not [text for text in said if "comes from" in text]
    console = Console(record=True, width=200, file=io.StringIO())
    print_explained(console, [unsure], {})
    assert "not told from 0" in console.export_text()


def test_a_mechanism_that_is_not_shown_is_named_with_its_interval() -> None:
    """A planted cause that made all of the change was in the table alone, since its interval reached below 0."""
    one = explanation()
    noise = np.outer([4.0, -4.0, 4.0, -4.0, 0.0], [1.0, -1.0])
    parts = [Part("their memory accesses", "they miss", one.mechanisms.whole + noise), Part("other", "", -noise)]
    unsure = replace(one, mechanisms=ordered(one.mechanisms.whole, parts))
    said = sentences(unsure)[1]
    assert said.startswith("No mechanism is shown to make it in 5 pairs of runs; the largest share is that of ")
    assert not [text for text in sentences(one) if "No mechanism" in text]


def test_a_remedy_that_further_runs_do_not_confirm_is_no_remedy() -> None:
    one = explanation()
    best = replace(one.remedies[0], confirming_pairs=0)
    text = sentences(replace(one, remedies=(best,)))[-1]
    assert text.startswith("No remedy that was tried is shown to make the relations equivalent")
    failed = replace(best, verdict="inconclusive", confirming_pairs=10)
    assert "(inconclusive in 10 further pairs," in sentences(replace(one, remedies=(failed,)))[-1]


def test_a_report_gets_the_sentences_with_the_remedy_that_helps_marked(tmp_path: Path) -> None:
    """The report found the remedy by the words of its sentence."""
    (tmp_path / "explain").mkdir()
    one = explanation()
    (best, *others) = one.remedies
    plan = SimpleNamespace(history=SimpleNamespace(design="now"))
    in_file = replace(one, remedies=(replace(best, campaign={"name": "b"}), *others))
    failed = replace(one, remedies=(replace(best, verdict="inconclusive"),))

    def stored(one: Explanation, results: str = "") -> list[tuple[str, str]]:
        (tmp_path / "explain" / "explain.json").write_text(json.dumps(as_json([one], {}, "now")))
        found = explained.stored_findings(tmp_path, plan)  # type: ignore[arg-type]
        assert found is not None
        return [(finding.kind, finding.text_in(results)) for finding in found["heavy"]]

    assert [text for _, text in stored(in_file)] == [f"heavy: {text}" for text in sentences(in_file)]
    ((_, text),) = [one for one in stored(in_file) if one[0] == "remedy"]
    assert text.endswith("; explain/heavy.yaml is the campaign with it.")
    ((_, text),) = [one for one in stored(in_file, "'my results'") if one[0] == "remedy"]
    assert text.endswith("; `measure run 'my results'/explain/heavy.yaml` runs the campaign with it.")
    assert not any(kind == "remedy" for kind, _ in stored(failed))


def test_a_remedy_by_construction_says_so_and_names_the_best_for_any_machine() -> None:
    one = explanation()
    alike = replace(
        one.remedies[0], name="counts from a second run", gives_up="a second run of 1 s", confirming_pairs=0,
        by_construction=True, on_any_machine=False,
    )  # fmt: skip
    one = replace(one, remedies=(alike, *one.remedies))
    text = sentences(one)
    assert "by construction: the machine counts what it counts in the plain run; it gives up a second run" in text[-2]
    assert text[-1].startswith(
        "Of what a real machine can do, too, the best is b (helps; equivalent in 10 further pairs, "
    )
    console = Console(record=True, width=200, quiet=False, file=io.StringIO())
    print_explained(console, [one], {})
    printed = console.export_text()
    assert "equivalent =" in printed
    assert "(=) by construction: the machine counts in every pair of runs what it counts in the plain one" in printed
    assert "by construction" in render_page("made up", [one], {})
    assert as_json([one], {}, "")["variants"]["heavy"]["remedies"][0]["by_construction"] is True


def test_a_remedy_that_leaves_nothing_to_collect_says_so_and_the_next_one_is_written(tmp_path: Path) -> None:
    """The sentence lacked its verb, "it the counts of touch_entries", and no campaign was written, without a word."""
    one = explanation()
    stands_in = replace(
        one.remedies[0], name="BR in place of many", about="rho -0.92", confirming_pairs=0, by_construction=True,
        gives_up="the counts of many: BR falls as they rise",
    )  # fmt: skip
    helps = replace(one.remedies[0], campaign={"software_metrics": {"slides": {"method": "probe"}}})
    alone, both = (replace(one, remedies=(stands_in, *rest)) for rest in (one.remedies[1:], (helps, one.remedies[1])))
    text = sentences(alone)[-1]
    assert "in the plain run; it gives up the counts of many: BR falls as they rise. It leaves no software" in text
    assert text.endswith("metric to collect, so there is no campaign with it to write.")
    assert alone.written is None
    text = sentences(both)[-1]
    assert (
        "no campaign with it to write. The next that helps is b (helps), in 10 further pairs of runs, at +0.5%" in text
    )
    assert text.endswith("over the plain program; explain/heavy.yaml is the campaign with it.")
    assert both.written is helps
    campaign, _ = load_campaign(QUICKSTART)
    plan = cast(Plan, SimpleNamespace(campaign=campaign, history=SimpleNamespace(design="")))
    _write(Explained((alone, both), {}, tmp_path), plan, tmp_path)
    assert load_campaign(tmp_path / "heavy.yaml")[0].software_metrics["slides"].method == "probe"


def test_few_pairs_that_can_show_nothing_are_not_called_unchanged() -> None:
    """A remedy that left a change of 0.43 in each of 4 pairs was said to make no measurable one."""
    one = explanation().remedies[1]
    few = replace(one.perturbation, verdict="inconclusive", p_value=0.125, n_runs=4)
    said = remedy_words(replace(one, verdict="inconclusive", perturbation=few))
    assert said == "4 pairs are too few to show a change (p = 0.125, the smallest possible)"
    enough = replace(few, n_runs=8)
    said = remedy_words(replace(one, verdict="inconclusive", perturbation=enough))
    assert said == "no measurable change, but delta is not excluded (p = 0.125)"


def test_places_are_told_by_what_they_are_ranked_by() -> None:
    """The first place can change the relation of the table less than the second: the rank is over all relations."""
    one = explanation()
    (site,) = one.sites
    one = replace(one, sites=(site, replace(site, place="/somewhere/a.c:9", values=site.values / 3)))
    assert "comes from many, most at a.c:7, which alone makes 75% (73 to 77)." in sentences(one)[0]
    page = render_page("made up", [one], {})
    assert re.search(
        r"counting many here alone makes 25% \(.*?\) of the change over all relations, and changes z", page
    )


def test_metrics_without_runs_of_their_own_are_named() -> None:
    one = explanation()
    assert "no program with" not in render_page("made up", [one], {})
    assert "no program with many alone" in render_page("made up", [replace(one, effects=one.effects[:1])], {})


def test_what_is_open_is_not_said_to_need_no_explanation() -> None:
    console = Console(record=True, width=200, file=io.StringIO())
    fine = {"light": "equivalent", "heavy": "inconclusive", "tied": "not assessable"}
    print_explained(console, [], fine)
    light, heavy, tied = console.export_text().splitlines()
    assert light == "light: equivalent, nothing to explain"
    assert heavy.startswith("heavy: inconclusive, so no change is shown that could be explained; the report says how")
    assert tied.startswith("tied: not assessable, nothing to explain: what can be assessed is not perturbed")
    assert tied in render_page("made up", [], fine).replace("tied is ", "tied: ")


def test_json_and_page_hold_the_explanation() -> None:
    one = explanation()
    data = json.loads(json.dumps(as_json([one], {"light": "equivalent"}, "a hash"), allow_nan=False))
    assert data["variants"]["heavy"]["metrics"]["many"][0] == 0.75
    assert data["without_a_perturbed_relation"] == {"light": "equivalent"}
    page = render_page("made up", [one], {"light": "equivalent"})
    assert problems(page) == []
    assert "light is equivalent" in page
    assert "&lt;all&gt;" in page
    assert "Not tried: c: does not build" in page
    assert f"Cycles are {CYCLES_ARE}." in page
    assert "loads across runs" in page
    assert page.count("data:image/svg+xml") == len(one.relations)
    figures = re.findall(r"<figure>.*?</figure>", page, re.S)
    assert len(figures) == len(one.relations)
    for figure in figures:
        assert "The longest bars: executed instructions (" in figure
    parts = csv_in(page, "causes-heavy-1")
    assert parts[0] == ["parts_by", "part", "change_of_z", "low", "high"]
    steps = {(by, part): float(step) for by, part, step, *_ in parts[3:]}
    for by in ("mechanism", "software metric"):
        assert sum(step for (kind, _), step in steps.items() if kind == by) == pytest.approx(float(parts[2][2]))
    assert [row[1] for row in csv_in(page, "remedies-heavy")] == ["verdict", "equivalent", "perturbed"]
    assert float(csv_in(page, "shares-heavy")[1][2]) == pytest.approx(0.75)


def test_remedies_rank_by_verdict_then_by_what_is_left() -> None:
    best, worst = explanation().remedies
    assert sorted([worst, best], key=lambda one: one.rank) == [best, worst]


def test_the_campaign_file_of_a_remedy_is_a_campaign(tmp_path: Path) -> None:
    campaign, _ = load_campaign(QUICKSTART)
    judged = explanation().remedies[0].perturbation
    again = Remedy(
        "again", "", "equivalent", judged, 0, 0, "",
        {"software_metrics": {"slides": {"method": "second_run", "local": None, "sampled": None}}},
    )  # fmt: skip
    write_remedy(campaign, "heavy", again, tmp_path / "heavy.yaml")
    assert load_campaign(tmp_path / "heavy.yaml")[0].software_metrics["slides"].method == "second_run"
    probe = Remedy("probe", "", "equivalent", judged, 0, 0, "", {"software_metrics": {"slides": {"method": "probe"}}})
    write_remedy(campaign, "heavy", probe, tmp_path / "heavy.yaml")
    loaded: Campaign = load_campaign(tmp_path / "heavy.yaml")[0]
    assert loaded.variant_sets() == {"heavy": ("nodes", "evaluations", "slides")}
    assert loaded.software_metrics["slides"] == MetricSpec(event="loop", function="generate_steps", method="probe")
    assert loaded.software_metrics["nodes"].method == "counter"
    assert loaded.hardware_metrics == campaign.hardware_metrics
    split = Remedy("split", "", "equivalent", judged, 0, 0, "", {"variants": {"rest": ["nodes"], "own": ["slides"]}})
    assert remedy_campaign(campaign, "heavy", split)["variants"] == {"rest": ["nodes"], "own": ["slides"]}


def test_the_campaign_of_a_remedy_has_the_runs_that_it_was_judged_with_and_a_fresh_seed(tmp_path: Path) -> None:
    """Judged in 10 further pairs it was equivalent; its campaign repeated 6 runs of the old seed, and said changed."""
    campaign, _ = load_campaign(QUICKSTART)
    judged = replace(explanation().remedies[0].perturbation, n_baseline=10, n_runs=10)
    remedy = Remedy("probe", "", "equivalent", judged, 0, 0, "", {"placement": "cache_line"}, 10)
    for own, written in ((6, 10), (10, 10), (14, 14)):
        fewer = campaign.model_copy(update={"baselines": own, "replicates": own})
        write_remedy(fewer, "heavy", remedy, tmp_path / "heavy.yaml")
        loaded = load_campaign(tmp_path / "heavy.yaml")[0]
        assert (loaded.baselines, loaded.replicates, loaded.pairs) == (written, written, written)
        assert loaded.seed != campaign.seed
        assert "# It was judged in 10 pairs of runs." in (tmp_path / "heavy.yaml").read_text()


def test_a_share_of_nothing_has_no_sign() -> None:
    assert share_text(Estimate(-0.001, -0.012, 0.004)) == "0% (-1 to 0)"
    assert share_text(Estimate(-0.001, float("nan"), float("nan"))) == "0%"
    assert share_text(Estimate(0.86, 0.8, 0.92)) == "86% (80 to 92)"
