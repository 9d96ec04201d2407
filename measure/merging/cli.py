"""The command ``measure merge``: its options and their help; `measure.merging.command` does the work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from measure.console.output import command_console


@click.command(short_help="Merge runs into one trace with every metric.")
@click.argument("directories", metavar="DIR...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE",
              help="merged.parquet, .csv or .json (Chrome trace), in an existing directory. "
              "Default: DIR/merged.parquet.")  # fmt: skip
@click.option("--format", "kind", type=click.Choice(["parquet", "csv", "chrome"]),
              help="Default: by the ending of --out.")  # fmt: skip
@click.option("--baseline", type=click.IntRange(0), metavar="N",
              help="Number of the baseline that gives the time base. Default: the first one.")  # fmt: skip
@click.option("--align", type=click.Choice(["dtw", "progress"]), default="dtw", show_default=True,
              help="By dynamic time warping on the shared hardware metrics, or by the program's own instructions, "
              "which counters do not change; estimated, unless the campaign has `ground_truth: true`.")  # fmt: skip
@click.option("--scale", type=click.Choice(["zscore", "rank"]), default="zscore", show_default=True,
              help="How metrics are made comparable; ranks are not governed by single spikes.")  # fmt: skip
@click.option("--step-penalty", type=click.FloatRange(0), metavar="P",
              help="Cost, in variances of each metric, of a step of the warping that advances one trace only; 0 as in "
              "the textbook, which follows noise. Default: the campaign's, for which its verdicts hold.")  # fmt: skip
@click.option("--band", type=click.FloatRange(0, 1, min_open=True), metavar="B",
              help="Half-width of the band in which alignments start, as a fraction of the longer trace. Default: the "
              "campaign's.")  # fmt: skip
@click.option("--channel", "channels", multiple=True, metavar="METRIC",
              help="Align on this hardware metric; may be repeated. Default: all that are shared.")  # fmt: skip
def merge(directories: tuple[Path, ...], out: Path | None, kind: Any, baseline: int | None, align: Any, scale: Any,
          step_penalty: float | None, band: float | None, channels: tuple[str, ...]) -> None:  # fmt: skip
    """Merge the runs in DIR into one trace with every metric.

    DIR is what `measure run` left: runs of several variants, each with other software metrics. They are aligned to one
    baseline, and their counts moved onto its records; the sum of each metric stays the same. A metric that several
    runs have is taken from a variant that changes nothing, if there is one, and from the run that aligns best. Warns of
    variants that perturb, and where an alignment stretched. With several directories, such as those of a partition
    whose hardware metrics did not fit into one run, the time base is a baseline of the first, and variants of the
    others are named by their directory, too (mine-partition-2:VARIANT). All must be of the same program on the same
    input and machine.

    Beside the merged trace, under its name, is a page (merged.html): the metrics over time, where each comes from, and
    how the runs align.

    \b
      measure merge results/quickstart
      measure merge results/quickstart --out merged.json   # for ui.perfetto.dev
      measure merge results/mine-partition-1 results/mine-partition-2 \\
        --out mine.parquet
    """
    from measure.merging.command import load_all, print_merged
    from measure.merging.export import format_of, write_merged
    from measure.merging.merge_runs import merge_runs
    from measure.merging.page import check_other_merge, place_of_page, render_page
    from measure.result_files import check_file_place, write_text_atomically

    endings = {"parquet": "parquet", "csv": "csv", "chrome": "json", None: "parquet"}
    if out is not None:
        check_file_place(out)
    path = out or directories[0] / f"merged.{endings[kind]}"
    chosen = kind or format_of(path)
    page_path = place_of_page(path)
    results = load_all(directories)
    check_file_place(path)
    check_file_place(page_path)
    alignment = results.aligned_with(step_penalty, band)
    merged = merge_runs(
        results.baseline(baseline), results.runs, align=align, channels=channels or None, scale=scale,
        alignment=alignment, curve=results.curve, verdicts=results.verdicts, notes=results.notes,
    )  # fmt: skip
    check_other_merge(page_path, merged, path)
    write_merged(merged, path, chosen, results.clock_hz)
    warnings = (*results.warnings, *results.differing(alignment))
    options = _options(
        ("--baseline", baseline), ("--align", align if align != "dtw" else None),
        ("--scale", scale if scale != "zscore" else None), ("--step-penalty", step_penalty), ("--band", band),
        *(("--channel", channel) for channel in channels),
    )  # fmt: skip
    write_text_atomically(page_path, render_page(merged, directories, path, warnings, options))
    console = command_console()
    print_merged(console, merged, warnings)
    console.print(f"Merged trace: {path}   Page: {page_path}", style="dim")


def _options(*given: tuple[str, object]) -> list[str]:
    """The words of options that have a value."""
    return [word for name, value in given if value is not None for word in (name, str(value))]
