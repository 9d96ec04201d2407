"""Figure 8: as Figure 7, for the program whose outer correlations the paper finds unchanged."""

from __future__ import annotations

from experiments.measurement_perturbation.figure7 import draw, tabulate

__all__ = ["draw", "tabulate"]
