"""Runs a script in a page in a headless browser, if this machine has one."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next((found for name in NAMES if (found := shutil.which(name))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason=f"no browser: none of {', '.join(NAMES)} in PATH")

_TEST = """<script>
const errors = [];
window.addEventListener("error", (event) => errors.push(event.message));
const clickOf = HTMLElement.prototype.click;
HTMLAnchorElement.prototype.click = function () { if (!this.download) clickOf.call(this); };
</script>"""
"""Links that a script makes to save a file do nothing: one download in five hangs a headless browser."""
_ENDING = """<script>
window.addEventListener("load", async () => {
  const found = await (async () => { %s })().catch((error) => ({ failed: String(error.stack) }));
  parent.postMessage(JSON.stringify({ ...found, errors }), "*");
});
</script>"""
_FRAME = """<!doctype html><pre id="told"></pre><script>
window.addEventListener("message", (event) => { document.getElementById("told").textContent = event.data; });
</script><iframe src="page.html" style="width:%dpx;height:1000px;border:0"></iframe>"""  # windows are 500 or wider


def shown(address: str, folder: Path, *, dark: bool = False) -> str:
    """The document at ``address``, as HTML, after ten seconds of the page's own time, in which waiting takes none."""
    assert BROWSER is not None
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", "--no-first-run",
        f"--user-data-dir={folder / 'profile'}", f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        "--window-size=1400,1100", "--virtual-time-budget=10000", "--dump-dom", address,
    ]  # fmt: skip
    environment = os.environ | {"HOME": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert done.stdout, done.stderr[-2000:]
    return done.stdout


def run_in(page: str, script: str, folder: Path, *, width: int = 1200, dark: bool = False) -> dict[str, Any]:
    """What ``script``, the body of a function, returns in ``page``; `errors` has the uncaught errors of the page."""
    path, frame = folder / "page.html", folder / "frame.html"
    frame.write_text(_FRAME % width, encoding="utf-8")
    head, tail = page.index("<head>") + len("<head>"), page.rindex("</body>")
    path.write_text(page[:head] + _TEST + page[head:tail] + _ENDING % script + page[tail:], encoding="utf-8")
    document = shown(frame.as_uri(), folder, dark=dark)
    found = re.search(r'<pre id="told">(.+?)</pre>', document, re.S)
    assert found, document[:2000]
    told: dict[str, Any] = json.loads(html.unescape(found.group(1)))
    assert "failed" not in told, told["failed"]
    return told
