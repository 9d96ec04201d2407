"""Reads and validates a campaign's YAML file; runs nothing. `campaign_model` has its keys."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from common.layered_yaml import read_layers
from common.yaml_document import YamlDocument
from measure.built_in.machine import built_in_machine
from measure.errors import CampaignError
from measure.programs.compiler_flags import with_paths
from measure.runs.campaign_model import Campaign, Program, SharedKeys
from measure.runs.machine_kind import check_machine_kind

MOST_FILES = 2_000
"""Below a directory that a program sees."""
AnyCampaign = TypeVar("AnyCampaign", bound=SharedKeys)


def load_campaign(path: Path, settings: Sequence[str] = ()) -> tuple[Campaign, YamlDocument]:
    """Read a campaign file with the files that it extends, and with ``settings`` (`common.layered_yaml`) on top.

    All paths become absolute; they are relative to the file that has them, in settings to the current directory.
    Raises `CampaignError`.
    """
    return load_campaign_as(path, Campaign, settings)


def _check_given(document: YamlDocument, program: Program) -> None:
    """Raise `CampaignError` for keys that have no meaning beside the others.

    This check concerns the user's file. The models' validators see only values, so that a campaign with its defaults
    written out (`measure.runs.plan_file`) stays valid.
    """
    for key, example in (("flags", "CFLAGS=-O2"), ("libraries", "LDLIBS=-lm")):
        if program.build is not None and key in document.data["program"]:
            raise CampaignError(
                f"{document.where('program', key)}: program.{key}: means nothing beside `build`, where the project's "
                f"own build compiles: say it in the command, such as make CC=$CC {example}"
            )


def files_at(guest: str, host: Path) -> dict[str, Path]:
    """The files that a program sees at the path ``guest``: the file ``host``, or all that are below that directory.

    Raises `CampaignError` for too many.
    """
    if not host.is_dir():
        return {guest: host}
    below = islice((path for path in host.rglob("*") if path.is_file()), MOST_FILES + 1)
    found = {f"{guest.rstrip('/')}/{path.relative_to(host)}": path for path in below}
    if len(found) > MOST_FILES:
        raise CampaignError(
            f"{host} has more than {MOST_FILES:,} files, all of which would be read for each plan: give those that the "
            "program needs"
        )
    return dict(sorted(found.items()))


def load_campaign_as(
    path: Path, model: type[AnyCampaign], settings: Sequence[str] = ()
) -> tuple[AnyCampaign, YamlDocument]:
    """As `load_campaign`, for another model with keys of its own."""
    document = read_layers(path, CampaignError, settings)
    return campaign_of(document, model), document


def campaign_of(document: YamlDocument, model: type[AnyCampaign]) -> AnyCampaign:
    """The campaign in ``document``; all paths become absolute. Raises `CampaignError`."""
    check = next((key for key in ("configurations", "sweep") if key in document.data), None)
    if model is Campaign and check is not None:
        raise CampaignError(
            f"{document.where(check)}: {check}: this is a file for `measure check-sampling`, which compares sampling "
            "configurations; a campaign compares `variants`"
        )
    campaign = document.validate(model, {})
    _check_given(document, campaign.program)
    if isinstance(campaign, Campaign):
        check_machine_kind(campaign, document)

    def resolve(value: Path, *keys: str | int, may_be_directory: bool = False) -> Path:
        absolute = (document.place(*keys).folder / value).resolve()
        if not absolute.is_file() and not (may_be_directory and absolute.is_dir()):
            hint = f". The machine that is built in is {built_in_machine()}" if keys == ("machine",) else ""
            raise CampaignError(f"{document.where(*keys)}: no such file: {value} (looked for {absolute}){hint}")
        return absolute

    program = campaign.program
    directory = None
    if program.directory is not None:
        directory = (document.place("program", "directory").folder / program.directory).resolve()
    if directory is not None and not directory.is_dir():
        where = document.where("program", "directory")
        raise CampaignError(f"{where}: no such directory: {program.directory} (looked for {directory})")
    files: dict[str, Path] = {}
    for guest, host in program.files.items():
        keys = ("program", "files", guest)
        place = resolve(host, *keys, may_be_directory=True)
        try:
            files.update(files_at(guest, place))
        except CampaignError as error:
            raise CampaignError(f"{document.where(*keys)}: {error}") from None
    changes: dict[str, Any] = {
        "files": files,
        "directory": directory,
        "source": resolve(program.source, "program", "source") if program.source else None,
        "sources": tuple(resolve(s, "program", "sources", n) for n, s in enumerate(program.sources)),
        "stdin": resolve(program.stdin, "program", "stdin") if program.stdin else None,
    }
    if sources := [*changes["sources"], *filter(None, [changes["source"]])]:
        beside = document.place("program", "flags").folder
        flags = with_paths(program.flags, sources[0].parent, beside, lambda path: str(path.resolve()))
        changes["flags"] = tuple(flags)
    if program.catalogue:
        key = "catalogue_file" if program.catalogue_file else "catalogue"
        changes["catalogue_file"] = resolve(program.catalogue_file or Path("../programs.yaml"), "program", key)
    updates: dict[str, Any] = {"program": program.model_copy(update=changes)}
    if campaign.host is None:
        updates["machine"] = resolve(campaign.machine_file, "machine")
    else:
        updates["sampling"] = campaign.sampling.model_copy(update={"mode": "signal"})
    return campaign.model_copy(update=updates)
