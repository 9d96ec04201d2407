"""Finds the fewest runs that collect all metrics without perturbing one another: a search over tested groups."""
