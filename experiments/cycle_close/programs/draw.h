/* Numbers that look random, and are the same in each run. */
#include <stdint.h>

static uint64_t state = 88172645463325252ull;

static uint32_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32);
}
