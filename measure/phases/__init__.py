"""Program phases found after a run: basic block vectors, their clusters, and the intervals that stand for them."""
