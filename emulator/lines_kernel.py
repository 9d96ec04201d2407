"""The lines that were touched last, as a numba kernel."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.jit import Integer, inline_kernel, kernel


@kernel
def recent_lines(
    times: NDArray[np.uint32], pages: NDArray[np.int64], per_page: Integer, now: Integer, addresses: NDArray[np.uint32],
    ages: NDArray[np.uint32], histogram: NDArray[np.int64],
) -> Integer:  # fmt: skip
    """Put the numbers and ages of the lines of ``pages`` touched last where they belong; how many there are.

    ``times``: of all lines, 0 for never; ``per_page``: lines of a page; ``now``: the time. ``addresses``, ``ages``:
    room for them: ages up to the power of two with which there is still room for all. ``histogram``: (33,) scratch.
    """
    histogram[:] = 0
    for page in pages:
        for line in range(page * per_page, (page + 1) * per_page):
            if times[line]:
                age = np.uint32(np.uint32(now) - times[line])
                histogram[bits_of(age)] += 1
    longest = 0
    total = histogram[0]
    while longest < 32 and total + histogram[longest + 1] <= len(ages):
        longest += 1
        total += histogram[longest]
    found = 0
    for page in pages:
        for line in range(page * per_page, (page + 1) * per_page):
            if times[line]:
                age = np.uint32(np.uint32(now) - times[line])
                if bits_of(age) <= longest:
                    addresses[found] = line
                    ages[found] = age
                    found += 1
    return found


@inline_kernel
def bits_of(value: Integer) -> Integer:
    """Binary digits of an unsigned number of 32 bits."""
    bits = 0
    for step in (16, 8, 4, 2, 1):
        if value >> np.uint32(step):
            value >>= np.uint32(step)
            bits += step
    return bits + (1 if value else 0)
