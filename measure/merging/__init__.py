"""Merges runs with different metrics into one trace: `merge_runs.merge_runs`; on disk, ``measure merge``."""
