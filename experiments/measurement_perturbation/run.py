"""Run what is missing for the figures of this folder, and make them.

    python -m experiments.measurement_perturbation.run [FIGURE.yaml ...]

Interrupted or killed, the same command goes on from the last finished run.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from emulator.errors import EmulatorError
from experiments.drawing import between_marks, markdown_table, save_small
from experiments.measurement_perturbation import compare
from experiments.measurement_perturbation.collect import collect
from experiments.measurement_perturbation.figures import Figure, load_figure, settings_of
from experiments.measurement_perturbation.nulls import count_null_runs
from experiments.measurement_perturbation.results import Results
from instrumenter.errors import InstrumenterError
from measure.errors import MeasureError
from measure.result_files import write_atomically, write_text_atomically
from measure.runs.campaign_file import load_campaign

FOLDER = Path(__file__).resolve().parent
INTERRUPTED = 130
_HEADER = ("", "paper", "ours")


def main(arguments: Sequence[str] | None = None, folder: Path = FOLDER) -> int:
    """The command; its exit status. ``folder``: where the figures' files are."""
    from rich.console import Console

    options = _parser().parse_args(arguments)
    console = Console(stderr=True)
    started = time.perf_counter()
    out = options.out or folder
    try:
        paths = options.figures or sorted(folder.glob("*.yaml"))
        figures = {path: load_figure(path) for path in paths}
        if not options.redraw:
            _collect_all(list(figures.values()), options.results, options.workers, console)
        for path, figure in figures.items():
            script = importlib.import_module(f"experiments.{FOLDER.name}.{path.stem}")
            if not options.redraw:
                table = script.tabulate(figure, Results(options.results, figure))
                write_text_atomically(out / f"{path.stem}.csv", table.to_csv(index=False, float_format="%.5g"))
            _draw(script.draw(figure, pd.read_csv(out / f"{path.stem}.csv")), out / path.stem)
        if options.nulls:
            _count_null_runs(list(figures.values()), options, out, console)
        if not options.figures:
            _write_page(out)
    except (MeasureError, EmulatorError, InstrumenterError) as error:
        console.print(str(error), markup=False, highlight=False)
        return getattr(error, "exit_status", 1)
    except KeyboardInterrupt:
        console.print("Interrupted: finished runs are kept; the same command goes on from there.")
        return INTERRUPTED
    console.print(f"Done in {(time.perf_counter() - started) / 60:.1f} minutes.")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m experiments.{FOLDER.name}.run",
        description="Run what is missing for the paper's figures and make them.",
    )
    parser.add_argument("figures", nargs="*", type=Path, help="figures' files (default: all of the folder)")
    parser.add_argument("--workers", type=int, help="runs at a time (default: one a processor)")
    parser.add_argument("--results", type=Path, default=Path("results") / FOLDER.name, help="default: %(default)s")
    parser.add_argument("--out", type=Path, help="where figures and tables go (default: beside their files)")
    parser.add_argument(
        "--nulls", type=int, default=0, metavar="N",
        help="also make N null runs of each campaign and write nulls.csv: how many of them are called perturbed",
    )  # fmt: skip
    parser.add_argument("--redraw", action="store_true", help="draw the recorded tables; runs nothing")
    return parser


def _collect_all(figures: Sequence[Figure], directory: Path, workers: int | None, console: Any) -> None:
    """Every campaign once; then those of figures that switch mechanisms."""
    plain = [path for figure in figures if not figure.settings for path in figure.campaigns]
    for path in dict.fromkeys(plain):
        campaign, document = load_campaign(path)
        console.rule(campaign.name)
        collect(campaign, document, directory / campaign.name, workers=workers, console=console)
    for figure in figures:
        for (name, setting), (campaign, document) in settings_of(figure, directory / "settings").items():
            console.rule(f"{name}: {setting}")
            place = Results(directory, figure).place(name, setting)
            collect(campaign, document, place, workers=workers, console=console)


def _count_null_runs(figures: Sequence[Figure], options: argparse.Namespace, out: Path, console: Any) -> None:
    """The table of null runs, of every campaign that a figure without settings shows."""
    paths = dict.fromkeys(path for figure in figures if not figure.settings for path in figure.campaigns)
    tables = []
    for path in paths:
        campaign, document = load_campaign(path)
        console.rule(f"{campaign.name}: null runs")
        place = options.results / campaign.name
        tables.append(
            count_null_runs(campaign, document, place, options.nulls, workers=options.workers, console=console)
        )  # fmt: skip
    write_text_atomically(out / "nulls.csv", pd.concat(tables).to_csv(index=False))


def _write_page(out: Path) -> None:
    """The tables of the page, or a file of the comparison where there is no page."""
    if (out / "README.md").is_file():
        write_text_atomically(out / "README.md", page_text(out))
    else:
        write_text_atomically(out / "comparison.md", markdown_table(_HEADER, compare.rows(out)))


def page_text(out: Path) -> str:
    """The page with its tables as the recorded tables have them."""
    page = out / "README.md"
    text = between_marks(page, markdown_table(_HEADER, compare.rows(out)), "comparison")
    return between_marks(page, (out / "table1.md").read_text(encoding="utf-8"), "table 1", text)


def _draw(drawn: Any, stem: Path) -> None:
    """A figure as a picture, a table as Markdown."""
    if isinstance(drawn, str):
        write_text_atomically(stem.with_suffix(".md"), drawn)
    else:
        write_atomically(stem.with_suffix(".png"), lambda to: save_small(drawn, to))


if __name__ == "__main__":
    sys.exit(main())
