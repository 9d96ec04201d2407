// COUNT any: {event: write, field: value} = 6
// COUNT node: {event: write, field: node.value} = 4
// COUNT alias: {event: write, field: Node.value} = 4
// COUNT other: {event: write, field: leaf.value} = 2
// COUNT inner: {event: write, field: x} = 3
// COUNT outer_of_inner: {event: write, field: Shape.x} = 3
// COUNT bits: {event: write, field: low} = 4
// COUNT whole: {event: write, variable: global} = 4
// COUNT array: {event: write, field: cells} = 3
// COUNT by_function: {event: write, field: value, function: set} = 2
#include <stdio.h>
typedef struct node { struct node *next; int value; } Node;
struct leaf { int value; };
typedef struct { int kind; union { struct { int x, y; }; float real; }; } Shape;
struct packed { unsigned low : 3; signed high : 5; } global;
struct grid { int cells[2][2]; };
static void set(Node *node, int to) { node->value = to; (*node).value++; }
int main(void)
{
    Node first = {0, 1}, second = {&first, 2}; // initialisers are not writes
    struct leaf leaf = {0};
    second.next->value = 3;
    second.value -= 1;
    set(&first, 8);
    leaf.value = first.value;
    struct leaf *leaves[] = {&leaf};
    ++leaves[0]->value;
    Shape shape = {0}, *at = &shape;
    at->x = 1; shape.x += 2; at->x--; shape.kind = 2; at->y = 4;
    global.low = 7; global.low++; global.low += 3; global.high = global.low;
    struct packed copy = global;
    copy.low = 1;
    struct grid grid = {{{0}}}, *grids = &grid;
    grid.cells[0][1] = 1; grids->cells[1][0]++; *grid.cells[1] = 5;
    printf("%d %d %d %d %u %d %d\n", first.value, second.value, leaf.value, shape.x, global.low, copy.low, grid.cells[1][0]);
    return 0;
}
