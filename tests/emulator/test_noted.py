"""What code was when it was decoded, against a dictionary of bytes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.memory import PAGE_BYTES
from emulator.noted import NotedCode

START = 5 * PAGE_BYTES
places = st.integers(0, 2 * PAGE_BYTES // 2 - 9).map(lambda half: START + 2 * half)
codes = st.integers(1, 8).flatmap(lambda n: st.binary(min_size=2 * n, max_size=2 * n))


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(places, codes, st.booleans()), max_size=6),
    st.sampled_from([None, 5, 6]),
)
def test_noted_code(noted: list[tuple[int, bytes, bool]], forgotten: int | None) -> None:
    code, twin = NotedCode(), dict[int, int]()
    for at, part, later in noted:
        if later:
            halves = np.arange(at >> 1, at + len(part) >> 1), np.frombuffer(part, np.uint16)
            code.note_later(lambda halves=halves: halves)
            code.pages()  # told now: what is noted twice is what was noted last
        else:
            code.note(at, part)
        twin.update(zip(range(at, at + len(part)), part, strict=True))
    if forgotten is not None:
        code.forget([forgotten])
        twin = {at: byte for at, byte in twin.items() if at // PAGE_BYTES != forgotten}
    known = sorted({at // PAGE_BYTES for at in twin})
    assert code.pages() == known
    assert code.pages(6, 9) == [page for page in known if page >= 6]
    halves, is_known = code.within(START, 2 * PAGE_BYTES)
    assert (2 * np.flatnonzero(is_known) + START).tolist() == sorted(at for at in twin if at % 2 == 0)
    found = halves.tobytes()
    assert all(found[at - START] == byte for at, byte in twin.items())
    for page in (5, 6):
        contents = bytearray(PAGE_BYTES)
        mine = {at: byte for at, byte in twin.items() if at // PAGE_BYTES == page}
        for at, byte in mine.items():
            contents[at % PAGE_BYTES] = byte
        assert not code.differs(page, bytes(contents))
        for at in list(mine)[:1]:
            contents[at % PAGE_BYTES] ^= 1
            assert code.differs(page, bytes(contents))
