"""Statistics of runs: correlations, permutation tests, intervals. Pure functions over numpy arrays."""
