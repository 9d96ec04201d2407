"""One trace with every metric, out of runs that each have some: `runs.merge_runs`; ``measure merge`` on disk."""
