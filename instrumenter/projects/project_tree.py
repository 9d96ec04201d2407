"""Prepares and runs a project's own build: the compilers, the environment, and the build command.

`instrumenter.projects.project_copy` copies its directory. Compilers are found by name on PATH, as names with spaces do
not survive makefiles.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from instrumenter.compiler.openmp import CMAKE_VARIABLES
from instrumenter.compiler.toolchain import GUEST_TARGET
from instrumenter.projects.build_advice import build_failure

_COMMANDS = {"instrument-cc": "main_cc", "instrument-c++": "main_cplusplus",
             "instrument-ar": "main_ar", "instrument-ranlib": "main_ranlib", "ld": "main_ld"}  # fmt: skip
TOOLS = {"CC": "instrument-cc", "CXX": "instrument-c++", "AR": "instrument-ar", "RANLIB": "instrument-ranlib"}
"""Commands of the wrapper, by the variable that names them to a build."""
TOOL_NAMES = {
    **dict.fromkeys(("cc", "gcc", "clang", "c99", "c89"), "CC"), **dict.fromkeys(("c++", "g++", "clang++"), "CXX"),
    **dict.fromkeys(("ar", "gcc-ar"), "AR"), **dict.fromkeys(("ranlib", "gcc-ranlib"), "RANLIB"),
}  # fmt: skip
"""Names by which makefiles call these tools of a machine, and the variable for each."""
_NAMED = "named"  # the folder in which the wrapper has these names
# Programs keep their symbols, by which counters are found; the strip of this machine would refuse them anyhow.
_STRIP = """\
#!/bin/sh
# Strips nothing; with -o it copies.
to= from=
while [ $# -gt 0 ]; do
  case $1 in
    -o) to=$2; shift ;;
    --output-file=*) to=${1#*=} ;;
    -[FIOKNRw]) shift ;;
    -*) ;;
    *) from=$1 ;;
  esac
  shift
done
[ -z "$to" ] || exec cp "$from" "$to"
"""
_START = "start-program"
# What the build makes is started like any program: `instrumenter.projects.made_programs` sends what is for the guest to
# the emulator. cmake wants a command for that, nevertheless: without one it neither replaces the names of targets by
# paths in the commands that it writes, nor runs what it compiles as a test.
_START_SCRIPT = '#!/bin/sh\nexec "$@"\n'
# Variables that would make the program depend on the user's environment.
_NOT_INHERITED = (
    "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "LDLIBS", "LIBS", "CPP", "LD", "MAKEFLAGS", "MFLAGS", "MAKELEVEL",
    "MAKEFILES", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "CONFIG_SITE",
    "CROSS_COMPILE", "ARCH", "DESTDIR", "PKG_CONFIG_PATH",
)  # fmt: skip
# Variables of a terminal, a session, or a job of a service that runs tests: they differ from call to call, and what a
# program is made of does not depend on them. LC_ALL is set for builds; PATH counts by the tools that it leads to.
_OF_SESSION = re.compile(
    r"_|PATH|HOME|PWD|OLDPWD|SHLVL|USER|LOGNAME|HOSTNAME|SHELL|MAIL|TMPDIR|TMP|TEMP|LANG|LANGUAGE|LC_\w+|PS[0-4]"
    r"|TERM|TERMINFO|TERMCAP|TERM_\w+|COLORTERM|COLORFGBG|COLUMNS|LINES|LS_COLORS|LSCOLORS|CLICOLOR\w*|NO_COLOR"
    r"|FORCE_COLOR|GCC_COLORS|GREP_COLORS?|PAGER|LESS\w*|MANPATH|INFOPATH|MANPAGER|EDITOR|VISUAL|PROMPT\w*|HIST\w+"
    r"|DISPLAY|WAYLAND_DISPLAY|XAUTHORITY|WINDOWID|WINDOWPATH|DESKTOP_SESSION|SESSION_MANAGER|INVOCATION_ID"
    r"|JOURNAL_STREAM|STY|WINDOW|DEBUGINFOD_URLS|MAKE_TERM\w+|VIRTUAL_ENV\w*|CONDA_(SHLVL|PROMPT_MODIFIER)"
    r"|PYTHON(UNBUFFERED|IOENCODING|DONTWRITEBYTECODE|FAULTHANDLER|WARNINGS)"
    r"|(SSH|XDG|DBUS|GPG|TMUX|VTE|GNOME|KDE|GTK|QT|WT|ITERM|KITTY|KONSOLE|ALACRITTY|WEZTERM|VSCODE|SUDO|SYSTEMD"
    r"|PYTEST|PERTURBATION|INSTRUMENT|GITHUB|RUNNER|ACTIONS|CI|SLURM|PBS|LSB)_\w*|BUILD_(ID|NUMBER|TAG|URL|DISPLAY_NAME)"
)
# Programs that makefiles and scripts of a build call, and that make sources or decide on them.
_TOOLS_OF_MACHINE = (
    "make", "cmake", "ninja", "meson", "sh", "bash", "python", "python3", "perl", "awk", "sed", "m4", "bison", "yacc",
    "flex", "lex", "gperf", "pkg-config", "autoconf", "automake", "libtool", "tclsh", "objcopy", "as", "xxd",
)  # fmt: skip
_NAME = re.compile(r"[\w.+-]+")
# Programs are linked statically. A project that makes a library both shared and static gives both targets one name, so
# both would be written to the same file, perhaps at once: where names are equal, later targets add their own to theirs.
_STATIC_LIBRARIES = """\
set_property(GLOBAL PROPERTY TARGET_SUPPORTS_SHARED_LIBS FALSE)
function(_instrument_name_archives directory)
  get_property(targets DIRECTORY "${directory}" PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    if(type STREQUAL "STATIC_LIBRARY")
      set(name ${target})
      foreach(property OUTPUT_NAME ARCHIVE_OUTPUT_NAME)
        get_target_property(value ${target} ${property})
        if(value)
          set(name ${value})
        endif()
      endforeach()
      get_target_property(folder ${target} ARCHIVE_OUTPUT_DIRECTORY)
      if(NOT folder)
        get_target_property(folder ${target} BINARY_DIR)
      endif()
      get_property(taken GLOBAL PROPERTY _instrument_archives)
      list(FIND taken "${folder}/${name}" index)
      if(NOT index EQUAL -1)
        set_target_properties(${target} PROPERTIES ARCHIVE_OUTPUT_NAME "${name}-${target}")
      endif()
      set_property(GLOBAL APPEND PROPERTY _instrument_archives "${folder}/${name}")
    endif()
  endforeach()
  get_property(below DIRECTORY "${directory}" PROPERTY SUBDIRECTORIES)
  foreach(each IN LISTS below)
    _instrument_name_archives("${each}")
  endforeach()
endfunction()
get_property(called GLOBAL PROPERTY _instrument_called)
if(NOT called AND CMAKE_VERSION VERSION_GREATER_EQUAL 3.19)
  set_property(GLOBAL PROPERTY _instrument_called TRUE)
  cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}" CALL _instrument_name_archives "${CMAKE_SOURCE_DIR}")
endif()
"""


def write_compilers(folder: Path, target: str = GUEST_TARGET) -> None:
    """Write the compiler commands for ``target`` and their description for cmake into ``folder``.

    In cmake, libraries that a project makes shared become static ones, in files of their own. ``strip`` is a command
    that strips nothing, and ``ld`` one that links objects of the emulated machine partially.
    """
    folder.mkdir()
    package = Path(__file__).parents[2]
    for command, function in _COMMANDS.items():
        if command == "ld" and target != GUEST_TARGET:
            continue  # this machine's own is the right one
        code = (
            f"import sys; sys.path.insert(0, {str(package)!r}); "
            f"from instrumenter.wrapper.cli import {function}; {function}()"
        )
        script = folder / command
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -c {shlex.quote(code)} "$@"\n', "utf-8")
        script.chmod(0o755)
    (folder / "strip").write_text(_STRIP, "utf-8")
    (folder / "strip").chmod(0o755)
    (folder / _START).write_text(_START_SCRIPT, "utf-8")
    (folder / _START).chmod(0o755)
    (folder / _NAMED).mkdir()
    for name, variable in TOOL_NAMES.items():
        (folder / _NAMED / name).symlink_to(Path("..") / TOOLS[variable])
    (folder / "toolchain.cmake").write_text(
        f"set(CMAKE_SYSTEM_NAME Linux)\nset(CMAKE_SYSTEM_PROCESSOR {target.partition('-')[0]})\n"
        "set(CMAKE_C_COMPILER instrument-cc)\nset(CMAKE_CXX_COMPILER instrument-c++)\n"
        f'set(CMAKE_AR "{folder}/instrument-ar" CACHE FILEPATH "")\n'
        f'set(CMAKE_RANLIB "{folder}/instrument-ranlib" CACHE FILEPATH "")\n'
        f'set(CMAKE_CROSSCOMPILING_EMULATOR "{folder}/{_START}" CACHE FILEPATH "")\n'
        f'set(CMAKE_FIND_ROOT_PATH "{folder}/target")\nset(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)\n'
        + "".join(f"set(CMAKE_FIND_ROOT_PATH_MODE_{n} ONLY)\n" for n in ("LIBRARY", "INCLUDE", "PACKAGE"))
        + f'set(CMAKE_USER_MAKE_RULES_OVERRIDE "{folder}/static.cmake")\n'
        + CMAKE_VARIABLES,
        "utf-8",
    )
    # cmake reads this after its own rules for Linux, which say otherwise.
    (folder / "static.cmake").write_text(_STATIC_LIBRARIES, "utf-8")


def build_environment(folder: Path, own: Mapping[str, str], target: str = GUEST_TARGET) -> dict[str, str]:
    """The environment of a build command: the compilers of ``folder``, none of this machine's libraries."""
    kept = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    return {
        **kept, "PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}", "LC_ALL": "C",
        **TOOLS,
        "CMAKE_TOOLCHAIN_FILE": str(folder / "toolchain.cmake"), "PKG_CONFIG_LIBDIR": str(folder / "target"),
        "COMPILERS": str(folder / _NAMED), "HOST": target, "SOURCE_DATE_EPOCH": "1000000000", **own,
    }  # fmt: skip


def environment_digest(command: str) -> str:
    """Hash of what a build by ``command`` depends on in this process's environment: the variables that it inherits,
    without those of the session, and the tools of the machine that PATH leads to."""
    kept = {
        name: value
        for name, value in build_environment(Path("/"), {}).items()
        if os.environ.get(name) == value and not _OF_SESSION.fullmatch(name)
    }
    words = sorted({*_TOOLS_OF_MACHINE, *_NAME.findall(command)})
    tools = {word: os.path.realpath(found) for word in words if (found := shutil.which(word))}
    identity = json.dumps([kept, tools], sort_keys=True)
    return hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()


def run_command(
    command: str, directory: Path, environment: Mapping[str, str], output: Path, linked: Callable[[], list[str]],
    old: Callable[[], list[str]],
) -> None:  # fmt: skip
    """Run a build command by the shell; its output goes to the file ``output``. Raises `BuildFailure`.

    For the message if it fails, ``linked`` gives the programs that it has linked, and ``old`` the objects and archives
    that were there before and are as they were.
    """
    with output.open("wb") as file:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command], cwd=directory, env=dict(environment),
            stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            status = process.wait()
        finally:
            if process.poll() is None:  # after Ctrl-C: make has children
                os.killpg(process.pid, signal.SIGTERM)
                process.wait()
    if status:
        how = f"was ended by signal {-status}" if status < 0 else f"failed with exit status {status}"
        text = output.read_text("utf-8", "replace")
        raise build_failure(command, how, text, str(output), environment["HOST"], linked(), directory, old())
