"""The discovery kernel: decodes a block in guest memory as `emulator.engine.blocks` and `operations` do, but faster.

A program runs through tens of thousands of blocks as it starts; Python takes longer to decode most of them than they
ever run. The kernel decodes by the same tables. Where it cannot (it cannot raise a fault, for instance) it returns 0,
and Python decodes the block; so it does where ``index`` holds `ASK_PYTHON`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

# Places in ``job``: the block's pc, the host function that runs it, its hotness threshold, the host address of the
# operations; the number of rows in each table, and the largest number of rows.
PC, FALLBACK, THRESHOLD, OPERATIONS_AT = range(4)
N_BLOCKS, N_INSTRUCTIONS, N_OPERATIONS, N_DESCRIPTORS = range(4, 8)
MAX_BLOCKS, MAX_TABLE_INSTRUCTIONS, MAX_OPERATIONS, MAX_DESCRIPTORS = range(8, 12)
HAS_INTERNED = 12  # whether ``latest`` and ``older`` are those of `InternedBlocks`
JOB_WORDS = 16
# Columns of ``rows``, which has one row for each row of the instruction table; the last eight are handlers by variant.
(
    HAS_RD, IMMEDIATE, KIND_RD, KIND_RS1, KIND_RS2, KIND_RS3, ACCESS, ACCESS_BYTES, CLASS, ENDS, SLOW, HAS_ROUNDING,
    ROUNDS, JUMP, CSR, HANDLER
) = range(16)  # fmt: skip
ROW_COLUMNS = HANDLER + 8
IMM_NONE, IMM_12, IMM_STORE, IMM_BRANCH, IMM_20, IMM_JUMP, IMM_SHIFT_6, IMM_SHIFT_5, IMM_CSR = range(9)
NO_JUMP, JAL, JALR, AUIPC = range(4)
NO_CSR, CSR_SWAPS, CSR_CHANGES = range(3)
FFLAGS, FCSR, ONE_WAY = 1, 3, 4
KIND_X, KIND_F = 1, 2
# Places in ``numbers``: instruction classes, handlers and limits.
(
    TO_CALL, TO_JUMP, TO_RETURN, TO_INDIRECT_CALL, TO_INDIRECT_JUMP, TO_BRANCH, OP_SLOW, OP_FALL_THROUGH,
    OP_SET_ROUNDING, OP_RESTORE_ROUNDING, X0_RESULT, MAX_INSTRUCTIONS, EXECUTABLE, TOP, NEARBY
) = range(15)  # fmt: skip
N_NUMBERS = 16
KNOWN, AMBIGUOUS, NEW_PAGES = 0xFFFF, 1 << 19, 2 << 19  # of `CodeShadow`
ASK_PYTHON = 0xFFFFFFFF  # in ``index``: a dispatch miss at this address returns to Python


def discover(  # type: ignore[no-untyped-def]
    job, memory, perm, blocks, instructions, operations, descriptors, index, dispatch_table, expanded, groups,
    candidates, rows, rounding, numbers, accessed, latest, older, code, known, pages
) -> Any:  # fmt: skip
    """Decode the block at ``job[PC]`` and let ``job[FALLBACK]`` run it; the number of its instructions, 0 for none.

    ``memory``: guest memory, uint8; ``perm``: permissions by page; ``blocks``, ``instructions``: `BlockFacts`;
    ``operations``, ``descriptors``, ``index``: the interpreter's tables. ``expanded``: by 16-bit instruction, the
    32-bit one, 0 for none; ``groups``: (1024, 2) by opcode and funct3, ``candidates``: (n, 3) mask, match, row;
    ``rounding``: MXCSR bits by rounding mode. ``accessed``: (32, 65) scratch: for each base register the number of its
    accesses, then their offsets, times two and plus 1 for stores. ``latest``, ``older``: of `InternedBlocks`: a block
    found there gets its number. ``code``, ``known``, ``pages``: of `CodeShadow`.
    """
    start = job[PC]
    if start < 0 or start >= numbers[TOP] or start & 1 or index[start >> 1] != 0:
        return 0
    max_instructions = numbers[MAX_INSTRUCTIONS]
    if job[N_BLOCKS] >= job[MAX_BLOCKS] or job[N_DESCRIPTORS] >= job[MAX_DESCRIPTORS]:
        return 0
    if (
        job[N_INSTRUCTIONS] + max_instructions > job[MAX_TABLE_INSTRUCTIONS]
        or job[N_OPERATIONS] + 3 * max_instructions >= job[MAX_OPERATIONS]
    ):
        return 0
    pc = start
    n = 0
    n_operations = job[N_OPERATIONS]
    first = job[N_INSTRUCTIONS]
    n_accesses = 0
    kind: Any = 0
    target: Any = -1
    ends = 0
    slow = 0
    transfers = 0
    was_auipc: Any = -1  # the register that the previous instruction, an auipc, has written
    auipc_value: Any = 0
    for register in range(32):
        accessed[register, 0] = 0
    while n < max_instructions:
        if pc + 2 > numbers[TOP] or perm[pc >> 12] & numbers[EXECUTABLE] == 0:
            break
        word = np.int64(memory[pc]) | np.int64(memory[pc + 1]) << 8
        length = 2
        if word & 3 == 3:
            if pc + 4 > numbers[TOP] or perm[(pc + 2) >> 12] & numbers[EXECUTABLE] == 0:
                break
            word |= np.int64(memory[pc + 2]) << 16 | np.int64(memory[pc + 3]) << 24
            length = 4
        raw = word
        if length == 2:
            word = np.int64(expanded[raw])
        group = (word & 127) | ((word >> 12 & 7) << 7)
        row: Any = np.int64(-1)
        for place in range(groups[group, 0], groups[group, 1]):
            if word & candidates[place, 0] == candidates[place, 1]:
                row = candidates[place, 2]
                break
        if row < 0:
            break
        about = rows[row]
        mode: Any = 7
        if about[HAS_ROUNDING]:
            mode = word >> 12 & 7
            if mode == 5 or mode == 6:
                break
        rd = (word >> 7 & 31) if about[HAS_RD] else 0
        rs1, rs2, rs3 = word >> 15 & 31, word >> 20 & 31, word >> 27 & 31
        imm = immediate(about[IMMEDIATE], word)
        kind = about[CLASS]
        if about[JUMP] == JAL:
            kind = numbers[TO_CALL] if rd == 1 or rd == 5 else numbers[TO_JUMP]
        elif about[JUMP] == JALR:
            if rd == 1 or rd == 5:
                kind = numbers[TO_INDIRECT_CALL]
            else:
                kind = numbers[TO_RETURN] if rs1 == 1 or rs1 == 5 else numbers[TO_INDIRECT_JUMP]
        fixed = mode != 7 and about[ROUNDS] != 0
        slow = 1 if about[SLOW] or (fixed and mode == 4) else 0
        ends = about[ENDS]
        transfers = 1 if ends and not about[SLOW] else 0
        if about[CSR] and imm >= FFLAGS and imm <= FCSR:
            slow, ends = 0, 0
            changed = rd if about[CSR] == CSR_SWAPS else rs1
            mode = imm if changed else imm + ONE_WAY
            if imm != FFLAGS and (about[CSR] == CSR_SWAPS or rs1 != 0):
                ends = 1

        fact = instructions[first + n]
        fact.pc, fact.length_bytes, fact.op_class = pc, length, kind
        fact.access, fact.access_bytes, fact.word = about[ACCESS], about[ACCESS_BYTES], raw
        fact.rd = observed_register(about[KIND_RD], rd)
        fact.rs1, fact.rs2, fact.rs3 = (
            observed_register(about[KIND_RS1], rs1), observed_register(about[KIND_RS2], rs2),
            observed_register(about[KIND_RS3], rs3),
        )  # fmt: skip
        if about[ACCESS]:
            n_accesses += 1
        if slow:
            put(operations[n_operations], numbers[OP_SLOW], 0, 0, 0, 0, 0, 0, pc, 0)
            n_operations += 1
        else:
            timestamped = 0
            if about[ACCESS] and rs1 != 2:
                timestamped = n + 1
                store = about[ACCESS] >> 1  # ACCESS_STORE
                for place in range(accessed[rs1, 0]):
                    before = accessed[rs1, 1 + place]
                    if abs(imm - (before >> 1)) < numbers[NEARBY] and store <= (before & 1):
                        timestamped = 0
                accessed[rs1, 1 + accessed[rs1, 0]] = imm << 1 | store
                accessed[rs1, 0] += 1
            if about[KIND_RD] == KIND_X:
                accessed[rd, 0] = 0
            if fixed:
                put(operations[n_operations], numbers[OP_SET_ROUNDING], 0, 0, 0, 0, 0, rounding[mode], pc, 0)
                n_operations += 1
            result = rd
            if about[KIND_RD] == KIND_X and rd == 0:
                result = numbers[X0_RESULT]
            elif about[KIND_RD] == KIND_F:
                result = rd + 32
            put(
                operations[n_operations], about[HANDLER + mode], result, rs1 + 32 * (about[KIND_RS1] == KIND_F),
                rs2 + 32 * (about[KIND_RS2] == KIND_F), rs3 + 32 * (about[KIND_RS3] == KIND_F), timestamped, imm, pc,
                pc + length,
            )  # fmt: skip
            n_operations += 1
            if fixed:
                put(operations[n_operations], numbers[OP_RESTORE_ROUNDING], 0, 0, 0, 0, 0, 0, pc, 0)
                n_operations += 1
        target = -1
        observed_kind = kind
        if kind == numbers[TO_BRANCH] or kind == numbers[TO_JUMP] or kind == numbers[TO_CALL]:
            target = pc + imm
        elif about[JUMP] == JALR and kind != numbers[TO_RETURN] and was_auipc == rs1:
            target = (auipc_value + imm) & ~1
            observed_kind = numbers[TO_CALL] if kind == numbers[TO_INDIRECT_CALL] else numbers[TO_JUMP]
        if target < 0 or target >= numbers[TOP]:
            target = -1
            observed_kind = kind
        kind = observed_kind
        was_auipc = -1
        if about[JUMP] == AUIPC:
            was_auipc, auipc_value = rd, pc + imm
        last = pc
        pc += length
        n += 1
        if slow or ends:
            break
    if n == 0:
        return 0
    if not (slow or transfers):
        put(operations[n_operations], numbers[OP_FALL_THROUGH], 0, 0, 0, 0, 0, 0, last, pc)
        n_operations += 1
    instructions[first + n - 1].op_class = kind
    for place in range(n):
        fact = instructions[first + place]
        note(fact.pc, fact.word & 0xFFFF, code, known, pages)
        if fact.length_bytes == 4:
            note(fact.pc + 2, np.int64(fact.word) >> 16, code, known, pages)
    number: Any = np.int64(-1)
    if job[HAS_INTERNED]:
        number = np.int64(latest[start >> 1]) - 1
        while number >= 0:
            other = blocks[number]
            unlike = n - other.n_instructions
            if unlike == 0:
                for place in range(n):
                    if instructions[other.first_instruction + place].word != instructions[first + place].word:
                        unlike = 1
                        break
            if unlike == 0:
                break
            number = np.int64(older[number]) - 1
    if number < 0:
        number = job[N_BLOCKS]
        block = blocks[number]
        block.pc, block.end_pc, block.first_instruction, block.n_instructions = start, pc, first, n
        block.n_accesses, block.terminator, block.pad = n_accesses, kind, 0
        block.target_known = 0 if target < 0 else 1
        block.target_pc = 0 if target < 0 else target
        job[N_BLOCKS], job[N_INSTRUCTIONS] = number + 1, first + n
    descriptor = descriptors[job[N_DESCRIPTORS]]
    descriptor.operations = job[OPERATIONS_AT] + job[N_OPERATIONS] * operations.itemsize
    descriptor.count, descriptor.n_instructions, descriptor.number = 0, n, number
    descriptor.threshold, descriptor.pc = job[THRESHOLD], start
    descriptor.n_operations = n_operations - job[N_OPERATIONS]
    index[start >> 1] = job[N_DESCRIPTORS]
    if dispatch_table[start >> 1] == 0:
        dispatch_table[start >> 1] = job[FALLBACK]
    job[N_OPERATIONS] = n_operations
    job[N_DESCRIPTORS] += 1
    return n


def note(pc, half, code, known, pages):  # type: ignore[no-untyped-def]
    """As `CodeShadow.note`."""
    place, page = pc >> 1, pc >> 12
    if known[place] != 0 and code[place] != half:
        pages[AMBIGUOUS + page] = 1
    if pages[page] == 0:
        pages[page] = 1
        pages[NEW_PAGES] = 1
    code[place] = half
    known[place] = KNOWN


def observed_register(kind, number):  # type: ignore[no-untyped-def]
    """The number of a register in the facts."""
    if kind == 0:
        return 0
    return number + 32 if kind == KIND_F else number


def put(operation, handler, rd, rs1, rs2, rs3, timestamped, imm, pc, next_pc):  # type: ignore[no-untyped-def]
    """Fill an operation."""
    operation.handler, operation.rd, operation.rs1, operation.rs2 = handler, rd, rs1, rs2
    operation.rs3, operation.timestamped, operation.imm, operation.pc = rs3, timestamped, imm, pc
    operation.next_pc = next_pc


def immediate(kind, word):  # type: ignore[no-untyped-def]
    """The immediate of a 32-bit instruction, signed."""
    if kind == IMM_12:
        return signed(word >> 20, 12)
    if kind == IMM_STORE:
        return signed((word >> 25 << 5) | (word >> 7 & 31), 12)
    if kind == IMM_BRANCH:
        low = (word >> 25 & 63) << 5 | (word >> 8 & 15) << 1
        return signed(word >> 31 << 12 | (word >> 7 & 1) << 11 | low, 13)
    if kind == IMM_20:
        return signed(word & 0xFFFFF000, 32)
    if kind == IMM_JUMP:
        low = (word >> 20 & 1) << 11 | (word >> 21 & 1023) << 1
        return signed(word >> 31 << 20 | (word >> 12 & 255) << 12 | low, 21)
    if kind == IMM_SHIFT_6:
        return word >> 20 & 63
    if kind == IMM_SHIFT_5:
        return word >> 20 & 31
    if kind == IMM_CSR:
        return word >> 20
    return 0


def signed(value, bits):  # type: ignore[no-untyped-def]
    """The two's-complement reading of ``bits`` bits."""
    return value - (value >> (bits - 1) << bits)
