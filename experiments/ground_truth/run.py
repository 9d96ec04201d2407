"""Run what is missing of the five campaigns and make tables, figures and the page's numbers.

python -m experiments.ground_truth.run                    # everything; goes on where it stopped
python -m experiments.ground_truth.run --redraw           # figures and page from the recorded tables
"""

from __future__ import annotations

import argparse
import io
import sys
from pathlib import Path

import pandas as pd
from rich.console import Console

from emulator.errors import EmulatorError
from experiments.ground_truth import figures, tables
from instrumenter.errors import InstrumenterError
from measure.campaign.run_command import make_campaign, read_campaign
from measure.errors import MeasureError
from measure.result_files import write_atomically

HERE = Path(__file__).resolve().parent
PROGRAMS = ("chess", "bwtzip", "netsimplex", "ooosim", "chess_O0")


def main(arguments: list[str] | None = None) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.ground_truth.run",
        description="Run what is missing for the ground truth of five campaigns, and make tables and figures.",
    )
    parser.add_argument("programs", nargs="*", help=f"of {', '.join(PROGRAMS)}; default: all, and figures")
    parser.add_argument("--workers", type=int, help="runs at a time; default: one a processor")
    parser.add_argument("--results", type=Path, default=Path("results") / "ground_truth")
    parser.add_argument("--out", type=Path, default=HERE, help="where tables and figures go")
    parser.add_argument(
        "--keep",
        action="store_true",
        help="take the results there are, whichever version of the code made them",
    )
    parser.add_argument("--redraw", action="store_true", help="draw the recorded tables; runs nothing")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.programs if name not in PROGRAMS]
    if unknown:
        parser.error(f"got {', '.join(unknown)}, expected some of {', '.join(PROGRAMS)}")
    console = Console(highlight=False)
    try:
        if not options.redraw:
            _record(options, console)
        hidden = tables.hidden_by_counters(pd.read_csv(options.out / "pairs.csv"))
        write_atomically(options.out / "hidden.csv", lambda to: hidden.to_csv(to, index=False))
        figures.draw_all(options.out)
        tables.write_page(options.out)
    except (MeasureError, EmulatorError, InstrumenterError) as error:
        print(error, file=sys.stderr)
        return getattr(error, "exit_status", 1)
    except KeyboardInterrupt:
        print(
            "Interrupted: finished runs are kept; the same command goes on from there.", file=sys.stderr
        )  # fmt: skip
        return 130
    return 0


def _record(options: argparse.Namespace, console: Console) -> None:
    for program in options.programs or PROGRAMS:
        console.print(program, style="bold")
        campaign, directory = HERE / f"{program}.yaml", options.results / program
        if options.keep and (directory / "ground_truth.json").exists():
            data = read_campaign(directory, None, console).data
        else:
            data = make_campaign(campaign, directory, console, workers=options.workers).data
        for name, table in tables.of_program(program, data, directory).items():
            _replace(options.out / f"{name}.csv", program, table)
    directories = {program: options.results / program for program in PROGRAMS}
    if all((directory / "ground_truth.json").exists() for directory in directories.values()):
        console.print("Channels for all programs", style="dim")
        table = tables.across_programs(directories)
        write_atomically(
            options.out / "across.csv", lambda to: table.to_csv(to, index=False, float_format="%.4g")
        )  # fmt: skip


def _replace(path: Path, program: str, table: pd.DataFrame) -> None:
    """The rows of one program in a recorded table; numbers are text, so that old ones stay as they were."""
    text = io.StringIO(table.to_csv(index=False, float_format="%.4g"))
    rows = pd.read_csv(text, dtype=str, keep_default_na=False)
    if path.exists():
        old = pd.read_csv(path, dtype=str, keep_default_na=False)
        rows = pd.concat([old[old["program"] != program], rows])
    rows = rows.assign(order=[PROGRAMS.index(name) for name in rows["program"]])
    rows = rows.sort_values("order", kind="stable").drop(columns="order")
    write_atomically(path, lambda to: rows.to_csv(to, index=False))


if __name__ == "__main__":
    sys.exit(main())
