"""What ``instrument-cc --help`` says before the compiler's own help."""

from __future__ import annotations

_HELP = """\
{command} compiles and links {language} programs, with counters in their sources,
for the emulated machine (riscv64 Linux, linked statically). It takes the place
of the compiler in a build, and takes the options of gcc and clang:

  make CC=instrument-cc CXX=instrument-c++ AR=instrument-ar
  instrument-build 'make CC=$CC'      # also runs what the build makes and runs
  ./configure --host=riscv64-linux-musl CC=instrument-cc && make
  {command} -O2 program.{ending} -o program
  {command} --instrumented program    # what is counted where; exit status 1
                                          # if a metric has no site

Environment variables:
  INSTRUMENT_SPEC  YAML file with the metrics to count: `metrics:` as a campaign
                   has `software_metrics:`, and `placement:`, `volatile:` and
                   `atomic:` (for programs that start threads).
                   Without it, programs have no counters.
  INSTRUMENT_LOG   File to which each call adds a JSON object: what it compiled,
                   counted and linked. Default: instrument-cc.jsonl beside the
                   output.

Campaigns whose program has a `build:` command set these themselves.

"""
_POINTER = "The compiler's own options: {command} --help | less\n"


def help_text(driver: str, terminal: bool) -> str:
    """The help of the command for the compiler's ``driver``, ``cc`` or ``c++``, which the compiler's own follows.

    In a ``terminal``, which shows the end of a long text only, it ends with how to read that instead.
    """
    language, ending = ("C++", "cpp") if driver == "c++" else ("C", "c")
    text = _HELP + (_POINTER if terminal else "")
    return text.format(command=f"instrument-{driver}", language=language, ending=ending)
