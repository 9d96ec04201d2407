"""Points that do not represent the program are told, with figures, first in terminal, page and summary."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from measure.cli import main
from measure.cycle_close.live_counts import wait_cycles
from measure.program_phases import profile
from measure.program_phases.homogeneity import homogeneity
from measure.program_phases.representation import Representation, by_chance_percent, representation

MACHINE = Path(__file__).parents[3] / "configs" / "machines" / "strongarm.yaml"
# One loop over lines that stay in the cache, or over lines that do not: the same code.
CONFLICTS = """\
#include <stdlib.h>
static volatile char data[1 << 20];
__attribute__((noinline)) static void walk(long lines)
{
    for (int i = 0; i < 40000; i++)
        (void)data[(i & (lines - 1)) * 32];
}
int main(int argc, char **argv)
{
    int spread = argc > 1 ? atoi(argv[1]) : 3;
    for (int turn = 0; turn < 12; turn++)
        walk(turn % 4 < spread ? 64 : 1 << 14);
    return 0;
}
"""


@pytest.fixture(autouse=True)
def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Misses count as no waiting, so that phases do not tell intervals with them from others."""
    monkeypatch.setattr(profile, "wait_cycles", lambda config: 0 * wait_cycles(config))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("representation") / "conflicts.c"
    path.write_text(CONFLICTS)
    return path


def phases(source: Path, out: Path, *arguments: str, options: tuple[str, ...] = ()) -> str:
    words = ["phases", "--interval", "20k", "--machine", str(MACHINE), "--out", str(out), *options]
    words.append(str(source))
    result = CliRunner().invoke(main, [*words, *arguments])
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def test_points_of_phases_that_data_divides_are_doubted(source: Path, tmp_path: Path) -> None:
    told = phases(source, tmp_path)
    about = json.loads((tmp_path / "summary.json").read_text())
    judged = about["representation"]
    assert judged["cpi_by_chance_percent"] > 20
    full, points = (about["estimates"][name]["cpi"]["value"] for name in ("full simulation", "simulation points"))
    assert judged["cpi_error_percent"] == pytest.approx(100 * (points / full - 1))
    assert judged["warning"].startswith("Do not trust these simulation points: ")
    assert judged["warning"] in told
    assert told.index(judged["warning"]) < told.index(" phases (vectors ")
    page = (tmp_path / "phases.html").read_text()
    assert f"<p><b>{judged['warning']}</b></p>" in page
    assert f" --k {2 * about['k']} {source}" in page
    assert "--take-simpoint-checkpoints" not in page  # no advice to use points that are not to be trusted
    given = ("--points", str(tmp_path / "conflicts.simpoints"), "--weights", str(tmp_path / "conflicts.weights"))
    told = phases(source, tmp_path / "points", options=given)
    again = json.loads((tmp_path / "points" / "summary.json").read_text())["representation"]
    assert again["cpi_error_percent"] == pytest.approx(judged["cpi_error_percent"])
    assert again["cpi_by_chance_percent"] is None
    assert ("Do not trust" in told) == (abs(again["cpi_error_percent"]) > 5)


def test_points_that_represent_the_program_are_not_doubted(source: Path, tmp_path: Path) -> None:
    told = phases(source, tmp_path, "4")
    assert "Do not trust" not in told
    assert json.loads((tmp_path / "summary.json").read_text())["representation"]["warning"] is None
    assert "Do not trust" not in (tmp_path / "phases.html").read_text()


def test_the_spread_by_chance_is_that_of_drawn_points() -> None:
    random = np.random.default_rng(1)
    labels = np.repeat([0, 1, 2], [60, 30, 10])
    cpi = np.array([1.0, 2.0, 4.0])[labels] + random.normal(0, 0.3, 100)
    uniform = homogeneity(labels, pd.DataFrame({"cpi": cpi}))
    drawn = [
        sum(share * random.choice(cpi[labels == phase]) for phase, share in enumerate((0.6, 0.3, 0.1)))
        for _ in range(20_000)
    ]
    assert by_chance_percent(uniform) == pytest.approx(100 * np.std(drawn) / cpi.mean(), rel=0.03)


@pytest.mark.parametrize(
    ("judged", "warning"),
    [
        (Representation(1.04, 1.0, 4.9, 3), ""),
        (Representation(0.96, 1.0, None, None), ""),
        (
            Representation(3.0, 2.0, 40.4, 3),
            "Do not trust these simulation points: they say that CPI of the whole program is 3.000, 50.0% higher than "
            "the 2.000 of the full simulation. CPI differs so much within phases that an estimate from any one "
            "interval of each is off by 40%, typically: the phases do not tell apart what makes the difference.",
        ),
        (
            Representation(1.8, 2.0, None, None),
            "Do not trust these simulation points: they say that CPI of the whole program is 1.800, 10.0% lower than "
            "the 2.000 of the full simulation.",
        ),
        (
            Representation(1.98, 2.0, 9.0, 3),
            "Do not trust these simulation points: CPI differs so much within phases that an estimate from any one "
            "interval of each is off by 9%, typically. That CPI of the whole program is only 1.0% lower from these "
            "than the 2.000 of the full simulation is chance.",
        ),
    ],
)
def test_warning(judged: Representation, warning: str) -> None:
    assert judged.warning == warning
    assert bool(judged.remedy) == bool(warning)
    assert ("--k 6" in judged.remedy) == (bool(warning) and judged.phases is not None)


def test_estimates_without_cpi_are_not_judged() -> None:
    assert representation({"full simulation": {}, "simulation points": {}}) is None
