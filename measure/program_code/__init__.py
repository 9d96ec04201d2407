"""Reads the code of instrumented programs: what is there for counters, where it lies, what two programs share."""
