"""The messages that the FAQ quotes are messages of the code."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def sources() -> str:
    """All source text, with the breaks between parts of a string literal removed."""
    packages = ("common", "emulator", "instrumenter", "measure")
    text = "\n".join(path.read_text("utf-8") for name in packages for path in sorted((ROOT / name).rglob("*.py")))
    return re.sub(r'"\s*\n\s*f?"', "", text)


def test_quoted_messages_exist() -> None:
    page = (ROOT / "docs" / "faq.md").read_text("utf-8")
    quoted = re.findall(r"\*\*`([^`]*\.\.\.[^`]*)`", page)
    assert len(quoted) >= 5
    code = sources()
    missing = [
        part.strip(" :;") for text in quoted for part in text.split("...") if part.strip(" :;") not in code
    ]  # fmt: skip
    assert set(missing) <= {"No such file"}  # the guest's own words
