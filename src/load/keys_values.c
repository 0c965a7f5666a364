/* Keys and values that the bare base computes for real tokens: a prefix that says what having read
 * them says. */
#include "load_int.h"

kvf_status kvf__base_keys_values(kvf_ctx *ctx, kvf_base *base, const int32_t *ids, kvf__prefix *out)
{
    int64_t P = out->P, start[2] = {0, P}, example = 0;
    kvf__pass_limits limits = {.rows = 1, .tokens = P, .row_len = P, .labels = 1, .cache_len = P};
    kvf__batch batch = {
        .n_rows = 1, .n_tokens = P, .start = start, .ids = ids, .example = &example};
    kvf__cache *cache = NULL;
    kvf__pass *pass = NULL;
    kvf_status st;

    st = kvf__cache_create(ctx, base->model, 1, P, &cache);
    if (st) goto out;
    st = kvf__pass_create(ctx, base->model, &limits, &pass);
    if (st) goto out;
    kvf__input input = {.batch = &batch, .cache = cache};
    st = kvf__pass_fwd(ctx, pass, &input);
    if (st) goto out;
    kvf__cache_read(cache, 0, P, out->kv);
out:
    kvf__pass_free(pass);
    kvf__cache_free(cache);
    return st;
}
