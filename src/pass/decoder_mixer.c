/* Layers without attention in a step of generation: threads take units (pass_mixer.h) of all rows,
 * whose states are in their cache slots. */
#include "decoder_priv.h"
#include "names.h"
#include "team.h"

/* Returns the states before row m, of all layers; NULL: zeros. */
static const float *states_before(const kvf__worker *w, int64_t m)
{
    const kvf__prefix *prefix = kvf__step_row_at(w->step, m).condition.prefix;

    if (kvf__step_length(w->decoder, w->step, m))
        return kvf__cache_state(w->decoder->cache, kvf__row_slot(w->step->slot, m));
    return prefix ? prefix->state : NULL;
}

void kvf__decoder_mix(const kvf__worker *w, int64_t l)
{
    const kvf__decoder *decoder = w->decoder;
    const kvf__desc *d = &decoder->model->desc;
    const int64_t J = kvf__shape_size(d, l, "J"), A = kvf__shape_size(d, l, "A"),
                  at = kvf__mixer_state_at(d, l);
    kvf__mixer_row row = {.model = decoder->model,
                          .layer = l,
                          .n = 1,
                          .act = KVF__F32,
                          .state = w->own->state,
                          .scratch = w->own->mixer};
    int64_t end;

    kvf__team_part(kvf__mixer_units(d), 1, w->t, w->n, &row.unit, &end);
    for (; row.unit < end; row.unit++)
        for (int64_t m = 0; m < w->step->n; m++) {
            const float *before = states_before(w, m);
            row.in = decoder->qkv + m * J;
            row.out = decoder->att + m * A;
            kvf__mixer_take(d, row.unit, before ? before + at : NULL, row.state);
            kvf__mixer_row_fwd(&row);
            kvf__mixer_put(d, row.unit, row.state,
                           kvf__cache_state(decoder->cache, kvf__row_slot(w->step->slot, m)) + at);
        }
}
