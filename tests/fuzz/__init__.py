"""Fuzzing: random programs on every engine, damaged executables, random system calls. ``python -m tests.fuzz``."""
