"""Contents of /proc and /sys without a kernel."""

from __future__ import annotations

import errno

from emulator.linux.vfs.files import VirtualFiles
from emulator.linux.vfs.open_files import OpenFile

DIRECTORIES = {
    "/proc": ["self", "version"],
    "/proc/self": ["cwd", "fd", "stat"],
    "/sys": ["kernel"],
    "/sys/kernel": ["hostname"],
}
CONTENTS = {"/proc/version": b"Linux\n", "/proc/self/stat": b"1 (guest) R\n", "/sys/kernel/hostname": b"guest\n"}


class FakeProcFs:
    """/proc and /sys of the process that has ``files``."""

    def __init__(self, files: VirtualFiles) -> None:
        self._files = files

    def covers(self, path: str) -> bool:
        known = path in DIRECTORIES or path in CONTENTS or path in ("/proc/self/cwd", "/proc/self/fd")
        return known or self.descriptor(path) is not None

    def contents(self, path: str) -> bytes:
        return CONTENTS[path]

    def names(self, path: str) -> list[str] | None:
        if path == "/proc/self/fd":
            return [str(number) for number, _ in self._files.descriptors.items()]
        return DIRECTORIES.get(path)

    def target(self, path: str) -> str | None:
        return self._files.working_directory if path == "/proc/self/cwd" else None

    def program(self, path: str) -> tuple[str, bytes] | None:
        return None

    def link(self, path: str) -> str:
        opened, target = self.descriptor(path), self.target(path)
        if opened is None and target is None:
            raise OSError(errno.EINVAL, "not a link")
        return target or (opened.path if opened is not None else "")

    def descriptor(self, path: str) -> OpenFile | None:
        directory, _, name = path.rpartition("/")
        if directory != "/proc/self/fd" or not name.isdecimal():
            return None
        try:
            return self._files.descriptors.file(int(name))
        except OSError:
            return None
