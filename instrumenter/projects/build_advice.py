"""What to say of a build command that failed, judged by what it printed: its first error, its end, and what to do."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path, PurePath

from common.listed_names import listed
from instrumenter.compiler.processor_options import explain_other_processor
from instrumenter.errors import BuildFailure
from instrumenter.languages import is_cplusplus
from instrumenter.projects.empty_submodules import explain_empty_submodules
from instrumenter.projects.failed_make import MISSING_HEADER, failed_tests, may_need_order
from instrumenter.projects.makefile_switches import word_without
from instrumenter.projects.undeclared_names import undeclared_names

# What compilers, linkers and cmake print; not "parse error: " of a program that is tested, nor -Werror.
_ERROR = re.compile(
    r"^(?:\S+: )?(?:fatal )?error: |^CMake Error|^(?:\S*/)?ld: (?!warning)|: undefined reference to ", re.I | re.M
)
_FAILED_COMMAND = re.compile(r"^\S+: \*\*\* ", re.M)  # of make, or of a line of a makefile
_MARKS = re.compile(r"[\s^~]*")  # below a line that an interpreter shows, before it says what is wrong
_LINES_BEFORE, _LINES_OF_ERROR = 2, 3
"""Lines shown: compilers and cmake explain a message in the lines after it, make's follows what a command printed."""
_OF_CMAKE, _MOST_LINES_OF_CMAKE = "CMake Error", 8
_LAST_LINES, _LAST_LINES_AFTER_ERROR = 15, 6

_OTHER_COMPILER = re.compile(r"file in wrong format|Relocations in generic ELF|is incompatible with elf")
"""Told when a part of a program was compiled or is linked by this machine's own compiler."""

_CONFIGURE_ERROR = re.compile(r"^configure: error: .*", re.M | re.S)  # is the last that a script prints
_WITHOUT = re.compile(r"(?<![\w-])--(?:disable|without)-[a-z0-9][\w-]*(?:=no)?(?![\w=-])")
_CONFIGURE = re.compile(r"(?<!\S)\S*configure(?!\S)[^&;|\n]*")

_NOT_FOUND = r"^(?:make(?:\[\d+\])?|(?:/bin/)?(?:ba|da)?sh|\S+(?=: (?:line )?\d+: ))(?:: (?:line )?\d+)?: "
"""Before the name of a program: make, a shell, or a script with its line."""
_NOT_THERE = r": (?:command )?(?:No such file or directory|not found)$"  # after it

_MISSING_PROGRAM = re.compile(
    rf"{_NOT_FOUND}(?!makeinfo:|help2man:|auto(?:reconf|conf|make|header):|aclocal:|libtoolize:)"
    rf"(?P<program>[\w.+-]+){_NOT_THERE}",
    re.M,
)
_OWN_PROGRAM_ADVICE = (
    "It calls {program} by its name alone, and the program that it made is {path}. Let the shell find it there: "
    "`export PATH=$PWD{folder}:$PATH; {command}`"
)

_OF_GLIBC = re.compile(
    r"error: '(?P<header>(?:argp|error|execinfo|fpu_control|fts|gnu/[\w-]+|obstack|printf"
    r"|sys/(?:cdefs|queue|sysctl|tree))\.h)' file not found"
)
_ADVICE = (
    (
        _OTHER_COMPILER,
        "It links with another command than $CC. Set the makefile's variables for the linker and the archiver, too: "
        "`{make_tools}`, or as the makefile calls them",
    ),
    (
        re.compile(r"objcopy: Unable to recognise the format of the input file"),
        "It changes objects with the objcopy of this machine, which does not know those for {target}. Install one that "
        "does, as of binutils-riscv64-linux-gnu: `{make_objcopy}`, or as the makefile calls it",
    ),
    (
        re.compile(r": Assembler messages:$", re.M),
        "It assembles with the program as of this machine. Let the compiler do it: `{make_assembler}`, or as the "
        "makefile calls it",
    ),
    (
        re.compile(r"Exec format error|cannot execute binary file|Syntax error: .*unexpected"),
        "It seems to run a program that it has just made, but that is for another machine than this one. {only_build}",
    ),
    (
        re.compile(r"\*\*\* \[(?:[^\]\n]*[ /])?(?:tests?|check)\] Error"),
        "Its tests failed, which a measurement does not need. {only_build}",
    ),
    (
        re.compile(rf"{_NOT_FOUND}(?:makeinfo|help2man){_NOT_THERE}", re.M),
        "It makes its manual with a program that this machine does not have. To do without the manual: "
        "`{make_no_manual}`",
    ),
    (
        re.compile(rf"{_NOT_FOUND}(?P<program>auto(?:reconf|conf|make|header)|aclocal|libtoolize){_NOT_THERE}", re.M),
        "It makes its configure script with the program {program}, which this machine does not have: install autoconf, "
        "automake and libtool, or give the directory of a release, which has the script",
    ),
    (
        _MISSING_PROGRAM,
        "It needs the program {program}, which this machine does not have: install it, or name a target that does "
        "without it: `{make_target}`",
    ),
    (
        re.compile(r"The source directory\n+ +(?P<folder>\S+)\n+ +does not contain a CMakeLists.txt file"),
        "A part of the project is missing, {folder}: if it is a submodule of git, `git submodule update --init` "
        "fetches it; or leave out what needs it, by an option of the project such as -DNAME_BUILD_TESTS=OFF",
    ),
    (
        re.compile(r"recompile with -fPIC"),
        "It links code that is not position-independent. CFLAGS on the command line of make replaces all flags of the "
        "makefile: give -fPIC there, too, or leave the makefile's own",
    ),
    (
        re.compile(r"using shared libraries requires dynamic linking"),
        "It links a program to a shared library, but programs are linked statically. Let it make static libraries: "
        "`./configure --disable-shared`, or a target or variable of the makefile",
    ),
    (
        re.compile(r"error: [^\n]*__(BEGIN|END)_DECLS"),
        "Its C sources take the names __BEGIN_DECLS and __END_DECLS from glibc's headers; the C library here is musl. "
        "Let the build command define them: {with_declarations}",
    ),
    (
        _OF_GLIBC,
        "<{header}> belongs to glibc; the C library here is musl, which has no such header. Build without the part of "
        "the program that includes it, or put a header of that name into a copy of the project",
    ),
)  # fmt: skip
_ABOVE = re.compile(r"No rule to make target '(?P<above>\.\./[^'\n]*)'")
_ABOVE_ADVICE = (
    "It needs {above}, which is not below the directory that was given, and only that is copied. Give the directory "
    "that has all of it, and let the command go down: `{below}`"
)
_MISSING = (
    MISSING_HEADER,
    re.compile(r"unable to find (?:dynamic system )?(?P<missing>library [\"']?[\w.+-]+[\"']?)"),
)
_MISSING_ADVICE = (
    "It needs {missing}, which is not there: only the C and C++ libraries and the project's own files are. Build "
    "without the library that it belongs to (by an option of configure or cmake, or a variable of the makefile), or "
    "with the library's sources in a copy of the project"
)
_OWN_HEADER_ADVICE = (
    "{missing} is in the project, in the folder {folder}, where the compiler does not look for it: `{command}`"
)
_SWITCH_ADVICE = (
    "It needs {missing}, which is not there: only the C and C++ libraries and the project's own files are. A makefile "
    "of the project seems to have a variable that leaves it out: `{without}`"
)
_REFUSED_SOURCE = re.compile(r"^(?P<source>[^\s:]+):\d+:\d+: error: ", re.M)
_REFUSED_ADVICE = (
    "The compiler is clang, by default for C17 and C++17. Where the source is of an older standard, name that: "
    "`{command}`. What clang refuses in every standard must be changed in a copy of the project"
)
_DECLARATIONS = "-D__BEGIN_DECLS= -D__END_DECLS="
_MOST_PROGRAMS = 6  # in a message
_MOST_FOLDERS = 1_000  # of a project, in which a header is looked for
_CMAKE_BUILD = re.compile(r"(?<!\S)cmake --build \S+")
_MAKE_FOLDER = re.compile(r"-C *(\S+)|(?:^|[;&] *)cd (\S+)(?= *&&)")
_TARGETS = re.compile(r"^(?: +[\w./%-]+)+")
_MAKE = re.compile(r"(?<![\w./-])make\b(?: +(?:-[Cf] +[^\s-]\S*|-j +\d+|-\S+|\w+=(?:\"[^\"]*\"|[^\s\"'&|;]*)))*")
_MAKE_WITH_VARIABLES = re.compile(rf"(?:(?<!\S)\w+=[^\s;&|]+ +)*{_MAKE.pattern}")


def build_failure(command: str, how: str, output: str, log: str, target: str, linked: Sequence[str],
                  tree: Path, old: Sequence[str] = ()) -> BuildFailure:  # fmt: skip
    """The error of a build in ``tree``; arguments as for `failed_build`."""
    message = failed_build(command, how, output, log, target, linked, tree, old)
    other_compiler = bool(_OTHER_COMPILER.search(output)) and not _old_in(output, old)
    return BuildFailure(
        message, may_need_order(output, tree), failed_tests(output), first_error(output),
        other_compiler=other_compiler, advises_command=message.endswith("`"),
    )  # fmt: skip


def failed_build(
    command: str, how: str, output: str, log: str, target: str, linked: Sequence[str] = (), tree: Path | None = None,
    old: Sequence[str] = (),
) -> str:  # fmt: skip
    """The message about ``command``, which ``how`` says what it ended with. ``output``: what it printed, all of which
    is in the file ``log``; ``target``: what it compiled for; ``linked``: the programs that it had linked; ``tree``:
    where it ran, if its makefiles shall be read for a remedy; ``old``: objects and archives that were there before."""
    lines = _printed(output) or ["(nothing)"]
    tail = lines[-_LAST_LINES:]
    parts = [f"the build command {how}: {command}"]
    first = _number_of_error(lines)
    if first is not None:
        after = first + _LINES_OF_ERROR
        if lines[first].startswith(_OF_CMAKE):  # which indents all of its message
            while after < min(first + _MOST_LINES_OF_CMAKE, len(lines)) and lines[after].startswith("  "):
                after += 1
        parts += ["Its first error:", *_indented(lines[first:after])]
        tail = lines[after:][-_LAST_LINES_AFTER_ERROR:]
    parts += [f"Its last lines (all of them: {log}):", *_indented(tail)] if tail else [f"All that it printed: {log}"]
    return "\n".join([*parts, _advice_on(output, target, command, linked, tree, old)])


def first_error(output: str) -> str:
    """The first line of the first error in what a build printed; empty if there is none."""
    lines = _printed(output)
    first = _number_of_error(lines)
    return lines[first].strip() if first is not None else ""


def _advice_on(
    output: str, target: str, command: str, linked: Sequence[str], tree: Path | None, old: Sequence[str]
) -> str:  # fmt: skip
    """Sentences on ``output``, what ``command`` printed: a remedy for each known problem, or general ones. The others:
    as for `failed_build`."""
    left = _old_in(output, old)
    if left:
        return f"It links {listed(left, _MOST_PROGRAMS)}, {with_make_clean(command, len(left))}"
    submodules = explain_empty_submodules(tree, output) if tree else None
    if submodules:
        return submodules
    words = {
        "make_tools": with_make_words(command, "LD=$CC AR=$AR"),
        "target": target,
        "make_objcopy": with_make_words(command, "OBJCOPY=riscv64-linux-gnu-objcopy"),
        "make_assembler": with_make_words(command, 'AS="$CC -c"'),
        "make_no_manual": with_make_words(command, "MAKEINFO=true HELP2MAN=true"),
        "make_target": with_make_words(command, "TARGET"),
        "only_build": _only_build(command, linked, output),
        "with_declarations": f"`{with_flags(command, _DECLARATIONS)}`",
    }
    own = _own_program(output, command, linked)
    known = [own] if own else []
    known += [
        advice.format(**words, **found.groupdict())
        for symptom, advice in _ADVICE
        for found in [symptom.search(output)]
        if found and not (own and symptom is _MISSING_PROGRAM)
    ]
    without = _options_without(output, command)
    if without:
        known.append(f"Libraries that are not part of the project are not there. To do without this one: `{without}`")
    other_processor = explain_other_processor(output)
    if other_processor:
        return "\n".join([*known, other_processor])
    undeclared = undeclared_names(output)
    if undeclared:
        remedy = with_flags(command, undeclared.flags, undeclared.languages)
        known.append(f"{undeclared.explanation()}: `{remedy}`")
    glibc = [found["header"] for found in _OF_GLIBC.finditer(output)]
    absent = [found for symptom in _MISSING for found in symptom.finditer(output) if found["missing"] not in glibc]
    above = _ABOVE.search(output)
    if above and not _MAKE_FOLDER.search(command):
        known.append(_ABOVE_ADVICE.format(**above.groupdict(), below=f"cd SUBDIRECTORY && {command}"))
    for missing in absent[:1]:
        folder = folder_with(tree, missing["missing"]) if tree else None
        if folder is not None:
            remedy = with_flags(command, f"-I$PWD/{folder}".removesuffix("/."))  # make may go into other folders
            known.append(_OWN_HEADER_ADVICE.format(**missing.groupdict(), folder=folder, command=remedy))
            continue
        switch = word_without(tree, missing["missing"]) if tree and _MAKE.search(command) else None
        if switch and switch not in command.split():
            known.append(_SWITCH_ADVICE.format(**missing.groupdict(), without=with_make_words(command, switch)))
        else:
            known.append(_MISSING_ADVICE.format(**missing.groupdict()))
    if not known and linked and not _ERROR.search(output):
        known = [words["only_build"]]
    if known:
        return "\n".join(known)
    refused = _REFUSED_SOURCE.search(output)
    if refused:
        name, standard = ("CXX", "gnu++98") if is_cplusplus(refused["source"]) else ("CC", "gnu89")
        return _REFUSED_ADVICE.format(command=with_flags(command, f"-std={standard}", [name]))
    needs_host = "configure" in command and "--host" not in command
    host = f" a configure script needs --host={target}, and" if needs_host else ""
    return (
        f"It ran in a copy of the project, with CC=instrument-cc in the environment;{host} libraries that are not part "
        "of the project are not there"
    )


def _old_in(output: str, old: Sequence[str]) -> list[str]:
    """Those of the files ``old`` that the linker refused, as for another machine."""
    lines = "\n".join(line for line in output.splitlines() if _OTHER_COMPILER.search(line))
    return [name for name in old if re.search(rf"(?<![\w.-]){re.escape(PurePath(name).name)}(?![\w.-])", lines)]


def _own_program(output: str, command: str, linked: Sequence[str]) -> str | None:
    """What to do when a program that was not found is one that the build had linked; None if it is not."""
    missing = _MISSING_PROGRAM.search(output)
    paths = [path for path in linked if missing and PurePath(path).name == missing["program"]]
    if missing is None or not paths:
        return None
    folder = "" if "/" not in paths[0] else f"/{PurePath(paths[0]).parent}"
    return _OWN_PROGRAM_ADVICE.format(program=missing["program"], path=paths[0], folder=folder, command=command)


def folder_with(tree: Path, header: str) -> str | None:
    """The folder below ``tree`` from which the header can be included by its name, the nearest to the top; None if
    there is none among the first `_MOST_FOLDERS`."""
    names = Path(header).parts
    if not names:
        return None
    places = (
        Path(folder, names[-1]) for folder, _, files in islice(os.walk(tree), _MOST_FOLDERS) if names[-1] in files
    )
    found = [path for path in places if path.parts[-len(names) :] == names]
    folders = [path.relative_to(tree).parents[len(names) - 1] for path in found]
    return str(min(folders, key=lambda folder: (len(folder.parts), str(folder)))) if folders else None


def _options_without(output: str, command: str) -> str | None:
    """``command`` with the options by which its configure script says that a library can be left out; None if the
    script says none, or has got them."""
    error, call = _CONFIGURE_ERROR.search(output), _CONFIGURE.search(command)
    if error is None or call is None:
        return None
    options = [option for option in dict.fromkeys(_WITHOUT.findall(error[0])) if option not in call[0].split()]
    arguments = call[0].rstrip()
    rest = command[call.start() + len(arguments) :]
    return f"{command[: call.start()]}{' '.join([arguments, *options])}{rest}" if options else None


def with_make_words(command: str, words: str) -> str:
    """The build command with more arguments for make."""
    make = _MAKE.search(command)
    return f"{command[: make.end()]} {words}{command[make.end() :]}" if make else f"make CC=$CC {words}"


def with_make_clean(command: str, number: int) -> str:
    """What to do about ``number`` files that an earlier build has left in the directory, and that ``command`` takes."""
    what, how = ("it is", "it") if number == 1 else ("they are", "them")
    remedy = f"Remove {how} from the directory"
    make = _MAKE_WITH_VARIABLES.search(command)
    if make:
        clean = f"{command[: make.start()]}{make[0]} clean && {command[make.start() :]}"
        remedy += f", or let the command do that in its copy: `{clean}`"
    return f"which an earlier build has left in the directory, and which this one takes as {what}. {remedy}"


def _only_build(command: str, linked: Sequence[str], output: str) -> str:
    """What to do about a command that does more than building: ``linked`` are the programs that it had linked."""
    if not linked:
        return f"Name a target that only builds: `{with_make_words(command, 'TARGET')}`"
    what = "one" if len(linked) > 1 else "that"
    had = f"It had linked {listed(linked, _MOST_PROGRAMS)} before that"
    # As a rule the one to measure is neither a program that the build started, nor a test or an example further down.
    wanted = min(linked, key=lambda name: (bool(_started(name).search(output)), "test" in name, name.count("/")))
    cmake = _CMAKE_BUILD.search(command)
    if cmake:
        only = f"{command[: cmake.end()]} --target {PurePath(wanted).name}{command[cmake.end() :]}"
    elif make := _MAKE.search(command):
        rest = _TARGETS.sub("", command[make.end() :], count=1)
        folder = _MAKE_FOLDER.search(command[: make.end()])
        inside = wanted.removeprefix(f"{(folder[1] or folder[2]).rstrip('/')}/") if folder else wanted
        only = f"{command[: make.end()]} {inside}{rest}"
    else:
        return f"{had}; let the build command make only {what}, and run nothing"
    return f"{had}; to build only {what}: `{only}`"


def _started(program: str) -> re.Pattern[str]:
    """Finds a command that starts ``program`` in what make prints."""
    return re.compile(rf"^(?:\./|\S*/)?{re.escape(PurePath(program).name)}(?: |:|$)", re.M)


def with_flags(command: str, flags: str, compilers: Sequence[str] = ("CC",)) -> str:
    """The build command with more flags for ``compilers`` (CC, CXX), whatever the makefile calls its own flags."""
    if re.search(r"(?<!\S)cmake (?!--)", command):
        names = {"CC": "CMAKE_C_FLAGS", "CXX": "CMAKE_CXX_FLAGS"}
        options = " ".join(f'-D{names[compiler]}="{flags}"' for compiler in compilers)
        return re.sub(r"(?<!\S)cmake (?!--)", lambda _: f"cmake {options} ", command, count=1)
    exported = []
    for compiler in compilers:
        value = f'="${compiler} {flags}"'
        parts = re.split(rf"(?<!\S)(CC|CXX)=\${compiler}(?!\S)", command)
        if len(parts) > 1:
            command = "".join(part + value if number % 2 else part for number, part in enumerate(parts))
        else:
            exported.append(f"{compiler}{value}")
    return f"export {' '.join(exported)}; {command}" if exported else command


def _printed(output: str) -> list[str]:
    """The lines with text in what a build printed."""
    return [line for line in output.splitlines() if line.strip()]


def _number_of_error(lines: list[str]) -> int | None:
    """The number of the line with which the first error begins: of a compiler, or else of a failed command."""
    first = _number_of_first(_ERROR, lines)
    if first is None:
        failed = _number_of_first(_FAILED_COMMAND, lines)
        if failed is not None:
            first = max(0, failed - _LINES_BEFORE)
            while _MARKS.fullmatch(lines[first]):
                first += 1
    return first


def _number_of_first(pattern: re.Pattern[str], lines: list[str]) -> int | None:
    return next((number for number, line in enumerate(lines) if pattern.search(line)), None)


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]
