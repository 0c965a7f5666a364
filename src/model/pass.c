/* Making a pass, for batches up to its limits: its memory (pass_arena.c), the plan of its
 * attention, the tables of rope; and the times of its components. */
#include "pass_priv.h"

int64_t kvf__pass_padded(const kvf__model *model, int64_t n)
{
    int64_t step = n <= 8 ? 1 : n <= 64 ? 8 : model->row_step;
    return (n + step - 1) / step * step;
}

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

/* ---- create ---------------------------------------------------------------------------------- */

static kvf_status check_limits(kvf_ctx *ctx, const kvf__model *model,
                               const kvf__pass_limits *limits)
{
    const struct {
        const char *name;
        int64_t value, least;
    } items[] = {{"rows", limits->rows, 1},
                 {"tokens", limits->tokens, 1},
                 {"row_len", limits->row_len, 1},
                 {"labels", limits->labels, 0},
                 {"P", limits->P, 0},
                 {"cache_len", limits->cache_len, 0},
                 {"soft", limits->soft, 0},
                 {"lead_len", limits->common_len, 0},
                 {"lead_tokens", limits->common_tokens, 0},
                 {"sections", limits->sections, 0}};

    for (size_t i = 0; i < sizeof items / sizeof items[0]; i++)
        if (items[i].value < items[i].least || items[i].value > INT32_MAX)
            return kvf__fail(ctx, KVF_ESHAPE, "pass: limit %s is %lld, expected %lld to %ld",
                             items[i].name, (long long)items[i].value, (long long)items[i].least,
                             (long)INT32_MAX);
    if (limits->backward && !model->backward)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "pass: the model was packed without its backward weights");
    return KVF_OK;
}

static kvf_status plan_create(kvf_ctx *ctx, kvf__pass *pass)
{
    const kvf__desc *d = &pass->model->desc;
    const kvf__pass_limits *limits = &pass->limits;
    int64_t prefixes = limits->sections > 1 ? limits->sections : 1;
    if (limits->row_dropout || limits->infix) prefixes = limits->rows;
    const kvf__attn_limits attn = {
        .rows = limits->rows,
        .tokens = kvf__pass_padded(pass->model, limits->tokens),
        .row_len = limits->row_len,
        .shared_len = limits->P + limits->cache_len + limits->common_len,
        .grad_len = limits->backward ? prefixes * limits->P + limits->common_tokens : 0,
        .H = d->H,
        .G = d->G,
        .D = d->D,
        .backward = limits->backward,
        .dropout = limits->base_dropout && d->attention_dropout > 0};
    return kvf__attn_plan_create(ctx, &attn, &pass->keys.plan);
}

/* Enough rope rows for a batch at the limits that starts behind its prefix; fwd extends them for
 * larger offsets. */
static kvf_status rope_create(kvf_ctx *ctx, kvf__pass *pass)
{
    const kvf__desc *d = &pass->model->desc;
    int64_t rows = pass->limits.P + pass->limits.cache_len + pass->limits.common_len +
                   pass->limits.row_len;

    if (d->positions != KVF__POS_ROPE) return KVF_OK;
    return kvf__rope_tables(ctx, pass->model, rows < d->max_positions ? rows : d->max_positions);
}

kvf_status kvf__pass_create(kvf_ctx *ctx, kvf__model *model, const kvf__pass_limits *limits,
                            kvf__pass **out)
{
    kvf__pass *pass = NULL;
    kvf_status st;

    st = check_limits(ctx, model, limits);
    if (st) goto out;
    st = kvf__alloc(ctx, sizeof *pass, &pass);
    if (st) goto out;
    pass->model = model;
    pass->limits = *limits;
    pass->threads = kvf_ctx_threads(ctx);
    st = kvf__pass_alloc(ctx, pass);
    if (st) goto out;
    st = plan_create(ctx, pass);
    if (st) goto out;
    st = rope_create(ctx, pass);
    if (st) goto out;

    *out = pass;
    pass = NULL;
out:
    kvf__pass_free(pass);
    return st;
}

void kvf__pass_free(kvf__pass *pass)
{
    if (!pass) return;
    kvf__attn_plan_free(pass->keys.plan);
    kvf__arena_done(&pass->arena);
    kvf__free(pass);
}
