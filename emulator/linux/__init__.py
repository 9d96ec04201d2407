"""User-mode Linux for the guest: ELF loading, system calls, file systems, signals, scheduling, virtual time."""
