"""A helper process gives what the functions give, and nothing is lost when it is killed."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from measure.console.helper_process import HelperProcess
from measure.errors import StoreError


def prepare() -> None:
    os.environ["PREPARED_FOR_TEST"] = "yes"


def fail_to_prepare() -> None:
    raise ImportError("no such library")


def process_and_sum(numbers: list[int]) -> tuple[int, int]:
    return os.getpid(), sum(numbers)


def was_prepared() -> bool:
    return "PREPARED_FOR_TEST" in os.environ


def refuse(path: Path) -> None:
    print("this must not be taken for an answer")
    raise StoreError(f"{path} cannot be written")


def end_of_this_process() -> None:
    if "PREPARED_FOR_TEST" in os.environ:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture(autouse=True)
def found_by_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def test_functions_are_called_in_the_other_process() -> None:
    with HelperProcess(prepare) as helper:
        process, total = helper.call(process_and_sum, [1, 2, 3])
        assert total == 6
        assert process != os.getpid()
        assert helper.call(was_prepared)
        assert helper.call(process_and_sum, list(range(100_000)))[1] == sum(range(100_000))  # more than a pipe holds
    assert not was_prepared()


def test_errors_are_raised_here(tmp_path: Path) -> None:
    with HelperProcess(prepare) as helper:
        with pytest.raises(StoreError, match="cannot be written"):
            helper.call(refuse, tmp_path)
        assert helper.call(process_and_sum, [4])[1] == 4


def test_a_helper_that_cannot_prepare_still_answers() -> None:
    with HelperProcess(fail_to_prepare) as helper:
        assert helper.call(process_and_sum, [5])[1] == 5


def test_calls_happen_here_when_the_helper_is_killed() -> None:
    with HelperProcess(prepare) as helper:
        helper.call(end_of_this_process)
        assert helper.call(process_and_sum, [1, 2]) == (os.getpid(), 3)


def test_calls_happen_here_when_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with HelperProcess(prepare) as helper:
        assert helper.call(process_and_sum, [1, 2]) == (os.getpid(), 3)


def test_a_file_of_the_working_directory_is_no_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pickle.py").write_text("raise SystemExit('the wrong module')\n")
    monkeypatch.chdir(tmp_path)
    with HelperProcess(prepare) as helper:
        assert helper.call(process_and_sum, [1])[0] != os.getpid()


def test_the_helper_ends_when_its_parent_is_killed() -> None:
    program = textwrap.dedent("""
        import os, time
        from measure.console.helper_process import HelperProcess
        with HelperProcess(time.time) as helper:
            print(helper.call(os.getpid), flush=True)
            time.sleep(60)
    """)
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    helper = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    for _ in range(200):
        try:
            os.kill(helper, 0)
        except ProcessLookupError:
            return
        if Path(f"/proc/{helper}/stat").read_text().split(") ")[1].startswith("Z"):
            return  # a zombie: it has ended, and its parent has not read its status
        time.sleep(0.05)
    pytest.fail("the helper still runs")
