"""Linux as a static user-mode program sees it: ELF image, system calls, files, signals, virtual time."""
