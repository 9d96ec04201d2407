"""Explanations as a library call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from measure.arguments import list_of
from measure.library.campaigns import Result, directory_of
from measure.library.progress import console_for

if TYPE_CHECKING:
    from distributed import Client

    from measure.explanation.explanation_types import Explanation


def explain(
    directory: Result | Path | str,
    *,
    variants: Sequence[str] = (),
    pairs: int = 6,
    minutes: float = 3.0,
    workers: int | None = None,
    client: Client | str | None = None,
    progress: bool | None = None,
) -> tuple[Explanation, ...]:
    """Say why relations are perturbed in the results of a campaign, and which remedies help, as `measure explain` does.

    ``directory``: of the results, or a `Result`; ``variants``: those to explain, by default all with a perturbed or
    changed relation; ``pairs``: pairs of runs with the same seed; ``minutes``: time after which no further order of
    metrics is tried; ``workers``: runs at once, one a processor by default; ``client``: a Dask client or the address of
    a scheduler, to make the runs there; ``progress``: show it, by default in a terminal or notebook only.

    The result has an explanation for each variant that has a perturbed relation, in the campaign's order. Its page and
    the campaign files of the best remedies are in the folder ``explain`` of the results. Raises `CampaignError` for
    results without such a variant name or without their campaign file.

    ```python
    import measure

    for one in measure.explain("results/quickstart"):
        print(one.variant, one.metrics.parts[0].name, one.mechanisms.parts[0].name)
        print([(remedy.name, remedy.verdict) for remedy in one.remedies])
    ```
    """
    from measure.explanation.command import explain_results

    found = explain_results(
        directory_of("directory", directory), console_for(progress),
        variants=list_of("variants", variants, "names of variants"), pairs=pairs, minutes=minutes, workers=workers,
        scheduler=client,
    )  # fmt: skip
    return found.explanations
