"""Program analysis tools that consume events of the guest: see `emulator.analyzers.analyzer`."""
