"""From IR text to addresses of host functions, by LLVM or from the disk.

What is compiled is kept under the user's cache directory, named by a hash of the IR text, the host's processor and the
version of LLVM, so a later process with the same text compiles nothing, and does not even load LLVM. A file that does
not load is replaced.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import llvmlite

from emulator.engine.code_image import FORMAT, CodeImage, LoadedCode, linked, unpacked
from emulator.kept import OBJECTS, cache_directory, read_checked, write_checked

_NOTHING: dict[str, int] = {}
_LLVM = "emulator.engine.llvm"


class Compiler:
    """Compiles modules and links them into this process; any thread may call it."""

    def __init__(self) -> None:
        self._directory = cache_directory() / OBJECTS
        self._loaded: dict[int, _Loaded] = {}  # by address of what was asked for

    @functools.cached_property
    def host(self) -> str:
        """What files with code depend on beside the IR: processor, LLVM, how they are written."""
        return f"{_processor()}\0{llvmlite.__version__}\0{FORMAT}"

    def path_of(self, key: str) -> Path:
        """Where what is compiled from the text of that name is kept."""
        name = hashlib.sha256(f"{key}\0{self.host}".encode()).hexdigest()
        return self._directory / name[:2] / name[2:]

    def compile(
        self,
        text: str | Callable[[], str],
        names: Sequence[str],
        key: str | None = None,
        known: Mapping[str, int] = _NOTHING,
        *,
        is_kernel: bool = False,
    ) -> dict[str, int]:
        """Compile and load a module; the addresses of ``names``.

        ``key``: names the text, which then need not be made in order to look for its code; ``known``: addresses of
        what it refers to; ``is_kernel``: see `image`.
        """
        return self.load([self.image(text, key, is_kernel=is_kernel)], names, known)

    def image(
        self,
        text: str | Callable[[], str],
        key: str | None = None,
        *,
        keep: bool = True,
        is_kernel: bool = False,
    ) -> CodeImage:
        """The code of IR ``text``, from the disk or from LLVM; ``keep``: it is looked for, and left, on the disk.
        ``is_kernel``: it is optimised as a kernel is, and no translation has the same text."""
        if key is None:
            key = text = text if isinstance(text, str) else text()
        path = self.path_of(key) if keep else None
        kept = None if path is None else read_checked(path)
        if kept is not None:
            return unpacked(kept)
        made = linked(self.object(text if isinstance(text, str) else text(), is_kernel=is_kernel))
        if path is not None:
            write_checked(path, made.packed())
        return made

    @property
    def has_llvm(self) -> bool:
        """Whether LLVM is loaded."""
        return _LLVM in sys.modules

    def load_llvm(self) -> None:
        """What else is done when something has to be compiled: some 40 ms."""
        from emulator.engine import llvm  # noqa: F401

    def object(self, text: str, *, is_kernel: bool = False) -> bytes:
        """The relocatable object of IR ``text``, by LLVM."""
        from emulator.engine.llvm import object_of

        return object_of(text, is_kernel=is_kernel)

    def load(
        self, images: Sequence[CodeImage], names: Iterable[str], known: Mapping[str, int] = _NOTHING
    ) -> dict[str, int]:
        """Load code into this process; the addresses of ``names``."""
        loaded = LoadedCode(images, known)
        defined = {
            name: base + offset
            for base, image in zip(loaded.bases, images, strict=True)
            for name, (offset, _) in image.symbols.items()
        }
        addresses = {name: defined[name] for name in names}
        users = _Loaded(loaded, len(set(addresses.values())))
        self._loaded.update(dict.fromkeys(addresses.values(), users))
        return addresses

    def unload(self, addresses: Iterable[int]) -> None:
        """Give back the memory of code, once all the addresses that `load` gave for it are named."""
        for address in addresses:
            loaded = self._loaded.pop(address, None)
            if loaded is not None:
                loaded.drop()


class _Loaded:
    """Code, and how many addresses in it are still used."""

    def __init__(self, code: LoadedCode, n_users: int) -> None:
        self._code, self._n_users = code, n_users

    def drop(self) -> None:
        self._n_users -= 1
        if not self._n_users:
            self._code.close()


def _processor() -> str:
    """What tells one kind of processor from another: its model, and what it can do."""
    with open("/proc/cpuinfo", "rb", buffering=0) as file:
        first = file.read(1 << 14).partition(b"\n\n")[0]
    wanted = (b"vendor_id", b"cpu family", b"model", b"stepping", b"flags")
    return b"\n".join(line for line in first.splitlines() if line.startswith(wanted)).decode()
