"""Loading a program: ELF files, the memory of a new process, and source lines of addresses."""
