"""A summary.json is read by one rule: of this version, and whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from measure.errors import CampaignError
from measure.merging.command import _verdicts
from measure.verdict_files.summary_file import SUMMARY_SCHEMA, read_summary

GOOD = {"schema": SUMMARY_SCHEMA, "variants": {"light": {"verdict": "equivalent"}}}


def test_a_summary_of_this_version_is_read(tmp_path: Path) -> None:
    assert _verdicts(tmp_path) == {}  # before the analysis has ended
    (tmp_path / "summary.json").write_text(json.dumps(GOOD))
    assert read_summary(tmp_path) == GOOD
    assert {name: one.verdict for name, one in _verdicts(tmp_path).items()} == dict.fromkeys(
        ("baseline", "light"), "equivalent"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is missing or damaged"),
        ("[]", "is missing or damaged"),
        (json.dumps({**GOOD, "variants": []}), "is missing or damaged"),
        (json.dumps({**GOOD, "schema": 1}), "got schema 1, expected 2"),
        (json.dumps({"variants": {}}), "got schema None, expected 2"),
    ],
)
def test_another_version_and_a_damaged_file_are_refused_with_what_to_do(
    tmp_path: Path, text: str, problem: str
) -> None:
    """No reader looked at the version, and `measure merge` took a damaged file for none."""
    (tmp_path / "summary.json").write_text(text)
    for read in (read_summary, _verdicts):
        with pytest.raises(CampaignError, match=f"{problem}.*`measure report {tmp_path}` writes it"):
            read(tmp_path)
