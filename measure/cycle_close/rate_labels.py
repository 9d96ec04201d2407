"""What the rates of `measure.cycle_close.rates` are called on pages and in pictures, with their units, and in narrow
tables."""

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

PICTURE_LABELS = {
    "cpi": "CPI\n[cycles/instruction]",
    ENERGY: "energy\n[nJ/instruction]",
    "l1d_hit_rate": "L1D hit rate",
    "l1i_hit_rate": "L1I hit rate",
    "l2_hit_rate": "L2 hit rate",
    "branch_hit_rate": "conditional branches\npredicted rightly",
}
"""In the order of the rows."""

SHORT_LABELS = {
    "cpi": "CPI",
    ENERGY: "nJ/instr.",
    "l1d_hit_rate": "L1D hits",
    "l1i_hit_rate": "L1I hits",
    "l2_hit_rate": "L2 hits",
    "branch_hit_rate": "branches",
}
