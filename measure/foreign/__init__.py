"""Traces made by other tools: reading them, and the analysis of perturbation on them."""
