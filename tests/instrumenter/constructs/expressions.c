// COUNT order: {event: write, variable: x} = 5
// COUNT indexed: {event: write, variable: cells} = 3
// COUNT lengths: {event: entry, function: copy, add: length} = 12
// COUNT squares: {event: loop, function: main, add: "(i * i) ? i : 100"} = 234
// COUNT at_write: {event: write, variable: x, function: main, add: y} = 10
// COUNT quoted: {event: entry, function: copy, add: "')' + from[0] - from[0]"} = 82
// COUNT comma: {event: write, variable: y} = 3
#include <stdio.h>
#include <string.h>
int x, y = 2, cells[4];
static int log_of[8], logged;
static int say(int n) { log_of[logged++ & 7] = n; return n; }
static void copy(char *to, const char *from, unsigned long length) { memcpy(to, from, length); }
int main(void)
{
    char buffer[16];
    x = say(1) + say(2) * say(3);
    x = (x = 2, say(4)) ? x + 1 : x--;
    cells[say(1)] = cells[say(2)] = say(3);
    cells[x++ & 3] += 1;
    x = !x ? x : -x;
    for (int i = 0; i < 4; i++)
        buffer[i] = (char)('a' + i);
    copy(buffer, "hello", 6); copy(buffer + 1, "fello", 6);
    y = (x, 5), y -= 1, y++;
    printf("%d %d %d %s", x, y, cells[1] + cells[2] * 3 + cells[3], buffer);
    for (int i = 0; i < 8; i++) printf(" %d", log_of[i]);
    return 0;
}
