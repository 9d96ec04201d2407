"""The root directory that the programs run in: Debian packages, wheels and npm packages for riscv64, all pinned.

    python experiments/programs/root.py            fetch what is missing, and say where the root is
    python experiments/programs/root.py --lock     choose the Debian packages' versions anew, into debian.txt

Everything comes through the host's own clients (apt-get with an empty state of its own, pip, npm), is checked against
its SHA-256, and is unpacked into the user's cache; nothing is installed, and no script of a package is run. The mirror
is the one that the host's APT uses (or ``--mirror``): a Debian host, or one that has dpkg-deb and Debian's keys.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import yaml

from common.atomic_files import move_directory, write_text
from measure.programs.source_archive import Archive, ProgramError, fetch_archive, sources_directory

HERE = Path(__file__).parent
TABLE, LOCK = HERE / "programs.yaml", HERE / "debian.txt"
SUITE, ARCHITECTURE = "trixie", "riscv64"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# What configuration scripts would have made, and programs look for.
_MADE_FILES = {
    "etc/hosts": "127.0.0.1 localhost\n",
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nguest:x:1000:1000:guest:/:/bin/sh\n",
    "etc/group": "root:x:0:\nguest:x:1000:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
_MADE_LINKS = {"usr/bin/awk": "gawk"}
_MERGED = ("bin", "lib", "sbin")  # links into /usr, which a package's files may lie behind


def _run(command: list[str], environment: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    """The output of a client. Raises `ProgramError`."""
    try:
        done = subprocess.run(
            command, env={**os.environ, **(environment or {})}, cwd=cwd, capture_output=True, text=True, check=False
        )  # fmt: skip
    except FileNotFoundError as error:
        raise ProgramError(f"{command[0]} is not there: it is needed to fetch programs for riscv64") from error
    if done.returncode:
        raise ProgramError(f"{' '.join(command[:3])} failed:\n{(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout


class Apt:
    """The host's APT with a state of its own, in which nothing is installed and everything is riscv64."""

    def __init__(self, folder: Path, mirror: str | None) -> None:
        self._folder = folder
        for part in ("etc/apt.conf.d", "etc/preferences.d", "state/lists/partial", "cache/archives/partial"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        (folder / "state/status").touch()
        mirror = mirror or self._mirror_of_host()
        if not KEYRING.exists():
            raise ProgramError(f"{KEYRING} is not there: install debian-archive-keyring, which has Debian's keys")
        source = f"deb [arch={ARCHITECTURE} signed-by={KEYRING}] {mirror} {SUITE} main\n"
        (folder / "etc/sources.list").write_text(source)
        settings = {
            "APT::Architecture": ARCHITECTURE, "APT::Architectures": ARCHITECTURE, "Dir": folder,
            "Dir::Etc": folder / "etc", "Dir::State": folder / "state", "Dir::Cache": folder / "cache",
            "Dir::State::status": folder / "state/status", "APT::Sandbox::User": "",
        }  # fmt: skip
        lines = "".join(f'{name} "{value}";\n' for name, value in settings.items())
        (folder / "apt.conf").write_text(lines)
        self._environment = {"APT_CONFIG": str(folder / "apt.conf")}
        self._is_fresh = False

    @staticmethod
    def _mirror_of_host() -> str:
        lines = _run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]).split()
        found = [line for line in lines if line.rstrip("/").endswith("/debian")]
        if not found:
            raise ProgramError("the host's APT knows no mirror of Debian: name one with --mirror")
        return found[0]

    def run(self, *arguments: str, cwd: Path | None = None) -> str:
        """What a command of APT says, with lists of today."""
        if not self._is_fresh:
            self._is_fresh = True
            _run(["apt-get", "update", "-q"], self._environment)
        return _run(list(arguments), self._environment, cwd)

    def lock(self, packages: list[str]) -> list[str]:
        """A line for each package that these need: name, version, architecture, SHA-256, file."""
        options = ["-y", "--no-install-recommends", "--print-uris"]
        wanted = self.run("apt-get", "install", *options, *packages)
        files = [line.split()[1] for line in wanted.splitlines() if line.startswith("'")]
        lines = []
        for file in files:
            name, version, architecture = file.removesuffix(".deb").split("_")
            version = version.replace("%3a", ":")
            shown = self.run("apt-cache", "show", f"{name}={version}")
            digest = next(line.split()[1] for line in shown.splitlines() if line.startswith("SHA256:"))
            lines.append(f"{name} {version} {architecture} {digest} {file}")
        return sorted(lines)

    def download(self, archive: Archive, folder: Path) -> None:
        """A `Downloader` for packages of Debian."""
        self.run("apt-get", "download", f"{archive.package}={archive.version}", cwd=folder)


def _download_wheel(archive: Archive, folder: Path) -> None:
    """A `Downloader` for wheels of another platform than the host's."""
    platform = archive.file.removesuffix(".whl").split(".")[-1].split("-")[-1]  # of several, pip prefers the first
    options = ["--no-deps", "--only-binary", ":all:", "--disable-pip-version-check", "-q", "-d", str(folder)]
    wanted = f"{archive.package}=={archive.version}"
    _run([sys.executable, "-m", "pip", "download", *options, "--platform", platform, wanted])


def _unpack_deb(path: Path, root: Path) -> None:
    _run(["dpkg-deb", "-x", str(path), str(root)])


def _unpack_wheel(path: Path, folder: Path) -> None:
    with zipfile.ZipFile(path) as wheel:
        for member in wheel.infolist():
            target = Path(wheel.extract(member, folder))
            mode = member.external_attr >> 16 & 0o777
            if mode and not member.is_dir():
                target.chmod(mode)


def _unpack_npm(path: Path, folder: Path) -> None:
    with tarfile.open(path) as package:
        package.extractall(folder, filter="data")


def _locked() -> list[list[str]]:
    return [line.split() for line in LOCK.read_text().splitlines() if not line.startswith("#")]


def _key(table: dict[str, dict[str, str]]) -> str:
    """What the root depends on."""
    return hashlib.sha256(repr((_locked(), table, _MADE_FILES, _MADE_LINKS)).encode()).hexdigest()[:16]


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Only one process fills a folder at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def ensure_root(mirror: str | None = None) -> Path:
    """The root directory, made when it is not there. Raises `ProgramError` without clients, network or a package."""
    packages = yaml.safe_load(TABLE.read_text())["packages"]
    base = sources_directory() / "guests"
    root = base / _key(packages)
    with _alone(base):
        if root.is_dir():
            return root
        making = base / f"{root.name}.making"
        shutil.rmtree(making, ignore_errors=True)
        for name in _MERGED:
            (making / "usr" / name).mkdir(parents=True)
            (making / name).symlink_to(f"usr/{name}")
        apt = Apt(base / "apt", mirror)
        for name, version, architecture, digest, file in _locked():
            archive = Archive("debian", name, version, file, digest)
            _unpack_deb(fetch_archive(archive, apt.download), making)
            print(f"{name} {version} ({architecture})", file=sys.stderr)
        for name, package in packages.items():
            registry = "npm" if "npm" in package else "pypi"
            archive = Archive(registry, package[registry], package["version"], package["file"], package["sha256"])
            download = _download_wheel if registry == "pypi" else None
            unpack = _unpack_wheel if registry == "pypi" else _unpack_npm
            unpack(fetch_archive(archive, download), making / "opt" / name)
            print(archive, file=sys.stderr)
        for path, text in _MADE_FILES.items():
            target = making / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        for path, end in _MADE_LINKS.items():
            (making / path).symlink_to(end)
        move_directory(making, root)
    return root


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lock", action="store_true", help="write debian.txt anew")
    parser.add_argument("--mirror", help="of Debian; default: the host's own")
    arguments = parser.parse_args()
    try:
        if arguments.lock:
            apt = Apt(sources_directory() / "guests" / "apt", arguments.mirror)
            lines = apt.lock(yaml.safe_load(TABLE.read_text())["debian"])
            head = f"# Debian {SUITE}, {ARCHITECTURE}: name, version, architecture, SHA-256, file\n"
            write_text(LOCK, head + "".join(f"{line}\n" for line in lines))
        print(ensure_root(arguments.mirror))
    except ProgramError as error:
        raise SystemExit(f"root.py: {error}") from None


if __name__ == "__main__":
    main()
