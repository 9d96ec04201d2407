"""Layout of the counters: their C definition, the C expression of an event, and the locations of the values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

SYMBOL = "__measure_counters"
COUNTDOWN = "__measure_countdowns"
LOCAL = "__measure_local"
CACHE_LINE_BYTES = 64
CONVERSION = "(unsigned long long)(long long)("
"""What stands before an expression to add. A negative floating-point number has no value as an unsigned one."""
Placement = Literal["packed", "cache_line"]


@dataclass(frozen=True)
class CounterLocation:
    """A 64-bit unsigned counter at ``offset_bytes`` from ELF symbol ``symbol``."""

    symbol: str
    offset_bytes: int


class CounterForm(Protocol):
    """What a metric's specification says about its counter; see `instrumenter.spec.software_metrics.MetricSpec`."""

    @property
    def method(self) -> Literal["counter", "probe", "second_run"]: ...
    @property
    def sampled(self) -> int | None: ...
    @property
    def local(self) -> bool: ...
    @property
    def event(self) -> str: ...
    @property
    def add(self) -> str | None: ...


@dataclass(frozen=True)
class CounterLayout:
    """The counters of a build, in order.

    ``volatile`` keeps each increment where its event is: without it the optimiser moves increments out of loops
    and an interval sampler sees them all at the loop's end. ``unread``: metrics that the sampler in the guest does
    not read, the last ones; ``sampled``: metrics that add N at every Nth event, with N; ``local``: metrics that count
    in a local variable first; ``leaving``: those of them that add up an expression when a function is left, of which
    the last value before that counts. ``atomic``: add by atomic operations, for programs that start threads: a thread
    that loses the processor between the load and the store of a plain increment writes an old count back later, and
    takes with it what all other threads counted meanwhile.
    """

    metrics: tuple[str, ...]
    placement: Placement = "packed"
    volatile: bool = True
    unread: tuple[str, ...] = ()
    sampled: tuple[tuple[str, int], ...] = ()
    local: tuple[str, ...] = ()
    atomic: bool = False
    leaving: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, specs: Mapping[str, CounterForm], placement: Placement, volatile: bool, atomic: bool = False
    ) -> CounterLayout:
        """The layout of the counters of ``specs``, by name; those that the machine reads itself come last."""
        unread = tuple(name for name, spec in specs.items() if spec.method == "probe")
        leaving = tuple(name for name, spec in specs.items() if spec.event == "exit" and spec.add is not None)
        return cls(
            (*(name for name in specs if name not in unread), *unread), placement, volatile, unread,
            tuple((name, spec.sampled) for name, spec in specs.items() if spec.sampled),
            tuple(name for name, spec in specs.items() if spec.local or name in leaving), atomic, leaving,
        )  # fmt: skip

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
        amount = "1" if add is None else f"{CONVERSION}{add})"
        if metric in self.leaving:
            return f"{self._local(metric)} = {amount}"
        if metric in self.local:
            return _addition(self._local(metric), amount)
        period = dict(self.sampled).get(metric)
        if period is None:
            return self.shared_addition(metric, amount)
        left = f"{COUNTDOWN}[{self.metrics.index(metric) * self._stride // 8}]"
        count = f"(void)({self.shared_addition(metric, str(period))})"
        if self.atomic:  # counted up and never set: between a step to 0 and the next start others would go below 0
            return f"({_atomic_addition(left, '1')} % {period} == {period - 1} ? {count} : (void)0)"
        return f"(--{left} == 0 ? ((void)({left} = {period}), {count}) : (void)0)"

    def bump_shared(self, metric: str, add: str | None) -> str:
        """The expression that counts one event in the counter itself, where there is no local one."""
        return replace(self, local=(), leaving=()).bump(metric, add)

    def shared_addition(self, metric: str, amount: str) -> str:
        """The C expression that adds ``amount`` to the counter itself."""
        return (_atomic_addition if self.atomic else _addition)(self.lvalue(metric), amount)

    def _local(self, metric: str) -> str:
        return f"{LOCAL}{self.metrics.index(metric)}"

    def local_declaration(self, metric: str) -> str:
        """The declaration, at the start of a function, of the local variable in which it counts."""
        number = self.metrics.index(metric)
        cleanup = f"__attribute__((cleanup(__measure_flush{number})))"
        return f" unsigned long long {cleanup} {self._local(metric)} = 0;"

    def _type(self) -> str:
        cell = ("volatile " if self.volatile else "") + "unsigned long long"
        if self.placement == "packed":
            return cell
        padding = CACHE_LINE_BYTES - 8
        return f"struct __measure_line {{ {cell} value; char padding[{padding}]; }}"

    def declaration(self, *, cplusplus: bool = False, leaving: Sequence[Sequence[str]] = ()) -> str:
        """The declarations to put before the user's code, on one line.

        ``leaving``: the counts that are made together when a function is left.
        """
        parts = [f"extern {self._type()} {SYMBOL}[{len(self.metrics)}];"]
        if self.sampled:
            parts.append(f"extern unsigned long long {COUNTDOWN}[{len(self.metrics) * self._stride // 8}];")
        parts += [
            f"static inline __attribute__((always_inline, unused)) void __measure_flush{self.metrics.index(metric)}"
            f"(unsigned long long *counted) {{ {self.shared_addition(metric, '*counted')}; }}"
            for metric in self.local
        ]
        if cplusplus:
            parts = [
                f'extern "C" {{ {parts[0]} {parts[1] if self.sampled else ""} }}',
                *parts[1 + bool(self.sampled) :],
            ]
        parts += [
            f"static inline __attribute__((always_inline, unused)) void __measure_left{number}"
            f"(unsigned char *counted) {{ if (*counted) {{ {'; '.join(counts)}; }} }}"
            for number, counts in enumerate(leaving)
        ]
        return " ".join(parts)

    def definition(self) -> str:
        """The C file that defines the counters."""
        aligned = f"__attribute__((aligned({CACHE_LINE_BYTES}), used))"
        names = "".join(f"/* {n}: {name} */\n" for n, name in enumerate(self.metrics))
        text = f"{names}{self._type()} {SYMBOL}[{len(self.metrics)}] {aligned};\n"
        if self.sampled:
            # From the middle, so that estimates are rounded and not cut off.
            words, places = self._stride // 8, {metric: n for n, metric in enumerate(self.metrics)}
            starts = ", ".join(
                f"[{places[metric] * words}] = {period // 2 if self.atomic else (period + 1) // 2}"
                for metric, period in self.sampled
            )
            text += f"unsigned long long {COUNTDOWN}[{len(self.metrics) * words}] {aligned} = {{{starts}}};\n"
        return text


_RELAXED = 0  # __ATOMIC_RELAXED, by its value: the analysis of C++ knows no macros


def _addition(lvalue: str, amount: str) -> str:
    return f"{lvalue}++" if amount == "1" else f"{lvalue} += {amount}"


def _atomic_addition(lvalue: str, amount: str) -> str:
    return f"__atomic_fetch_add(&{lvalue}, {amount}, {_RELAXED})"


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


def allocator_stand_in(name: str, allocator: str, layout: CounterLayout, metrics: Sequence[str]) -> str:
    """A static function ``name`` that adds the requested bytes to the counters of ``metrics``, and then allocates.

    The allocator gets a private declaration, which cannot conflict with the program's own.
    """
    result, parameters, size, arguments = ALLOCATORS[allocator]
    counting = " ".join(f"{layout.shared_addition(metric, size)};" for metric in metrics)
    return (
        f'extern {result}{name}_real({parameters}) __asm__("{allocator}"); '
        f"static inline __attribute__((always_inline, unused)) {result}{name}({parameters}) "
        f"{{ {counting} return {name}_real({arguments}); }}"
    )
