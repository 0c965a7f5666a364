/* The fingerprint of a base, stored in run and prefix files, which are refused with another base.
 *
 * XXH3-128 over the description as text, then over every weight in order of canonical names: name,
 * type, shape, raw bytes. So the order of tensors, sharding and name prefixes do not matter, but
 * every bit does. The hash excludes copies of tied weights (they are no slots), the masked-LM head
 * (it does not affect the base) and token ids. It also excludes values derived from hashed ones,
 * such as inv_freq, whose last bits could depend on the C library. Changes of this text invalidate
 * every stored hash: add keys only for new kinds. */
#include "arch.h"
#include "hash.h"
#include "names.h"

#include <stdlib.h>
#include <string.h>

/* Words, not enum values: reordering an enum must not change a hash. */
static const char *const act_words[] = {
    [KVF__GELU_TANH] = "gelu_tanh", [KVF__GELU_ERF] = "gelu_erf",     [KVF__SILU] = "silu",
    [KVF__RELU] = "relu",           [KVF__QUICK_GELU] = "quick_gelu",
};
static const char *const rope_words[] = {
    [KVF__ROPE_DEFAULT] = "default", [KVF__ROPE_LINEAR] = "linear",
    [KVF__ROPE_LLAMA3] = "llama3",   [KVF__ROPE_YARN] = "yarn",
    [KVF__ROPE_LONG] = "longrope",   [KVF__ROPE_PROPORTIONAL] = "proportional",
};

#define SAY(...) KVF_TRY(kvf__buf_printf(ctx, text, __VA_ARGS__))

static kvf_status describe_layers(kvf_ctx *ctx, const kvf__desc *d, kvf__buf *text)
{
    for (int64_t l = 0; d->by_layer.shape && l < d->L; l++) {
        const kvf__layer_shape *s = &d->by_layer.shape[l];
        SAY("layer %lld G %lld D %lld F %lld R %lld from %lld %d\n", (long long)l, (long long)s->G,
            (long long)s->D, (long long)s->F, (long long)s->R, (long long)s->from, s->k_is_v);
    }
    if (d->mixer.kind)
        SAY("mixer %s %lld heads %lld %lld sizes %lld %lld gate %d\n",
            d->mixer.kind == KVF__MIXER_CONV ? "conv" : "delta", (long long)d->mixer.kernel,
            (long long)d->mixer.key_heads, (long long)d->mixer.value_heads,
            (long long)d->mixer.key_dim, (long long)d->mixer.value_dim, d->block.out_gate);
    if (d->by_layer.inputs) SAY("inputs %lld\n", (long long)d->by_layer.inputs);
    return d->block.v_norm ? kvf__buf_printf(ctx, text, "v_norm 1\n") : KVF_OK;
}

static kvf_status describe(kvf_ctx *ctx, const kvf__desc *d, kvf__buf *text)
{
    const kvf__rope *r = &d->position.rope;

    SAY("arch %s gguf %d L %lld H %lld G %lld D %lld C %lld F %lld V %lld X %lld\n", d->arch_name,
        d->gguf, (long long)d->L, (long long)d->H, (long long)d->G, (long long)d->D,
        (long long)d->C, (long long)d->F, (long long)d->V, (long long)d->position.max);
    SAY("norm %s eps %.9g act %s gated %d causal %d biases %d %d %d\n",
        d->block.norm == KVF__RMSNORM ? "rms" : "layer", (double)d->norm_eps,
        act_words[d->block.act], d->block.gated, d->block.causal, d->block.qkv_bias,
        d->block.out_bias, d->block.mlp_bias);
    SAY("positions %s window %lld score %.9g by_layer %d\n",
        d->position.kind == KVF__POS_ROPE       ? "rope"
        : d->position.kind == KVF__POS_RELATIVE ? "relative"
        : d->position.kind == KVF__POS_BIAS     ? "bias"
                                                : "learned",
        (long long)d->position.window, (double)d->score_scale, d->score_by_layer);
    if (d->block.post_norm || d->types || d->position.pad >= 0)
        SAY("post_norm %d types %lld position_pad %d\n", d->block.post_norm, (long long)d->types,
            (int)d->position.pad);
    if (d->position.kind == KVF__POS_RELATIVE || d->position.kind == KVF__POS_BIAS)
        SAY("relative %lld %lld %d\n", (long long)d->position.relative.span,
            (long long)d->position.relative.farthest, d->position.relative.logarithmic);
    if (d->encoder) SAY("encoder %lld head %.9g\n", (long long)d->encoder, (double)d->factors.head);
    if (d->head_bias) SAY("head_bias 1\n");
    if (d->block.qk_norm) SAY("qk_norm %d\n", d->block.qk_norm == KVF__QK_WHOLE ? 2 : 1);
    const bool bare = !kvf__weight_by_role(d, KVF__W_NORM1),
               out = kvf__desc_has(d, KVF__W_OUT_NORM1, 0);
    if (bare || out) SAY("bare %d out_norm %d\n", bare, out);
    for (int64_t l = 0; d->position.window && l < d->L; l++)
        if (!kvf__positions_window(&d->position, l)) SAY("global %lld\n", (long long)l);
    if (d->position.local_theta > 0) SAY("local_theta %.17g\n", d->position.local_theta);
    if (d->factors.embed != 1 || d->factors.score_cap > 0 || d->factors.logit_cap > 0)
        SAY("embed %.9g caps %.9g %.9g\n", (double)d->factors.embed, (double)d->factors.score_cap,
            (double)d->factors.logit_cap);
    if (d->factors.residual != 1 || (!d->encoder && d->factors.head != 1))
        SAY("residual %.9g head %.9g\n", (double)d->factors.residual, (double)d->factors.head);
    if (d->block.parallel) SAY("parallel 1\n");
    KVF_TRY(describe_layers(ctx, d, text));
    if (d->position.kind != KVF__POS_ROPE) return KVF_OK;
    for (int64_t l = 0; l < d->L; l++)
        if (kvf__layers_has(d->position.no_rope, l)) SAY("no rope %lld\n", (long long)l);
    if (d->position.rotated != d->D) SAY("rotated %lld\n", (long long)d->position.rotated);
    SAY("rope %s theta %.17g factor %.17g low %.17g high %.17g\n", rope_words[r->kind], r->theta,
        r->factor, r->low_freq_factor, r->high_freq_factor);
    SAY("original %.17g beta %.17g %.17g attention %.9g truncate %d\n", r->original, r->beta_fast,
        r->beta_slow, (double)d->position.scale, r->truncate);
    if (d->position.query_growth > 0) SAY("queries %.9g\n", (double)d->position.query_growth);
    if (r->kind == KVF__ROPE_PROPORTIONAL) SAY("partial %.17g\n", r->partial);
    for (int64_t i = 0; d->position.divisors && i < d->position.rotated / 2; i++)
        SAY("divisor %.9g\n", (double)d->position.divisors[i]);
    return KVF_OK;
}

kvf_status kvf__desc_same(kvf_ctx *ctx, const kvf__desc *a, const kvf__desc *b, bool *same)
{
    kvf__desc x = *a, y = *b; /* borrowed */
    kvf__buf text[2] = {{0}};

    x.gguf = y.gguf = false;
    kvf_status st = describe(ctx, &x, &text[0]);
    if (!st) st = describe(ctx, &y, &text[1]);
    if (!st)
        *same = text[0].n == text[1].n && !memcmp(text[0].data, text[1].data, text[0].n) &&
                a->tied == b->tied && a->ids.bos == b->ids.bos && a->ids.eos == b->ids.eos &&
                a->ids.pad == b->ids.pad && a->ids.start == b->ids.start &&
                a->ids.forced == b->ids.forced && a->ids.ends.n == b->ids.ends.n &&
                !memcmp(a->ids.ends.id, b->ids.ends.id,
                        (size_t)a->ids.ends.n * sizeof *a->ids.ends.id);
    kvf__buf_done(&text[0]);
    kvf__buf_done(&text[1]);
    return st;
}

static int by_name(const void *a, const void *b)
{
    const kvf__slot *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* Weights may exceed memory, so pages are released in pieces of this size. */
enum { PIECE = 64 << 20 };

static void add_bytes(kvf__hash *hash, const kvf__view *view, kvf__advise_fn *advise, void *user)
{
    const uint8_t *at = view->data;
    for (size_t left = kvf__view_bytes(view), n; left; left -= n, at += n) {
        n = left < PIECE ? left : PIECE;
        kvf__hash_add(hash, at, n);
        if (advise) advise(user, at, n, false);
    }
}

kvf_status kvf__slots_hash(kvf_ctx *ctx, const kvf__desc *desc, const kvf__slots *slots,
                           kvf__advise_fn *advise, void *user, char hex[33])
{
    const kvf__slot **order = NULL;
    kvf__hash *hash = NULL;
    kvf__buf text = {0};
    char shape[128];

    kvf_status st = kvf__hash_create(ctx, &hash);
    if (!st) st = kvf__alloc_array(ctx, slots->n, sizeof *order, &order);
    if (!st) st = describe(ctx, desc, &text);
    if (st) goto out;
    kvf__hash_add(hash, text.data, text.n);

    for (size_t i = 0; i < slots->n; i++)
        order[i] = &slots->items[i];
    qsort(order, slots->n, sizeof *order, by_name);
    for (size_t i = 0; i < slots->n; i++) {
        const kvf__view *view = &order[i]->view;
        if (order[i]->aside) continue;
        text.n = 0;
        st = kvf__buf_printf(ctx, &text, "%s %s %s\n", order[i]->name, kvf__dtype_name(view->dtype),
                             kvf__shape_text(shape, view->rank, view->dim));
        if (st) goto out;
        kvf__hash_add(hash, text.data, text.n);
        add_bytes(hash, view, advise, user);
    }
    kvf__hash_hex(hash, hex);
out:
    kvf__buf_done(&text);
    kvf__free(order);
    kvf__hash_free(hash);
    return st;
}
