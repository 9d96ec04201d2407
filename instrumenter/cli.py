"""The ``instrument`` command: writes the instrumented C of a program, and a script that compiles it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from common.atomic_files import move_file, workspace
from common.text_encoding import AnyTextCommand

if TYPE_CHECKING:
    from instrumenter.building.generated_sources import Generated
    from instrumenter.compiler.toolchain import Toolchain
    from instrumenter.spec.software_metrics import InstrumentSpec

USAGE_ERROR, WORK_FAILED = 2, 1


@click.command(
    cls=AnyTextCommand,
    epilog="""Example, and a SPEC.yaml in short:

\b
  instrument spec.yaml --out counted --build
  emulate -- counted/program small

\b
  sources: [chess.c]
  flags: [-O2]
  metrics:
    nodes:  {event: entry, function: search}
    depth:  {event: entry, function: search, add: "depth"}
    inner:  {event: loop, function: generate_moves}
    stores: {event: write, variable: board}
    heap:   {event: alloc_bytes}

Events: call (callee), entry, exit (function), write (variable or field), loop, branch (function, or line),
alloc, alloc_bytes. Each may be narrowed by function, file and line, and add an expression instead of 1.

Written to DIR: the sources after the preprocessor with their counters, measure_counters.c, counters.txt (metric,
symbol, offset in bytes) and compile.sh; with --build also the program.

Exit status: 0 done; 1 the program does not compile; 2 bad input.""",
)
@click.argument("spec", metavar="SPEC.yaml", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Directory to write to; it is made if necessary.")  # fmt: skip
@click.option("--build", "with_program", is_flag=True, help="Also compile and link DIR/program.")
def main(spec: Path, out: Path, with_program: bool) -> None:
    """Write the C sources of SPEC.yaml with a counter at every event of its metrics."""
    from instrumenter.errors import SourceError, SpecError, ToolchainError

    try:
        _instrument(spec, out, with_program)
    except SpecError as error:
        raise SystemExit(_complain(str(error), USAGE_ERROR)) from None
    except (SourceError, ToolchainError) as error:
        raise SystemExit(_complain(str(error), WORK_FAILED)) from None
    except OSError as error:
        raise SystemExit(_complain(f"cannot write to {out}: {error}", WORK_FAILED)) from None


def _complain(message: str, status: int) -> int:
    for line in message.splitlines():
        click.echo(f"instrument: {line}", err=True)
    return status


def _instrument(path: Path, out: Path, with_program: bool) -> None:
    """Write the files of the specification in ``path`` to ``out``."""
    from common.yaml_document import YamlDocument
    from instrumenter.building.generated_sources import generate, preprocess_all
    from instrumenter.building.program_build import BUILD_FLAGS
    from instrumenter.compiler.toolchain import Toolchain, without_preprocessor_flags
    from instrumenter.errors import SpecError
    from instrumenter.spec.software_metrics import InstrumentSpec

    document = YamlDocument.read(path, SpecError)
    spec = document.validate(InstrumentSpec)
    for index, source in enumerate(spec.sources):
        if not (path.parent / source).is_file():
            where = document.where("sources", index)
            raise SpecError(f"{where}: no such source file: {path.parent / source}")
    target = None if spec.target == "host" else spec.target
    toolchain = Toolchain(target, lambda message: click.echo(message, err=True))
    preprocessed = preprocess_all([path.parent / s for s in spec.sources], spec.flags, toolchain)
    try:
        generated = generate(
            preprocessed, spec.flags, spec.metrics,
            placement=spec.placement, volatile=spec.volatile, atomic=spec.atomic, target=target,
        )  # fmt: skip
    except SpecError as error:
        key = ("metrics",) if error.metric is None else ("metrics", error.metric)
        raise SpecError(f"{document.where(*key)}: {error}") from None
    own_flags = [*without_preprocessor_flags(spec.flags), *BUILD_FLAGS, *(f"-l{n}" for n in spec.libraries)]
    texts = {
        **generated.files,
        "counters.txt": _table(generated),
        "compile.sh": _script(generated, own_flags, toolchain),
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    # Made beside its place and moved there when everything is done: a failure leaves nothing half-written.
    with workspace(out.parent, f".{out.name}-") as made:
        for name, text in texts.items():
            (made / name).write_text(text, "utf-8", "surrogateescape")
        (made / "compile.sh").chmod(0o755)
        if with_program:
            inputs = [made.resolve() / name for name in generated.files]
            toolchain.link(inputs, own_flags, made.resolve() / "program")
        out.mkdir(exist_ok=True)
        for path in sorted(made.iterdir()):
            move_file(path, out / path.name, durable=True)
    _report(spec, generated, out)


def _table(generated: Generated) -> str:
    rows = [f"{name}\t{at.symbol}\t{at.offset_bytes}" for name, at in generated.layout.locations().items()]
    return "\n".join(["metric\tsymbol\toffset_bytes", *rows]) + "\n"


def _script(generated: Generated, flags: list[str], toolchain: Toolchain) -> str:
    """A shell script that compiles the files beside it. It needs a Python: the compiler is the package ziglang."""
    python, *command = toolchain.command(toolchain.link_arguments([*generated.files], flags, "program"))
    return (
        "#!/bin/sh\n# PYTHON: a Python that has the package ziglang.\n"
        f'cd "$(dirname "$0")" && exec "${{PYTHON:-{python}}}" {shlex.join(command)}\n'
    )


def _report(spec: InstrumentSpec, generated: Generated, out: Path) -> None:
    for warning in generated.warnings:  # the preprocessor has told the notices
        click.echo(f"warning: {warning}", err=True)
    for name, count in generated.sites.items():
        click.echo(f"{name}: {spec.metrics[name].describe()}, at {count} place{'s' if count != 1 else ''}")
    click.echo(f"written to {out}")


if __name__ == "__main__":
    main()
