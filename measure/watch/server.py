"""The page of `measure watch`: as text, and served to a browser on this machine."""

from __future__ import annotations

from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from measure.console.time_left import clock_text
from measure.errors import MeasureError
from measure.report.page import render_page
from measure.run_types import BASELINE, NULL_CONTROL
from measure.watch.state import FEWEST_RUNS, CampaignState, Observer

FOLDER = Path(__file__).parent
ADDRESS = "127.0.0.1"
LOOK_SECONDS = 3


def render_watch(state: CampaignState, *, live: bool, part: bool = False) -> str:
    """The page; ``live``: it looks again by itself; ``part``: only what changes."""
    report = "report.html" if live else (Path(state.directory) / "report.html").absolute().as_uri()
    return render_page(
        "watch_state.html.jinja" if part else "watch.html.jinja", FOLDER, state=state, live=live, seconds=LOOK_SECONDS,
        fewest=FEWEST_RUNS, quiet=clock_text(state.quiet_seconds), report=report,
        compared=[group.name for group in state.groups if group.name not in (BASELINE, NULL_CONTROL)],
    )  # fmt: skip


class WatchServer(ThreadingHTTPServer):
    """Serves the state of a campaign on the loopback address. ``port``: 0 for any free one.

    Raises `MeasureError` when the port is taken.
    """

    daemon_threads = True

    def __init__(self, observer: Observer, port: int = 0) -> None:
        self.observer = observer
        try:
            super().__init__((ADDRESS, port), _Handler)
        except OSError as error:
            raise MeasureError(f"port {port} cannot be used: {error.strerror}; give another --port, or none") from None

    @property
    def url(self) -> str:
        """The page's address."""
        return f"http://{ADDRESS}:{self.server_address[1]}/"


class _Handler(BaseHTTPRequestHandler):
    server: WatchServer

    def do_GET(self) -> None:
        # A page of another site that a name leads here to is refused.
        if self.headers.get("Host", "").rpartition(":")[0] not in (ADDRESS, "localhost"):
            self.send_error(HTTPStatus.FORBIDDEN)
            return
        path = self.path.partition("?")[0]
        if path in ("/", "/state"):
            self._send(render_watch(self.server.observer.state(), live=True, part=path == "/state"))
        elif path == "/report.html":
            try:
                self._send((self.server.observer.directory / "report.html").read_text(encoding="utf-8"))
            except OSError:
                self.send_error(HTTPStatus.NOT_FOUND, "there is no report yet")
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _send(self, text: str) -> None:
        body = text.encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Requests are not logged."""
