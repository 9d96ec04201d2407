"""Finds where in a program events happen: in C sources by libclang, in ELF files by debug information."""
