"""The text of a call graph: the same in whatever order blocks were found, and with the number of what it leaves out."""

from __future__ import annotations

from itertools import permutations

from emulator.analyzers.callgraph import CallGraph

CALLERS = {"e": 1, "d": 2, "c": 1, "b": 1, "a": 1, "f": 1}  # their calls of the function work


class Made(CallGraph):
    """A call graph in which callers of ``work`` were found in this order."""

    def __init__(self, callers: tuple[str, ...]) -> None:
        super().__init__(top=4)
        self.names = ["work", *callers]

    @property
    def functions(self) -> dict[str, tuple[int, int, int]]:
        return {"work": (7, 90, 40), **dict.fromkeys(self.names[1:], (1, 40, 0))}

    @property
    def edges(self) -> dict[tuple[str, str], tuple[int, int]]:
        return {(name, "work"): (CALLERS[name], 10) for name in self.names[1:]}


def test_what_is_as_large_is_in_the_order_of_the_names() -> None:
    reports = {Made(order).report() for order in list(permutations(CALLERS))[::97]}
    assert len(reports) == 1
    lines = reports.pop().splitlines()
    assert lines[1].endswith("work <- d 2, a 1, b 1, c 1 and 2 more")
    assert [line.split()[-1] for line in lines[2:]] == ["a", "b", "c"]


def test_nothing_is_left_out_of_four_callers() -> None:
    assert Made(("a", "b", "c", "d")).report().splitlines()[1].endswith("work <- d 2, a 1, b 1, c 1")
