"""The compiler: IR text in, addresses of host functions out, by LLVM or from the cache on disk.

Code images are kept under the user's cache directory, named by a hash of the IR text, of how it is optimised, of the
host's processor, and of LLVM's version and the sources that turn text into images. So a later process with the same
text compiles nothing, and does not even load LLVM. A damaged file is replaced.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import llvmlite

from common.file_cache import checked_or_made, object_path
from common.source_digest import kept_source_digest
from emulator.native_code.code_image import CodeImage, LoadedCode, linked, unpacked

_NOTHING: dict[str, int] = {}
_LLVM = "emulator.native_code.llvm"
_SOURCES = tuple(Path(__file__).with_name(name) for name in ("llvm.py", "object_file.py", "code_image.py"))


class Compiler:
    """Compiles modules and links them into this process; any thread may call it."""

    def __init__(self) -> None:
        self._loaded: dict[int, _Loaded] = {}  # by host address of each function that `load` has returned

    @functools.cached_property
    def host(self) -> str:
        """What kept code depends on beside the IR, as text: processor, version of LLVM, the passes, the linker."""
        return f"{_processor()}\0{llvmlite.__version__}\0{kept_source_digest(_SOURCES)}"

    def path_of(self, key: str) -> Path:
        """The cache file of the code whose text has the name ``key``."""
        return object_path(f"{key}\0{self.host}")

    def compile(
        self,
        text: str | Callable[[], str],
        names: Sequence[str],
        key: str | None = None,
        known: Mapping[str, int] = _NOTHING,
    ) -> dict[str, int]:
        """Compile and load a module; the host addresses of ``names``.

        ``key``: a name for the text. With it, ``text`` may be a function, which is called only if the code is not on
        disk; ``known``: addresses of the symbols that it refers to.
        """
        return self.load([self.image(text, key)], names, known)

    def image(
        self,
        text: str | Callable[[], str],
        key: str | None = None,
        *,
        keep: bool = True,
        is_kernel: bool = False,
    ) -> CodeImage:
        """The code of IR ``text``, from disk or from LLVM. ``keep``: read it from disk and write it to disk.
        ``is_kernel``: optimise it as a kernel.
        """
        if key is None:
            key = text = text if isinstance(text, str) else text()

        def made() -> CodeImage:
            return linked(self.object(text if isinstance(text, str) else text(), is_kernel=is_kernel))

        name = f"kernel\0{key}" if is_kernel else key
        return unpacked(checked_or_made(self.path_of(name), lambda: made().packed())) if keep else made()

    @property
    def has_llvm(self) -> bool:
        """Whether LLVM is loaded."""
        return _LLVM in sys.modules

    def load_llvm(self) -> None:
        """Load LLVM now instead of at the first compilation: some 40 ms."""
        from emulator.native_code import llvm  # noqa: F401

    def object(self, text: str, *, is_kernel: bool = False) -> bytes:
        """The relocatable object of IR ``text``, by LLVM."""
        from emulator.native_code.llvm import object_of

        return object_of(text, is_kernel=is_kernel)

    def load(
        self, images: Sequence[CodeImage], names: Iterable[str], known: Mapping[str, int] = _NOTHING
    ) -> dict[str, int]:
        """Load code into this process; the host addresses of ``names``."""
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
        """Release these addresses; the memory of a `load` is given back when all of its addresses are released."""
        for address in addresses:
            loaded = self._loaded.pop(address, None)
            if loaded is not None:
                loaded.drop()


class _Loaded:
    """Loaded code with the number of its addresses that are in use."""

    def __init__(self, code: LoadedCode, n_users: int) -> None:
        self._code, self._n_users = code, n_users

    def drop(self) -> None:
        self._n_users -= 1
        if not self._n_users:
            self._code.close()


def _processor() -> str:
    """The host processor's model and features, as text."""
    with open("/proc/cpuinfo", "rb", buffering=0) as file:
        first = file.read(1 << 14).partition(b"\n\n")[0]
    wanted = (b"vendor_id", b"cpu family", b"model", b"stepping", b"flags")
    return b"\n".join(line for line in first.splitlines() if line.startswith(wanted)).decode()
