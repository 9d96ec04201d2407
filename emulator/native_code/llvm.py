"""LLVM through llvmlite: IR text in, relocatable objects out. The only file that uses llvmlite's bindings; it is
imported at the first compilation.

llvmlite takes one lock around every call into LLVM, so a long compilation in one thread would block short ones in
another. LLVM itself needs no such lock between threads with an `LLVMContext` and a target machine of their own, so the
long calls bypass it here.
"""

from __future__ import annotations

import ctypes
import threading

import llvmlite.binding as llvm
from llvmlite.binding import ffi

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
        """The module of IR text. Raises `RuntimeError`."""
        with ffi.OutputString() as problem:
            module = llvm.ModuleRef(self._parse(context, text.encode(), problem), context)
            if problem:
                raise RuntimeError(f"LLVM cannot parse the emitted IR: {problem}")
        return module

    def optimise(self, module: llvm.ModuleRef, machine: llvm.TargetMachine, inline: bool) -> None:
        """Run few passes: the guest's compiler has optimised its code. ``inline``: the module has user functions."""
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

    def optimise_kernels(self, module: llvm.ModuleRef, machine: llvm.TargetMachine) -> None:
        """Run all passes of level 2: kernels run long, and their IR is naive."""
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        options.loop_vectorization = options.slp_vectorization = options.loop_interleaving = True
        options.loop_unrolling = True
        builder = llvm.create_pass_builder(machine, options)
        self._optimise_module(builder.getModulePassManager(), module, builder)

    def emit(self, module: llvm.ModuleRef, machine: llvm.TargetMachine) -> bytes:
        """The relocatable object of a module. Raises `RuntimeError`."""
        with ffi.OutputString() as problem:
            buffer = self._emit(machine, module, 1, problem)
            if not buffer:
                raise RuntimeError(f"LLVM cannot generate code: {problem}")
        try:
            return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer))
        finally:
            ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


class _ThreadState(threading.local):
    """A thread's own target machine and LLVM context."""

    def __init__(self) -> None:
        _initialize()
        self.unlocked = _Unlocked()
        self.context = llvm.create_context()
        # The small code model: code and its constants are loaded as one image. Counters are incremented with `add`, not
        # `inc`, which on Intel is one operation more.
        self.machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(),
            features=f"{llvm.get_host_cpu_features().flatten()},+slow-incdec",
            opt=2,
            reloc="pic",
            codemodel="small",
        )


_of_thread = _ThreadState()


def object_of(text: str, *, is_kernel: bool = False) -> bytes:
    """Relocatable object of IR ``text``; thread-safe. ``is_kernel``: optimise as for a kernel, not a translation."""
    mine = _of_thread
    module = mine.unlocked.parse(text, mine.context)
    module.triple = llvm.get_default_triple()
    module.data_layout = str(mine.machine.target_data)
    if is_kernel:
        mine.unlocked.optimise_kernels(module, mine.machine)
    else:
        mine.unlocked.optimise(module, mine.machine, inline="alwaysinline" in text)
    return mine.unlocked.emit(module, mine.machine)
