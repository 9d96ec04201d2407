"""Adds probes to a campaign's runs: one for all reference events, and one for each metric that has an exact probe.

Probes count without touching the program, so a run's other columns stay as they are without probes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from emulator.linux.loader.elf import ElfImage, load_image
from measure.ground_truth.calibration import Calibration, count_events
from measure.ground_truth.reference_events import Kind, code_of_copies, kind_of
from measure.run_types import BASELINE, AddressRange, ProbePlaces, RunSpec
from measure.runs.builds import catalogue_entry
from measure.runs.campaign_model import Campaign
from measure.runs.program_progress import PROGRESS
from measure.targets.program_file import program_of

_SymbolicProbe = tuple[tuple[tuple[str, int], ...], tuple[tuple[str, int, int], ...]]
"""A probe by symbols: instructions as (symbol, offset), ranges as (symbol, offset, length); fits every code layout."""


@dataclass(frozen=True)
class MetricProbes:
    """Probes of software metrics, for any code layout of the plain program.

    ``by_symbol``: the probe of each metric; ``refused``: for each metric without an exact probe, the reason.
    """

    by_symbol: Mapping[str, _SymbolicProbe]
    refused: Mapping[str, str]

    @property
    def exact(self) -> tuple[str, ...]:
        """Metrics with an exact probe."""
        return tuple(self.by_symbol)

    def in_program(self, image: ElfImage, metrics: Iterable[str], plain: bool) -> dict[str, Kind]:
        """Probes in one program, by metric.

        An instrumented program (not ``plain``) gets only probes at entries of functions and at stores to variables.
        """
        found = {}
        for metric in metrics:
            if metric not in self.by_symbol:
                continue
            pcs, ranges = self.by_symbol[metric]
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
    """Exact probes of the campaign's software metrics in its plain program, and why other metrics have none.

    A probe is exact when `ProbeFinder` proves it. A function's entry is also exact when the compiler happened to
    preserve it: when it happens as often in a whole run as the counter of ``calibration`` counted, in all builds.
    A probe whose total differs from the counter's is refused.
    """
    from instrumenter.building.generated_sources import preprocess_all
    from instrumenter.compiler.toolchain import Toolchain
    from instrumenter.errors import InstrumenterError
    from instrumenter.find.probes import ProbeError, ProbeFinder

    metrics = campaign.software_metrics
    program = campaign.program
    flags = list(program.flags)
    if program.catalogue:
        from measure.programs.catalogue import ensure_sources

        entry = catalogue_entry(program)
        sources: Sequence[Path] = ensure_sources(entry)
        flags += entry.compiler_flags()
    else:
        sources = [program.source] if program.source else list(program.sources)
    if not sources:
        why = "the program is built by its own makefile; probes need a program given by its sources"
        return MetricProbes({}, dict.fromkeys(metrics, why))
    named: dict[str, _SymbolicProbe] = {}
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
            named[metric] = _symbolic_probe(image, probe.pcs, probe.store_ranges)
        except LookupError as error:
            refused[metric] = str(error)
    # A recursive function, say, may be transformed by the optimiser; the totals below show whether it was.
    for metric in refused:
        spec = metrics[metric]
        function = spec.function if spec.event == "entry" else spec.callee if spec.event == "call" else None
        narrowed = spec.file or spec.line or spec.add or (spec.event == "call" and spec.function)
        if function and not narrowed and f"call {function}" in calibration.reference_events:
            named[metric] = ((function, 0),), ()
    kinds = MetricProbes(named, refused).in_program(image, list(named), plain=True)
    totals, _ = count_events(plain, list(kinds.values()))
    for metric, probed in zip(kinds, totals, strict=True):
        counted = int(calibration.software[-1, calibration.metrics.index(metric)])
        if probed == counted:
            refused.pop(metric, None)
        else:
            del named[metric]
            refused.setdefault(metric, f"its probe counts {probed:,} events, its counter {counted:,}")
    return MetricProbes(named, refused)


def _symbolic_probe(image: ElfImage, pcs: Sequence[int], ranges: Sequence[tuple[int, int]]) -> _SymbolicProbe:
    """A probe by unique symbols. Raises `LookupError` for an address outside of them."""
    unique = {symbol.name for symbol in image.symbols}
    for symbol in image.symbols:
        if symbol.name in unique and image.find_symbol(symbol.name) != symbol:
            unique.discard(symbol.name)

    def place(address: int, is_function: bool) -> tuple[str, int]:
        for symbol in image.symbols:
            end = symbol.address + max(symbol.size_bytes, 1)
            if symbol.is_function == is_function and symbol.address <= address < end and symbol.name in unique:
                return symbol.name, address - symbol.address
        raise LookupError(f"address {address:#x} lies in no symbol with a unique name")

    return (
        tuple(place(pc, True) for pc in pcs),
        tuple((*place(low, False), high - low) for low, high in ranges),
    )


class Probing:
    """Adds probes to run specifications; each program is loaded once in each layout."""

    def __init__(self, calibration: Calibration, metric_probes: MetricProbes) -> None:
        self._calibration, self._metrics = calibration, metric_probes
        self._images: dict[str, ElfImage] = {}

    def probed(self, spec: RunSpec) -> RunSpec:
        """``spec`` with a probe for the reference events and with the exact probes of software metrics.

        A baseline gets the probes of all metrics, an instrumented run those of the metrics that it counts.
        """
        if spec.layout_seed is not None:
            image = load_image(program_of(spec))
        else:
            image = self._images.get(spec.binary) or load_image(Path(spec.binary))
            self._images[spec.binary] = image
        plain = spec.variant == BASELINE
        wanted = self._metrics.exact if plain else [counter.metric for counter in spec.counters]
        kinds = {PROGRESS: kind_of(image, self._calibration.reference_events)}
        kinds |= self._metrics.in_program(image, wanted, plain)
        uncounted = tuple(AddressRange(*ends) for ends in code_of_copies(image))
        return replace(spec, probes=tuple(_places(name, kind, uncounted) for name, kind in kinds.items()))


def _places(name: str, kind: Kind, uncounted_code: tuple[AddressRange, ...]) -> ProbePlaces:
    instructions, stores = kind
    return ProbePlaces(name, instructions, tuple(AddressRange(*addresses) for addresses in stores), uncounted_code)
