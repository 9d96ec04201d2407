"""Sources with attributes that make the compiler inline in the instrumented program as it does in the plain one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from common.cplusplus_symbols import readable_names
from measure.explanation.compiler_decisions import FunctionFacts, function_facts
from measure.result_files import write_text_atomically
from measure.runs.builds import catalogue_entry
from measure.runs.campaign_model import Program


@dataclass(frozen=True)
class Edited:
    """Edited sources, already preprocessed. ``flags``, ``libraries``: to build them with; ``about``: what was
    edited."""

    sources: tuple[Path, ...]
    flags: tuple[str, ...]
    libraries: tuple[str, ...]
    about: str


def kept_inlining(
    program: Program, plain: Path, instrumented: Path, counter_instructions: Sequence[int], directory: Path
) -> Edited | None:  # fmt: skip
    """Write sources into ``directory`` with ``always_inline`` and ``noinline`` where the binary ``instrumented``
    differs from ``plain``; None when no function does, or when the program is built by its own build command."""
    from instrumenter.building.generated_sources import preprocess_all
    from instrumenter.compiler.toolchain import Toolchain
    from instrumenter.languages import generated_ending
    from instrumenter.rewrite.function_attributes import with_attributes

    wanted = inlining_attributes(function_facts(plain), function_facts(instrumented, counter_instructions))
    given = _sources(program)
    if not wanted or given is None:
        return None
    sources, flags, libraries = given
    paths: list[Path] = []
    changed: list[str] = []
    for number, (source, text) in enumerate(preprocess_all(sources, flags, Toolchain()).items()):
        edited, found = with_attributes(text, str(source), wanted, flags)
        changed += found
        paths.append(directory / f"{number}_{source.stem}{generated_ending(source)}")
        write_text_atomically(paths[-1], edited)
    if not changed:
        return None
    shown = readable_names(changed)
    about = ", ".join(f"{shown[name]}: {wanted[name]}" for name in dict.fromkeys(changed))
    return Edited(tuple(path.resolve() for path in paths), tuple(flags), tuple(libraries), about)


def inlining_attributes(plain: dict[str, FunctionFacts], instrumented: dict[str, FunctionFacts]) -> dict[str, str]:
    """The attribute of each function that is inlined otherwise: always_inline where the plain program has no body of
    it, noinline where it calls it more often. No attribute makes a function inlined at some calls only."""
    found = {name: "always_inline" for name in instrumented if name not in plain}
    calls = [sum((facts.calls for facts in program.values()), start=type(next(iter(program.values())).calls)())
             for program in (plain, instrumented)]  # fmt: skip
    for name in plain:
        if calls[1][name] < calls[0][name] or name not in instrumented:
            found[name] = "noinline"
    return found


def _sources(program: Program) -> tuple[list[Path], list[str], list[str]] | None:
    """Sources, flags and libraries of a program; None for one with its own build."""
    flags, libraries = list(program.flags), list(program.libraries)
    if program.build is not None:
        return None
    if program.catalogue is None:
        return [program.source] if program.source else list(program.sources), flags, libraries
    from measure.programs.catalogue import ensure_sources

    entry = catalogue_entry(program)
    if entry.build is not None:
        return None
    linked = entry.linker_flags()
    libraries += [flag[2:] for flag in linked if flag.startswith("-l")]
    flags += [*entry.compiler_flags(), *(flag for flag in linked if not flag.startswith("-l"))]
    return list(ensure_sources(entry)), flags, libraries
