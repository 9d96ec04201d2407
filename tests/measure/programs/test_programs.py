"""The catalogue of programs and its fetcher, with archives made here: no network, no registry."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from measure.programs.catalogue import (
    ProgramError,
    ProgramSpec,
    ensure_project,
    ensure_sources,
    load_catalogue,
)
from measure.programs.source_archive import Archive, fetch_archive, unpack_archive

CATALOGUE = Path(__file__).parents[3] / "configs" / "programs.yaml"
FILES = {
    "demo-1.0/PKG-INFO": b"Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
    "demo-1.0/src/main.c": b"int main(void) { return 0; }\n",
    "demo-1.0/src/util.c": b"int util;\n",
    "demo-1.0/src/util.h": b"extern int util;\n",
    "demo-1.0/src/deep/other.c": b"int other;\n",
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def make_archive(path: Path, files: Mapping[str, bytes] = FILES, link: str | None = None) -> Archive:
    """Write a .tar.gz and return its description."""
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        if link is not None:
            info = tarfile.TarInfo(link)
            info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            tar.addfile(info)
    return Archive("pypi", "demo", "1.0", path.name, hashlib.sha256(path.read_bytes()).hexdigest())


class CopyFrom:
    """A downloader that copies from a folder, and counts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls = 0

    def __call__(self, archive: Archive, destination: Path) -> None:
        self.calls += 1
        shutil.copy(self.folder / archive.file, destination)


def catalogue_of(archive: Archive, extract: str, rest: str) -> str:
    """A catalogue with one third-party program; ``rest``: what comes behind ``extract``, indented by its level."""
    return f"""\
programs:
  demo:
    description: A demonstration.
    package:
      registry: {archive.registry}
      name: {archive.package}
      version: "{archive.version}"
      file: {archive.file}
      sha256: {archive.sha256}
      extract: [{extract}]
{rest}"""


def write_catalogue(path: Path, archive: Archive, extra: str = "") -> Path:
    """Write a catalogue with a program that is compiled from its sources."""
    rest = f"""\
      sources: [src/*.c]
      include_dirs: [src]
    defines: {{LEVEL: 3, BARE: }}
    flags: [-w]
    libraries: [m]
    arguments: {{medium: [10, "-"]}}
{extra}"""
    path.write_text(catalogue_of(archive, "src/*.h", rest))
    return path


def demo(tmp_path: Path, archive: Archive) -> ProgramSpec:
    return load_catalogue(write_catalogue(tmp_path / "programs.yaml", archive))["demo"]


# ---- the catalogue that ships ----------------------------------------------------------------------


def test_shipped_catalogue_has_our_programs_and_pinned_third_party_ones() -> None:
    catalogue = load_catalogue(CATALOGUE)
    ours = [name for name, spec in catalogue.items() if spec.package is None]
    assert ours == ["bwtzip", "netsimplex", "chess", "ooosim", "nbody", "jpegish", "lz77"]
    assert {"lua", "sqlite"} <= catalogue.keys()
    for spec in catalogue.values():
        assert set(spec.instructions) == set(spec.arguments), spec.name
        assert spec.instructions["small"] < 50_000_000 < spec.instructions["medium"] < 450_000_000, spec.name
        assert all(path.is_absolute() and path.is_file() for path in spec.sources), spec.name


def test_own_program_needs_no_fetching() -> None:
    spec = load_catalogue(CATALOGUE)["chess"]

    def refuse(archive: Archive, folder: Path) -> None:
        raise AssertionError("nothing should be downloaded")

    assert [path.name for path in ensure_sources(spec, refuse)] == ["chess.c"]
    assert spec.arguments_for("small") == ("small",)
    assert spec.arguments_for() == ("medium",)
    assert spec.compiler_flags() == []


def test_unknown_size_lists_the_sizes() -> None:
    with pytest.raises(ProgramError, match=r"chess: got the size 'huge', expected one of: tiny, small, medium, large"):
        load_catalogue(CATALOGUE)["chess"].arguments_for("huge")


# ---- mistakes in a catalogue -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "line", "problem"),
    [
        ("    flags:", "    flag:", 14, "programs.demo.flag: unknown key, expected one of: description, sources,"),
        (
            "      version:",
            "      release:",
            7,
            "programs.demo.package.release: unknown key, expected one of: registry,",
        ),
        ("      version:", "      release:", 4, "programs.demo.package.version: missing; it has no default"),
        (
            "registry: pypi",
            "registry: other",
            5,
            "programs.demo.package.registry: got 'other', expected 'pypi' or 'npm'",
        ),
        (
            "[src/*.h]",
            "[../*.h]",
            10,
            "programs.demo.package.extract: got '../*.h', expected a path below the archive's",
        ),
        ("medium: [10", "small: [10", 2, "programs.demo: arguments has no size 'medium', which is the default"),
        ("    flags: [-w]", "    stdin: none.txt", 14, "programs.demo.stdin: there is no file "),
        ("    flags: [-w]", "    libraries: [z]", 15, "programs.demo.libraries: given twice, first in line 14"),
        ("    flags: [-w]", "    name: other", 14, "programs.demo.name: got a name, expected none"),
        ("LEVEL: 3", "LEVEL: [3]", 13, "programs.demo.defines.LEVEL: got a list, expected text"),
    ],
)
def test_mistake_is_told_with_file_and_line(tmp_path: Path, old: str, new: str, line: int, problem: str) -> None:
    path = write_catalogue(tmp_path / "programs.yaml", Archive("pypi", "demo", "1.0", "demo-1.0.tar.gz", "e" * 64))
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ProgramError) as error:
        load_catalogue(path)
    assert f"{path}:{line}: {problem}" in str(error.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("programs: [", r"programs\.yaml:1: not YAML: "),
        ("program: {}", r"programs\.yaml:1: program: unknown key, expected one of: programs; did you mean"),
        ("- a", r"programs\.yaml:1: got a list, expected a mapping of keys to values"),
        ("programs: {x: 3}", r"programs\.yaml:1: programs.x: got 3, expected a mapping of keys to values"),
    ],
)
def test_what_is_no_catalogue_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "programs.yaml"
    path.write_text(text)
    with pytest.raises(ProgramError, match=problem):
        load_catalogue(path)


def test_missing_catalogue_is_told(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match=r"none\.yaml: cannot be read: No such file"):
        load_catalogue(tmp_path / "none.yaml")


# ---- fetching --------------------------------------------------------------------------------------


def test_package_is_fetched_once_and_only_listed_files_are_unpacked(tmp_path: Path) -> None:
    spec = demo(tmp_path, make_archive(tmp_path / "demo-1.0.tar.gz"))
    download = CopyFrom(tmp_path)
    sources = ensure_sources(spec, download)
    assert [path.name for path in sources] == ["main.c", "util.c"]
    assert sources[0].read_bytes() == FILES["demo-1.0/src/main.c"]
    assert spec.package is not None
    root = spec.package.directory
    assert root.is_relative_to(tmp_path / "cache" / "perturbation")
    unpacked = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    assert unpacked == {"src/main.c", "src/util.c", "src/util.h"}
    assert spec.compiler_flags() == [f"-I{root / 'src'}", "-DLEVEL=3", "-DBARE", "-w"]
    assert spec.linker_flags() == ["-lm"]
    assert spec.arguments_for() == ("10", "-")

    assert ensure_sources(spec, download) == sources
    assert download.calls == 1
    shutil.rmtree(root)  # the archive is still in the cache
    assert ensure_sources(spec, download) == sources
    assert download.calls == 1


def test_damaged_archive_in_the_cache_is_fetched_again(tmp_path: Path) -> None:
    archive = make_archive(tmp_path / "demo-1.0.tar.gz")
    download = CopyFrom(tmp_path)
    path = fetch_archive(archive, download)
    path.write_bytes(b"damaged")
    assert fetch_archive(archive, download) == path
    assert download.calls == 2
    assert path.read_bytes() == (tmp_path / "demo-1.0.tar.gz").read_bytes()


def test_other_content_is_refused_and_not_kept(tmp_path: Path) -> None:
    make_archive(tmp_path / "demo-1.0.tar.gz")
    archive = Archive("pypi", "demo", "1.0", "demo-1.0.tar.gz", "ab" * 32)
    with pytest.raises(ProgramError, match=r"has SHA-256 [0-9a-f]{64}, expected (ab){32}; it was deleted"):
        fetch_archive(archive, CopyFrom(tmp_path))
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


def test_registry_that_gives_another_file_is_told(tmp_path: Path) -> None:
    archive = make_archive(tmp_path / "demo-1.0.tar.gz")

    def other(archive: Archive, folder: Path) -> None:
        (folder / "demo-1.0.zip").touch()

    with pytest.raises(ProgramError, match=r"got demo-1\.0\.zip from the registry, expected demo-1\.0\.tar\.gz"):
        fetch_archive(archive, other)


@pytest.mark.parametrize("name", ["demo-1.0/../../escape.c", "/escape.c", "demo-1.0/src\\escape.c"])
def test_archive_with_a_file_outside_itself_is_refused(tmp_path: Path, name: str) -> None:
    archive = make_archive(tmp_path / "demo-1.0.tar.gz", {**FILES, name: b"int x;\n"})
    with pytest.raises(ProgramError, match="it has a file outside itself"):
        unpack_archive(archive, tmp_path / archive.file, ["src/*.c"])
    assert not list(tmp_path.rglob("escape.c"))
    assert not list((tmp_path / "cache").rglob("main.c")), "a refused archive leaves nothing behind"


def test_link_is_refused(tmp_path: Path) -> None:
    archive = make_archive(tmp_path / "demo-1.0.tar.gz", link="demo-1.0/src/passwd.c")
    with pytest.raises(ProgramError, match=r"demo-1\.0/src/passwd\.c: it is no regular file"):
        unpack_archive(archive, tmp_path / archive.file, ["src/*.c"])


def test_missing_file_and_unreadable_archive_are_told(tmp_path: Path) -> None:
    archive = make_archive(tmp_path / "demo-1.0.tar.gz")
    with pytest.raises(ProgramError, match=r"demo-1\.0\.tar\.gz has no file src/none\.c; correct 'extract'"):
        unpack_archive(archive, tmp_path / archive.file, ["src/*.c", "src/none.c"])
    (tmp_path / "broken.tar.gz").write_bytes(b"no archive")
    with pytest.raises(ProgramError, match="is not a readable tar archive"):
        unpack_archive(archive, tmp_path / "broken.tar.gz", ["src/*.c"])


# ---- the registries' clients -----------------------------------------------------------------------


def offline_pip(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    if importlib.util.find_spec("pip") is None:
        pytest.skip("pip is not installed")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))


def test_pip_fetches_a_source_archive_without_running_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offline_pip(monkeypatch, tmp_path)
    trap = f"open({str(tmp_path / 'executed')!r}, 'w')\nraise SystemExit('the package was executed')\n"
    archive = make_archive(tmp_path / "demo-1.0.tar.gz", {**FILES, "demo-1.0/setup.py": trap.encode()})
    assert [path.name for path in ensure_sources(demo(tmp_path, archive))] == ["main.c", "util.c"]
    assert not (tmp_path / "executed").exists()


def test_pip_that_finds_nothing_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    offline_pip(monkeypatch, empty)
    archive = make_archive(tmp_path / "demo-1.0.tar.gz")
    with pytest.raises(ProgramError) as error:
        ensure_sources(demo(tmp_path, archive))
    message = str(error.value)
    assert message.startswith("demo 1.0 (pypi): demo-1.0.tar.gz could not be fetched:\n")
    assert "No matching distribution found for demo==1.0" in message
    place = Path(message.rsplit(" there as ", 1)[1])
    shutil.copy(tmp_path / archive.file, place)  # what the message says helps
    assert len(ensure_sources(demo(tmp_path, archive))) == 2


def test_npm_is_asked_for_the_exact_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    npm = tools / "npm"
    npm.write_text(f'#!/bin/sh\necho "$@" > "{tmp_path}/asked"\ncp "{tmp_path}/demo-1.0.tgz" "$6"\n')
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    made = make_archive(tmp_path / "demo-1.0.tgz")
    archive = Archive("npm", "demo", "1.0", made.file, made.sha256)
    assert [path.name for path in ensure_sources(demo(tmp_path, archive))] == ["main.c", "util.c"]
    asked = (tmp_path / "asked").read_text()
    assert asked.startswith("pack demo@1.0 --ignore-scripts --silent --pack-destination ")


def test_missing_npm_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    archive = Archive("npm", "demo", "1.0", "demo-1.0.tgz", "0" * 64)
    with pytest.raises(ProgramError, match=r"the npm command was not found; install Node\.js with npm"):
        fetch_archive(archive)


# ---- programs with builds of their own -------------------------------------------------------------


def write_project_catalogue(path: Path, archive: Archive, build: str, package: str = "") -> Path:
    path.write_text(catalogue_of(archive, '"src/**"', f"{package}    build: {build}\n    arguments: {{medium: []}}\n"))
    return path


BUILD = "{directory: src, command: make, binary: demo, files: {/in.txt: deep/other.c}}"


def write_tar(path: Path, members: Mapping[str, tuple[bytes, int, int]]) -> bytes:
    with tarfile.open(path, "w:gz") as tar:
        for name, (content, mode, time) in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode, info.mtime = len(content), mode, time
            tar.addfile(info, io.BytesIO(content))
    return path.read_bytes()


@pytest.mark.parametrize("inner", [False, True])
def test_a_project_is_unpacked_whole_with_times_and_permissions(tmp_path: Path, inner: bool) -> None:
    members = {
        "demo-1.0/src/configure": (b"#!/bin/sh", 0o755, 1000), "demo-1.0/src/deep/other.c": (b"int x;", 0o600, 2000),
        "demo-1.0/else.c": (b"", 0o644, 3000),
    }  # fmt: skip
    path = tmp_path / "demo-1.0.tar.gz"
    package = ""
    content = write_tar(path, members)
    if inner:
        write_tar(path, {"package/a/source.tar.gz": (content, 0o644, 1)})
        package = "      inner: a/source.tar.gz\n"
    archive = Archive("pypi", "demo", "1.0", path.name, hashlib.sha256(path.read_bytes()).hexdigest())
    catalogue = load_catalogue(write_project_catalogue(tmp_path / "programs.yaml", archive, BUILD, package))
    download = CopyFrom(tmp_path)
    directory, files = ensure_project(catalogue["demo"], download)
    assert sorted(str(p.relative_to(directory.parent)) for p in directory.parent.rglob("*") if p.is_file()) == [
        "src/configure", "src/deep/other.c",
    ]  # fmt: skip
    assert files == {"/in.txt": directory / "deep/other.c"}
    about = [(path.stat().st_mode & 0o777, path.stat().st_mtime) for path in (directory / "configure", *files.values())]
    assert about == [(0o755, 1000), (0o644, 2000)]
    ensure_project(catalogue["demo"], download)
    assert download.calls == 1


def test_a_missing_inner_archive_or_directory_is_told(tmp_path: Path) -> None:
    archive = make_archive(tmp_path / "demo-1.0.tar.gz")
    path = write_project_catalogue(tmp_path / "programs.yaml", archive, BUILD, "      inner: none.tar.gz\n")
    with pytest.raises(ProgramError, match=r"demo-1.0.tar.gz has no file none.tar.gz; correct 'inner'"):
        ensure_project(load_catalogue(path)["demo"], CopyFrom(tmp_path))
    write_project_catalogue(path, archive, BUILD.replace("other.c", "another.c"))
    with pytest.raises(ProgramError, match=r"demo 1.0 \(pypi\) has no another.c; correct 'build'"):
        ensure_project(load_catalogue(path)["demo"], CopyFrom(tmp_path))


@pytest.mark.parametrize(
    ("build", "package", "problem"),
    [
        ("{command: make, binary: /bin/sh}", "", ":11: programs.demo.build: got '/bin/sh', expected a path below"),
        ("{comand: make, binary: x}", "", ":11: programs.demo.build.comand: unknown key, expected one of: command,"),
        (BUILD, "      sources: [a.c]\n", ":2: programs.demo: 'build' needs a 'package' without 'sources'"),
        (
            BUILD + "\n    flags: [-O2]",
            "",
            ":2: programs.demo: 'flags' means nothing beside 'build': say it in the command",
        ),
        ("null", "", ":2: programs.demo: package has neither 'sources' nor is there a 'build'"),
        (BUILD, "      inner: ../x\n", ":11: programs.demo.package.inner: got '../x', expected a path below"),
    ],
)
def test_a_mistaken_build_is_told(tmp_path: Path, build: str, package: str, problem: str) -> None:
    archive = Archive("pypi", "demo", "1.0", "demo-1.0.tar.gz", "e" * 64)
    path = write_project_catalogue(tmp_path / "programs.yaml", archive, build, package)
    with pytest.raises(ProgramError) as error:
        load_catalogue(path)
    assert f"{path}{problem}" in str(error.value)


def test_shipped_programs_with_builds_of_their_own() -> None:
    catalogue = load_catalogue(CATALOGUE)
    assert [name for name, spec in catalogue.items() if spec.build] == ["lua-make", "optipng", "minigzip"]
