/* Encoders against transformers, on tiny models made by tests/golden/make_encoder_golden.py. The
 * script stores final hidden states, the gradient of a weighted sum of them, and the bf16 error of
 * torch's own autocast. Also tests the final hidden states of causal models, against their own
 * language-model head. */
#include "golden_model.h"
#include "model_priv.h"

#include <math.h>

static const char *const ENCODERS[] = {"bert",    "roberta",    "electra", "distilbert",
                                       "deberta", "modernbert", "nomic"};
enum { N_ENCODERS = sizeof ENCODERS / sizeof ENCODERS[0] };
static const char *const CAUSAL[] = {"llama_untied", "gpt2", "gpt2_by_layer", "qwen3"};
enum { N_CAUSAL = sizeof CAUSAL / sizeof CAUSAL[0] };

static const float *hidden_of(golden *g, const kvf__batch *batch, const kvf__prefix *prefix,
                              int64_t start)
{
    const kvf__input input = {
        .batch = batch, .condition.prefix = prefix, .condition.position_start = start};
    const float *hidden = NULL;

    ck_assert_msg(!kvf__pass_fwd(g->ctx, g->pass, &input), "%s", kvf_ctx_error(g->ctx));
    ck_assert_msg(!kvf__pass_hidden(g->ctx, g->pass, &hidden), "%s", kvf_ctx_error(g->ctx));
    return hidden;
}

static void check_hidden(golden *g, const kvf__prefix *prefix, int64_t start, const char *name)
{
    int64_t n;
    float *want = golden_values(g, name, &n);
    ck_close(hidden_of(g, &g->batch, prefix, start), want, (size_t)n, 0, 2e-5);
    free(want);
}

static void gradient_of(golden *g, const float *dhidden, kvf__prefix *grad)
{
    ck_assert_int_eq(
        kvf__prefix_init(g->ctx, grad, g->prefix.L, g->prefix.G, g->prefix.P, g->prefix.D), KVF_OK);
    ck_assert_msg(!kvf__pass_hidden_grad(g->ctx, g->pass, dhidden), "%s", kvf_ctx_error(g->ctx));
    ck_assert_msg(!kvf__pass_bwd(g->ctx, g->pass, &(kvf__grads){.prefix = grad}), "%s",
                  kvf_ctx_error(g->ctx));
}

static double gradient_error(golden *g)
{
    kvf__prefix grad = {0};
    float *want = golden_values(g, "gradient", NULL), *weights = golden_values(g, "weights", NULL);

    hidden_of(g, &g->batch, &g->prefix, g->prefix.P);
    gradient_of(g, weights, &grad);
    double error = ck_rel_l2(grad.kv, want, kvf__prefix_count(&grad));
    kvf__prefix_done(&grad);
    free(want);
    free(weights);
    return error;
}

START_TEST(hidden_states_match)
{
    golden g;
    golden_load(&g, ENCODERS[_i], KVF__F32);
    check_hidden(&g, NULL, 0, "bare_hidden");
    check_hidden(&g, &g.prefix, g.prefix.P, "hidden");
    check_hidden(&g, &g.prefix, 0, "hidden_from_0");
    golden_unload(&g);
}
END_TEST

START_TEST(gradient_matches)
{
    golden g;
    golden_load(&g, ENCODERS[_i], KVF__F32);
    ck_assert_double_le(gradient_error(&g), 1e-5);
    golden_unload(&g);
}
END_TEST

/* The bound of test_pass_golden.c: single models scatter around autocast's error. */
START_TEST(bf16_is_no_worse_than_autocast)
{
    double log_ratio = 0;

    ck_need(kvf__cpu_has_bf16(), "this CPU has no bf16 products");
    for (int i = 0; i < N_ENCODERS; i++) {
        golden g;
        golden_load(&g, ENCODERS[i], KVF__BF16);
        float *torch = golden_values(&g, "autocast_error", NULL);
        double ours = gradient_error(&g);
        ck_assert_double_gt(ours, 1e-4); /* it was bf16 */
        log_ratio += log(ours / (double)torch[0]) / N_ENCODERS;
        free(torch);
        golden_unload(&g);
    }
    ck_assert_double_le(exp(log_ratio), 1.3);
}
END_TEST

/* No types equal types of zero; other types give another result; a row alone equals the row in a
 * batch. */
START_TEST(types_and_rows)
{
    golden g;
    golden_load(&g, "bert", KVF__F32);
    int64_t C = kvf__model_desc(g.model)->C, n = g.batch.n_labels * C;
    size_t bytes = (size_t)n * sizeof(float);
    int32_t *zeros = calloc((size_t)g.batch.n_tokens, sizeof *zeros);
    kvf__batch batch = g.batch;
    float *typed = malloc(bytes), *plain = malloc(bytes);

    memcpy(typed, hidden_of(&g, &batch, &g.prefix, 5), bytes);
    batch.types = NULL;
    memcpy(plain, hidden_of(&g, &batch, &g.prefix, 5), bytes);
    batch.types = zeros;
    ck_assert_mem_eq(hidden_of(&g, &batch, &g.prefix, 5), plain, bytes);
    ck_assert_double_gt(ck_rel_l2(typed, plain, (size_t)n), 0.05);

    batch.types = g.batch.types;
    batch.n_rows = 1;
    batch.n_tokens = g.start[1];
    batch.n_labels = 0;
    while (batch.label_at[batch.n_labels] < batch.n_tokens)
        batch.n_labels++;
    ck_close(hidden_of(&g, &batch, &g.prefix, 5), typed, (size_t)(batch.n_labels * C), 0, 1e-5);
    free(zeros);
    free(typed);
    free(plain);
    golden_unload(&g);
}
END_TEST

/* Hidden states times the head's matrix equal the logits. The loss's gradient through the hidden
 * states equals the loss's gradient. */
START_TEST(hidden_states_of_causal_models)
{
    golden g;
    golden_load(&g, CAUSAL[_i], KVF__F32);
    const kvf__desc *d = kvf__model_desc(g.model);
    int64_t n = g.batch.n_labels, V = d->V, C = d->C;
    const char *matrix = !d->tied                            ? "lm_head.weight"
                         : d->position.kind == KVF__POS_ROPE ? "model.embed_tokens.weight"
                                                             : "transformer.wte.weight";
    const kvf__view *view = kvf__table_find(&g.weights.table, matrix);
    float *head = malloc((size_t)(V * C) * sizeof *head), *dhidden = calloc((size_t)(n * C), 4);
    float *logits = malloc((size_t)(n * V) * sizeof *logits), *want = malloc((size_t)(n * V) * 4);
    kvf__prefix grad = {0};

    kvf__to_f32(view->dtype, view->data, head, V * C);
    const float *hidden = hidden_of(&g, &g.batch, &g.prefix, g.prefix.P);
    ck_assert_int_eq(kvf__pass_lm_logits(g.ctx, g.pass, want), KVF_OK);
    for (int64_t j = 0; j < n; j++) {
        double sum = 0;
        for (int64_t v = 0; v < V; v++) {
            double dot = 0;
            for (int64_t c = 0; c < C; c++)
                dot += (double)hidden[j * C + c] * (double)head[v * C + c];
            logits[j * V + v] = (float)dot;
            sum += exp(dot);
        }
        for (int64_t v = 0; v < V; v++) {
            double by = exp((double)logits[j * V + v]) / sum - (v == g.batch.label_id[j]);
            for (int64_t c = 0; c < C; c++)
                dhidden[j * C + c] += (float)(by * (double)head[v * C + c]);
        }
    }
    ck_close(logits, want, (size_t)(n * V), 1e-5, 1e-5);
    gradient_of(&g, dhidden, &grad);
    float *stored = golden_values(&g, "gradient", NULL);
    ck_assert_double_le(ck_rel_l2(grad.kv, stored, kvf__prefix_count(&grad)), 1e-5);
    kvf__prefix_done(&grad);
    free(stored);
    free(head);
    free(dhidden);
    free(logits);
    free(want);
    golden_unload(&g);
}
END_TEST

/* Repeats give the same bits, without allocation after the first. */
START_TEST(same_bits_and_no_allocation)
{
    golden g;
    kvf__prefix grad[2] = {{0}, {0}};
    const float *hidden = NULL;
    golden_load(&g, ENCODERS[_i], KVF__F32);
    const kvf__input input = {
        .batch = &g.batch, .condition.prefix = &g.prefix, .condition.position_start = 5};
    float *weights = golden_values(&g, "weights", NULL);

    for (int k = 0; k < 2; k++)
        ck_assert_int_eq(
            kvf__prefix_init(g.ctx, &grad[k], g.prefix.L, g.prefix.G, g.prefix.P, g.prefix.D),
            KVF_OK);
    ck_assert_int_eq(kvf__pass_prepare(g.ctx, g.pass, g.batch.n_tokens, g.batch.n_labels), KVF_OK);
    uint64_t before = kvf__ctx_allocations(g.ctx);
    for (int k = 0; k < 2; k++) {
        ck_assert_int_eq(kvf__pass_fwd(g.ctx, g.pass, &input), KVF_OK);
        ck_assert_int_eq(kvf__pass_hidden(g.ctx, g.pass, &hidden), KVF_OK);
        ck_assert_int_eq(kvf__pass_hidden_grad(g.ctx, g.pass, weights), KVF_OK);
        ck_assert_int_eq(kvf__pass_bwd(g.ctx, g.pass, &(kvf__grads){.prefix = &grad[k]}), KVF_OK);
    }
    ck_assert_uint_eq(kvf__ctx_allocations(g.ctx), before);
    ck_assert_mem_eq(grad[0].kv, grad[1].kv, kvf__prefix_count(&grad[0]) * sizeof(float));
    for (int k = 0; k < 2; k++)
        kvf__prefix_done(&grad[k]);
    free(weights);
    golden_unload(&g);
}
END_TEST

/* Layers recomputed for the backward pass give the same bits. */
START_TEST(recomputed_gradient_is_the_same)
{
    golden g;
    kvf__prefix grad[2] = {{0}, {0}};
    ck_need(_i % 2 == 0 || kvf__cpu_has_bf16(), "this CPU has no bf16 products");
    golden_load(&g, _i < 2 ? ENCODERS[_i] : "qwen3", _i % 2 ? KVF__BF16 : KVF__F32);
    int64_t C = kvf__model_desc(g.model)->C;
    float *weights = calloc((size_t)(g.batch.n_labels * C), sizeof *weights);

    for (int64_t i = 0; i < g.batch.n_labels * C; i++)
        weights[i] = (float)(i % 7) - 3;
    for (int k = 0; k < 2; k++) {
        hidden_of(&g, &g.batch, &g.prefix, 5);
        gradient_of(&g, weights, &grad[k]);
        const kvf__pass_limits again = {.rows = GOLDEN_ROWS,
                                        .tokens = g.batch.n_tokens,
                                        .row_len = 64,
                                        .labels = g.batch.n_labels,
                                        .P = g.prefix.P,
                                        .backward = true,
                                        .recompute = true};
        kvf__pass_free(g.pass);
        g.pass = NULL;
        ck_assert_int_eq(kvf__pass_create(g.ctx, g.model, &again, &g.pass), KVF_OK);
    }
    ck_assert_mem_eq(grad[0].kv, grad[1].kv, kvf__prefix_count(&grad[0]) * sizeof(float));
    for (int k = 0; k < 2; k++)
        kvf__prefix_done(&grad[k]);
    free(weights);
    golden_unload(&g);
}
END_TEST

/* ---- core: weights, limits ------------------------------------------------------------------- */

START_TEST(pooler_is_kept)
{
    for (int i = 0; i < 2; i++) {
        golden g;
        const float *bias = NULL;
        golden_load(&g, ENCODERS[i], KVF__F32);
        const float *dense = kvf__model_pooler(g.model, &bias);
        ck_assert(!g.model->lm.n);
        if (i) {
            ck_assert_ptr_null(dense); /* this file has none */
            ck_assert_ptr_null(bias);
        } else {
            float want[32];
            const kvf__view *view = kvf__table_find(&g.weights.table, "pooler.dense.bias");
            kvf__to_f32(view->dtype, view->data, want, 32);
            ck_assert_mem_eq(bias, want, sizeof want);
            view = kvf__table_find(&g.weights.table, "pooler.dense.weight");
            kvf__to_f32(view->dtype, view->data, want, 32);
            ck_assert_mem_eq(dense, want, sizeof want);
        }
        golden_unload(&g);
    }
}
END_TEST

START_TEST(no_language_model)
{
    golden g;
    double loss = 0;
    float logits[1];
    const float *hidden = NULL;

    golden_load(&g, "bert", KVF__F32);
    ck_assert_int_eq(kvf__pass_hidden(g.ctx, g.pass, &hidden), KVF_EUSAGE);
    ck_assert_int_eq(kvf__pass_hidden_grad(g.ctx, g.pass, logits), KVF_EUSAGE);
    hidden_of(&g, &g.batch, NULL, 0);
    ck_assert_int_eq(kvf__pass_loss(g.ctx, g.pass, &(kvf__loss){.scale = 1}, &loss),
                     KVF_EUNSUPPORTED);
    ck_assert_str_eq(kvf_ctx_error(g.ctx),
                     "architecture bert is an encoder and has no language-model head");
    ck_assert_int_eq(kvf__pass_lm_logits(g.ctx, g.pass, logits), KVF_EUNSUPPORTED);
    golden_unload(&g);
}
END_TEST

static void refused(golden *g, const kvf__input *input, kvf_status want, const char *line)
{
    ck_assert_int_eq(kvf__pass_fwd(g->ctx, g->pass, input), want);
    ck_assert_msg(strstr(kvf_ctx_error(g->ctx), line) != NULL, "%s", kvf_ctx_error(g->ctx));
}

START_TEST(limits_of_rows)
{
    golden g;
    golden_load(&g, ENCODERS[_i], KVF__F32);
    int64_t types = kvf__model_desc(g.model)->types;
    int32_t *odd = calloc((size_t)g.batch.n_tokens, sizeof *odd);
    const int32_t parent[] = {-1, 0, -1, -1};
    kvf__batch batch = g.batch;
    kvf__input input = {.batch = &batch};
    char line[128];

    /* Both tables have room for 40 positions; the longest row has 30 tokens. */
    ck_assert_int_eq(kvf__model_desc(g.model)->position.max, 40);
    input.condition.position_start = 10;
    ck_assert_msg(!kvf__pass_fwd(g.ctx, g.pass, &input), "%s", kvf_ctx_error(g.ctx));
    input.condition.position_start = 11;
    refused(&g, &input, KVF_ESHAPE, "last token at position 40 (starting at 11), the model has 40");
    input.condition.position_start = 0;

    odd[7] = (int32_t)types;
    batch.types = odd;
    snprintf(line, sizeof line, "token 7 has type %d, the model has types up to %d", (int)types,
             (int)types - 1);
    refused(&g, &input, KVF_ESHAPE, line);
    batch.types = NULL;
    batch.parent = parent;
    refused(&g, &input, KVF_EUSAGE, "common prefixes need a causal base");
    batch.parent = NULL;
    kvf__cache *cache = NULL;
    ck_assert_int_eq(kvf__cache_create(g.ctx, g.model, 4, 40, &cache), KVF_OK);
    input.cache = cache;
    ck_assert_msg(!kvf__pass_fwd(g.ctx, g.pass, &input), "%s", kvf_ctx_error(g.ctx));
    refused(&g, &input, KVF_EUSAGE, "a cache needs a causal base");
    kvf__cache_free(cache);
    free(odd);
    golden_unload(&g);
}
END_TEST

/* A table with a tensor missing, or with one of another shape, is refused by name. */
START_TEST(each_tensor_is_needed)
{
    golden g;
    kvf__desc desc = golden_open(&g, "bert");
    kvf__slots slots = {0};
    size_t optional = 0;

    for (size_t i = 0; i < g.weights.table.n; i++) {
        kvf__table less = {0};
        const char *name = g.weights.table.items[i].name;
        if (!strncmp(name, "golden.", 7) || strstr(name, "position_ids")) continue;
        for (size_t j = 0; j < g.weights.table.n; j++)
            if (j != i)
                ck_assert_int_eq(kvf__table_add(g.ctx, &less, g.weights.table.items[j].name,
                                                g.weights.table.items[j].view),
                                 KVF_OK);
        kvf_status st = kvf__bind(g.ctx, "bert", &desc, &less, &slots);
        if (strstr(name, "pooler")) {
            optional++;
            ck_assert_int_eq(st, KVF_OK);
        } else {
            ck_assert_int_eq(st, KVF_EFORMAT);
            ck_assert_ptr_nonnull(strstr(kvf_ctx_error(g.ctx), name));
        }
        kvf__slots_done(&slots);
        kvf__table_done(&less);

        g.weights.table.items[i].view.dim[0]++;
        ck_assert_int_eq(kvf__bind(g.ctx, "bert", &desc, &g.weights.table, &slots), KVF_ESHAPE);
        ck_assert_ptr_nonnull(strstr(kvf_ctx_error(g.ctx), name));
        g.weights.table.items[i].view.dim[0]--;
    }
    ck_assert_uint_eq(optional, 2);
    kvf__desc_done(&desc);
    golden_unload(&g);
}
END_TEST

/* Names in the first files of BERT: the prefix "bert.", gamma and beta, and pretraining heads. */
START_TEST(old_names)
{
    static const float any[64];
    golden g;
    kvf__desc desc = golden_open(&g, "bert");
    kvf__slots slots[2] = {{0}, {0}};
    kvf__table old = {0};
    char name[128], hash[2][33];

    for (size_t i = 0; i < g.weights.table.n; i++) {
        snprintf(name, sizeof name, "bert.%s", g.weights.table.items[i].name);
        char *norm = strstr(name, "LayerNorm.");
        if (norm) strcpy(norm, strstr(norm, "weight") ? "LayerNorm.gamma" : "LayerNorm.beta");
        ck_assert_int_eq(kvf__table_add(g.ctx, &old, name, g.weights.table.items[i].view), KVF_OK);
    }
    kvf__view bias = {.data = any, .dtype = KVF__F32, .rank = 1, .dim = {64}};
    ck_assert_int_eq(kvf__table_add(g.ctx, &old, "cls.predictions.bias", bias), KVF_OK);
    ck_assert_msg(!kvf__bind(g.ctx, "old", &desc, &old, &slots[0]), "%s", kvf_ctx_error(g.ctx));
    ck_assert_int_eq(kvf__bind(g.ctx, "new", &desc, &g.weights.table, &slots[1]), KVF_OK);
    for (int k = 0; k < 2; k++)
        ck_assert_int_eq(kvf__slots_hash(g.ctx, &desc, &slots[k], NULL, NULL, hash[k]), KVF_OK);
    ck_assert_str_eq(hash[0], hash[1]);
    for (int k = 0; k < 2; k++)
        kvf__slots_done(&slots[k]);
    kvf__table_done(&old);
    kvf__desc_done(&desc);
    golden_unload(&g);
}
END_TEST

/* ---- the same model by other names ----------------------------------------------------------- */

/* Names of llama.cpp's converter, which drops the pooler; "layers" becomes "blk.#.". */
static const char *const BERT_GGUF[][2] = {
    {"embeddings.word_embeddings.", "token_embd."},
    {"embeddings.position_embeddings.", "position_embd."},
    {"embeddings.token_type_embeddings.", "token_types."},
    {"embeddings.LayerNorm.", "token_embd_norm."},
    {"attention.self.query.", "attn_q."},
    {"attention.self.key.", "attn_k."},
    {"attention.self.value.", "attn_v."},
    {"attention.output.dense.", "attn_output."},
    {"attention.output.LayerNorm.", "attn_output_norm."},
    {"intermediate.dense.", "ffn_up."},
    {"output.dense.", "ffn_down."},
    {"output.LayerNorm.", "layer_output_norm."},
    {NULL, NULL},
};
static const char *const NOMIC_GGUF[][2] = {
    {"embeddings.word_embeddings.", "token_embd."},
    {"embeddings.token_type_embeddings.", "token_types."},
    {"emb_ln.", "token_embd_norm."},
    {"attn.Wqkv.", "attn_qkv."},
    {"attn.out_proj.", "attn_output."},
    {"norm1.", "attn_output_norm."},
    {"mlp.fc12.", "ffn_gate."},
    {"mlp.fc11.", "ffn_up."},
    {"mlp.fc2.", "ffn_down."},
    {"norm2.", "layer_output_norm."},
    {NULL, NULL},
};
/* Names of the class in transformers, which it does not write to files. */
static const char *const NOMIC_CLASS[][2] = {
    {"embeddings.word_embeddings.", "embeddings.word_embeddings."},
    {"embeddings.token_type_embeddings.", "embeddings.token_type_embeddings."},
    {"emb_ln.", "embeddings.LayerNorm."},
    {"attn.Wqkv.", "self_attn.q_proj."},
    {"attn.out_proj.", "self_attn.o_proj."},
    {"norm1.", "post_attention_layernorm."},
    {"mlp.fc12.", "mlp.gate_proj."},
    {"mlp.fc11.", "mlp.up_proj."},
    {"mlp.fc2.", "mlp.down_proj."},
    {"norm2.", "post_mlp_layernorm."},
    {NULL, NULL},
};

/* False: there is no such name. */
static bool other_name(const char *const names[][2], const char *layers, const char *name,
                       char out[128])
{
    int layer = -1, at = 0;

    if (sscanf(name, "encoder.layer.%d.%n", &layer, &at) < 1)
        sscanf(name, "encoder.layers.%d.%n", &layer, &at);
    for (size_t i = 0; names[i][0]; i++) {
        const size_t n = strlen(names[i][0]);
        if (strncmp(name + at, names[i][0], n) != 0) continue;
        if (layer < 0)
            snprintf(out, 128, "%s%s", names[i][1], name + n);
        else
            snprintf(out, 128, "%s.%d.%s%s", layers, layer, names[i][1], name + at + n);
        return true;
    }
    return false;
}

/* Adds a tensor; if it is called that of q, it holds the rows of q, k and v. */
static void add_named(golden *g, char name[128], kvf__view view, kvf__table *table)
{
    char *q = strstr(name, "q_proj");

    if (q) view.dim[0] /= 3;
    for (const char *letter = "qkv"; *letter; letter++) {
        if (q) *q = *letter;
        ck_assert_int_eq(kvf__table_add(g->ctx, table, name, view), KVF_OK);
        if (!q) return;
        view.data = (const char *)view.data + kvf__view_bytes(&view);
    }
}

static void rename_table(golden *g, const char *const names[][2], const char *layers,
                         kvf__table *table)
{
    char name[128];

    for (size_t i = 0; i < g->weights.table.n; i++) {
        const kvf__tensor *from = &g->weights.table.items[i];
        if (other_name(names, layers, from->name, name)) add_named(g, name, from->view, table);
    }
}

static const struct {
    const char *model, *arch;
    const char *const (*names)[2];
    int layers, width, ffn, heads, positions;
    const char *more;
} GGUFS[] = {
    {"bert", "bert", BERT_GGUF, 3, 32, 48, 4, 40, "\"bert.pooling_type\":1"},
    {"nomic", "nomic-bert", NOMIC_GGUF, 2, 24, 40, 2, 52, "\"nomic-bert.rope.freq_base\":1000.0"},
};

static kvf_status gguf_desc(golden *g, int i, const char *causal, const kvf__table *table,
                            kvf__desc *desc)
{
    const char *a = GGUFS[i].arch;
    char text[768];
    kvf_json *meta = NULL;

    snprintf(text, sizeof text,
             "{\"general.architecture\":\"%s\",\"%s.block_count\":%d,\"%s.context_length\":%d,"
             "\"%s.embedding_length\":%d,\"%s.feed_forward_length\":%d,"
             "\"%s.attention.head_count\":%d,\"%s.attention.layer_norm_epsilon\":1e-12,"
             "\"%s.attention.causal\":%s,%s}",
             a, a, GGUFS[i].layers, a, GGUFS[i].positions, a, GGUFS[i].width, a, GGUFS[i].ffn, a,
             GGUFS[i].heads, a, a, causal, GGUFS[i].more);
    ck_assert_int_eq(kvf_json_parse(g->ctx, "meta", text, strlen(text), &meta), KVF_OK);
    kvf_status st = kvf__desc_from_gguf(g->ctx, "golden.gguf", meta, table, desc);
    kvf_json_free(meta);
    return st;
}

static void check_same(golden *g, kvf__desc *desc, const kvf__table *table)
{
    const float *bias = NULL;

    golden_pack(g, desc, table, KVF__F32);
    ck_assert_ptr_null(kvf__model_pooler(g->model, &bias));
    check_hidden(g, &g->prefix, g->prefix.P, "hidden");
    ck_assert_double_le(gradient_error(g), 1e-5);
}

static void close_renamed(golden *g, kvf__table *table)
{
    kvf__table_done(table);
    golden_unload(g);
}

START_TEST(gguf_is_the_same_model)
{
    golden g;
    kvf__desc hf = golden_open(&g, GGUFS[_i].model), desc = {0};
    kvf__table table = {0};

    rename_table(&g, GGUFS[_i].names, "blk", &table);
    ck_assert_int_eq(gguf_desc(&g, _i, "true", &table, &desc), KVF_EUNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(g.ctx), "bert.attention.causal is true"));
    ck_assert_msg(!gguf_desc(&g, _i, "false", &table, &desc), "%s", kvf_ctx_error(g.ctx));
    ck_assert(desc.types == 2 && desc.position.max == GGUFS[_i].positions && !desc.block.causal);
    check_same(&g, &desc, &table);
    kvf__desc_done(&hf);
    close_renamed(&g, &table);
}
END_TEST

START_TEST(names_of_the_class_are_the_same_model)
{
    golden g;
    kvf__desc desc = golden_open(&g, "nomic");
    kvf__table table = {0};

    rename_table(&g, NOMIC_CLASS, "layers", &table);
    check_same(&g, &desc, &table);
    close_renamed(&g, &table);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("arch_bert");
    TCase *cases = tcase_create("golden");

    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, hidden_states_match, 0, N_ENCODERS);
    tcase_add_loop_test(cases, gradient_matches, 0, N_ENCODERS);
    tcase_add_loop_test(cases, gguf_is_the_same_model, 0, 2);
    tcase_add_test(cases, names_of_the_class_are_the_same_model);
    tcase_add_test(cases, bf16_is_no_worse_than_autocast);
    tcase_add_test(cases, types_and_rows);
    tcase_add_loop_test(cases, hidden_states_of_causal_models, 0, N_CAUSAL);
    tcase_add_loop_test(cases, same_bits_and_no_allocation, 0, N_ENCODERS);
    tcase_add_loop_test(cases, recomputed_gradient_is_the_same, 0, 3);
    suite_add_tcase(suite, cases);

    cases = tcase_create("core");
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, pooler_is_kept);
    tcase_add_test(cases, old_names);
    suite_add_tcase(suite, cases);

    cases = tcase_create("errors");
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, no_language_model);
    tcase_add_loop_test(cases, limits_of_rows, 0, 2);
    tcase_add_test(cases, each_tensor_is_needed);
    suite_add_tcase(suite, cases);
    return ck_main(suite);
}
