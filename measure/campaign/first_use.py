"""Makes what only the first campaign after an installation has to make, while the campaign's programs are built.

It is made once and kept. The workers that will make the runs meanwhile make the C library that the programs are linked
with, load the emulator and compile its kernels; a thread of the command compiles those of the statistics.
"""

from __future__ import annotations

import threading

from measure.console.worker_pool import ending_with_worker
from measure.runs.campaign_model import Campaign
from measure.runs.executor import Workers


class Preparation:
    """Work done while programs are built; `begin` is called when the first of them is found missing.

    ``target``, ``campaign``: of the runs.
    """

    def __init__(self, workers: Workers, target: str, campaign: Campaign) -> None:
        self._workers, self._target, self._campaign = workers, target, campaign
        self._thread: threading.Thread | None = None

    def begin(self, lacks_library: bool) -> None:
        """Start the work, once; returns immediately. ``lacks_library``: the programs wait for the C library."""
        from emulator.timing.machine_file import machine_text

        if self._thread is None:
            if self._campaign.host is None:
                if lacks_library and self._workers.local_pool is not None and self._workers.count > 1:
                    self._workers.local_pool.submit(_prepare_library)
                self._workers.prepare(self._target, machine_text(self._campaign.machine_file))
            self._thread = threading.Thread(target=_prepare_statistics)
            self._thread.start()

    def wait(self) -> None:
        """Wait until the statistics are ready; the workers need no waiting."""
        if self._thread is not None:
            self._thread.join()


def _prepare_library() -> None:
    """In a worker: make what most programs need of the C library. A failure is left to the links, which report it."""
    from instrumenter.compiler.toolchain import GUEST_TARGET, Toolchain

    with ending_with_worker():
        Toolchain(GUEST_TARGET).prepare_common_library()


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
