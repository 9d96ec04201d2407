"""What a page needs to be used with a keyboard or a screen reader, checked without a browser."""

from __future__ import annotations

import base64
import csv
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = {"meta", "link", "br", "img", "input", "hr", "rect", "path"}


@dataclass
class _Element:
    tag: str
    attributes: dict[str, str]
    text: str = ""
    children: list[_Element] = field(default_factory=list)

    def every(self, tag: str) -> list[_Element]:
        return [one for child in self.children for one in ([child] if child.tag == tag else []) + child.every(tag)]

    @property
    def words(self) -> str:
        return " ".join([self.text, *(child.words for child in self.children)]).strip()


class _Tree(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = _Element("root", {})
        self.open = [self.root]
        self.unclosed: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = _Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(element)
        if tag not in _VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        if tag in _VOID:
            return
        if self.open[-1].tag != tag:
            self.unclosed.append(f"</{tag}> closes <{self.open[-1].tag}>")
            return
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].text += data


def problems(page: str) -> list[str]:
    """What is wrong with ``page``: unclosed elements, headings, tables, buttons, fields and images without names."""
    tree = _Tree()
    tree.feed(page)
    found = list(tree.unclosed)
    root = tree.root
    html = root.every("html")
    if len(html) != 1 or not html[0].attributes.get("lang"):
        found.append("no language")
    if not any(one.attributes.get("name") == "viewport" for one in root.every("meta")):
        found.append("no viewport for phones")
    if not all(one.words for one in root.every("title")) or not root.every("title"):
        found.append("no title")
    if len(root.every("h1")) != 1 or len(root.every("main")) != 1:
        found.append(f"{len(root.every('h1'))} h1, {len(root.every('main'))} main")
    for table in root.every("table"):
        heads = table.every("th")
        if not heads:
            found.append(f"a table without headings: {table.words[:60]}")
        found += [f"a heading without scope: {one.words}" for one in heads if "scope" not in one.attributes]
    for button in root.every("button"):
        if not (button.words or button.attributes.get("aria-label")):
            found.append("a button without a name")
        if button.attributes.get("type") != "button":
            found.append(f"a button that would send a form: {button.words}")
    for label in root.every("label"):
        if not label.text.strip() or not label.every("input") + label.every("select"):
            found.append(f"a label without text or field: {label.words}")
    fields = len(root.every("input")) + len(root.every("select"))
    if fields != len(root.every("label")):
        found.append(f"{fields} fields, {len(root.every('label'))} labels")
    found += ["a picture without a text" for one in root.every("img") if not one.attributes.get("alt")]
    found += [
        f"a scrolling part that a keyboard cannot reach: {one.words[:60]}"
        for one in root.every("div")
        if one.attributes.get("class") in ("scroll", "pairs") and one.attributes.get("tabindex") != "0"
    ]
    return found


def csv_in(page: str, name: str) -> list[list[str]]:
    """The rows of the CSV file ``name`` that a link of ``page`` saves, headings first."""
    found = re.search(rf'download="{re.escape(name)}.csv" href="data:text/csv;base64,([^"]*)"', page)
    assert found, f"no link saves {name}.csv"
    return list(csv.reader(base64.b64decode(found.group(1)).decode().splitlines()))


def figures_without_caption_or_data(page: str) -> list[str]:
    """The figures of ``page`` that lack a caption, or a link or a button for their data."""
    figures = re.findall(r"<figure.*?</figure>", page, re.S)
    assert figures
    return [
        one[:200]
        for one in figures
        if "<figcaption" not in one or not ('href="data:text/csv' in one or " data-csv" in one)
    ]
