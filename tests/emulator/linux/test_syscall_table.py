"""The table of system calls: its rows against the ABI, the handlers and the modules, and the listing of it."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import types
from pathlib import Path

from emulator.linux import syscalls
from emulator.linux.abi.numbers import SYSTEM_CALL_NAMES
from emulator.linux.syscalls.syscall import FULL
from emulator.linux.syscalls.table import ALL_SYSTEM_CALLS, OPTIONAL_GROUPS, SYSTEM_CALLS


def test_rows_have_the_number_and_the_name_of_the_abi() -> None:
    table = ALL_SYSTEM_CALLS
    assert len(table) > 220
    assert {number: call.name for number, call in table.items()} == {n: SYSTEM_CALL_NAMES[n] for n in table}


def test_handlers_are_functions_of_a_task_and_integers() -> None:
    for call in ALL_SYSTEM_CALLS.values():
        assert isinstance(call.handler, types.FunctionType), call.name
        assert call.handler.__name__ == call.name
        assert call.handler.__closure__ is None, call.name
        first, *others = inspect.signature(call.handler).parameters.values()
        assert (first.name, first.annotation) == ("task", "Task"), call.name
        assert all(one.annotation == "int" for one in others), call.name
        assert call.n_arguments == len(others) <= 6, call.name


def test_only_full_support_needs_no_note() -> None:
    for call in ALL_SYSTEM_CALLS.values():
        assert bool(call.note) == (call.support is not FULL), call.name


def test_every_handler_is_in_the_table() -> None:
    """A public function whose name is that of a system call is its handler, and no other function has such a name."""
    handlers = {call.handler for call in ALL_SYSTEM_CALLS.values()}
    names = set(SYSTEM_CALL_NAMES.values())
    for name, module in list(sys.modules.items()):
        if name.startswith("emulator.linux.syscalls."):
            for key, value in vars(module).items():
                if isinstance(value, types.FunctionType) and value.__module__ == name and key in names:
                    assert value in handlers, f"{name}.{key}"


def test_modules_of_handlers_are_loaded_at_the_first_call() -> None:
    """The kernel starts without the modules that few programs need: nothing in it imports them."""
    code = """
import sys
import emulator.linux.linux_kernel
from emulator.linux.syscalls.table import SYSTEM_CALLS
print(sorted(name for name in sys.modules if "syscalls.optional." in name or name.endswith("inotify")))
print("emulator.linux.syscalls.file_copies" in sys.modules)
assert SYSTEM_CALLS[76].handler.__name__ == "splice"
print("emulator.linux.syscalls.file_copies" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "False", "True"]


def test_a_number_is_in_one_group() -> None:
    rows = [SYSTEM_CALLS, *OPTIONAL_GROUPS.values()]
    assert sum(map(len, rows)) == len(ALL_SYSTEM_CALLS)


def test_the_listing_names_every_call() -> None:
    command = [sys.executable, "-c", "from emulator.cli import main; main()", "--list-syscalls"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    rows = {line.split()[1]: line for line in lines[:-1]}
    assert rows.keys() == set(SYSTEM_CALL_NAMES.values())
    assert rows["read"].split() == ["63", "read", "full"]
    assert "partial" in rows["mremap"]
    assert "a shared mapping does not grow" in rows["mremap"]
    assert "(inotify)" in rows["inotify_init1"]
    assert "not supported" in rows["io_uring_setup"]
    assert max(map(len, lines)) <= 160


def test_a_wait_is_data() -> None:
    """Every wait is made of functions of a module, so that a snapshot can copy it: no lambda, no inner function."""
    checked = 0
    for path in Path(syscalls.__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_text())
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        imported = {a.asname or a.name for node in tree.body if isinstance(node, ast.ImportFrom) for a in node.names}
        handed_on = {"retry", "report"}  # parameters that helpers pass on; their callers pass functions of the module
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Wait":
                given = [call.args[0], *(k.value for k in call.keywords if k.arg in ("at_timeout", "if_interrupted"))]
                names = {one.id if isinstance(one, ast.Name) else ast.unparse(one).split(".")[0] for one in given}
                assert names <= functions | imported | handed_on, f"{path.name}:{call.lineno}: {names}"
                checked += 1
    assert checked > 10
