"""The tables and the picture, from the runs: `python -m experiments.shade.run --tables`.

Table N of the paper becomes ``tableN.csv``; ``tables.md`` has all of them beside the paper's numbers, for people.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pandas as pd

from experiments.drawing import markdown_table, save_small
from experiments.shade.campaign import Campaign
from experiments.shade.levels import LEVELS
from experiments.shade.others import TOOLS
from experiments.shade.picture import draw
from experiments.shade.profiling import PLACES
from measure.errors import MeasureError
from measure.result_files import write_atomically, write_text_atomically

FLOATING_POINT = ("nbody",)
MEAN = "geometric mean"
# Shade-V8.V8 in the paper: CPU time over native (Table 1), expansion (Table 2), share of time in the translation
# cache and in the compiler (Table 3), host instructions for generating one (Table 4); of gcc, and of doduc.
PAPER = {
    "gcc": {
        "slowdown": (6.1, 6.6, 14.3, 21.7, 31.2, 84.2), "expansion": (4.7, 6.2, 9.1, 15, 17, 40),
        "translations": (51.13, 52.56, 74.62, 82.22, 86.33, 61.26), "compiler": (8.77, 10.14, 5.82, 4.59, 3.86, 25.05),
        "cost": (179.7, 171.25, 127.2, 94.0, 87.5, 51.4),
    },
    "doduc": {
        "slowdown": (2.8, 3.1, 8.8, 14.0, 24.1, 60.3), "expansion": (4.1, 5.1, 8.0, 13, 15, 39),
        "translations": (80.69, 81.56, 91.50, 95.20, 96.37, 87.87), "compiler": (0.22, 0.35, 0.16, 0.11, 0.08, 0.06),
        "cost": (245.4, 271.2, 162.6, 111.9, 102.1, 58.9),
    },
}  # fmt: skip


def write_tables(campaign: Campaign, results: Path, out: Path) -> None:
    """Write everything to ``out``. Raises `MeasureError` when there are no results."""
    runs = results / "runs.csv"
    if not runs.is_file():
        raise MeasureError(f"there is no {runs}: run `python -m experiments.shade.run` first")
    profiles = _profiles(campaign, results / "profiles")
    tables = {
        "table1": slowdowns(campaign, pd.read_csv(runs)), "table2": expansions(profiles), "table3": places(profiles),
        "table4": costs(profiles),
    }  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        write_atomically(out / f"{name}.csv", partial(table.to_csv, index=False, float_format="%.5g"))
    redraw(campaign, out)


def redraw(campaign: Campaign, out: Path) -> None:
    """Make the page and the picture of the tables that are recorded in ``out``."""
    tables = {f"table{n}": pd.read_csv(out / f"table{n}.csv") for n in range(1, 5)}
    write_text_atomically(out / "tables.md", page(campaign, tables))
    figure = draw(campaign.shows, tables["table1"], [PAPER[name]["slowdown"] for name in PAPER])
    write_atomically(out / "slowdown.png", lambda to: save_small(figure, to))


def _profiles(campaign: Campaign, directory: Path) -> pd.DataFrame:
    rows = []
    for program in campaign.programs:
        for level in campaign.levels:
            path = directory / f"{program}-{level}.json"
            if path.is_file():
                rows.append({"program": program, "level": level, **json.loads(path.read_text())})
    return pd.DataFrame(rows)


def slowdowns(campaign: Campaign, runs: pd.DataFrame) -> pd.DataFrame:
    """A row a program and way: best seconds, instructions, seconds an instruction over the native program's; then the
    geometric means over the programs. ``inside``: the same without starting up, of ours."""
    best = runs.groupby(["program", "way", "size"], sort=False).min(numeric_only=True).reset_index()
    executed = best.dropna(subset="instructions").groupby(["program", "size"])["instructions"].first()
    rows = []
    for program in dict.fromkeys(best["program"]):
        mine = best[best["program"] == program]
        native = mine[(mine["way"] == "native") & (mine["size"] == campaign.size)]["seconds"].iloc[0]
        each = native / executed[program, campaign.size]
        for row in mine.itertuples():
            if row.way == "level-0" and row.size != campaign.size:
                continue
            n = executed[program, row.size]
            inside = row.inside_seconds / n / each
            rows.append(
                (
                    program,
                    row.way,
                    level_of(row.way),
                    row.size,
                    n,
                    row.seconds,
                    row.seconds / n / each,
                    inside,
                )
            )
    columns = ["program", "way", "level", "size", "instructions", "seconds", "slowdown", "inside"]
    table = pd.DataFrame(rows, columns=columns)
    means = []
    for way, part in table.groupby("way", sort=False):
        together = [math.exp(part[name].map(math.log).mean()) for name in ("slowdown", "inside")]
        means.append((MEAN, way, level_of(str(way)), part["size"].iloc[0], None, None, *together))
    return pd.concat([table, pd.DataFrame(means, columns=columns).astype(table.dtypes, errors="ignore")])


def level_of(way: str) -> int:
    """The level of tracing that a way of running is at, or stands beside."""
    return TOOLS[way].level if way in TOOLS else int(way.removeprefix("level-")) if way.startswith("level-") else 0


def expansions(profiles: pd.DataFrame) -> pd.DataFrame:
    """Table 2: instructions of a block, bytes of a block and of its translation, weighted by executions."""
    table = profiles[["program", "level", "block_instructions", "guest_bytes", "host_bytes", "translated"]].copy()
    table["expansion"] = table["host_bytes"] / table["guest_bytes"]
    return table


def places(profiles: pd.DataFrame) -> pd.DataFrame:
    """Table 3: shares of the time that a run takes with nothing translated before [%]; beside them, on another
    processor, translating in the background."""
    rows = []
    for row in profiles.to_dict("records"):
        total = sum(row["places"].values())
        shares = [100 * row["places"][name] / total for name in PLACES]
        background = 100 * row["costs"]["optimised"]["seconds"] / row["seconds"]
        rows.append((row["program"], row["level"], row["seconds"], *shares, background))
    return pd.DataFrame(rows, columns=["program", "level", "seconds", *PLACES, "in the background"])


def costs(profiles: pd.DataFrame) -> pd.DataFrame:
    """Table 4: a row a program, level and tier: what was translated, and microseconds of a processor for each of the
    guest's instructions."""
    rows = []
    for row in profiles.to_dict("records"):
        for tier, cost in row["costs"].items():
            n = max(1, cost["instructions"])
            each = 1e6 * cost["seconds"] / n
            text = 1e6 * cost["text_seconds"] / n
            rows.append(
                (
                    row["program"],
                    row["level"],
                    tier,
                    cost["regions"],
                    cost["instructions"],
                    each,
                    text,
                    cost["host_bytes"] / n,
                )
            )
    columns = [
        "program",
        "level",
        "tier",
        "regions",
        "instructions",
        "microseconds_each",
        "text_microseconds_each",
    ]
    return pd.DataFrame(rows, columns=[*columns, "host_bytes_each"])


def page(campaign: Campaign, tables: dict[str, pd.DataFrame]) -> str:
    """All tables as Markdown, the paper's numbers beside them."""
    return "\n".join(_parts(campaign, tables))


def _parts(campaign: Campaign, tables: dict[str, pd.DataFrame]) -> Iterator[str]:
    header = ["", *(f"{level}: {LEVELS[level][0]}" for level in campaign.levels)]
    first = tables["table1"]
    ours = first[first["way"].str.startswith("level-")]
    yield f"# {campaign.shows}\n"
    yield f"Programs at `{campaign.size}`, the best of {campaign.rounds}.\n"
    yield "## Table 1: time over the native program's\n"
    rows = _by_level(campaign, ours, "slowdown", "{:.2f}")
    yield markdown_table(header, [*_papers(campaign, "slowdown", "{:g}"), *rows])
    yield "Without starting up (Python, loading what was translated before; kernels are loaded when first called):\n"
    yield markdown_table(header, _by_level(campaign, ours, "inside", "{:.2f}"))
    yield from _beside(campaign, first)
    yield "## Table 2: bytes of host code for a byte of the guest's, weighted by executions\n"
    rows = _by_level(campaign, tables["table2"], "expansion", "{:.1f}")
    yield markdown_table(header, [*_papers(campaign, "expansion", "{:g}"), *rows])
    yield "## Table 3: where time goes, nothing translated before [%]\n"
    third = tables["table3"]
    rows = [
        *_papers(campaign, "translations", "{:.0f}", ", TC"),
        *_papers(campaign, "compiler", "{:.0f}", ", Compiler"),
    ]
    for program in campaign.programs:
        for place in (*PLACES, "in the background"):
            found = third[third["program"] == program].set_index("level")[place]
            rows.append([f"{program}, {place}", *(_cell(found, level, "{:.0f}") for level in campaign.levels)])
    yield markdown_table(header, rows)
    yield "## Table 4: microseconds of a processor for translating one of the guest's instructions\n"
    fourth = tables["table4"]
    rows = _papers(campaign, "cost", "{:g}", ", instructions for one generated")
    for program in campaign.programs:
        for tier in ("templates", "optimised"):
            mine = fourth[(fourth["program"] == program) & (fourth["tier"] == tier)].set_index("level")
            cells = []
            for level in campaign.levels:
                n = mine["instructions"].get(level, 0)
                cells.append(f"{mine['microseconds_each'][level]:.3g} ({n:,.0f})" if n else "-")
            rows.append([f"{program}, {tier} (instructions)", *cells])
    yield markdown_table(header, rows)


def _papers(campaign: Campaign, what: str, form: str, more: str = "") -> list[list[str]]:
    return [
        [f"*the paper's {name}{more}*", *(form.format(numbers[what][level]) for level in campaign.levels)]
        for name, numbers in PAPER.items()
    ]


def _by_level(campaign: Campaign, table: pd.DataFrame, column: str, form: str) -> list[list[str]]:
    rows = []
    for program in dict.fromkeys(table["program"]):
        found = table[table["program"] == program].set_index("level")[column]
        name = f"**{program}**" if program == MEAN else program
        rows.append([name, *(_cell(found, level, form) for level in campaign.levels)])
    return rows


def _cell(found: pd.Series, level: int, form: str) -> str:
    return form.format(found[level]) if level in found.index else "-"


def _beside(campaign: Campaign, table: pd.DataFrame) -> Iterator[str]:
    """Other tools, and ours cold, beside the level that they are to be compared with."""
    programs: Sequence[str] = [*campaign.programs, MEAN]
    rows = []
    for way in dict.fromkeys(table["way"]):
        if way == "native" or way.startswith("level-"):
            continue
        mine = table[table["way"] == way].set_index("program")
        ours = table[table["way"] == f"level-{level_of(way)}"].set_index("program")["slowdown"]
        words = TOOLS[way].does if way in TOOLS else "ours, nothing translated before"
        cells = [f"{mine['slowdown'][name]:.1f}" if name in mine.index else "-" for name in programs]
        ratio = f"{mine['slowdown'][MEAN] / ours[MEAN]:.2f}" if MEAN in ours.index else "-"
        rows.append([words, mine["size"].iloc[0], level_of(way), *cells, ratio])
    yield "Other tools, time over the native program's, by the instruction where the size is another one:\n"
    yield markdown_table(["", "size", "beside level", *programs, "over ours there"], rows)
