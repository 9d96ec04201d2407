"""Says which programs of a campaign are being built, how many there are, and how long that has taken."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from measure.campaign.run_types import BASELINE

LINE_SECONDS = 20.0
"""Between messages while programs are built."""
_MOST_NAMES, _MOST_CHARACTERS = 4, 120  # of programs that are named; names of sets of metrics may be long


def program_name(variant: str, layout: int) -> str:
    """The name of a variant's program in messages; ``layout``: number of its code layout."""
    name = "the plain program" if variant == BASELINE else variant
    return f"{name}, code layout {layout + 1}" if layout else name


def numbered(names: Sequence[str], number: int) -> str:
    """``heavy (2 of 5)``: the name of that number, from 0; without numbers if there is only one."""
    return f"{names[number]} ({number + 1} of {len(names)})" if len(names) > 1 else names[number]


def unfinished(names: Sequence[str], ended: Sequence[bool]) -> str:
    """The programs ``names`` that have not ended, and how many have."""
    left = [name for name, over in zip(names, ended, strict=True) if not over]
    done = f"({len(names) - len(left)} of {len(names)} are built)"
    if len(left) > 1 and sum(map(len, left[:_MOST_NAMES])) > _MOST_CHARACTERS:
        return f"{len(left)} programs {done}"
    more = f" and {len(left) - _MOST_NAMES} more" if len(left) > _MOST_NAMES else ""
    return f"{', '.join(left[:_MOST_NAMES])}{more} {done}"


@contextmanager
def waiting(notify: Callable[[str], None], what: str | Callable[[], str]) -> Iterator[None]:
    """Within it, say every `LINE_SECONDS` ``what`` is being built, and the seconds so far."""
    over, begun = threading.Event(), time.monotonic()

    def tell() -> None:
        while not over.wait(LINE_SECONDS):
            notify(f"Still building {what if isinstance(what, str) else what()}, {time.monotonic() - begun:.0f} s")

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
