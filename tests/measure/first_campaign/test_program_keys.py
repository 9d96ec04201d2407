"""What a program is made of: flags, and the files beside it that define what a link misses."""

from __future__ import annotations

from pathlib import Path

import pytest

from measure.errors import CampaignError
from measure.first_campaign.program_keys import flag_keys, sources_that_define

FILES = {
    "main.cpp": "int main() { return far(1); }\n",
    "far.c": "int far(int n)\n{\n    return n;\n}\n",
    "other.c": "int far(int n) { return n; }\nint main(void) { return far(2); }\n",
    "one_line.cpp": "struct Box { int n; int turn() { return n; } }; int near(int n) { return n; } int last;\n",
    "asking.c": "int ask(int n)\n{\n    if (far(n)) {\n        return near(n);\n    }\n    return 0;\n}\n",
    "caller.c": "int near(int n) { return n + far(n); }\n",
    "engine.cpp": "namespace app {\nEngine::Engine(const Config &c) : config(c) {}\n"
                  "unsigned Engine::run(unsigned n) const {\n    return n;\n}\n}\n",
    "runner.cpp": "struct Runner { unsigned run(unsigned n) { return n; } };\n",
    "vector.cpp": "Vector operator+(const Vector &a, const Vector &b) { return a; }\n"
                  "std::ostream &operator << (std::ostream &out, const Vector &one) { return out; }\n",
    "data.cpp": "int Engine::shared = 3;\n",
    "stack.cpp": "template <class T> void Stack<T>::push(T one) { items.add(one); }\ntemplate class Stack<int>;\n",
    "old.ii": "int far(int n) { return n; }\n",
}  # fmt: skip


@pytest.mark.parametrize(("missing", "files"), [
    ("near(int)", ["caller.c", "one_line.cpp"]),
    ("far", ["far.c"]), ("far(int)", ["far.c"]), ("app::Engine::run(unsigned int) const", ["engine.cpp"]),
    ("app::Engine::Engine(app::Config const&)", ["engine.cpp"]), ("app::Engine::shared", ["data.cpp"]),
    ("operator+(Vector const&, Vector const&)", ["vector.cpp"]), ("nothing(int)", []),
    ("operator<<(std::__1::basic_ostream<char, std::__1::char_traits<char>>&, Vector const&)", ["vector.cpp"]),
    ("Stack<int>::push(int)", ["stack.cpp"]),
])  # fmt: skip
def test_the_file_that_defines_a_name_is_found(tmp_path: Path, missing: str, files: list[str]) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    assert [path.name for path in sources_that_define([missing], [tmp_path / "main.cpp"])] == files


def test_flags_are_split_as_a_shell_does(tmp_path: Path) -> None:
    program = tmp_path / "main.cpp"
    assert flag_keys(None, program, None) == {}
    assert flag_keys("-O2 '-DNAME=\"a b\"'", program, None) == {"flags": ["-O2", '-DNAME="a b"']}
    assert flag_keys("-O3", tmp_path, None) == {"flags": ["-O3"]}
    with pytest.raises(CampaignError, match="--flags -O2 'a: No closing quotation"):
        flag_keys("-O2 'a", program, None)
    (tmp_path / "makefile").touch()
    for build in (None, "make"):
        with pytest.raises(CampaignError, match="give them in --build, such as `make CC=\\$CC CFLAGS='-O3'`"):
            flag_keys("-O3", tmp_path, build)
