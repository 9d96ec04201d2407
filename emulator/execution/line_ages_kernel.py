"""A kernel that finds the most recently touched lines."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.events import NEVER
from emulator.kernels.jit import Integer, kernel


@kernel
def recent_lines(
    times: NDArray[np.uint32], writes: NDArray[np.uint32], permissions: NDArray[np.uint64],
    unmapped: NDArray[np.uint64], mapped: Integer, per_page: Integer, now: Integer,
    addresses: NDArray[np.uint32], ages: NDArray[np.uint32], written: NDArray[np.uint32], pages: NDArray[np.int64],
) -> Integer:  # fmt: skip
    """Find the lines younger than the largest power of two with which all of them fit in the output; their number.

    Input: ``times``, ``writes``: timestamps of last touches and writes by line, 0 for never; ``permissions``,
    ``unmapped``: a byte per page, eight in a word, with the bit ``mapped`` if the page is mapped, or was once;
    ``per_page``: lines per page; ``now``: the time.
    Output: ``addresses``: line numbers; ``ages``: instructions since the last touch; ``written``: since the last write,
    `NEVER` without one. ``unmapped`` loses pages without such lines, so that they are not looked at again. ``pages``:
    scratch, one entry per page.
    """
    count = 0
    bits = np.uint64(mapped) * np.uint64(0x0101010101010101)
    for word in range(len(permissions)):
        either = (permissions[word] | unmapped[word]) & bits
        if either:
            for byte in range(8):
                if (either >> np.uint64(8 * byte)) & np.uint64(mapped):
                    pages[count] = 8 * word + byte
                    count += 1
    youngest = np.empty(len(pages), np.uint32)  # age of each page's youngest line
    for place in range(count):
        youngest[place] = _youngest(times[pages[place] * per_page : (pages[place] + 1) * per_page], now)
    low, high = 0, 33
    while high - low > 1:  # ages below 2**low fit
        middle = (low + high) // 2
        if _younger(times, pages[:count], youngest, per_page, now, middle) <= len(ages):
            low = middle
        else:
            high = middle
    longest = np.uint32((1 << low) - 1)
    found = 0
    for place in range(count):
        page = pages[place]
        if youngest[place] > longest:
            unmapped[page // 8] &= ~(np.uint64(mapped) << np.uint64(8 * (page % 8)))
            continue
        for line in range(page * per_page, (page + 1) * per_page):
            age = np.uint32(np.uint32(now) - times[line])
            if times[line] and age <= longest:
                addresses[found] = line
                ages[found] = age
                written[found] = np.uint32(np.uint32(now) - writes[line]) if writes[line] else np.uint32(NEVER)
                found += 1
    return found


@kernel
def _youngest(times: NDArray[np.uint32], now: Integer) -> Integer:
    """The age of the youngest of one page's lines; the greatest number of 32 bits without any touched line."""
    least = np.uint32(0xFFFFFFFF)
    for line in range(len(times)):
        never = np.uint32(times[line] == 0) * np.uint32(0xFFFFFFFF)
        least = min(least, np.uint32(np.uint32(np.uint32(now) - times[line]) | never))
    return least


@kernel
def _younger(
    times: NDArray[np.uint32], pages: NDArray[np.int64], youngest: NDArray[np.uint32], per_page: Integer, now: Integer,
    digits: Integer,
) -> Integer:  # fmt: skip
    """The number of lines whose age has at most ``digits`` binary digits, in pages whose youngest line has the age
    ``youngest``. Without branches on lines, so that LLVM vectorises it."""
    longest = np.uint32((1 << digits) - 1)
    total = 0
    for place in range(len(pages)):
        if youngest[place] > longest:
            continue
        page = pages[place]
        own = times[page * per_page : (page + 1) * per_page]
        some = np.uint32(0)
        for line in range(len(own)):
            age = np.uint32(np.uint32(now) - own[line])
            some += np.uint32((own[line] != 0) & (age <= longest))
        total += int(some)
    return total
