"""``measure watch``: the command. Heavy modules are imported only when it is used."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(short_help="Watch a campaign at work, as a live page.")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, metavar="N", help="Port of the page. Default: any free one."
)
@click.option("--open", "open_page", is_flag=True, help="Open the page in the browser.")
@click.option("--once", type=click.Path(path_type=Path), metavar="FILE.html",
              help="Write the page once instead of serving it.")  # fmt: skip
def watch(directory: Path, port: int, open_page: bool, once: Path | None) -> None:
    """Watch the campaign whose results go to DIR: runs done, time left, and preliminary verdicts, as a live page.

    Serves the page on this machine only, until Ctrl-C. Reads the files of DIR and writes none, before, during and after
    `measure run`, which does not notice.

    \b
      measure run configs/campaigns/quickstart.yaml &
      measure watch results/quickstart --open
    """
    import os

    from measure.console.browser import open_in_browser
    from measure.errors import CampaignError
    from measure.result_files import check_file_place, write_text_atomically
    from measure.watch.server import WatchServer, render_watch
    from measure.watch.state import Observer

    observer = Observer(directory)
    if once is not None:
        check_file_place(once, "--once")
        state = observer.state()
        if state.problem:
            raise CampaignError(state.problem)
        if state.phase == "no campaign":
            click.echo(f"! {directory}: no campaign has begun there", err=True)
        write_text_atomically(once, render_watch(state, live=False))
        click.echo(f"Page: {once}")
        if open_page:
            open_in_browser(once.absolute().as_uri())
        return
    os.nice(10)  # the campaign's runs come first
    with WatchServer(observer, port) as server:
        click.echo(f"Watching {directory} at {server.url} (Ctrl-C ends)")
        if open_page:
            open_in_browser(server.url)
        server.serve_forever()
