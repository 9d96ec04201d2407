"""What a process hands over to later processes of its program: which regions of a tier, with which guest code."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from common.distinct import distinct
from emulator.engine.blocks import BlockCache
from emulator.engine.persist.pending import (
    CodeSource,
    PendingTranslations,
    block_spans,
    code_ranges,
    merged_code,
)
from emulator.engine.persist.translation_store import SavedRegion, SavedRegions
from emulator.engine.tiering.region_states import Region


def regions_to_save(
    entered: Sequence[Region],
    planned: dict[str, Region],
    before: SavedRegions,
    pending: PendingTranslations | None,
    cache: BlockCache,
    source: CodeSource,
) -> SavedRegions | None:
    """The regions to save now; None if these are the regions saved ``before``.

    ``entered``: published regions that control still enters; ``planned``: by name, regions that a later process is to
    compile; ``pending``: regions whose code this process has not mapped, which are saved again. Only regions whose
    guest code is certain (`code_ranges`) are saved.
    """
    waiting, waiting_code = ([], []) if pending is None else pending.unmapped()
    planned = {name: region for name, region in planned.items() if all(name != one.name for one in entered)}
    planned_before = {region.name for region in before.regions if not region.image}
    planned_before -= {region.name for region in waiting}
    if planned.keys() == planned_before and all(region.has_stored_code for region in entered):
        return None
    kept = [*entered, *planned.values()]
    pcs = distinct(np.array([pc for region in kept for pc in region.pcs], np.int64))
    blocks = cache.facts.blocks[[cache.number_at(pc) for pc in pcs.tolist()]]
    code = merged_code([*code_ranges(block_spans(blocks), source), *waiting_code])
    starts = np.array([start for start, _ in code], np.int64)
    ends = np.array([start + len(part) for start, part in code], np.int64)
    places = np.searchsorted(starts, blocks["pc"], side="right") - 1
    inside = places >= 0
    inside[inside] = blocks["end_pc"][inside] <= ends[places[inside]]
    certain = set(pcs[inside].tolist())
    saved = [
        SavedRegion(
            region.name, tuple(region.entries), region.pcs, tuple(region.callees), region.indirect_targets,
            b"" if region.name in planned else region.image.packed(),
            b"" if region.name in planned else region.sums.packed(),
        )
        for region in kept
        if certain.issuperset(region.pcs)
    ]  # fmt: skip
    return SavedRegions((*saved, *waiting), tuple(code))
