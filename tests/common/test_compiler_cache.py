"""The compiler's own cache: bounded, but never under a running compiler, nor libraries that a process links with."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from common import compiler_cache
from common.compiler_cache import Freed, bound, free, running, use_libraries
from common.file_cache import LIMIT_VARIABLE
from common.shared_folders import Usage, disk_usage, locked
from instrumenter.compiler.toolchain import Toolchain

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with 300 KiB in ``local`` and 200 KiB in ``global``."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(LIMIT_VARIABLE, "1M")
    folder = compiler_cache.compiler_cache()
    assert folder == tmp_path / "perturbation/zig"
    fill(folder)
    return folder


def fill(folder: Path) -> None:
    for name, n_bytes in (("local", 300 << 10), ("global", 200 << 10)):
        (folder / name / "o/1234").mkdir(parents=True, exist_ok=True)
        (folder / name / "o/1234/object").write_bytes(bytes(n_bytes))
    (folder / "ready-0.17.1-host").touch()


def bound_anew(folder: Path) -> None:
    """As the first run of the compiler in a process."""
    compiler_cache._looked_at.clear()
    bound(folder)


def there(folder: Path) -> set[str]:
    return {path.name.partition("-")[0] for path in folder.iterdir()} & {"local", "global", "ready"}


ALL = {"local", "global", "ready"}


@pytest.mark.parametrize(
    ("limit", "expected"),
    [("1M", ALL), ("400k", {"global", "ready"}), ("250k", {"global", "ready"}), ("150k", set())],
)
def test_the_limit(folder: Path, limit: str, expected: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, limit)
    bound_anew(folder)
    assert there(folder) == expected
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_sizes_are_found_once_a_day(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bound_anew(folder)
    monkeypatch.setenv(LIMIT_VARIABLE, "600k")
    (folder / "local/more").write_bytes(bytes(200 << 10))
    bound_anew(folder)
    assert there(folder) == ALL
    yesterday = time.time() - 25 * 3600
    os.utime(folder / "sizes", (yesterday, yesterday))
    bound_anew(folder)
    assert there(folder) == {"global", "ready"}
    local_bytes, global_bytes = map(int, (folder / "sizes").read_text().split())
    assert (local_bytes, global_bytes) == (0, disk_usage(folder / "global").n_bytes)
    (folder / "local").mkdir()
    bound_anew(folder)
    assert there(folder) == ALL


def test_what_a_killed_process_was_making_goes(folder: Path) -> None:
    for name, hours in ((".making-0123456789abcdef", 2), (".making-fedcba9876543210", 0)):
        (folder / name / "work").mkdir(parents=True)
        before = time.time() - 3600 * hours
        os.utime(folder / name, (before, before))
    bound_anew(folder)
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == [".making-fedcba9876543210"]


@pytest.mark.parametrize("text", ["", "rubbish", "1 2 3"])
def test_damaged_sizes_are_found_anew(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "400k")
    (folder / "sizes").write_text(text)
    bound_anew(folder)
    assert there(folder) == {"global", "ready"}


def test_nothing_goes_while_a_compiler_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "1k")
    with running(folder) as first, running(folder):
        assert len(first) == 1
        bound_anew(folder)
        assert free(folder) == Freed(None, None)
        assert there(folder) == ALL
    bound_anew(folder)  # is tried again at the next run, not a day later
    assert there(folder) == set()


_USER = """
import sys
from pathlib import Path
from common.compiler_cache import use_libraries
use_libraries(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.read()
"""


def test_libraries_stay_while_a_process_links_with_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "1k")
    with subprocess.Popen(
        [sys.executable, "-c", _USER, str(folder)], env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as user:  # fmt: skip
        assert user.stdout is not None
        assert user.stdout.readline() == "ready\n"
        bound_anew(folder)
        assert there(folder) == {"global", "ready"}
        fill(folder)
        bound_anew(folder)
        assert there(folder) == ALL  # `local` goes once a day, though the libraries are over the limit
        user.communicate("")
    bound_anew(folder)
    assert there(folder) == {"local"}


def test_all_is_removed_on_demand(folder: Path) -> None:
    expected = [Usage(1, disk_usage(folder / name).n_bytes) for name in ("local", "global")]
    assert free(folder) == Freed(*expected)
    assert there(folder) == set()
    assert free(folder) == Freed(Usage(0, 0), Usage(0, 0))


def test_the_cache_of_another_directory_is_left_to_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "1k")
    link = folder.with_name("link")
    link.symlink_to(folder)
    bound_anew(link)
    assert there(folder) == ALL


def test_a_cache_that_cannot_be_written_is_used_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    folder = tmp_path / "file/zig"
    bound_anew(folder)
    use_libraries(folder)
    with running(folder) as descriptors:
        assert descriptors == ()


_PARENT = """
import sys
from pathlib import Path
from instrumenter.compiler.toolchain import Toolchain
command = [sys.executable, "-c", "import sys, time; open(sys.argv[1], 'w'); time.sleep(60)", sys.argv[2]]
Toolchain.command = lambda self, arguments, driver="cc": command
toolchain = Toolchain()
if sys.argv[1] == "run":
    toolchain.run([], Path.cwd(), reads_input=True)
toolchain.become(command)
"""


@pytest.mark.parametrize("way", ["run", "become"])
def test_the_lock_lasts_as_long_as_the_compiler(folder: Path, way: str, tmp_path: Path) -> None:
    started = tmp_path / "started"
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT, way, str(started)], env={**os.environ, "PYTHONPATH": str(ROOT)}
    ) as parent:
        deadline = time.monotonic() + 30
        while not started.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert free(folder) == Freed(None, None)
        compiler = child_of(parent.pid) if way == "run" else parent.pid
        parent.send_signal(signal.SIGKILL)
    if way == "run":  # the compiler goes on
        assert free(folder) == Freed(None, None)
        os.kill(compiler, signal.SIGKILL)
    with locked(folder / "lock"):
        pass
    assert None not in free(folder)


def child_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def test_the_toolchain_bounds_its_cache(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "400k")
    monkeypatch.setattr(Toolchain, "command", lambda self, arguments, driver: [sys.executable, "-c", "print('hello')"])
    compiler_cache._looked_at.clear()
    assert Toolchain().run([], tmp_path) == (0, b"hello\n", b"")
    assert there(folder) == {"global", "ready"}
