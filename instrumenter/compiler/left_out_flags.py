"""Flags of the compiler with which programs are not compiled, since what they ask for is not there: OpenMP
(`instrumenter.compiler.openmp`) and other processors' instructions (`instrumenter.compiler.processor_options`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from instrumenter.compiler import openmp, processor_options


def without_left_out(flags: Iterable[str], target: str | None) -> list[str]:
    """``flags`` of a program for ``target`` without OpenMP and without options for another processor."""
    return openmp.without(processor_options.without(flags, target))


def notices_about_flags(flags: Sequence[str], target: str | None) -> list[str]:
    """A sentence for the user for each kind of flag among ``flags`` that is left out."""
    of_openmp = openmp.notices_about_flags(flags, _machine_of(target))
    return of_openmp + processor_options.notices_about_flags(flags, target)


def notices_about_build(entries: Sequence[Mapping[str, Any]], target: str | None) -> list[str]:
    """The same for what a build left; ``entries``: of the wrapper's listing."""
    return openmp.openmp_notices(entries, _machine_of(target)) + processor_options.processor_notices(entries)


def _machine_of(target: str | None) -> str:
    """What programs for ``target`` run on, in words."""
    return "the emulated machine" if processor_options.is_emulated(target) else "static programs of this machine"
