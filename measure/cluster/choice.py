"""The choice of what makes runs: processes of this machine, or a Dask cluster, which is imported only then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from measure.arguments import check_number
from measure.errors import CampaignError
from measure.runs.executor import Workers

if TYPE_CHECKING:
    from distributed import Client


@contextmanager
def workers_on(scheduler: str | Client | None, workers: int | None, notify: Callable[[str], None]) -> Iterator[Workers]:
    """What makes the runs of a command: the cluster at ``scheduler``, or ``workers`` processes of this machine.

    Raises as `measure.cluster.dask_workers.connect`; `CampaignError` for both at once, `ArgumentError` for no workers.
    """
    if workers is not None:
        check_number("workers", workers, least=1, whole=True, what="runs at once")
    if scheduler is None:
        with Workers(workers) as own:
            yield own
        return
    if workers is not None:
        raise CampaignError("--workers is the number of processes on this machine: it has no meaning with --scheduler")
    from measure.cluster.dask_workers import connect

    with connect(scheduler, notify) as cluster:
        yield cluster
