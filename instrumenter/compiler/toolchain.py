"""The cross-compiler: `zig cc` from the ziglang wheel, for riscv64-linux-musl or for the host.

The first program for a target needs that target's C library, which zig builds from its sources; ``notify`` gets a
message about it. zig's own caches are in the user's cache directory (`common.compiler_cache`).
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from common import compiler_cache
from common.shared_folders import locked
from instrumenter.compiler import c_library, openmp, string_functions
from instrumenter.compiler.left_out_flags import notices_about_flags, without_left_out
from instrumenter.compiler.spliced_lines import with_spliced_lines
from instrumenter.errors import CompileFailure, SourceError, ToolchainError
from instrumenter.languages import OLD_C_FLAGS, flags_of_language, is_cplusplus

GUEST_TARGET = "riscv64-linux-musl"
HOST_TARGET = f"{platform.machine()}-linux-musl"
"""Static programs for this machine, with the guest's C library."""
TIMEOUT_SECONDS = 600
# What messages say of the first use: how long two processors take for each library, which is then kept.
_TIME_OF_COMMON_C_LIBRARY = "some six seconds"
_TIME_OF_C_LIBRARY = "some ten seconds"
_TIME_OF_CPLUSPLUS_LIBRARY = "about two minutes"
# zig adds run-time checks to unoptimised code; the program must have only its own code. With -Os or -Oz, unlike other
# compilers, it removes all symbols and debug information unless -g is given; at other levels -g changes nothing.
# It refuses __DATE__ and __TIME__, which `BUILD_DATE` makes the same in all builds. Text that is no UTF-8 is no warning
# of gcc, and sources that are compiled with -Werror have it.
ALWAYS = (
    "-fno-sanitize=all", "-fno-stack-protector", "-g", "-Wno-date-time", "-Wno-invalid-utf8",
    "-Wno-invalid-source-encoding", *OLD_C_FLAGS,
)  # fmt: skip
BUILD_DATE = "1700000000"
"""Seconds since 1970, of which programs have the date: when a guest starts, as `emulator.linux.kernel.clock` says."""
SECTION_FLAGS = ("-ffunction-sections", "-fdata-sections")
"""Each function and each variable in a section of its own, as `instrumenter.building.relink` needs them."""
# Flags for comments in the preprocessor's output, and for output without line markers.
_UNWANTED_OUTPUT = frozenset(("-C", "-CC", "-P"))
# Flags of the preprocessor, with their value attached or in the next argument.
_PREPROCESSOR_FLAG = re.compile(r"-(D|U|I|include|imacros|isystem|iquote|idirafter|iprefix|iwithprefix)(.*)")

_Run = Callable[[Sequence[str], Path, str], tuple[int, bytes, bytes]]
_UNDEFINED = re.compile(r"undefined (hidden |protected )?symbol: ")  # in what the linker writes

# zig has three levels of its own: it compiles -O1 to -Ofast as -O2, with NDEBUG defined, and -Og as -O0.
_LEVEL = re.compile(r"-O(\d*|g|s|z|fast)")
_LEVEL_WORDS = {
    "0": (), "": ("-Xclang", "-O1"), "1": ("-Xclang", "-O1"), "2": (), "g": ("-Xclang", "-Og"), "s": (),
    "z": ("-Xclang", "-Oz"), "fast": ("-Xclang", "-O3", "-ffast-math"),
}  # fmt: skip

_told: set[str] = set()  # messages of this process that are not repeated


@functools.cache
def compiler_version() -> str:
    """The version of the ziglang wheel."""
    # From the name of the wheel's description; the library for it takes 40 ms to load.
    found = [path.name for path in Path(_executable()).parents[1].glob("ziglang-*.dist-info")]
    if len(found) == 1:
        return found[0].removeprefix("ziglang-").removesuffix(".dist-info")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("ziglang")
    except PackageNotFoundError:
        raise _missing() from None


@functools.cache
def _executable() -> str:
    """The compiler's program. A module of the wheel would start it, too, but in twice the time."""
    from importlib.util import find_spec

    spec = find_spec("ziglang")
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        program = Path(folder) / "zig"
        if program.is_file():
            return str(program)
    raise _missing()


def _missing() -> ToolchainError:
    return ToolchainError(
        "the cross-compiler is not installed: expected the Python package 'ziglang'; pip install ziglang"
    )


def without_preprocessor_flags(flags: Sequence[str]) -> list[str]:
    """``flags`` for a preprocessed source: without definitions and includes, which must not be applied again."""
    kept: list[str] = []
    rest = iter(flags)
    for flag in rest:
        match = _PREPROCESSOR_FLAG.fullmatch(flag)
        if match is None:
            kept.append(flag)
        elif not match[2]:
            next(rest, None)
    return kept


class Toolchain:
    """Runs the compiler for one target; ``target`` None means the host. ``cache``: the folder of zig's own caches;
    ``library_seconds``: time that its links and `prepare` took so far to make libraries, which are kept, or waited for
    another process that makes them."""

    def __init__(
        self,
        target: str | None = GUEST_TARGET,
        notify: Callable[[str], None] | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self.target = target
        self.notify = notify or (lambda message: None)
        self.timeout_seconds = timeout_seconds
        self.library_seconds = 0.0
        self.cache = compiler_cache.compiler_cache()

    def command(self, arguments: Sequence[str], driver: str = "cc") -> list[str]:
        """The command line that compiles for the target; ``driver``: ``cc`` or ``c++``."""
        target = ["-target", self.target] if self.target else []
        own = as_other_compilers(arguments) if driver in ("cc", "c++") else []
        return [*self.tool(driver), *target, *own, *arguments]

    def tool(self, name: str) -> list[str]:
        """The command line of one of the compiler's tools, such as ``ar``."""
        return [_executable(), name]

    @property
    def folder(self) -> Path:
        """Where the compiler is, with its headers and the sources of its libraries."""
        return Path(_executable()).parent

    def environment(self) -> dict[str, str]:
        """The environment in which the compiler runs."""
        return {
            "SOURCE_DATE_EPOCH": BUILD_DATE,
            **os.environ,
            "ZIG_GLOBAL_CACHE_DIR": str(self.cache / "global"),
            "ZIG_LOCAL_CACHE_DIR": str(self.cache / "local"),
        }

    def run(
        self, arguments: Sequence[str], directory: Path, driver: str = "cc", *, reads_input: bool = False
    ) -> tuple[int, bytes, bytes]:
        """Exit status, standard output and standard error of the compiler. Raises `ToolchainError`.

        ``reads_input``: it reads this process's standard input.
        """
        compiler_cache.bound(self.cache)
        with compiler_cache.running(self.cache) as lock:
            environment = self.environment()
            if self.target and driver == "cc" and c_library.is_usable(arguments):
                library = c_library.description(self._library)
                if library.is_file():
                    environment[c_library.VARIABLE] = str(library)
            return self._run(self.command(arguments, driver), directory, arguments, reads_input, lock, environment)

    def run_tool(self, name: str, arguments: Sequence[str], directory: Path) -> tuple[int, bytes, bytes]:
        """As `run`, for one of the compiler's `tool`s."""
        return self._run([*self.tool(name), *arguments], directory, arguments, False, (), self.environment())

    def run_link(self, arguments: Sequence[str], directory: Path, driver: str) -> tuple[int, bytes, bytes]:
        """As `run`, for a link: with the common part of the C library if that has all that the program needs, and with
        `instrumenter.compiler.string_functions`, unless the linker refuses these, for a processor without
        floating-point registers for example.

        A program of C++ that needs none of its library is linked as one of C while that library, which takes
        minutes to build, is not there: build systems try a compiler out by such programs, also for projects in C.
        """
        more = self._string_functions(arguments)
        done = self._run_link([*arguments, *more], directory, driver)
        is_refused = done[0] and more and os.fsencode(more[-1]) in done[2]
        return self._run_link(arguments, directory, driver) if is_refused else done

    def _run_link(self, arguments: Sequence[str], directory: Path, driver: str) -> tuple[int, bytes, bytes]:
        """As `run_link`, with ``arguments`` as they are."""
        may_be_c = driver == "c++" and not self._ready(cplusplus=True).exists() and c_library.is_usable(arguments)
        if may_be_c and (self.prepare_common_library() or self._ready(cplusplus=False).exists()):
            status, out, err = self.run(arguments, directory, "cc")
            if status == 0:
                return status, out, err
        is_common = driver == "cc" and c_library.is_usable(arguments) and self.prepare_common_library()
        if not is_common:
            self.prepare(driver, lto=_is_lto(arguments))
        status, out, err = self.run(arguments, directory, driver)
        if status and is_common and _UNDEFINED.search(err.decode("utf-8", "replace")):
            self.prepare(driver)
            return self.run(arguments, directory, driver)
        return status, out, err

    def _string_functions(self, arguments: Sequence[str]) -> list[str]:
        """What a link with ``arguments`` gets of `instrumenter.compiler.string_functions`: the archive, or nothing."""
        if not self.target or not string_functions.are_for(self.target, arguments):
            return []
        try:
            with compiler_cache.running(self.cache) as lock:
                version, environment = compiler_version(), self.environment()
                made = string_functions.archive(_executable(), version, self.target, environment, lock)
        except OSError:
            return []  # no place to keep it: the compiler's own are linked
        return [*(string_functions.FOR_LINKER_THAT_COMPILES if _is_lto(arguments) else ()), str(made)]

    def become(self, command: Sequence[str]) -> NoReturn:
        """Let the compiler's command line ``command`` take this process's place."""
        compiler_cache.bound(self.cache)
        with compiler_cache.running(self.cache) as lock:
            for descriptor in lock:
                os.set_inheritable(descriptor, True)
            os.execve(command[0], list(command), self.environment())

    def _run(
        self, command: Sequence[str], directory: Path, arguments: Sequence[str], reads_input: bool, lock: Sequence[int],
        environment: Mapping[str, str],
    ) -> tuple[int, bytes, bytes]:  # fmt: skip
        """Run ``command`` as `run` does, in ``environment``; it inherits the descriptors ``lock``."""
        try:
            process = subprocess.Popen(
                command, cwd=directory, env=environment,
                stdin=None if reads_input else subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, pass_fds=lock,
            )  # fmt: skip
        except OSError as error:
            raise ToolchainError(f"the compiler cannot be started: {error}") from None
        try:
            out, err = process.communicate(timeout=self.timeout_seconds)
        except subprocess.TimeoutExpired:
            raise ToolchainError(
                f"the compiler did not finish within {self.timeout_seconds:g} s: zig cc {' '.join(arguments)}"
            ) from None
        finally:
            if process.poll() is None:  # after a timeout or Ctrl-C: the compiler has children
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
        return process.returncode, out, err

    def preprocess(self, source: Path, flags: Sequence[str]) -> str:
        """The source, C or C++ by the ending of its name, after the preprocessor, with its line markers.

        Raises `SourceError`.
        """
        if not source.is_file():
            raise SourceError(f"{source}: no such source file")
        full = source.resolve()
        given = [flag for flag in flags_of_language(full, flags) if flag not in _UNWANTED_OUTPUT]
        for notice in notices_about_flags(given, self.target):
            self._tell_once(notice)
        driver = compiler_name_for([full])
        arguments = ["-E", *ALWAYS, *self._usable(given), *openmp.HEADER_WORDS, str(full)]
        status, out, err = self.run(arguments, full.parent, driver)
        if status:
            raise _compile_failure(err, f"{source} cannot be preprocessed")
        return with_spliced_lines(out.decode("utf-8", "surrogateescape"), full.parent)

    def compile(self, source: Path, flags: Sequence[str], output: Path) -> None:
        """Compile one source into the object file ``output``. Raises `SourceError`."""
        arguments = [*ALWAYS, *self._usable(flags), "-c", str(source), "-o", str(output)]
        self._checked(self.run, arguments, output.parent, compiler_name_for([source]))

    def link(self, inputs: Sequence[Path], flags: Sequence[str], output: Path, driver: str = "cc") -> None:
        """Compile and link sources and objects, statically for the guest, into ``output``. Raises `SourceError`."""
        arguments = self.link_arguments([str(each) for each in inputs], flags, str(output))
        self._checked(self.run_link, arguments, output.parent, driver)

    def traced_link(self, objects: Sequence[Path], flags: Sequence[str], output: Path, driver: str = "cc") -> list[str]:
        """As `link`, and return the arguments with which the linker itself was called; empty if they are unknown.

        They name libraries in the compiler's cache, which stay there until this process ends.
        """
        compiler_cache.use_libraries(self.cache)
        arguments = self.link_arguments([str(each) for each in objects], [*flags, "--verbose"], str(output))
        return linker_arguments(self._checked(self.run_link, arguments, output.parent, driver))

    def prepare(self, driver: str = "cc", *, lto: bool = False) -> None:
        """Build the target's C library, and for the driver ``c++`` the C++ library, too, on all processors, with a
        message, if no program was linked with it yet.

        A link would build it, too, but one file at a time. ``lto``: for links with -flto, for which the compiler has
        another C++ library. A failure is left to the link, which reports it. Raises `ToolchainError` as `run`.
        """
        compiler_cache.bound(self.cache)
        cplusplus = driver == "c++"
        lto = lto and cplusplus
        if self._ready(cplusplus, lto).exists():
            return
        if not cplusplus and c_library.description(self._library).is_file():
            self.notify(
                "What is built now needs more of the C library than most programs: the compiler builds all of it, "
                f"which takes {_TIME_OF_C_LIBRARY} on two processors, and keeps it."
            )
        else:
            self._tell_first_use(
                f"C++ library{' for -flto' * lto} now, which takes {_TIME_OF_CPLUSPLUS_LIBRARY}"
                if cplusplus
                else f"C library now, which takes {_TIME_OF_C_LIBRARY}"
            )
        with self._timing_library():
            made = self.target and not cplusplus and self._make_c_library()
            if made or self._let_zig_make_libraries(cplusplus, lto):
                ready = self._ready(cplusplus, lto)
                ready.parent.mkdir(parents=True, exist_ok=True)
                ready.touch()

    @contextmanager
    def _timing_library(self) -> Iterator[None]:
        """Within it, a library is made: adds the time to `library_seconds`."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.library_seconds += time.perf_counter() - started

    @property
    def lacks_c_library(self) -> bool:
        """Whether neither all of the target's C library nor what most programs need of it is there."""
        is_there = self._ready(cplusplus=False).exists() or c_library.description(self._library).is_file()
        return self.target is not None and not is_there

    def prepare_common_library(self) -> bool:
        """Build what most programs need of the C library, unless that or all of it is there. Whether links use that."""
        compiler_cache.bound(self.cache)
        if not self.target or self._ready(cplusplus=False).exists():
            return False
        if not self.lacks_c_library:
            return True
        self._tell_first_use(
            f"C library now, the parts that most programs need, which takes {_TIME_OF_COMMON_C_LIBRARY}"
        )
        with self._timing_library():
            return self._make_c_library(common=True)

    def _ready(self, cplusplus: bool, lto: bool = False) -> Path:
        """The file that is there when a library is: all of the C library, or the C++ library, or that for -flto.

        A library that the compiler itself makes is found again only by the same compiler at the same place, which
        the file's name has, too.
        """
        language = f"c++{'-lto' * lto}" if cplusplus else "c"
        place = ""
        if cplusplus or not self.target:
            place = f"-{hashlib.sha256(_executable().encode()).hexdigest()[:12]}"
        return self.cache / f"{compiler_cache.READY}{compiler_version()}-{self.target or 'host'}-{language}{place}"

    def _tell_first_use(self, library: str) -> None:
        self.notify(
            f"First use of the compiler for {self.target or 'the host'}, or its cache was emptied: it builds its "
            f"{library} on two processors and is kept."
        )

    def _make_c_library(self, *, common: bool = False) -> bool:
        """Make the library of `instrumenter.compiler.c_library`; False when it cannot be made."""
        assert self.target is not None
        folder = self._library
        try:
            with compiler_cache.running(self.cache) as lock, locked(self.cache / "c-library.lock"):
                is_there = c_library.description(folder).is_file() if common else c_library.is_whole(folder)
                if not is_there:  # another process may have made it meanwhile
                    c_library.make(_executable(), self.target, folder, self.environment(), lock, common=common)
        except (OSError, ValueError, LookupError, ToolchainError):
            return False  # another version of the compiler, or a disk that is full: zig makes the library, or says why
        return True

    def _let_zig_make_libraries(self, cplusplus: bool, lto: bool) -> bool:
        """Let zig compile the C library into its cache, and the C++ library, too, both for links with -flto if ``lto``;
        False when it failed."""
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "empty.c"
            source.write_text("int main(void) { return 0; }\n")
            # The driver build-exe takes a number of jobs, cc does not; both find the same library afterwards.
            # zig runs two compilers fewer at once than the number says.
            jobs = (os.cpu_count() or 1) + 2
            static = ["-static"] if self.target else []
            library = ["-lc", "-lc++"] if cplusplus else ["-lc"]
            library += ["-flto"] * lto
            arguments = [f"-j{jobs}", *library, *static, "-O", "ReleaseFast", str(source), "-femit-bin=program"]
            status, _, _ = self.run(arguments, Path(folder), driver="build-exe")
        return status == 0

    @property
    def _library(self) -> Path:
        """The folder of the C library that is not zig's own; beside zig's, with which it is removed.

        Its path without links: the library's description names it, and a link may be gone tomorrow.
        """
        return self.cache.resolve() / compiler_cache.GLOBAL / f"c-library-{compiler_version()}-{self.target}"

    def link_arguments(self, inputs: Sequence[str], flags: Sequence[str], output: str) -> list[str]:
        """The compiler's arguments that link a program for this target."""
        return [*ALWAYS, *inputs, *self._usable(flags), *(["-static"] if self.target else []), "-o", output]

    def _usable(self, flags: Iterable[str]) -> list[str]:
        return without_left_out(flags, self.target)

    def _tell_once(self, message: str) -> None:
        if message not in _told:
            _told.add(message)
            self.notify(message)

    def _checked(self, run: _Run, arguments: Sequence[str], directory: Path, driver: str) -> bytes:
        """Run the compiler by ``run``, and return what it wrote to standard error. Raises `SourceError`."""
        # The directory of the compilation must not be in the program: same content, same bytes.
        status, _, err = run([*arguments, f"-ffile-prefix-map={directory}=."], directory, driver)
        if status:
            raise _compile_failure(err, "the program does not compile")
        return err


def _is_lto(arguments: Sequence[str]) -> bool:
    """Whether the linker compiles: the last option that says so counts."""
    given = [word for word in arguments if word == "-fno-lto" or word.startswith("-flto")]
    return bool(given) and given[-1] != "-fno-lto"


def as_other_compilers(arguments: Sequence[str]) -> list[str]:
    """The words before ``arguments`` with which zig compiles at their level, the last -O of them, as gcc and clang do:
    ``assert`` included unless NDEBUG is defined by ``arguments``."""
    levels = [match[1] for word in arguments if (match := _LEVEL.fullmatch(word))]
    return ["-UNDEBUG", *_LEVEL_WORDS.get(levels[-1], ("-Xclang", "-O3"))] if levels else []


def as_optimised_link(words: Sequence[str]) -> list[str]:
    """The ``words`` of a link of objects, at -O2 whatever level they name; with -flto, which compiles at the level of
    the link, at their level if they name one.

    By the level of a link, zig makes a run-time library; for an unoptimised one that takes half a minute of processor
    time, and programs have all of it. Other compilers have one library for all levels.
    """
    if any(word.startswith("-flto") for word in words) and any(map(_LEVEL.fullmatch, words)):
        return list(words)
    before = ["", *words[:-1]]
    kept = [word for word, last in zip(words, before, strict=False) if last == "-Xlinker" or not _LEVEL.fullmatch(word)]
    return [*kept, "-O2"]


def compiler_name_for(sources: Iterable[Path]) -> str:
    """``c++`` if one of the sources is C++, else ``cc``."""
    return "c++" if any(is_cplusplus(source) for source in sources) else "cc"


def linker_arguments(messages: bytes) -> list[str]:
    """The arguments with which the linker made the program, in what the compiler wrote with ``--verbose``; empty if
    they are not there.

    A compiler that builds its C library first links parts of that, too, before the program and with ``-r``.
    """
    text = messages.decode("utf-8", "surrogateescape")
    calls = [line.split()[1:] for line in text.splitlines() if line.startswith("ld.lld ")]
    return c_library.named_directly(next((words for words in reversed(calls) if "-r" not in words), []))


_ERROR_LINE = re.compile(r"^(.*?:\d+)(?::\d+)?: (?:fatal )?error: (.*)$", re.MULTILINE)
_LINK_ERROR = re.compile(r"^(?:ld\.lld|lld|zig)?:? ?error: (.*)$", re.MULTILINE)
_UNDEFINED = re.compile(r"undefined symbol: (.*\S)")
_NO_HEADER = re.compile(r"'([^'\n]+)' file not found")


def _compile_failure(stderr: bytes, what: str) -> CompileFailure:
    """The error with the compiler's errors, or its first lines; thanks to the line markers, places are in the user's
    files.

    Columns are left out, since they are those of the preprocessed line.
    """
    text = stderr.decode("utf-8", "replace")
    found = [f"{place}: {message}" for place, message in _ERROR_LINE.findall(text)] or _LINK_ERROR.findall(text)
    errors = tuple(found[:5] or text.strip().splitlines()[:8])
    told = "\n".join(errors)
    header = _NO_HEADER.search(told)
    return CompileFailure(
        "\n".join([f"{what}:", *(f"  {error}" for error in errors)]), errors, tuple(_UNDEFINED.findall(told)),
        header[1] if header else None,
    )  # fmt: skip
