"""The command ``measure compare``: its options and their help; `measure.two_campaigns.command` does the work."""

from __future__ import annotations

from pathlib import Path

import click

from measure.console.output import command_console
from measure.verdict_files.options import VerdictOptions, verdict_options


@click.command(short_help="Compare the verdicts of two results, by their difference.")
@click.argument("before", metavar="BEFORE", type=click.Path(path_type=Path))
@click.argument("after", metavar="AFTER", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR",
              help="Where the comparison goes. Default: results/BEFORE-AFTER.")  # fmt: skip
@click.option("--delta", type=click.FloatRange(0, min_open=True), metavar="D",
              help="Difference of the two changes of z that counts as none. Default: the smaller one of the two "
                   "campaigns.")  # fmt: skip
@click.option("--alpha", type=click.FloatRange(0, 0.5, min_open=True, max_open=True), metavar="A",
              help="Chance of a false alarm over all pairs and variants. Default: the smaller one of the two "
                   "campaigns.")  # fmt: skip
@verdict_options
def compare(
    before: Path, after: Path, out: Path | None, delta: float | None, alpha: float | None, verdicts: VerdictOptions
) -> None:  # fmt: skip
    """Compare two results of a campaign: does its instrumentation perturb otherwise after a change?

    BEFORE and AFTER are directories that `measure run` left: with another compiler, other counters of the same name,
    another machine. Two verdicts that differ prove no difference, for one of them may have missed by little. So for
    each variant and pair of metrics that both have, this command tests the difference of the two changes of z, within
    a run and across runs, with the run as the unit and one chance of a false alarm over all pairs and variants. Also
    says how the two designs differ, and when both have the same runs, which show nothing. Leaves DIR/compare.html and
    DIR/compare.json. For --fail-on, the verdict is that on the difference.

    \b
      measure compare results/before results/after
    """
    from measure.two_campaigns.command import run_compare

    raise SystemExit(run_compare(before, after, out, command_console(), verdicts, delta=delta, alpha=alpha))
