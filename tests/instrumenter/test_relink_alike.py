"""Programs with counters that are linked with their data where those of the plain program lie."""

from __future__ import annotations

import pytest

from emulator.linux.loader.elf import load_image
from instrumenter.building.generated_sources import preprocess_all
from instrumenter.building.program_build import Build, Recipe
from instrumenter.building.relink import PADDING, relinked
from instrumenter.building.relink_alike import relinked_alike
from instrumenter.compiler.toolchain import Toolchain
from instrumenter.spec.software_metrics import MetricSpec
from tests.instrumenter.test_relink import output_of

SOURCE = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static char text[301], copy[67], letters[5] = "abcd", other[33];
__thread int of_thread = 3;
__thread char unset[7];
int started;
__attribute__((constructor)) static void start(void) { started = 1; }
static const char *const names[] = {"one", "two", "three", "four"};
__attribute__((noinline)) int work(int n) {
    static short seen[3];
    memcpy(text + n % 7, copy + n % 5, 40 + n % 20);
    seen[n % 3]++;
    switch (n % 6) {
    case 0: return 7;
    case 1: return strlen(names[n % 4]);
    case 2: return of_thread++;
    case 3: return letters[n % 4];
    case 4: return unset[n % 7]++;
    default: return other[n % 33] ^= n;
    }
}
int main(void) {
    long sum = started;
    for (int n = 0; n < 300; n++) sum += work(n);
    printf("%ld %p %p %p\\n", sum, (void *)text, (void *)malloc(9), (void *)names);
    return 0;
}
"""
SETS = {
    "one": {"calls": MetricSpec(event="entry", function="work")},
    "sampled": {
        "calls": MetricSpec(event="entry", function="work", sampled=7),
        "loops": MetricSpec(event="loop", function="main"),
        "turns": MetricSpec(event="write", function="main", variable="sum"),
    },
}


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Build]:
    """The program without metrics, and with each set of `SETS`."""
    source = tmp_path_factory.mktemp("alike") / "p.c"
    source.write_text(SOURCE)
    recipe = Recipe(preprocess_all([source], ("-O2",), Toolchain()), relinkable=True)
    return {"plain": recipe.build({}), **{name: recipe.build(metrics) for name, metrics in SETS.items()}}


def variables(program: bytes) -> dict[tuple[str, int], int]:
    """Addresses of variables by name and size, without what is linked in for counters."""
    image = load_image(program, "program")
    return {
        (one.name, one.size_bytes): one.address
        for one in image.symbols
        if one.size_bytes and not one.is_function and not one.name.startswith(("__measure", PADDING))
    }


@pytest.mark.parametrize(
    ("program", "other"), [("one", "plain"), ("sampled", "plain"), ("one", "sampled"), ("sampled", "one")]
)
@pytest.mark.parametrize("seed", [1, 2, None])
def test_data_heap_and_what_is_printed_of_them_are_the_same(
    builds: dict[str, Build], program: str, other: str, seed: int | None
) -> None:
    """Counters of 8 bytes before other data moved them, and longer code all data."""
    path = builds[other].elf_path
    measured = path.read_bytes() if seed is None else relinked(path, seed)
    alike = relinked_alike(builds[program].elf_path, seed, measured)
    assert variables(alike) == variables(measured)
    assert len(variables(alike)) > 20
    assert load_image(alike, "program").end == load_image(measured, "program").end
    assert output_of(alike) == output_of(measured)
    apart = builds[program].elf_path.read_bytes() if seed is None else relinked(builds[program].elf_path, seed)
    assert variables(apart) != variables(measured)
    names = [one.name for one in load_image(alike, "program").symbols]
    assert "__measure_counters" in names


def test_what_cannot_have_the_same_places_is_linked_in_the_order_of_the_seed(builds: dict[str, Build]) -> None:
    """Sections that grow into the next ones, as those of another program do."""
    own = builds["one"].elf_path
    small = bytearray(relinked(own, 3))
    assert relinked_alike(own, 3, bytes(small[:16]) + b"\x03" + bytes(small[17:])) == bytes(small)  # ET_DYN
