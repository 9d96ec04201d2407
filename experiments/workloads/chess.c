/*
 * chess - a chess engine that searches positions, and proves its move generator by perft.
 *
 * 0x88 board with piece lists; full legal moves (castling, en passant, promotion); negamax with
 * alpha-beta and iterative deepening, a Zobrist-keyed transposition table, null-move pruning,
 * quiescence, killer and history ordering, and a tapered evaluation (piece-square tables, pawn
 * structure, mobility, king shelter).
 *
 * Usage: chess [tiny|small|medium|large|DEPTH [SEED]]   search the built-in positions
 *        chess --perft [MAX_DEPTH]                      compare with published node counts
 * Exit status: 0 fine, 1 a check failed, 2 bad arguments.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum colour { WHITE, BLACK };
enum kind { NONE, PAWN, KNIGHT, BISHOP, ROOK, QUEEN, KING };
enum { CASTLE_WK = 1, CASTLE_WQ = 2, CASTLE_BK = 4, CASTLE_BQ = 8 };
enum { MOVE_QUIET, MOVE_DOUBLE = 1, MOVE_EN_PASSANT = 2, MOVE_CASTLE = 4 };
enum {
    MAX_MOVES = 256,
    MAX_PLY = 64,
    MAX_GAME = 1024,
    MAX_PIECES = 16,
    NO_SQUARE = 0x7f,
    INFINITE_SCORE = 32000,
    MATE_SCORE = 31000,
    DRAW_SCORE = 0,
    TABLE_BITS = 16,
    MAX_DEPTH = 30
};

/* A piece is its kind plus 8 for black; 0 is an empty square. */
typedef uint8_t piece;

struct move {
    uint8_t from, to;
    uint8_t captured; /* kind */
    uint8_t promotion;
    uint8_t flags;
    int32_t order; /* higher is searched first */
};

struct undo {
    struct move move;
    uint64_t key;
    uint8_t castling, en_passant;
    int halfmoves;
};

struct board {
    piece squares[128];
    uint8_t slot[128]; /* index of the piece on a square in its side's list */
    uint8_t pieces[2][MAX_PIECES];
    int count[2];
    uint8_t king[2];
    enum colour side;
    uint8_t castling, en_passant;
    int halfmoves;
    uint64_t key;
    int ply; /* from the start of the game */
    struct undo history[MAX_GAME];
};

enum bound { BOUND_NONE, BOUND_EXACT, BOUND_LOWER, BOUND_UPPER };

struct table_entry {
    uint64_t key;
    int16_t score;
    uint8_t depth, bound;
    uint8_t from, to, promotion, age;
};

/* What the search did; every field is a candidate for a software metric. */
struct statistics {
    uint64_t nodes;
    uint64_t quiescence_nodes;
    uint64_t evaluations;
    uint64_t table_probes, table_hits, table_cutoffs;
    uint64_t beta_cutoffs, first_move_cutoffs;
    uint64_t null_cutoffs;
    uint64_t moves_made;
};

static struct statistics stats;
static struct board board;
static struct table_entry *table;
static uint8_t table_age;
static struct move killers[MAX_PLY][2];
static int32_t history_score[2][128][128];
static int root_ply;

static void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("chess: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

/* ---- random numbers and hash keys ---------------------------------------------------------- */

static uint64_t random_state;

static uint64_t random_next(void)
{
    uint64_t z = (random_state += UINT64_C(0x9e3779b97f4a7c15)); /* splitmix64 */
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t piece_keys[16][128], castling_keys[16], en_passant_keys[128], side_key;

static void build_keys(void)
{
    for (int p = 0; p < 16; p++)
        for (int square = 0; square < 128; square++)
            piece_keys[p][square] = random_next();
    for (int rights = 0; rights < 16; rights++)
        castling_keys[rights] = random_next();
    for (int square = 0; square < 128; square++)
        en_passant_keys[square] = random_next();
    side_key = random_next();
}

/* ---- board --------------------------------------------------------------------------------- */

static inline enum kind kind_of(piece p) { return (enum kind)(p & 7); }
static inline enum colour colour_of(piece p) { return p >> 3 ? BLACK : WHITE; }
static inline piece make_piece(enum colour colour, enum kind kind) { return (piece)(kind | colour << 3); }
static inline enum colour other(enum colour colour) { return colour == WHITE ? BLACK : WHITE; }
static inline bool on_board(int square) { return !(square & 0x88); }
static inline int rank_of(int square) { return square >> 4; }
static inline int file_of(int square) { return square & 7; }

static void place_piece(int square, piece p)
{
    enum colour colour = colour_of(p);
    int index = board.count[colour]++;
    board.squares[square] = p;
    board.pieces[colour][index] = (uint8_t)square;
    board.slot[square] = (uint8_t)index;
    board.key ^= piece_keys[p][square];
    if (kind_of(p) == KING)
        board.king[colour] = (uint8_t)square;
}

static void remove_piece(int square)
{
    piece p = board.squares[square];
    enum colour colour = colour_of(p);
    int index = board.slot[square];
    uint8_t last = board.pieces[colour][--board.count[colour]];
    board.pieces[colour][index] = last;
    board.slot[last] = (uint8_t)index;
    board.squares[square] = NONE;
    board.key ^= piece_keys[p][square];
}

static void shift_piece(int from, int to)
{
    piece p = board.squares[from];
    enum colour colour = colour_of(p);
    board.squares[from] = NONE;
    board.squares[to] = p;
    board.slot[to] = board.slot[from];
    board.pieces[colour][board.slot[to]] = (uint8_t)to;
    board.key ^= piece_keys[p][from] ^ piece_keys[p][to];
    if (kind_of(p) == KING)
        board.king[colour] = (uint8_t)to;
}

static enum kind kind_from_letter(char letter)
{
    static const char letters[] = "?pnbrqk";
    const char *found = strchr(letters, letter | 32);
    return found && *found && found > letters ? (enum kind)(found - letters) : NONE;
}

/* Sets the board from the first four fields of a FEN; false when they make no sense. */
static bool set_position(const char *fen)
{
    memset(&board, 0, sizeof board);
    int rank = 7, file = 0;
    for (; *fen && *fen != ' '; fen++) {
        if (*fen == '/') {
            rank--;
            file = 0;
        } else if (*fen >= '1' && *fen <= '8') {
            file += *fen - '0';
        } else {
            enum kind kind = kind_from_letter(*fen);
            enum colour colour = *fen >= 'a' ? BLACK : WHITE;
            if (kind == NONE || rank < 0 || file > 7 || board.count[colour] == MAX_PIECES)
                return false;
            place_piece(rank * 16 + file++, make_piece(colour, kind));
        }
    }
    if (*fen != ' ' || (fen[1] != 'w' && fen[1] != 'b') || fen[2] != ' ')
        return false;
    board.side = fen[1] == 'w' ? WHITE : BLACK;
    for (fen += 3; *fen && *fen != ' '; fen++) {
        static const char rights[] = "KQkq";
        const char *right = strchr(rights, *fen);
        if (right)
            board.castling |= (uint8_t)(1 << (right - rights));
    }
    board.en_passant = NO_SQUARE;
    if (fen[0] == ' ' && fen[1] >= 'a' && fen[1] <= 'h' && fen[2] >= '1' && fen[2] <= '8')
        board.en_passant = (uint8_t)((fen[2] - '1') * 16 + fen[1] - 'a');
    board.key ^= castling_keys[board.castling] ^ en_passant_keys[board.en_passant];
    if (board.side == BLACK)
        board.key ^= side_key;
    return board.squares[board.king[WHITE]] == make_piece(WHITE, KING) &&
           board.squares[board.king[BLACK]] == make_piece(BLACK, KING);
}

/* ---- attacks and moves --------------------------------------------------------------------- */

static const int8_t knight_steps[8] = {-33, -31, -18, -14, 14, 18, 31, 33};
static const int8_t royal_steps[8] = {-17, -15, 15, 17, -16, -1, 1, 16}; /* diagonals first */

static bool slides_to(int square, int step, enum colour by, enum kind slider)
{
    int at = square + step;
    while (on_board(at) && board.squares[at] == NONE)
        at += step;
    if (!on_board(at))
        return false;
    piece p = board.squares[at];
    return p == make_piece(by, slider) || p == make_piece(by, QUEEN);
}

static bool attacked(int square, enum colour by)
{
    int pawn_row = by == WHITE ? -16 : 16;
    for (int side = -1; side <= 1; side += 2) {
        int at = square + pawn_row + side;
        if (on_board(at) && board.squares[at] == make_piece(by, PAWN))
            return true;
    }
    for (int i = 0; i < 8; i++) {
        int at = square + knight_steps[i];
        if (on_board(at) && board.squares[at] == make_piece(by, KNIGHT))
            return true;
        at = square + royal_steps[i];
        if (on_board(at) && board.squares[at] == make_piece(by, KING))
            return true;
        if (slides_to(square, royal_steps[i], by, i < 4 ? BISHOP : ROOK))
            return true;
    }
    return false;
}

static bool in_check(enum colour side) { return attacked(board.king[side], other(side)); }

struct move_list {
    int count;
    struct move moves[MAX_MOVES];
};

static void add_move(struct move_list *list, int from, int to, enum kind promotion, int flags)
{
    struct move *move = &list->moves[list->count++];
    move->from = (uint8_t)from;
    move->to = (uint8_t)to;
    move->captured = (uint8_t)(flags & MOVE_EN_PASSANT ? PAWN : kind_of(board.squares[to]));
    move->promotion = (uint8_t)promotion;
    move->flags = (uint8_t)flags;
    move->order = 0;
}

static void add_pawn_move(struct move_list *list, int from, int to, int flags)
{
    if (rank_of(to) != 0 && rank_of(to) != 7) {
        add_move(list, from, to, NONE, flags);
        return;
    }
    for (int kind = QUEEN; kind >= KNIGHT; kind--)
        add_move(list, from, to, (enum kind)kind, flags);
}

static void generate_pawn(struct move_list *list, int from, bool captures_only)
{
    int forward = board.side == WHITE ? 16 : -16, start = board.side == WHITE ? 1 : 6;
    for (int side = -1; side <= 1; side += 2) {
        int to = from + forward + side;
        if (!on_board(to))
            continue;
        if (board.squares[to] != NONE && colour_of(board.squares[to]) != board.side)
            add_pawn_move(list, from, to, MOVE_QUIET);
        else if (to == board.en_passant)
            add_move(list, from, to, NONE, MOVE_EN_PASSANT);
    }
    int to = from + forward;
    if (!on_board(to) || board.squares[to] != NONE)
        return;
    if (!captures_only || rank_of(to) == 0 || rank_of(to) == 7)
        add_pawn_move(list, from, to, MOVE_QUIET);
    if (!captures_only && rank_of(from) == start && board.squares[to + forward] == NONE)
        add_move(list, from, to + forward, NONE, MOVE_DOUBLE);
}

static void generate_steps(struct move_list *list, int from, const int8_t *steps, int count, bool slides,
                           bool captures_only)
{
    for (int i = 0; i < count; i++)
        for (int to = from + steps[i]; on_board(to); to += steps[i]) {
            piece there = board.squares[to];
            if (there != NONE) {
                if (colour_of(there) != board.side)
                    add_move(list, from, to, NONE, MOVE_QUIET);
                break;
            }
            if (!captures_only)
                add_move(list, from, to, NONE, MOVE_QUIET);
            if (!slides)
                break;
        }
}

static bool all_empty(int from, int to)
{
    for (int square = from; square <= to; square++)
        if (board.squares[square] != NONE)
            return false;
    return true;
}

static void generate_castling(struct move_list *list)
{
    int home = board.side == WHITE ? 0x04 : 0x74;
    int king_side = board.side == WHITE ? CASTLE_WK : CASTLE_BK;
    int queen_side = board.side == WHITE ? CASTLE_WQ : CASTLE_BQ;
    enum colour enemy = other(board.side);
    if (!(board.castling & (king_side | queen_side)) || attacked(home, enemy))
        return;
    if ((board.castling & king_side) && all_empty(home + 1, home + 2) && !attacked(home + 1, enemy))
        add_move(list, home, home + 2, NONE, MOVE_CASTLE);
    if ((board.castling & queen_side) && all_empty(home - 3, home - 1) && !attacked(home - 1, enemy))
        add_move(list, home, home - 2, NONE, MOVE_CASTLE);
}

/* Pseudo-legal moves of the side to move: make_move() refuses those that leave the king in check. */
static void generate_moves(struct move_list *list, bool captures_only)
{
    list->count = 0;
    for (int i = 0; i < board.count[board.side]; i++) {
        int from = board.pieces[board.side][i];
        switch (kind_of(board.squares[from])) {
        case PAWN:
            generate_pawn(list, from, captures_only);
            break;
        case KNIGHT:
            generate_steps(list, from, knight_steps, 8, false, captures_only);
            break;
        case BISHOP:
            generate_steps(list, from, royal_steps, 4, true, captures_only);
            break;
        case ROOK:
            generate_steps(list, from, royal_steps + 4, 4, true, captures_only);
            break;
        case QUEEN:
            generate_steps(list, from, royal_steps, 8, true, captures_only);
            break;
        case KING:
            generate_steps(list, from, royal_steps, 8, false, captures_only);
            break;
        case NONE:
            break;
        }
    }
    if (!captures_only)
        generate_castling(list);
}

static uint8_t rights_lost_at(int square)
{
    switch (square) {
    case 0x00:
        return CASTLE_WQ;
    case 0x04:
        return CASTLE_WK | CASTLE_WQ;
    case 0x07:
        return CASTLE_WK;
    case 0x70:
        return CASTLE_BQ;
    case 0x74:
        return CASTLE_BK | CASTLE_BQ;
    case 0x77:
        return CASTLE_BK;
    default:
        return 0;
    }
}

static int en_passant_victim(const struct move *move) { return (move->from & 0x70) | (move->to & 7); }

static void castle_rook(const struct move *move, bool undo)
{
    int corner = move->to > move->from ? move->from + 3 : move->from - 4;
    int beside = move->to > move->from ? move->from + 1 : move->from - 1;
    if (undo)
        shift_piece(beside, corner);
    else
        shift_piece(corner, beside);
}

static void push_undo(const struct move *move)
{
    if (board.ply == MAX_GAME)
        fail("a game is longer than %d plies", MAX_GAME);
    struct undo *undo = &board.history[board.ply++];
    undo->key = board.key;
    undo->castling = board.castling;
    undo->en_passant = board.en_passant;
    undo->halfmoves = board.halfmoves;
    if (move)
        undo->move = *move;
}

static void set_state(uint8_t castling, uint8_t en_passant)
{
    board.key ^= castling_keys[board.castling] ^ en_passant_keys[board.en_passant];
    board.castling = castling;
    board.en_passant = en_passant;
    board.key ^= castling_keys[castling] ^ en_passant_keys[en_passant];
}

static void switch_side(void)
{
    board.side = other(board.side);
    board.key ^= side_key;
}

static void unmake_move(void)
{
    const struct undo *undo = &board.history[--board.ply];
    const struct move *move = &undo->move;
    board.side = other(board.side);
    if (move->promotion != NONE) {
        remove_piece(move->to);
        place_piece(move->from, make_piece(board.side, PAWN));
    } else {
        shift_piece(move->to, move->from);
    }
    if (move->flags & MOVE_CASTLE)
        castle_rook(move, true);
    if (move->captured != NONE) {
        int square = move->flags & MOVE_EN_PASSANT ? en_passant_victim(move) : move->to;
        place_piece(square, make_piece(other(board.side), (enum kind)move->captured));
    }
    board.castling = undo->castling;
    board.en_passant = undo->en_passant;
    board.halfmoves = undo->halfmoves;
    board.key = undo->key;
}

/* Makes a pseudo-legal move; takes it back and returns false when it leaves the king in check. */
static bool make_move(const struct move *move)
{
    enum kind moving = kind_of(board.squares[move->from]);
    push_undo(move);
    stats.moves_made++;
    if (move->captured != NONE)
        remove_piece(move->flags & MOVE_EN_PASSANT ? en_passant_victim(move) : move->to);
    if (move->promotion != NONE) {
        remove_piece(move->from);
        place_piece(move->to, make_piece(board.side, (enum kind)move->promotion));
    } else {
        shift_piece(move->from, move->to);
    }
    if (move->flags & MOVE_CASTLE)
        castle_rook(move, false);
    uint8_t lost = rights_lost_at(move->from) | rights_lost_at(move->to);
    set_state((uint8_t)(board.castling & ~lost),
              move->flags & MOVE_DOUBLE ? (uint8_t)((move->from + move->to) / 2) : NO_SQUARE);
    board.halfmoves = moving == PAWN || move->captured != NONE ? 0 : board.halfmoves + 1;
    switch_side();
    if (in_check(other(board.side))) {
        unmake_move();
        return false;
    }
    return true;
}

static void make_null_move(void)
{
    push_undo(NULL);
    set_state(board.castling, NO_SQUARE);
    switch_side();
}

static void unmake_null_move(void)
{
    const struct undo *undo = &board.history[--board.ply];
    board.side = other(board.side);
    board.en_passant = undo->en_passant;
    board.key = undo->key;
}

/* ---- evaluation ---------------------------------------------------------------------------- */

static const int16_t middle_value[7] = {0, 90, 320, 330, 500, 950, 0};
static const int16_t end_value[7] = {0, 115, 300, 320, 530, 960, 0};
static const int8_t phase_weight[7] = {0, 0, 1, 1, 2, 4, 0};
static int16_t middle_bonus[7][128], end_bonus[7][128]; /* as White sees the board */

static int centrality(int square)
{
    int file = file_of(square), rank = rank_of(square);
    int file_edge = file < 4 ? file : 7 - file, rank_edge = rank < 4 ? rank : 7 - rank;
    return file_edge + rank_edge; /* 0 in a corner, 6 in the centre */
}

/* Piece-square tables from a few rules of thumb, so that no one else's numbers are needed. */
static void build_bonuses(void)
{
    for (int square = 0; square < 128; square++) {
        if (!on_board(square))
            continue;
        int centre = centrality(square), rank = rank_of(square), file = file_of(square);
        bool central_file = file == 3 || file == 4;
        middle_bonus[PAWN][square] = (int16_t)((central_file ? 8 * (rank - 1) : 2 * rank) - 6);
        end_bonus[PAWN][square] = (int16_t)(rank * rank * 2);
        middle_bonus[KNIGHT][square] = end_bonus[KNIGHT][square] = (int16_t)(9 * centre - 28);
        middle_bonus[BISHOP][square] = (int16_t)(5 * centre - 14 - (rank == 0 ? 8 : 0));
        end_bonus[BISHOP][square] = (int16_t)(3 * centre - 9);
        middle_bonus[ROOK][square] = (int16_t)((central_file ? 8 : 0) + (rank == 6 ? 18 : 0));
        end_bonus[ROOK][square] = (int16_t)(rank == 6 ? 12 : 0);
        middle_bonus[QUEEN][square] = (int16_t)(centre - (rank > 1 ? 4 : 0));
        end_bonus[QUEEN][square] = (int16_t)(4 * centre - 12);
        middle_bonus[KING][square] = (int16_t)(24 - 20 * rank + (file < 3 || file > 5 ? 16 : 0));
        end_bonus[KING][square] = (int16_t)(9 * centre - 26);
    }
}

struct pawn_files {
    int8_t count[10];    /* by file + 1, with a sentinel either side */
    int8_t rearmost[10]; /* rank as its own side counts, 7 when there is none */
    int8_t foremost[10]; /* 0 when there is none */
};

static struct pawn_files pawn_files[2];

static int own_rank(enum colour side, int square)
{
    return side == WHITE ? rank_of(square) : 7 - rank_of(square);
}

static void survey_pawns(enum colour side)
{
    struct pawn_files *files = &pawn_files[side];
    memset(files, 0, sizeof *files);
    memset(files->rearmost, 7, sizeof files->rearmost);
    for (int i = 0; i < board.count[side]; i++) {
        int square = board.pieces[side][i];
        if (kind_of(board.squares[square]) != PAWN)
            continue;
        int file = file_of(square) + 1, rank = own_rank(side, square);
        files->count[file]++;
        if (rank < files->rearmost[file])
            files->rearmost[file] = (int8_t)rank;
        if (rank > files->foremost[file])
            files->foremost[file] = (int8_t)rank;
    }
}

static bool is_passed(enum colour side, int file, int rank)
{
    const struct pawn_files *enemy = &pawn_files[other(side)];
    for (int f = file - 1; f <= file + 1; f++)
        if (enemy->count[f] && 7 - enemy->rearmost[f] > rank)
            return false;
    return true;
}

static int evaluate_pawn(enum colour side, int square)
{
    static const int16_t passed_bonus[8] = {0, 5, 10, 20, 40, 70, 110, 0};
    const struct pawn_files *files = &pawn_files[side];
    int file = file_of(square) + 1, rank = own_rank(side, square), score = 0;
    if (files->count[file] > 1)
        score -= 12;
    if (!files->count[file - 1] && !files->count[file + 1])
        score -= 14;
    else if (files->rearmost[file - 1] > rank && files->rearmost[file + 1] > rank)
        score -= 8;
    if (is_passed(side, file, rank))
        score += passed_bonus[rank];
    return score;
}

static int mobility(int from, const int8_t *steps, int count, bool slides)
{
    int reach = 0;
    for (int i = 0; i < count; i++)
        for (int to = from + steps[i]; on_board(to); to += steps[i]) {
            reach++;
            if (!slides || board.squares[to] != NONE)
                break;
        }
    return reach;
}

static int evaluate_rook(enum colour side, int square)
{
    int file = file_of(square) + 1;
    int open = pawn_files[side].count[file] ? 0 : pawn_files[other(side)].count[file] ? 10 : 20;
    return open + 2 * (mobility(square, royal_steps + 4, 4, true) - 7);
}

static int king_shelter(enum colour side)
{
    int king_file = file_of(board.king[side]) + 1, score = 0;
    for (int file = king_file - 1; file <= king_file + 1; file++) {
        if (file < 1 || file > 8)
            continue;
        int rank = pawn_files[side].rearmost[file];
        score -= rank == 1 ? 0 : rank == 2 ? 6 : 16;
        if (!pawn_files[other(side)].count[file])
            score -= 6;
    }
    return score;
}

struct side_score {
    int middle, end, phase;
};

static struct side_score evaluate_side(enum colour side)
{
    struct side_score score = {0, 0, 0};
    int bishops = 0, shared = 0;
    for (int i = 0; i < board.count[side]; i++) {
        int square = board.pieces[side][i];
        enum kind kind = kind_of(board.squares[square]);
        int seen = side == WHITE ? square : square ^ 0x70;
        score.middle += middle_value[kind] + middle_bonus[kind][seen];
        score.end += end_value[kind] + end_bonus[kind][seen];
        score.phase += phase_weight[kind];
        switch (kind) {
        case PAWN:
            shared += evaluate_pawn(side, square);
            break;
        case KNIGHT:
            shared += 3 * (mobility(square, knight_steps, 8, false) - 4);
            break;
        case BISHOP:
            shared += 3 * (mobility(square, royal_steps, 4, true) - 6);
            bishops++;
            break;
        case ROOK:
            shared += evaluate_rook(side, square);
            break;
        case QUEEN:
            shared += mobility(square, royal_steps, 8, true) - 13;
            break;
        default:
            break;
        }
    }
    if (bishops >= 2)
        shared += 32;
    score.middle += shared + king_shelter(side);
    score.end += shared;
    return score;
}

/* Score in centipawns for the side to move. */
static int evaluate(void)
{
    stats.evaluations++;
    survey_pawns(WHITE);
    survey_pawns(BLACK);
    struct side_score white = evaluate_side(WHITE), black = evaluate_side(BLACK);
    int phase = white.phase + black.phase;
    if (phase > 24)
        phase = 24;
    int score = ((white.middle - black.middle) * phase + (white.end - black.end) * (24 - phase)) / 24;
    return (board.side == WHITE ? score : -score) + 8;
}

/* ---- search -------------------------------------------------------------------------------- */

static int search_ply(void) { return board.ply - root_ply; }

static bool same_move(const struct move *a, const struct move *b)
{
    return a->from == b->from && a->to == b->to && a->promotion == b->promotion;
}

static struct table_entry *probe_table(void)
{
    struct table_entry *entry = &table[board.key & ((1u << TABLE_BITS) - 1)];
    stats.table_probes++;
    if (entry->bound == BOUND_NONE || entry->key != board.key)
        return NULL;
    stats.table_hits++;
    return entry;
}

/* Mate scores are kept relative to the position, not to the root. */
static int score_to_table(int score)
{
    if (score > MATE_SCORE - MAX_PLY)
        return score + search_ply();
    return score < -MATE_SCORE + MAX_PLY ? score - search_ply() : score;
}

static int score_from_table(int score)
{
    if (score > MATE_SCORE - MAX_PLY)
        return score - search_ply();
    return score < -MATE_SCORE + MAX_PLY ? score + search_ply() : score;
}

static void store_table(int depth, int score, enum bound bound, const struct move *best)
{
    struct table_entry *entry = &table[board.key & ((1u << TABLE_BITS) - 1)];
    bool deeper = entry->bound != BOUND_NONE && entry->age == table_age && entry->depth > depth;
    if (deeper && entry->key != board.key)
        return;
    entry->key = board.key;
    entry->score = (int16_t)score_to_table(score);
    entry->depth = (uint8_t)depth;
    entry->bound = (uint8_t)bound;
    entry->age = table_age;
    entry->from = best ? best->from : 0;
    entry->to = best ? best->to : 0;
    entry->promotion = best ? best->promotion : 0;
}

static bool is_repetition(void)
{
    int oldest = board.ply - board.halfmoves;
    for (int ply = board.ply - 4; ply >= oldest && ply >= 0; ply -= 2)
        if (board.history[ply].key == board.key)
            return true;
    return false;
}

static void order_moves(struct move_list *list, const struct table_entry *entry)
{
    int ply = search_ply();
    for (int i = 0; i < list->count; i++) {
        struct move *move = &list->moves[i];
        enum kind attacker = kind_of(board.squares[move->from]);
        bool from_table = entry && move->from == entry->from && move->to == entry->to;
        int gain = middle_value[move->captured] + middle_value[move->promotion];
        if (from_table && move->promotion == entry->promotion)
            move->order = 1 << 30;
        else if (gain > 0)
            move->order = (1 << 28) + 64 * gain - (int)attacker;
        else if (ply < MAX_PLY && same_move(move, &killers[ply][0]))
            move->order = (1 << 27) + 1;
        else if (ply < MAX_PLY && same_move(move, &killers[ply][1]))
            move->order = 1 << 27;
        else
            move->order = history_score[board.side][move->from][move->to];
    }
}

/* Brings the best move left to position i: most nodes cut off before a full sort would pay. */
static void pick_move(struct move_list *list, int i)
{
    int best = i;
    for (int j = i + 1; j < list->count; j++)
        if (list->moves[j].order > list->moves[best].order)
            best = j;
    struct move kept = list->moves[i];
    list->moves[i] = list->moves[best];
    list->moves[best] = kept;
}

static void reward_quiet(const struct move *move, int depth)
{
    int ply = search_ply();
    if (ply < MAX_PLY && !same_move(move, &killers[ply][0])) {
        killers[ply][1] = killers[ply][0];
        killers[ply][0] = *move;
    }
    int32_t *score = &history_score[board.side][move->from][move->to];
    *score += depth * depth;
    if (*score > 1 << 24)
        *score /= 2;
}

static int quiesce(int alpha, int beta)
{
    stats.quiescence_nodes++;
    int standing = evaluate();
    if (standing >= beta || search_ply() >= MAX_PLY - 1)
        return standing;
    if (standing > alpha)
        alpha = standing;
    struct move_list list;
    generate_moves(&list, true);
    order_moves(&list, NULL);
    for (int i = 0; i < list.count; i++) {
        pick_move(&list, i);
        const struct move *move = &list.moves[i];
        if (standing + middle_value[move->captured] + middle_value[move->promotion] + 150 < alpha)
            continue; /* even winning the piece for nothing would not reach alpha */
        if (!make_move(move))
            continue;
        int score = -quiesce(-beta, -alpha);
        unmake_move();
        if (score >= beta)
            return score;
        if (score > alpha)
            alpha = score;
    }
    return alpha;
}

static bool has_officers(enum colour side)
{
    for (int i = 0; i < board.count[side]; i++) {
        enum kind kind = kind_of(board.squares[board.pieces[side][i]]);
        if (kind != PAWN && kind != KING)
            return true;
    }
    return false;
}

static int search(int depth, int alpha, int beta, bool null_allowed);

static bool null_move_fails_high(int depth, int beta)
{
    make_null_move();
    int score = -search(depth - 3, -beta, -beta + 1, false);
    unmake_null_move();
    return score >= beta;
}

/* One move's score: the first with the full window, the others with a null window first. */
static int search_move(int depth, int alpha, int beta, int moves_searched, bool reducible)
{
    if (moves_searched == 0)
        return -search(depth - 1, -beta, -alpha, true);
    int reduction = reducible && depth >= 3 && moves_searched >= 4 ? 1 : 0;
    int score = -search(depth - 1 - reduction, -alpha - 1, -alpha, true);
    if (score > alpha && (reduction > 0 || score < beta))
        score = -search(depth - 1, -beta, -alpha, true);
    return score;
}

static int search(int depth, int alpha, int beta, bool null_allowed)
{
    bool check = in_check(board.side);
    int first_alpha = alpha;
    if (check && search_ply() < MAX_PLY / 2)
        depth++;
    if (depth <= 0)
        return quiesce(alpha, beta);
    stats.nodes++;
    if (search_ply() > 0 && (board.halfmoves >= 100 || is_repetition()))
        return DRAW_SCORE;
    if (search_ply() >= MAX_PLY - 1)
        return evaluate();

    struct table_entry *entry = probe_table();
    if (entry && entry->depth >= depth && search_ply() > 0) {
        int score = score_from_table(entry->score);
        if (entry->bound == BOUND_EXACT || (entry->bound == BOUND_LOWER && score >= beta) ||
            (entry->bound == BOUND_UPPER && score <= alpha)) {
            stats.table_cutoffs++;
            return score;
        }
    }
    if (null_allowed && !check && depth >= 3 && search_ply() > 0 && has_officers(board.side) &&
        null_move_fails_high(depth, beta)) {
        stats.null_cutoffs++;
        return beta;
    }

    struct move_list list;
    const struct move *best = NULL;
    int best_score = -INFINITE_SCORE, searched = 0;
    generate_moves(&list, false);
    order_moves(&list, entry);
    for (int i = 0; i < list.count; i++) {
        pick_move(&list, i);
        const struct move *move = &list.moves[i];
        bool quiet = move->captured == NONE && move->promotion == NONE;
        if (!make_move(move))
            continue;
        int score = search_move(depth, alpha, beta, searched, quiet && !check);
        unmake_move();
        searched++;
        if (score > best_score) {
            best_score = score;
            best = move;
        }
        if (score > alpha)
            alpha = score;
        if (alpha >= beta) {
            stats.beta_cutoffs++;
            stats.first_move_cutoffs += searched == 1;
            if (quiet)
                reward_quiet(move, depth);
            break;
        }
    }
    if (searched == 0)
        return check ? -MATE_SCORE + search_ply() : DRAW_SCORE;
    enum bound bound = best_score > first_alpha ? BOUND_EXACT : BOUND_UPPER;
    store_table(depth, best_score, best_score >= beta ? BOUND_LOWER : bound, best);
    return best_score;
}

static void move_name(const struct table_entry *entry, char *name)
{
    static const char promotions[] = "..nbrq.";
    if (!entry || entry->from == entry->to) {
        strcpy(name, "none");
        return;
    }
    name[0] = (char)('a' + file_of(entry->from));
    name[1] = (char)('1' + rank_of(entry->from));
    name[2] = (char)('a' + file_of(entry->to));
    name[3] = (char)('1' + rank_of(entry->to));
    name[4] = entry->promotion ? promotions[entry->promotion] : '\0';
    name[5] = '\0';
}

static int search_iteratively(int depth, char *best)
{
    int score = 0;
    memset(killers, 0, sizeof killers);
    memset(history_score, 0, sizeof history_score);
    table_age++;
    root_ply = board.ply;
    for (int iteration = 1; iteration <= depth; iteration++) {
        bool narrow = iteration > 2; /* the last score is a good guess at the next */
        int low = narrow ? score - 40 : -INFINITE_SCORE, high = narrow ? score + 40 : INFINITE_SCORE;
        score = search(iteration, low, high, false);
        if (score <= low || score >= high)
            score = search(iteration, -INFINITE_SCORE, INFINITE_SCORE, false);
        move_name(probe_table(), best);
    }
    return score;
}

/* ---- programs ------------------------------------------------------------------------------ */

static uint64_t perft(int depth)
{
    struct move_list list;
    uint64_t leaves = 0;
    if (depth == 0)
        return 1;
    generate_moves(&list, false);
    for (int i = 0; i < list.count; i++) {
        if (!make_move(&list.moves[i]))
            continue;
        leaves += perft(depth - 1);
        unmake_move();
    }
    return leaves;
}

enum { PERFT_DEPTHS = 5 };

/* Published counts, by depth from 1; 0 where the list ends. */
static const struct {
    const char *fen;
    uint32_t leaves[PERFT_DEPTHS];
} perft_positions[] = {
    {"rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq -", {20, 400, 8902, 197281, 4865609}},
    {"r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq -", {48, 2039, 97862, 4085603, 0}},
    {"8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 w - -", {14, 191, 2812, 43238, 674624}},
    {"r3k2r/Pppp1ppp/1b3nbN/nP6/BBP1P3/q4N2/Pp1P2PP/R2Q1RK1 w kq -", {6, 264, 9467, 422333, 0}},
    {"rnbq1k1r/pp1Pbppp/2p5/8/2B5/8/PPP1NnPP/RNBQK2R w KQ -", {44, 1486, 62379, 2103487, 0}},
    {"r4rk1/1pp1qppp/p1np1n2/2b1p1B1/2B1P1b1/P1NP1N2/1PP1QPPP/R4RK1 w - -", {46, 2079, 89890, 3894594, 0}},
};

static void check_perft(int max_depth)
{
    int checked = 0;
    for (size_t i = 0; i < sizeof perft_positions / sizeof *perft_positions; i++) {
        if (!set_position(perft_positions[i].fen))
            fail("position %zu is not a position", i + 1);
        uint64_t key = board.key;
        for (int depth = 1; depth <= max_depth && perft_positions[i].leaves[depth - 1]; depth++) {
            uint64_t leaves = perft(depth), expected = perft_positions[i].leaves[depth - 1];
            if (leaves != expected)
                fail("perft %d of position %zu is %llu, not %llu", depth, i + 1, (unsigned long long)leaves,
                     (unsigned long long)expected);
            if (board.key != key)
                fail("position %zu has another key after perft %d", i + 1, depth);
            checked++;
        }
    }
    printf("chess: %d perft counts agree, %llu moves made\n", checked, (unsigned long long)stats.moves_made);
}

enum { POSITIONS = 8 };

/* Openings, middle games and endings, so that searches differ in kind as well as in length. */
static const char *const search_positions[POSITIONS] = {
    "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq -",
    "r1bqkb1r/pppp1ppp/2n2n2/4p3/2B1P3/5N2/PPPP1PPP/RNBQK2R w KQkq -",
    "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq -",
    "r4rk1/1pp1qppp/p1np1n2/2b1p1B1/2B1P1b1/P1NP1N2/1PP1QPPP/R4RK1 w - -",
    "8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 w - -",
    "rnbq1k1r/pp1Pbppp/2p5/8/2B5/8/PPP1NnPP/RNBQK2R w KQ -",
    "8/8/1p1k4/p1p2p2/P1P2P1p/1P1K3P/8/8 w - -",
    "r3k2r/Pppp1ppp/1b3nbN/nP6/BBP1P3/q4N2/Pp1P2PP/R2Q1RK1 w kq -",
};

/* Leaves the listed position by up to two random legal moves, so that each seed is another input. */
static void play_random_moves(int moves)
{
    while (moves-- > 0) {
        struct move_list list;
        generate_moves(&list, false);
        for (int tries = 0; tries < 32 && list.count > 0; tries++)
            if (make_move(&list.moves[random_next() % (uint64_t)list.count]))
                break;
    }
}

static void search_positions_to(int depth, size_t positions)
{
    uint64_t checksum = UINT64_C(0xcbf29ce484222325); /* FNV-1a over moves and scores */
    table = calloc((size_t)1 << TABLE_BITS, sizeof *table);
    if (!table)
        fail("out of memory (transposition table of %zu bytes)", sizeof *table << TABLE_BITS);
    for (size_t i = 0; i < positions; i++) {
        char best[8] = "none";
        if (!set_position(search_positions[i]))
            fail("position %zu is not a position", i + 1);
        play_random_moves((int)(random_next() % 3));
        uint64_t nodes = stats.nodes + stats.quiescence_nodes, key = board.key;
        int score = search_iteratively(depth, best);
        if (board.key != key)
            fail("position %zu was not restored by its search", i + 1);
        printf("chess: position %zu best %s score %d nodes %llu\n", i + 1, best, score,
               (unsigned long long)(stats.nodes + stats.quiescence_nodes - nodes));
        for (const char *letter = best; *letter; letter++)
            checksum = (checksum ^ (uint64_t)*letter) * UINT64_C(0x100000001b3);
        checksum = (checksum ^ (uint64_t)(score + INFINITE_SCORE)) * UINT64_C(0x100000001b3);
    }
    printf("chess: nodes %llu, quiescence nodes %llu, table hits %llu of %llu, checksum %016llx\n",
           (unsigned long long)stats.nodes, (unsigned long long)stats.quiescence_nodes,
           (unsigned long long)stats.table_hits, (unsigned long long)stats.table_probes,
           (unsigned long long)checksum);
    free(table);
}

/* ---- command line -------------------------------------------------------------------------- */

static int usage(void)
{
    fputs("usage: chess [tiny|small|medium|large|DEPTH [SEED]]\n"
          "       chess --perft [MAX_DEPTH]\n"
          "  DEPTH      plies to search each of the built-in positions, 1 to 30 (default: medium)\n"
          "  SEED       unsigned 64-bit seed of hash keys and of the moves played before (default: 1)\n"
          "  MAX_DEPTH  deepest perft count to check, 1 to 5 (default: 3)\n",
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

static bool parse_size(const char *text, uint64_t *depth, size_t *positions)
{
    static const struct {
        const char *name;
        uint64_t depth;
        size_t positions;
    } named[] = {{"tiny", 1, POSITIONS}, {"small", 3, 3}, {"medium", 4, POSITIONS}, {"large", 7, POSITIONS}};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (strcmp(text, named[i].name) == 0) {
            *depth = named[i].depth;
            *positions = named[i].positions;
            return true;
        }
    *positions = POSITIONS;
    return parse_number(text, 1, MAX_DEPTH, depth);
}

int main(int argc, char **argv)
{
    uint64_t depth, seed = 1;
    size_t positions = 0;
    bool perft_wanted = argc > 1 && strcmp(argv[1], "--perft") == 0;
    if (argc > 3)
        return usage();
    if (perft_wanted) {
        depth = 3;
        if (argc > 2 && !parse_number(argv[2], 1, PERFT_DEPTHS, &depth))
            return usage();
    } else if (!parse_size(argc > 1 ? argv[1] : "medium", &depth, &positions)) {
        return usage();
    } else if (argc > 2 && !parse_number(argv[2], 0, UINT64_MAX, &seed)) {
        return usage();
    }
    random_state = seed;
    build_keys();
    build_bonuses();
    if (perft_wanted)
        check_perft((int)depth);
    else
        search_positions_to((int)depth, positions);
    return 0;
}
