"""From LLVM IR text to host code in memory: LLVM, object files, linking, the calling convention, the fault handler."""
