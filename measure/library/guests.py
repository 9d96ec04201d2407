"""What a program sees of this machine, as arguments of library calls say it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from emulator.guest_options import NOT_MAPPED, Guest, not_mapped
from measure.arguments import list_of, mapping_of, not_expected, path_of
from measure.errors import ArgumentError


def guest_of(
    root: Path | str | None,
    files: Mapping[str, Path | str] | None,
    writable: Sequence[str],
    environment: Mapping[str, str] | None,
) -> Guest:
    """The guest's view of the host. Raises `ArgumentError` for arguments of a wrong type or value."""
    shown = mapping_of(
        "files", files, "guest paths to paths here, such as {'/data': 'data'}", (str, os.PathLike),
        "a path (str or Path)",
    )  # fmt: skip
    for path in shown:
        if not path.startswith("/"):
            raise not_expected("files", path, f"an absolute guest path as each key, such as '/{path}'")
    variables = mapping_of(
        "environment", environment, "names to values, such as {'LANG': 'C'}", str, "the value as a str"
    )
    for variable in variables:
        if not variable or "=" in variable:
            raise not_expected("environment", variable, "a name without '=' as each key")
    mapped = {path: Path(host) for path, host in shown.items()}
    directory = None if root is None else path_of("root", root)
    if directory is not None and not directory.is_dir():
        raise not_expected("root", str(root), "a directory, which the program sees as /")
    paths = list_of("writable", writable, "guest paths")
    if missing := not_mapped(paths, directory, mapped):
        raise ArgumentError(
            f"writable: {missing} {NOT_MAPPED}, such as files={{'/data': DIRECTORY}}, writable=['/data']"
        )
    return Guest(directory, mapped, paths, variables)
