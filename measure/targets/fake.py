"""A target that makes up traces from the seed, so that everything around a run can be tested in milliseconds.

With a counter named ``perturbing*`` the first two metrics of a run are decoupled, and that counter counts most; one
named ``silent*`` counts nothing, one named ``rare*`` little, one named ``failing*`` makes the run fail, and the
hardware metric `NEVER` never happens. The arguments ``fail``, ``short`` and ``sleep`` make a run fail, have too few
records, or take long.
"""

from __future__ import annotations

import time

import numpy as np

from measure.errors import FewRecordsError, RunError
from measure.run_types import Run, RunSpec

NEVER = "PAPI_FSQ_INS"
_RECORDS = 300
_EVENTS_PER_RECORD = {"silent": 0.0, "rare": 0.1, "perturbing": 100.0}


class FakeTarget:
    """See the module."""

    def prepare(self, machine: str) -> None:
        """Does nothing."""

    def execute(self, spec: RunSpec) -> Run:
        """Make up a trace from the spec's seed."""
        if "fail" in spec.arguments or any(counter.metric.startswith("failing") for counter in spec.counters):
            raise RunError("the program ended with exit status 3; its last words: boom")
        if "short" in spec.arguments:
            raise FewRecordsError(f"the run has only 5 records of {spec.interval} {spec.interval_unit}")
        if "sleep" in spec.arguments:
            time.sleep(0.3)
        rng = np.random.default_rng(spec.seed)
        driver = np.sin(np.linspace(0, 12, _RECORDS)) + rng.normal(0, 0.3, _RECORDS)
        hardware = 1000 + 200 * driver[:, None] + rng.normal(0, 60, (_RECORDS, len(spec.hardware_metrics)))
        if any(counter.metric.startswith("perturbing") for counter in spec.counters):
            hardware[:, 0] = 1000 + rng.normal(0, 200, _RECORDS)
        if NEVER in spec.hardware_metrics:
            hardware[:, spec.hardware_metrics.index(NEVER)] = 0
        means = [
            next((mean for start, mean in _EVENTS_PER_RECORD.items() if counter.metric.startswith(start)), 5.0)
            for counter in spec.counters
        ]
        software = rng.poisson(means, (_RECORDS, len(means)))
        boundaries = np.arange(_RECORDS + 1, dtype=np.int64) * spec.interval
        total = int(boundaries[-1]) + 1000 * len(spec.counters)
        trace = spec.trace(boundaries, boundaries.copy(), hardware=hardware.round().astype(np.int64), software=software)
        return Run(spec, trace, total, total, 0.001, "")
