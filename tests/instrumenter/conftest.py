"""What tests of builds have in common."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.file_cache import cache_directory
from instrumenter.compiler.toolchain import Toolchain


@pytest.fixture(scope="session", autouse=True)
def _c_library() -> None:
    """Build the C library first: the test that does would get a message more than it expects."""
    Toolchain().prepare()


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds go to an empty cache; the compiler keeps its own, which takes long to fill."""
    zig = cache_directory() / "zig"
    zig.mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "the cache"))
    (tmp_path / "the cache/perturbation").mkdir(parents=True)
    (tmp_path / "the cache/perturbation/zig").symlink_to(zig)
