"""Emitters of LLVM IR text for guest code: instructions, registers, the interpreter, regions, and their dataflow."""
