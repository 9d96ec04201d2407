"""RISC-V RV64GC Linux user-mode machine: what a program does, and what the machine counts."""
