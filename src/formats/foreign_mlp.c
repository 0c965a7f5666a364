/* P-tuning v2 (THUDM, model/prefix_encoder.py of its repository) and PrefixTuning (Li & Liang 2021,
 * gpt2/train_control.py): an embedding of the virtual tokens, alone or with linear layers and tanh
 * between them.
 *
 * P-tuning v2's trainer saves the whole model, so the frozen base is in the file too and is
 * passed over; Li & Liang save the prefix alone. Other tensors would be lost without notice, and
 * are refused by name. */
#include "foreign.h"

#include <string.h>

static bool begins(const char *text, const char *with)
{
    return !strncmp(text, with, strlen(with));
}

/* Refuses tensors that begin with none of the words. */
static kvf_status check_names(kvf_ctx *ctx, const char *where, const kvf__table *table,
                              const char *const *known, size_t n)
{
    for (size_t i = 0; i < table->n; i++) {
        size_t k = 0;
        while (k < n && !begins(table->items[i].name, known[k]))
            k++;
        if (k == n)
            return kvf__fail(ctx, KVF_EUNSUPPORTED,
                             "%s: holds \"%.120s\", which is no part of a prefix that kvfold knows",
                             where, table->items[i].name);
    }
    return KVF_OK;
}

/* The layers stem.0, stem.2, ... that are there; the first must be. */
static kvf_status read_layers(kvf_ctx *ctx, const char *where, const char *stem, kvf__foreign *f)
{
    const kvf__table *table = &f->weights.table;
    char name[64], weight[80], bias[80];

    for (int i = 0; i < KVF__FOREIGN_LAYERS; i++) {
        snprintf(name, sizeof name, "%s.%d", stem, 2 * i);
        snprintf(weight, sizeof weight, "%s.weight", name);
        snprintf(bias, sizeof bias, "%s.bias", name);
        const kvf__view *w = kvf__table_find(table, weight), *b = kvf__table_find(table, bias);
        if (i > 1 && !w && !b) break;
        KVF_TRY(kvf__foreign_add_layer(ctx, where, name, w, b, f));
    }
    f->activation = "tanh";
    return KVF_OK;
}

/* ---- P-tuning v2 ----------------------------------------------------------------------------- */

static const char PT2_TABLE[] = "prefix_encoder.embedding.weight";
static const char PT2_PROMPT[] = "prefix_encoder.weight";

kvf_status kvf__foreign_ptuning_v2(kvf_ctx *ctx, const char *where, kvf__foreign *f)
{
    static const char *const KNOWN[] = {"prefix_encoder.", "classifier.", "qa_outputs.", "bert.",
                                        "roberta."};
    const kvf__table *table = &f->weights.table;
    const kvf__view *rows = kvf__table_find(table, PT2_TABLE);

    if (!rows && kvf__table_find(table, PT2_PROMPT))
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: %s is of a prompt at the input, which goes through the embedding's "
                         "norm twice: want a prefix (--prefix)",
                         where, PT2_PROMPT);
    KVF_TRY(check_names(ctx, where, table, KNOWN, sizeof KNOWN / sizeof KNOWN[0]));
    KVF_TRY(kvf__foreign_check_view(ctx, where, PT2_TABLE, rows, 2));
    f->table = *rows;
    f->model_class = kvf_json_str(kvf_json_at(kvf_json_get(f->config, "architectures"), 0), NULL);
    if (!kvf__table_find(table, "prefix_encoder.trans.0.weight") &&
        !kvf__table_find(table, "prefix_encoder.trans.2.weight"))
        return KVF_OK;
    return read_layers(ctx, where, "prefix_encoder.trans", f);
}

/* ---- Li & Liang ------------------------------------------------------------------------------ */

static const char LL_TABLE[] = "wte.weight", LL_FLAT[] = "control_trans";

/* The shallow form from words is a cache already: [2L, 1, G, P, D], which is our order. */
static kvf_status read_cache(kvf_ctx *ctx, const char *where, const kvf__view *view,
                             kvf__foreign *f)
{
    char text[128];
    KVF_TRY(kvf__foreign_check_view(ctx, where, LL_FLAT, view, 5));
    if (view->dim[0] % 2 || view->dim[1] != 1)
        return kvf__fail(ctx, KVF_ESHAPE, "%s: %s is %s, want [2 * layers, 1, heads, P, head_dim]",
                         where, LL_FLAT, kvf__shape_text(text, view->rank, view->dim));
    KVF_TRY(kvf__prefix_init(ctx, &f->prefix, view->dim[0] / 2, view->dim[2], view->dim[3],
                             view->dim[4]));
    kvf__to_f32(view->dtype, view->data, f->prefix.kv, kvf__view_count(view));
    return KVF_OK;
}

kvf_status kvf__foreign_prefixtuning(kvf_ctx *ctx, const char *where, kvf__foreign *f)
{
    static const char *const KNOWN[] = {"wte.weight", "control_trans.0.", "control_trans.2.",
                                        "control_trans.4."};
    static const char *const FLAT[] = {"control_trans"};
    static const char *const ENCODER_DECODER[] = {"wte_enc", "control_trans_enc", "control_trans2"};
    const kvf__table *table = &f->weights.table;
    const kvf__view *flat = kvf__table_find(table, LL_FLAT),
                    *rows = kvf__table_find(table, LL_TABLE);

    for (size_t i = 0; i < table->n; i++)
        for (size_t k = 0; k < sizeof ENCODER_DECODER / sizeof ENCODER_DECODER[0]; k++)
            if (begins(table->items[i].name, ENCODER_DECODER[k]))
                return kvf__fail(ctx, KVF_EUNSUPPORTED,
                                 "%s: \"%.80s\" is of an encoder-decoder model", where,
                                 table->items[i].name);
    if (kvf__table_find(table, "wte2.weight"))
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: \"wte2.weight\" is of infix-tuning, whose prefix follows its text",
                         where);
    if (flat) {
        KVF_TRY(check_names(ctx, where, table, FLAT, table->n > 1 ? 0 : 1));
        if (flat->rank == 5) return read_cache(ctx, where, flat, f);
        KVF_TRY(kvf__foreign_check_view(ctx, where, LL_FLAT, flat, 1));
        f->table = *flat;
        return KVF_OK;
    }
    KVF_TRY(check_names(ctx, where, table, KNOWN, sizeof KNOWN / sizeof KNOWN[0]));
    KVF_TRY(kvf__foreign_check_view(ctx, where, LL_TABLE, rows, 2));
    f->table = *rows;
    return read_layers(ctx, where, LL_FLAT, f);
}
