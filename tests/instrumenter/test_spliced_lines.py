"""The lines of preprocessed text whose source splices lines by a backslash at their ends."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from instrumenter.compiler.spliced_lines import with_spliced_lines
from instrumenter.compiler.toolchain import Toolchain
from instrumenter.find.line_markers import LineMap

SOURCE = r"""
#define CHOOSE(a, b) ((a) > 2 ? \
    (a) : (b))
#define CALL(x) calls(x)
int calls(int);
int first(int x) {
    int line7 = 0; /* not code \
    either */ int line8 = 3; \
    for (int i = line9; i < x; i++) \
        \
        i += line11 - CHOOSE(x, \
            CALL(3) - line11) + line12 \
            (4); if (x) line13++; \
    while (line14 < 3) i++; \
    const char *line15 = "a\
b"; line16(x);
    return line17;
}
#if 0
int nothing = \
    3;
#endif
#pragma GCC diagnostic ignored \
    "-Wunused"
int line25(void) { return \
    line26, \
    line27(__LINE__); }
int line28;
"""
"""Its names say their lines; names in the arguments of macros are on the lines of the macros' names."""


@pytest.mark.parametrize("line_end", ["\n", "\r\n", " \n"])
def test_each_word_is_on_its_line(line_end: str, tmp_path: Path) -> None:
    """All were on the first of the lines that are spliced, where neither users nor debuggers have them."""
    source = tmp_path / "demo.c"
    text = SOURCE.replace("\\\n", f"\\{line_end}") if line_end == " \n" else SOURCE.replace("\n", line_end)
    source.write_bytes(text.encode())
    found = Toolchain().preprocess(source, []).encode()
    lines = LineMap(found, "demo.c")
    named = [(int(match[1]), lines.place(match.start()).line) for match in re.finditer(rb"\bline(\d+)", found)]
    assert [name for name, _ in named] == [line for _, line in named]
    assert len(named) == 15


def test_text_of_which_no_source_is_there_stays_as_it_is(tmp_path: Path) -> None:
    text = '# 1 "<built-in>" 1\n# 1 "gone.c" 2\nint a; int b;\n'
    assert with_spliced_lines(text, tmp_path) == text
