"""A dynamically linked guest whose library is its interpreter, too: linux/guest_loader.c, built into a root."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

INTERPRETER = "/lib/own-loader.so"
_SOURCE = Path(__file__).parent / "linux" / "guest_loader.c"
_COMMAND = (
    sys.executable, "-m", "ziglang", "cc", "-target", "riscv64-linux-musl", "-O1", "-nostdlib", "-fPIC",
    "-ffreestanding", "-fno-stack-protector", "-Wl,-e,_start", str(_SOURCE),
)  # fmt: skip


def build_root(directory: Path, *flags: str) -> Path:
    """Put ``/program`` and ``/lib/own-loader.so`` below ``directory``, compiled with ``flags`` as well."""
    loader = directory / INTERPRETER.lstrip("/")
    loader.parent.mkdir()
    command = [*_COMMAND, *flags]
    subprocess.run([*command, "-DLOADER", "-shared", "-o", str(loader)], check=True)
    linked = ["-pie", "-dynamic", f"-Wl,-dynamic-linker,{INTERPRETER}", "-o", str(directory / "program")]
    subprocess.run([*command, *linked, str(loader)], check=True)
    return directory
