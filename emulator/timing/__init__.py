"""Timing components that consume the block record: caches, TLBs, branch predictors, cores."""
