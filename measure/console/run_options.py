"""Options of commands that make runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

scheduler_option = click.option(
    "--scheduler", metavar="tcp://HOST:PORT|local:N",
    help="Make the runs on the workers of a Dask cluster, or on N Dask workers of this machine "
    "(pip install '.[dask]' in the checkout).",
)  # fmt: skip


def run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Where the results of a campaign go, and who makes its runs: ``--out``, ``--workers`` and ``--scheduler``."""
    out = click.option("--out", type=click.Path(path_type=Path), metavar="DIR",
                       help="Where results go. Default: results/NAME in the current directory.")  # fmt: skip
    workers = click.option("--workers", type=click.IntRange(1), metavar="N",
                           help="Runs at once. Default: one a processor.")  # fmt: skip
    return out(workers(scheduler_option(command)))
