"""What code was when it was decoded, against a dictionary of bytes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.engine.persist.code_shadow import CodeShadow
from emulator.memory import PAGE_BYTES

START = 5 * PAGE_BYTES
places = st.integers(0, 2 * PAGE_BYTES // 2 - 9).map(lambda half: START + 2 * half)
codes = st.integers(1, 8).flatmap(lambda n: st.binary(min_size=2 * n, max_size=2 * n))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(places, codes), max_size=6), st.sampled_from([None, 5, 6]))
def test_noted_code(noted: list[tuple[int, bytes]], forgotten: int | None) -> None:
    code, twin, uncertain = CodeShadow(), dict[int, int](), set[int]()
    for at, part in noted:
        code.note(at, part)
        for n in range(0, len(part), 2):
            if at + n in twin and (twin[at + n], twin[at + n + 1]) != (part[n], part[n + 1]):
                # One that reaches into the next page makes that one uncertain, too.
                uncertain |= {at // PAGE_BYTES, (at + len(part) - 1) // PAGE_BYTES}
            twin[at + n], twin[at + n + 1] = part[n], part[n + 1]
    assert code.pages().tolist() == sorted({at // PAGE_BYTES for at in twin})
    assert code.pages(6, 9).tolist() == [page for page in code.pages() if page >= 6]
    if forgotten is not None:
        code.invalidate(code.changes(forgotten, None))
        twin = {at: byte for at, byte in twin.items() if at // PAGE_BYTES != forgotten}
    halves, is_known = code.within(START, 2 * PAGE_BYTES)
    assert (2 * np.flatnonzero(is_known) + START).tolist() == sorted(at for at in twin if at % 2 == 0)
    found = halves.tobytes()
    assert all(found[at - START] == byte for at, byte in twin.items())
    contents = bytearray(2 * PAGE_BYTES)  # of both pages at once
    for at, byte in twin.items():
        contents[at - START] = byte
    dirty_pages = sorted({at >> 1 for at in twin if at // PAGE_BYTES in uncertain})
    assert code.changes(5, memoryview(contents)).tolist() == dirty_pages
    assert code.changes(5, memoryview(contents)).tolist() == []  # told once
    for at in list(twin)[:3]:
        contents[at - START] ^= 1
    changed = sorted({at >> 1 for at in list(twin)[:3]})
    assert code.changes(5, memoryview(contents)).tolist() == changed
    assert code.changes(5, None).tolist() == sorted({at >> 1 for at in twin if at < START + PAGE_BYTES})


def test_pages_with_much_that_is_not_code() -> None:
    """Words that differ where nothing was noted, few or many, say nothing; among them a changed one is found."""
    for n_others in (3, 1000):
        code, contents = CodeShadow(), bytearray(2 * PAGE_BYTES)
        for at in range(START, START + 64, 16):
            code.note(at, bytes([1, 2, 3, 4, 5, 6]))
            contents[at - START : at - START + 6] = bytes([1, 2, 3, 4, 5, 6])
        for n in range(n_others):  # in the same words as code, and elsewhere
            contents[6 + 16 * (n % 4) if n < 4 else 64 + 8 * (n - 4)] = 0x55
        assert code.changes(5, memoryview(contents)).tolist() == []
        for at in (18, 50):
            contents[at] ^= 0x80
        assert code.changes(5, memoryview(contents)).tolist() == [(START + at) >> 1 for at in (18, 50)]
