"""Campaigns as library calls: run one, or load its results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure.arguments import list_of, path_of
from measure.campaign.run_command import Finished, make_campaign, read_campaign
from measure.errors import MeasureError
from measure.library.comparisons import Comparison
from measure.library.plots import CampaignPlots
from measure.library.progress import console_for
from measure.result_files import write_atomically
from measure.run_types import BASELINE, BOUNDARY_COLUMNS, HOST, PLACE_GAP, Run, standard_error

if TYPE_CHECKING:
    import pandas as pd
    from distributed import Client


@dataclass(frozen=True, repr=False)
class Result(Comparison):
    """A campaign that has run: its verdicts, its pairs of metrics, and the trace of every run.

    ``directory``: where report.html, summary.json and the traces are; ``runs``: those that succeeded; ``failures``: a
    sentence for each run that failed; ``clock_hz``: clock of the machine; ``metric_units``: of software metrics that do
    not count events.

    ```python
    import measure

    result = measure.load("results/quickstart")
    result.verdicts                 # one row a variant and comparison
    result.trace("baseline", 0)     # events of each record of one run
    result.trace("heavy", 0).attrs["units"]
    ```
    """

    directory: Path
    runs: tuple[Run, ...]
    failures: tuple[str, ...]
    clock_hz: int
    metric_units: dict[str, str]

    def trace(self, variant: str, replicate: int) -> pd.DataFrame:
        """Events of each record of one run, indexed by ``seconds``, the time of the program at which a record begins.

        ``variant``: a variant, or "baseline"; ``replicate``: number of the run, from 0.

        Columns are ``begin_cycles``, ``end_cycles``, ``begin_instructions``, ``end_instructions``, then a column a
        metric. The frame's ``attrs`` have ``units`` by column, ``variant``, ``replicate``, and ``standard_error`` of
        each count of a metric that is estimated (``sampled:``), in events.

        Raises `MeasureError` for a run that does not exist.
        """
        import pandas as pd

        run = self.run(variant, replicate)
        columns: dict[str, Any] = run.trace.boundary_columns()
        columns |= {metric: run.trace.values[:, n] for n, metric in enumerate(run.trace.metrics)}
        table = pd.DataFrame(columns, index=pd.Index(run.trace.boundaries_cycles[:-1] / self.clock_hz, name="seconds"))
        units = {name: name.split("_")[1] for name in BOUNDARY_COLUMNS}
        if run.spec.target == HOST:
            units |= {name: "nanoseconds" for name, unit in units.items() if unit == "cycles"}
        units |= {metric: self.metric_units.get(metric, "events") for metric in run.trace.metrics}
        units |= {PLACE_GAP: "instructions"} if run.spec.second_run is not None else {}
        errors = {metric: standard_error(period) for metric, period in run.spec.sampled}
        table.attrs = {"units": units, "variant": variant, "replicate": replicate, "standard_error": errors}
        return table

    @property
    def plot(self) -> CampaignPlots:
        """Pictures of the campaign; every method returns matplotlib Axes."""
        return CampaignPlots(self)

    def run(self, variant: str, replicate: int) -> Run:
        """One run: its specification, its trace and its totals.

        ``variant``: a variant, or "baseline"; ``replicate``: number of the run, from 0. Raises `MeasureError` when
        there is no such run.
        """
        there = {run.spec.replicate: run for run in self.runs if run.spec.variant == variant}
        if replicate not in there:
            names = ", ".join([BASELINE, *self.variants])
            numbers = f"; it has the runs {', '.join(map(str, sorted(there)))}" if there else ""
            raise MeasureError(f"no run {replicate} of {variant!r}: expected one of the variants {names}{numbers}")
        return there[replicate]

    def write_program(self, variant: str, replicate: int, path: str | Path) -> None:
        """Write the executable of one run, linked in the code layout of that run, for the command ``emulate``, say.

        ``variant``: a variant, or "baseline"; ``replicate``: number of the run, from 0; ``path``: of the file to write.

        Raises `MeasureError` when there is no such run, and when its program is no longer kept: ``measure run`` builds
        it again.
        """
        from measure.targets.program_file import program_of

        spec = self.run(variant, replicate).spec
        if not Path(spec.binary).is_file():
            raise MeasureError(
                f"the program of run {replicate} of {variant!r} is no longer at {spec.binary}, where builds are kept "
                "for some days: `measure run` with the campaign's file builds it again"
            )
        program = program_of(spec)

        def write(file: Path) -> None:
            file.write_bytes(program)
            file.chmod(0o755)

        write_atomically(path_of("path", path), write)


def run(
    campaign: Path | str,
    *,
    out: Path | str | None = None,
    workers: int | None = None,
    client: Client | str | None = None,
    settings: Sequence[str] = (),
    progress: bool | None = None,
) -> Result:
    """Run a campaign, or go on where it stopped, as `measure run` does.

    ``campaign``: the YAML file; ``out``: directory of the results, results/NAME by default; ``workers``: runs at once,
    one a processor by default; ``client``: a Dask client or the address of a scheduler, to make the runs there;
    ``settings``: changes of the file's values, each as of `--set`, such as ``"program.args.0=small"``; ``progress``:
    show it, by default in a terminal or notebook only.

    Runs that failed are in `Result.failures`. Raises `CampaignError` for what is wrong with the file, and
    `MeasureError` when so many runs failed that nothing can be said.

    ```python
    import measure

    result = measure.run("configs/campaigns/quickstart.yaml")
    print(result.verdicts[["variant", "comparison", "verdict", "p"]])
    ```
    """
    finished = make_campaign(
        path_of("campaign", campaign),
        path_of("out", out) if out is not None else None,
        console_for(progress),
        workers=workers,
        scheduler=client,
        settings=list_of("settings", settings, "changes KEY=VALUE"),
    )
    return _result(finished)


def load(directory: Result | Path | str, *, progress: bool | None = None) -> Result:
    """The results that `run` or `measure run` left in a directory, compared again; nothing is run. The report there is
    written anew, where the directory can be written.

    ``directory``: of the results, or a `Result`, whose directory is read again; ``progress``: show it, by default in a
    terminal or notebook only.

    Raises `CampaignError` when there are none.

    ```python
    import measure

    result = measure.load("results/quickstart")
    print(result.variants, result.findings)
    ```
    """
    return _result(read_campaign(directory_of("directory", directory), None, console_for(progress)))


def directory_of(name: str, given: Result | Path | str, expected: str = "a directory of results, or a Result") -> Path:
    """The directory of results that the argument ``name`` is, or is of. Raises `ArgumentError` for anything else."""
    return given.directory if isinstance(given, Result) else path_of(name, given, expected)


def _result(finished: Finished) -> Result:
    plan = finished.result.plan
    compared = {BASELINE, *plan.campaign.variant_sets()}
    failures = tuple(
        f"{failure.spec.variant}/{failure.spec.replicate}: {failure.reason}" for failure in finished.outcome.failures
    )
    sums = {
        name: "bytes" if metric.event == "alloc_bytes" else f"sum of {metric.add}"
        for name, metric in plan.campaign.software_metrics.items()
        if metric.add is not None or metric.event == "alloc_bytes"
    }
    return Result(
        finished.data,
        finished.directory,
        tuple(run for run in finished.outcome.runs if run.spec.variant in compared),
        failures,
        plan.clock_hz,
        sums,
    )
