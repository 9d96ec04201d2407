"""Layout of the counters: their C definition, the C expression of an event, and the locations of the values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

SYMBOL = "__measure_counters"
CACHE_LINE_BYTES = 64
Placement = Literal["packed", "cache_line"]


@dataclass(frozen=True)
class CounterLocation:
    """A 64-bit unsigned counter at ``offset_bytes`` from ELF symbol ``symbol``."""

    symbol: str
    offset_bytes: int


@dataclass(frozen=True)
class CounterLayout:
    """The counters of a build, in order.

    ``volatile`` keeps each increment where its event is: without it the optimiser moves increments out of loops
    and an interval sampler sees them all at the loop's end.
    """

    metrics: tuple[str, ...]
    placement: Placement = "packed"
    volatile: bool = True

    @property
    def _stride(self) -> int:
        return 8 if self.placement == "packed" else CACHE_LINE_BYTES

    def locations(self) -> dict[str, CounterLocation]:
        """The location of each metric's counter."""
        return {name: CounterLocation(SYMBOL, n * self._stride) for n, name in enumerate(self.metrics)}

    def lvalue(self, metric: str) -> str:
        """The counter as a C lvalue."""
        index = self.metrics.index(metric)
        return f"{SYMBOL}[{index}]" + ("" if self.placement == "packed" else ".value")

    def bump(self, metric: str, add: str | None) -> str:
        """The C expression that counts one event."""
        if add is None:
            return f"{self.lvalue(metric)}++"
        return f"{self.lvalue(metric)} += (unsigned long long)({add})"

    def _type(self) -> str:
        cell = ("volatile " if self.volatile else "") + "unsigned long long"
        if self.placement == "packed":
            return cell
        padding = CACHE_LINE_BYTES - 8
        return f"struct __measure_line {{ {cell} value; char padding[{padding}]; }}"

    def declaration(self) -> str:
        """The declaration to put before the user's code, on one line."""
        return f"extern {self._type()} {SYMBOL}[{len(self.metrics)}];"

    def definition(self) -> str:
        """The C file that defines the counters."""
        aligned = f"__attribute__((aligned({CACHE_LINE_BYTES}), used))"
        names = "".join(f"/* {n}: {name} */\n" for n, name in enumerate(self.metrics))
        return f"{names}{self._type()} {SYMBOL}[{len(self.metrics)}] {aligned};\n"


ALLOCATORS: dict[str, tuple[str, str, str, str]] = {
    # name: result, parameters, requested bytes, arguments
    "malloc": ("void *", "__SIZE_TYPE__ n", "n", "n"),
    "calloc": ("void *", "__SIZE_TYPE__ a, __SIZE_TYPE__ b", "a * b", "a, b"),
    "realloc": ("void *", "void *p, __SIZE_TYPE__ n", "n", "p, n"),
    "reallocarray": ("void *", "void *p, __SIZE_TYPE__ a, __SIZE_TYPE__ b", "a * b", "p, a, b"),
    "aligned_alloc": ("void *", "__SIZE_TYPE__ a, __SIZE_TYPE__ n", "n", "a, n"),
    "memalign": ("void *", "__SIZE_TYPE__ a, __SIZE_TYPE__ n", "n", "a, n"),
    "posix_memalign": ("int ", "void **p, __SIZE_TYPE__ a, __SIZE_TYPE__ n", "n", "p, a, n"),
}


def allocator_stand_in(name: str, allocator: str, counters: Sequence[str]) -> str:
    """A static function ``name`` that adds the requested bytes to each counter lvalue, and then allocates.

    The allocator gets a private declaration, which cannot conflict with the program's own.
    """
    result, parameters, size, arguments = ALLOCATORS[allocator]
    counting = " ".join(f"{lvalue} += {size};" for lvalue in counters)
    return (
        f'extern {result}{name}_real({parameters}) __asm__("{allocator}"); '
        f"static inline __attribute__((always_inline, unused)) {result}{name}({parameters}) "
        f"{{ {counting} return {name}_real({arguments}); }}"
    )
