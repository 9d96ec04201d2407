"""Opens a page in the user's browser."""

from __future__ import annotations

import webbrowser

import click


def open_in_browser(url: str) -> bool:
    """Open ``url``; tells the address and returns False where there is no browser."""
    try:
        opened = webbrowser.open(url)
    except webbrowser.Error:
        opened = False
    if not opened:
        click.echo(f"No browser could be opened here: open {url}", err=True)
    return opened
