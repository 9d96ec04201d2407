"""Running a guest: who runs, on what, who watches, when it is stopped. `emulator.machine` puts the parts together."""
