/* The forward pass: embedding, L blocks, final norm of the labelled rows.
 *
 *   x += out(attention(rope(qkv(norm(x))), [prefix | cache | own]))
 *   x += down(act(up(norm(x))))        planes of the feed-forward width one after the other
 *
 * or with the norms elsewhere (pass_norms.c), or with both halves on the input x of the block.
 *
 * After the last layer's attention only labelled rows are needed, so they are gathered there and
 * the rest of the model runs on them alone. Without labels the pass ends at the last layer's keys.
 *
 * The function of a layer also recomputes it for its backward pass, from a copy of its input, since
 * its products add to the residual stream in place. */
#include "attention.h"
#include "pass_norms.h"
#include "pass_priv.h"
#include "products.h"

#include <string.h>

/* ---- the batch ------------------------------------------------------------------------------- */

static kvf_status check_limits(kvf_ctx *ctx, const kvf__pass *pass, const kvf__input *input)
{
    const kvf__batch *b = input->batch;
    const struct {
        const char *name;
        int64_t value, most;
    } items[] = {{"rows", b->n_rows, pass->limits.rows},
                 {"tokens", b->n_tokens, pass->limits.tokens},
                 {"labels", b->n_labels, pass->limits.labels}};

    for (size_t i = 0; i < sizeof items / sizeof items[0]; i++)
        if (items[i].value < 0 || items[i].value > items[i].most)
            return kvf__fail(ctx, KVF_ESHAPE, "batch: %lld %s, the pass was made for at most %lld",
                             (long long)items[i].value, items[i].name, (long long)items[i].most);
    if (b->n_rows < 1) return kvf__fail(ctx, KVF_ESHAPE, "batch: no rows");
    return KVF_OK;
}

static kvf_status check_rows(kvf_ctx *ctx, const kvf__pass *pass, const kvf__batch *b)
{
    for (int64_t r = 0; r < b->n_rows; r++) {
        int64_t len = b->start[r + 1] - b->start[r];
        if (len < 1 || len > pass->limits.row_len)
            return kvf__fail(ctx, KVF_ESHAPE,
                             "batch row %lld: %lld tokens, the pass was made for 1 to %lld",
                             (long long)r, (long long)len, (long long)pass->limits.row_len);
    }
    if (b->start[0] != 0 || b->start[b->n_rows] != b->n_tokens)
        return kvf__fail(
            ctx, KVF_ESHAPE, "batch: rows span tokens %lld to %lld, expected 0 to %lld",
            (long long)b->start[0], (long long)b->start[b->n_rows], (long long)b->n_tokens);
    for (int64_t j = 0; j < b->n_labels; j++) {
        int64_t least = j ? b->label_at[j - 1] + 1 : 0;
        if (b->label_at[j] < least || b->label_at[j] >= b->n_tokens)
            return kvf__fail(
                ctx, KVF_ESHAPE, "batch: label %lld is at token %ld, expected %lld to %lld",
                (long long)j, (long)b->label_at[j], (long long)least, (long long)b->n_tokens - 1);
    }
    return KVF_OK;
}

static kvf_status check_cache(kvf_ctx *ctx, const kvf__pass *pass, const kvf__input *input)
{
    const kvf__cache *cache = input->cache;
    const kvf__batch *b = input->batch;

    for (int64_t r = 0; cache && r < b->n_rows; r++) {
        int64_t slot = kvf__row_slot(input->slot, r), len = b->start[r + 1] - b->start[r];
        if (slot < 0 || slot >= cache->slots)
            return kvf__fail(ctx, KVF_ESHAPE, "batch row %lld: cache slot %lld, the cache has %lld",
                             (long long)r, (long long)slot, (long long)cache->slots);
        for (int64_t other = 0; other < r; other++)
            if (kvf__row_slot(input->slot, other) == slot)
                return kvf__fail(ctx, KVF_ESHAPE,
                                 "batch rows %lld and %lld: both use cache slot %lld",
                                 (long long)other, (long long)r, (long long)slot);
        if (cache->length[slot] && !pass->model->desc.block.causal)
            return kvf__fail(
                ctx, KVF_EUSAGE,
                "batch row %lld: continuing from a cache needs a causal base, %s is not one",
                (long long)r, pass->model->desc.arch_name);
        if (cache->length[slot] > pass->limits.cache_len)
            return kvf__fail(
                ctx, KVF_ESHAPE,
                "batch row %lld: %lld cached tokens, the pass was made for at most %lld",
                (long long)r, (long long)cache->length[slot], (long long)pass->limits.cache_len);
        if (cache->length[slot] + len > cache->reserved[slot])
            return kvf__fail(
                ctx, KVF_ESHAPE,
                "batch row %lld: %lld cached and %lld new tokens, the cache holds %lld",
                (long long)r, (long long)cache->length[slot], (long long)len,
                (long long)cache->reserved[slot]);
    }
    return KVF_OK;
}

static kvf_status set_input(kvf_ctx *ctx, kvf__pass *pass, const kvf__input *input)
{
    KVF_TRY(check_limits(ctx, pass, input));
    KVF_TRY(check_rows(ctx, pass, input->batch));
    KVF_TRY(kvf__pass_set_sections(ctx, pass, input));
    KVF_TRY(check_cache(ctx, pass, input));
    KVF_TRY(kvf__pass_check_common_rows(ctx, pass, input));
    KVF_TRY(kvf__embed_check(ctx, pass, input));
    KVF_TRY(kvf__pass_check_source(ctx, pass, input));

    pass->batch = pass->source.target = input->batch;
    pass->cache = input->cache;
    pass->slot = input->slot;
    pass->keys.share = input->share;
    pass->keys.queries = input->queries;
    pass->entry = input->entry;
    pass->M = kvf__padded_rows(pass->model, input->batch->n_tokens);
    pass->ML = kvf__padded_rows(pass->model, input->batch->n_labels);
    pass->keys.dealt = false;
    KVF_TRY(kvf__pass_set_infix(ctx, pass, input));
    KVF_TRY(kvf__pass_set_base_dropout(ctx, pass, input));
    return kvf__pass_set_row_dropout(ctx, pass, input);
}

enum { MOST_D = 1024 }; /* see desc.c */

void kvf__pass_scale_queries(const kvf__pass *pass, int64_t l, void *qkv)
{
    const kvf__desc *d = &pass->model->desc;
    const int64_t D = kvf__desc_layer(d, l).D, width = kvf__qkv_width(d, l);
    const kvf__dtype act = pass->model->act;
    float head[MOST_D];

    for (int64_t i = 0; d->position.query_growth > 0 && i < pass->batch->n_tokens; i++) {
        const float by = kvf__query_scale(&d->position, pass->fwd.position[i]);
        for (int64_t h = 0; by != 1 && h < d->H; h++) {
            void *at = kvf__act_row(act, kvf__act_row(act, qkv, i, width), h, D);
            kvf__to_f32(act, at, head, D);
            for (int64_t c = 0; c < D; c++)
                head[c] *= by;
            kvf__from_f32(act, head, at, D);
        }
    }
}

/* ---- a block --------------------------------------------------------------------------------- */

static kvf_status qkv_fwd(kvf_ctx *ctx, kvf__pass *pass, int64_t l)
{
    const kvf__model *m = pass->model;
    const kvf__desc *d = &m->desc;
    const kvf__layer_shape layer = kvf__desc_layer(d, l);
    const bool own = layer.from == l;
    kvf__kept *keep = &pass->kept[l];

    pass->fwd.qkv_src = kvf__pass_before(pass, l, KVF__HALF_ATTN, pass->fwd.x);
    KVF_TRY(kvf__mm_run(ctx, m->mm, m->layers[l].w->qkv.fwd, pass->M, pass->fwd.qkv_src, keep->qkv,
                        m->act, 0));
    kvf__pass_lap(pass, KVF__PART_QKV);
    if (kvf__layer_mixes(d, l)) return KVF_OK;
    kvf__pass_head_norms_fwd(pass, l);
    if (kvf__layer_place(d, l) == KVF__PLACE_CROSS) return kvf__pass_source_kv(ctx, pass, l);
    if (d->position.kind == KVF__POS_ROPE)
        m->kernels->rope(m->act, keep->qkv, pass->batch->n_tokens, kvf__qkv_width(d, l),
                         d->H + (own ? layer.G : 0), layer.D, layer.R, pass->fwd.position,
                         kvf__rope_of(m, l)->cos, kvf__rope_of(m, l)->sin, false);
    kvf__pass_scale_queries(pass, l, keep->qkv);
    kvf__pass_shared_fwd(pass, l);
    if (pass->cache && own)
        kvf__cache_append(pass->cache, l, pass->batch, pass->slot, keep->qkv, d->H);
    kvf__pass_lap(pass, KVF__PART_ROPE);
    return KVF_OK;
}

static void attend(kvf__pass *pass, int64_t l)
{
    const kvf__model *m = pass->model;

    kvf__pass_segments(pass, l, false, false);
    kvf__attn attn = kvf__pass_attn(pass, l);
    attn.drop = kvf__pass_attn_drop(pass, l);
    if (attn.drop)
        kvf__attn_plain_fwd(&attn);
    else
        m->kernels->attn_fwd(&attn);
    /* attention does not write padding rows, but the next product reads them */
    kvf__pass_clear_padding(pass, attn.out, m->desc.H * kvf__desc_layer(&m->desc, l).D);
    kvf__pass_lap(pass, KVF__PART_ATTN);
}

/* Runs the attention of layer l with another prefix. */
static void attend_instead(kvf__pass *pass, int64_t l, const kvf__prefix *prefix)
{
    kvf__pass_section *all = &pass->sections.at[0];
    const kvf__prefix *own = all->condition.prefix;

    all->condition.prefix = prefix;
    pass->keys.dealt = false;
    attend(pass, l);
    all->condition.prefix = own;
    pass->keys.dealt = false;
}

/* Adds one plane's output for src, which no product here writes to, to x. */
static kvf_status ffn_plane_fwd(kvf_ctx *ctx, kvf__pass *pass, int64_t l, int64_t p,
                                const void *src, float *x, int64_t M)
{
    const kvf__model *m = pass->model;
    const kvf__layer_weights *w = m->layers[l].w;
    kvf__kept *keep = &pass->kept[l];
    const kvf__plane plane = kvf__ffn_plane(kvf__desc_layer(&m->desc, l).F, p);
    int64_t at = pass->limits.backward ? plane.start : 0, n = M * plane.width;
    void *h1 = kvf__act_row(m->act, keep->fac1, at, M); /* planes [M, width] back to back */
    void *h2 = m->desc.block.gated ? kvf__act_row(m->act, keep->fac2, at, M) : NULL;

    KVF_TRY(kvf__mm_run(ctx, m->mm, (h2 ? w->gate : w->up)[p].fwd, M, src, h1, m->act, 0));
    if (h2) KVF_TRY(kvf__mm_run(ctx, m->mm, w->up[p].fwd, M, src, h2, m->act, 0));
    kvf__pass_lap(pass, KVF__PART_FFN);
    void *g = keep->g ? kvf__act_row(m->act, keep->g, at, M) : pass->fwd.g;
    kvf__model_activate(m, m->act, h1, h2, g, n);
    kvf__pass_lap(pass, KVF__PART_ACT);
    if (pass->again.now && !m->desc.block.post_norm && !m->layers[l].out_gamma[1] &&
        !kvf__pass_adapts(pass, KVF__HALF_FFN))
        return KVF_OK; /* nothing after this is kept */
    KVF_TRY(kvf__pass_out(ctx, pass, l, KVF__HALF_FFN, w->down[p].fwd, g, x, M, p == 0));
    kvf__pass_lap(pass, KVF__PART_FFN);
    return KVF_OK;
}

/* Runs the rest of a layer after its attention, on M rows of the residual stream x and of the
 * output att. */
static kvf_status block_fwd(kvf_ctx *ctx, kvf__pass *pass, int64_t l, float *x, const void *att,
                            int64_t M)
{
    const kvf__model *m = pass->model;
    const bool parallel = m->desc.block.parallel;
    const void *src = parallel ? kvf__pass_before(pass, l, KVF__HALF_FFN, x) : NULL;

    KVF_TRY(kvf__pass_out(ctx, pass, l, KVF__HALF_ATTN, m->layers[l].w->out.fwd, att, x, M, true));
    kvf__pass_lap(pass, KVF__PART_OUT);
    kvf__pass_out_norm_fwd(pass, l, KVF__HALF_ATTN, x, M);
    kvf__pass_drop_fwd(pass, l, KVF__HALF_ATTN, x);
    KVF_TRY(kvf__pass_adapt_fwd(ctx, pass, l, KVF__HALF_ATTN, x, pass->fwd.qkv_src, M));
    if (!kvf__layer_feeds(&m->desc, l)) {
        kvf__pass_end_norm(pass, l, x);
        return KVF_OK;
    }
    if (!parallel) src = kvf__pass_before(pass, l, KVF__HALF_FFN, x);
    for (int64_t p = 0; p < kvf__ffn_planes(kvf__desc_layer(&m->desc, l).F); p++)
        KVF_TRY(ffn_plane_fwd(ctx, pass, l, p, src, x, M));
    KVF_TRY(kvf__pass_neurons_fwd(ctx, pass, l, src, x));
    kvf__pass_out_norm_fwd(pass, l, KVF__HALF_FFN, x, M);
    kvf__pass_drop_fwd(pass, l, KVF__HALF_FFN, x);
    KVF_TRY(kvf__pass_adapt_fwd(ctx, pass, l, KVF__HALF_FFN, x, src, M));
    kvf__pass_end_norm(pass, l, x);
    return kvf__pass_input_fwd(ctx, pass, l, x, M);
}

/* Gathers rows label_at[j] of the residual stream and of the last attention; padding rows are
 * zero. */
static void gather_labelled(kvf__pass *pass, const void *att)
{
    const kvf__model *m = pass->model;
    const kvf__batch *b = pass->batch;
    const int64_t C = m->desc.C, width = kvf__shape_size(&m->desc, m->desc.L - 1, "A"),
                  rest = pass->ML - b->n_labels;
    size_t size = kvf__act_size(m->act);

    for (int64_t j = 0; j < b->n_labels; j++) {
        memcpy(pass->fwd.x_lab + j * C, pass->fwd.x + b->label_at[j] * C,
               (size_t)C * sizeof(float));
        memcpy(kvf__act_row(m->act, pass->fwd.att_lab, j, width),
               kvf__act_row(m->act, (void *)(uintptr_t)att, b->label_at[j], width),
               (size_t)width * size);
    }
    memset(pass->fwd.x_lab + b->n_labels * C, 0, (size_t)(rest * C) * sizeof(float));
    memset(kvf__act_row(m->act, pass->fwd.att_lab, b->n_labels, width), 0,
           (size_t)(rest * width) * size);
    kvf__pass_lap(pass, KVF__PART_OTHER);
}

kvf_status kvf__pass_ensure_packed(kvf_ctx *ctx, kvf__pass *pass, int64_t l, unsigned directions)
{
    if (!pass->model->store.late) return KVF_OK;
    KVF_TRY(kvf__model_ensure_packed(ctx, pass->model, l, directions));
    kvf__pass_lap(pass, KVF__PART_PACK);
    return KVF_OK;
}

/* Runs attention, and passes on its shares and queries if they are wanted. */
static kvf_status attend_and_tell(kvf_ctx *ctx, kvf__pass *pass, int64_t l)
{
    const kvf__queries *queries = pass->keys.queries;

    attend(pass, l);
    if (pass->again.now) return KVF_OK;
    if (pass->keys.share && l >= pass->model->desc.encoder)
        KVF_TRY(kvf__pass_add_share(ctx, pass, l));
    if (!queries) return KVF_OK;
    KVF_TRY(kvf__pass_ask(ctx, pass, l));
    if (queries->instead) attend_instead(pass, l, queries->instead);
    return KVF_OK;
}

/* Runs layer l on the residual stream pass->fwd.x. */
static kvf_status layer_fwd(kvf_ctx *ctx, kvf__pass *pass, int64_t l)
{
    const bool last = l == pass->model->desc.L - 1, mixes = kvf__layer_mixes(&pass->model->desc, l);

    KVF_TRY(kvf__pass_ensure_packed(ctx, pass, l, KVF__PACK_FORWARD));
    KVF_TRY(qkv_fwd(ctx, pass, l));
    if (last && !pass->batch->n_labels && !mixes) return KVF_OK;
    if (mixes)
        kvf__pass_mixer_fwd(pass, l);
    else
        KVF_TRY(attend_and_tell(ctx, pass, l));
    if (last && !pass->batch->n_labels) return KVF_OK;
    const void *att = kvf__pass_gate_fwd(pass, l);
    if (!last) return block_fwd(ctx, pass, l, pass->fwd.x, att, pass->M);
    gather_labelled(pass, att);
    return block_fwd(ctx, pass, l, pass->fwd.x_lab, pass->fwd.att_lab, pass->ML);
}

static void final_norm_fwd(kvf__pass *pass)
{
    const kvf__model *m = pass->model;
    const kvf__norm_at final = kvf__pass_final_norm(pass);

    if (!pass->batch->n_labels) return;
    if (!m->desc.block.post_norm)
        kvf__pass_pre_norm_fwd(pass, &final, pass->fwd.x_lab);
    else if (m->lm.n)
        memcpy(pass->head.in, pass->fwd.x_act,
               (size_t)(pass->ML * m->desc.C) * kvf__act_size(m->act));
}

/* ---- recomputation --------------------------------------------------------------------------- */

/* Saves the residual stream at the input of layer l, or restores it. */
static void copy_entered(kvf__pass *pass, int64_t l, bool back)
{
    const int64_t C = pass->model->desc.C, n = pass->M * C;
    float *at = pass->again.entered + l * pass->again.rows * C;

    memcpy(back ? pass->fwd.x : at, back ? at : pass->fwd.x, (size_t)n * sizeof(float));
    if (back && pass->fwd.x_act)
        pass->model->kernels->from_f32(pass->model->act, pass->fwd.x_act, pass->fwd.x, n);
    kvf__pass_lap(pass, KVF__PART_RECOMPUTE);
}

kvf_status kvf__pass_recompute(kvf_ctx *ctx, kvf__pass *pass, int64_t l)
{
    if (!pass->again.entered || pass->again.computed == l) return KVF_OK;
    KVF_TRY(kvf__pass_ensure_packed(ctx, pass, l, KVF__PACK_FORWARD | KVF__PACK_BACKWARD));
    copy_entered(pass, l, true);
    pass->again.now = true;
    kvf_status st = layer_fwd(ctx, pass, l);
    pass->again.now = false;
    pass->again.computed = st ? -1 : l;
    return st;
}

/* ---- the pass -------------------------------------------------------------------------------- */

/* Stores or loads the residual stream at the first computed layer. */
static void take_entry(kvf__pass *pass)
{
    const kvf__model *m = pass->model;
    int64_t C = m->desc.C, n = pass->batch->n_tokens * C;

    memcpy(pass->fwd.x, pass->entry.x, (size_t)n * sizeof(float));
    memset(pass->fwd.x + n, 0, (size_t)(pass->M * C - n) * sizeof(float));
    if (pass->fwd.x_act) m->kernels->from_f32(m->act, pass->fwd.x_act, pass->fwd.x, pass->M * C);
}

/* An entry at the decoder's first layer is the encoder's output. */
static kvf_status enter_stack(kvf_ctx *ctx, kvf__pass *pass, int64_t l)
{
    const bool known = pass->entry.known && l == pass->entry.layer,
               decoder = known && l == pass->model->desc.encoder;

    if (decoder) kvf__pass_set_stack(pass, l - 1);
    if (decoder) take_entry(pass);
    kvf__pass_set_stack(pass, l);
    if (known && !decoder) {
        kvf__embed_place(pass);
        take_entry(pass);
    } else {
        KVF_TRY(kvf__embed_fwd(ctx, pass));
    }
    KVF_TRY(kvf__rope_extend(ctx, pass->model, pass->fwd.position, pass->batch->n_tokens));
    kvf__pass_lap(pass, KVF__PART_EMBED);
    return KVF_OK;
}

kvf_status kvf__pass_fwd(kvf_ctx *ctx, kvf__pass *pass, const kvf__input *input)
{
    const kvf__entry *entry = &input->entry;
    int64_t stream = input->batch->n_tokens * pass->model->desc.C;

    pass->state = KVF__PASS_EMPTY;
    KVF_TRY(set_input(ctx, pass, input));
    pass->times.mark = kvf__clock();

    const int64_t first = entry->known ? entry->layer : kvf__pass_first_layer(pass);
    for (int64_t l = first; l < pass->model->desc.L; l++) {
        KVF_TRY(kvf__ctx_check_stop(ctx));
        if (entry->layer && l == entry->layer && !entry->known)
            memcpy(entry->x, pass->fwd.x,
                   (size_t)(pass->batch->n_tokens * pass->model->desc.C) * sizeof(float));
        if (l == first || l == pass->model->desc.encoder) KVF_TRY(enter_stack(ctx, pass, l));
        if (pass->again.entered) copy_entered(pass, l, false);
        if (input->streams)
            memcpy(input->streams + l * stream, pass->fwd.x, (size_t)stream * sizeof(float));
        KVF_TRY(layer_fwd(ctx, pass, l));
        pass->again.computed = l;
    }
    final_norm_fwd(pass);
    if (pass->cache) kvf__cache_advance(pass->cache, pass->batch, pass->slot);
    pass->state = KVF__PASS_FWD;
    return KVF_OK;
}
