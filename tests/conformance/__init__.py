"""The official RISC-V test suites, as far as they concern user mode, on a copy that the user has."""
