"""Prints the tables of this folder's README from results.json."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import spearmanr

from experiments.remedies.explain_and_compare import HERE, Entry, read_entries
from experiments.remedies.heuristics import Metrics, selected, thresholds, throttled, within_overhead
from measure.explanation.mechanisms import ACCESSES, COMPILER, EXECUTED, LAYOUT

GUILTY_SHARE = 0.1
SECOND = 1.0
OVERHEAD_LIMITS_PERCENT = (1.0, 3.0)


@dataclass(frozen=True)
class Case:
    """A broken variant of a campaign on a machine. ``entry``: of its campaign; ``found``: of the variant."""

    entry: Entry
    variant: str
    found: Entry

    @property
    def metrics(self) -> Metrics:
        """All metrics of the variant."""
        return tuple(self.found["sets"][-1]["metrics"] if "sets" in self.found else self.found["metrics"])

    @property
    def guilty(self) -> Metrics:
        """Metrics with a share of the change of a tenth or more whose interval is above 0."""
        shares = self.found["metrics"]
        return tuple(m for m in self.metrics if shares[m][0] >= GUILTY_SHARE and (shares[m][1] or 0) > 0)

    def set_of(self, metrics: Sequence[str] | frozenset[str]) -> Entry:
        """Verdict and cost of collecting a set of metrics only."""
        return next(one for one in self.found["sets"] if set(one["metrics"]) == set(metrics))

    def overhead(self, metrics: frozenset[str]) -> float:
        """Cycles that the set adds, in percent."""
        return float(self.set_of(metrics)["cycles_percent"])

    def verdict_of(self, kept: Metrics) -> str:
        """The verdict on what a rule keeps; "nothing left" where it keeps nothing."""
        return str(self.set_of(kept)["verdict"]) if kept else "nothing left"

    @property
    def name(self) -> str:
        """The program, its variant and the machine."""
        return f"{self.entry['campaign']}, {self.variant}, {self.entry['machine']}"


def cases_of(entries: Sequence[Entry]) -> list[Case]:
    """Variants with a broken relation, in the order of the entries."""
    return [
        Case(entry, variant, found)
        for entry in entries
        for variant, found in entry["variants"].items()
        if "remedies" in found
    ]


def with_sets(cases: Sequence[Case]) -> list[Case]:
    """Those cases of which every set of metrics was judged."""
    return [case for case in cases if "sets" in case.found]


def rules() -> dict[str, Callable[[Case], Metrics]]:
    """Each rule's name, and what it keeps of a case."""

    def throttle(program_seconds: float | None) -> Callable[[Case], Metrics]:
        def kept(case: Case) -> Metrics:
            events = {metric: case.entry["events"][metric] for metric in case.metrics}
            seconds = case.entry["events"]["seconds"]
            return throttled(events, seconds, program_seconds or seconds)

        return kept

    def selection(which: str) -> Callable[[Case], Metrics]:
        def kept(case: Case) -> Metrics:
            statements: Mapping[str, int] = case.entry["statements"]
            functions = {metric: case.entry["functions"][metric] for metric in case.metrics}
            return selected(statements, functions, thresholds(statements)[which])

        return kept

    def limited(limit: float) -> Callable[[Case], Metrics]:
        return lambda case: within_overhead(case.metrics, case.overhead, limit)

    return {
        "TAU's throttle, in the run itself": throttle(None),
        "TAU's throttle, in a second of it": throttle(SECOND),
        "PIRA's statements, median": selection("median"),
        "PIRA's statements, unique median": selection("unique median"),
        **{f"overhead below {limit:.0f}%": limited(limit) for limit in OVERHEAD_LIMITS_PERCENT},
        "explain: without the guilty metrics": lambda case: tuple(m for m in case.metrics if m not in case.guilty),
        "the largest set that is equivalent": _largest_equivalent,
    }


def _largest_equivalent(case: Case) -> Metrics:
    fine = [one for one in case.found["sets"] if one["verdict"] == "equivalent"]
    return tuple(max(fine, key=lambda one: (len(one["metrics"]), -one["left_dz"]))["metrics"]) if fine else ()


def table_of_rules(cases: Sequence[Case]) -> str:
    """How often each rule drops guilty and innocent metrics, and what it leaves."""
    lines = [
        "| rule | guilty dropped | innocent dropped | left: equivalent | open | broken | nothing |",
        "|---|---|---|---|---|---|---|",
    ]
    cases = with_sets(cases)
    guilty = sum(len(case.guilty) for case in cases)
    innocent = sum(len(case.metrics) for case in cases) - guilty
    for name, rule in rules().items():
        kept = [rule(case) for case in cases]
        dropped = [set(case.metrics) - set(left) for case, left in zip(cases, kept, strict=True)]
        right = sum(len(gone & set(case.guilty)) for case, gone in zip(cases, dropped, strict=True))
        wrong = sum(len(gone - set(case.guilty)) for case, gone in zip(cases, dropped, strict=True))
        left = [case.verdict_of(metrics) for case, metrics in zip(cases, kept, strict=True)]
        counts = [
            left.count("equivalent"), left.count("inconclusive") + left.count("not assessable"),
            left.count("perturbed") + left.count("changed"), left.count("nothing left"),
        ]  # fmt: skip
        lines.append(f"| {name} | {right} of {guilty} | {wrong} of {innocent} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines)


def table_of_cases(cases: Sequence[Case]) -> str:
    """Causes and the best remedy of each case."""
    lines = [
        "| case | verdict | relations, in the campaign's interval | guilty metrics | mechanisms | best remedy | verdict"
        " | cycles |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case in cases:
        found = case.found
        best = found["remedies"][0]
        guilty = ", ".join(f"{m} {_percent(found['metrics'][m][0])}" for m in _largest_first(found["metrics"], case))
        mechanisms = ", ".join(
            f"{name} {_percent(share[0])}"
            for name, share in list(found["mechanisms"].items())[:2]
            if abs(share[0]) >= GUILTY_SHARE
        )
        cells = (
            case.name, found["verdict"], f"{found['n_relations']}, {found['within_the_campaigns_interval']}",
            guilty or "none alone", mechanisms, best["name"],
            best["verdict"] + _grounds(best),
            f"{best['cycles_percent']:+.1f}%",
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _largest_first(shares: Mapping[str, Sequence[float]], case: Case) -> list[str]:
    return sorted(case.guilty, key=lambda metric: -shares[metric][0])


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def table_of_times(entries: Sequence[Entry]) -> str:
    """Each campaign: variants' verdicts, remedies found, and what explaining took beside the campaign itself."""
    lines = [
        "| campaign | machine | variants | broken | with a remedy | runs of explain | campaign [s] | explain [s] |"
        " ratio | ratio of processor time |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for entry in entries:
        broken = [one for one in entry["variants"].values() if "remedies" in one]
        helped = sum(has_remedy(one) for one in broken)
        cells = [
            entry["campaign"], entry["machine"], len(entry["variants"]), len(broken), helped,
            sum(one["runs"] for one in broken), f"{entry['seconds']:.0f}",
        ]  # fmt: skip
        if broken:
            cells += [
                f"{entry['explain_seconds']:.0f}", f"{entry['explain_seconds'] / entry['seconds']:.1f}",
                f"{entry['explain_processor_seconds'] / entry['processor_seconds']:.1f}",
            ]  # fmt: skip
        else:
            cells += ["-", "-", "-"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def has_remedy(found: Entry) -> bool:
    """Whether further runs confirm that a variant's relations are equivalent with its best remedy."""
    best = found["remedies"][0]
    return bool(best["verdict"] == "equivalent" and (best["confirming_pairs"] or best.get("by_construction")))


def _grounds(remedy: Entry) -> str:
    """What the verdict on a remedy rests on, if not on further pairs of runs."""
    if remedy.get("by_construction"):
        return " by construction"
    return "" if remedy["confirming_pairs"] else ", not judged again"


def table_of_mechanisms(cases: Sequence[Case]) -> str:
    """What the perturbation paper says of causes, and in how many cases it is so."""

    def caused_by(mechanism: str) -> str:
        shares = [case.found["mechanisms"].get(mechanism, [0.0, None, None]) for case in cases]
        count = sum(share[0] >= GUILTY_SHARE and (share[1] or 0) > 0 for share in shares)
        first = sum(next(iter(case.found["mechanisms"])) == mechanism for case in cases)
        return f"a cause in {count} of {len(cases)} cases, the largest in {first}"

    judged = with_sets(cases)
    less = sum(one["left_dz"] < base["left_dz"] for case in judged for base, one in _steps(case))
    steps = sum(len(list(_steps(case))) for case in judged)
    ranks = [_rank_correlation(case) for case in judged]
    several = sum(len(case.guilty) > 1 for case in cases)
    interacting = sum(bool(case.found["interactions"]) for case in cases)
    rows = (
        ("additional loads and stores miss in caches and TLBs (section 1)", caused_by(ACCESSES)),
        ("the code is larger: other misses (section 1)", caused_by(LAYOUT)),
        ("not mentioned: the added instructions take cycles, and count as events", caused_by(EXECUTED)),
        ("not mentioned: the compiler makes the rest of the program otherwise", caused_by(COMPILER)),
        (
            "one metric breaks a relation (section 3.4, Figure 5)",
            f"more than one is guilty in {several} of {len(cases)} cases",
        ),
        ("metrics interact in subtle ways (section 3.5)", f"said in {interacting} of {len(cases)} cases"),
        (
            "one metric more may lessen perturbation (section 4)",
            f"the largest change falls in {less} of {steps} steps to one metric more",
        ),
        (
            "perturbation does not depend on the number of added instructions (section 3.5)",
            f"largest change against added instructions, over all sets of metrics of {len(judged)} cases: rank "
            f"correlation {min(ranks):.2f} to {max(ranks):.2f}, median {float(np.median(ranks)):.2f}",
        ),
    )
    lines = ["| paper | here |", "|---|---|", *(f"| {paper} | {here} |" for paper, here in rows)]
    return "\n".join(lines)


def _steps(case: Case) -> Iterator[tuple[Entry, Entry]]:
    """Each set of metrics, and it with one metric more."""
    for base in case.found["sets"]:
        for one in case.found["sets"]:
            if len(one["metrics"]) == len(base["metrics"]) + 1 and set(base["metrics"]) < set(one["metrics"]):
                yield base, one


def _rank_correlation(case: Case) -> float:
    columns = [[one[key] for one in case.found["sets"]] for key in ("instructions_percent", "left_dz")]
    return float(spearmanr(*columns).statistic)


def main() -> None:
    """Print all tables."""
    entries = read_entries(HERE / "results.json")
    cases = cases_of(entries)
    tables = table_of_cases(cases), table_of_rules(cases), table_of_mechanisms(cases), table_of_times(entries)
    print(*tables, sep="\n\n")


if __name__ == "__main__":
    main()
