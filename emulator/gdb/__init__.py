"""A debugger at a running guest: the serial protocol of gdb, and exact stops."""
