"""Alignment of traces in time. Pure functions over numpy arrays; kernels load when first used."""
