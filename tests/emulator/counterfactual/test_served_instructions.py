"""Which instructions only serve given accesses, on code assembled by hand."""

from __future__ import annotations

from emulator.counterfactual.served_instructions import served_instructions
from emulator.isa.decode import assemble

A0, A1, T0, T1, S0, RA = 10, 11, 5, 6, 8, 1


def served(words: list[int], accesses: list[int]) -> list[int]:
    """Indices of the instructions of a function that serve its instructions with the indices ``accesses``."""
    code = b"".join(word.to_bytes(4, "little") for word in words)
    functions = [(0, len(code))]
    found = served_instructions(lambda at, size: code[at : at + size], functions, [4 * n for n in accesses])
    return sorted(pc // 4 for pc in found)


RETURN = assemble("jalr", 0, RA, imm=0)
FORM = assemble("lui", T0, imm=0x10000)
LOAD = assemble("ld", T1, T0, imm=0)
ADD = assemble("addi", T1, T1, imm=1)
STORE = assemble("sd", rs1=T0, rs2=T1, imm=0)


def test_an_increment_is_found_with_the_formation_of_its_address() -> None:
    assert served([FORM, LOAD, ADD, STORE, RETURN], [1, 3]) == [0, 1, 2, 3]


def test_an_address_that_something_else_uses_is_not_the_counters() -> None:
    other = assemble("ld", A0, T0, imm=64)
    assert served([FORM, LOAD, ADD, STORE, other, RETURN], [1, 3]) == [1, 2, 3]


def test_a_result_in_a_register_that_the_caller_reads_is_used() -> None:
    add = assemble("addi", A0, T1, imm=1)
    store = assemble("sd", rs1=T0, rs2=A0, imm=0)
    assert served([FORM, LOAD, add, store, RETURN], [1, 3]) == [0, 1, 3]


def test_a_count_in_a_register_over_a_loop_is_found() -> None:
    # A loop counts in T1 and in A0; only the first goes to the counter, and A0 decides when the loop ends.
    loop = [ADD, assemble("addi", A0, A0, imm=-1), assemble("bne", rs1=A0, rs2=0, imm=-8)]
    code = [FORM, LOAD, *loop, STORE, RETURN]
    assert served(code, [1, 5]) == [0, 1, 2, 5]


def test_instructions_that_nothing_uses_anyway_are_not_the_counters() -> None:
    idle = assemble("addi", 28, 0, imm=7)
    assert served([idle, FORM, LOAD, ADD, STORE, RETURN], [2, 4]) == [1, 2, 3, 4]


def test_arguments_count_as_used_only_where_the_callee_reads_them() -> None:
    add, store = assemble("addi", A1, A1, imm=1), assemble("sd", rs1=T0, rs2=A1, imm=0)
    load = assemble("ld", A1, T0, imm=0)
    call = assemble("jal", RA, imm=8)

    def calls(callee: list[int]) -> list[int]:
        code = [FORM, load, add, store, call, RETURN, *callee]
        text = b"".join(word.to_bytes(4, "little") for word in code)
        functions = [(0, 24), (24, len(text))]
        found = served_instructions(lambda at, size: text[at : at + size], functions, [4, 12])
        return sorted(pc // 4 for pc in found)

    assert calls([assemble("addi", A0, A0, imm=1), RETURN]) == [0, 1, 2, 3]
    assert calls([assemble("addi", A0, A1, imm=1), RETURN]) == [0, 1, 3]  # the sum goes to the callee
