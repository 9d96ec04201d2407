"""``emulate --cache-stats`` and ``emulate --cache-clear``: list and remove the translations kept on disk."""

from __future__ import annotations

from typing import Any

import click

from common.file_cache import LIMIT_VARIABLE, cache_directory, clear, kept_files, limit_bytes

_KINDS = {
    "regions": "programs: optimised translations, one file a selection",
    "object": "single objects: interpreters, regions",
    "code": "programs: blocks, by earlier versions",
    "older": "programs, by earlier versions",
}


def show_cache(context: click.Context, _parameter: click.Parameter, value: Any) -> None:
    """Callback of ``--cache-stats``: print `statistics`, and end."""
    if value and not context.resilient_parsing:
        try:
            click.echo(statistics())
        except ValueError as error:
            raise click.ClickException(str(error)) from None
        context.exit()


def clear_cache(context: click.Context, _parameter: click.Parameter, value: Any) -> None:
    """Callback of ``--cache-clear``: remove all kept files, and end."""
    if value and not context.resilient_parsing:
        n_files, n_bytes = clear()
        click.echo(f"{n_files:,} files with {_size(n_bytes)} of translations removed from {cache_directory()}")
        context.exit()


def statistics() -> str:
    """A table of the kept translations: files and bytes on disk by kind."""
    counts = {kind: [0, 0] for kind in _KINDS}
    for file in kept_files():
        row = counts.setdefault(file.kind, [0, 0])
        row[0] += 1
        row[1] += file.n_bytes
    total_bytes = sum(n_bytes for _, n_bytes in counts.values())
    lines = [f"translations kept in {cache_directory()}", f"{'files':>10} {'on disk':>10}"]
    lines += [
        f"{n_files:>10,} {_size(n_bytes):>10}  {_KINDS.get(kind, kind)}"
        for kind, (n_files, n_bytes) in counts.items()
        if n_files
    ]
    total_files = sum(n_files for n_files, _ in counts.values())
    lines += [
        f"{total_files:>10,} {_size(total_bytes):>10}  in all",
        f"{'at most':>10} {_size(limit_bytes()):>10}  ({LIMIT_VARIABLE}); the least recently used are removed first",
    ]
    return "\n".join(lines)


def _size(n_bytes: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if n_bytes < 1024:
            return f"{n_bytes:.0f} {unit}"
        n_bytes /= 1024
    return f"{n_bytes:.2f} GiB"
