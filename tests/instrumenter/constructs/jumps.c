// COUNT entries: {event: entry, function: leave} = 2
// COUNT exits: {event: exit, function: leave} = 0
// COUNT calls: {event: call, callee: longjmp} = 2
// COUNT writes: {event: write, variable: rounds} = 3
#include <setjmp.h>
#include <stdio.h>
static jmp_buf place;
static volatile int rounds;
static void leave(int n) { if (n) longjmp(place, n); }
int main(void)
{
    switch (setjmp(place)) {
    case 0: rounds++; break;
    default: rounds += 10; break;
    }
    if (rounds < 20) leave(1);
    printf("%d\n", rounds);
    return 0;
}
