"""LLVM through llvmlite: IR text in, addresses of host functions out. The only file that imports llvmlite.

Objects are kept on disk under the user's cache directory, named by a hash of the IR text, the host CPU and the
LLVM version, so a later process with the same text compiles nothing. A file that does not load is replaced.

llvmlite takes one lock around every call into LLVM, so a long compilation in one thread would hold up short
ones in another. LLVM itself needs no such lock between threads with an `LLVMContext` and a target machine of
their own; the long calls go around it here.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm
from llvmlite.binding import ffi

from emulator.kept import OBJECTS, cache_directory, read_checked, write_checked

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


class _Unlocked:
    """LLVM's long calls, without llvmlite's lock (and the GIL)."""

    def __init__(self) -> None:
        library = ctypes.CDLL(ffi.lib._name)
        self._parse = library.LLVMPY_ParseAssembly
        self._parse.argtypes = [ffi.LLVMContextRef, ctypes.c_char_p, ctypes.POINTER(ctypes.c_char_p)]
        self._parse.restype = ffi.LLVMModuleRef
        self._optimise = library.LLVMPY_RunNewFunctionPassManager
        self._optimise.argtypes = [
            ffi.LLVMFunctionPassManagerRef, ffi.LLVMValueRef, ffi.LLVMPassBuilderRef
        ]  # fmt: skip
        self._optimise.restype = None
        self._optimise_module = library.LLVMPY_RunNewModulePassManager
        self._optimise_module.argtypes = [
            ffi.LLVMModulePassManagerRef, ffi.LLVMModuleRef, ffi.LLVMPassBuilderRef
        ]  # fmt: skip
        self._optimise_module.restype = None
        self._emit = library.LLVMPY_TargetMachineEmitToMemory
        self._emit.argtypes = [
            ffi.LLVMTargetMachineRef, ffi.LLVMModuleRef, ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)
        ]  # fmt: skip
        self._emit.restype = ffi.LLVMMemoryBufferRef

    def parse(self, text: str, context: llvm.ContextRef) -> llvm.ModuleRef:
        with ffi.OutputString() as problem:
            module = llvm.ModuleRef(self._parse(context, text.encode(), problem), context)
            if problem:
                raise RuntimeError(f"LLVM cannot read what we wrote: {problem}")
        return module

    def optimise(self, module: llvm.ModuleRef, machine: llvm.TargetMachine, inline: bool) -> None:
        """Few passes: guest code has been optimised once. ``inline``: the module has functions of a user's, too."""
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        builder = llvm.create_pass_builder(machine, options)
        if inline:
            inliner = llvm.create_new_module_pass_manager()
            inliner.add_always_inliner_pass()
            inliner.add_global_dead_code_eliminate_pass()
            self._optimise_module(inliner, module, builder)
        passes = llvm.create_new_function_pass_manager()
        passes.add_sroa_pass()
        passes.add_instruction_combine_pass()
        passes.add_simplify_cfg_pass()
        if inline:
            passes.add_new_gvn_pass()
            passes.add_dead_store_elimination_pass()
        for function in module.functions:
            if not function.is_declaration:
                self._optimise(passes, function, builder)

    def emit(self, module: llvm.ModuleRef, machine: llvm.TargetMachine) -> bytes:
        with ffi.OutputString() as problem:
            buffer = self._emit(machine, module, 1, problem)
            if not buffer:
                raise RuntimeError(f"LLVM cannot generate code: {problem}")
        try:
            return ctypes.string_at(
                ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer)
            )
        finally:
            ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


class _ThreadState(threading.local):
    """What one thread compiles with: target machines, and a context that no other thread touches."""

    def __init__(self) -> None:
        self.machines: dict[bool, llvm.TargetMachine] = {}  # by whether code is near
        self.context = llvm.create_context()


class Compiler:
    """Compiles modules and links them into this process; any thread may call it."""

    def __init__(self, use_cache: bool = True) -> None:
        _initialize()
        self._cpu = llvm.get_host_cpu_name()
        self._features = llvm.get_host_cpu_features().flatten()
        self._directory: Path | None = cache_directory() / OBJECTS if use_cache else None
        self._jit = llvm.create_lljit_compiler(self._machine(near=False))
        self._of_thread = _ThreadState()
        self._unlocked = _Unlocked()
        self._count = 0
        self._loaded: dict[
            int, object
        ] = {}  # what keeps an object linked, by the addresses that were asked for

    def _machine(self, near: bool) -> llvm.TargetMachine:
        # The small code model is not available to a JIT whose parts lie apart.
        target = llvm.Target.from_default_triple()
        return target.create_target_machine(
            cpu=self._cpu,
            features=self._features,
            opt=2,
            reloc="pic",
            codemodel="small" if near else "jitdefault",
        )

    def _object(self, text: str, near: bool) -> bytes:
        mine = self._of_thread
        machine = mine.machines.get(near)
        if machine is None:
            machine = mine.machines[near] = self._machine(near)
        module = self._unlocked.parse(text, mine.context)
        module.triple = llvm.get_default_triple()
        module.data_layout = str(machine.target_data)
        self._unlocked.optimise(module, machine, inline="alwaysinline" in text)
        return self._unlocked.emit(module, machine)

    def compile(
        self, text: str | Callable[[], str], names: list[str], key: str | None = None
    ) -> dict[str, int]:
        """Compile and link a module; the addresses of ``names``.

        ``key``: names the text, which then need not be made in order to look for its object.
        """
        return self.load(self.compile_object(text, key), names)

    @functools.cached_property
    def host(self) -> str:
        """What the code depends on beside the IR: processor, LLVM."""
        return "\0".join((self._cpu, self._features, str(llvm.llvm_version_info), llvmlite.__version__))

    def path_of(self, key: str) -> Path | None:
        """Where what is compiled from the text of that name is kept; None when nothing is."""
        if self._directory is None:
            return None
        name = hashlib.sha256(f"{key}\0{self.host}".encode()).hexdigest()
        return self._directory / name[:2] / name[2:]

    def compile_object(
        self,
        text: str | Callable[[], str],
        key: str | None = None,
        *,
        near: bool = False,
        keep: bool = True,
    ) -> bytes:
        """The relocatable object for IR ``text``, from the cache or from LLVM.

        ``near``: for code whose parts will lie in one piece of memory; ``keep``: look for it on the disk, and leave it
        there.
        """
        if key is None:
            key = text = text if isinstance(text, str) else text()
        path = self.path_of(key) if keep else None
        cached = None if path is None else read_checked(path)
        if cached is None:
            cached = self._object(text if isinstance(text, str) else text(), near)
            if path is not None:
                write_checked(path, cached)
        return cached

    def load(self, image: bytes, names: list[str]) -> dict[str, int]:
        """Link an object into this process; the addresses of ``names``."""
        return self.load_all([image], names)

    def load_all(self, images: Sequence[bytes], names: Sequence[str]) -> dict[str, int]:
        """Link objects into this process at once; the addresses of ``names``."""
        self._count += 1
        builder = llvm.JITLibraryBuilder().add_current_process()
        for image in images:
            builder.add_object_img(image)
        for name in names:
            builder.export_symbol(name)
        tracker = builder.link(self._jit, f"lib{self._count}")
        addresses = {name: tracker[name] for name in names}
        self._loaded.update(dict.fromkeys(addresses.values(), tracker))
        return addresses

    def unload(self, addresses: Iterable[int]) -> None:
        """Give back the memory of objects, once all the addresses that `load` gave for them are named.

        A process may have some 65 000 mappings, and an object takes three of them.
        """
        for address in addresses:
            self._loaded.pop(address, None)
