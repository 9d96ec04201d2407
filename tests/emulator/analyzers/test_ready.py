"""The ready analyzers against naive twins, over what the oracle tells."""

from __future__ import annotations

import bisect
import re
import shutil
import subprocess
from collections import Counter, OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.analyzers.analysis_session import Session
from emulator.analyzers.analyzer import Analyzer
from emulator.analyzers.branches import NAMES, BranchPredictors
from emulator.analyzers.caches import CacheHierarchy, CacheSweep, Geometry
from emulator.analyzers.callgraph import CallGraph
from emulator.analyzers.coverage import Coverage
from emulator.analyzers.event_selection import Selection
from emulator.analyzers.footprint import Footprint
from emulator.analyzers.mix import InstructionMix
from emulator.analyzers.registry import ANALYZERS, find, make
from emulator.analyzers.values import ValueLocality
from emulator.analyzers.vectors import BlockVectors
from emulator.analyzers.vectors_kernel import MOST_BYTES_OF_ENTRY, put_vectors
from emulator.errors import EmulatorError
from emulator.events import OpClass
from emulator.linux.loader.elf import ElfImage, load_image
from emulator.machine import Machine
from instrumenter.building.program_build import build_program
from tests.emulator.analyzers.oracle_steps import steps_of

TAILS = """
#define TAIL __attribute__((musttail)) return
#define APART __attribute__((noinline))
volatile long seen;
APART long third(long n) { seen += n; return n * 3; }
APART long second(long n) { if (n & 1) seen++; TAIL third(n + 1); }
APART long first(long n) { seen ^= n; TAIL second(n * 2); }
APART long odd(long n);
APART long even(long n) { seen += 2; if (n == 0) return 1; TAIL odd(n - 1); }
APART long odd(long n) { if (n == 0) return 0; TAIL even(n - 1); }
int main(void) {
  long sum = 0;
  for (int i = 0; i < 10; i++) sum += first(i) + third(i);
  return (int)(sum + even(201)) & 1;
}
"""
SMALL = ("256:1:16", "512:2:16", "1K:4:32", "2K:2:64", "768:3:64")


def watch(program: Path, *analyzers: Analyzer, **options: Any) -> str:
    with Machine(program, ["3"], **options) as machine:
        session = Session(machine, analyzers)
        session.run()
        session.finish()
    assert all(analyzer.report() for analyzer in analyzers)
    return analyzers[0].report()


class NaiveCache:
    def __init__(self, text: str) -> None:
        self.geometry = Geometry.parse(text)
        self.n_sets = self.geometry.size_bytes // (self.geometry.ways * self.geometry.line_bytes)
        self.sets: defaultdict[int, OrderedDict[int, None]] = defaultdict(OrderedDict)
        self.accesses = self.misses = 0

    def touch(self, address: int) -> bool:
        line = address // self.geometry.line_bytes
        held = self.sets[line % self.n_sets]
        self.accesses += 1
        hit = line in held
        if hit:
            held.move_to_end(line)
        else:
            self.misses += 1
            held[line] = None
            if len(held) > self.geometry.ways:
                held.popitem(last=False)
        return hit


def accesses(steps: list[Any]) -> list[int]:
    return [step.fields["address"] for step in steps if step.instruction.row.access]


def test_mix(small: Path, steps: list[Any]) -> None:
    by_class, by_mnemonic = InstructionMix(), InstructionMix(by="mnemonic", top=5)
    report = watch(small, by_class, by_mnemonic)
    assert by_class.counts == Counter(step.op_class.name.lower() for step in steps)
    assert by_mnemonic.counts == Counter(step.mnemonic for step in steps)
    assert report.splitlines()[0].split() == [f"{len(steps):,}", "instructions"]
    assert len(by_mnemonic.report().splitlines()) == 6
    within = InstructionMix(by="mnemonic")
    within.restrict("symbol=walk class=load,branch")
    watch(small, within)
    walk = load_image(small).find_symbol("walk")
    assert walk is not None
    inside = range(walk.address, walk.address + walk.size_bytes)
    taken = (OpClass.LOAD, OpClass.BRANCH)
    assert within.counts == Counter(s.mnemonic for s in steps if s.pc in inside and s.op_class in taken)


def test_caches(small: Path, steps: list[Any]) -> None:
    analyzer = CacheSweep(",".join(SMALL))
    twins = [NaiveCache(text) for text in SMALL]
    for address in accesses(steps):
        for twin in twins:
            twin.touch(address)
    watch(small, analyzer)
    assert analyzer.accesses == twins[0].accesses
    assert analyzer.misses.tolist() == [twin.misses for twin in twins]
    assert len(set(analyzer.misses.tolist())) == len(SMALL)


def test_hierarchy(small: Path, steps: list[Any]) -> None:
    analyzer = CacheHierarchy(l1i="512:2:32", l1d="256:1:32", l2="2K:4:64")
    l1i, l1d, l2 = (NaiveCache(text) for text in ("512:2:32", "256:1:32", "2K:4:64"))
    last = None
    for step in steps:
        if step.pc // 32 != last:
            last = step.pc // 32
            if not l1i.touch(step.pc):
                l2.touch(step.pc)
        if step.instruction.row.access and not l1d.touch(step.fields["address"]):
            l2.touch(step.fields["address"])
    watch(small, analyzer)
    assert analyzer.counts.tolist() == [[c.accesses, c.misses] for c in (l1i, l1d, l2)]


@pytest.mark.parametrize("text", ["32K", "32K:8:48", "30K:8:64", "0:1:64", "32K:0:64", "x:1:1"])
def test_what_is_no_cache(text: str) -> None:
    with pytest.raises(EmulatorError, match="expected SIZE:WAYS:LINE, such as 32K:8:64"):
        Geometry.parse(text)


def test_branches(small: Path, steps: list[Any]) -> None:
    """Twin with a dictionary a table; 1024 entries."""
    wrong: Counter[str] = Counter()
    mask, history = 1023, 0
    tables: list[defaultdict[int, int]] = [defaultdict(lambda: 1) for _ in range(4)]
    locals_: defaultdict[int, int] = defaultdict(int)

    def trained(table: defaultdict[int, int], place: int, outcome: int) -> int:
        predicted = int(table[place] >= 2)
        table[place] = min(3, table[place] + 1) if outcome else max(0, table[place] - 1)
        return predicted

    branches = [step for step in steps if step.op_class == OpClass.BRANCH]
    for step in branches:
        outcome, place = step.fields["taken"], step.pc >> 1 & mask
        simple = trained(tables[0], place, outcome)
        shared = trained(tables[1], (step.pc >> 1 ^ history) & mask, outcome)
        local = trained(tables[2], locals_[place], outcome)
        locals_[place] = (locals_[place] << 1 | outcome) & 1023
        chosen = shared if tables[3][place] >= 2 else simple
        if simple != shared:
            trained(tables[3], place, int(shared == outcome))
        history = (history << 1 | outcome) & mask
        for name, predicted in zip(NAMES, (1, simple, shared, local, chosen), strict=True):
            wrong[name] += predicted != outcome
    analyzer = BranchPredictors(entries=1024)
    watch(small, analyzer)
    assert analyzer.branches == len(branches)
    assert analyzer.wrong.tolist() == [wrong[name] for name in NAMES]


def test_values(small: Path, steps: list[Any]) -> None:
    analyzer = ValueLocality(entries=64, depth=4)
    tables: defaultdict[int, list[int]] = defaultdict(list)
    last = anywhere = 0
    loads = [step for step in steps if step.op_class in (OpClass.LOAD, OpClass.FP_LOAD)]
    for step in loads:
        held, value = tables[step.pc >> 1 & 63], step.fields["value"]
        last += held[:1] == [value]
        anywhere += value in held
        if value in held:
            held.remove(value)
        held.insert(0, value)
        del held[4:]
    watch(small, analyzer)
    assert analyzer.loads == len(loads)
    assert analyzer.hits.tolist() == [last, anywhere]
    assert 0 < last < anywhere < len(loads)


def naive_call_graph(program: Path, steps: list[Any]) -> tuple[dict[str, tuple[int, int, int]], Counter[Any]]:
    """Calls, inclusive and own instructions by function; calls by caller and callee."""
    image = load_image(program)
    found = {pc: image.function_at(pc) for pc in {step.pc for step in steps}}
    names = {pc: (function or image.symbols[0]).name for pc, function in found.items()}
    calls: Counter[str] = Counter()
    own: Counter[str] = Counter()
    inclusive: Counter[str] = Counter()
    edges: Counter[tuple[str, str]] = Counter()
    stack: list[list[tuple[str, int]]] = []  # calls, and in each the functions that went on in one another
    places: list[int] = []  # where each returns to

    def leave(depth: int, within: int, now: int) -> None:
        while len(stack) > depth + 1 or (len(stack) == depth + 1 and len(stack[-1]) > within):
            callee, since = stack[-1].pop()
            if all(frame[0] != callee for chain in stack for frame in chain):
                inclusive[callee] += now - since
            if not stack[-1]:
                stack.pop()
                places.pop()

    for now, (step, following) in enumerate(zip(steps, [*steps[1:], None], strict=True)):
        caller = names[step.pc]
        own[caller] += 1
        if following is None:
            continue
        callee, function = names[following.pc], found[following.pc]
        jumps = step.op_class in (OpClass.JUMP, OpClass.INDIRECT_JUMP, OpClass.BRANCH)
        begins = function is not None and function.address == following.pc
        if step.op_class in (OpClass.CALL, OpClass.INDIRECT_CALL):
            stack.append([(callee, now + 1)])
            places.append(step.pc + step.instruction.length_bytes)
        elif step.op_class == OpClass.RETURN and following.pc in places:
            leave(len(places) - 1 - places[::-1].index(following.pc), 0, now + 1)
        if jumps and begins and callee != caller:
            if not stack:
                stack.append([])
                places.append(-1)
            chain = [name for name, _ in stack[-1]]
            if callee in chain:
                leave(len(stack) - 1, chain.index(callee) + 1, now + 1)
            else:
                stack[-1].append((callee, now + 1))
        elif step.op_class not in (OpClass.CALL, OpClass.INDIRECT_CALL):
            continue
        calls[callee] += 1
        edges[caller, callee] += 1
    leave(0, 0, len(steps))
    return {name: (calls[name], max(inclusive[name], own[name]), own[name]) for name in own}, edges


def test_call_graph(small: Path, steps: list[Any]) -> None:
    functions, edges = naive_call_graph(small, steps)
    analyzer = CallGraph()
    report = watch(small, analyzer)
    assert analyzer.functions == functions
    assert {pair: count for pair, (count, _) in analyzer.edges.items()} == edges
    assert analyzer.functions["leaf"][0] == analyzer.edges["twice", "leaf"][0] + 3 * 5
    assert analyzer.edges["fact", "fact"][0] > 3
    assert f"fact {analyzer.edges['fact', 'fact'][0]}" in report


def test_call_graph_of_tail_calls(tmp_path: Path) -> None:
    """Functions that go on in others: one after the other, in turns, and again from below."""
    source = tmp_path / "tails.c"
    source.write_text(TAILS)
    program = build_program([source], ["-O1", "-g"]).elf_path
    functions, edges = naive_call_graph(program, steps_of(program, "3"))
    analyzer = CallGraph()
    watch(program, analyzer)
    assert analyzer.functions == functions
    assert {pair: count for pair, (count, _) in analyzer.edges.items()} == edges
    calls, inclusive, own = analyzer.functions["first"]
    assert calls == 10
    assert inclusive == own + analyzer.edges["first", "second"][1]
    assert analyzer.functions["second"][1] == analyzer.functions["second"][2] + analyzer.edges["second", "third"][1]
    assert analyzer.edges["even", "odd"][0] + analyzer.edges["odd", "even"][0] == 201
    assert analyzer.functions["even"][1] == analyzer.functions["even"][2] + analyzer.functions["odd"][2]


def test_functions_of_cplusplus_are_shown_and_selected_as_people_write_them(tmp_path: Path) -> None:
    source = tmp_path / "mangled.c"
    source.write_text(
        """long turn(long n) __asm__("_ZN3geo5MixerIiE4turnEl"), both(long n) __asm__("_ZL4bothl");
        __attribute__((noinline)) long turn(long n) { volatile long h = n; return h * 3; }
        __attribute__((noinline)) long both(long n) { return turn(n) + turn(n + 1); }
        int main(void) { return both(1) + both(2) != 30; }"""
    )
    program = build_program([source], ["-O1", "-g"]).elf_path
    report = watch(program, CallGraph(top=1000))
    assert re.search(r" 4  geo::Mixer<int>::turn <- both 4$", report, re.M)
    assert "_ZN3geo" not in report
    image = load_image(program)
    turn = image.find_symbol("_ZN3geo5MixerIiE4turnEl")
    assert turn is not None
    for name in ("geo::Mixer<int>::turn", "geo::Mixer*::turn", "_ZN3geo5MixerIiE4turnEl"):
        found = Selection.parse(f"symbol={name}").resolve([image], ())
        assert found == (((turn.address, turn.address + turn.size_bytes),), [])
    _, [missing] = Selection.parse("symbol=geo::Mixer<int>::turns").resolve([image], ())
    assert "did you mean geo::Mixer<int>::turn" in str(missing)


def test_footprint(small: Path, steps: list[Any], tmp_path: Path) -> None:
    analyzer = Footprint(interval=2000, out=str(tmp_path / "footprint.png"))
    watch(small, analyzer)
    begin, seen_lines, seen_pages = 0, set(), set()
    for end, lines, pages, all_lines, all_pages in analyzer.rows:
        touched = accesses(steps[begin:end])
        seen_lines |= {address >> 6 for address in touched}
        seen_pages |= {address >> 12 for address in touched}
        assert lines == len({address >> 6 for address in touched})
        assert pages == len({address >> 12 for address in touched})
        assert (all_lines, all_pages) == (len(seen_lines), len(seen_pages))
        begin = end
    assert begin == len(steps)
    assert len(analyzer.rows) == -(-len(steps) // 2000)
    assert (tmp_path / "footprint.png").read_bytes()[:4] == b"\x89PNG"


def test_coverage(small: Path, steps: list[Any], tmp_path: Path) -> None:
    analyzer = Coverage(out=str(tmp_path / "c.info"), test="three")
    watch(small, analyzer)
    source = next(name for name in analyzer.lines if name.endswith("/small.c"))
    counts = Counter(step.pc for step in steps)
    expected: dict[int, int] = {}
    pcs = sorted(counts)
    for row in load_image(small).line_rows():
        if row.file == source and row.line:
            inside = pcs[bisect.bisect_left(pcs, row.address) : bisect.bisect_left(pcs, row.end)]
            most = max((counts[pc] for pc in inside), default=0)
            expected[row.line] = max(expected.get(row.line, 0), most)
    assert analyzer.lines[source] == expected
    text = (tmp_path / "c.info").read_text()
    record = text[text.index(f"SF:{source}\n") :].partition("end_of_record")[0].splitlines()
    lines = (Path(__file__).parent / "guest" / "small.c").read_text().splitlines()
    walk = 1 + next(n for n, line in enumerate(lines) if " walk(" in line)
    assert text.startswith("TN:three\n")
    assert {"FNDA:3,walk", "FNDA:1,main"} <= set(record)
    assert any(line.startswith("FN:") and line.endswith(",walk") for line in record)
    assert f"DA:{walk + 4},{3 * 64}" in record  # the loop's body
    assert f"LF:{len(expected)}" in record
    outcomes: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0])
    for step in steps:
        if step.op_class == OpClass.BRANCH:
            outcomes[step.pc][step.fields["taken"]] += 1
    image = load_image(small)
    found: defaultdict[int, list[list[int]]] = defaultdict(list)
    for pc in sorted(outcomes):
        place = image.source_line(pc)
        if place is not None and place[0] == source:
            found[place[1]].append(outcomes[pc])
    branches: defaultdict[int, list[list[int]]] = defaultdict(list)
    for line in record:
        if line.startswith("BRDA:"):
            where, block, way, ran = line[5:].split(",")
            if way == "0":
                assert int(block) == len(branches[int(where)])
                branches[int(where)].append([])
            if ran != "-":
                branches[int(where)][-1].append(int(ran))
    executed = {line: [both for both in those if both] for line, those in branches.items()}
    assert {line: those for line, those in executed.items() if those} == found
    assert f"BRF:{2 * sum(map(len, branches.values()))}" in record
    assert [3, 3 * 63] in found[walk + 3] or [3 * 63, 3] in found[walk + 3]  # the loop's end
    assert f"LH:{sum(ran > 0 for ran in expected.values())}" in record


@pytest.mark.parametrize("branches", [0, 1])
def test_coverage_of_a_part(small: Path, tmp_path: Path, branches: int) -> None:
    whole = Coverage(out=str(tmp_path / "a"), branches=branches)
    part = Coverage(out=str(tmp_path / "b"), branches=branches)
    part.restrict("symbol=walk,fact")
    watch(small, whole)
    watch(small, part)
    (source,) = part.lines
    assert set(part.functions[source]) == {"walk", "fact"}
    assert part.lines[source].items() < whole.lines[source].items()
    assert 3 * 64 in part.lines[source].values()  # the body of walk's loop
    assert bool(part.branches) == bool(branches)
    assert part.branches.get(source, {}).items() <= whole.branches.get(source, {}).items()
    with pytest.raises(EmulatorError, match="expected the code to cover: symbol, source, library or range"):
        part.restrict("class=load")


def test_coverage_is_of_the_programs_own_sources(small: Path, tmp_path: Path) -> None:
    """A small program had 1,870 of 11,514 lines of 322 files, 301 of which are the compiler's libraries'."""
    own, libraries, selected = (
        Coverage(out=str(tmp_path / "a")), Coverage(out=str(tmp_path / "b"), libraries=1),
        Coverage(out=str(tmp_path / "c")),
    )  # fmt: skip
    selected.restrict("symbol=exit")
    for analyzer in (own, libraries, selected):
        watch(small, analyzer)
    (source,) = own.lines
    assert source.endswith("/small.c")
    assert set(own.functions) == set(own.branches) == {source}
    assert own.lines[source] == libraries.lines[source]
    assert any(name.endswith("/exit.c") for name in libraries.lines)
    assert selected.lines
    assert source not in selected.lines


def test_coverage_without_branches(small: Path, tmp_path: Path) -> None:
    with_them, without = (Coverage(out=str(tmp_path / name), branches=n) for n, name in ((1, "a"), (0, "b")))
    watch(small, with_them)
    watch(small, without)
    text = (tmp_path / "a").read_text().splitlines()
    assert [line for line in text if line[:2] != "BR"] == (tmp_path / "b").read_text().splitlines()


def test_genhtml_shows_the_branches(small: Path, tmp_path: Path) -> None:
    genhtml = shutil.which("genhtml")
    if genhtml is None:
        pytest.skip("no genhtml (lcov) on this host")
    info, pages = tmp_path / "c.info", tmp_path / "pages"
    watch(small, Coverage(out=str(info)))
    text = info.read_text()
    ours = next(record for record in text.split("end_of_record\n") if "/small.c\n" in record)
    info.write_text(ours[ours.index("SF:") :] + "end_of_record\n")
    command = [genhtml, "--branch-coverage", "-o", str(pages), str(info)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    page = next(pages.rglob("small.c.gcov.html")).read_text()
    assert "branchCov" in page
    assert "branchNoCov" in page


def test_coverage_needs_debug_information(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ElfImage, "line_rows", lambda _: ())
    with Machine(small) as machine, pytest.raises(EmulatorError, match=r"no debug information.*with -g"):
        Session(machine, [Coverage(out=str(tmp_path / "c.info"))])


def test_vectors(small: Path, steps: list[Any], tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.bb", "b.bb.gz")]
    for path in paths:
        watch(small, BlockVectors(interval=3000, out=str(path)))
    import gzip

    text = paths[0].read_text()
    assert gzip.decompress(paths[1].read_bytes()).decode() == text
    rows = [line[1:].split() for line in text.splitlines()]
    totals = [sum(int(pair.split(":")[2]) for pair in row) for row in rows]
    assert sum(totals) == len(steps)
    assert all(0 <= sum(totals[:n]) - 3000 * n < 128 for n in range(1, len(totals)))
    assert all(line.startswith("T:") for line in text.splitlines())


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(0, 1 << 21), st.integers(0, (1 << 62))), max_size=5), max_size=5))
def test_the_text_of_vectors_is_that_of_a_naive_twin(rows: list[list[tuple[int, int]]]) -> None:
    entries = [entry for row in rows for entry in row]
    starts = np.cumsum([0, *map(len, rows)])
    text = np.zeros(MOST_BYTES_OF_ENTRY * len(entries) + 2 * len(rows), np.uint8)
    numbers, counts = (np.array([entry[n] for entry in entries], kind) for n, kind in enumerate((np.uint32, np.int64)))
    n_bytes = put_vectors(text, starts, numbers, counts)
    wanted = "".join("T" + "".join(f":{number}:{count} " for number, count in row) + "\n" for row in rows)
    assert text[:n_bytes].tobytes().decode() == wanted


@pytest.mark.parametrize(("place", "why"), [("/dev/full", "No space left"), ("missing/x.bb", "No such file")])
def test_vectors_that_cannot_be_written(small: Path, tmp_path: Path, place: str, why: str) -> None:
    with pytest.raises(EmulatorError, match=rf"bbv: .*{place}: cannot be written: {why}"):
        watch(small, BlockVectors(interval=3000, out=str(tmp_path / place)))
    assert list(tmp_path.iterdir()) == []


def test_the_registry() -> None:
    assert {find(name).__mro__[1] for name in ANALYZERS} == {Analyzer}
    assert all(find(name).__doc__ for name in ANALYZERS)
    made = make("bbv", ["interval=10M", "out=x.bb"])
    assert isinstance(made, BlockVectors)
    assert made.interval_instructions == 10_000_000
    sweep = make("caches", selection="symbol=walk class=load")
    assert str(sweep.selection) == "class=load symbol=walk fields=address"


def test_analyzers_of_a_users_own(tmp_path: Path, small: Path, steps: list[Any]) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from emulator.analyzers.analyzer import Analyzer\n"
        "class Stores(Analyzer):\n"
        "    '''Counts stores.'''\n"
        "    selection = 'class=store fields=pc'\n"
        "    def __init__(self, start: int = 0):\n"
        "        self.n = start\n"
        "    def consume(self, batch):\n"
        "        self.n += len(batch)\n"
        "    def report(self):\n"
        "        return str(self.n)\n"
    )
    made = make(f"{path}:Stores", ["start=5"])
    kinds = (OpClass.STORE, OpClass.FP_STORE)
    assert watch(small, made) == str(5 + sum(step.op_class in kinds for step in steps))
    for name, message in (
        (f"{path}:Loads", "has no subclass of Analyzer of that name; it has Stores"),
        (f"{tmp_path}/other.py:X", "there is no file"),
        ("cachse", "did you mean caches"),
        ("?", "expected one of mix, caches"),
    ):
        with pytest.raises(EmulatorError, match=message):
            find(name)
    with pytest.raises(EmulatorError, match="got option 'stop=1', expected KEY=VALUE of start=0"):
        make(f"{path}:Stores", ["stop=1"])
    with pytest.raises(EmulatorError, match="got start=many, expected a number such as 0"):
        make(f"{path}:Stores", ["start=many"])
    (tmp_path / "broken.py").write_text("1/0\n")
    with pytest.raises(EmulatorError, match="ZeroDivisionError"):
        find(f"{tmp_path}/broken.py:X")
