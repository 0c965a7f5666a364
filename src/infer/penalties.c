/* Logit biases and penalties. Sums are f32, as in PyTorch. The repetition penalty applies once to a
 * token that occurs several times. */
#include "penalties.h"
#include "base_int.h"

#include <math.h>
#include <string.h>

bool kvf__penalties_any(const kvf__penalties *p)
{
    return p->n_bias || (p->repetition > 0 && p->repetition != 1) || p->frequency != 0 ||
           p->presence != 0;
}

kvf_status kvf__penalties_check(kvf_ctx *ctx, const kvf__penalties *p, int64_t V)
{
    for (size_t i = 0; i < p->n_bias; i++) {
        const long id = p->bias[i].id;
        if (id < 0 || id >= V)
            return kvf__fail(ctx, KVF_EDATA, "logit_bias: id %ld is outside the vocabulary of %lld",
                             id, (long long)V);
        if (!isfinite(p->bias[i].bias))
            return kvf__fail(ctx, KVF_EUSAGE, "logit_bias: %g for id %ld is not a finite number",
                             (double)p->bias[i].bias, id);
    }
    return KVF_OK;
}

static void penalize_repetition(float penalty, const int32_t *ids, int64_t n, int32_t *counts,
                                float *out)
{
    for (int64_t i = 0; i < n; i++) {
        const int32_t id = ids[i];
        if (id < 0 || counts[id]++) continue;
        out[id] = out[id] < 0 ? out[id] * penalty : out[id] / penalty;
    }
}

static void clear(const int32_t *ids, int64_t n, int32_t *counts)
{
    for (int64_t i = 0; i < n; i++)
        if (ids[i] >= 0) counts[ids[i]] = 0;
}

/* Applies the penalties that depend on the number of occurrences. */
static void penalize_counts(const kvf__penalties *p, const int32_t *ids, int64_t n, int32_t *counts,
                            float *out)
{
    for (int64_t i = 0; i < n; i++)
        counts[ids[i]]++;
    for (int64_t i = 0; i < n; i++) {
        const int32_t id = ids[i];
        if (!counts[id]) continue;
        out[id] -= (float)counts[id] * (float)p->frequency + (float)p->presence;
        counts[id] = 0;
    }
}

void kvf__penalize(const kvf__penalties *p, const kvf__said *said, const float *logits, int64_t V,
                   int32_t *counts, float *out)
{
    memcpy(out, logits, (size_t)V * sizeof *out);
    for (size_t i = 0; i < p->n_bias; i++)
        out[p->bias[i].id] += p->bias[i].bias;
    if (p->repetition > 0 && p->repetition != 1) {
        const float penalty = (float)p->repetition;
        penalize_repetition(penalty, said->prompt, said->n_prompt, counts, out);
        penalize_repetition(penalty, said->out, said->n_out, counts, out);
        clear(said->prompt, said->n_prompt, counts);
        clear(said->out, said->n_out, counts);
    }
    if (p->frequency != 0 || p->presence != 0)
        penalize_counts(p, said->out, said->n_out, counts, out);
}
