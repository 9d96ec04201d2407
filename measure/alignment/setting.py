"""How two traces are aligned, for everything that aligns runs: verdicts across runs, merged traces, the ground truth.

A verdict across runs is worth something for a merged trace only if both use the same alignment.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from measure.alignment.dtw import DEFAULT_BAND, Alignment, align_normalised, check_setting
from measure.alignment.held_out import held_out_paths


@dataclass(frozen=True)
class AlignmentSetting:
    """A setting of dynamic time warping.

    ``step_penalty``: cost of a step that advances one trace only, in variances of each channel. Without one, paths
    follow noise and err by two to five times as much (`experiments/ground_truth`: 3 errs least over the programs; a
    third or three times as much hardly matters). ``band``: half-width within which paths start, as a fraction
    of the longer trace; it doubles where a path touches its edge. Raises `AlignmentError` for a penalty below 0 and a
    band outside (0, 1].
    """

    step_penalty: float = 3.0
    band: float = DEFAULT_BAND

    def __post_init__(self) -> None:
        check_setting(self.step_penalty, self.band)

    def align(
        self, reference: NDArray[np.float64], other: NDArray[np.float64], *, widen: bool = True
    ) -> Alignment:  # fmt: skip
        """Align channels ``(c, n)`` and ``(c, m)`` as `measure.alignment.dtw.normalised_channels` prepares them;
        ``widen``: the path may leave the band."""
        penalty = self.step_penalty * len(reference)
        return align_normalised(reference, other, method="band", band=self.band, step_penalty=penalty, widen=widen)

    def held_out(
        self, reference: NDArray[np.float64], other: NDArray[np.float64], channels: list[int], *, widen: bool = True
    ) -> list[NDArray[np.int64]]:
        """The path for each of ``channels``, aligned on all the others; ``widen``: paths may leave the band."""
        penalty = self.step_penalty * (len(reference) - 1)
        return held_out_paths(
            reference, other, band=self.band, channels=channels, widen=widen, step_penalty=penalty
        )  # fmt: skip

    def __str__(self) -> str:
        return f"step penalty {self.step_penalty:g}, band {self.band:g}"


DEFAULT_ALIGNMENT = AlignmentSetting()
