"""The cross-compiler: `zig cc` from the ziglang wheel, for riscv64-linux-musl or for the host.

The first program for a target makes zig build that target's C library (about 40 s); ``notify`` is told so.
Everything zig keeps goes under the user's cache directory.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from instrumenter.errors import SourceError, ToolchainError

GUEST_TARGET = "riscv64-linux-musl"
TIMEOUT_SECONDS = 600
# zig adds run-time checks of its own to unoptimised code; the program is to be the user's.
_ALWAYS = ("-fno-sanitize=all", "-fno-stack-protector")


def cache_directory() -> Path:
    """Where this package keeps what it builds (``$XDG_CACHE_HOME/perturbation``)."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "perturbation"


@functools.cache
def compiler_version() -> str:
    """The version of the ziglang wheel."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("ziglang")
    except PackageNotFoundError:
        raise ToolchainError(
            "the cross-compiler is not installed: expected the Python package 'ziglang'; pip install ziglang"
        ) from None


class Toolchain:
    """Runs the compiler for one target; ``target`` None means the host."""

    def __init__(
        self, target: str | None = GUEST_TARGET, notify: Callable[[str], None] | None = None
    ) -> None:
        self.target = target
        self.notify = notify or (lambda message: None)
        self._zig = cache_directory() / "zig"

    def _run(self, arguments: Sequence[str], directory: Path | None) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "ziglang", "cc"]
        if self.target:
            command += ["-target", self.target]
        environment: Mapping[str, str] = {
            **os.environ,
            "ZIG_GLOBAL_CACHE_DIR": str(self._zig / "global"),
            "ZIG_LOCAL_CACHE_DIR": str(self._zig / "local"),
        }
        try:
            return subprocess.run(
                [*command, *arguments], cwd=directory, env=environment, capture_output=True,
                stdin=subprocess.DEVNULL, timeout=TIMEOUT_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise ToolchainError(
                f"the compiler did not finish within {TIMEOUT_SECONDS} s: zig cc {' '.join(arguments)}"
            ) from None
        except OSError as error:
            raise ToolchainError(f"the compiler cannot be started: {error}") from None

    def preprocess(self, source: Path, flags: Sequence[str]) -> str:
        """The source after the preprocessor, with its line markers. Raises `SourceError`."""
        if not source.is_file():
            raise SourceError(f"{source}: no such source file")
        compiler_version()
        done = self._run(["-E", *_ALWAYS, *flags, str(source.resolve())], source.resolve().parent)
        if done.returncode:
            raise SourceError(_first_errors(done.stderr, f"{source} cannot be preprocessed"))
        return done.stdout.decode("utf-8", "surrogateescape")

    def link(self, sources: Sequence[Path], flags: Sequence[str], output: Path) -> None:
        """Compile ``sources`` and link them statically into ``output``. Raises `SourceError`."""
        ready = self._zig / f"ready-{compiler_version()}-{self.target or 'host'}"
        if not ready.exists():
            self.notify(
                f"First use of the compiler for {self.target or 'the host'}: it builds its C library now, "
                "which takes about 40 s and is kept."
            )
        static = ["-static"] if self.target else []
        done = self._run(
            [*_ALWAYS, *flags, *static, *(str(source) for source in sources), "-o", str(output)],
            output.parent,
        )
        if done.returncode:
            raise SourceError(_first_errors(done.stderr, "the program does not compile"))
        ready.parent.mkdir(parents=True, exist_ok=True)
        ready.touch()


_ERROR_LINE = re.compile(r"^(.*?:\d+(?::\d+)?): (?:fatal )?error: (.*)$", re.MULTILINE)


def _first_errors(stderr: bytes, what: str) -> str:
    """What the compiler said, errors first; its own paths are the user's thanks to the line markers."""
    text = stderr.decode("utf-8", "replace")
    found = [f"  {place}: {message}" for place, message in _ERROR_LINE.findall(text)[:5]]
    return f"{what}:\n" + "\n".join(found or [f"  {line}" for line in text.strip().splitlines()[:8]])
