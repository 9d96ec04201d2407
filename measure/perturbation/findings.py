"""Puts the result of a perturbation analysis into sentences, each with what to do next."""

from __future__ import annotations

from collections.abc import Sequence

from measure.perturbation.analysis_types import FEWEST_BASELINES, Pair, Perturbation
from measure.perturbation.wording import p_number, p_text

SHOWN_PAIRS = 3
INNER_ADVICE = "Do not reason about these pairs within such a run; spread the software metrics over several runs."
OUTER_ADVICE = "Do not join these runs with others; collect fewer or other metrics in one run and try again."


def findings(result: Perturbation, *, identical: bool, smallest_p: float) -> tuple[str, ...]:
    """Sentences about ``result``, the most important first."""
    if not result.pairs:
        return ("No correlation is defined in any run: all metrics are constant; choose metrics that vary.",)
    sentences: list[str] = []
    if identical:
        sentences.append(
            "The baselines do not differ from one another, so there is no scale of noise to judge a change "
            "by: effect sizes are shown without p-values; vary the set-up (layout, placement, timer phase)."
        )
    elif result.n_baseline < 2:
        sentences.append(
            "One baseline gives no scale of noise: effect sizes are shown without p-values; add baselines."
        )
    elif result.verdict == "perturbed":
        sentences.extend(_changes(result))
    elif result.verdict == "inconclusive":
        sentences.extend(_undecided(result, smallest_p))
    else:
        sentences.append(
            f"Every change is shown to be within {result.delta:g} in z: the widest interval reaches "
            f"{max(_reach(pair, result) for pair in result.pairs):.3f}."
        )
    if result.verdict != "perturbed" and (detectable := _detectable(result)):
        sentences.append(
            f"With these runs a change of z of {detectable[len(detectable) // 2]:.2f} is found in 80% of campaigns "
            f"(median over {'pairs' if result.kind == 'inner' else 'metrics'}; {detectable[-1]:.2f} in the noisiest)."
        )
    if result.exploratory:
        sentences.append(
            f"Exploratory: {_sizes(result)}; use 20 baselines (at least {FEWEST_BASELINES}) and 5 runs "
            "before relying on it."
        )
    sentences.extend(_rises(result))
    return tuple(sentences)


def _changes(result: Perturbation) -> list[str]:
    perturbed = [pair for pair in result.pairs if pair.verdict == "perturbed"]
    sentences = [f"{_change(pair)}." for pair in perturbed[:SHOWN_PAIRS]]
    if len(perturbed) > SHOWN_PAIRS:
        sentences.append(f"{len(perturbed) - SHOWN_PAIRS} more pairs are perturbed.")
    sentences.append(INNER_ADVICE if result.kind == "inner" else OUTER_ADVICE)
    return sentences


def _change(pair: Pair) -> str:
    if not _defined(pair.delta_z):
        return f"{pair.name}: {pair.note} ({p_text(pair.p_adjusted)} over all pairs)"
    return (
        f"{pair.name}: rho went from {pair.baseline_rho:.2f} to {pair.run_rho:.2f} "
        f"(change of z {pair.delta_z:+.2f}, interval {pair.ci[0]:+.2f} to {pair.ci[1]:+.2f}, "
        f"{p_text(pair.p_adjusted)} over all pairs)" + (f"; {pair.note}" if pair.note else "")
    )


def _undecided(result: Perturbation, smallest_p: float) -> list[str]:
    """Sentences on an inconclusive result: the open pairs, and the runs that would settle it."""
    open_pairs = [pair for pair in result.pairs if pair.verdict == "inconclusive"]
    sentences = [
        f"Neither perturbation nor its absence is shown for {len(open_pairs)} of {len(result.pairs)} "
        f"{'pairs' if result.kind == 'inner' else 'metrics'}; the least certain: "
        + ", ".join(pair.name for pair in open_pairs[:SHOWN_PAIRS])
        + "."
    ]
    if smallest_p > result.alpha:
        sentences.append(
            f"{_sizes(result)} allow no p-value below {p_number(smallest_p)}, so nothing can be significant at "
            f"{result.alpha:g}: add runs."
        )
    if result.extra_runs_needed is not None:
        sentences.append(
            f"About {result.extra_runs_needed} more baselines and as many more instrumented runs would "
            "probably settle it."
        )
    else:
        sentences.append(
            "No reasonable number of further runs would settle it: a change is about as large as the limit "
            f"of {result.delta:g} itself, or a correlation is not always defined; see the notes of the pairs."
        )
    return sentences


def _rises(result: Perturbation) -> list[str]:
    if result.kind == "inner":
        return []
    risen = [pair.name for pair in result.pairs if pair.ci[0] > 0 and pair.delta_z > result.delta]
    if not risen:
        return []
    return [f"The runs are more alike with the baselines than these are among themselves in {_listed(risen)}."]


def _detectable(result: Perturbation) -> list[float]:
    return sorted(pair.detectable_dz for pair in result.pairs if _defined(pair.detectable_dz))


def _reach(pair: Pair, result: Perturbation) -> float:
    return -pair.ci[0] if result.kind != "inner" else max(abs(pair.ci[0]), abs(pair.ci[1]))


def _defined(value: float) -> bool:
    return value == value


def _listed(names: Sequence[str]) -> str:
    more = len(names) - SHOWN_PAIRS
    return ", ".join(names[:SHOWN_PAIRS]) + (f" and {more} more" if more > 0 else "")


def _sizes(result: Perturbation) -> str:
    return f"{_count(result.n_baseline, 'baseline')} and {_count(result.n_runs, 'run')}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
