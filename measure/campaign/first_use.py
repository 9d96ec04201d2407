"""Compiles the kernels of the emulator and of the statistics while a campaign's programs are built.

After an installation these kernels are compiled once and kept. While the cross-compiler builds its C library and the
programs, processors are idle for part of the time: meanwhile the workers that will make the runs load the emulator and
compile its kernels, and a thread of the command compiles those of the statistics.
"""

from __future__ import annotations

import threading

from measure.campaign.campaign_model import Campaign
from measure.campaign.executor import Workers


class Preparation:
    """Work done while programs are built; `begin` is called when the first of them is found missing.

    ``target``, ``campaign``: of the runs.
    """

    def __init__(self, workers: Workers, target: str, campaign: Campaign) -> None:
        self._workers, self._target, self._campaign = workers, target, campaign
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start the work, once; returns immediately."""
        from emulator.timing.machine_file import machine_text

        if self._thread is None:
            if self._campaign.host is None:
                self._workers.prepare(self._target, machine_text(self._campaign.machine_file))
            self._thread = threading.Thread(target=_prepare_statistics)
            self._thread.start()

    def wait(self) -> None:
        """Wait until the statistics are ready; the workers need no waiting."""
        if self._thread is not None:
            self._thread.join()


def _prepare_statistics() -> None:
    """Compile the kernels that align traces, and load the modules that draw the report."""
    import numpy as np

    import measure.report.html  # noqa: F401
    from measure.alignment.dtw import align, normalised_channels
    from measure.alignment.held_out import held_out_paths

    ramp = np.arange(16.0)
    trace = np.stack([ramp, np.cos(ramp)], axis=1)
    for method in ("full", "checkpoint"):
        align(trace, trace, method=method)
    channels = normalised_channels(trace)
    held_out_paths(channels, channels, band=0.5)
