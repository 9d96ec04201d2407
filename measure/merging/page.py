"""A merged trace as one self-contained HTML page: the metrics over time, and where each of them comes from."""

from __future__ import annotations

import hashlib
import html
import json
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from measure.errors import CampaignError
from measure.merging.aligned_run import AlignedRun
from measure.merging.export import ENDINGS
from measure.merging.merge_runs import JUMP, STRETCHED, Merged
from measure.report.elements import Step, bullets, data_link, paragraph, section, table, to_do
from measure.report.page import csv_uri, plain_page, verdict_class
from measure.report.style import short
from measure.report.traces import Line, Row, TraceFigure, scripts

MADE_BY = '<meta name="generator" content="measure merge">'
"""Stands in the head of a page of this module."""
_MERGE = re.compile(r'<meta name="merge" content="(\w+) ([^"]*)">')  # the merge's digest, and the name of its trace
MOST_SHOWN = 10
"""Metrics that are drawn before anything is chosen."""
MUCH_STRETCHED = 0.01
"""Share of the baseline's records from which another alignment is proposed."""
WHERE_STRETCHED = (
    f"a record is made of {STRETCHED:g} or more of the run's records, or of a third of one or less, or of {JUMP:g} "
    "times as many as the records around it or more, or of so much fewer"
)
WITHOUT_ALIGNMENT = (
    "Collect metrics that are to be related in one run, in a set of counters that is equivalent: their relations need "
    "no alignment. If the program does the same in each run, `method: second_run` at a software metric in the campaign "
    "file counts it in the records of the plain program. Longer records with `--align progress` leave more of a "
    "relation than short ones, as fewer counts are near the ends of records."
)
"""What helps where an alignment weakens relations."""
_HEAD_CHARACTERS = 100_000


def place_of_page(merged_file: Path) -> Path:
    """The page is beside the merged trace, under its name.

    Raises `CampaignError` when the trace itself has that name, and when there is a file that is not a page of
    `measure merge`, such as a campaign's report.
    """
    path = merged_file.with_suffix(".html")
    if path == merged_file:
        raise CampaignError(f"{path}: is the name of the page beside the merged trace: give the trace another ending")
    if path.exists() and not (path.is_file() and MADE_BY in _beginning(path)):
        raise CampaignError(
            f"{path}: is no page of `measure merge`, and would be written over by the page of {merged_file.name}; "
            "choose another name with --out"
        )
    return path


def _beginning(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_HEAD_CHARACTERS)
    except OSError as error:
        raise CampaignError(f"{path}: cannot be read: {error.strerror}") from None


def check_other_merge(page: Path, merged: Merged, merged_file: Path) -> None:
    """Check that ``page``, if there is one, may become that of ``merged_file``: traces of one merge in several formats
    share their page. Raises `CampaignError` when it is about another merge, whose trace is still beside it."""
    found = _MERGE.search(_beginning(page)) if page.exists() else None
    if found is None:
        return
    digest, trace = found[1], page.with_name(html.unescape(found[2]))
    if digest != _digest(merged) and trace.name != merged_file.name and trace.exists():
        raise CampaignError(
            f"{page}: is the page of {trace.name}, which is another merge, and would be written over by the page of "
            f"{merged_file.name}; choose another name with --out"
        )


def _digest(merged: Merged) -> str:
    """Tells merges apart: by their baseline, runs, alignments and totals."""
    return hashlib.sha256(json.dumps(merged.metadata()).encode()).hexdigest()[:16]


def render_page(
    merged: Merged, directories: Sequence[Path], merged_file: Path, warnings: Sequence[str] = (),
    options: Sequence[str] = (),
) -> str:  # fmt: skip
    """The page as text. ``merged_file``: the trace that it is about; ``warnings``: beside those of ``merged``;
    ``options``: of the command that made it, without those of the file."""
    trace = merged.baseline.trace
    figures = _figures(merged)
    title = f"{len(merged.metrics)} metrics on one time base"
    sub = (
        f"The {trace.n_records:,} records of {merged.metadata()['baseline']}, with metrics of {len(merged.runs)} other "
        f"run{'' if len(merged.runs) == 1 else 's'}, from {', '.join(map(str, directories))}."
    )
    told = (*merged.warnings, *warnings)
    parts = [
        to_do(_headline(merged), _steps(merged, directories, merged_file, options), "Nothing."),
        *([section("Warnings", bullets(told))] if told else []),
        section("The metrics over time", figures[0].html()),
        _sources(merged),
        *([section("How the runs align with the baseline", figures[1].html())] if len(figures) > 1 else []),
    ]
    return plain_page(
        title=Markup("{}").format(title), heading=Markup("{}").format(title), sub=Markup("{}").format(sub),
        head=f'{MADE_BY}<meta name="merge" content="{_digest(merged)} {html.escape(merged_file.name)}">',
        content=Markup("\n").join(parts), scripts=scripts(figures),
    )  # fmt: skip


def _verdicts(merged: Merged) -> set[str]:
    return {merged.verdict_of(one).verdict for one in merged.runs}


def _headline(merged: Merged) -> str:
    """What may be related to what."""

    def metrics_of(chosen: Callable[[AlignedRun], bool]) -> str:
        return ", ".join(
            short(source.metric)
            for source in merged.sources
            if source.run is not None and chosen(merged.runs[source.run])
        )

    doubtful = metrics_of(lambda one: merged.verdict_of(one).verdict != "equivalent")
    weak = metrics_of(lambda one: merged.verdict_of(one).verdict == "equivalent" and _is_weak(merged, one))
    parts = []
    if doubtful:
        parts.append(f"Do not relate these to other metrics before you have read the warnings: {doubtful}.")
    if weak:
        parts.append(
            f"Relations to metrics of other runs may be weaker here than they are, of {weak}: see the warnings."
        )
    if not parts:
        parts.append("Collecting these metrics changes nothing that counts: all may be related to each other.")
    known = [left for one in merged.runs for left in (one.left, one.left_of_two) if left.is_known]
    if known:
        more = " or more" if len(known) > 1 else ""
        least = min(left.share for left in known)
        left = f"about {least:.0%}{more} is left in the mean"
        parts.append(f"Of known relations between metrics of different runs, {left}.")
        worse = max((one.worse for one in merged.runs if one.faint_in_words), key=lambda left: left.error, default=None)
        if worse is not None:
            parts.append(
                f"Single ones are off by {worse.error:.2f}, at worst {worse.worst_in_words}: a correlation below about "
                f"{2 * worse.error:.1f} between metrics of different runs may be absent here, or of the other sign."
            )
    return " ".join(parts)


def _is_weak(merged: Merged, one: AlignedRun) -> bool:
    """Whether relations of a run's metrics to those of other runs are weakened, or not shown to be as they are."""
    return one.weakens or bool(merged.verdict_of(one).caveat)


def _steps(merged: Merged, directories: Sequence[Path], merged_file: Path, options: Sequence[str]) -> list[Step]:
    """What to do next, with commands: those that merge again have the ``options`` of this merge."""
    again = ["measure", "merge", *map(str, directories), *options]
    places, verdicts = [str(one) for one in directories], _verdicts(merged)
    steps = []
    if verdicts & {"perturbed", "changed"}:
        steps.append(
            Step(
                "The counters of a run change how metrics relate. This says which counter does it, and what helps; the "
                "campaign's report says how to collect its metrics apart:",
                tuple(shlex.join(["measure", "explain", place]) for place in places),
            )
        )
    if "inconclusive" in verdicts:
        steps.append(
            Step(
                "A verdict is open: the campaign's report says which command settles it with more runs. Merge its "
                "results then."
            )
        )
    if any(_is_weak(merged, one) for one in merged.runs):
        steps.append(Step(WITHOUT_ALIGNMENT))
    rough = any(one.stretched_fraction > MUCH_STRETCHED or one.weakens for one in merged.runs)
    if rough and all(one.align == "dtw" for one in merged.runs):
        steps.append(
            Step(
                "Where an alignment stretches, counts are placed only roughly. Alignment by the program's own "
                "instructions does not follow noise; see whether more of the known relations is left:",
                (shlex.join([*again, "--align", "progress", "--out", str(_by_progress(merged_file))]),),
            )
        )
    if merged_file.suffix != ".json":
        steps.append(
            Step(
                "See the metrics as counters in Perfetto, at ui.perfetto.dev:",
                (shlex.join([*again, "--out", str(merged_file.with_suffix(".json"))]),),
            )
        )
    return steps


def _by_progress(merged_file: Path) -> Path:
    """The file of the same merge aligned by progress: under another name, as its page is another one."""
    ending = merged_file.suffix if merged_file.suffix in ENDINGS else ".parquet"
    return merged_file.with_name(f"{merged_file.stem}-progress{ending}")


def _figures(merged: Merged) -> tuple[TraceFigure, ...]:
    """The metrics over time, and the shift of each run; no shifts when nothing is aligned."""
    edges = merged.baseline.trace.boundaries_cycles
    rows = tuple(
        Row(
            short(source.metric),
            (Line(short(source.metric), merged.values[:, n], "before" if source.run is None else "after"),),
            merged.runs[source.run].stretched if source.run is not None else (),
        )
        for n, source in enumerate(merged.sources)
    )
    collected = [row.title for row, source in zip(rows, merged.sources, strict=True) if source.run is not None]
    order = [*collected, *(row.title for row in rows if row.title not in collected)]
    metrics = TraceFigure(
        "merged-metrics", edges, "cycles", "record", rows=rows, shown=tuple(order[:MOST_SHOWN]),
        caption="Events in each record: grey, counted in the baseline itself; orange, moved there from another run. "
        f"Shaded: where that run's alignment stretches, so that counts are placed only roughly: {WHERE_STRETCHED}. See "
        "which metrics rise and fall together outside the shaded parts. Drag across a plot, or use the buttons, to "
        "zoom in. Single extremes may run out of the picture.",
    )  # fmt: skip
    shifts = TraceFigure(
        "alignment", edges, "cycles", "record",
        rows=tuple(
            Row(f"{one.name} [records]", (Line("shift", shift_of(one), "third"),), one.stretched) for one in merged.runs
        ),
        caption="How many records each run has taken up to the end of a record of the baseline, "
        "minus as many as there would be in proportion. Level: both advance alike; rising: the run takes longer there "
        f"than the baseline; falling: it is faster. Shaded: the alignment stretches: {WHERE_STRETCHED}.",
    )  # fmt: skip
    return (metrics, shifts) if merged.runs else (metrics,)


def shift_of(aligned: AlignedRun) -> NDArray[np.float64]:
    """Records of the run up to the end of each baseline record, minus as many as in proportion: ``(n,)``."""
    upto = np.cumsum(aligned.spread.records())
    n = aligned.spread.n_rows
    return np.asarray(upto - np.arange(1, n + 1) * (aligned.spread.n_columns / n), np.float64)


def _sources(merged: Merged) -> Markup:
    """Each metric: its run, that run's verdict and alignment, and the total that is conserved."""
    baseline = merged.metadata()["baseline"]
    heads = (
        "metric",
        "run",
        "its variant is",
        "events in the run",
        "in the merged trace",
        "cost",
        "distance [sd]",
        "stretched",
        "relations left",
        "off by",
    )
    rows: list[tuple[object, ...]] = []
    data: list[tuple[object, ...]] = []
    for n, source in enumerate(merged.sources):
        total = int(merged.values[:, n].sum())
        kept = f"{total:,} (the same)" if total == source.total else f"{total:,} (differs)"
        if source.run is None:
            rows.append((source.metric, baseline, "the time base", f"{source.total:,}", kept, *[""] * 5))
            data.append((source.metric, baseline, "", source.total, total, *[""] * 10))
            continue
        one = merged.runs[source.run]
        found = merged.verdict_of(one)
        verdict, caveat = found.verdict, f", but {found.caveat}" if found.caveat else ""
        shown = Markup('<span class="verdict {}">{}</span>{}').format(verdict_class(verdict), verdict, caveat)
        left = f"{one.left.share:.0%}" if one.left.is_known else ""
        left += f"; {one.left_of_two.share:.0%}" if one.left_of_two.is_known else ""
        off = f"{one.worse.error:.2f}" if one.worse.is_known else ""
        cost = "-" if np.isnan(one.cost) else f"{one.cost:.3g}"
        rows.append((source.metric, one.name, shown, f"{source.total:,}", kept, cost, f"{one.distance:.2f}",
                     f"{100 * one.stretched_fraction:.1f}%", left, off))  # fmt: skip
        data.append(
            (source.metric, one.name, verdict, source.total, total, one.cost, one.distance, one.stretched_fraction,
             one.left.share, found.caveat, one.left_of_two.share, one.worse.error, one.worse.known, one.worse.shown,
             " - ".join(one.worse.worst))
        )  # fmt: skip
    names = (
        "metric",
        "run",
        "verdict",
        "events_in_run",
        "events_in_merged_trace",
        "cost",
        "distance_sd",
        "stretched_fraction",
        "relations_left",
        "caveat",
        "relations_left_of_two",
        "relations_off",
        "worst_relation_known",
        "worst_relation_shown",
        "worst_relation",
    )
    return section(
        "Where each metric comes from",
        table("Where each metric comes from", heads, rows, texts=2),
        paragraph(
            "Distance: of matched records, in standard deviations of the metrics that they were aligned on; 0 for "
            "equal traces, 1.4 for unrelated ones. Cost: of the warping path. Stretched: share of the baseline's "
            f"records where {WHERE_STRETCHED}. Relations left: of the known correlations of two hardware metrics, the "
            "share that is left in the mean when one of both is taken from the run, aligned on others than itself; "
            "then when the other is taken from another run of the merge, the one that leaves least. So much of its "
            "relations to metrics of other runs is left of a software metric, too. Off by: root mean square of the "
            "difference from the known correlation, of either kind; a weak correlation may be lost in it. The data "
            "have the one that is furthest off.", note=True,
        ),
        Markup('<p class="note">{}</p>').format(data_link("sources", csv_uri(names, data), "Data of this table (CSV)")),
    )  # fmt: skip
