/* The key segments of each row for attention. First comes the prefix, shared by all rows or one per
 * section. Then come the common prefixes of the row (rows of this batch, whose keys and values are
 * in qkv), or the keys and values in a cache. If the prefix is inside rows (infix_at), the tokens
 * before it are separate rows, common prefixes or cached ones, that do not attend to it. The order
 * of a row's segments does not matter. */
#include "attention.h"
#include "names.h"
#include "pass_priv.h"

#include <string.h>

static int64_t row_width(const kvf__desc *d, int64_t l)
{
    return kvf__shape_size(d, l, "J");
}

kvf_status kvf__pass_check_common_rows(kvf_ctx *ctx, kvf__pass *pass, const kvf__input *input)
{
    const kvf__batch *b = input->batch;
    kvf__pass_keys *keys = &pass->keys;
    int64_t common_tokens = 0;
    if (b->parent && input->cache)
        return kvf__fail(ctx, KVF_EUSAGE, "batch: common prefixes and a cache exclude each other");
    memset(keys->common, -1, (size_t)b->n_rows * sizeof *keys->common);
    for (int64_t r = 0; r < b->n_rows; r++) {
        int32_t parent = kvf__batch_parent(b, r), depth = 0;
        if (parent < -1 || parent >= r)
            return kvf__fail(
                ctx, KVF_ESHAPE,
                "batch row %lld: its common prefix is row %ld, expected an earlier one",
                (long long)r, (long)parent);
        if (parent >= 0 && !pass->model->desc.block.causal)
            return kvf__fail(ctx, KVF_EUSAGE,
                             "batch row %lld: common prefixes need a causal base, %s is not one",
                             (long long)r, pass->model->desc.arch_name);
        for (int32_t p = parent; p >= 0; p = kvf__batch_parent(b, p))
            depth++;
        if (depth > KVF__ATTN_SEGS - 1)
            return kvf__fail(ctx, KVF_ESHAPE,
                             "batch row %lld: %ld common prefixes before it, at most %d fit",
                             (long long)r, (long)depth, KVF__ATTN_SEGS - 1);
        keys->offset[r] = parent < 0
                              ? 0
                              : keys->offset[parent] + b->start[parent + 1] - b->start[parent];
        if (keys->offset[r] > pass->limits.common_len)
            return kvf__fail(ctx, KVF_ESHAPE,
                             "batch row %lld: %lld tokens of common prefixes, the pass was made "
                             "for at most %lld",
                             (long long)r, (long long)keys->offset[r],
                             (long long)pass->limits.common_len);
        if (parent >= 0 && keys->common[parent] < 0) {
            keys->common[parent] = 0; /* counted; its segment is set per layer */
            common_tokens += b->start[parent + 1] - b->start[parent];
        }
    }
    if (common_tokens <= pass->limits.common_tokens) return KVF_OK;
    return kvf__fail(ctx, KVF_ESHAPE,
                     "batch: %lld tokens in common prefixes, the pass was made for at most %lld",
                     (long long)common_tokens, (long long)pass->limits.common_tokens);
}

kvf__kvseg kvf__prefix_segment(const kvf__prefix *prefix, int64_t l, kvf__prefix *dprefix)
{
    if (!prefix || !prefix->P || (prefix->layer_mask && !prefix->layer_mask[l]))
        return (kvf__kvseg){.len = 0};
    const kvf__prefix_layer at = kvf__prefix_at(prefix, l);
    kvf__prefix_layer d = {0};

    if (dprefix) d = kvf__prefix_at(dprefix, l);
    return (kvf__kvseg){.k = at.k,
                        .v = at.v,
                        .dtype = KVF__F32,
                        .len = prefix->P,
                        .token_stride = at.D,
                        .head_stride = prefix->P * at.D,
                        .dk = d.k,
                        .dv = d.v,
                        .near = prefix->near && l >= prefix->near,
                        .log_weight = at.log_weight,
                        .dlog_weight = d.log_weight};
}

/* Sets a segment for each section with a prefix in layer l. */
static void section_segments(kvf__pass *pass, int64_t l, bool gradient)
{
    kvf__pass_keys *keys = &pass->keys;

    for (int64_t i = 0; i < pass->sections.n; i++) {
        kvf__pass_section *s = &pass->sections.at[i];
        s->seg = -1;
        if (!kvf__section_has_prefix(s, l)) continue;
        s->seg = (int32_t)keys->n_segs;
        keys->segs[keys->n_segs++] = kvf__prefix_segment(s->condition.prefix, l,
                                                         gradient ? s->dprefix : NULL);
    }
}

/* Sets a segment with a masked or rotated copy of the prefix for each row that attends to it. */
static void row_segments(kvf__pass *pass, int64_t l, bool gradient)
{
    const kvf__kvseg all = kvf__prefix_segment(pass->prefix, l,
                                               gradient ? pass->sections.at[0].dprefix : NULL);

    if (pass->own.drops) kvf__pass_mask_rows(pass, l, gradient);
    if (pass->own.rotates) kvf__pass_rotate_rows(pass, l, gradient);
    for (int64_t r = 0; r < pass->batch->n_rows; r++)
        if (kvf__pass_row_sees(pass, r))
            pass->keys.segs[pass->keys.n_segs++] = kvf__pass_row_segment(pass, all, l, r);
}

/* Sets the prefix segments of layer l, which may be those of an earlier layer. */
static void prefix_segments(kvf__pass *pass, int64_t l, bool gradient)
{
    l = kvf__desc_layer(&pass->model->desc, l).from;
    if (!pass->own.drops && !pass->own.rotates) {
        section_segments(pass, l, gradient);
        return;
    }
    pass->sections.at[0].seg = kvf__pass_has_prefix(pass, l)
                                   ? 0
                                   : -1; /* segment of the first row that attends to it */
    if (pass->sections.at[0].seg == 0) row_segments(pass, l, gradient);
}

/* Returns row r of the batch as keys and values for later rows; gradient: its place in dcommon, or
 * NULL. */
static kvf__kvseg common_segment(const kvf__pass *pass, int64_t l, int64_t r, float *gradient)
{
    const kvf__desc *d = &pass->model->desc;
    const kvf__layer_shape layer = kvf__desc_layer(d, l);
    int64_t first = pass->batch->start[r], keys = d->H * layer.D, values = keys + layer.G * layer.D;
    kvf__dtype act = pass->model->act;
    char *row = kvf__act_row(act, pass->kept[l].qkv, first, row_width(d, l));

    return (kvf__kvseg){.k = row + (size_t)keys * kvf__act_size(act),
                        .v = row + (size_t)values * kvf__act_size(act),
                        .dtype = act,
                        .len = pass->batch->start[r + 1] - first,
                        .token_stride = row_width(d, l),
                        .head_stride = layer.D,
                        .dk = gradient ? gradient + keys : NULL,
                        .dv = gradient ? gradient + values : NULL};
}

static void common_segments(kvf__pass *pass, int64_t l, bool dcommon)
{
    const kvf__batch *b = pass->batch;
    int64_t at = 0, width = row_width(&pass->model->desc, l);
    for (int64_t r = 0; b->parent && r < b->n_rows; r++) {
        if (pass->keys.common[r] < 0) continue;
        pass->keys.common[r] = (int32_t)pass->keys.n_segs;
        pass->keys.segs[pass->keys.n_segs++] = common_segment(
            pass, l, r, dcommon ? pass->keys.dcommon + at * width : NULL);
        at += b->start[r + 1] - b->start[r];
    }
    if (dcommon && at) memset(pass->keys.dcommon, 0, (size_t)(at * width) * sizeof(float));
}

/* Adds the common prefixes before row r, outermost first. */
static void add_common_rows(const kvf__pass *pass, int64_t r, kvf__attn_row *row)
{
    int32_t depth = 0, parent = kvf__batch_parent(pass->batch, r);
    for (int32_t p = parent; p >= 0; p = kvf__batch_parent(pass->batch, p))
        depth++;
    row->n_segs += depth;
    for (int32_t p = parent, at = row->n_segs; p >= 0; p = kvf__batch_parent(pass->batch, p))
        row->seg[--at] = pass->keys.common[p];
}

/* Plans the attention. Layers differ only in whether rows have a prefix, in the number of heads
 * and, for the last one, in the queries. So the plan is made again only on such a change. In an
 * encoder-decoder, whose layers see different keys, it is made for every layer. */
static void deal(kvf__pass *pass, int64_t G, bool last)
{
    bool same = pass->keys.dealt && pass->keys.dealt_last == last && pass->keys.dealt_G == G &&
                !pass->model->desc.encoder;

    for (int64_t i = 0; i < pass->sections.n; i++) {
        kvf__pass_section *s = &pass->sections.at[i];
        same = same && s->planned == (s->seg >= 0);
        s->planned = s->seg >= 0;
    }
    if (!same) {
        kvf__attn_plan_heads(pass->keys.plan, G);
        kvf__attn_plan_set(pass->keys.plan, pass->keys.rows, pass->batch->n_rows, pass->keys.segs,
                           pass->keys.n_segs);
    }
    pass->keys.dealt_G = G;
    pass->keys.dealt = true;
    pass->keys.dealt_last = last;
}

/* Returns the first token of row r with a label, or its length: the queries of the last layer begin
 * there. *label: the first label of row r or of a later one. */
static int64_t first_labelled(const kvf__batch *b, int64_t r, int64_t *label)
{
    while (*label < b->n_labels && b->label_at[*label] < b->start[r])
        ++*label;
    int64_t at = *label < b->n_labels ? b->label_at[*label] : b->n_tokens;
    return (at < b->start[r + 1] ? at : b->start[r + 1]) - b->start[r];
}

/* Sets the segments of row r, whose own prefix is segment `own`; -1: none. */
static void row_path(kvf__pass *pass, int64_t l, int64_t r, int32_t own, bool gradient)
{
    const kvf__place place = kvf__layer_place(&pass->model->desc, l);
    const kvf__batch *b = pass->batch;
    kvf__attn_row *row = &pass->keys.rows[r];
    int64_t slot = kvf__row_slot(pass->slot, r);

    *row = (kvf__attn_row){.start = b->start[r], .len = b->start[r + 1] - b->start[r]};
    if (own >= 0) row->seg[row->n_segs++] = own;
    add_common_rows(pass, r, row);
    if (place == KVF__PLACE_CROSS) {
        row->seg[row->n_segs++] = (int32_t)pass->keys.n_segs;
        pass->keys.segs[pass->keys.n_segs++] = kvf__pass_source_segment(pass, l, r, gradient);
    }
    if (place == KVF__PLACE_CROSS || place == KVF__PLACE_ENCODER) return;
    if (!pass->cache || !pass->cache->length[slot]) return;
    row->seg[row->n_segs++] = (int32_t)pass->keys.n_segs;
    pass->keys.segs[pass->keys.n_segs++] = kvf__cache_segment(
        pass->cache, kvf__desc_layer(&pass->model->desc, l).from, slot);
}

void kvf__pass_segments(kvf__pass *pass, int64_t l, bool gradient, bool dcommon)
{
    bool by_rows = pass->own.drops || pass->own.rotates;
    bool last = l == pass->model->desc.L - 1;
    int32_t next = 0; /* segment of the next row's own copy */
    int64_t label = 0;

    pass->keys.n_segs = 0;
    prefix_segments(pass, l, gradient);
    common_segments(pass, l, dcommon);
    for (int64_t i = 0; i < pass->sections.n; i++)
        for (int64_t r = pass->sections.at[i].first; r < pass->sections.at[i].end; r++) {
            bool sees = pass->sections.at[i].seg >= 0 && kvf__pass_row_sees(pass, r);
            row_path(pass, l, r, !sees ? -1 : by_rows ? next++ : pass->sections.at[i].seg, dcommon);
            if (last) pass->keys.rows[r].first = first_labelled(pass->batch, r, &label);
        }
    deal(pass, kvf__desc_layer(&pass->model->desc, l).G, last);
}

kvf__attn kvf__model_attn(const kvf__model *model, int64_t l)
{
    const kvf__desc *d = &model->desc;
    const kvf__layer_shape layer = kvf__desc_layer(d, l);

    const kvf__place place = kvf__layer_place(d, l);
    const kvf__attn_relative *relative = model->relative.layer ? &model->relative.layer[l] : NULL;

    return (kvf__attn){
        .H = d->H,
        .G = layer.G,
        .D = layer.D,
        .causal = d->block.causal && place != KVF__PLACE_ENCODER && place != KVF__PLACE_CROSS,
        .crosses = place == KVF__PLACE_CROSS,
        .window = kvf__positions_window(&d->position, l),
        .cap = d->factors.score_cap,
        .scale = d->score_by_layer ? d->score_scale / (float)(l + 1) : d->score_scale,
        .relative = relative && relative->bucket ? relative : NULL,
        .ld = kvf__qkv_width(d, l)};
}

kvf__attn kvf__pass_attn(const kvf__pass *pass, int64_t l)
{
    const kvf__kept *keep = &pass->kept[l];
    kvf__attn attn = kvf__model_attn(pass->model, l);

    attn.by_blocks = l < pass->entry.layer && !pass->entry.fixed;
    attn.plan = pass->keys.plan;
    attn.segs = pass->keys.segs;
    attn.N = pass->batch->n_tokens;
    attn.act = pass->model->act;
    attn.qkv = keep->qkv;
    attn.out = keep->att;
    attn.lse = keep->lse;
    return attn;
}

/* Adds the keys' and values' part of a row of dcommon to one row of layer l's dqkv. */
static void add_gradient(const kvf__pass *pass, int64_t l, int64_t token, const float *from)
{
    const kvf__desc *d = &pass->model->desc;
    const kvf__layer_shape layer = kvf__desc_layer(d, l);
    kvf__dtype act = pass->model->act;
    int64_t keys = d->H * layer.D, n = 2 * layer.G * layer.D;
    char *to = (char *)kvf__act_row(act, pass->bwd.dqkv, token, row_width(d, l)) +
               (size_t)keys * kvf__act_size(act);
    for (int64_t i = 0; i < n; i++) {
        float sum;
        kvf__to_f32(act, to + (size_t)i * kvf__act_size(act), &sum, 1);
        sum += from[keys + i];
        kvf__from_f32(act, &sum, to + (size_t)i * kvf__act_size(act), 1);
    }
}

void kvf__pass_collect_common_rows(kvf__pass *pass, int64_t l)
{
    const kvf__batch *b = pass->batch;
    const float *from = pass->keys.dcommon;
    int64_t width = row_width(&pass->model->desc, l);
    for (int64_t r = 0; b->parent && r < b->n_rows; r++) {
        if (pass->keys.common[r] < 0) continue;
#pragma omp parallel for schedule(static)
        for (int64_t i = b->start[r]; i < b->start[r + 1]; i++)
            add_gradient(pass, l, i, from + (i - b->start[r]) * width);
        from += (b->start[r + 1] - b->start[r]) * width;
    }
}
