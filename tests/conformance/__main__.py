"""``python -m tests.conformance SUITE PATH``: an official test suite on every engine of the emulator."""

from __future__ import annotations

import argparse
import shlex
import tempfile
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from tests.conformance.build import BuildError, build
from tests.conformance.engines import ENGINES, Engine, Outcome, run, run_command
from tests.conformance.suites import Suite, SuiteError, Test, arch_tests, expected_signature, riscv_tests

SUITES = {"riscv-tests": riscv_tests, "riscv-arch-test": arch_tests}
_SHOWN = 40  # characters of what was got and what was expected


@dataclass(frozen=True)
class Failure:
    test: str
    engine: str
    why: str


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("suite", choices=list(SUITES))
    parser.add_argument("path", type=Path, help="a copy of the suite; its submodules are not needed")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="tests by name, such as 'rv64ui/*'")
    parser.add_argument("--engine", action="append", choices=[engine.name for engine in ENGINES], help="default: all")
    parser.add_argument(
        "--reference", metavar="COMMAND", help="another emulator of user mode, such as qemu-riscv64, that says what"
        " signatures are right where the suite does not",
    )  # fmt: skip
    parser.add_argument(
        "--built", type=Path, metavar="DIR", help="keep built programs in DIR, and use the programs found there"
    )
    options = parser.parse_args(arguments)
    engines = [engine for engine in ENGINES if not options.engine or engine.name in options.engine]
    try:
        suite = SUITES[options.suite](options.path)
    except SuiteError as error:
        parser.error(str(error))
    chosen = [test for test in suite.tests if fnmatch(test.name, options.only)]
    if not chosen:
        parser.error(f"--only {options.only!r}: no such test; the first is {suite.tests[0].name!r}")
    reference = shlex.split(options.reference) if options.reference else None
    missing = [] if suite.self_checking or reference else [test for test in chosen if test.reference is None]
    if missing:
        parser.error(
            f"{len(missing)} tests, such as {missing[0].name}, come without a reference signature: say with --reference"
            " what emulator of user mode is to be believed, such as qemu-riscv64"
        )
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.built or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        failures = run_all(suite, chosen, engines, reference, folder)
    report(suite, chosen, engines, failures)
    return 1 if failures else 0


def run_all(
    suite: Suite, tests: list[Test], engines: list[Engine], reference: list[str] | None, folder: Path
) -> list[Failure]:
    """Every test on every engine; failures are printed as they come."""
    failures: list[Failure] = []
    for test in tests:
        found = check(suite, test, engines, reference, folder)
        for failure in found:
            print(f"{failure.test}, {failure.engine}: {failure.why}", flush=True)
        failures += found
    return failures


def check(suite: Suite, test: Test, engines: list[Engine], reference: list[str] | None, folder: Path) -> list[Failure]:
    """What is wrong with one test."""
    try:
        program = build(test.source, folder)
    except BuildError as error:
        return [Failure(test.name, "assembler", str(error))]
    expected = None
    if not suite.self_checking:
        if test.reference is not None:
            expected = expected_signature(test.reference)
        else:
            assert reference is not None
            path = folder / "program"
            path.write_bytes(program)
            path.chmod(0o755)
            outcome = run_command(reference, path)
            if outcome.status or not outcome.outputs[0]:
                return [Failure(test.name, reference[0], f"status {outcome.status} {outcome.message}")]
            expected = outcome.outputs[0]
    failures = []
    for engine in engines:
        why = wrong(run(program, engine), expected)
        if why:
            failures.append(Failure(test.name, engine.name, why))
    return failures


def wrong(outcome: Outcome, expected: bytes | None) -> str:
    """Why ``outcome`` is a failure; empty when it is none. ``expected``: the signature of each round."""
    if outcome.status:
        return f"status {outcome.status} {outcome.message}".rstrip()
    if expected is None:
        return ""
    if not outcome.outputs:
        return f"no signature, expected one of {len(expected)} bytes"
    for number, output in enumerate(outcome.outputs, 1):
        if output != expected:
            place = next((n for n, (a, b) in enumerate(zip(output, expected, strict=False)) if a != b), None)
            if place is None:
                return f"round {number}: a signature of {len(output)} bytes, expected {len(expected)}"
            word = place & ~7
            ours, theirs = output[word : word + 8][::-1].hex(), expected[word : word + 8][::-1].hex()
            return f"round {number}: byte {word:#x} of the signature: 0x{ours}, expected 0x{theirs}"
    return ""


def report(suite: Suite, tests: list[Test], engines: list[Engine], failures: list[Failure]) -> None:
    """A table: tests by group, and how many passed on each engine."""
    groups = Counter(test.name.rpartition("/")[0] for test in tests)
    failed = {(failure.test, failure.engine) for failure in failures}
    broken = {failure.test for failure in failures if failure.engine not in {e.name for e in engines}}
    print(f"\n{'':<16}{'tests':>7}" + "".join(f"{engine.name:>13}" for engine in engines))
    for group, count in sorted(groups.items()):
        members = [test.name for test in tests if test.name.rpartition("/")[0] == group]
        passed = [
            sum(name not in broken and (name, engine.name) not in failed for name in members) for engine in engines
        ]
        print(f"{group:<16}{count:>7}" + "".join(f"{number:>13}" for number in passed))
    for why, count in sorted(suite.left_out.items()):
        print(f"left out: {count} tests for {why}")
    print(f"{len(tests)} tests, {len({failure.test for failure in failures})} failed")


if __name__ == "__main__":
    raise SystemExit(main())
