"""``emulate --cache-stats`` and ``emulate --cache-clear``: list and remove the contents of the cache directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from common.file_cache import LIMIT_VARIABLE, cache_directory, clear, kept_files, limit_bytes

if TYPE_CHECKING:
    from common.compiler_cache import Freed
    from common.shared_folders import Usage

_KINDS = {
    "regions": "programs: optimised translations",
    "object": "single objects: interpreters, regions",
}
_LIBRARIES = "the compiler's libraries: built again when needed"
_OTHERS = "others: kernels, sources, verdicts, records"
Row = tuple[int | str, int | str, int | str, str]


def show_cache(context: click.Context, _parameter: click.Parameter, value: Any) -> None:
    """Callback of ``--cache-stats``: print `statistics`, and end."""
    if value and not context.resilient_parsing:
        try:
            click.echo(statistics())
        except ValueError as error:
            raise click.ClickException(str(error)) from None
        context.exit()


def clear_cache(context: click.Context, _parameter: click.Parameter, value: Any) -> None:
    """Callback of ``--cache-clear``: remove what no process uses, and end."""
    if value and not context.resilient_parsing:
        click.echo(clear_all())
        context.exit()


def statistics() -> str:
    """A table of what the cache directory keeps: numbers, bytes on disk, and limits."""
    import time

    from common import build_cache
    from common.compiler_cache import compiler_cache
    from common.shared_folders import disk_usage

    base, limit = cache_directory(), limit_bytes()
    counts = {kind: [0, 0] for kind in _KINDS}
    for file in kept_files():
        row = counts.setdefault(file.kind, [0, 0])
        row[0] += 1
        row[1] += file.n_bytes
    kinds: list[Row] = [
        (number, size, "", f"  {_KINDS.get(kind, kind)}") for kind, (number, size) in counts.items() if number
    ]
    n_files, n_bytes = (sum(row[column] for row in counts.values()) for column in (0, 1))
    builds, unfinished = build_cache.kept_builds(base), build_cache.unfinished_builds(base)
    used = sum(time.time() - build.used < build_cache.DAY_SECONDS for build in builds)
    projects, compiler = disk_usage(base / build_cache.PROJECTS), disk_usage(compiler_cache())
    rows: list[Row] = [
        (len(builds), sum(build.n_bytes for build in builds), limit, f"builds, {used:,} used in the last day"),
        (*unfinished, "1 day", "builds begun, not finished"),
        (len(build_cache.project_trees(base)), projects.n_bytes, "1 day", "projects built by their own commands"),
        (*compiler, limit, "files of the compiler, libraries included"),
        (*_other_files(base), "", _OTHERS),
    ]
    all_bytes = n_bytes + sum(size for _, size, _, _ in rows if isinstance(size, int))
    rows = [row for row in rows if row[1]]
    rows = [(n_files, n_bytes, limit, "translations" + (", of these" if kinds else "")), *kinds, *rows]
    rows.append(("", all_bytes, "", "in all"))
    return "\n".join(
        [
            f"kept in {base}",
            f"{'number':>9}  {'on disk':>9}  {'at most':>9}",
            *map(_line, rows),
            "",
            "What was used least recently is removed first, but no build within a day of its",
            f"last use. {LIMIT_VARIABLE}=4G sets another limit for each of the three.",
            "--cache-clear removes all but the others.",
        ]
    )


def clear_all() -> str:
    """Remove translations, and what no process uses of builds, projects and the compiler's cache; a table of them."""
    from common import build_cache
    from common.compiler_cache import compiler_cache

    base = cache_directory()
    removed: list[tuple[int | str, ...]] = [(*clear(), "translations")]
    left: list[tuple[int | str, ...]] = []
    cleared = build_cache.clear_builds(base)
    if cleared.in_use:
        left.append(("", "", "builds and projects: in use by another process"))
    else:
        removed.append((*cleared.builds, "builds"))
        removed.append((*cleared.projects, "projects built by their own commands"))
        unfinished = build_cache.unfinished_builds(base)
        if unfinished.number:
            left.append((*unfinished, "builds begun in the last day"))
    zig = compiler_cache()
    if zig.is_symlink():
        left.append(("", "", f"files of the compiler: {zig.name} is a link to another folder"))
    elif zig.is_dir():
        parts = _free_compiler_cache(zig)
        for usage, what in zip(parts, ("files of the compiler", _LIBRARIES), strict=True):
            if usage is None:
                left.append(("", "", f"{what.partition(':')[0]}: in use by another process"))
            else:
                removed.append((*usage, what))
    others = _other_files(base)
    if others.n_bytes:
        left.append((*others, _OTHERS))
    lines = [f"removed from {base}", *map(_line, removed), *(["not removed", *map(_line, left)] if left else [])]
    return "\n".join(lines)


def _free_compiler_cache(folder: Path) -> Freed:
    from common.compiler_cache import Freed, free

    try:
        return free(folder)
    except OSError:
        return Freed(None, None)


def _other_files(base: Path) -> Usage:
    """The files that are neither translations nor listed by their folder."""
    from common import build_cache
    from common.compiler_cache import compiler_cache
    from common.shared_folders import Usage, disk_usage, entries

    listed = {base / build_cache.BUILDS, base / build_cache.PROJECTS, compiler_cache()}
    found = [disk_usage(entry.path) for entry in entries(base) if Path(entry.path) not in listed]
    found = [usage for usage in found if usage.n_bytes]  # without locks
    kept = list(kept_files())
    return Usage(
        sum(usage.number for usage in found) - len(kept),
        max(0, sum(usage.n_bytes for usage in found) - sum(file.n_bytes for file in kept)),
    )


def _line(row: tuple[int | str, ...]) -> str:
    """A number, sizes in bytes, and what they are of; text stays as it is."""
    number, *sizes, what = row
    columns = [f"{number:,}" if isinstance(number, int) else number]
    columns += [_size(size) if isinstance(size, int) else size for size in sizes]
    return "  ".join([*(f"{column:>9}" for column in columns), str(what)])


def _size(n_bytes: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if n_bytes < 1024:
            return f"{n_bytes:.0f} {unit}"
        n_bytes /= 1024
    return f"{n_bytes:.2f} GiB"
