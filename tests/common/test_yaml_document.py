"""YAML with line numbers: what is read, what is refused, and every problem with file, line and key."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from common.yaml_document import YamlDocument, problem_among, problem_at


class RefusedError(Exception):
    """The exception of this test's imaginary package."""


class Cache(BaseModel):
    model_config = ConfigDict(extra="forbid")

    size_bytes: int = Field(gt=0)
    kind: Literal["lru", "fifo"] = "lru"

    @model_validator(mode="after")
    def _even(self) -> Cache:
        if self.size_bytes % 2:
            raise ValueError(f"size_bytes is {self.size_bytes}, expected an even number")
        return self


class Machine(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern="^[a-z]+$")
    path: Path | None = None
    cache: Cache | None = None
    levels: dict[str, Cache] = {}
    sizes: tuple[int, ...] = Field((), min_length=1)
    word: int | bool | tuple[int, ...] = 0
    command: str = Field("-", min_length=2)
    arguments: tuple[str | int | float, ...] = ()
    hidden: str = Field("", exclude=True)

    @field_validator("path")
    @classmethod
    def _below(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        return value if value is None else Path((info.context or {})["folder"]) / value

    @model_validator(mode="after")
    def _no_level_of_that_name(self) -> Machine:
        if self.name in self.levels:
            raise problem_at(f"got '{self.name}', expected another name than the machine's", "levels", self.name)
        if self.hidden == self.command:
            raise problem_among(f"command is {self.command}, expected another than hidden", "command", "hidden")
        return self


TEXT = """\
# a machine
name: small
cache:
  size_bytes: 64
levels:
  one: {size_bytes: 2, kind: fifo}
  cache:
    size_bytes: 4
sizes: [1,
  2]
"""


def document(text: str) -> YamlDocument:
    return YamlDocument(text, "m.yaml", RefusedError)


def refused(text: str) -> str:
    with pytest.raises(RefusedError) as caught:
        document(text).validate(Machine, {"folder": "/"})
    return str(caught.value)


def test_data_lines_and_validation() -> None:
    read = document(TEXT)
    assert read.data["levels"]["one"] == {"size_bytes": 2, "kind": "fifo"}
    assert read.path == Path("m.yaml")
    assert read.where("name") == "m.yaml:2"
    assert read.where("levels", "one", "kind") == "m.yaml:6"
    assert read.where("sizes", 1) == "m.yaml:10"
    assert read.where("levels", "two", "kind") == "m.yaml:5"  # the nearest key above it
    assert read.where("nothing") == "m.yaml:2"
    assert read.where() == "m.yaml:2"
    assert read.validate(Machine).levels["cache"].size_bytes == 4
    assert document(f"{TEXT}path: a\n").validate(Machine, {"folder": "/b"}).path == Path("/b/a")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("name: small", "nam: small",
         "2: nam: unknown key, expected one of: name, path, cache, levels, sizes, word, command, arguments; "
         "did you mean 'name'?\n"
         "m.yaml:2: name: missing; it has no default"),
        ("kind: fifo", "size_byte: 2",
         "6: levels.one.size_byte: unknown key, expected one of: size_bytes, kind; did you mean 'size_bytes'?"),
        ("    size_bytes: 4", "    zz: 4\n    size_bytes: 4",
         "8: levels.cache.zz: unknown key, expected one of: size_bytes, kind"),
        ("  size_bytes: 64", "  size: 64",
         "3: cache.size_bytes: missing; it has no default\n"
         "m.yaml:4: cache.size: unknown key, expected one of: size_bytes, kind"),
        ("  size_bytes: 64", "  size_bytes: big", "4: cache.size_bytes: got 'big', expected a valid integer"),
        ("  size_bytes: 64", "  size_bytes: [64]", "4: cache.size_bytes: got a list, expected a valid integer"),
        ("  size_bytes: 64", "  size_bytes:", "4: cache.size_bytes: got nothing, expected a valid integer"),
        # A truth value was taken for 0 or 1, without a word.
        ("  size_bytes: 64", "  size_bytes: true", "4: cache.size_bytes: got true, expected a valid integer"),
        ("  2]", "  yes]", "10: sizes.1: got true, expected a valid integer"),
        ("name: small", "name: small\narguments: [a, no]",
         "3: arguments.1: got false, expected text, in quotes: YAML reads yes, no, on and off as truth values"),
        ("  size_bytes: 64", "  size_bytes: 0", "4: cache.size_bytes: got 0, expected greater than 0"),
        ("  size_bytes: 64", "  size_bytes: 65", "3: cache: size_bytes is 65, expected an even number"),
        ("kind: fifo", "kind: plru", "6: levels.one.kind: got 'plru', expected 'lru' or 'fifo'"),
        ("name: small", "name: Small", "2: name: got 'Small', expected text that matches '^[a-z]+$'"),
        ("name: small", "name: [small]", "2: name: got a list, expected text"),
        ("cache:\n  size_bytes: 64", "cache: 64", "3: cache: got 64, expected a mapping of keys to values"),
        ("sizes: [1,\n  2]", "sizes: 1", "9: sizes: got 1, expected a list"),
        ("sizes: [1,\n  2]", "sizes: []", "9: sizes: got none, expected at least 1"),
        ("name: small", "name: small\nword: {a: 1}",
         "3: word: got a mapping, expected a valid integer or a valid boolean or a list"),
        ("name: small", "name: small\ncommand: x",
         "3: command: got 'x', expected text of at least 2 characters"),
        ("  2]", "  two]", "10: sizes.1: got 'two', expected a valid integer"),
        ("  one:", "  small:", "6: levels.small: got 'small', expected another name than the machine's"),
        ("  2]", "  2]\nhidden: aa\ncommand: aa", "12: command is aa, expected another than hidden"),
        ("name: small", "name: small\nname: big", "3: name: given twice, first in line 2"),
        ("  2]", "  {a: 1, a: 2}]", "10: sizes.1.a: given twice, first in line 10"),
        ("name: small", "? [a]\n: 1", "2: got a list as a key, expected a name"),
        ("  one:", "  off:", "6: levels: got off as a key, expected a name: YAML reads off as a truth value unless it "
         "is quoted, 'off'"),
        ("name: small", "name: off",
         "2: name: got false, expected text, in quotes: YAML reads yes, no, on and off as truth values"),
        ("  one:", "  ? {a: 1}\n  : 2\n  one:", "6: levels: got a mapping as a key, expected a name"),
        ("sizes: [1,", "sizes: &a [*a,",
         "9: sizes.0: got an alias of a mapping or list that contains it, expected a value"),
        ("name: small", "name: 2020-13-01", ": not YAML: month must be in 1..12"),
        ("name: small", "name: [small",
         "3: not YAML: expected ',' or ']', but got ':' (while parsing a flow sequence, which begins at line 2)"),
        ("name: small", "name: !mine small", "2: not YAML: could not determine a constructor for the tag '!mine'"),
        ("name: small", "name: \x07", "2: not YAML: special characters are not allowed"),
    ],
)  # fmt: skip
def test_problems(old: str, new: str, message: str) -> None:
    assert old in TEXT
    expected = f"m.yaml{message}" if message.startswith(":") else f"m.yaml:{message}"
    assert refused(TEXT.replace(old, new)) == expected


def test_all_problems_are_reported_at_once_by_line() -> None:
    lines = refused("name: small\nname: big\nsizes: [1]\nsizes: [2]\n").splitlines()
    assert [line.split(":")[1] for line in lines] == ["2", "4"]
    lines = refused("cache: {size_bytes: 0}\nname: S\nx: 1\n").splitlines()
    assert [line.split(":")[1] for line in lines] == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("text", "got"), [("", "nothing"), ("# only this", "nothing"), ("- 1", "a list"), ("7", "a scalar")]
)
def test_only_a_mapping_is_a_document(text: str, got: str) -> None:
    with pytest.raises(RefusedError, match=f"^m.yaml:1: got {got}, expected a mapping of keys to values$"):
        document(text)


def test_an_alias_may_be_used_twice() -> None:
    read = document("a: &x {b: 1}\nc: *x\nd: {<<: *x, e: 2}\n")
    assert read.data == {"a": {"b": 1}, "c": {"b": 1}, "d": {"b": 1, "e": 2}}
    assert read.where("c", "b") == "m.yaml:1"


def test_keys_that_are_numbers() -> None:
    class Counts(BaseModel):
        counts: dict[int, int]

    assert document("counts: {1: 2}").validate(Counts).counts == {1: 2}
    with pytest.raises(RefusedError, match=r"^m.yaml:2: counts.3: got 'x', expected a valid integer$"):
        document("counts: {1: 2,\n  3: x}").validate(Counts)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    with pytest.raises(RefusedError, match=r"m\.yaml: cannot be read: No such file or directory$"):
        YamlDocument.read(path, RefusedError)
    path.write_bytes(b"name: caf\xe9")
    with pytest.raises(RefusedError, match=r"m\.yaml: is not UTF-8 text$"):
        YamlDocument.read(path, RefusedError)
    path.write_bytes(b"\x7fELF\x02\x01\xff")
    with pytest.raises(RefusedError, match=r"m\.yaml: is an executable, expected a YAML file$"):
        YamlDocument.read(path, RefusedError)
    path.write_text(TEXT)
    read: Any = YamlDocument.read(path, RefusedError)
    assert read.path == path
    assert read.where("cache") == f"{path}:3"


def test_aliases_of_aliases_do_not_take_for_ever() -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join(10 * [f'*a{n - 1}'])}]" for n in range(1, 12)]
    with pytest.raises(RefusedError, match=r"bomb\.yaml:\d+: got more than 100,000 values when aliases are expanded"):
        YamlDocument("\n".join(lines), "bomb.yaml", RefusedError)
