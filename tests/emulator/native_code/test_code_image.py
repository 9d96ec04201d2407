"""Host code that is linked when it is made and copied when it is used."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from emulator.native_code import compiler as compiler_module
from emulator.native_code.code_image import CodeImage, LoadedCode, linked, unpacked
from emulator.native_code.compiler import Compiler
from tests.test_layers import MODULES, imports

TEXT = """
@table = internal constant [4 x i64] [i64 11, i64 22, i64 33, i64 44]
@given = external global i64
declare i64 @labs(i64)
declare double @llvm.fma.f64(double, double, double)
define i64 @first(i64 %n) {
  %p = getelementptr [4 x i64], ptr @table, i64 0, i64 %n
  %v = load i64, ptr %p
  ret i64 %v
}
define i64 @second(i64 %n) {
  %positive = call i64 @labs(i64 %n)
  %g = load i64, ptr @given
  %sum = add i64 %positive, %g
  ret i64 %sum
}
define i64 @chosen(i64 %which, i64 %n) {
  switch i64 %which, label %other [ i64 0, label %a i64 1, label %b i64 2, label %c i64 3, label %d i64 4, label %e ]
a:
  %x = call i64 @first(i64 %n)
  ret i64 %x
b:
  %y = call i64 @second(i64 %n)
  ret i64 %y
c:
  %m = mul i64 %n, %n
  ret i64 %m
d:
  %f = sitofp i64 %n to double
  %h = fmul double %f, 2.5
  %i = fptosi double %h to i64
  ret i64 %i
e:
  %odd = and i64 %n, 1
  %is = icmp eq i64 %odd, 1
  %function = select i1 %is, ptr @second, ptr @first
  %z = call i64 %function(i64 %odd)
  ret i64 %z
other:
  ret i64 -1
}
"""


@pytest.fixture(scope="module")
def image() -> CodeImage:
    return linked(Compiler().object(TEXT))


def chosen(base: int, image: CodeImage) -> Any:
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    return kind(base + image.symbols["chosen"][0])


def test_constants_calls_and_symbols_of_others_are_found_wherever_it_lies(image: CodeImage) -> None:
    given = ctypes.c_int64(1000)
    known = {"given": ctypes.addressof(given)}
    loaded = [LoadedCode([image, unpacked(image.packed())], known) for _ in range(2)]
    for function in (chosen(base, image) for code in loaded for base in code.bases):
        assert [function(0, n) for n in range(4)] == [11, 22, 33, 44]
        assert function(1, -7) == 1007
        assert function(2, 9) == 81
        assert function(3, 5) == 12
        assert [function(4, n) for n in (0, 1)] == [11, 1001]
        assert function(9, 0) == -1
    for code in loaded:
        code.close()


def test_it_can_be_executed_and_not_written(image: CodeImage) -> None:
    code = LoadedCode([image], {"given": 0})
    line = next(
        line for line in Path("/proc/self/maps").read_text().splitlines()
        if int(line.split("-")[0], 16) <= code.bases[0] < int(line.split("-")[1].split()[0], 16)
    )  # fmt: skip
    assert line.split()[1] == "r-xp"
    code.close()


def test_a_symbol_that_nobody_has_is_named(image: CodeImage) -> None:
    with pytest.raises(ValueError, match="given, which the C library does not have"):
        LoadedCode([image], {})


def test_data_and_tables_of_addresses() -> None:
    text = """
    @counter = global i64 40
    @zeros = internal global [3000 x i64] zeroinitializer
    @functions = internal constant [2 x ptr] [ptr @more, ptr @less]
    define i64 @more(i64 %n) {
      %before = load i64, ptr @counter
      %after = add i64 %before, %n
      store i64 %after, ptr @counter
      ret i64 %after
    }
    define i64 @less(i64 %n) {
      %p = getelementptr [3000 x i64], ptr @zeros, i64 0, i64 2999
      %before = load i64, ptr %p
      %after = sub i64 %before, %n
      store i64 %after, ptr %p
      ret i64 %after
    }
    define i64 @pick(i64 %which, i64 %n) {
      %p = getelementptr [2 x ptr], ptr @functions, i64 0, i64 %which
      %function = load ptr, ptr %p
      %result = call i64 %function(i64 %n)
      ret i64 %result
    }
    """
    plain = linked(Compiler().object("define i64 @one() {\n ret i64 1\n}"))
    image = unpacked(linked(Compiler().object(text)).packed())
    code = LoadedCode([plain, image, plain, image], {})
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    for base in (code.bases[1], code.bases[3]):  # each has data of its own
        pick = kind(base + image.symbols["pick"][0])
        assert [pick(0, 2), pick(0, 5), pick(1, 3), pick(1, 4), pick(0, 0)] == [42, 47, -3, -7, 47]
    for base in (code.bases[0], code.bases[2]):
        assert ctypes.CFUNCTYPE(ctypes.c_int64)(base + plain.symbols["one"][0])() == 1
    code.close()


def test_threads_compile_at_once() -> None:
    compiler, found = Compiler(), {}

    def work(n: int) -> None:
        text = f"define i64 @f{n}() {{\n ret i64 {n}\n}}"
        address = compiler.compile(text, [f"f{n}"])[f"f{n}"]
        found[n] = ctypes.CFUNCTYPE(ctypes.c_int64)(address)()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: n for n in range(8)}


def test_kept_code_is_of_the_same_optimisation_and_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiling, made = Compiler.object, []

    def compiled(compiler: Compiler, text: str, *, is_kernel: bool) -> bytes:
        made.append((compiler.host[-1], is_kernel))
        return compiling(compiler, text, is_kernel=is_kernel)

    monkeypatch.setattr(Compiler, "object", compiled)
    for sources in ("1", "2"):
        monkeypatch.setattr(compiler_module, "kept_source_digest", lambda paths, sources=sources: sources)
        for is_kernel in (False, True, False, True):
            Compiler().image("define i64 @f() {\n ret i64 42\n}", is_kernel=is_kernel)
    assert made == [("1", False), ("1", True), ("2", False), ("2", True)]


def test_the_sources_of_kept_code_are_all_that_makes_it_of_its_text() -> None:
    """`Compiler.object` imports LLVM's bindings when it is called; the other modules say what they import."""
    folder = "emulator.native_code."
    wanted, found = [f"{folder}llvm", f"{folder}code_image"], set()
    while wanted:
        module = wanted.pop()
        found.add(MODULES[module])
        wanted += [name for name in imports(MODULES[module]) if name.startswith(folder) and MODULES[name] not in found]
    assert found == set(compiler_module._SOURCES)


def test_what_is_kept_needs_no_llvm(tmp_path: Path) -> None:
    program = (
        "import sys, ctypes\n"
        "from emulator.native_code.compiler import Compiler\n"
        "text = 'define i64 @f() {\\n ret i64 42\\n}'\n"
        "compiler = Compiler()\n"
        "address = compiler.compile(text, ['f'])['f']\n"
        "assert ctypes.CFUNCTYPE(ctypes.c_int64)(address)() == 42\n"
        "print('llvmlite.binding' in sys.modules)\n"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", program], env={"XDG_CACHE_HOME": str(tmp_path), "PATH": ""},
            cwd=Path(__file__).parents[3], capture_output=True, text=True, check=True,
        ).stdout.strip()
        for _ in range(2)
    ]  # fmt: skip
    assert told == ["True", "False"]
