// COUNT matrix: {event: write, variable: matrix} = 16
// COUNT backwards: {event: write, variable: line} = 4
// COUNT variable_length: {event: write, variable: room, function: main} = 3
// COUNT bound: {event: call, callee: bound} = 3
// COUNT elements: {event: write, variable: list} = 2
#include <stdio.h>
int matrix[3][4], line[5];
struct item { int a, b; } list[3];
static int bound(int n) { return n; }
int main(void)
{
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 4; j++)
            matrix[i][j] = i * j;
    *matrix[1] = 2; 1[matrix][1] = 2; *(matrix[2] + 3) += 1; (*matrix)[0]++;
    1[line] = 3; *line = 4; *(line + 2) = 5; *(1 + (line + 2)) = 6;
    int room[bound(3)], (*rows)[bound(2)] = 0, k = 1;
    room[0] = k++; room[k] = room[0]; 1[room] = 0;
    typedef int sized[bound(4)];
    list[1].a = 1; list[2] = list[1];
    printf("%d %d %zu %zu %d %d\n", matrix[1][1], line[3], sizeof room, sizeof *rows, (int)sizeof(sized), list[2].a);
    return 0;
}
