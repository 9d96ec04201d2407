/*
 * ooosim - simulates an out-of-order processor, cycle by cycle.
 *
 * Five small programs, written in the assembly language of a RISC-like machine and assembled here,
 * run on generated data: matrix product, linked list, recursive quicksort, word counting and a
 * stencil with divisions. The processor fetches along gshare, target-buffer and return-stack
 * predictions, renames onto physical registers, issues out of order to functional units, orders
 * loads and stores in a queue with forwarding, recovers from mispredictions, and commits in order,
 * over two levels of cache. An interpreter runs every program first: registers and memory must agree.
 *
 * Usage: ooosim [tiny|small|medium|large|ROUNDS [SEED]]
 * Exit status: 0 fine, 1 the machines disagree, 2 bad arguments.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MEMORY_BYTES = 64 * 1024,
    MAX_CODE = 128,
    REGISTERS = 64, /* r0 (always 0) to r31, then f0 to f31 */
    FIRST_FP = 32,
    LINK = 1, /* r1 holds return addresses: calls and returns are known by it */
    STACK = 2,
    FETCH_WIDTH = 4,
    FETCH_QUEUE = 16,
    RENAME_WIDTH = 4,
    ISSUE_WIDTH = 6,
    COMMIT_WIDTH = 4,
    REORDER_ENTRIES = 64, /* as many as a word has bits */
    ISSUE_ENTRIES = 32,
    MEMORY_ENTRIES = 24,
    PHYSICAL = REGISTERS + REORDER_ENTRIES,
    GSHARE_BITS = 11,
    TARGETS = 64,
    RETURNS = 16,
    WHEEL = 128, /* longer than any latency */
    MISPREDICT_CYCLES = 2,
    LIST_NODE_BYTES = 64, /* a cache line */
    COUNTS_BYTES = 64 * 8
};

static void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("ooosim: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

static uint64_t random_state;

static uint64_t random_next(void)
{
    uint64_t z = (random_state += UINT64_C(0x9e3779b97f4a7c15)); /* splitmix64 */
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t random_between(uint64_t low, uint64_t high) { return low + random_next() % (high - low + 1); }

/* ---- instruction set ----------------------------------------------------------------------- */

enum opcode {
    ADD, SUB, MUL, AND, XOR, SLT, ADDI, ANDI, SLLI, LI, LD, LB, SD, FLD, FSD,
    FADD, FSUB, FMUL, FDIV, FCVT, BEQ, BNE, BLT, BGE, JAL, JALR, HALT, OPCODES
};

enum format { THREE, IMMEDIATE, CONSTANT, TWO, LOAD, STORE, BRANCH, JUMP, PLAIN };
enum unit { INTEGER, MULTIPLY, FP_ADD, FP_MULTIPLY, FP_DIVIDE, MEMORY, NO_UNIT, UNITS };

struct operation {
    const char *name;
    enum format format;
    enum unit unit;
    int latency_cycles; /* loads: as the caches say */
    int bytes;          /* of the memory access */
};

static const struct operation operations[OPCODES] = {
    [ADD] = {"add", THREE, INTEGER, 1, 0},      [SUB] = {"sub", THREE, INTEGER, 1, 0},
    [MUL] = {"mul", THREE, MULTIPLY, 3, 0},     [AND] = {"and", THREE, INTEGER, 1, 0},
    [XOR] = {"xor", THREE, INTEGER, 1, 0},      [SLT] = {"slt", THREE, INTEGER, 1, 0},
    [ADDI] = {"addi", IMMEDIATE, INTEGER, 1, 0}, [ANDI] = {"andi", IMMEDIATE, INTEGER, 1, 0},
    [SLLI] = {"slli", IMMEDIATE, INTEGER, 1, 0}, [LI] = {"li", CONSTANT, INTEGER, 1, 0},
    [LD] = {"ld", LOAD, MEMORY, 0, 8},          [LB] = {"lb", LOAD, MEMORY, 0, 1},
    [SD] = {"sd", STORE, MEMORY, 1, 8},         [FLD] = {"fld", LOAD, MEMORY, 0, 8},
    [FSD] = {"fsd", STORE, MEMORY, 1, 8},       [FADD] = {"fadd", THREE, FP_ADD, 3, 0},
    [FSUB] = {"fsub", THREE, FP_ADD, 3, 0},     [FMUL] = {"fmul", THREE, FP_MULTIPLY, 4, 0},
    [FDIV] = {"fdiv", THREE, FP_DIVIDE, 14, 0}, [FCVT] = {"fcvt", TWO, FP_ADD, 3, 0},
    [BEQ] = {"beq", BRANCH, INTEGER, 1, 0},     [BNE] = {"bne", BRANCH, INTEGER, 1, 0},
    [BLT] = {"blt", BRANCH, INTEGER, 1, 0},     [BGE] = {"bge", BRANCH, INTEGER, 1, 0},
    [JAL] = {"jal", JUMP, INTEGER, 1, 0},       [JALR] = {"jalr", TWO, INTEGER, 1, 0},
    [HALT] = {"halt", PLAIN, NO_UNIT, 0, 0},
};

struct instruction {
    enum opcode opcode;
    uint8_t destination, source1, source2; /* 0 where unused */
    int32_t immediate;                     /* or the target's index */
};

static double as_double(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint64_t as_bits(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* What an instruction computes from its operands: the value, or a memory address. */
static uint64_t compute(const struct instruction *in, uint64_t a, uint64_t b, uint32_t pc)
{
    uint64_t immediate = (uint64_t)(int64_t)in->immediate;
    switch (in->opcode) {
    case ADD:
        return a + b;
    case SUB:
        return a - b;
    case MUL:
        return a * b;
    case AND:
        return a & b;
    case XOR:
        return a ^ b;
    case SLT:
        return (int64_t)a < (int64_t)b;
    case ADDI:
        return a + immediate;
    case ANDI:
        return a & immediate;
    case SLLI:
        return a << (immediate & 63);
    case LI:
        return immediate;
    case LD:
    case LB:
    case SD:
    case FLD:
    case FSD:
        return a + immediate;
    case FADD:
        return as_bits(as_double(a) + as_double(b));
    case FSUB:
        return as_bits(as_double(a) - as_double(b));
    case FMUL:
        return as_bits(as_double(a) * as_double(b));
    case FDIV:
        return as_bits(as_double(a) / as_double(b));
    case FCVT:
        return as_bits((double)(int64_t)a);
    case JAL:
    case JALR:
        return pc + 1;
    default:
        return 0;
    }
}

static bool branch_taken(enum opcode opcode, uint64_t a, uint64_t b)
{
    switch (opcode) {
    case BEQ:
        return a == b;
    case BNE:
        return a != b;
    case BLT:
        return (int64_t)a < (int64_t)b;
    default:
        return (int64_t)a >= (int64_t)b;
    }
}

static uint32_t next_pc(const struct instruction *in, uint64_t a, uint64_t b, uint32_t pc)
{
    switch (operations[in->opcode].format) {
    case BRANCH:
        return branch_taken(in->opcode, a, b) ? (uint32_t)in->immediate : pc + 1;
    case JUMP:
        return (uint32_t)in->immediate;
    default:
        return in->opcode == JALR ? (uint32_t)a : pc + 1;
    }
}

static bool is_store(const struct instruction *in) { return operations[in->opcode].format == STORE; }
static bool is_load(const struct instruction *in) { return operations[in->opcode].format == LOAD; }

static bool changes_flow(const struct instruction *in)
{
    enum format format = operations[in->opcode].format;
    return format == BRANCH || format == JUMP || in->opcode == JALR;
}

/* ---- programs ------------------------------------------------------------------------------ */

enum program { MATRIX, LIST, SORT, WORDS, STENCIL, PROGRAMS };

static const char *const program_names[PROGRAMS] = {"matrix", "list", "sort", "words", "stencil"};

static const char *const program_text[PROGRAMS] = {
    /* r10 A, r11 B, r12 C: n x n doubles, n in r13 */
    [MATRIX] = "      slli r25, r13, 3\n"
               "      li   r20, 0\n"
               "row:  li   r21, 0\n"
               "col:  mul  r23, r20, r25\n"
               "      add  r23, r23, r10\n"
               "      slli r24, r21, 3\n"
               "      add  r24, r24, r11\n"
               "      fcvt f1, r0\n"
               "      li   r22, 0\n"
               "dot:  fld  f2, 0(r23)\n"
               "      fld  f3, 0(r24)\n"
               "      fmul f4, f2, f3\n"
               "      fadd f1, f1, f4\n"
               "      addi r23, r23, 8\n"
               "      add  r24, r24, r25\n"
               "      addi r22, r22, 1\n"
               "      blt  r22, r13, dot\n"
               "      mul  r26, r20, r13\n"
               "      add  r26, r26, r21\n"
               "      slli r26, r26, 3\n"
               "      add  r26, r26, r12\n"
               "      fsd  f1, 0(r26)\n"
               "      addi r21, r21, 1\n"
               "      blt  r21, r13, col\n"
               "      addi r20, r20, 1\n"
               "      blt  r20, r13, row\n"
               "      halt\n",
    /* r10 first node (next, value, sum so far), r11 walks along the list */
    [LIST] = "again: add  r5, r10, r0\n"
             "walk:  ld   r6, 8(r5)\n"
             "       andi r8, r6, 3\n"
             "       beq  r8, r0, fold\n"
             "       add  r7, r7, r6\n"
             "       jal  r0, keep\n"
             "fold:  xor  r7, r7, r6\n"
             "keep:  sd   r7, 16(r5)\n"
             "       ld   r5, 0(r5)\n"
             "       bne  r5, r0, walk\n"
             "       addi r11, r11, -1\n"
             "       bne  r11, r0, again\n"
             "       halt\n",
    /* r10 first element, r11 last element, r2 stack */
    [SORT] = "       jal  r1, sort\n"
             "       halt\n"
             "sort:  bge  r10, r11, done\n"
             "       ld   r5, 0(r11)\n"
             "       add  r6, r10, r0\n"
             "       add  r7, r10, r0\n"
             "scan:  ld   r8, 0(r7)\n"
             "       bge  r8, r5, next\n"
             "       ld   r9, 0(r6)\n"
             "       sd   r8, 0(r6)\n"
             "       sd   r9, 0(r7)\n"
             "       addi r6, r6, 8\n"
             "next:  addi r7, r7, 8\n"
             "       blt  r7, r11, scan\n"
             "       ld   r9, 0(r6)\n"
             "       sd   r5, 0(r6)\n"
             "       sd   r9, 0(r11)\n"
             "       addi r2, r2, -24\n"
             "       sd   r1, 0(r2)\n"
             "       sd   r6, 8(r2)\n"
             "       sd   r11, 16(r2)\n"
             "       addi r11, r6, -8\n"
             "       jal  r1, sort\n"
             "       ld   r6, 8(r2)\n"
             "       ld   r11, 16(r2)\n"
             "       addi r10, r6, 8\n"
             "       jal  r1, sort\n"
             "       ld   r1, 0(r2)\n"
             "       addi r2, r2, 24\n"
             "done:  jalr r0, r1\n",
    /* r10 text, r11 its end, r12 64 counters, indexed by a hash of each word */
    [WORDS] = "       li   r14, 32\n"
              "       li   r15, 31\n"
              "start: li   r5, 0\n"
              "loop:  lb   r6, 0(r10)\n"
              "       addi r10, r10, 1\n"
              "       beq  r6, r14, word\n"
              "       mul  r5, r5, r15\n"
              "       add  r5, r5, r6\n"
              "       blt  r10, r11, loop\n"
              "       halt\n"
              "word:  andi r9, r5, 63\n"
              "       slli r9, r9, 3\n"
              "       add  r9, r9, r12\n"
              "       ld   r13, 0(r9)\n"
              "       addi r13, r13, 1\n"
              "       sd   r13, 0(r9)\n"
              "       blt  r10, r11, start\n"
              "       halt\n",
    /* r10 doubles, n - 2 inner points in r11, r12 sweeps: each point becomes a weighted mean */
    [STENCIL] = "       li   r5, 4\n"
                "       fcvt f4, r5\n"
                "sweep: add  r6, r10, r0\n"
                "       add  r7, r11, r0\n"
                "point: fld  f1, 0(r6)\n"
                "       fld  f2, 8(r6)\n"
                "       fld  f3, 16(r6)\n"
                "       fadd f5, f1, f3\n"
                "       fadd f6, f2, f2\n"
                "       fadd f5, f5, f6\n"
                "       fdiv f5, f5, f4\n"
                "       fsd  f5, 8(r6)\n"
                "       addi r6, r6, 8\n"
                "       addi r7, r7, -1\n"
                "       bne  r7, r0, point\n"
                "       addi r12, r12, -1\n"
                "       bne  r12, r0, sweep\n"
                "       halt\n",
};

struct code {
    struct instruction instructions[MAX_CODE];
    uint32_t length;
};

static struct code codes[PROGRAMS];

/* ---- assembler ----------------------------------------------------------------------------- */

struct label {
    char name[8];
    uint32_t index;
};

struct assembler {
    const char *at;
    int line;
    struct label labels[16];
    int label_count;
};

static void skip_blanks(struct assembler *as)
{
    while (*as->at == ' ' || *as->at == ',')
        as->at++;
}

/* Reads letters and digits into `word`; an empty word where there are none. */
static void read_word(struct assembler *as, char *word, size_t size)
{
    size_t length = 0;
    skip_blanks(as);
    while ((*as->at >= 'a' && *as->at <= 'z') || (*as->at >= '0' && *as->at <= '9')) {
        if (length + 1 == size)
            fail("assembly line %d: a word is too long", as->line);
        word[length++] = *as->at++;
    }
    word[length] = '\0';
}

static void expect(struct assembler *as, char wanted)
{
    if (*as->at != wanted)
        fail("assembly line %d: '%c' where '%c' was expected", as->line, *as->at, wanted);
    as->at++;
}

static uint8_t read_register(struct assembler *as)
{
    char word[8];
    read_word(as, word, sizeof word);
    int number = atoi(word + 1);
    if ((word[0] != 'r' && word[0] != 'f') || number < 0 || number >= FIRST_FP)
        fail("assembly line %d: '%s' is no register", as->line, word);
    return (uint8_t)(word[0] == 'f' ? number + FIRST_FP : number);
}

static int32_t read_number(struct assembler *as)
{
    char *end;
    skip_blanks(as);
    long value = strtol(as->at, &end, 10);
    if (end == as->at)
        fail("assembly line %d: a number was expected", as->line);
    as->at = end;
    return (int32_t)value;
}

static int32_t read_target(struct assembler *as)
{
    char word[8];
    read_word(as, word, sizeof word);
    for (int i = 0; i < as->label_count; i++)
        if (strcmp(as->labels[i].name, word) == 0)
            return (int32_t)as->labels[i].index;
    fail("assembly line %d: there is no label '%s'", as->line, word);
    return 0;
}

static enum opcode opcode_named(const char *name, int line)
{
    for (int opcode = 0; opcode < OPCODES; opcode++)
        if (strcmp(operations[opcode].name, name) == 0)
            return (enum opcode)opcode;
    fail("assembly line %d: there is no operation '%s'", line, name);
    return HALT;
}

static void read_address(struct assembler *as, struct instruction *in)
{
    in->immediate = read_number(as);
    expect(as, '(');
    in->source1 = read_register(as);
    expect(as, ')');
}

static struct instruction read_instruction(struct assembler *as)
{
    char name[8];
    struct instruction in = {0};
    read_word(as, name, sizeof name);
    in.opcode = opcode_named(name, as->line);
    switch (operations[in.opcode].format) {
    case THREE:
        in.destination = read_register(as);
        in.source1 = read_register(as);
        in.source2 = read_register(as);
        break;
    case IMMEDIATE:
        in.destination = read_register(as);
        in.source1 = read_register(as);
        in.immediate = read_number(as);
        break;
    case CONSTANT:
        in.destination = read_register(as);
        in.immediate = read_number(as);
        break;
    case TWO:
        in.destination = read_register(as);
        in.source1 = read_register(as);
        break;
    case LOAD:
        in.destination = read_register(as);
        read_address(as, &in);
        break;
    case STORE:
        in.source2 = read_register(as);
        read_address(as, &in);
        break;
    case BRANCH:
        in.source1 = read_register(as);
        in.source2 = read_register(as);
        in.immediate = read_target(as);
        break;
    case JUMP:
        in.destination = read_register(as);
        in.immediate = read_target(as);
        break;
    case PLAIN:
        break;
    }
    return in;
}

/* First pass: labels get the index of the instruction on their line. */
static void collect_labels(struct assembler *as, const char *text)
{
    uint32_t index = 0;
    for (const char *line = text; *line; line = strchr(line, '\n') + 1, index++) {
        const char *colon = memchr(line, ':', strcspn(line, "\n"));
        if (!colon)
            continue;
        struct label *label = &as->labels[as->label_count++];
        size_t length = (size_t)(colon - line);
        if (as->label_count == 16 || length >= sizeof label->name)
            fail("assembly line %u: too many labels, or too long a one", (unsigned)index + 1);
        memcpy(label->name, line, length);
        label->name[length] = '\0';
        label->index = index;
    }
}

static void assemble(struct code *code, const char *text)
{
    struct assembler as = {.at = text, .line = 1};
    collect_labels(&as, text);
    code->length = 0;
    for (; *as.at; as.line++) {
        const char *colon = memchr(as.at, ':', strcspn(as.at, "\n"));
        if (colon)
            as.at = colon + 1;
        if (code->length == MAX_CODE)
            fail("a program is longer than %d instructions", MAX_CODE);
        code->instructions[code->length++] = read_instruction(&as);
        expect(&as, '\n');
    }
}

/* ---- memory and interpreter ---------------------------------------------------------------- */

struct memory {
    uint64_t words[MEMORY_BYTES / 8]; /* little-endian bytes, whatever the host's order */
};

static bool valid_address(uint64_t address, int bytes)
{
    return address < MEMORY_BYTES && address % (uint64_t)bytes == 0;
}

static uint64_t load_memory(const struct memory *memory, uint64_t address, int bytes)
{
    uint64_t word = memory->words[address / 8];
    return bytes == 8 ? word : (word >> (address % 8 * 8)) & 0xff;
}

static void store_memory(struct memory *memory, uint64_t address, uint64_t value)
{
    memory->words[address / 8] = value;
}

static struct memory initial_memory, interpreter_memory, core_memory;
static uint64_t initial_registers[REGISTERS], interpreter_registers[REGISTERS];

/* Runs a program in order, an instruction at a time; returns how many it took. */
static uint64_t interpret(const struct code *code)
{
    uint64_t *registers = interpreter_registers, count = 0;
    memcpy(registers, initial_registers, sizeof initial_registers);
    memcpy(&interpreter_memory, &initial_memory, sizeof initial_memory);
    for (uint32_t pc = 0; pc < code->length;) {
        const struct instruction *in = &code->instructions[pc];
        const struct operation *operation = &operations[in->opcode];
        uint64_t a = registers[in->source1], b = registers[in->source2];
        uint64_t value = compute(in, a, b, pc);
        count++;
        if (in->opcode == HALT)
            return count;
        if (operation->bytes && !valid_address(value, operation->bytes))
            fail("the interpreter went to address %llx at instruction %u", (unsigned long long)value,
                 (unsigned)pc);
        if (is_store(in))
            store_memory(&interpreter_memory, value, b);
        if (is_load(in))
            value = load_memory(&interpreter_memory, value, operation->bytes);
        if (in->destination != 0)
            registers[in->destination] = value;
        pc = next_pc(in, a, b, pc);
    }
    fail("the interpreter ran past the end of its program");
    return count;
}

/* ---- caches -------------------------------------------------------------------------------- */

enum { MAX_LINES = 1024 };

struct cache {
    const char *name;
    uint32_t sets, ways, line_shift;
    int latency_cycles;
    struct cache *next; /* NULL: memory */
    uint64_t clock, accesses, misses;
    uint64_t tags[MAX_LINES]; /* line number + 1, 0 when empty */
    uint64_t used[MAX_LINES];
};

enum { MEMORY_CYCLES = 60 };

static struct cache level2 = {.name = "L2", .sets = 64, .ways = 8, .line_shift = 6, .latency_cycles = 8};
static struct cache level1_data = {
    .name = "L1D", .sets = 32, .ways = 4, .line_shift = 6, .latency_cycles = 2, .next = &level2};
static struct cache level1_code = {
    .name = "L1I", .sets = 16, .ways = 2, .line_shift = 6, .latency_cycles = 0, .next = &level2};

static void empty_cache(struct cache *cache)
{
    memset(cache->tags, 0, sizeof cache->tags);
    memset(cache->used, 0, sizeof cache->used);
}

/* Touches an address and returns its latency; a miss fills the least recently used way. */
static int access_cache(struct cache *cache, uint64_t address)
{
    uint64_t line = address >> cache->line_shift;
    uint32_t first = (uint32_t)(line % cache->sets) * cache->ways, victim = first;
    cache->accesses++;
    cache->clock++;
    for (uint32_t way = first; way < first + cache->ways; way++) {
        if (cache->tags[way] == line + 1) {
            cache->used[way] = cache->clock;
            return cache->latency_cycles;
        }
        if (cache->used[way] < cache->used[victim])
            victim = way;
    }
    cache->misses++;
    cache->tags[victim] = line + 1;
    cache->used[victim] = cache->clock;
    return cache->latency_cycles + (cache->next ? access_cache(cache->next, address) : MEMORY_CYCLES);
}

/* ---- branch prediction --------------------------------------------------------------------- */

struct predictor {
    uint8_t counters[1 << GSHARE_BITS];
    uint32_t history;
    uint32_t targets[TARGETS]; /* of indirect jumps, by pc */
    uint32_t returns[RETURNS];
    uint32_t return_top;
};

static struct predictor predictor;

static uint8_t *direction_counter(uint32_t pc, uint32_t history)
{
    return &predictor.counters[(pc * 2654435761u >> 16 ^ history) & ((1u << GSHARE_BITS) - 1)];
}

static void push_history(uint32_t history, bool taken) { predictor.history = history << 1 | taken; }

static bool is_return(const struct instruction *in)
{
    return in->opcode == JALR && in->source1 == LINK && in->destination == 0;
}

/* Where fetch goes after this instruction; updates history and return stack as if it were right. */
static uint32_t predict_next(const struct instruction *in, uint32_t pc)
{
    switch (operations[in->opcode].format) {
    case BRANCH: {
        bool taken = *direction_counter(pc, predictor.history) >= 2;
        push_history(predictor.history, taken);
        return taken ? (uint32_t)in->immediate : pc + 1;
    }
    case JUMP:
        if (in->destination == LINK)
            predictor.returns[predictor.return_top++ % RETURNS] = pc + 1;
        return (uint32_t)in->immediate;
    default:
        if (is_return(in))
            return predictor.returns[--predictor.return_top % RETURNS];
        return in->opcode == JALR ? predictor.targets[pc % TARGETS] : pc + 1;
    }
}

static void train_direction(uint32_t pc, uint32_t history, bool taken)
{
    uint8_t *counter = direction_counter(pc, history);
    if (taken && *counter < 3)
        ++*counter;
    else if (!taken && *counter > 0)
        --*counter;
}

/* ---- the core ------------------------------------------------------------------------------ */

enum progress { WAITING, EXECUTING, FINISHED };

struct fetched {
    uint32_t pc, predicted_next, history, return_top;
};

struct reorder_entry {
    const struct instruction *in;
    uint64_t sequence;
    uint32_t pc, predicted_next, actual_next;
    uint32_t history, return_top; /* of the predictor, before this instruction */
    uint16_t destination, old_destination, source1, source2; /* physical */
    enum unit unit;
    enum progress progress;
    uint64_t value;
    uint64_t done_cycle;
    int32_t next_done; /* in the wheel's list, -1 at its end */
    int32_t memory_slot;
    bool faulted;
};

struct memory_entry {
    uint64_t address, data;
    int bytes;
    bool store, known;
};

struct core {
    const struct code *code;
    uint64_t cycle, sequence;
    bool halted;

    uint32_t fetch_pc;
    uint64_t fetch_from_cycle;
    struct fetched fetch_queue[FETCH_QUEUE];
    uint32_t fetch_head, fetch_count;

    uint16_t map[REGISTERS], free_list[PHYSICAL];
    uint32_t free_count;
    uint64_t values[PHYSICAL];
    bool ready[PHYSICAL];

    struct reorder_entry reorder[REORDER_ENTRIES];
    uint32_t reorder_head, reorder_count;
    uint64_t waiting_for[PHYSICAL]; /* reorder slots, a bit each, that need a register's value */
    uint64_t issuable;              /* reorder slots whose operands are ready */
    uint64_t parked;                /* loads among them that an older store holds up */
    uint32_t issue_count;           /* renamed but not yet started */
    struct memory_entry memory_queue[MEMORY_ENTRIES];
    uint32_t memory_head, memory_count;
    int32_t wheel[WHEEL]; /* reorder slots that finish in that cycle, -1 for none */
    uint64_t divider_free_cycle;
};

/* What the core did; every field is a candidate for a software metric. */
struct statistics {
    uint64_t cycles, committed, fetched, squashed;
    uint64_t branches, mispredicted;
    uint64_t loads, stores, forwarded, load_waits;
    uint64_t rename_stalls, issued;
    uint64_t idle_commit_cycles;
};

static struct core core;
static struct statistics stats, program_stats[PROGRAMS];

static const int unit_count[UNITS] = {
    [INTEGER] = 3, [MULTIPLY] = 1, [FP_ADD] = 1, [FP_MULTIPLY] = 1, [FP_DIVIDE] = 1, [MEMORY] = 2};

static void reset_core(const struct code *code)
{
    memset(&core, 0, sizeof core);
    memset(&predictor, 0, sizeof predictor);
    memset(predictor.counters, 1, sizeof predictor.counters);
    memcpy(&core_memory, &initial_memory, sizeof initial_memory);
    empty_cache(&level1_code);
    empty_cache(&level1_data);
    empty_cache(&level2);
    core.code = code;
    for (int i = 0; i < REGISTERS; i++) {
        core.map[i] = (uint16_t)i;
        core.values[i] = initial_registers[i];
        core.ready[i] = true;
    }
    for (int i = REGISTERS; i < PHYSICAL; i++)
        core.free_list[core.free_count++] = (uint16_t)i;
    for (int i = 0; i < WHEEL; i++)
        core.wheel[i] = -1;
}

static uint32_t reorder_slot(uint32_t age) { return (core.reorder_head + age) % REORDER_ENTRIES; }

static void fetch(void)
{
    if (core.cycle < core.fetch_from_cycle)
        return;
    for (int i = 0; i < FETCH_WIDTH && core.fetch_count < FETCH_QUEUE; i++) {
        if (core.fetch_pc >= core.code->length)
            return; /* a wrong path left the program; a misprediction will bring fetch back */
        int latency = access_cache(&level1_code, core.fetch_pc * 8ull + MEMORY_BYTES);
        if (latency > 0) {
            core.fetch_from_cycle = core.cycle + (uint64_t)latency;
            return;
        }
        const struct instruction *in = &core.code->instructions[core.fetch_pc];
        struct fetched *slot = &core.fetch_queue[(core.fetch_head + core.fetch_count++) % FETCH_QUEUE];
        slot->pc = core.fetch_pc;
        slot->history = predictor.history;
        slot->return_top = predictor.return_top;
        slot->predicted_next = in->opcode == HALT ? core.code->length : predict_next(in, core.fetch_pc);
        core.fetch_pc = slot->predicted_next;
        stats.fetched++;
        if (slot->predicted_next != slot->pc + 1)
            return; /* one taken branch a cycle */
    }
}

static bool room_for(const struct instruction *in)
{
    return core.reorder_count < REORDER_ENTRIES && core.issue_count < ISSUE_ENTRIES && core.free_count > 0 &&
           (operations[in->opcode].unit != MEMORY || core.memory_count < MEMORY_ENTRIES);
}

static void enter_memory_queue(struct reorder_entry *entry)
{
    uint32_t slot = (core.memory_head + core.memory_count++) % MEMORY_ENTRIES;
    struct memory_entry *access = &core.memory_queue[slot];
    access->store = is_store(entry->in);
    access->known = false;
    access->bytes = operations[entry->in->opcode].bytes;
    entry->memory_slot = (int32_t)slot;
}

static bool operands_ready(const struct reorder_entry *entry)
{
    return core.ready[entry->source1] && core.ready[entry->source2];
}

static void enter_issue_queue(const struct reorder_entry *entry, uint32_t slot)
{
    const uint64_t bit = UINT64_C(1) << slot;
    core.issue_count++;
    if (operands_ready(entry)) {
        core.issuable |= bit;
        return;
    }
    if (!core.ready[entry->source1])
        core.waiting_for[entry->source1] |= bit;
    if (!core.ready[entry->source2])
        core.waiting_for[entry->source2] |= bit;
}

static void leave_issue_queue(const struct reorder_entry *entry, uint32_t slot)
{
    const uint64_t bit = UINT64_C(1) << slot;
    core.issue_count--;
    core.issuable &= ~bit;
    core.parked &= ~bit;
    core.waiting_for[entry->source1] &= ~bit;
    core.waiting_for[entry->source2] &= ~bit;
}

static void rename_instruction(const struct fetched *fetched)
{
    uint32_t slot = reorder_slot(core.reorder_count++);
    struct reorder_entry *entry = &core.reorder[slot];
    const struct instruction *in = &core.code->instructions[fetched->pc];
    entry->in = in;
    entry->unit = operations[in->opcode].unit;
    entry->sequence = core.sequence++;
    entry->pc = fetched->pc;
    entry->predicted_next = fetched->predicted_next;
    entry->actual_next = fetched->predicted_next;
    entry->history = fetched->history;
    entry->return_top = fetched->return_top;
    entry->source1 = core.map[in->source1];
    entry->source2 = core.map[in->source2];
    entry->destination = entry->old_destination = 0;
    entry->memory_slot = -1;
    entry->faulted = false;
    entry->progress = in->opcode == HALT ? FINISHED : WAITING;
    if (in->destination != 0) {
        entry->old_destination = core.map[in->destination];
        entry->destination = core.free_list[--core.free_count];
        core.map[in->destination] = entry->destination;
        core.ready[entry->destination] = false;
    }
    if (entry->unit == MEMORY)
        enter_memory_queue(entry);
    if (in->opcode != HALT)
        enter_issue_queue(entry, slot);
}

static void rename_group(void)
{
    for (int i = 0; i < RENAME_WIDTH && core.fetch_count > 0; i++) {
        const struct fetched *fetched = &core.fetch_queue[core.fetch_head];
        if (!room_for(&core.code->instructions[fetched->pc])) {
            stats.rename_stalls++;
            return;
        }
        rename_instruction(fetched);
        core.fetch_head = (core.fetch_head + 1) % FETCH_QUEUE;
        core.fetch_count--;
    }
}

static void finish_at(uint32_t slot, uint64_t cycle)
{
    struct reorder_entry *entry = &core.reorder[slot];
    int32_t *list = &core.wheel[cycle % WHEEL];
    entry->progress = EXECUTING;
    entry->done_cycle = cycle;
    entry->next_done = *list;
    *list = (int32_t)slot;
}

static bool overlaps(const struct memory_entry *a, uint64_t address, int bytes)
{
    return a->address < address + (uint64_t)bytes && address < a->address + (uint64_t)a->bytes;
}

/*
 * Asks the older stores, youngest first, about a load. Returns its latency, with the value in
 * `entry`, or -1 while an older store's address is unknown or its data only partly serve.
 */
static int load_latency(struct reorder_entry *entry, uint64_t address, int bytes)
{
    uint32_t age = ((uint32_t)entry->memory_slot + MEMORY_ENTRIES - core.memory_head) % MEMORY_ENTRIES;
    while (age-- > 0) {
        const struct memory_entry *older = &core.memory_queue[(core.memory_head + age) % MEMORY_ENTRIES];
        if (!older->store)
            continue;
        if (!older->known)
            return -1;
        if (!overlaps(older, address, bytes))
            continue;
        if (older->address != address || older->bytes != bytes)
            return -1;
        entry->value = older->data;
        stats.forwarded++;
        return 1;
    }
    entry->value = load_memory(&core_memory, address, bytes);
    return access_cache(&level1_data, address);
}

/* A store moved on: the loads that it may have held up try again. */
static void unpark_loads(void)
{
    core.issuable |= core.parked;
    core.parked = 0;
}

/* Starts a load or store whose operands are ready; false when it must wait. */
static bool start_access(struct reorder_entry *entry, uint32_t slot, uint64_t address, uint64_t data)
{
    struct memory_entry *access = &core.memory_queue[entry->memory_slot];
    int latency = 1;
    if (!valid_address(address, access->bytes)) {
        entry->faulted = true; /* an error only if it commits */
        entry->value = 0;
        address = 0;
    } else if (!access->store) {
        latency = load_latency(entry, address, access->bytes);
        if (latency < 0) {
            stats.load_waits++;
            core.issuable &= ~(UINT64_C(1) << slot);
            core.parked |= UINT64_C(1) << slot;
            return false;
        }
    }
    access->address = address;
    access->data = data;
    access->known = true;
    if (access->store)
        unpark_loads();
    finish_at(slot, core.cycle + (uint64_t)latency);
    return true;
}

static bool start(uint32_t slot)
{
    struct reorder_entry *entry = &core.reorder[slot];
    const struct instruction *in = entry->in;
    uint64_t a = core.values[entry->source1], b = core.values[entry->source2];
    uint64_t value = compute(in, a, b, entry->pc);
    if (entry->unit == MEMORY)
        return start_access(entry, slot, value, b);
    if (entry->unit == FP_DIVIDE) {
        if (core.cycle < core.divider_free_cycle)
            return false;
        core.divider_free_cycle = core.cycle + (uint64_t)operations[in->opcode].latency_cycles;
    }
    entry->value = value;
    entry->actual_next = next_pc(in, a, b, entry->pc);
    finish_at(slot, core.cycle + (uint64_t)operations[in->opcode].latency_cycles);
    return true;
}

/* Oldest first, as far as units go; what cannot start tries again in the next cycle. */
static void issue(void)
{
    int busy[UNITS] = {0}, started = 0;
    const uint32_t head = core.reorder_head;
    uint64_t by_age = core.issuable >> head | core.issuable << (REORDER_ENTRIES - head) % REORDER_ENTRIES;
    for (; by_age != 0 && started < ISSUE_WIDTH; by_age &= by_age - 1) {
        uint32_t slot = reorder_slot((uint32_t)__builtin_ctzll(by_age));
        const struct reorder_entry *entry = &core.reorder[slot];
        if (busy[entry->unit] == unit_count[entry->unit] || !start(slot))
            continue;
        busy[entry->unit]++;
        started++;
        leave_issue_queue(entry, slot);
    }
    stats.issued += (uint64_t)started;
}

static void forget_finish(const struct reorder_entry *entry, int32_t slot)
{
    int32_t *link = &core.wheel[entry->done_cycle % WHEEL];
    while (*link != slot)
        link = &core.reorder[*link].next_done;
    *link = entry->next_done;
}

/* Throws away everything younger than the mispredicted entry and fetches from the right place. */
static void recover(const struct reorder_entry *branch)
{
    while (core.reorder_count > 0) {
        uint32_t slot = reorder_slot(core.reorder_count - 1);
        struct reorder_entry *entry = &core.reorder[slot];
        if (entry->sequence <= branch->sequence)
            break;
        if (entry->progress == WAITING)
            leave_issue_queue(entry, slot);
        if (entry->progress == EXECUTING)
            forget_finish(entry, (int32_t)slot);
        if (entry->in->destination != 0) {
            core.map[entry->in->destination] = entry->old_destination;
            core.free_list[core.free_count++] = entry->destination;
        }
        core.memory_count -= entry->memory_slot >= 0;
        core.reorder_count--;
        stats.squashed++;
    }
    core.fetch_count = 0;
    core.fetch_pc = branch->actual_next;
    core.fetch_from_cycle = core.cycle + MISPREDICT_CYCLES;
    predictor.return_top = branch->return_top - is_return(branch->in);
    predictor.history = branch->history;
    if (operations[branch->in->opcode].format == BRANCH)
        push_history(branch->history, branch->actual_next != branch->pc + 1);
}

static void wake(uint16_t destination)
{
    uint64_t slots = core.waiting_for[destination];
    core.waiting_for[destination] = 0;
    for (; slots != 0; slots &= slots - 1) {
        int slot = __builtin_ctzll(slots);
        if (operands_ready(&core.reorder[slot]))
            core.issuable |= UINT64_C(1) << slot;
    }
}

static void finish(struct reorder_entry *entry)
{
    entry->progress = FINISHED;
    if (entry->in->destination == 0)
        return;
    core.values[entry->destination] = entry->value;
    core.ready[entry->destination] = true;
    wake(entry->destination);
}

/* Writes back what finishes in this cycle; the oldest misprediction wins. */
static void write_back(void)
{
    int32_t *list = &core.wheel[core.cycle % WHEEL];
    const struct reorder_entry *oldest = NULL;
    while (*list >= 0) {
        struct reorder_entry *entry = &core.reorder[*list];
        *list = entry->next_done;
        finish(entry);
        if (entry->actual_next != entry->predicted_next && (!oldest || entry->sequence < oldest->sequence))
            oldest = entry;
    }
    if (oldest)
        recover(oldest);
}

static void retire_branch(const struct reorder_entry *entry)
{
    stats.branches++;
    stats.mispredicted += entry->actual_next != entry->predicted_next;
    if (operations[entry->in->opcode].format == BRANCH)
        train_direction(entry->pc, entry->history, entry->actual_next != entry->pc + 1);
    else if (entry->in->opcode == JALR && !is_return(entry->in))
        predictor.targets[entry->pc % TARGETS] = entry->actual_next;
}

static void retire_access(const struct reorder_entry *entry)
{
    const struct memory_entry *access = &core.memory_queue[core.memory_head];
    if (entry->faulted)
        fail("the core went outside its memory at instruction %u", (unsigned)entry->pc);
    if (access->store) {
        store_memory(&core_memory, access->address, access->data);
        access_cache(&level1_data, access->address);
        unpark_loads();
        stats.stores++;
    } else {
        stats.loads++;
    }
    core.memory_head = (core.memory_head + 1) % MEMORY_ENTRIES;
    core.memory_count--;
}

static void commit(void)
{
    int retired = 0;
    while (retired < COMMIT_WIDTH && core.reorder_count > 0 && !core.halted) {
        struct reorder_entry *entry = &core.reorder[core.reorder_head];
        if (entry->progress != FINISHED)
            break;
        if (changes_flow(entry->in))
            retire_branch(entry);
        if (entry->memory_slot >= 0)
            retire_access(entry);
        if (entry->in->destination != 0)
            core.free_list[core.free_count++] = entry->old_destination;
        core.halted = entry->in->opcode == HALT;
        core.reorder_head = (core.reorder_head + 1) % REORDER_ENTRIES;
        core.reorder_count--;
        retired++;
    }
    stats.committed += (uint64_t)retired;
    stats.idle_commit_cycles += retired == 0;
}

static void simulate(const struct code *code)
{
    reset_core(code);
    while (!core.halted) {
        commit();
        write_back();
        issue();
        rename_group();
        fetch();
        core.cycle++;
        if (core.cycle > UINT64_C(1) << 40)
            fail("the core makes no progress at instruction %u", (unsigned)core.fetch_pc);
    }
    stats.cycles += core.cycle;
}

/* ---- data and checks ----------------------------------------------------------------------- */

static void put_double(uint64_t address, double value) { initial_memory.words[address / 8] = as_bits(value); }

static double random_double(void) { return (double)(random_next() >> 11) * 0x1p-53 - 0.5; }

static void prepare_matrix(uint64_t n)
{
    uint64_t bytes = 8 * n * n;
    for (uint64_t i = 0; i < 2 * n * n; i++)
        put_double(8 * i, random_double());
    initial_registers[10] = 0;
    initial_registers[11] = bytes;
    initial_registers[12] = 2 * bytes;
    initial_registers[13] = n;
}

/* Nodes in random order of address, so that the walk misses the cache. */
static void prepare_list(uint64_t nodes, uint64_t walks)
{
    static uint16_t order[MEMORY_BYTES / LIST_NODE_BYTES];
    for (uint64_t i = 0; i < nodes; i++) {
        uint64_t j = random_between(0, i);
        order[i] = order[j];
        order[j] = (uint16_t)i;
    }
    for (uint64_t i = 0; i < nodes; i++) {
        uint64_t *node = &initial_memory.words[(order[i] + 1u) * LIST_NODE_BYTES / 8];
        node[0] = i + 1 < nodes ? (order[i + 1] + 1u) * LIST_NODE_BYTES : 0;
        node[1] = random_next() >> 8;
    }
    initial_registers[10] = (order[0] + 1u) * LIST_NODE_BYTES;
    initial_registers[11] = walks;
}

static void prepare_sort(uint64_t elements)
{
    for (uint64_t i = 0; i < elements; i++)
        initial_memory.words[i] = random_next() >> 1;
    initial_registers[10] = 0;
    initial_registers[11] = 8 * (elements - 1);
    initial_registers[STACK] = MEMORY_BYTES;
}

static void prepare_words(uint64_t bytes)
{
    uint8_t text[8];
    for (uint64_t word = 0; word < bytes / 8; word++) {
        uint64_t packed = 0;
        for (int i = 0; i < 8; i++) {
            text[i] = (uint8_t)(random_between(0, 5) == 0 ? ' ' : 'a' + random_between(0, 7));
            packed |= (uint64_t)text[i] << (8 * i);
        }
        initial_memory.words[word + COUNTS_BYTES / 8] = packed;
    }
    initial_registers[10] = COUNTS_BYTES;
    initial_registers[11] = COUNTS_BYTES + bytes / 8 * 8;
    initial_registers[12] = 0;
}

static void prepare_stencil(uint64_t points, uint64_t sweeps)
{
    for (uint64_t i = 0; i < points + 2; i++)
        put_double(8 * i, 100 * random_double());
    initial_registers[10] = 0;
    initial_registers[11] = points;
    initial_registers[12] = sweeps;
}

static void prepare(enum program program)
{
    memset(&initial_memory, 0, sizeof initial_memory);
    memset(initial_registers, 0, sizeof initial_registers);
    uint64_t size = random_between(0, 7);
    switch (program) {
    case MATRIX:
        prepare_matrix(5 + size / 2);
        break;
    case LIST:
        prepare_list(32 + 20 * size, 2);
        break;
    case SORT:
        prepare_sort(24 + 6 * size);
        break;
    case WORDS:
        prepare_words(192 + 24 * size);
        break;
    default:
        prepare_stencil(24 + 6 * size, 2);
    }
}

static uint64_t core_register(int number) { return core.values[core.map[number]]; }

static void compare_machines(enum program program)
{
    for (int i = 0; i < REGISTERS; i++)
        if (core_register(i) != interpreter_registers[i])
            fail("%s: register %d is %llx in the core, %llx in the interpreter", program_names[program], i,
                 (unsigned long long)core_register(i), (unsigned long long)interpreter_registers[i]);
    for (int i = 0; i < MEMORY_BYTES / 8; i++)
        if (core_memory.words[i] != interpreter_memory.words[i])
            fail("%s: the word at %x is %llx in the core, %llx in the interpreter", program_names[program],
                 (unsigned)i * 8, (unsigned long long)core_memory.words[i],
                 (unsigned long long)interpreter_memory.words[i]);
}

static void check_sorted(void)
{
    uint64_t last = initial_registers[11] / 8;
    for (uint64_t i = 0; i < last; i++)
        if (core_memory.words[i] > core_memory.words[i + 1])
            fail("sort: elements %llu and %llu are out of order", (unsigned long long)i,
                 (unsigned long long)i + 1);
}

static uint64_t memory_checksum(uint64_t checksum)
{
    for (int i = 0; i < MEMORY_BYTES / 8; i++)
        checksum = (checksum ^ core_memory.words[i]) * UINT64_C(0x100000001b3);
    return checksum;
}

static uint64_t run_program(enum program program, uint64_t checksum)
{
    prepare(program);
    stats = program_stats[program];
    uint64_t expected = stats.committed + interpret(&codes[program]);
    simulate(&codes[program]);
    if (stats.committed != expected)
        fail("%s: %llu instructions were committed, not %llu", program_names[program],
             (unsigned long long)stats.committed, (unsigned long long)expected);
    compare_machines(program);
    if (program == SORT)
        check_sorted();
    program_stats[program] = stats;
    return memory_checksum(checksum);
}

static void report(const char *name, const struct statistics *of)
{
    printf("ooosim: %-7s %llu instructions, %llu cycles, IPC %.3f, %llu of %llu branches mispredicted, "
           "%llu forwarded\n",
           name, (unsigned long long)of->committed, (unsigned long long)of->cycles,
           (double)of->committed / (double)of->cycles, (unsigned long long)of->mispredicted,
           (unsigned long long)of->branches, (unsigned long long)of->forwarded);
}

static void report_cache(const struct cache *cache)
{
    printf("ooosim: %-7s %llu accesses, %llu misses\n", cache->name, (unsigned long long)cache->accesses,
           (unsigned long long)cache->misses);
}

static void run_rounds(uint64_t rounds)
{
    uint64_t checksum = UINT64_C(0xcbf29ce484222325), cycles = 0;
    for (int program = 0; program < PROGRAMS; program++)
        assemble(&codes[program], program_text[program]);
    for (uint64_t round = 0; round < rounds; round++)
        for (int program = 0; program < PROGRAMS; program++)
            checksum = run_program((enum program)program, checksum);
    for (int program = 0; program < PROGRAMS; program++) {
        report(program_names[program], &program_stats[program]);
        cycles += program_stats[program].cycles;
    }
    report_cache(&level1_code);
    report_cache(&level1_data);
    report_cache(&level2);
    printf("ooosim: %llu cycles in all, memory checksum %016llx\n", (unsigned long long)cycles,
           (unsigned long long)checksum);
}

/* ---- command line -------------------------------------------------------------------------- */

static int usage(void)
{
    fputs("usage: ooosim [tiny|small|medium|large|ROUNDS [SEED]]\n"
          "  ROUNDS  times to simulate each of the five programs, 1 to 1000000 (default: medium)\n"
          "  SEED    unsigned 64-bit seed of the programs' data and sizes (default: 1)\n",
          stderr);
    return 2;
}

static bool parse_number(const char *text, uint64_t low, uint64_t high, uint64_t *value)
{
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    unsigned long long parsed = strtoull(text, &end, 0);
    *value = parsed;
    return errno == 0 && *end == '\0' && parsed >= low && parsed <= high;
}

static bool parse_size(const char *text, uint64_t *rounds)
{
    static const struct {
        const char *name;
        uint64_t rounds;
    } named[] = {{"tiny", 1}, {"small", 3}, {"medium", 18}, {"large", 180}};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (strcmp(text, named[i].name) == 0) {
            *rounds = named[i].rounds;
            return true;
        }
    return parse_number(text, 1, 1000000, rounds);
}

int main(int argc, char **argv)
{
    uint64_t rounds, seed = 1;
    if (argc > 3 || !parse_size(argc > 1 ? argv[1] : "medium", &rounds))
        return usage();
    if (argc > 2 && !parse_number(argv[2], 0, UINT64_MAX, &seed))
        return usage();
    random_state = seed;
    run_rounds(rounds);
    return 0;
}
