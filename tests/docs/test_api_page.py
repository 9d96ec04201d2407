"""The API page: it builds without a warning, explains every name, and its examples run; links of documents lead on."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from instrumenter.building.program_build import build_program
from tests.measure.demo_program import PROGRAM

ROOT = Path(__file__).parents[2]
CAMPAIGN = """\
name: quickstart
program: {source: ../../mine.c}
machine: ../machines/desktop.yaml
sampling: {every: 4000 cycles}
hardware_metrics: [PAPI_TOT_INS, PAPI_LD_INS, PAPI_BR_MSP]
software_metrics:
  rounds: {event: entry, function: work}
  random: {event: call, callee: next}
variants: {light: [rounds], heavy: [rounds, random]}
noise: {code_layouts: 1}
baselines: 6
replicates: 2
"""


def load_script() -> ModuleType:
    """The script docs/api_page.py as a module."""
    spec = importlib.util.spec_from_file_location("api_page", ROOT / "docs" / "api_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


api_page = load_script()
EXAMPLES = [example for module in api_page.modules().values() for example in api_page.examples(module)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that examples name; the campaign is a small one of the quickstart's name. Results are shared."""
    made = tmp_path_factory.mktemp("examples")
    shutil.copytree(ROOT / "configs" / "machines", made / "configs" / "machines")
    (made / "mine.c").write_text(PROGRAM)
    (made / "configs" / "campaigns").mkdir()
    (made / "configs" / "campaigns" / "quickstart.yaml").write_text(CAMPAIGN)
    shutil.copy(build_program([made / "mine.c"], ["-O2"]).elf_path, made / "program")
    return made


@pytest.fixture(scope="module")
def results(folder: Path) -> Path:
    """The campaign's results, where `measure.run` leaves them."""
    import measure

    made = measure.run(
        folder / "configs" / "campaigns" / "quickstart.yaml", out=folder / "results" / "quickstart"
    ).directory
    for name in ("quickstart-seed2", "before", "after"):
        shutil.copytree(made, folder / "results" / name)
    return made


@pytest.mark.slow
@pytest.mark.parametrize(("name", "code"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_an_example_runs(name: str, code: str, folder: Path, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    namespace: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, f"example of {name}", "exec"), namespace)
    assert {"measure", "Machine", "load_machine"} & namespace.keys()  # each example stands alone


def test_the_page_has_no_defects(tmp_path: Path) -> None:
    assert api_page.build(tmp_path) == []
    page = (tmp_path / "measure.html").read_text()
    assert 'id="Result.trace"' in page
    assert re.search(r"<li><code>out</code>: directory of the results", page)
    assert "load_machine" in (tmp_path / "emulator.html").read_text()
    assert "API of the library" in (tmp_path / "index.html").read_text()


FAULTY = '''
"""A package. See `faulty.missing` and `faulty.bare`."""
__all__ = ["bare", "typed"]
def bare(number): ...
def typed(number: int) -> int:
    """Twice `numbr`, and `typed`."""
    return 2 * number
'''


def test_defects_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "faulty.py").write_text(FAULTY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(api_page, "PACKAGES", ("faulty",))
    assert api_page.defects(api_page.modules()["faulty"]) == [
        "faulty: `faulty.missing` leads to nothing",
        "faulty.bare: no docstring",
        "faulty.bare: parameter number has no type",
        "faulty.bare: the result has no type",
        "faulty.bare: no example",
        "faulty.typed: `numbr` leads to nothing",
        "faulty.typed: no example",
    ]


def test_explanations_of_names_become_a_list() -> None:
    text = "Do it.\n\n``a``: the first; ``b``, ``c`` (n,): two\nmore. Raises `E` for none.\n\n```python\n``x``: 1\n```"
    assert api_page.readable(text) == (
        "Do it.\n\n- ``a``: the first\n- ``b``, ``c``: (n,) two more\n\nRaises `E` for none."
        "\n\n```python\n``x``: 1\n```"
    )
    assert api_page.readable("``a``: the first; ``b``: two.", ["a"]) == "- ``b``: two"
    assert api_page.terms_of(text) == {"a": "the first", "b": "(n,) two more", "c": "(n,) two more"}


DOCUMENTS = [
    path for folder in (ROOT, ROOT / "docs", ROOT / "experiments", ROOT / "tests" / "conformance")
    for path in sorted(folder.glob("*.md") if folder == ROOT else folder.rglob("*.md"))
]  # fmt: skip


@pytest.mark.parametrize("document", DOCUMENTS, ids=[str(path.relative_to(ROOT)) for path in DOCUMENTS])
def test_links_of_documents_lead_to_files(document: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text())
    missing = [link for link in links if ":" not in link and not (document.parent / link).exists()]
    assert not missing, f"{document.relative_to(ROOT)}: {', '.join(missing)}"
