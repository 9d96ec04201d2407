"""What lies behind the state of a hart."""

from __future__ import annotations

from itertools import pairwise, product

import pytest

from emulator.engine.hart_state import (
    COUNTERS_OFFSET,
    LONGEST_LINE_BITS,
    SHORTEST_LINE_BITS,
    Hart,
    followed_places,
)
from emulator.engine.instrument.followed_lines import FollowedLines
from emulator.errors import EmulatorError

ALL_BITS = range(SHORTEST_LINE_BITS, LONGEST_LINE_BITS + 1)


@pytest.mark.parametrize("line_bits", [*product(ALL_BITS, ALL_BITS)])
def test_tables_of_followed_lines_do_not_overlap(line_bits: tuple[int, int]) -> None:
    places = sorted(followed_places(line_bits).values())
    assert all(one.offset + one.size <= other.offset for one, other in pairwise(places))
    assert places[0].offset > COUNTERS_OFFSET
    assert places[-1].offset + places[-1].size < 1 << 31  # what a displacement reaches


def test_what_is_reserved_does_not_overlap() -> None:
    hart = Hart()
    places = [hart.reserve(size) for size in (1, 64, 65, 1 << 20)]
    assert all(one.offset + one.size <= other.offset for one, other in pairwise(places))
    assert not any(place.offset % 64 for place in places)
    assert max(one.offset + one.size for one in places) <= min(one.offset for one in followed_places((4, 4)).values())
    with pytest.raises(EmulatorError, match="tables of more than 64 MiB in one machine: give its branch predictor"):
        hart.reserve(64 << 20)


def test_new_tables_hold_no_lines() -> None:
    hart = Hart()
    reserved = hart.reserve(8)
    hart.everything[reserved.offset] = 1
    lines = FollowedLines(hart, (4, 4))
    for table in (lines.data, lines.code, lines.data_times, lines.code_times):
        table[0] = table[-1] = 1
    lines = FollowedLines(hart, (4, 4))
    assert not any(table[place] for table in (lines.data, lines.data_times) for place in (0, -1))
    assert not any(table[place] for table in (lines.code, lines.code_times) for place in (0, -1))
    assert hart.everything[reserved.offset] == 1
