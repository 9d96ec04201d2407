"""Run what is missing for the figures of this folder, and make them: `python -m experiments.program_phases.run`."""

from __future__ import annotations

import sys
from pathlib import Path

from experiments.runner import run_folder

if __name__ == "__main__":
    sys.exit(run_folder(Path(__file__).resolve().parent))
