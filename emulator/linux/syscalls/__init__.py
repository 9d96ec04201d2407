"""System calls, one module a family."""
