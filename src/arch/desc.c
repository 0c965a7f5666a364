/* The description of a model: values of its row, and the checks for every config of any format.
 *
 * Bounds are those of this program's tables and plans (planes, positions as int32), well above any
 * published model of these families. A larger number means a damaged file, and refusing it here
 * prevents overflow of sizes. */
#include "arch.h"

#include <math.h>
#include <string.h>

void kvf__desc_from_arch(const kvf__arch *arch, kvf__desc *desc)
{
    desc->arch = arch;
    desc->arch_name = arch->name;
    desc->block = arch->block;
    desc->tied = arch->tied;
    desc->head_bias = arch->head_bias;
    desc->position.kind = arch->positions;
    desc->position.starts_at_0 = arch->starts_at_0;
    desc->position.first = arch->first_position;
    desc->position.scale = 1;
    desc->factors.embed = desc->factors.head = desc->factors.residual = 1;
    desc->position.pad = -1;
    desc->dropout = (kvf__dropouts){-1, -1, -1, -1, 0};
    desc->ids.bos = desc->ids.eos = desc->ids.pad = desc->ids.start = -1;
    desc->ids.forced = -1;
}

#define TAKES     NULL
#define NOT(why)  set ? why : NULL
#define ONLY(why) set ? NULL : why
#define REFUSED(type, name, ...)                                                                   \
    if (!refused) {                                                                                \
        const bool set = block->name != 0;                                                         \
        const char *const columns[] = {__VA_ARGS__};                                               \
        _Static_assert(sizeof columns == KVF__BLOCK_USERS * sizeof *columns,                       \
                       #name " of KVF__BLOCK: a column for each user");                            \
        (void)set;                                                                                 \
        refused = columns[user];                                                                   \
    }

const char *kvf__block_refused(const kvf__block *block, kvf__block_user user)
{
    const char *refused = NULL;

    KVF__BLOCK(REFUSED)
    return refused;
}

bool kvf__ends_has(const kvf__ends *ends, int32_t id)
{
    for (int i = 0; i < ends->n; i++)
        if (ends->id[i] == id) return true;
    return false;
}

void kvf__ends_add(kvf__ends *ends, int32_t id)
{
    if (id >= 0 && ends->n < KVF__MOST_ENDS && !kvf__ends_has(ends, id)) ends->id[ends->n++] = id;
}

static kvf_status copy_floats(kvf_ctx *ctx, const float *from, int64_t n, float **out)
{
    if (!from) return KVF_OK;
    KVF_TRY(kvf__alloc_array(ctx, (size_t)n, sizeof **out, out));
    memcpy(*out, from, (size_t)n * sizeof **out);
    return KVF_OK;
}

kvf_status kvf__desc_copy(kvf_ctx *ctx, const kvf__desc *from, kvf__desc *out)
{
    kvf__desc copy = *from;
    kvf__positions *to = &copy.position;
    to->divisors = to->inv_freq = to->local_inv_freq = NULL;
    copy.by_layer = (kvf__by_layer){0};
    kvf_status st = copy_floats(ctx, from->position.divisors, from->position.rotated / 2,
                                &to->divisors);
    if (!st)
        st = copy_floats(ctx, from->position.inv_freq, from->position.rotated / 2, &to->inv_freq);
    if (!st)
        st = copy_floats(ctx, from->position.local_inv_freq, from->position.local_rotated / 2,
                         &to->local_inv_freq);
    if (!st) st = kvf__by_layer_copy(ctx, from, &copy.by_layer);
    KVF__GIVE(st, out, copy, kvf__desc_done(&copy));
    return st;
}

void kvf__desc_done(kvf__desc *desc)
{
    kvf__free(desc->position.inv_freq);
    kvf__free(desc->position.divisors);
    kvf__free(desc->position.local_inv_freq);
    kvf__by_layer_done(&desc->by_layer);
    *desc = (kvf__desc){0};
}

static kvf_status check_bounds(kvf_ctx *ctx, const char *where, const kvf__desc *desc)
{
    const struct {
        const char *what;
        int64_t value, most;
    } rows[] = {
        {"width", desc->C, 1 << 18},
        {"width of the embeddings", desc->E, 1 << 18},
        {"layers", desc->L, KVF__MOST_LAYERS},
        {"attention heads", desc->H, 4096},
        {"key/value heads", desc->G, 4096},
        {"head size", desc->D, 1024},
        {"feed-forward width", desc->F, KVF__MOST_FFN},
        {"vocabulary", desc->V, 1 << 26},
        {"positions", desc->position.max, 1 << 30},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].value < 1 || rows[i].value > rows[i].most)
            return kvf__fail(ctx, KVF_EFORMAT, "%s: %s %lld, expected 1 to %lld", where,
                             rows[i].what, (long long)rows[i].value, (long long)rows[i].most);
    return KVF_OK;
}

static kvf_status check_rotated(kvf_ctx *ctx, const char *where, const kvf__desc *desc)
{
    const int64_t R = desc->position.rotated;

    if (desc->D % 2 && R == desc->D)
        return kvf__fail(ctx, KVF_EFORMAT,
                         "%s: head size %lld is odd, rotary positions need an "
                         "even one",
                         where, (long long)desc->D);
    if (R < 2 || R > desc->D || R % 2)
        return kvf__fail(ctx, KVF_EFORMAT,
                         "%s: rope rotates %lld elements of a head, expected an even number of 2 "
                         "to %lld",
                         where, (long long)R, (long long)desc->D);
    return KVF_OK;
}

kvf_status kvf__desc_check(kvf_ctx *ctx, const char *where, const kvf__desc *desc)
{
    KVF_TRY(check_bounds(ctx, where, desc));
    if (desc->H % desc->G)
        return kvf__fail(ctx, KVF_EFORMAT,
                         "%s: %lld attention heads do not divide into %lld "
                         "key/value heads",
                         where, (long long)desc->H, (long long)desc->G);
    if (desc->position.kind == KVF__POS_ROPE && !desc->arch->keys->by_layer)
        KVF_TRY(check_rotated(ctx, where, desc));
    if (!(desc->norm_eps > 0) || !isfinite(desc->norm_eps))
        return kvf__fail(ctx, KVF_EFORMAT,
                         "%s: the norms' epsilon is %g, expected a small "
                         "positive number",
                         where, (double)desc->norm_eps);
    if (desc->position.kind != KVF__POS_ROPE) return KVF_OK;

    const kvf__rope *rope = &desc->position.rope;
    bool scaled = rope->kind != KVF__ROPE_DEFAULT;
    if (!(rope->theta > 1) || !(rope->theta < 1e30))
        return kvf__fail(ctx, KVF_EFORMAT, "%s: rope theta is %g, expected more than 1", where,
                         rope->theta);
    if (scaled && (!(rope->factor > 0) || !(rope->factor < 1e6)))
        return kvf__fail(ctx, KVF_EFORMAT, "%s: rope factor is %g, expected a positive number",
                         where, rope->factor);
    return KVF_OK;
}
