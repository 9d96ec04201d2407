/*
 * netsimplex - minimum-cost flow by the network simplex method.
 *
 * Two instances are solved a run. The first schedules vehicles: every timetabled trip is served by
 * one vehicle, which waits or drives empty between trips; most of the connections are left out at
 * first, priced out in rounds, added when they would lower the cost and dropped again when they
 * stay useless. The second is a capacitated transhipment network. The basis is a spanning tree of
 * linked nodes, kept strongly feasible so that pivoting cannot cycle. Every solution is checked:
 * flow conservation, capacities and complementary slackness.
 *
 * Usage: netsimplex [tiny|small|medium|large|TRIPS [SEED]]
 *        netsimplex --check [INSTANCES [SEED]]   compare with successive shortest paths
 * Exit status: 0 fine, 1 a check failed, 2 bad arguments.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_TRIPS = 100000,
    FIRST_CONNECTIONS = 3, /* per trip in the first schedule, the rest must be priced out */
    MAX_WAIT_MINUTES = 240,
    BLOCK_ARCS = 300, /* arcs priced at a time, of which the best enters */
    MAX_ROUNDS = 100,
    UNLIMITED = INT32_MAX
};

enum state { AT_LOWER, AT_UPPER, BASIC };

struct arc;

struct node {
    int64_t potential;
    int64_t supply; /* negative is demand */
    int64_t flow;   /* on the basic arc */
    struct node *parent, *child, *right, *left; /* first child, and siblings */
    struct arc *basic_arc;                      /* joins the node to its parent */
    int32_t depth;
    bool upward; /* the basic arc leads from the node to its parent */
};

struct arc {
    int64_t cost, capacity;
    struct node *tail, *head;
    int64_t reduced_cost; /* as last priced */
    enum state state;
    bool optional; /* priced out, and may be dropped again */
};

struct network {
    size_t node_count, arc_count, arc_capacity;
    struct node *nodes; /* nodes[node_count] is the root */
    struct arc *arcs;   /* in use first, then room for those priced out */
    struct arc *artificial;
    int64_t big_cost;
    size_t next_priced;
};

/* What the solver did; every field is a candidate for a software metric. */
struct statistics {
    uint64_t pivots;
    uint64_t degenerate_pivots;
    uint64_t bound_flips;
    uint64_t priced_arcs;
    uint64_t tree_updates; /* nodes whose potential or depth was set */
    uint64_t cycle_nodes;
    uint64_t pricing_rounds;
    uint64_t connections_tried, connections_added, connections_dropped;
};

static struct statistics stats;

static void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("netsimplex: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    if (!memory)
        fail("out of memory (%zu x %zu bytes)", count, size);
    return memory;
}

static uint64_t random_state;

static uint64_t random_next(void)
{
    uint64_t z = (random_state += UINT64_C(0x9e3779b97f4a7c15)); /* splitmix64 */
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static int64_t random_between(int64_t low, int64_t high)
{
    return low + (int64_t)(random_next() % (uint64_t)(high - low + 1));
}

/* ---- networks ------------------------------------------------------------------------------ */

static void open_network(struct network *network, size_t nodes, size_t arcs)
{
    memset(network, 0, sizeof *network);
    network->node_count = nodes;
    network->arc_capacity = arcs;
    network->nodes = allocate(nodes + 1, sizeof *network->nodes);
    network->arcs = allocate(arcs, sizeof *network->arcs);
    network->artificial = allocate(nodes, sizeof *network->artificial);
}

static void close_network(struct network *network)
{
    free(network->nodes);
    free(network->arcs);
    free(network->artificial);
}

static struct arc *add_arc(struct network *network, size_t tail, size_t head, int64_t cost, int64_t capacity)
{
    if (network->arc_count == network->arc_capacity)
        fail("no room for more than %zu arcs", network->arc_capacity);
    struct arc *arc = &network->arcs[network->arc_count++];
    arc->tail = &network->nodes[tail];
    arc->head = &network->nodes[head];
    arc->cost = cost;
    arc->capacity = capacity;
    arc->reduced_cost = 0;
    arc->state = AT_LOWER;
    arc->optional = false;
    return arc;
}

static int64_t reduced_cost(const struct arc *arc)
{
    return arc->cost - arc->tail->potential + arc->head->potential;
}

static struct node *child_on(const struct arc *arc)
{
    return arc->tail->basic_arc == arc ? arc->tail : arc->head;
}

static int64_t arc_flow(const struct arc *arc)
{
    return arc->state == BASIC ? child_on(arc)->flow : arc->state == AT_UPPER ? arc->capacity : 0;
}

/* ---- spanning tree ------------------------------------------------------------------------- */

static void attach(struct node *node, struct node *parent)
{
    node->parent = parent;
    node->left = NULL;
    node->right = parent->child;
    if (parent->child)
        parent->child->left = node;
    parent->child = node;
}

static void detach(struct node *node)
{
    if (node->left)
        node->left->right = node->right;
    else
        node->parent->child = node->right;
    if (node->right)
        node->right->left = node->left;
}

static int64_t potential_below(const struct node *node)
{
    return node->upward ? node->parent->potential + node->basic_arc->cost
                        : node->parent->potential - node->basic_arc->cost;
}

/* Sets potential and depth of a subtree, in preorder without a stack. */
static void update_subtree(struct node *top)
{
    struct node *node = top;
    for (;;) {
        node->depth = node->parent->depth + 1;
        node->potential = potential_below(node);
        stats.tree_updates++;
        if (node->child) {
            node = node->child;
            continue;
        }
        while (node != top && !node->right)
            node = node->parent;
        if (node == top)
            return;
        node = node->right;
    }
}

/* All nodes hang from the root by artificial arcs that cost more than any path. */
static void build_first_basis(struct network *network)
{
    struct node *root = &network->nodes[network->node_count];
    int64_t dearest = 0;
    for (size_t i = 0; i < network->arc_count; i++)
        if (llabs(network->arcs[i].cost) > dearest)
            dearest = llabs(network->arcs[i].cost);
    network->big_cost = (dearest + 1) * (int64_t)(network->node_count + 1);
    memset(root, 0, sizeof *root);
    for (size_t i = 0; i < network->node_count; i++) {
        struct node *node = &network->nodes[i];
        struct arc *arc = &network->artificial[i];
        bool upward = node->supply >= 0;
        arc->tail = upward ? node : root;
        arc->head = upward ? root : node;
        arc->cost = network->big_cost;
        arc->capacity = INT64_MAX / 4;
        arc->state = BASIC;
        node->child = NULL;
        node->basic_arc = arc;
        node->upward = upward;
        node->flow = llabs(node->supply);
        attach(node, root);
        update_subtree(node);
    }
}

static struct node *join_of(struct node *a, struct node *b)
{
    while (a != b) {
        stats.cycle_nodes++;
        if (a->depth > b->depth)
            a = a->parent;
        else if (b->depth > a->depth)
            b = b->parent;
        else {
            a = a->parent;
            b = b->parent;
        }
    }
    return a;
}

/* How much more flow fits on a node's basic arc towards its parent, or from it. */
static int64_t residual(const struct node *node, bool towards_parent)
{
    return node->upward == towards_parent ? node->basic_arc->capacity - node->flow : node->flow;
}

struct blocking {
    struct node *node; /* below the leaving arc; NULL when the entering arc itself blocks */
    int64_t flow;
    bool on_source_side;
};

/*
 * The first arc to block flow round the cycle. Among several the last one met from the join in the
 * direction of the flow leaves, which keeps the basis strongly feasible.
 */
static struct blocking find_blocking(struct arc *entering, struct node *source, struct node *sink,
                                     struct node *join)
{
    struct blocking found = {NULL, entering->capacity, false};
    for (struct node *node = source; node != join; node = node->parent) {
        int64_t room = residual(node, false);
        if (room < found.flow)
            found = (struct blocking){node, room, true};
    }
    for (struct node *node = sink; node != join; node = node->parent) {
        int64_t room = residual(node, true);
        if (room <= found.flow)
            found = (struct blocking){node, room, false};
    }
    return found;
}

static void push_flow(struct node *from, struct node *join, bool towards_parent, int64_t flow)
{
    for (struct node *node = from; node != join; node = node->parent)
        node->flow += node->upward == towards_parent ? flow : -flow;
}

/* Turns the path from `top` down to `bottom` over, and hangs bottom from its new parent. */
static void rehang(struct node *bottom, struct node *top, struct node *new_parent, struct arc *entering,
                   int64_t flow)
{
    struct node *node = bottom, *parent = new_parent;
    struct arc *arc = entering;
    bool upward = entering->tail == bottom;
    for (;;) {
        struct node *old_parent = node->parent;
        struct arc *old_arc = node->basic_arc;
        bool old_upward = node->upward;
        int64_t old_flow = node->flow;
        detach(node);
        attach(node, parent);
        node->basic_arc = arc;
        node->upward = upward;
        node->flow = flow;
        if (node == top)
            break;
        parent = node;
        node = old_parent;
        arc = old_arc;
        upward = !old_upward;
        flow = old_flow;
    }
    update_subtree(bottom);
}

/* One exchange of the basis; `entering` is not basic and improves the cost. */
static void pivot(struct arc *entering)
{
    bool rising = entering->state == AT_LOWER;
    struct node *source = rising ? entering->tail : entering->head;
    struct node *sink = rising ? entering->head : entering->tail;
    struct node *join = join_of(source, sink);
    struct blocking blocking = find_blocking(entering, source, sink, join);
    stats.pivots++;
    if (blocking.flow == 0) {
        stats.degenerate_pivots++;
    } else {
        push_flow(source, join, false, blocking.flow);
        push_flow(sink, join, true, blocking.flow);
    }
    if (!blocking.node) {
        stats.bound_flips++;
        entering->state = rising ? AT_UPPER : AT_LOWER;
        return;
    }
    struct arc *leaving = blocking.node->basic_arc;
    leaving->state = blocking.node->flow == 0 ? AT_LOWER : AT_UPPER;
    entering->state = BASIC;
    int64_t flow = rising ? blocking.flow : entering->capacity - blocking.flow;
    if (blocking.on_source_side)
        rehang(source, blocking.node, sink, entering, flow);
    else
        rehang(sink, blocking.node, source, entering, flow);
}

/* ---- pricing ------------------------------------------------------------------------------- */

static int64_t violation(const struct arc *arc)
{
    return arc->state == AT_LOWER ? -arc->reduced_cost : arc->state == AT_UPPER ? arc->reduced_cost : 0;
}

static struct arc *price_block(struct network *network, size_t start, size_t stop)
{
    struct arc *best = NULL;
    int64_t worst = 0;
    for (size_t i = start; i < stop; i++) {
        struct arc *arc = &network->arcs[i];
        stats.priced_arcs++;
        if (arc->state == BASIC)
            continue;
        arc->reduced_cost = reduced_cost(arc);
        if (violation(arc) > worst) {
            worst = violation(arc);
            best = arc;
        }
    }
    return best;
}

/* The most improving arc of the next block that has one; NULL at the optimum. */
static struct arc *find_entering(struct network *network)
{
    size_t priced = 0;
    while (priced < network->arc_count) {
        size_t start = network->next_priced < network->arc_count ? network->next_priced : 0;
        size_t left = network->arc_count - start;
        size_t stop = start + (left < BLOCK_ARCS ? left : BLOCK_ARCS);
        struct arc *arc = price_block(network, start, stop);
        network->next_priced = stop;
        if (arc)
            return arc;
        priced += stop - start;
    }
    return NULL;
}

static void optimise(struct network *network)
{
    struct arc *entering;
    while ((entering = find_entering(network)) != NULL)
        pivot(entering);
}

static bool is_feasible(const struct network *network)
{
    for (size_t i = 0; i < network->node_count; i++)
        if (arc_flow(&network->artificial[i]) != 0)
            return false;
    return true;
}

static int64_t total_cost(const struct network *network)
{
    int64_t cost = 0;
    for (size_t i = 0; i < network->arc_count; i++)
        cost += network->arcs[i].cost * arc_flow(&network->arcs[i]);
    return cost;
}

/* ---- checks -------------------------------------------------------------------------------- */

static void check_conservation(const struct network *network, const char *what)
{
    int64_t *balance = allocate(network->node_count, sizeof *balance);
    for (size_t i = 0; i < network->arc_count; i++) {
        const struct arc *arc = &network->arcs[i];
        int64_t flow = arc_flow(arc);
        if (flow < 0 || flow > arc->capacity)
            fail("%s: arc %zu carries %lld of %lld", what, i, (long long)flow, (long long)arc->capacity);
        balance[arc->tail - network->nodes] += flow;
        balance[arc->head - network->nodes] -= flow;
    }
    for (size_t i = 0; i < network->node_count; i++)
        if (balance[i] != network->nodes[i].supply)
            fail("%s: node %zu sends %lld, not %lld", what, i, (long long)balance[i],
                 (long long)network->nodes[i].supply);
    free(balance);
}

/* Complementary slackness: with conservation it proves that no flow costs less. */
static void check_optimality(const struct network *network, const char *what)
{
    for (size_t i = 0; i < network->arc_count; i++) {
        const struct arc *arc = &network->arcs[i];
        int64_t cost = reduced_cost(arc), flow = arc_flow(arc);
        if ((cost > 0 && flow != 0) || (cost < 0 && flow != arc->capacity))
            fail("%s: arc %zu has reduced cost %lld and flow %lld of %lld", what, i, (long long)cost,
                 (long long)flow, (long long)arc->capacity);
    }
}

static void check_solution(const struct network *network, const char *what)
{
    if (!is_feasible(network))
        fail("%s: supplies do not reach demands", what);
    check_conservation(network, what);
    check_optimality(network, what);
}

/* ---- vehicle scheduling -------------------------------------------------------------------- */

struct trip {
    int32_t number;
    int32_t start_minute, end_minute;
    int32_t from_x, from_y, to_x, to_y;
};

struct schedule {
    size_t trips;
    struct trip *trip;
    struct network network;
};

/*
 * Nodes: trip t begins at t (demand 1) and ends at trips + t (supply 1); the depot sends from
 * 2 * trips and receives at 2 * trips + 1.
 */
static size_t end_node(const struct schedule *schedule, size_t trip) { return schedule->trips + trip; }

static int by_start(const void *a, const void *b)
{
    const struct trip *left = a, *right = b;
    if (left->start_minute != right->start_minute)
        return left->start_minute < right->start_minute ? -1 : 1;
    return left->number < right->number ? -1 : 1; /* qsort need not be stable */
}

/* Two rush hours a day over a square town. */
static void generate_trips(struct schedule *schedule)
{
    for (size_t i = 0; i < schedule->trips; i++) {
        struct trip *trip = &schedule->trip[i];
        int64_t peak = random_between(0, 2);
        int64_t start = peak == 0 ? 300 + random_between(0, 900) : peak == 1 ? 400 : 960;
        trip->number = (int32_t)i;
        trip->start_minute = (int32_t)(start + random_between(0, 180));
        trip->from_x = (int32_t)random_between(0, 99);
        trip->from_y = (int32_t)random_between(0, 99);
        trip->to_x = (int32_t)random_between(0, 99);
        trip->to_y = (int32_t)random_between(0, 99);
        int distance = abs(trip->from_x - trip->to_x) + abs(trip->from_y - trip->to_y);
        trip->end_minute = trip->start_minute + 10 + distance / 2;
    }
    qsort(schedule->trip, schedule->trips, sizeof *schedule->trip, by_start);
}

static int32_t empty_distance(const struct trip *before, const struct trip *after)
{
    return abs(before->to_x - after->from_x) + abs(before->to_y - after->from_y);
}

static bool can_follow(const struct trip *before, const struct trip *after)
{
    int32_t wait = after->start_minute - before->end_minute;
    return wait <= MAX_WAIT_MINUTES && wait >= empty_distance(before, after) / 3;
}

static int64_t connection_cost(const struct trip *before, const struct trip *after)
{
    return 10 * empty_distance(before, after) + 3 * (after->start_minute - before->end_minute);
}

/* Pull-out or pull-in: an empty drive from the depot, at (50, 50), or back to it. */
static int64_t depot_cost(int32_t x, int32_t y, int64_t fixed)
{
    return fixed + 10 * (abs(x - 50) + abs(y - 50));
}

static void build_schedule(struct schedule *schedule, size_t trips, size_t room, size_t first_connections)
{
    struct network *network = &schedule->network;
    size_t out = 2 * trips, in = 2 * trips + 1;
    schedule->trips = trips;
    schedule->trip = allocate(trips, sizeof *schedule->trip);
    generate_trips(schedule);
    open_network(network, 2 * trips + 2, room);
    network->nodes[out].supply = (int64_t)trips;
    network->nodes[in].supply = -(int64_t)trips;
    add_arc(network, out, in, 0, UNLIMITED); /* vehicles that stay at home */
    for (size_t i = 0; i < trips; i++) {
        const struct trip *trip = &schedule->trip[i];
        network->nodes[i].supply = -1;
        network->nodes[end_node(schedule, i)].supply = 1;
        add_arc(network, out, i, depot_cost(trip->from_x, trip->from_y, 2500), UNLIMITED);
        add_arc(network, end_node(schedule, i), in, depot_cost(trip->to_x, trip->to_y, 0), UNLIMITED);
        size_t added = 0;
        for (size_t j = i + 1; j < trips && added < first_connections; j++)
            if (can_follow(trip, &schedule->trip[j])) {
                int64_t cost = connection_cost(trip, &schedule->trip[j]);
                add_arc(network, end_node(schedule, i), j, cost, UNLIMITED)->optional = true;
                added++;
            }
    }
    build_first_basis(network);
}

static void close_schedule(struct schedule *schedule)
{
    free(schedule->trip);
    close_network(&schedule->network);
}

/* Drops priced-out arcs that are unused and dear, moving the kept ones together. */
static void drop_connections(struct network *network, int64_t threshold)
{
    size_t kept = 0;
    for (size_t i = 0; i < network->arc_count; i++) {
        struct arc *arc = &network->arcs[i];
        if (arc->optional && arc->state == AT_LOWER && reduced_cost(arc) > threshold) {
            stats.connections_dropped++;
            continue;
        }
        if (kept != i) {
            if (arc->state == BASIC)
                child_on(arc)->basic_arc = &network->arcs[kept];
            network->arcs[kept] = *arc;
        }
        kept++;
    }
    network->arc_count = kept;
}

/* Adds, for each trip, the left-out connections that would lower the cost, the best few of them. */
static size_t price_out_trip(struct schedule *schedule, size_t i)
{
    enum { BEST = 4 };
    struct network *network = &schedule->network;
    const struct trip *trip = &schedule->trip[i];
    int64_t tail_potential = network->nodes[end_node(schedule, i)].potential;
    int64_t best_cost[BEST];
    size_t best[BEST], found = 0;
    for (size_t j = i + 1; j < schedule->trips; j++) {
        const struct trip *after = &schedule->trip[j];
        if (after->start_minute - trip->end_minute > MAX_WAIT_MINUTES)
            break;
        stats.connections_tried++;
        if (!can_follow(trip, after))
            continue;
        int64_t cost = connection_cost(trip, after) - tail_potential + network->nodes[j].potential;
        if (cost >= 0 || (found == BEST && cost >= best_cost[BEST - 1]))
            continue;
        size_t at = found < BEST ? found++ : BEST - 1;
        for (; at > 0 && best_cost[at - 1] > cost; at--) {
            best_cost[at] = best_cost[at - 1];
            best[at] = best[at - 1];
        }
        best_cost[at] = cost;
        best[at] = j;
    }
    for (size_t k = 0; k < found; k++) {
        if (network->arc_count == network->arc_capacity)
            return k;
        int64_t cost = connection_cost(trip, &schedule->trip[best[k]]);
        add_arc(network, end_node(schedule, i), best[k], cost, UNLIMITED)->optional = true;
    }
    return found;
}

static size_t price_out(struct schedule *schedule)
{
    size_t added = 0;
    for (size_t i = 0; i < schedule->trips; i++)
        added += price_out_trip(schedule, i);
    stats.connections_added += added;
    return added;
}

/* No connection, in the network or left out of it, may have a negative reduced cost. */
static void check_left_out(const struct schedule *schedule)
{
    const struct node *nodes = schedule->network.nodes;
    for (size_t i = 0; i < schedule->trips; i++) {
        const struct trip *trip = &schedule->trip[i];
        int64_t tail_potential = nodes[end_node(schedule, i)].potential;
        for (size_t j = i + 1; j < schedule->trips; j++) {
            const struct trip *after = &schedule->trip[j];
            if (after->start_minute - trip->end_minute > MAX_WAIT_MINUTES)
                break;
            int64_t cost = connection_cost(trip, after) - tail_potential + nodes[j].potential;
            if (cost < 0 && can_follow(trip, after))
                fail("schedule: the connection from trip %zu to %zu would still save %lld", i, j,
                     (long long)-cost);
        }
    }
}

static int64_t solve_schedule(struct schedule *schedule)
{
    int rounds = 0;
    do {
        optimise(&schedule->network);
        stats.pricing_rounds++;
        drop_connections(&schedule->network, 2000);
        if (++rounds > MAX_ROUNDS)
            fail("schedule: connections still pay after %d rounds", MAX_ROUNDS);
    } while (price_out(schedule) > 0);
    check_solution(&schedule->network, "schedule");
    check_left_out(schedule);
    return total_cost(&schedule->network);
}

/* ---- transhipment -------------------------------------------------------------------------- */

/* A ring makes it feasible whatever the seed; the other arcs are shorter, and scarce. */
static void build_transhipment(struct network *network, size_t nodes, size_t degree)
{
    open_network(network, nodes, nodes * (degree + 1));
    for (size_t i = 0; i < nodes; i++) {
        add_arc(network, i, (i + 1) % nodes, 2000 + random_between(0, 999), UNLIMITED);
        for (size_t k = 0; k < degree; k++) {
            size_t reach = (size_t)random_between(1, k % 2 ? (int64_t)nodes - 1 : 64);
            int64_t cost = random_between(10, 410), capacity = random_between(1, 60);
            if (reach % nodes != 0)
                add_arc(network, i, (i + reach) % nodes, cost, capacity);
        }
    }
    for (size_t k = 0; k < nodes; k++) {
        int64_t amount = random_between(1, 20);
        network->nodes[random_next() % nodes].supply += amount;
        network->nodes[random_next() % nodes].supply -= amount;
    }
    build_first_basis(network);
}

/* ---- comparison with successive shortest paths --------------------------------------------- */

struct simple_arc {
    size_t tail, head;
    int64_t cost, capacity, flow;
};

/* Bellman-Ford over the residual network; distance is INT64_MAX where there is no path. */
static void shortest_paths(size_t nodes, const struct simple_arc *arcs, size_t arc_count, size_t from,
                           int64_t *distance, ptrdiff_t *via)
{
    for (size_t i = 0; i < nodes; i++)
        distance[i] = INT64_MAX;
    distance[from] = 0;
    bool changed = true;
    for (size_t round = 0; round < nodes && changed; round++) {
        changed = false;
        for (size_t i = 0; i < arc_count; i++) {
            const struct simple_arc *arc = &arcs[i];
            int64_t at_tail = distance[arc->tail], at_head = distance[arc->head];
            if (arc->flow < arc->capacity && at_tail != INT64_MAX && at_tail + arc->cost < at_head) {
                distance[arc->head] = at_head = at_tail + arc->cost;
                via[arc->head] = (ptrdiff_t)i;
                changed = true;
            }
            if (arc->flow > 0 && at_head != INT64_MAX && at_head - arc->cost < distance[arc->tail]) {
                distance[arc->tail] = at_head - arc->cost;
                via[arc->tail] = -(ptrdiff_t)i - 1;
                changed = true;
            }
        }
    }
}

/* Cost of the cheapest flow by one unit at a time, or -1 when supplies cannot reach demands. */
static int64_t cost_by_shortest_paths(const struct network *network)
{
    size_t nodes = network->node_count + 2, source = network->node_count, sink = source + 1;
    size_t count = 0;
    int64_t cost = 0, demand = 0;
    struct simple_arc *arcs = allocate(network->arc_count + network->node_count, sizeof *arcs);
    int64_t *distance = allocate(nodes, sizeof *distance);
    ptrdiff_t *via = allocate(nodes, sizeof *via);
    for (size_t i = 0; i < network->arc_count; i++) {
        const struct arc *arc = &network->arcs[i];
        arcs[count++] = (struct simple_arc){.tail = (size_t)(arc->tail - network->nodes),
                                            .head = (size_t)(arc->head - network->nodes),
                                            .cost = arc->cost,
                                            .capacity = arc->capacity};
    }
    for (size_t i = 0; i < network->node_count; i++) {
        int64_t supply = network->nodes[i].supply;
        if (supply > 0)
            arcs[count++] = (struct simple_arc){source, i, 0, supply, 0};
        if (supply < 0)
            arcs[count++] = (struct simple_arc){i, sink, 0, -supply, 0};
        demand += supply > 0 ? supply : 0;
    }
    for (; demand > 0; demand--) {
        shortest_paths(nodes, arcs, count, source, distance, via);
        if (distance[sink] == INT64_MAX) {
            cost = -1;
            break;
        }
        cost += distance[sink];
        for (size_t node = sink; node != source;) {
            ptrdiff_t step = via[node];
            struct simple_arc *arc = &arcs[step >= 0 ? step : -step - 1];
            arc->flow += step >= 0 ? 1 : -1;
            node = step >= 0 ? arc->tail : arc->head;
        }
    }
    free(arcs);
    free(distance);
    free(via);
    return cost;
}

/* Small, with zero capacities, parallel arcs and now and then no feasible flow. */
static void build_small(struct network *network)
{
    size_t nodes = (size_t)random_between(2, 8), arcs = (size_t)random_between(1, 24);
    open_network(network, nodes, arcs);
    for (size_t i = 0; i < arcs; i++) {
        size_t tail = random_next() % nodes, head = random_next() % nodes;
        int64_t cost = random_between(0, 12), capacity = random_between(0, 6);
        if (tail != head)
            add_arc(network, tail, head, cost, capacity);
    }
    for (int64_t k = random_between(0, 4); k > 0; k--) {
        int64_t amount = random_between(1, 3);
        network->nodes[random_next() % nodes].supply += amount;
        network->nodes[random_next() % nodes].supply -= amount;
    }
    build_first_basis(network);
}

static bool check_small(uint64_t instance)
{
    struct network network;
    build_small(&network);
    int64_t expected = cost_by_shortest_paths(&network);
    optimise(&network);
    bool feasible = is_feasible(&network);
    if (feasible != (expected >= 0))
        fail("instance %llu is called %s", (unsigned long long)instance,
             feasible ? "feasible" : "infeasible");
    if (feasible) {
        check_solution(&network, "instance");
        if (total_cost(&network) != expected)
            fail("instance %llu costs %lld, not %lld", (unsigned long long)instance,
                 (long long)total_cost(&network), (long long)expected);
    }
    close_network(&network);
    return feasible;
}

static void check_small_schedule(uint64_t instance)
{
    struct schedule few, all;
    size_t trips = (size_t)random_between(1, 12);
    uint64_t state = random_state;
    build_schedule(&few, trips, 1 + trips * (trips + 2), 1);
    random_state = state;
    build_schedule(&all, trips, 1 + trips * (trips + 2), trips);
    int64_t expected = cost_by_shortest_paths(&all.network), found = solve_schedule(&few);
    if (found != expected)
        fail("schedule %llu costs %lld, not %lld", (unsigned long long)instance, (long long)found,
             (long long)expected);
    close_schedule(&few);
    close_schedule(&all);
}

static void check_instances(uint64_t instances)
{
    uint64_t feasible = 0;
    for (uint64_t i = 0; i < instances; i++) {
        feasible += check_small(i);
        if (i % 4 == 0)
            check_small_schedule(i);
    }
    printf("netsimplex: %llu instances agree with shortest paths (%llu feasible), %llu pivots\n",
           (unsigned long long)instances, (unsigned long long)feasible, (unsigned long long)stats.pivots);
}

/* ---- programs ------------------------------------------------------------------------------ */

static uint64_t flow_checksum(const struct network *network)
{
    uint64_t checksum = UINT64_C(0xcbf29ce484222325); /* FNV-1a over the flows */
    for (size_t i = 0; i < network->arc_count; i++)
        checksum = (checksum ^ (uint64_t)arc_flow(&network->arcs[i])) * UINT64_C(0x100000001b3);
    return checksum;
}

static void report(const char *what, const struct network *network, int64_t cost)
{
    printf("netsimplex: %s of %zu nodes and %zu arcs costs %lld, flow checksum %016llx\n", what,
           network->node_count, network->arc_count, (long long)cost,
           (unsigned long long)flow_checksum(network));
}

static void solve_all(size_t trips)
{
    struct schedule schedule;
    struct network transhipment;
    build_schedule(&schedule, trips, 1 + 40 * trips, FIRST_CONNECTIONS);
    report("schedule", &schedule.network, solve_schedule(&schedule));
    close_schedule(&schedule);

    build_transhipment(&transhipment, 2 * trips, 6);
    optimise(&transhipment);
    check_solution(&transhipment, "transhipment");
    report("transhipment", &transhipment, total_cost(&transhipment));
    close_network(&transhipment);

    printf("netsimplex: %llu pivots (%llu degenerate), %llu arcs priced, %llu tree updates\n",
           (unsigned long long)stats.pivots, (unsigned long long)stats.degenerate_pivots,
           (unsigned long long)stats.priced_arcs, (unsigned long long)stats.tree_updates);
    printf("netsimplex: %llu rounds, %llu connections tried, %llu added, %llu dropped\n",
           (unsigned long long)stats.pricing_rounds, (unsigned long long)stats.connections_tried,
           (unsigned long long)stats.connections_added, (unsigned long long)stats.connections_dropped);
}

/* ---- command line -------------------------------------------------------------------------- */

static int usage(void)
{
    fputs("usage: netsimplex [tiny|small|medium|large|TRIPS [SEED]]\n"
          "       netsimplex --check [INSTANCES [SEED]]\n"
          "  TRIPS      trips to schedule, 2 to 100000; the transhipment network has twice as many nodes\n"
          "             (default: medium)\n"
          "  INSTANCES  small random instances to compare with shortest paths (default: 1000)\n"
          "  SEED       unsigned 64-bit seed (default: 1)\n",
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

static bool parse_size(const char *text, uint64_t *trips)
{
    static const struct {
        const char *name;
        uint64_t trips;
    } named[] = {{"tiny", 40}, {"small", 270}, {"medium", 900}, {"large", 3000}};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (strcmp(text, named[i].name) == 0) {
            *trips = named[i].trips;
            return true;
        }
    return parse_number(text, 2, MAX_TRIPS, trips);
}

int main(int argc, char **argv)
{
    uint64_t seed = 1, trips, instances = 1000;
    bool check = argc > 1 && strcmp(argv[1], "--check") == 0;
    int seed_at = check ? 3 : 2;
    if (argc > seed_at + 1)
        return usage();
    if (check && argc > 2 && !parse_number(argv[2], 1, UINT32_MAX, &instances))
        return usage();
    if (!check && !parse_size(argc > 1 ? argv[1] : "medium", &trips))
        return usage();
    if (argc > seed_at && !parse_number(argv[seed_at], 0, UINT64_MAX, &seed))
        return usage();
    random_state = seed;
    if (check)
        check_instances(instances);
    else
        solve_all((size_t)trips);
    return 0;
}
