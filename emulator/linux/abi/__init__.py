"""Numbers of the riscv64 Linux ABI."""
