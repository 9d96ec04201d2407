"""The option ``--scheduler`` of commands that make runs."""

from __future__ import annotations

import click

scheduler_option = click.option(
    "--scheduler", metavar="tcp://HOST:PORT|local:N",
    help="Make the runs on the workers of a Dask cluster, or on N Dask workers of this machine "
    "(pip install 'perturbation[dask]').",
)  # fmt: skip
