"""`measure watch` before, during and after a campaign, as a page and as a server; `measure report --open`."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from click.testing import CliRunner, Result

from measure.cli import main
from measure.errors import CampaignError, MeasureError
from measure.runs.store import Store
from measure.watch.server import WatchServer, render_watch
from measure.watch.state import CampaignState, GroupState, Observer
from tests.measure.demo_program import PROGRAM
from tests.measure.fake_runs import fake_runs_in_this_process
from tests.measure.report.browser import needs_browser, shown
from tests.measure.report.page_structure import problems

ROOT = Path(__file__).parents[3]
CAMPAIGN = f"""\
name: demo
program: {{source: demo.c}}
machine: {ROOT}/configs/machines/desktop.yaml
sampling: {{every: 4000 cycles}}
hardware_metrics: [PAPI_TOT_INS, PAPI_LD_INS, PAPI_BR_MSP]
software_metrics:
  rounds: {{event: entry, function: work}}
  perturbing: {{event: call, callee: next}}
variants: {{light: [rounds], heavy: [rounds, perturbing]}}
baselines: 12
replicates: 8
outer: false
controls: false
noise: {{code_layouts: 1}}
"""


def measure(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("watched")
    (folder / "demo.c").write_text(PROGRAM)
    (folder / "c.yaml").write_text(CAMPAIGN)
    with fake_runs_in_this_process():
        result = measure("run", folder / "c.yaml", "--out", folder / "out", "--target", "fake")
    assert result.exit_code == 0, result.output
    return folder / "out"


@pytest.fixture
def begun(finished: Path, tmp_path: Path) -> Path:
    """The campaign with 24 of its 28 runs, a second apart, since it was started 30 seconds ago."""
    directory = tmp_path / "begun"
    (directory / "traces").mkdir(parents=True)
    keys = [one["key"] for one in json.loads((finished / "plan.json").read_text())["runs"]]
    start = time.time() - 30
    shutil.copy(finished / "plan.json", directory)
    os.utime(directory / "plan.json", (start, start))
    for n, key in enumerate(keys[:24]):
        trace = Path(shutil.copy(finished / "traces" / f"{key}.parquet", directory / "traces"))
        os.utime(trace, (start + 1 + n, start + 1 + n))
    return directory


def contents(directory: Path) -> dict[str, tuple[int, int]]:
    found = {path: path.stat() for path in directory.rglob("*")}
    return {str(path): (one.st_mtime_ns, one.st_size) for path, one in found.items()}


def test_before_the_campaign(tmp_path: Path) -> None:
    result = measure("watch", tmp_path / "out", "--once", tmp_path / "page.html")
    assert result.exit_code == 0, result.output
    assert f"! {tmp_path / 'out'}: no campaign has begun there" in result.output
    assert not (tmp_path / "out").exists()
    page = (tmp_path / "page.html").read_text()
    assert problems(page) == []
    assert f"measure run CAMPAIGN.yaml --out {tmp_path / 'out'}" in page


def test_while_it_runs(begun: Path) -> None:
    with Store(begun):  # what a running campaign holds
        before = contents(begun)
        observer = Observer(begun)
        state = observer.state()
        assert (state.phase, state.done, state.planned) == ("running", 24, 28)
        assert [group.name for group in state.groups] == ["baseline", "light", "heavy"]
        assert sum(group.done for group in state.groups) == 24
        assert state.left == "under 10 s left" or " s left" in state.left
        heavy = state.groups[2]
        assert heavy.verdict
        assert heavy.words
        assert not state.final
        page = render_watch(state, live=False)
        assert problems(page) == []
        assert "Verdicts so far: preliminary" in page
        assert '<progress max="28" value="24"' in page
        assert "noscript" not in page
        assert contents(begun) == before  # nothing is written where the campaign works
    assert observer.state().phase == "stopped"


def test_verdicts_are_computed_anew_when_a_tenth_of_the_runs_is_new(begun: Path, finished: Path) -> None:
    observer = Observer(begun)
    first = observer.state().groups
    there = {path.name for path in (begun / "traces").iterdir()}
    new = [path for path in sorted((finished / "traces").iterdir()) if path.name not in there]
    shutil.copy(new[0], begun / "traces")
    assert [one.words for one in observer.state().groups] == [one.words for one in first]
    for path in new[1:]:
        shutil.copy(path, begun / "traces")
    state = observer.state()
    assert (state.phase, state.done) == ("analysing", 28)  # there is no summary.json yet
    assert [one.words for one in state.groups] != [one.words for one in first]


def test_a_paired_campaign_has_no_verdict_before_it_has_enough_pairs(begun: Path) -> None:
    """Five pairs were tested as independent runs, with p = 0.004, where the campaign's own test found p = 0.078."""
    plan = json.loads((begun / "plan.json").read_text())["runs"]
    pairs = 0
    for one in reversed(plan):  # leave five pairs of each variant
        spec = one["spec"]
        if spec["variant"] != "baseline" and spec["replicate"] >= 5:
            (begun / "traces" / f"{one['key']}.parquet").unlink(missing_ok=True)
    for one in plan:
        pairs += one["spec"]["variant"] == "heavy" and (begun / "traces" / f"{one['key']}.parquet").exists()
    assert pairs == 5
    assert [one.verdict for one in Observer(begun).state().groups] == ["", "", ""]


def test_failed_runs_are_told(begun: Path) -> None:
    saved = json.loads((begun / "plan.json").read_text())["runs"]
    with Store(begun) as store:
        from measure.run_types import RunSpec

        store.save_failure(saved[26]["key"], RunSpec.from_json(saved[26]["spec"]), "the program ended with <3>")
    state = Observer(begun).state()
    assert sum(group.failed for group in state.groups) == 1
    assert "the program ended with &lt;3&gt;" in render_watch(state, live=True)


def test_after_the_campaign(finished: Path, tmp_path: Path) -> None:
    result = measure("watch", finished, "--once", tmp_path / "page.html")
    assert result.exit_code == 0, result.output
    page = (tmp_path / "page.html").read_text()
    verdicts = json.loads((finished / "summary.json").read_text())["variants"]
    assert "the campaign is finished" in page
    assert "preliminary" not in page
    assert f'<div class="word">{verdicts["heavy"]["verdict"]}</div>' in page
    assert f'href="{(finished / "report.html").as_uri()}"' in page


@pytest.fixture
def server(begun: Path) -> Iterator[WatchServer]:
    with WatchServer(Observer(begun)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_the_server_gives_page_and_state_on_this_machine_only(server: WatchServer, begun: Path) -> None:
    assert server.server_address[0] == "127.0.0.1"
    page = urlopen(server.url).read().decode()
    assert problems(page) == []
    assert "24 of 28 runs" in page
    assert 'fetch("state"' in page
    part = urlopen(server.url + "state").read().decode()
    assert "24 of 28 runs" in part
    assert "<html" not in part
    (begun / "report.html").write_text("the report")
    assert urlopen(server.url + "report.html").read() == b"the report"
    for path, host, status in (
        ("/plan.json", "127.0.0.1:1", 404),
        ("/../report.html", "127.0.0.1:1", 404),
        ("/", "example.com", 403),
    ):
        connection = http.client.HTTPConnection(*server.server_address[:2])  # type: ignore[arg-type]
        connection.request("GET", path, headers={"Host": host})
        assert connection.getresponse().status == status
        connection.close()


class Advancing(Observer):
    """A campaign in which a run ends between any two looks."""

    def state(self) -> CampaignState:
        self.looks = getattr(self, "looks", 0) + 1
        return CampaignState(
            str(self.directory), "running", f"look {self.looks}", (GroupState("light", self.looks, 9, 0),)
        )


@needs_browser
def test_the_page_follows_the_campaign(tmp_path: Path) -> None:
    with WatchServer(Advancing(tmp_path)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        page = shown(server.url, tmp_path)
        server.shutdown()
        thread.join()
    looks = re.search(r"<h1>look (\d)</h1>", page)
    assert looks is not None
    assert int(looks.group(1)) >= 3  # one every 3 of its 10 seconds
    assert f"<b>{looks.group(1)} of 9 runs</b>" in page


def test_a_port_in_use_is_an_error(server: WatchServer, begun: Path) -> None:
    port = server.server_address[1]
    with pytest.raises(MeasureError, match=f"port {port} cannot be used: .*; give another --port, or none"):
        WatchServer(Observer(begun), int(port))


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it(begun: Path, number: int, status: int) -> None:
    code = f"from measure.cli import main; main(['watch', {str(begun)!r}])"
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith(f"Watching {begun} at http://127.0.0.1:")
    process.send_signal(number)
    assert process.wait(timeout=30) == status
    process.stdout.close()


def test_bad_input(tmp_path: Path, begun: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(CampaignError, match="is a file, expected the directory of a campaign's results"):
        Observer(file)
    (begun / "plan.json").write_text("{}")
    result = measure("watch", begun, "--once", tmp_path / "page.html")
    assert result.exit_code == 2
    assert "plan.json is damaged" in result.output
    assert not (tmp_path / "page.html").exists()
    result = measure("watch", begun, "--once", tmp_path / "missing" / "page.html")
    assert result.exit_code == 2
    assert "no such directory" in result.output


def test_report_opens_the_browser(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or True)  # type: ignore[func-returns-value]
    assert measure("report", finished, "--open").exit_code == 0
    assert opened == [(finished / "report.html").as_uri()]
    monkeypatch.setattr(webbrowser, "open", lambda url: False)
    result = measure("report", finished, "--open")
    assert result.exit_code == 0
    assert f"No browser could be opened here: open {opened[0]}" in result.output
