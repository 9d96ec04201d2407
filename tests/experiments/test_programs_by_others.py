"""The table of programs written by others is whole: what it names is pinned, and what is recorded is of it."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import yaml

FOLDER = Path(__file__).parents[2] / "experiments" / "programs"
TABLE = yaml.safe_load((FOLDER / "programs.yaml").read_text())
LOCKED = [line.split() for line in (FOLDER / "debian.txt").read_text().splitlines()[1:]]
SHA256 = re.compile(r"[0-9a-f]{64}")


def test_everything_is_pinned() -> None:
    assert all(SHA256.fullmatch(digest) for _, _, _, digest, _ in LOCKED)
    assert {architecture for _, _, architecture, _, _ in LOCKED} == {"riscv64", "all"}
    assert set(TABLE["debian"]) <= {name for name, *_ in LOCKED}
    for package in TABLE["packages"].values():
        assert SHA256.fullmatch(package["sha256"])
        assert package["version"] in package["file"]


def test_programs_name_packages_and_references() -> None:
    known = {*TABLE["packages"], *(name for name, *_ in LOCKED)}
    names = [program["name"] for program in TABLE["programs"]]
    assert len(set(names)) == len(names)
    for program in TABLE["programs"]:
        assert program["package"] in known
        assert program["reference"] in ("qemu", "host", "text")
        assert ("expected" in program) == (program["reference"] == "text")


def test_results_are_of_the_table() -> None:
    with open(FOLDER / "results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["program"] for row in rows] == [program["name"] for program in TABLE["programs"]]
    page = (FOLDER / "programs.md").read_text()
    assert all(f"| {row['program']} |" in page for row in rows)
