"""Reads YAML files that extend others, with settings of a command line on top.

``extends: FILE`` in a file takes over everything of that file, which may extend another: mappings are merged key by
key, lists and other values are replaced, and ``key: null`` removes what the extended files say of the key, as in a
JSON Merge Patch (RFC 7396). A setting ``key.key.0=VALUE`` (`Setting`) is the last layer. The result knows the file and
line of each value, and the directory that its paths are relative to.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from common.yaml_document import Keys, Place, YamlDocument

EXTENDS = "extends"
_PART = re.compile(r'"([^"]*)"|([^."=]+)')


@dataclass(frozen=True)
class Setting:
    """One value of a command line: the keys that lead to it, and the text as it was given."""

    keys: tuple[str, ...]
    value: Any
    text: str


def read_layers(path: Path, error: type[Exception], settings: Sequence[str] = ()) -> YamlDocument:
    """The document in ``path`` with the files that it extends and with ``settings``, each ``KEY=VALUE``.

    Raises ``error`` as `YamlDocument.read`, for files that extend each other, and for settings that cannot be read or
    lead through values without keys.
    """
    layers = _chain(path, error)
    if len(layers) == 1 and not settings:
        return layers[0]
    data: dict[str, Any] = {}
    places: dict[Keys, Place] = {}
    for rank, layer in enumerate(reversed(layers)):
        own = {key: value for key, value in layer.data.items() if key != EXTENDS}
        _merge(data, places, own, layer, (), rank - len(layers))
    for number, text in enumerate(settings, start=1):
        _apply(parse_setting(text, error), data, places, number, error)
    document = YamlDocument.of_data(data, places, path, error)
    document.settings = tuple(settings)
    return document


def parse_setting(text: str, error: type[Exception]) -> Setting:
    """``KEY=VALUE``: keys and indices of lists with dots between them, a YAML value. A key with a dot stands in double
    quotes. Raises ``error``."""
    keys: list[str] = []
    position = 0
    while match := _PART.match(text, position):
        keys.append(match[1] if match[1] is not None else match[2].strip())
        position = match.end()
        if not text.startswith(".", position):
            break
        position += 1
    if not keys or not all(keys) or not text.startswith("=", position):
        raise error(
            f"--set {text}: expected KEY=VALUE, such as --set delta=0.1, --set sampling.every='50k cycles' or "
            '--set program.args.0=small; a key with a dot in double quotes: program.files."/input.txt"=FILE'
        )
    value = text[position + 1 :]
    try:
        return Setting(tuple(keys), yaml.safe_load(value), text)
    except (yaml.YAMLError, ValueError) as problem:
        raise error(f"--set {text}: the value is not YAML: {getattr(problem, 'problem', None) or problem}") from None


def _chain(path: Path, error: type[Exception]) -> list[YamlDocument]:
    """The document in ``path``, the one that it extends, and so on."""
    documents = [YamlDocument.read(path, error)]
    known = [path.resolve()]
    while EXTENDS in (document := documents[-1]).data:
        where, value = document.where(EXTENDS), document.data[EXTENDS]
        if not isinstance(value, str) or not value:
            raise error(f"{where}: {EXTENDS}: got {value!r}, expected the path of a file, relative to this one")
        following = document.path.parent / value
        if not following.is_file():
            raise error(f"{where}: {EXTENDS}: no such file: {value} (looked for {following.absolute()})")
        if following.resolve() in known:
            first = known.index(following.resolve())
            names = [str(one.path) for one in documents[first:]]
            raise error(
                f"{where}: {EXTENDS}: these files extend each other: {' -> '.join([*names, names[0]])}; one of them "
                "must not"
            )
        known.append(following.resolve())
        documents.append(YamlDocument.read(following, error))
    return documents


def _merge(
    data: dict[str, Any], places: dict[Keys, Place], own: dict[str, Any], layer: YamlDocument, above: Keys, rank: int
) -> None:
    """Merge the mapping ``own``, which is at ``above`` in ``layer``, into ``data`` and its places into ``places``."""
    for name, value in own.items():
        keys = (*above, str(name))
        below = data.get(name)
        if isinstance(value, dict) and isinstance(below, dict):
            places[keys] = layer.place(*keys)._replace(rank=rank)
            _merge(below, places, value, layer, keys, rank)
            continue
        _forget(places, keys)
        if value is None and name in data:
            del data[name]
            continue
        data[name] = _copied(value)
        for at, place in layer.places.items():
            if at[: len(keys)] == keys:
                places[at] = place._replace(rank=rank)


def _apply(
    setting: Setting, data: dict[str, Any], places: dict[Keys, Place], number: int, error: type[Exception]
) -> None:
    """Put the value of ``setting``, the command line's ``number``-th, into ``data``."""
    place = Place(1, number, f"--set {setting.text}", Path.cwd())
    keys: tuple[str | int, ...] = ()
    holder: Any = data
    key: Any  # of a mapping or a list
    for n, part in enumerate(setting.keys):
        last = n == len(setting.keys) - 1
        if isinstance(holder, list):
            if not part.isdecimal() or int(part) > len(holder):
                name = ".".join(map(str, keys))
                raise error(
                    f"{place.where}: got '{part}', expected the number of an item of {name}, 0 to {len(holder)} "
                    f"({len(holder)} adds one)"
                )
            key = int(part)
            if key == len(holder):
                holder.append(None)
        else:
            key = next((name for name in holder if str(name) == part), part)
        keys = (*keys, key if isinstance(key, int) else str(key))
        if last:
            _forget(places, keys)
            if setting.value is None and isinstance(holder, dict) and key in holder:
                del holder[key]
                return
            holder[key] = setting.value
            places[keys] = place
            return
        below = holder[key] if isinstance(holder, list) else holder.get(key)
        if below is None:
            # Numbers are items of lists: no key of a campaign or machine is one.
            below = holder[key] = [] if setting.keys[n + 1].isdecimal() else {}
            places[keys] = place
        if not isinstance(below, dict | list):
            raise error(
                f"{place.where}: {'.'.join(map(str, keys))} is {below!r}, expected a mapping or a list that has "
                f"'{setting.keys[n + 1]}' in it: --set {'.'.join(map(str, keys))}=... gives all of it anew"
            )
        holder = below


def _forget(places: dict[Keys, Place], keys: Keys) -> None:
    """Remove the places at and below ``keys``."""
    for at in [at for at in places if at[: len(keys)] == keys]:
        del places[at]


def _copied(value: Any) -> Any:
    """A copy of plain YAML data that shares no mapping and no list; aliases become values of their own."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value
