"""The help of every command fits a terminal of 80 columns."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from emulator.cli import main as emulate
from instrumenter.cli import main as instrument
from instrumenter.projects.build_by_hand import main as build_by_hand
from measure.cli import main as measure


def commands() -> list[tuple[str, click.Command]]:
    assert isinstance(measure, click.Group)
    context = click.Context(measure)
    of_measure = [(name, measure.get_command(context, name)) for name in measure.list_commands(context)]
    found = [("measure", measure), *((f"measure {name}", command) for name, command in of_measure if command)]
    return [*found, ("emulate", emulate), ("instrument", instrument), ("instrument-build", build_by_hand)]


@pytest.mark.parametrize(("name", "command"), commands())
def test_no_line_of_a_help_is_wider_than_a_terminal(name: str, command: click.Command) -> None:
    shown = CliRunner().invoke(command, ["--help"], prog_name=name, terminal_width=80)
    assert shown.exit_code == 0
    assert [line for line in shown.output.splitlines() if len(line) > 80] == []
