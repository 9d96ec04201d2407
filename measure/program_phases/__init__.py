"""Finds program phases after a run: basic block vectors, their clusters, and the simulation points of the clusters."""
