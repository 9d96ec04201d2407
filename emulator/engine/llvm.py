"""LLVM through llvmlite: IR text in, addresses of host functions out. The only file that imports llvmlite.

Objects are kept on disk under the user's cache directory, named by a hash of the IR text, the host CPU and the
LLVM version, so a later process with the same text compiles nothing. A file that does not load is replaced.

llvmlite takes one lock around every call into LLVM, so a long compilation in one thread would hold up short
ones in another. LLVM itself needs no such lock between threads with an `LLVMContext` and a target machine of
their own; the one long call, code generation, goes around it here.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import struct
import tempfile
import threading
import zlib
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm
from llvmlite.binding import ffi

from emulator.jit import cache_directory

_MAGIC = b"RVOBJ1"
_lock = threading.Lock()
_initialized = False


def _initialize() -> None:
    global _initialized
    with _lock:
        if not _initialized:
            llvm.initialize_native_target()
            llvm.initialize_native_asmprinter()
            llvm.initialize_native_asmparser()
            _initialized = True


def _emit_without_lock(machine: llvm.TargetMachine, module: llvm.ModuleRef) -> bytes:
    """`TargetMachine.emit_object`, its long call outside llvmlite's lock (and the GIL)."""
    emit = ctypes.CDLL(ffi.lib._name).LLVMPY_TargetMachineEmitToMemory
    emit.argtypes = [ffi.LLVMTargetMachineRef, ffi.LLVMModuleRef, ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)]
    emit.restype = ffi.LLVMMemoryBufferRef
    with ffi.OutputString() as problem:
        buffer = emit(machine, module, 1, problem)
        if not buffer:
            raise RuntimeError(f"LLVM cannot generate code: {problem}")
    try:
        return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


class _ThreadState(threading.local):
    """What one thread compiles with: target machines by level, and a context that no other thread touches."""

    def __init__(self) -> None:
        self.machines: dict[int, llvm.TargetMachine] = {}
        self.context = llvm.create_context()


class Compiler:
    """Compiles modules and links them into this process; any thread may call it.

    ``level``: 0 for no optimisation and the quickest code generation, 2 for good code.
    """

    def __init__(self, use_cache: bool = True) -> None:
        _initialize()
        self._cpu = llvm.get_host_cpu_name()
        self._features = llvm.get_host_cpu_features().flatten()
        self._directory: Path | None = cache_directory() / "translations" if use_cache else None
        self._jit = llvm.create_lljit_compiler(self._machine(2))
        self._of_thread = _ThreadState()
        self._count = 0
        self._trackers: list[object] = []

    def _machine(self, level: int) -> llvm.TargetMachine:
        # Speed level 0 is FastISel; the small code model is not available to a JIT whose parts lie apart.
        target = llvm.Target.from_default_triple()
        return target.create_target_machine(
            cpu=self._cpu, features=self._features, opt=level, reloc="pic", codemodel="jitdefault"
        )

    def _object(self, text: str, level: int) -> bytes:
        mine = self._of_thread
        machine = mine.machines.get(level)
        if machine is None:
            machine = mine.machines[level] = self._machine(level)
        module = llvm.parse_assembly(text, mine.context)
        module.triple = llvm.get_default_triple()
        module.data_layout = str(machine.target_data)
        if level > 0:
            options = llvm.create_pipeline_tuning_options(speed_level=2)
            builder = llvm.create_pass_builder(machine, options)
            passes = llvm.create_new_function_pass_manager()
            passes.add_sroa_pass()
            passes.add_instruction_combine_pass()
            passes.add_simplify_cfg_pass()
            for function in module.functions:
                if not function.is_declaration:
                    passes.run(function, builder)
        return _emit_without_lock(machine, module)

    def compile(self, text: str, names: list[str], level: int = 2) -> dict[str, int]:
        """Compile and link a module; the addresses of ``names``."""
        return self.load(self.compile_object(text, level), names)

    def _cache_path(self, text: str, level: int) -> Path | None:
        if self._directory is None:
            return None
        identity = "\0".join((text, str(level), self._cpu, self._features, str(llvm.llvm_version_info)))
        key = hashlib.sha256(f"{identity}\0{llvmlite.__version__}".encode()).hexdigest()
        return self._directory / key[:2] / key[2:]

    def is_cached(self, text: str, level: int) -> bool:
        """Whether an earlier compilation left its object on the disk."""
        path = self._cache_path(text, level)
        return path is not None and path.exists()

    def compile_object(self, text: str, level: int = 2) -> bytes:
        """The relocatable object for IR ``text``, from the cache or from LLVM."""
        path = self._cache_path(text, level)
        if path is None:
            return self._object(text, level)
        cached = _read_checked(path)
        if cached is None:
            cached = self._object(text, level)
            _write_checked(path, cached)
        return cached

    def load(self, image: bytes, names: list[str]) -> dict[str, int]:
        """Link an object into this process; the addresses of ``names``."""
        self._count += 1
        builder = llvm.JITLibraryBuilder().add_object_img(image).add_current_process()
        for name in names:
            builder.export_symbol(name)
        tracker = builder.link(self._jit, f"lib{self._count}")
        self._trackers.append(tracker)
        return {name: tracker[name] for name in names}


def _read_checked(path: Path) -> bytes | None:
    try:
        raw = path.read_bytes()
    except OSError:
        return None
    if raw[: len(_MAGIC)] != _MAGIC or len(raw) < len(_MAGIC) + 4:
        return None
    body = raw[len(_MAGIC) + 4 :]
    return body if struct.unpack_from("<I", raw, len(_MAGIC))[0] == zlib.crc32(body) else None


def _write_checked(path: Path, body: bytes) -> None:
    """Write atomically; a cache that cannot be written is no reason to fail."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_MAGIC + struct.pack("<I", zlib.crc32(body)) + body)
            os.replace(temporary, path)
        except OSError:
            os.unlink(temporary)
    except OSError:
        return
