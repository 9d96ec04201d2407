"""Instrumented text, word for word. A case is a folder ``golden/<case>`` with input.c, spec.yaml and expected.c.

``input.c`` stands for a source after the preprocessor. ``expected.c``: the rewritten source, then the counters' file.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from common.yaml_document import YamlDocument
from instrumenter.building.generated_sources import generate
from instrumenter.compiler.toolchain import GUEST_TARGET
from instrumenter.errors import SpecError
from instrumenter.spec.software_metrics import InstrumentSpec

CASES = sorted((Path(__file__).parent / "golden").iterdir())


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name)
def test_rewritten(case: Path) -> None:
    spec = YamlDocument.read(case / "spec.yaml", SpecError).validate(InstrumentSpec)
    preprocessed = {source: (case / source).read_text() for source in spec.sources}
    generated = generate(
        preprocessed, spec.flags, spec.metrics,
        placement=spec.placement, volatile=spec.volatile, target=GUEST_TARGET,
    )  # fmt: skip
    assert "".join(generated.files.values()) == (case / "expected.c").read_text()
    assert len(generated.files["0_input.c"].splitlines()) - len(preprocessed[Path("input.c")].splitlines()) in (1, 2)
