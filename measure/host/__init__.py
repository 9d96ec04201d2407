"""The real processor as a machine: its events, what is known about it, and runs on it."""
