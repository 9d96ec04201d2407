"""Compiler options for another processor than programs are built for, such as ``-mavx2``: they are left out.

Makefiles have them in their flags, while the sources choose by macros (``#ifdef __AVX2__``) between code for that
processor and portable code. Without the options the macros are undefined, so the portable code is compiled. A
configure script or cmake asks by a small program whether the compiler takes an option: it does not, see `is_probe`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from common.listed_names import listed

ENTRY = "processor_options"
"""The kind of the wrapper's entry in the listing about an output that was made without such options."""
_MOST_OPTIONS = 6  # named in a sentence
_FEATURES = (
    # x86
    "3dnow", "abm", "adx", "aes", "amx", "avx", "bmi", "clflush", "clwb", "clzero", "crc32", "cx16", "f16c", "fma",
    "fsgsbase", "fxsr", "gfni", "hle", "lzcnt", "mmx", "movbe", "movdir", "pclmul", "popcnt", "prfchw", "ptwrite",
    "rdpid", "rdrnd", "rdseed", "retpoline", "rtm", "sahf", "serialize", "sha", "sse", "ssse", "tbm", "vaes",
    "vpclmul", "vzeroupper", "waitpkg", "xop", "xsave",
    # Arm, POWER
    "altivec", "crypto", "neon", "power", "thumb", "vsx",
)  # fmt: skip
_OF_RISCV = re.compile(
    rf"-m(no-)?({'|'.join(_FEATURES)})[\w.-]*"
    r"|-m(arch|cpu|tune)=(?!rv|generic|sifive).*"
    r"|-m(fpmath|fpu|float-abi|veclibabi|indirect-branch|function-return)=.*"
)
_OTHER_SOURCES = re.compile(
    r"only meant to be used on x86|invalid (?:output|input) constraint '[^']*' in asm"
    r"|unknown register name '[^']*' in asm|unrecognized instruction mnemonic|\b__builtin_(?:ia32|arm|neon)_\w+"
    r"|(?:unknown type name|undeclared identifier|undeclared function|function) '(?:_*m(?:128|256|512)|_mm\d*_|_xgetbv)"
    r"|'(?:arm_neon|arm_acle|cpuid|x86intrin|intrin|altivec)\.h' file not found"
    r"|(?:arm_neon|arm_acle|altivec)\.h:\d+(?::\d+)?: (?:error: )?"
)
_PROBE = re.compile(r"^(conftest\b.*|-)$|(^|/)(CMakeScratch|CMakeTmp|meson-private)/|^/dev/")


def is_emulated(target: str | None) -> bool:
    """Whether programs for ``target`` are for the emulated machine."""
    return (target or "").startswith("riscv64")


def is_left_out(option: str, target: str | None) -> bool:
    """Whether programs for ``target`` are compiled without ``option``."""
    return is_emulated(target) and bool(_OF_RISCV.fullmatch(option))


def is_probe(sources: Iterable[str], directory: Path) -> bool:
    """Whether a call of the compiler in ``directory`` only tries it out, by its ``sources``: it is to refuse what it
    does not have."""
    return any(_PROBE.search(source) or _PROBE.search(str(PurePath(directory, source))) for source in sources)


def explain_other_processor(output: str) -> str | None:
    """What to do about sources that the compiler refused, judged by what it printed; None if they seem to be for any
    processor."""
    if not _OTHER_SOURCES.search(output):
        return None
    return (
        "The sources have code for another processor (its instructions, or functions that stand for them), and the "
        "emulated machine is a RISC-V. Build their portable code, if they have any: such a macro, option or "
        "folder often has NO_SIMD, NO_ASM, PORTABLE, GENERIC, SCALAR or REF in its name. Or measure on this machine's "
        "own processor, by `machine: {host: perf}` in a campaign (docs/host_processor.md)"
    )


def without(flags: Iterable[str], target: str | None) -> list[str]:
    """``flags`` without those for another processor."""
    return [flag for flag in flags if not is_left_out(flag, target)]


def notices_about_flags(flags: Sequence[str], target: str | None) -> list[str]:
    """A sentence for the user if ``flags`` of a program have options that are left out."""
    return _notices(flag for flag in flags if is_left_out(flag, target))


def processor_notices(entries: Iterable[Mapping[str, Any]]) -> list[str]:
    """A sentence for the user if something that a build left was made without such options; ``entries``: of the
    listing."""
    return _notices(
        option
        for each in entries
        if each["kind"] == ENTRY and Path(each["output"]).exists()
        for option in each["options"]
    )


def _notices(options: Iterable[str]) -> list[str]:
    names = sorted(set(options))
    if not names:
        return []
    return [
        "Compiled without options for another processor than the emulated RISC-V machine: "
        f"{listed(names, _MOST_OPTIONS)}. Where the sources choose code by what the processor has, their portable code "
        "is measured"
    ]
