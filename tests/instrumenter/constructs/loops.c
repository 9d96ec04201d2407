// COUNT plain: {event: loop, function: plain} = 19
// COUNT unbraced: {event: loop, function: unbraced} = 25
// COUNT empty: {event: loop, function: empty} = 14
// COUNT jumping: {event: loop, function: jumping} = 12
// COUNT one_line: {event: loop, function: plain, line: 16} = 4
// COUNT any_function: {event: loop, line: 24} = 15
// COUNT pragma: {event: loop, function: hinted} = 9
// COUNT duff: {event: loop, function: duff} = 2
// COUNT weighted: {event: loop, function: unbraced, add: i} = 70
#include <stdio.h>
static int total;
static void plain(void)
{
    for (int i = 0; i < 5; i++) { total++; }
    int n = 4;
    while (n) { n--; }
    do { n++; } while (n < 10);
}
static void unbraced(void)
{
    int i = 0;
    for (i = 1; i <= 5; i++)
        if (i & 1)
            for (int j = 0; j < 5; j++) total += j;
        else if (i == 2) total++; else ;
    i = 0;
    do i++; while (i < 5);
}
static void empty(void) { int i; for (i = 0; i < 7; i++); while (i-- > 0); }
static void jumping(void)
{
    for (int i = 0, j = 9; ; i++, j--) {
        if (i == 2) continue;
        if (i == 8) break;
        if (j < 0) goto out;
        total += j;
    }
    for (int i = 0; i < 3; i++) { total++; continue; }
out:
    return;
}
static void hinted(void)
{
    for (int i = 0; i < 3; i++)
#pragma clang loop unroll(disable)
        for (int j = 0; j < 2; j++)
            total++;
}
static void duff(int n)
{
    switch (n % 4) {
    case 0: do { total++;
    case 3:      total++;
    case 2:      total++;
    case 1:      total++;
            } while (--n > 2);
    }
}
int main(void)
{
    plain(); unbraced(); empty(); jumping(); hinted(); duff(3); duff(4);
    printf("%d\n", total);
    return 0;
}
