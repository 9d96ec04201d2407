"""A campaign's runs with probes: the anchors in all of them, and each software metric that has an exact probe.

Probes count without touching the program, so the other columns of a run's trace stay what they are without.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from emulator.linux.elf import ElfImage, load_image
from measure.builds import catalogue_entry
from measure.campaign import Campaign
from measure.ground_truth.anchors import Kind, kind_of
from measure.ground_truth.calibration import Calibration, count_events
from measure.merge.progress import PROGRESS
from measure.types import BASELINE, RunSpec

_Named = tuple[tuple[tuple[str, int], ...], tuple[tuple[str, int, int], ...]]
"""Instructions as symbol and offset, and ranges as symbol, offset and length: the same in every code layout."""


@dataclass(frozen=True)
class MetricProbes:
    """Probes of software metrics, for any layout of the plain program.

    ``refused``: for each metric without an exact probe, why.
    """

    named: Mapping[str, _Named]
    refused: Mapping[str, str]

    @property
    def exact(self) -> tuple[str, ...]:
        """Metrics with an exact probe."""
        return tuple(self.named)

    def of(self, image: ElfImage, metrics: Iterable[str], plain: bool) -> dict[str, Kind]:
        """Probes in one program; in an instrumented one those that are entries of functions or variables' stores."""
        found = {}
        for metric in metrics:
            if metric not in self.named:
                continue
            pcs, ranges = self.named[metric]
            if not plain and any(offset for _, offset in pcs):
                continue  # instructions within a function lie elsewhere in other code
            names = [name for name, _ in pcs] + [name for name, _, _ in ranges]
            symbols = {name: image.find_symbol(name) for name in names}
            if any(symbol is None for symbol in symbols.values()):
                continue
            at = {name: symbol.address for name, symbol in symbols.items() if symbol is not None}
            found[metric] = (
                tuple(at[name] + offset for name, offset in pcs),
                tuple((at[name] + offset, at[name] + offset + length) for name, offset, length in ranges),
            )
        return found


def find_metric_probes(campaign: Campaign, plain: RunSpec, calibration: Calibration) -> MetricProbes:
    """The exact probes of the campaign's software metrics in its plain program, and why others have none.

    Beside those that are exact by what the compiler may do there are those that it left exact: entries of a function
    that happen as often in a whole run as the counter of ``calibration`` counted, in all builds. A probe that counts
    something else is refused.
    """
    from instrumenter.build import preprocess_all
    from instrumenter.errors import InstrumenterError
    from instrumenter.probes import ProbeError, ProbeFinder
    from instrumenter.toolchain import Toolchain

    metrics = campaign.software_metrics
    program = campaign.program
    flags = list(program.flags)
    if program.catalogue:
        from measure.programs import ensure_sources

        entry = catalogue_entry(program)
        sources: Sequence[Path] = ensure_sources(entry)
        flags += entry.compiler_flags()
    else:
        sources = [program.source] if program.source else list(program.sources)
    if not sources:
        why = "the program is built by its own makefile; probes are looked for in lists of sources only"
        return MetricProbes({}, dict.fromkeys(metrics, why))
    named: dict[str, _Named] = {}
    refused: dict[str, str] = {}
    try:
        finder = ProbeFinder(
            Path(plain.binary), preprocess_all(sources, flags, Toolchain()), flags, metrics
        )  # fmt: skip
    except InstrumenterError as error:
        return MetricProbes({}, dict.fromkeys(metrics, str(error)))
    image = load_image(Path(plain.binary))
    for metric in metrics:
        try:
            probe = finder.probe_for(metric)
        except ProbeError as error:
            refused[metric] = str(error).removeprefix(f"metric '{metric}': ")
            continue
        try:
            named[metric] = _named(image, probe.pcs, probe.store_ranges)
        except LookupError as error:
            refused[metric] = str(error)
    # An optimiser may do anything with a recursive function, say; whether it did, the counts below tell.
    for metric in refused:
        spec = metrics[metric]
        function = spec.function if spec.event == "entry" else spec.callee if spec.event == "call" else None
        narrowed = spec.file or spec.line or spec.add or (spec.event == "call" and spec.function)
        if function and not narrowed and f"call {function}" in calibration.anchors:
            named[metric] = ((function, 0),), ()
    kinds = MetricProbes(named, refused).of(image, list(named), plain=True)
    totals, _ = count_events(plain, list(kinds.values()))
    for metric, probed in zip(kinds, totals, strict=True):
        counted = int(calibration.software[-1, calibration.metrics.index(metric)])
        if probed == counted:
            refused.pop(metric, None)
        else:
            del named[metric]
            refused.setdefault(
                metric, f"its probe counts {probed:,} events where the counter counts {counted:,}"
            )
    return MetricProbes(named, refused)


def _named(image: ElfImage, pcs: Sequence[int], ranges: Sequence[tuple[int, int]]) -> _Named:
    unique = {symbol.name for symbol in image.symbols}
    for symbol in image.symbols:
        if symbol.name in unique and image.find_symbol(symbol.name) != symbol:
            unique.discard(symbol.name)

    def place(address: int, is_function: bool) -> tuple[str, int]:
        for symbol in image.symbols:
            end = symbol.address + max(symbol.size_bytes, 1)
            if (
                symbol.is_function == is_function
                and symbol.address <= address < end
                and symbol.name in unique
            ):
                return symbol.name, address - symbol.address
        raise LookupError(f"no symbol of its own names address {address:#x}")

    return (
        tuple(place(pc, True) for pc in pcs),
        tuple((*place(low, False), high - low) for low, high in ranges),
    )


class Probing:
    """Gives specs their probes; each program is looked at once."""

    def __init__(self, calibration: Calibration, metric_probes: MetricProbes) -> None:
        self._calibration, self._metrics = calibration, metric_probes
        self._images: dict[str, ElfImage] = {}

    def probed(self, spec: RunSpec) -> RunSpec:
        """``spec`` with the anchors' probe and, as far as there are exact ones, those of software metrics.

        A baseline gets those of all metrics, another run those of the metrics that it counts itself.
        """
        if spec.binary not in self._images:
            self._images[spec.binary] = load_image(Path(spec.binary))
        image = self._images[spec.binary]
        plain = spec.group == BASELINE
        wanted = self._metrics.exact if plain else [name for name, _, _ in spec.counters]
        probes = [(PROGRESS, *kind_of(image, self._calibration.anchors))]
        probes += [(metric, *kind) for metric, kind in self._metrics.of(image, wanted, plain).items()]
        return replace(spec, probes=tuple(probes))
