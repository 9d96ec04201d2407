"""Running a guest: address spaces, engines, observers, deadlines, the run loop. `emulator.machine` composes them."""
