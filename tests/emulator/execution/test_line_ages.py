"""The most recently touched lines, against a naive search."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.events import NEVER
from emulator.execution.line_ages_kernel import recent_lines
from emulator.memory import MAPPED

PER_PAGE = 8
LIMIT = 1 << 32


@settings(max_examples=200, derandomize=True, deadline=None)
@given(
    st.lists(st.sampled_from(["mapped", "unmapped", "both", "never"]), min_size=8, max_size=8),
    st.dictionaries(st.integers(0, 8 * PER_PAGE - 1), st.tuples(st.integers(0, 70_000), st.booleans()), max_size=40),
    st.sampled_from([1 << 31, (1 << 31) + 90_000, 50_000, 7]),  # with times before an overflow, too
    st.integers(1, 64),
)  # fmt: skip
def test_the_youngest_lines_are_found(
    pages: list[str], touched: dict[int, tuple[int, bool]], now: int, room: int
) -> None:
    times, writes = np.zeros(8 * PER_PAGE, np.uint32), np.zeros(8 * PER_PAGE, np.uint32)
    for line, (ago, is_store) in touched.items():
        times[line] = (now - ago) % LIMIT
        writes[line] = times[line] * is_store
    ages = {
        line: (now - int(times[line])) % LIMIT
        for line in range(8 * PER_PAGE)
        if times[line] and pages[line // PER_PAGE] != "never"
    }
    digits = 32
    while digits and sum(age.bit_length() <= digits for age in ages.values()) > room:
        digits -= 1
    expected = {line: age for line, age in ages.items() if age.bit_length() <= digits}
    now_mapped, once_mapped = (
        np.array([page in (one, "both") for page in pages], np.uint8) * np.uint8(MAPPED)
        for one in ("mapped", "unmapped")
    )
    lines, found_ages, written = (np.zeros(room, np.uint32) for _ in range(3))
    found = recent_lines(
        times, writes, now_mapped.view(np.uint64), once_mapped.view(np.uint64), MAPPED, PER_PAGE, now, lines,
        found_ages, written, np.empty(8, np.int64),
    )  # fmt: skip
    if digits or len(expected) <= room:
        young = {line // PER_PAGE for line in expected}
        kept = [bool(once_mapped[page]) for page in range(8)]
        was_young = [page in young or digits == 32 for page in range(8)]
        assert kept == [pages[page] in ("unmapped", "both") and was_young[page] for page in range(8)]
        assert dict(zip(lines[:found].tolist(), found_ages[:found].tolist(), strict=True)) == expected
        assert written[:found].tolist() == [
            (now - int(writes[line])) % LIMIT if writes[line] else NEVER for line in sorted(expected)
        ]
