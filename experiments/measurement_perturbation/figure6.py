"""Figure 6: inner correlation over added instructions, for the program whose correlations the paper finds unchanged."""

from __future__ import annotations

from experiments.measurement_perturbation.figure4 import draw, tabulate

__all__ = ["draw", "tabulate"]
