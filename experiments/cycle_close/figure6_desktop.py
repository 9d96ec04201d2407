"""Figure 6 on the desktop machine: the same table and picture as `figure6` makes for the paper's machine."""

from __future__ import annotations

import sys

from experiments.cycle_close.figure6 import draw, tabulate
from experiments.runner import run_figure

if __name__ == "__main__":
    sys.exit(run_figure(__file__, tabulate, draw))
