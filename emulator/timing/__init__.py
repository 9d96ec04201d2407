"""Timing models driven by the block record: in-order core, caches, TLBs, branch predictors."""
