// COUNT requests: {event: alloc} = 8
// COUNT bytes: {event: alloc_bytes} = 244
// COUNT doubled: {event: alloc, add: 2} = 16
// COUNT in_grow: {event: alloc_bytes, function: grow} = 24
// COUNT frees: {event: call, callee: free} = 6
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
static void *grow(void *p) { return realloc(p, 24); }
int main(void)
{
    int calls = 0;
    void *p = malloc(10), *q = calloc(3, 5), *r = 0;
    p = grow(p);
    r = aligned_alloc(64, 128);
    free((malloc)((calls++, 7)));
    free(reallocarray(0, 5, 4));
    int status = posix_memalign(&p, 16, 32);
    free(calls ? malloc(8) : 0);
    free(p); free(q); free(r);
    printf("%d %d\n", calls, status);
    return 0;
}
