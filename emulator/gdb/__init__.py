"""gdb server for a guest: the remote serial protocol, breakpoints, watchpoints and single steps."""
