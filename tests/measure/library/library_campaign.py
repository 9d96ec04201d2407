"""A small campaign for the tests of the library."""

from __future__ import annotations

from pathlib import Path

from tests.measure.demo_program import PROGRAM, source_file

ROOT = Path(__file__).parents[3]
CAMPAIGN = """\
name: demo
program: {{source: demo.c}}
machine: {machine}
sampling: {{every: 4000 cycles}}
hardware_metrics: [PAPI_TOT_INS, PAPI_LD_INS, PAPI_BR_MSP]
software_metrics:
  rounds: {{event: entry, function: work}}
  work: {{event: entry, function: work, add: "n"}}
  perturbing: {{event: call, callee: next}}
variants: {{light: [rounds, work], heavy: [rounds, perturbing]}}
baselines: {baselines}
replicates: {replicates}
"""


def write_campaign(folder: Path, baselines: int = 20, replicates: int = 4) -> Path:
    machine = ROOT / "configs" / "machines" / "desktop.yaml"
    (folder / "demo.c").symlink_to(source_file(PROGRAM))
    path = folder / "demo.yaml"
    path.write_text(CAMPAIGN.format(machine=machine, baselines=baselines, replicates=replicates))
    return path
