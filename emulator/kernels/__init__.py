"""Compiled kernels: functions in a subset of Python, translated to LLVM IR, with their code kept on disk."""
