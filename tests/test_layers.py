"""The layers of the house, as one table, held against the imports that the code really has."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("common", "emulator", "instrumenter", "measure")

BELOW_LINUX = ("emulator.errors", "emulator.listeners", "emulator.memory")
FILES_AND_MAPPINGS = (
    *BELOW_LINUX, "emulator.linux.abi", "emulator.linux.loader", "emulator.linux.kernel.clock", "emulator.linux.vfs",
    "emulator.linux.mm",
)  # fmt: skip

# What each part may import of the others; longest prefix wins. Parts not named may import what their package may.
LAYERS: dict[str, tuple[str, ...]] = {
    "common": ("common",),
    "emulator.errors": (),
    "emulator.listeners": (),
    "emulator.events": (),
    "emulator.native_code": ("common", "emulator.native_code"),
    "emulator.kernels": ("common", "emulator.kernels", "emulator.native_code"),
    "emulator.memory": ("emulator.errors", "emulator.listeners", "emulator.memory"),
    "emulator.isa": ("emulator.events", "emulator.isa"),
    "emulator.linux": (*BELOW_LINUX, "emulator.linux"),
    "emulator.linux.abi": (),
    "emulator.linux.loader": (
        *BELOW_LINUX,
        "common.cplusplus_symbols",
        "emulator.linux.abi",
        "emulator.linux.loader",
    ),
    "emulator.linux.kernel.clock": ("emulator.errors",),
    "emulator.linux.vfs": FILES_AND_MAPPINGS,
    "emulator.linux.mm": FILES_AND_MAPPINGS,
    "emulator.linux.kernel": (*FILES_AND_MAPPINGS, "emulator.linux.kernel"),
    "emulator.linux.syscalls": (*FILES_AND_MAPPINGS, "emulator.linux.kernel", "emulator.linux.syscalls"),
    "emulator.engine": (
        "common",
        "emulator.errors",
        "emulator.events",
        "emulator.isa",
        "emulator.listeners",
        "emulator.engine",
        "emulator.kernels",
        "emulator.native_code",
    ),
    "emulator.engine.persist.code_shadow": ("emulator.engine", "emulator.memory"),
    "emulator.timing": (
        "common",
        "emulator.errors",
        "emulator.events",
        "emulator.kernels",
        "emulator.timing",
    ),
    "emulator.pmu": ("emulator.errors", "emulator.timing"),
    "emulator.probes": ("emulator.events", "emulator.kernels", "emulator.probes_kernel"),
    "emulator.execution": (
        "emulator.errors",
        "emulator.events",
        "emulator.isa",
        "emulator.listeners",
        "emulator.memory",
        "emulator.linux",
        "emulator.engine",
        "emulator.kernels",
        "emulator.execution",
    ),
    "emulator.execution.virtual_time": ("emulator.events",),
    "emulator": ("common", "emulator"),
    "instrumenter": ("common", "instrumenter"),
    "measure.stats": ("measure.stats",),
    "measure.alignment": ("measure.alignment", "measure.stats", "emulator.kernels"),
    "measure.perturbation": ("common.listed_names", "measure.perturbation", "measure.stats", "measure.alignment"),
    "measure.report": ("measure.console", "measure.perturbation", "measure.report", "measure.result_files"),
    "measure.run_types": (),
    "measure.errors": (),
    "measure": ("common", "measure", "emulator", "instrumenter"),
}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for package in PACKAGES for path in (ROOT / package).rglob("*.py")}


@functools.cache
def imports(path: Path) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found.update(name if name in MODULES else node.module for name in whole)
    return frozenset(found)


def allowed(module: str) -> tuple[str, ...]:
    matching = [layer for layer in LAYERS if module == layer or module.startswith((layer + ".", layer + "_"))]
    return LAYERS[max(matching, key=len)]


def test_imports_follow_the_layers() -> None:
    wrong = []
    for module, path in sorted(MODULES.items()):
        permitted = allowed(module)
        for name in sorted(name for name in imports(path) if name.split(".")[0] in PACKAGES):
            if not any(name == layer or name.startswith((layer + ".", layer + "_")) for layer in permitted):
                wrong.append(f"{module} may import {permitted or 'nothing of ours'}, but imports {name}")
    assert not wrong, "\n".join(wrong)


def users_of(library: str) -> set[str]:
    return {m for m, path in MODULES.items() if any(n.split(".")[0] == library for n in imports(path))}


def test_heavy_libraries_stay_where_they_belong() -> None:
    # What finds kept translations wants to know the version.
    assert users_of("llvmlite") == {"emulator.native_code.llvm", "emulator.native_code.compiler"}
    assert all(module.startswith("instrumenter.") for module in users_of("clang"))
    assert users_of("numba") == {
        "emulator.kernels.numba_jit", "emulator.engine.instrument.numba_functions", "emulator.analyzers.inline_kernel"
    }  # fmt: skip


@pytest.mark.parametrize("command", ["measure.cli", "emulator.cli", "instrumenter.cli"])
def test_help_needs_no_heavy_library(command: str) -> None:
    code = (
        f"import sys; sys.argv=['x','--help']\nfrom {command} import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "heavy={'numba','llvmlite','scipy','pandas','matplotlib','pyarrow','clang','numpy'} & set(sys.modules)\n"
        "print('HEAVY', sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "HEAVY []"
    assert "Usage" in done.stdout


@pytest.mark.parametrize(
    "arguments", [["metrics", "configs/machines/desktop.yaml"], ["schema", "campaign"], ["schema", "summary"]]
)
def test_what_only_prints_needs_no_compiler_and_no_table(arguments: list[str]) -> None:
    code = (
        f"import sys\nfrom measure.cli import main\ntry: main({arguments!r})\nexcept SystemExit: pass\n"
        "heavy={'numba','llvmlite','scipy','pandas','matplotlib','pyarrow','clang','rich'} & set(sys.modules)\n"
        "print('HEAVY', sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "HEAVY []"


def test_no_module_imports_itself_through_others() -> None:
    """Imports inside functions and under TYPE_CHECKING count, too."""
    graph = {
        module: {name for name in imports(path) if name in MODULES and name != module}
        for module, path in MODULES.items()
    }
    assert not in_cycles(graph)


def in_cycles(graph: dict[str, set[str]]) -> list[str]:
    """The nodes that lie in a cycle of ``graph``, or between cycles."""
    while True:  # a node that names none of the others, or is named by none, is in no cycle
        named = set().union(*graph.values()) if graph else set()
        free = {node for node, names in graph.items() if not names or node not in named}
        if not free:
            return sorted(graph)
        graph = {node: names - free for node, names in graph.items() if node not in free}


def test_no_folder_imports_itself_through_others() -> None:
    """The folders and single modules right below each package."""
    graph: dict[str, set[str]] = {}
    for module, path in MODULES.items():
        named = {part_of(name) for name in imports(path) if name in MODULES}
        graph.setdefault(part_of(module), set()).update(named - {part_of(module)})
    assert len(graph) > 60
    assert not in_cycles(graph)


def part_of(module: str) -> str:
    """`measure.stats` for `measure.stats.intervals`; `measure.cli` for itself."""
    return ".".join(module.split(".")[:2])


def test_nothing_needs_the_optional_system_calls() -> None:
    optional = "emulator.linux.syscalls.optional"
    users = {m for m, path in MODULES.items() if any(name.startswith(optional) for name in imports(path))}
    assert {user for user in users if not user.startswith(optional)} == set()
