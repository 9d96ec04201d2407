"""Kernels that follow a program's progress through the record."""

from __future__ import annotations

from typing import Any

from emulator.kernels.jit import kernel

INSTRUCTIONS, PROGRESS, LAST, NEXT, REACHED = range(5)
"""Places in the state of `follow_progress`."""


@kernel
def follow_progress(
    stream: Any, n_accesses: Any, length: Any, progress: Any, targets: Any, reached: Any, state: Any
) -> None:
    """Follow the blocks of ``stream``.

    Block b has ``n_accesses[b]`` words after its number, ``length[b]`` instructions, and makes ``progress[b]``.
    ``state``, (5,): instructions and progress so far; instructions at the end of the last block that made progress, and
    of the first one since the caller set it to -1; number of ``targets`` that were reached. ``targets``, ascending:
    progress at which ``reached`` gets the instructions at the end of the block.
    """
    instructions, done, last, first, n_reached = state[0], state[1], state[2], state[3], state[4]
    position = 0
    while position < len(stream):
        block = stream[position]
        position += 1 + n_accesses[block]
        instructions += length[block]
        made = progress[block]
        if made > 0:
            done += made
            last = instructions
            if first < 0:
                first = instructions
            while n_reached < len(targets) and targets[n_reached] <= done:
                reached[n_reached] = instructions
                n_reached += 1
    state[0] = instructions
    state[1] = done
    state[2] = last
    state[3] = first
    state[4] = n_reached
