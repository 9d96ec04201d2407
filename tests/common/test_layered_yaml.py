"""YAML files that extend others, and settings on top: what is merged, and where each value is from."""

from __future__ import annotations

import tempfile
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from common.layered_yaml import parse_setting, read_layers


class RefusedError(Exception):
    """The exception of this test's imaginary package."""


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    size: int = 0
    names: tuple[str, ...] = ()


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str = ""
    inner: Inner = Inner()
    files: dict[str, str] = {}


def write(folder: Path, **texts: str) -> Path:
    """Files by name; returns the first one's path."""
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder / f"{next(iter(texts))}.yaml"


def refused(path: Path, *settings: str, model: type[BaseModel] = Outer) -> str:
    with pytest.raises(RefusedError) as caught:
        read_layers(path, RefusedError, settings).validate(model)
    return str(caught.value)


def naive(base: Any, layer: Any) -> Any:
    """The merging of two layers, a second time."""
    if not (isinstance(base, dict) and isinstance(layer, dict)):
        return layer
    removed = {key for key in base if key in layer and layer[key] is None}
    keys = [*(key for key in base if key not in removed), *(key for key in layer if key not in base)]
    return {
        key: naive(base[key], layer[key]) if key in base and key in layer else layer.get(key, base.get(key))
        for key in keys
    }


VALUES = st.recursive(
    st.integers(0, 9) | st.sampled_from(["text", None, True]),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from("abc"), below, max_size=3),
    max_leaves=6,
)
LAYER = st.dictionaries(st.sampled_from("abcd"), VALUES, max_size=3)


def leaves(value: Any, keys: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The keys of every value that is no mapping or list with content."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [leaf for key, item in items for leaf in leaves(item, (*keys, key))]
    return found or [keys]


def value_at(data: Any, keys: tuple[Any, ...]) -> Any:
    return reduce(lambda value, key: value[key], keys, data)


@given(st.lists(LAYER, min_size=1, max_size=4))
def test_layers_merge_as_the_naive_way_and_each_value_keeps_its_file(layers: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number}.yaml" for number in range(len(layers))]
        for number, layer in enumerate(layers):  # each extends the one before
            extended = {"extends": f"{number - 1}.yaml"} if number else {}
            paths[number].write_text(yaml.safe_dump({**layer, **extended}))
        document = read_layers(paths[-1], RefusedError)
    expected = reduce(naive, layers)
    assert document.data == expected
    for keys in leaves(expected):
        if not keys or value_at(expected, keys) == {}:  # an empty mapping: all that was in it may be taken back
            continue
        place = document.place(*keys)
        file = Path(place.where.rpartition(":")[0])
        # The file says so, and no later one says anything about the value.
        number = paths.index(file)
        assert value_at(layers[number], keys) == value_at(expected, keys)
        for later in layers[number + 1 :]:
            with pytest.raises((KeyError, IndexError, TypeError)):
                value_at(later, keys)


def test_a_chain_is_merged_and_errors_name_the_layer_that_set_the_value(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    path = write(tmp_path, top="extends: base/middle.yaml\nname: top\n")
    write(
        tmp_path / "base", middle="extends: low.yaml\ninner:\n  size: big\n", low="name: low\ninner: {names: [a, b]}\n"
    )
    told = refused(path)
    assert told.startswith(f"{tmp_path}/base/middle.yaml:3: inner.size: got 'big', expected a valid integer")
    document = read_layers(path, RefusedError, ["inner.size=4"])
    assert document.validate(Outer) == Outer(name="top", inner=Inner(size=4, names=("a", "b")))
    assert document.where("name") == f"{path}:2"
    assert document.where("inner", "names", 1) == f"{tmp_path}/base/low.yaml:2"
    assert document.place("inner", "names").folder == tmp_path / "base"
    assert document.place("inner", "size").folder == Path.cwd()


def test_null_takes_back_what_the_extended_file_says(tmp_path: Path) -> None:
    path = write(tmp_path, last="extends: base.yaml\ninner: null\nfiles: {b: null, c: new}", base=(
        "name: one\ninner: {size: 3}\nfiles: {a: first, b: second}"
    ))  # fmt: skip
    assert read_layers(path, RefusedError).validate(Outer) == Outer(name="one", files={"a": "first", "c": "new"})
    assert "inner.size" in refused(path, "inner.size=null")  # nothing is there to take back
    base = tmp_path / "base.yaml"
    assert read_layers(base, RefusedError, ["files=null", "inner.size=null"]).validate(Outer) == Outer(name="one")


def test_files_that_extend_each_other_are_named_in_order(tmp_path: Path) -> None:
    path = write(tmp_path, a="name: a\nextends: b.yaml\n", b="extends: c.yaml\n", c="extends: b.yaml\n")
    told = refused(path)
    assert told.startswith(f"{tmp_path}/c.yaml:1: extends: these files extend each other: ")
    assert told.endswith(f"{tmp_path}/b.yaml -> {tmp_path}/c.yaml -> {tmp_path}/b.yaml; one of them must not")
    assert "extend each other: " in refused(write(tmp_path, own="extends: ./own.yaml\n"))
    assert "extends: no such file: none.yaml (looked for" in refused(write(tmp_path, d="extends: none.yaml\n"))
    assert ":1: extends: got ['a.yaml'], expected the path" in refused(write(tmp_path, e="extends: [a.yaml]\n"))
    assert f"{tmp_path}/g.yaml:1: not YAML" in refused(write(tmp_path, f="extends: g.yaml\n", g="{"))


def test_settings_change_values_items_and_keys_with_dots(tmp_path: Path) -> None:
    path = write(tmp_path, a="inner: {size: 1, names: [a, b]}\nfiles: {/x.txt: x}\n")
    settings = ["inner.names.1=c", "inner.names.2=d", 'files."/y.txt"=y', "inner.size=7", "name='a=b'"]
    document = read_layers(path, RefusedError, settings)
    assert document.validate(Outer) == Outer(
        name="a=b", inner=Inner(size=7, names=("a", "c", "d")), files={"/x.txt": "x", "/y.txt": "y"}
    )
    assert read_layers(path, RefusedError, ["inner={size: 3}"]).data["inner"] == {"size": 3}
    assert read_layers(path, RefusedError, ["inner.names=[]"]).validate(Outer).inner.names == ()
    assert read_layers(write(tmp_path, b="name: b\n"), RefusedError, ["inner.size=2"]).validate(Outer).inner.size == 2


def test_the_first_item_makes_a_list_that_is_not_there(tmp_path: Path) -> None:
    path = write(tmp_path, a="name: a\n")
    document = read_layers(path, RefusedError, ["inner.names.0=-O3", "inner.names.1=-g"])
    assert document.validate(Outer).inner.names == ("-O3", "-g")
    assert refused(path, "inner.names.1=x") == (
        "--set inner.names.1=x: got '1', expected the number of an item of inner.names, 0 to 0 (0 adds one)"
    )
    assert refused(path, "name.0=x").endswith("a list that has '0' in it: --set name=... gives all of it anew")


def test_settings_that_cannot_be_are_told(tmp_path: Path) -> None:
    path = write(tmp_path, a="name: a\ninner: {names: [a]}\n")
    assert refused(path, "inner.sise=3") == (
        "--set inner.sise=3: inner.sise: unknown key, expected one of: size, names; did you mean 'size'?"
    )
    assert refused(path, "nane=x").endswith("unknown key, expected one of: name, inner, files; did you mean 'name'?")
    assert refused(path, "inner.size=big").startswith("--set inner.size=big: inner.size: got 'big', expected a valid")
    assert refused(path, "name.x=1").startswith("--set name.x=1: name is 'a', expected a mapping or a list")
    assert "got '5', expected the number of an item of inner.names, 0 to 1" in refused(path, "inner.names.5=x")
    assert "got 'x', expected the number of an item of inner.names" in refused(path, "inner.names.x=x")
    for wrong in ("name", "=3", "a..b=3", ".a=3", 'a"b=3'):
        assert refused(path, wrong).startswith(f"--set {wrong}: expected KEY=VALUE, such as --set delta=0.1")
    assert refused(path, "name=[").startswith("--set name=[: the value is not YAML")


@given(st.lists(st.text("abc./-", min_size=1), min_size=1, max_size=3), st.integers() | st.text("xyz"))
def test_any_quoted_keys_and_value_come_back(keys: list[str], value: int | str) -> None:
    text = ".".join(f'"{key}"' for key in keys) + "=" + yaml.safe_dump(value, default_flow_style=True)
    setting = parse_setting(text, RefusedError)
    assert (setting.keys, setting.value) == (tuple(keys), value)
