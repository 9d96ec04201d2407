"""Tools that study what a program does: see `emulator.analyzers.base`."""
