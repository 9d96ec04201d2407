"""The command ``measure explain``: its options and their help; `measure.explanation.command` does the work."""

from __future__ import annotations

from pathlib import Path

import click

from measure.console.output import command_console
from measure.console.run_options import scheduler_option


@click.command(short_help="Say why relations are perturbed, and what helps.")
@click.argument("results", metavar="DIR|CAMPAIGN.yaml", type=click.Path(path_type=Path))
@click.option("--variant", "variants", multiple=True, metavar="NAME",
              help="Explain this variant; may be repeated. Default: all with a perturbed relation.")  # fmt: skip
@click.option("--pairs", type=click.IntRange(3, 100), metavar="N", default=6, show_default=True,
              help="Most pairs of runs for causes, with the same seed and code layout in both. Four are made first, "
                   "and more only if they do not show which metric and mechanism come first.")  # fmt: skip
@click.option("--minutes", type=click.FloatRange(0, min_open=True), default=3.0, show_default=True, metavar="N",
              help="Try no further order of metrics after so long; what is needed for one order is always "
                   "done.")  # fmt: skip
@click.option("--workers", type=click.IntRange(1), metavar="N",
              help="Runs at once. Default: one a processor.")  # fmt: skip
@scheduler_option
def explain(
    results: Path, variants: tuple[str, ...], pairs: int, minutes: float, workers: int | None, scheduler: str | None
) -> None:  # fmt: skip
    """Say why relations are perturbed in the results in DIR, and what helps.

    DIR is what `measure run` left, or the campaign file if its results are in results/NAME. For each broken relation,
    within a run or across runs: which software metric changes it and at which line, by which mechanism (the counters'
    execution, their memory accesses, the layout of code and data, the sampler in the program, what the compiler made
    otherwise), and which remedies help; the best ones are judged in further pairs with the plain program. The emulated
    machine makes runs for this that no processor can make.
    `explain: true` in a campaign file does the same after its verdicts.

    Leaves DIR/explain/explain.html, explain.json, and NAME.yaml, the campaign with the best remedy.

    \b
      measure run configs/campaigns/quickstart.yaml
      measure explain results/quickstart
      measure explain results/quickstart --variant heavy --pairs 10
    """
    from measure.explanation.command import run_explain

    run_explain(results, command_console(), variants, pairs, minutes, workers, scheduler)
