"""Says where a campaign's results come from: program, machine, design, noise, builds, runs and software versions."""

from __future__ import annotations

import platform

from measure.host.description import identity_of, parse_host
from measure.run_types import BASELINE
from measure.runs.build_notices import SecondRunOf
from measure.runs.builds import BuildFacts
from measure.runs.campaign_model import EACH_RUN
from measure.runs.executor import Outcome
from measure.runs.plan import Plan
from measure.runs.variance import components


def installed(package: str) -> str:
    """The name of a Python package and its installed version."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"{package} (not installed)"


def provenance_of(plan: Plan, outcome: Outcome) -> tuple[tuple[str, str], ...]:
    """Pairs of name and text: program, machine, settings, builds, runs and software versions."""
    campaign = plan.campaign
    program = campaign.program
    source = program.catalogue or ", ".join(p.name for p in ([program.source] if program.source else program.sources))
    how = " ".join(program.flags)
    if program.build is not None and program.directory is not None:
        source, how = f"{program.directory.name}/{program.binary}", program.build
    return (
        ("program", f"{source} {' '.join(str(a) for a in program.args)} ({how})"),
        ("machine", _machine(plan)),
        ("sampling", f"{campaign.sampling.mode}, every {campaign.sampling.every}"),
        ("seed", str(campaign.seed)),
        ("design", plan.history.text(campaign)),
        ("comparison", f"{campaign.pairs} pairs that share their noise" if campaign.pairs else "unpaired"),
        ("noise", ", ".join(f"{key}={value}" for key, value in campaign.noise.model_dump().items())),
        ("code layouts", _layouts(plan)),
        ("spread of z", components(outcome.runs, campaign.hardware_metrics, bool(campaign.pairs)).text),
        ("builds", ", ".join(f"{program} {layouts[0].key[:12]}" for program, layouts in _programs(plan))),
        ("runs", f"{len(outcome.runs)} ({outcome.reused} from before, {len(outcome.failures)} failed)"),
        _work_done(plan, outcome),
        ("delta, alpha", f"{campaign.delta}, {campaign.alpha_of_a_look:g}"),
        (
            "software",
            ", ".join(map(installed, ("perturbation", "ziglang", "libclang", "llvmlite", "numba", "numpy"))),
        ),
        ("host", f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"),
    )


def _programs(plan: Plan) -> list[tuple[str | SecondRunOf, tuple[BuildFacts, ...]]]:
    """The programs of variants and of their second runs, each with its layouts."""
    return [*plan.builds.items(), *((SecondRunOf(variant), found) for variant, found in plan.second_builds.items())]


def _layouts(plan: Plan) -> str:
    """How code and data were placed in the plan's runs."""
    linked = len({spec.layout_seed for spec in plan.specs if spec.layout_seed is not None})
    if linked:
        return f"{linked} orders of functions and data, linked anew for each run; runs of a pair have the same"
    shifted = len({spec.binary for spec in plan.specs if spec.variant == BASELINE})
    if plan.campaign.noise.code_layouts == EACH_RUN:
        return f"{shifted} shifts of the code, as the program cannot be linked anew: runs of one shift are alike"
    return f"{shifted} shifts of the code, as `noise: {{code_layouts: N}}` says: runs of one shift are alike"


def _machine(plan: Plan) -> str:
    """The machine for a reader."""
    if plan.campaign.host is None:
        return f"{plan.campaign.machine_file.name}, {plan.clock_hz / 1e6:g} MHz"
    known, host = identity_of(plan.machine_text), parse_host(plan.machine_text)
    named = [known[key] for key in ("model name", "architecture", "kernel", "host") if key in known]
    kernel = "; events in the kernel are left out" if host.without_kernel else ""
    return f"the host: {', '.join(named)}; processor {host.processor}{kernel}"


def _work_done(plan: Plan, outcome: Outcome) -> tuple[str, str]:
    """Name and text of what the runs executed."""
    seconds = sum(run.seconds for run in outcome.runs)
    if plan.campaign.host is not None:
        time_ns = sum(run.total_cycles for run in outcome.runs)
        return "executed", f"{time_ns / 1e9:.1f} s of processor time in {seconds:.1f} s of run time"
    simulated = sum(run.total_instructions for run in outcome.runs)
    return "simulated", f"{simulated:,} instructions in {seconds:.1f} s of run time"
