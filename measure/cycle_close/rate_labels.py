"""What the rates of `measure.cycle_close.rates` are called on pages, with their units, and in narrow tables."""

from __future__ import annotations

from measure.cycle_close.rates import ENERGY

RATE_LABELS = {
    "cpi": "CPI [cycles/instruction]",
    ENERGY: "energy [nJ/instruction]",
    "l1d_hit_rate": "L1D hit rate",
    "l1i_hit_rate": "L1I hit rate",
    "l2_hit_rate": "L2 hit rate",
    "branch_hit_rate": "conditional branches predicted rightly",
}

SHORT_LABELS = {
    "cpi": "CPI",
    ENERGY: "nJ/instr.",
    "l1d_hit_rate": "L1D hits",
    "l1i_hit_rate": "L1I hits",
    "l2_hit_rate": "L2 hits",
    "branch_hit_rate": "branches",
}
