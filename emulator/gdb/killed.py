"""The exception that ends a guest for its debugger; apart from the debugger, which takes long to load."""

from __future__ import annotations


class Killed(Exception):
    """The debugger has killed the guest; the exception leaves the machine's run loop."""
