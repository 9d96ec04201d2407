"""What is said of programs that the measured one executed: they have no counters, and the machine counts their work."""

from __future__ import annotations

from collections.abc import Sequence

from common.listed_names import listed

_MOST_PROGRAMS = 4  # in a message


def about_other_programs(paths: Sequence[str]) -> list[str]:
    """A notice, without its full stop, on the programs at the guest's ``paths``; none without any."""
    if not paths:
        return []
    which, what = ("which have", "what they do") if paths[1:] else ("which has", "what it does")
    return [
        f"The program executed {listed(list(paths), _MOST_PROGRAMS)}, {which} no counters of this campaign: {what} is "
        "in hardware metrics alone, and in no software metric. Where the program forks without execve, or executes "
        "itself (/proc/self/exe), all of its processes count"
    ]
