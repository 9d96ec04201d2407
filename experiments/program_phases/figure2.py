"""Figure 2: similarity matrices of two programs, the upper triangles."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pandas as pd

from experiments.drawing import instruction_unit
from experiments.reproduction import Reproduction
from experiments.results import Results
from experiments.runner import run_figure
from measure.program_phases.homogeneity import similarity
from measure.report.style import INK, new_figure

_ROWS = 160


def tabulate(campaign: Reproduction, results: Results) -> pd.DataFrame:
    """A row a row of the matrix: distances in hundredths (0 to 200) from the diagonal to the right.

    Programs of more intervals than `_ROWS` have neighbours merged, so that the table stays small.
    """
    (length,) = campaign.interval_instructions
    tables = []
    for program in campaign.programs:
        vectors = results.vectors(program, length)
        distances = np.rint(100 * similarity(vectors.blocks, _ROWS)).astype(int)
        texts = [" ".join(map(str, row[number:])) for number, row in enumerate(distances)]
        instructions = int(vectors.ends[-1])
        tables.append(pd.DataFrame({"program": program, "instructions": instructions, "hundredths": texts}))
    return pd.concat(tables)


def draw(campaign: Reproduction, table: pd.DataFrame) -> Any:
    """A matrix a program; dark is alike."""
    programs = list(table["program"].unique())
    figure, axes = new_figure(4.5 * len(programs) + 0.9, 4.6, 1, len(programs), squeeze=False)
    for axis, program in zip(axes[0], programs, strict=True):
        mine = table[table["program"] == program]
        n = len(mine)
        matrix = np.full((n, n), np.nan)
        for number, text in enumerate(mine["hundredths"].astype(str)):
            matrix[number, number:] = np.array(text.split(), float) / 100
        instructions = float(mine["instructions"].iloc[0])
        unit, words = instruction_unit(instructions)
        end = instructions / unit
        image = axis.imshow(
            matrix,
            extent=(0, end, end, 0),
            cmap="gray",
            vmin=0,
            vmax=2,
            interpolation="nearest",
            aspect="equal",
        )
        axis.grid(visible=False)
        axis.set_title(program)
        axis.set_xlabel(words, color=INK)
        if axis is axes[0, 0]:
            axis.set_ylabel(words, color=INK)
        axis.yaxis.set_inverted(True)
    figure.colorbar(
        image, ax=axes, label="Manhattan distance of basic block vectors (0: alike)", fraction=0.035, pad=0.02
    )
    return figure


if __name__ == "__main__":
    sys.exit(run_figure(__file__, tabulate, draw))
