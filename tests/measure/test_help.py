"""The help of every command teaches: an example, defaults, and options whose values have a name."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from emulator.cli import main as emulate
from instrumenter.cli import main as instrument
from measure.cli import main

ROOT = Path(__file__).parents[2]
COMMANDS = {f"measure {name}": command for name, command in main.commands.items()}
COMMANDS |= {"emulate": emulate, "instrument": instrument}


def help_of(command: click.Command) -> str:
    result = CliRunner().invoke(command, ["--help"], terminal_width=80)
    assert result.exit_code == 0
    return result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_shows_an_example(name: str) -> None:
    assert re.search(rf"^ +{name}( |$)", help_of(COMMANDS[name]), re.MULTILINE)


@pytest.mark.parametrize("name", COMMANDS)
def test_values_of_options_have_names(name: str) -> None:
    """Click's own names say what type a value has, not what it is."""
    found = re.findall(r"^ +(--\S+ +(?:INTEGER|FLOAT|TEXT)\b.*)", help_of(COMMANDS[name]), re.MULTILINE)
    assert found == []


@pytest.mark.parametrize("name", COMMANDS)
def test_files_in_examples_exist(name: str) -> None:
    """So that an example works when it is copied in a checkout."""
    for place in re.findall(r"(?:configs|experiments)/[\w/.-]+", help_of(COMMANDS[name])):
        assert (ROOT / place.rstrip(".,")).exists(), place


def test_the_list_of_commands_has_whole_sentences() -> None:
    lines = help_of(main).splitlines()
    begin = lines.index("Commands:") + 1
    listed = lines[begin : begin + len(main.commands)]
    assert [line.split()[0] for line in listed] == sorted(main.commands)
    assert not [line for line in listed if line.endswith("...") or not line.endswith(".")]
