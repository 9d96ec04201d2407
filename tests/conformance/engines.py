"""One program on one engine, in rounds: what it wrote, and how it ended."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from emulator.errors import EmulatorError
from emulator.machine import Machine

NEVER = 1 << 30
LIMIT_INSTRUCTIONS = 2_000_000_000
_SECONDS = 300


@dataclass(frozen=True)
class Engine:
    """``rounds``: so many that code executed in each of them is executed by this engine in the last."""

    name: str
    kind: str = "translated"
    templates: bool = False
    optimise_executions: int = NEVER
    rounds: int = 1


ENGINES = (
    Engine("oracle", "oracle"),
    Engine("interpreter", rounds=2),
    Engine("templates", templates=True, rounds=2),
    Engine("optimised", templates=True, optimise_executions=2, rounds=5),
)


@dataclass(frozen=True)
class Outcome:
    """``outputs``: what the test wrote in each round; ``message``: why it ended, where that was not a plain exit."""

    status: int
    message: str
    outputs: tuple[bytes, ...]


def run(program: bytes, engine: Engine) -> Outcome:
    """Run ``program`` (see env/rounds.S) on ``engine``."""
    with Machine(
        program, ["round"] * (engine.rounds - 1), engine=engine.kind, background=False,
        templates=engine.templates, optimise_executions=engine.optimise_executions,
        limit_instructions=LIMIT_INSTRUCTIONS,
    ) as machine:  # fmt: skip
        try:
            ending = machine.run()
        except EmulatorError as error:
            return Outcome(1, str(error), ())
        return Outcome(ending.status, ending.message or "", _in_rounds(machine.files.output(1), engine.rounds))


def run_command(command: list[str], program: Path) -> Outcome:
    """Run ``program`` for one round by another emulator of user mode, such as ``qemu-riscv64``."""
    done = subprocess.run([*command, str(program)], capture_output=True, timeout=_SECONDS, check=False)
    return Outcome(done.returncode, done.stderr.decode(errors="replace"), (done.stdout,))


def _in_rounds(output: bytes, rounds: int) -> tuple[bytes, ...]:
    size = -(-len(output) // rounds)
    return tuple(output[size * n : size * (n + 1)] for n in range(rounds)) if size else ()
