"""The C workloads, compiled for the host: they check themselves, and the same seed gives the same output."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKLOADS = Path(__file__).parents[1] / "experiments" / "workloads"
PROGRAMS = ("bwtzip", "netsimplex", "chess", "ooosim", "nbody", "jpegish", "lz77")
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
@pytest.mark.parametrize("arguments", [("huge",), ("0",), ("tiny", "-1"), ("tiny", "1x"), ("tiny", "1", "2", "3")])
def test_bad_arguments_give_the_usage(programs: dict[str, Path], name: str, arguments: tuple[str, ...]) -> None:
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
        ("jpegish", "jpegish: 4 pictures of 16215 pixels, checksum 8a3dcbf27299cc24\n"),
        ("lz77", "lz77: input checksum 5df7d9ab, output checksum 3e901f60\n"),
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


def test_jpegish_modes_repeat_one_side_of_the_codec(programs: dict[str, Path]) -> None:
    """Blocks of both sides by mode; decoding again returns the same picture, so its checksum stays."""
    outputs = {mode: run(programs["jpegish"], "tiny", "1", mode).stdout for mode in ("both", "encode", "decode")}
    assert outputs["both"] == run(programs["jpegish"], "tiny").stdout
    assert "jpegish: 480 blocks encoded, 480 decoded, " in outputs["both"]
    assert "jpegish: 1920 blocks encoded, 480 decoded, " in outputs["encode"]
    assert "jpegish: 480 blocks encoded, 1920 decoded, " in outputs["decode"]
    last = {mode: text.splitlines()[-1] for mode, text in outputs.items()}
    assert last["decode"] == last["both"] != last["encode"]


@pytest.mark.parametrize("arguments", [("tiny", "1", "transcode"), ("tiny", "encode"), ("encode",)])
def test_jpegish_wants_the_mode_last(programs: dict[str, Path], arguments: tuple[str, ...]) -> None:
    done = run(programs["jpegish"], *arguments)
    assert done.returncode == 2
    assert "[SEED [both|encode|decode]]]" in done.stderr


@pytest.mark.parametrize("seed", ["3", "4", "5"])
def test_jpegish_keeps_to_its_bounds_at_every_level(programs: dict[str, Path], seed: str) -> None:
    """Thirteen or so pictures: each kind at three levels or more."""
    done = run(programs["jpegish"], "small", seed)
    assert done.returncode == 0, done.stderr
    assert all(f"level {level} -> " in done.stdout for level in range(4))
    assert all(f", {kind}, " in done.stdout for kind in ("smooth", "noise", "text", "edges"))


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        # The inverse transform, the expansion of negative values, the red of a pixel.
        ("C6 * line[2 * stride] - C2 * line[6", "C6 * line[2 * stride] + C2 * line[6", "the squared error"),
        ("value + 1 - (1 << size)", "value - (1 << size)", "the coefficients' sum is"),
        ("descale(91881 * r, 16)", "descale(91881 * b, 16)", "the mean squared error of picture"),
    ],
)
def test_jpegish_notices_a_wrong_decoder(tmp_path: Path, right: str, wrong: str, message: str) -> None:
    text = (WORKLOADS / "jpegish.c").read_text()
    assert text.count(right) == 1
    broken = tmp_path / "jpegish.c"
    broken.write_text(text.replace(right, wrong))
    build(broken, tmp_path / "jpegish")
    done = run(tmp_path / "jpegish", "tiny")
    assert done.returncode == 1
    assert message in done.stderr


@pytest.mark.parametrize(("seed", "blocks"), [("3", "37 blocks (11"), ("4", "40 blocks (16"), ("5", "41 blocks (15")])
def test_lz77_stores_every_block_of_noise(programs: dict[str, Path], seed: str, blocks: str) -> None:
    """With the code tables left out of a block's cost, fewer are stored, and the others grow."""
    done = run(programs["lz77"], "800", seed)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"lz77: 819200 bytes in {blocks} stored) -> ")


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("        out[i] = from[i];", "        out[i] = from[i > 0 ? i - 1 : 0];"),
        ("add_literal(data[position - 1]);", "add_literal(data[position]);"),
    ],
)
def test_lz77_notices_a_wrong_copy_or_literal(tmp_path: Path, right: str, wrong: str) -> None:
    text = (WORKLOADS / "lz77.c").read_text()
    assert text.count(right) == 1
    broken = tmp_path / "lz77.c"
    broken.write_text(text.replace(right, wrong))
    build(broken, tmp_path / "lz77")
    done = run(tmp_path / "lz77", "tiny")
    assert done.returncode == 1
    assert "a block's checksum is" in done.stderr
