"""Shared parts of the commands: progress, time left, interruption, worker processes."""
