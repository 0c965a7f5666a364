/* Time of a pass by component. */
#include "pass_priv.h"

void kvf__pass_lap(kvf__pass *pass, kvf__part part)
{
    double now = kvf__clock();
    pass->times.seconds[pass->again.now ? KVF__PART_RECOMPUTE : part] += now - pass->times.mark;
    pass->times.mark = now;
}

size_t kvf__pass_timings(const kvf__pass *pass, kvf__timing *out, size_t max)
{
    static const char *const names[KVF__PARTS] = {
#define KVF__PART_NAME(name, text) text,
        KVF__PART_LIST(KVF__PART_NAME)
#undef KVF__PART_NAME
    };
    for (size_t i = 0; i < KVF__PARTS && i < max; i++)
        out[i] = (kvf__timing){.name = names[i], .seconds = pass->times.seconds[i]};
    return KVF__PARTS;
}
