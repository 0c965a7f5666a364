/* Recording of queries at labelled positions and their attention outputs, for attention matching,
 * which fits keys and values to them (arXiv 2602.16284).
 *
 * The output over a row's own tokens is computed again from the pass's queries and keys, because
 * attention keeps only the output over all keys. Threads take whole rows with their labels, so bits
 * do not depend on the number of threads. */
#include "attention.h"
#include "pass_priv.h"
#include "wide.h"

#include <math.h>
#include <string.h>

/* Computes for query q the softmax over the first n keys of a row: out [D], the mean of their
 * values v. Returns the log of the sum of its exponentials. p: [n] scratch. */
static float own_attention(const kvf__wide *wide, const kvf__attn *attn, const float *q,
                           const float *k, const float *v, int64_t n, float *p, float *out)
{
    const int64_t D = attn->D;
    float most = -INFINITY, sum = 0;

    for (int64_t t = 0; t < n; t++) {
        p[t] = attn->scale * (float)wide->dot(q, k + t * attn->ld, D);
        if (attn->cap > 0) p[t] = attn->cap * tanhf(p[t] / attn->cap);
        most = fmaxf(most, p[t]);
    }
    memset(out, 0, (size_t)D * sizeof *out);
    for (int64_t t = 0; t < n; t++) {
        const float e = expf(p[t] - most);
        sum += e;
        for (int64_t d = 0; d < D; d++)
            out[d] += e * v[t * attn->ld + d];
    }
    for (int64_t d = 0; d < D; d++)
        out[d] /= sum;
    return most + logf(sum);
}

/* Records one label at token i of a row of len tokens, of which it may see a window; qkv: the row
 * in f32; p: [row] scratch. */
static void read_label(const kvf__attn *attn, const float *qkv, int64_t len, int64_t i,
                       int64_t label, float *p, const kvf__queries *to)
{
    const kvf__wide *wide = kvf__wide_get(); /* once for all heads, since it queries the CPU */
    const int64_t reach = attn->window ? attn->window : len;
    const int64_t first = i < reach ? 0 : i - reach + 1;
    const int64_t end = attn->causal ? i + 1 : len - i < reach ? len : i + reach;
    const int64_t H = attn->H, G = attn->G, D = attn->D;

    for (int64_t h = 0; h < H; h++) {
        const int64_t at = label * H + h;
        const float *q = qkv + i * attn->ld + h * D;
        const float *k = qkv + first * attn->ld + (H + h / (H / G)) * D;
        memcpy(to->q + at * D, q, (size_t)D * sizeof *q);
        to->own_mass[at] = own_attention(wide, attn, q, k, k + G * D, end - first, p,
                                         to->own + at * D);
    }
}

/* Records labels first .. end - 1 of a row; work: [row, ld] and [row] scratch. */
static void read_row(const kvf__pass *pass, const kvf__attn *attn, int64_t r, int64_t first,
                     int64_t end, float *work)
{
    const kvf__batch *b = pass->batch;
    const int64_t len = b->start[r + 1] - b->start[r], HD = attn->H * attn->D;

    kvf__to_f32(attn->act, kvf__act_row(attn->act, (void *)attn->qkv, b->start[r], attn->ld), work,
                len * attn->ld);
    for (int64_t j = first; j < end; j++) {
        read_label(attn, work, len, b->label_at[j] - b->start[r], j, work + len * attn->ld,
                   pass->keys.queries);
        kvf__to_f32(attn->act, kvf__act_row(attn->act, attn->out, b->label_at[j], HD),
                    pass->keys.queries->out + j * HD, HD);
    }
}

static int64_t longest_row(const kvf__batch *b)
{
    int64_t most = 0;
    for (int64_t r = 0; r < b->n_rows; r++)
        if (b->start[r + 1] - b->start[r] > most) most = b->start[r + 1] - b->start[r];
    return most;
}

static kvf_status read_labels(kvf_ctx *ctx, const kvf__pass *pass, const kvf__attn *attn)
{
    const kvf__batch *b = pass->batch;
    const int64_t room = longest_row(b) * (attn->ld + 1);
    float *work = NULL;
    int64_t *first = NULL;
    kvf_status st = kvf__alloc_array(ctx, (size_t)b->n_rows, (size_t)room * sizeof *work, &work);

    if (!st) st = kvf__alloc_array(ctx, (size_t)b->n_rows + 1, sizeof *first, &first);
    for (int64_t r = 0, j = 0; !st && r < b->n_rows; first[++r] = j)
        while (j < b->n_labels && b->label_at[j] < b->start[r + 1])
            j++;
    if (!st) {
#pragma omp parallel for schedule(dynamic)
        for (int64_t r = 0; r < b->n_rows; r++)
            read_row(pass, attn, r, first[r], first[r + 1], work + r * room);
    }
    kvf__free(first);
    kvf__free(work);
    return st;
}

kvf_status kvf__pass_ask(kvf_ctx *ctx, kvf__pass *pass, int64_t l)
{
    const kvf__queries *queries = pass->keys.queries;
    const kvf__attn attn = kvf__pass_attn(pass, l);

    KVF_TRY(read_labels(ctx, pass, &attn));
    return queries->layer(queries->user, l, &attn);
}
