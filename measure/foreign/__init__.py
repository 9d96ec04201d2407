"""Reads traces made by other tools, and applies the perturbation analysis to them."""
