"""The C workloads, compiled for the host: they check themselves, and the same seed gives the same output."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKLOADS = Path(__file__).parents[1] / "experiments" / "workloads"
PROGRAMS = ("bwtzip", "netsimplex", "chess", "ooosim", "nbody")
# Not reached in a tiny run: it ends within a second even on a slow machine.
LIMIT_SECONDS = 60


def build(source: Path, program: Path) -> None:
    command = [sys.executable, "-m", "ziglang", "cc", "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror"]
    done = subprocess.run(
        [*command, str(source), "-lm", "-o", str(program)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(program), *arguments], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Executables by name, for the host."""
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        pytest.skip("the workloads are tried on Linux x86-64")
    folder = tmp_path_factory.mktemp("workloads")
    for name in PROGRAMS:
        build(WORKLOADS / f"{name}.c", folder / name)
    return {name: folder / name for name in PROGRAMS}


pytestmark = pytest.mark.xdist_group("workloads")


@pytest.mark.parametrize("name", PROGRAMS)
def test_tiny_run_checks_itself_and_is_deterministic(programs: dict[str, Path], name: str) -> None:
    first = run(programs[name], "tiny")
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith(f"{name}: ")
    assert first.stderr == ""
    assert run(programs[name], "tiny", "1").stdout == first.stdout, "1 is the default seed"
    other = run(programs[name], "tiny", "2")
    assert other.returncode == 0, other.stderr
    assert other.stdout != first.stdout


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(
    "arguments", [("huge",), ("0",), ("tiny", "-1"), ("tiny", "1x"), ("tiny", "1", "2", "3")]
)
def test_bad_arguments_give_the_usage(
    programs: dict[str, Path], name: str, arguments: tuple[str, ...]
) -> None:
    done = run(programs[name], *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(f"usage: {name} [tiny|small|medium|large|")
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("bwtzip", "bwtzip: input crc dfc541b3, output crc 9cdbc066\n"),
        ("netsimplex", "costs 65244, flow checksum 53fc973b5b9741b1\n"),
        ("chess", "chess: nodes 17, quiescence nodes 912, table hits 9 of 25, checksum 7de2614f7080e794\n"),
        ("ooosim", "ooosim: 18698 cycles in all, memory checksum aeb46f5bd1f61502\n"),
        ("nbody", "nbody: 1 rounds, checksum 81bde47b81feacf8\n"),
    ],
)
def test_output_is_the_same_on_every_machine(programs: dict[str, Path], name: str, output: str) -> None:
    """The expected lines were printed by gcc on x86-64 and by zig cc for RISC-V alike."""
    assert output in run(programs[name], "tiny").stdout


def test_chess_agrees_with_published_perft_counts(programs: dict[str, Path]) -> None:
    done = run(programs["chess"], "--perft", "4")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("chess: 24 perft counts agree")


def test_chess_notices_a_wrong_move_generator(programs: dict[str, Path], tmp_path: Path) -> None:
    """Without en passant captures the counts differ, and perft says where."""
    text = (WORKLOADS / "chess.c").read_text()
    assert text.count("else if (to == board.en_passant)") == 1
    broken = tmp_path / "chess.c"
    broken.write_text(text.replace("else if (to == board.en_passant)", "else if (false)"))
    build(broken, tmp_path / "chess")
    done = run(tmp_path / "chess", "--perft", "3")
    assert done.returncode == 1
    assert done.stderr == "chess: perft 2 of position 2 is 2038, not 2039\n"


@pytest.mark.parametrize("seed", ["1", "2"])
def test_netsimplex_agrees_with_shortest_paths(programs: dict[str, Path], seed: str) -> None:
    done = run(programs["netsimplex"], "--check", "400", seed)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("netsimplex: 400 instances agree with shortest paths (")


def test_netsimplex_notices_a_wrong_solution(programs: dict[str, Path], tmp_path: Path) -> None:
    """A pricing that stops too early leaves an arc that would still lower the cost."""
    text = (WORKLOADS / "netsimplex.c").read_text()
    assert text.count("int64_t worst = 0;") == 1
    broken = tmp_path / "netsimplex.c"
    broken.write_text(text.replace("int64_t worst = 0;", "int64_t worst = 5;"))
    build(broken, tmp_path / "netsimplex")
    done = run(tmp_path / "netsimplex", "tiny")
    assert done.returncode == 1
    assert "has reduced cost" in done.stderr


def test_bwtzip_notices_a_wrong_decoder(programs: dict[str, Path], tmp_path: Path) -> None:
    text = (WORKLOADS / "bwtzip.c").read_text()
    assert text.count("recency[0] = byte;\n    return byte;") == 1
    broken = tmp_path / "bwtzip.c"
    broken.write_text(text.replace("recency[0] = byte;\n    return byte;", "return byte;"))
    build(broken, tmp_path / "bwtzip")
    done = run(tmp_path / "bwtzip", "tiny")
    assert done.returncode == 1
    assert "CRC-32 is" in done.stderr


@pytest.mark.parametrize("seed", ["3", "4", "5"])
def test_bwtzip_returns_repetitive_input(programs: dict[str, Path], seed: str) -> None:
    """Among eight blocks some are repetitive enough for prefix doubling, some are not."""
    done = run(programs["bwtzip"], "208", seed)
    assert done.returncode == 0, done.stderr
    assert " in 8 blocks (" in done.stdout


def test_ooosim_notices_a_wrong_result(programs: dict[str, Path], tmp_path: Path) -> None:
    """Loads that ignore older stores see stale memory; the interpreter does not."""
    text = (WORKLOADS / "ooosim.c").read_text()
    assert text.count("if (!older->store)") == 1
    broken = tmp_path / "ooosim.c"
    broken.write_text(text.replace("if (!older->store)", "if (true)"))
    build(broken, tmp_path / "ooosim")
    done = run(tmp_path / "ooosim", "tiny")
    assert done.returncode == 1
    assert done.stderr.startswith("ooosim: ")
