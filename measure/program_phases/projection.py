"""Random projection of basic block vectors to few dimensions; it keeps the distances between intervals.

Sherwood et al., "Automatically characterizing large scale program behavior" (ASPLOS 2002), section 4.1. `choose`
clusters the result.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from measure.program_phases.bbv import BasicBlockVectors

# Variance of a projected coordinate when a thousandth of the instructions differs. A smaller variance makes no phase.
LEAST_VARIANCE = 1e-3**2 / 3


def project(vectors: BasicBlockVectors, dimensions: int = 15, seed: int = 1) -> NDArray[np.float64]:
    """(n_intervals, dimensions): each vector over its sum, times a matrix of uniform numbers in [-1, 1).

    Not scaled: squared distances are ``dimensions / 3`` times their original size on average. Raises `ValueError` for
    no dimensions or an interval without instructions.
    """
    if dimensions < 1:
        raise ValueError(f"got {dimensions} dimensions to project to, expected at least 1")
    matrix = np.random.default_rng(seed).uniform(-1.0, 1.0, (vectors.n_dims, dimensions))
    return project_with(vectors, matrix, vectors.indices)


def project_with(
    vectors: BasicBlockVectors, matrix: NDArray[np.float64], rows: NDArray[np.int32]
) -> NDArray[np.float64]:
    """Project by a given ``matrix``; ``rows`` (entries,): the matrix's row of each entry."""
    from measure.program_phases.vectors_kernel import project_rows

    return project_rows(vectors.shares(), rows, vectors.indptr, matrix)
