"""Instrumented text, word for word. A case is a folder ``golden/<case>`` with input.c, spec.yaml and expected.c.

``input.c`` stands for a source after the preprocessor. ``expected.c``: the rewritten source, then the counters' file.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from instrumenter.build import generate
from instrumenter.spec import InstrumentSpec
from instrumenter.toolchain import GUEST_TARGET
from instrumenter.yaml_border import load_model

CASES = sorted((Path(__file__).parent / "golden").iterdir())


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name)
def test_rewritten(case: Path) -> None:
    spec, _ = load_model(case / "spec.yaml", InstrumentSpec)
    preprocessed = {source: (case / source).read_text() for source in spec.sources}
    generated = generate(
        preprocessed, spec.flags, spec.metrics,
        placement=spec.placement, volatile=spec.volatile, target=GUEST_TARGET,
    )  # fmt: skip
    assert "".join(generated.files.values()) == (case / "expected.c").read_text()
    assert len(generated.files["0_input.c"].splitlines()) - len(
        preprocessed[Path("input.c")].splitlines()
    ) in (1, 2)
