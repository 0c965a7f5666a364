/* Folding virtual tokens at the input. If they lead every row of a causal base, nothing before them
 * affects them. The base is run on them once, and its keys and values become the prefix that
 * replaces them. Otherwise they stay vectors, in an embeddings file.
 *
 * The final hidden state of a row after the prefix is then compared with that of the same row after
 * the vectors. The fold is exact except for rounding in f32. */
#include "merge_int.h"

#include "arch.h"
#include "row_template.h"

#include <math.h>
#include <string.h>

enum { PROBE_TOKENS = 8 };
static const double MOST_DIFF = 1e-4; /* largest relative difference of hidden states in f32 */

/* ---- capture --------------------------------------------------------------------------------- */

/* Runs one row of input ids [n] on the base, after the prefix if there is one. Writes the final
 * state of the last token to hidden [C], and keys and values of all tokens to `kv` unless it is
 * NULL. */
static kvf_status run_row(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *live, const int32_t *ids,
                          int64_t n, bool folded, float *hidden, kvf__prefix *kv)
{
    int64_t start[2] = {0, n}, example = 0, C = kvf__model_desc(base->model)->C;
    const int32_t last = (int32_t)(n - 1), label = 0;
    const kvf__pass_limits limits = {.rows = 1,
                                     .tokens = n,
                                     .row_len = n,
                                     .labels = 1,
                                     .P = live->file.prefix.P,
                                     .cache_len = n};
    const kvf__batch batch = {.n_rows = 1,
                              .n_tokens = n,
                              .n_labels = 1,
                              .start = start,
                              .ids = ids,
                              .label_at = &last,
                              .label_id = &label,
                              .example = &example};
    kvf__cache *cache = NULL;
    kvf__pass *pass = NULL;
    const float *state = NULL, *mixed = NULL;
    int64_t states = 0;

    kvf_status st = kvf__cache_create(ctx, base->model, 1, n, &cache);
    if (!st) st = kvf__pass_create(ctx, base->model, &limits, &pass);
    const kvf__input input = {.batch = &batch,
                              .condition.prefix = folded ? &live->file.prefix : NULL,
                              .condition.vectors = &live->file.vectors,
                              .condition.position_start = folded ? live->file.prefix.P : 0,
                              .cache = cache};
    if (!st) st = kvf__pass_fwd(ctx, pass, &input);
    if (!st) st = kvf__pass_hidden(ctx, pass, &state);
    if (!st && hidden) memcpy(hidden, state, (size_t)C * sizeof *hidden);
    if (!st && kv) kvf__cache_read(cache, 0, 0, n, kv->kv);
    if (!st && kv) mixed = kvf__cache_states(cache, 0, &states);
    if (!st && kv) st = kvf__prefix_set_state(ctx, kv, mixed, states);
    kvf__pass_free(pass);
    kvf__cache_free(cache);
    return st;
}

static double relative_diff(const float *a, const float *b, int64_t n)
{
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        diff += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)b[i] * (double)b[i];
    }
    return sqrt(diff / (norm > 0 ? norm : 1));
}

/* Compares some ids after the virtual tokens with the same ids after the prefix. */
static kvf_status check_fold(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *live,
                             const int32_t *ids, float *states, double *diff)
{
    const int64_t P = live->file.vectors.P, C = kvf__model_desc(base->model)->C;

    KVF_TRY(run_row(ctx, base, live, ids, P + PROBE_TOKENS, false, states, NULL));
    KVF_TRY(run_row(ctx, base, live, ids + P, PROBE_TOKENS, true, states + C, NULL));
    *diff = relative_diff(states + C, states, C);
    if (*diff <= MOST_DIFF) return KVF_OK;
    return kvf__fail(
        ctx, KVF_EINTERNAL,
        "states after the prefix differ by %g from those after the virtual tokens, want at most %g",
        *diff, MOST_DIFF);
}

static kvf_status capture(kvf_ctx *ctx, kvf_base *base, kvf_prefix *live, double *diff)
{
    const kvf__desc *d = kvf__model_desc(base->model);
    const int64_t P = live->file.vectors.P;
    int32_t *ids = NULL;
    float *states = NULL;
    const kvf__kv_shape kv = kvf__desc_kv(d);

    KVF_TRY(kvf__alloc_array(ctx, (size_t)(P + PROBE_TOKENS), sizeof *ids, &ids));
    for (int64_t i = 0; i < P + PROBE_TOKENS; i++)
        ids[i] = i < P ? kvf__virtual_id(i) : (int32_t)((7919 * (i - P + 1)) % d->V);
    kvf_status st = kvf__alloc_array(ctx, (size_t)(2 * d->C), sizeof *states, &states);
    if (!st) st = kvf__prefix_create(ctx, &live->file.prefix, &kv, P);
    if (!st) st = run_row(ctx, base, live, ids, P, false, NULL, &live->file.prefix);
    if (!st) st = check_fold(ctx, base, live, ids, states, diff);
    kvf__free(ids);
    kvf__free(states);
    return st;
}

/* Turns `live` from virtual tokens into a prefix. */
static void become_prefix(kvf_prefix *live)
{
    kvf__vectors_done(&live->file.vectors);
    kvf__free(live->file.pattern);
    live->file.pattern = NULL;
    live->file.id.position_start = live->file.prefix.P;
}

kvf_status kvf__capture(kvf_ctx *ctx, const kvf_merge_options *options, kvf_prefix *live,
                        double *diff)
{
    kvf_base *base = NULL;

    if (!options->base)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "%s: virtual tokens at the input are folded by running the base on them: "
                         "name it with --base",
                         options->run);
    KVF_TRY(kvf__base_open_exact(ctx, options->base, options->lora, &base));
    kvf_status st = kvf_prefix_check(ctx, live, base, options->allow_other_base);
    if (!st) st = capture(ctx, base, live, diff);
    if (!st) become_prefix(live);
    kvf_base_free(base);
    return st;
}

kvf_status kvf__captures(kvf_ctx *ctx, const kvf_prefix *live, bool *out)
{
    const kvf__arch *arch = kvf__arch_by_model_type(live->file.id.base_architecture);
    kvf__row_template pattern;

    KVF_TRY(kvf__row_template_init(ctx, live->file.pattern, live->file.vectors.P, &pattern));
    *out = arch && arch->block.causal && kvf__row_template_plain(&pattern);
    kvf__row_template_done(&pattern);
    return KVF_OK;
}

/* ---- the embeddings file --------------------------------------------------------------------- */

static kvf_status check_options(kvf_ctx *ctx, const kvf_merge_options *options)
{
    if (options->probe)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "--probe is not needed for virtual tokens, which are stored unchanged");
    if (options->dtype != KVF_DTYPE_F32)
        return kvf__fail(ctx, KVF_EUSAGE, "--dtype %s: virtual tokens are stored in f32",
                         kvf_dtype_name(options->dtype));
    return KVF_OK;
}

kvf_status kvf__fold_embeddings(kvf_ctx *ctx, const kvf_merge_options *options,
                                const kvf_prefix *live, kvf_merge_result *result)
{
    const kvf__artifact file = kvf__prefix_view(live, KVF__KIND_EMBEDDINGS);

    KVF_TRY(check_options(ctx, options));
    KVF_TRY(kvf__artifact_write(ctx, options->out, options->force, &file));
    KVF_TRY(kvf__verify_embeddings(ctx, options->out, live));
    result->shape[0] = live->file.vectors.P;
    result->shape[1] = live->file.vectors.C;
    result->rank = 2;
    result->bytes = kvf__file_bytes(options->out);
    return KVF_OK;
}
