"""The command ``measure perturb``: its options and their help; `measure.foreign.command` does the work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from measure.console.output import command_console
from measure.foreign.run_arguments import named
from measure.verdict_files.options import VerdictOptions, verdict_options

if TYPE_CHECKING:
    from measure.perturbation.run_order import Order

_EPILOG = """\b
Runs of a plain and of an instrumented program, alternating so that drift of
the machine affects both:
  E=cycles,instructions,cache-misses
  for i in $(seq 20); do
    perf stat -I 10 -x\\; -e $E -o base$i.csv ./plain
    perf stat -I 10 -x\\; -e $E -o run$i.csv ./counted
  done
  measure perturb --order interleaved --baseline base*.csv --run run*.csv

\b
Two variants, files by pattern; a name holds for all files up to the next one:
  measure perturb --baseline 'base/*.parquet' \\
    --run 'light=light/*.parquet' --run 'heavy=heavy/*.parquet'"""

_FORMATS = ["csv", "parquet", "perf-csv", "perf-json", "papi", "likwid"]
_SEVERAL = ("--baseline", "--run")


class _SeveralFiles(click.Command):
    """Lets `--baseline a.csv b.csv` take all arguments up to the next option, since shells expand patterns.

    A variant's name before one of them holds for those that follow it, up to the next name.
    """

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        spread: list[str] = []
        option, variant, is_given = None, None, False
        for argument in args:
            name, equals, file = argument.partition("=")
            if name in _SEVERAL:
                option, variant, is_given = name, None, not equals
                if not equals:
                    spread.append(name)
                    continue
            elif argument.startswith("-"):
                option = None
            else:
                file = argument
            if option is None:
                spread.append(argument)
                continue
            if option == "--run":
                variant, file = named(file, variant)
            spread += [file] if is_given else [option, file]
            is_given = False
        return super().parse_args(context, spread)


@click.command(short_help="Compare traces of any tool, such as perf, PAPI, LIKWID.", cls=_SeveralFiles, epilog=_EPILOG)
@click.option("--baseline", multiple=True, required=True, metavar="FILE...",
              help="Traces of runs without instrumentation, or patterns; a run each.")  # fmt: skip
@click.option("--run", "runs", multiple=True, required=True, metavar="[NAME=]FILE...",
              help="Traces of instrumented runs, or patterns; NAME is their variant, up to the next NAME.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", default=Path("results/perturb"),
              show_default=True, help="Where results go.")  # fmt: skip
@click.option("--align/--no-align", default=True, show_default=True,
              help="Compare across aligned runs (outer perturbation), too.")  # fmt: skip
@click.option("--metrics", metavar="A,B,...", help="Compare these only. Default: all that every trace has.")
@click.option("--format", "format_", type=click.Choice(_FORMATS), help="Default: recognised by each file's content.")
@click.option("--delta", default=0.2, show_default=True, type=click.FloatRange(0, min_open=True), metavar="D",
              help="The change of z = atanh(rho) that still counts as none.")  # fmt: skip
@click.option("--alpha", default=0.05, show_default=True,
              type=click.FloatRange(0, 0.5, min_open=True, max_open=True), metavar="A",
              help="The chance of any false alarm, over all variants, within and across runs.")  # fmt: skip
@click.option("--order", type=click.Choice(["unknown", "interleaved", "blocks"]), default="unknown", show_default=True,
              help="How the runs followed one another: in turn, or all baselines first. Files are taken to be in the "
              "order of the runs; where these drift and did not alternate, the verdict is weakened.")  # fmt: skip
@click.option(
    "--seed", default=1, show_default=True, type=int, metavar="N", help="Seed of the randomly drawn labellings."
)
@verdict_options
def perturb(
    baseline: tuple[str, ...],
    runs: tuple[str, ...],
    out: Path,
    align: bool,
    metrics: str | None,
    format_: str | None,
    delta: float,
    alpha: float,
    order: Order,
    seed: int,
    verdicts: VerdictOptions,
) -> None:
    """Compare traces of any tool: did instrumentation change how the metrics relate?

    Reads CSV and Parquet (a column a metric, a row an interval), `perf stat -I MS` with `-x SEP` or `-j`, PAPI's
    high-level JSON and LIKWID's timelines, also compressed. The statistics, verdicts and report are those of
    `measure run`; nothing is emulated. Each trace needs 20 records or more. Leaves DIR/report.html, summary.json,
    verdicts.json, pairs.csv and pairs.parquet.
    """
    from measure.foreign.command import run_perturb
    from measure.foreign.compare import Levels

    chosen = tuple(name.strip() for name in (metrics or "").split(",") if name.strip())
    status = run_perturb(
        baseline, runs, out, Levels(delta, alpha, seed, align, order), metrics=chosen, format=format_,
        console=command_console(), verdicts=verdicts,
    )  # fmt: skip
    raise SystemExit(status)
