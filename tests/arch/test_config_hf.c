/* Tests of model descriptions read from config.json. Known models in both generations of the file
 * are compared with transformers. Also tests the exact line of each refusal, and rotary
 * frequencies. GGUF metadata: test_config_gguf.c. */
#include "arch.h"
#include "ck.h"
#include "model_priv.h"
#include "names.h"

#include <math.h>
#include <string.h>

static kvf_ctx *ctx;
static char warning[512];

static void keep_warning(void *user, kvf_log_level level, const char *line)
{
    (void)user;
    if (level == KVF_LOG_WARN) snprintf(warning, sizeof warning, "%s", line);
}

static void setup(void)
{
    kvf_ctx_options options = {.log = keep_warning};

    warning[0] = 0;
    ck_assert_int_eq(kvf_ctx_create(&options, &ctx), KVF_OK);
}

static void teardown(void)
{
    kvf_ctx_free(ctx);
}

static kvf_json *parse(const char *text)
{
    kvf_json *root = NULL;
    ck_assert_msg(kvf_json_parse(ctx, "text", text, strlen(text), &root) == KVF_OK, "%s in %s",
                  kvf_ctx_error(ctx), text);
    return root;
}

/* ---- golden: known configs ------------------------------------------------------------------- */

static kvf_json *golden;

static void setup_golden(void)
{
    setup();
    ck_assert_int_eq(kvf_json_load(ctx, ck_source("tests/golden/configs.json"), &golden), KVF_OK);
}

static void teardown_golden(void)
{
    kvf_json_free(golden);
    teardown();
}

#define N_CASES 22

static int64_t want_int(const kvf_json *want, const char *key)
{
    int64_t value = kvf_json_int(kvf_json_get(want, key), -1);
    ck_assert_int_ge(value, 0);
    return value;
}

static kvf__act_fn act_of(const char *name)
{
    if (!strcmp(name, "silu")) return KVF__SILU;
    if (!strcmp(name, "gelu")) return KVF__GELU_ERF;
    if (!strcmp(name, "gelu_new")) return KVF__GELU_TANH;
    ck_assert_str_eq(name, "relu");
    return KVF__RELU;
}

static void check_numbers(const kvf__desc *d, const kvf_json *want)
{
    float eps = (float)kvf_json_real(kvf_json_get(want, "eps"), -1);
    float score = (float)kvf_json_real(kvf_json_get(want, "score"), -1);

    ck_assert_int_eq(d->L, want_int(want, "L"));
    ck_assert_int_eq(d->H, want_int(want, "H"));
    ck_assert_int_eq(d->G, want_int(want, "G"));
    ck_assert_int_eq(d->D, want_int(want, "D"));
    ck_assert_int_eq(d->C, want_int(want, "C"));
    ck_assert_int_eq(d->F, want_int(want, "F"));
    ck_assert_int_eq(d->V, want_int(want, "V"));
    ck_assert_int_eq(d->position.max, want_int(want, "max_positions"));
    ck_assert_int_eq(d->position.window, want_int(want, "window"));
    ck_assert(d->norm_eps == eps);
    ck_assert_int_eq(d->tied, kvf_json_bool(kvf_json_get(want, "tied"), false));
    ck_assert_int_eq(d->block.qkv_bias, kvf_json_bool(kvf_json_get(want, "attention_bias"), false));
    ck_assert_int_eq(d->block.out_bias, kvf_json_bool(kvf_json_get(want, "out_bias"), false));
    ck_assert_int_eq(d->block.mlp_bias, kvf_json_bool(kvf_json_get(want, "mlp_bias"), false));
    ck_assert_int_eq(d->block.act, act_of(kvf_json_str(kvf_json_get(want, "act"), NULL)));
    ck_close(&d->score_scale, &score, 1, 1e-7, 0);
    ck_assert_int_eq(d->score_by_layer, kvf_json_bool(kvf_json_get(want, "by_layer"), false));
    ck_assert_int_eq(d->types, want_int(want, "types"));
    ck_assert_int_eq(d->position.pad + 1, want_int(want, "position_pad"));
    ck_assert_int_eq(d->block.post_norm, kvf_json_bool(kvf_json_get(want, "post_norm"), false));
    ck_assert_int_eq(d->block.qk_norm, kvf_json_bool(kvf_json_get(want, "qk_norm"), false));
    ck_assert_int_eq(d->block.causal, kvf_json_bool(kvf_json_get(want, "causal"), false));
}

static size_t read_floats(const kvf_json *array, float *out, size_t cap)
{
    size_t n = kvf_json_size(array);
    ck_assert_uint_le(n, cap);
    for (size_t i = 0; i < n; i++)
        out[i] = (float)kvf_json_real(kvf_json_at(array, i), NAN);
    return n;
}

static void check_rope(const kvf__desc *d, const kvf_json *kase)
{
    const kvf_json *want = kvf_json_get(kase, "inv_freq");
    float inv_freq[256], scale = (float)kvf_json_real(kvf_json_get(kase, "rope_scale"), -1);

    if (!want) {
        ck_assert_int_eq(d->position.kind, KVF__POS_LEARNED);
        ck_assert_ptr_null(d->position.inv_freq);
        return;
    }
    ck_assert_int_eq(d->position.kind, KVF__POS_ROPE);
    ck_assert_int_eq(read_floats(want, inv_freq, 256), d->D / 2);
    /* torch's pow and this one may differ in the last bit; scaling adds one or two roundings */
    ck_close(d->position.inv_freq, inv_freq, (size_t)d->D / 2, 3e-7, 0);
    ck_close(&d->position.scale, &scale, 1, 1e-7, 0);
}

/* cos and sin rows of positions 0, 1, 7, 4000. The frequencies of these cases equal torch's bit for
 * bit, so even the angle of position 4000 agrees. */
static void check_tables(const kvf__desc *d, const kvf_json *kase)
{
    static const int64_t at[] = {0, 1, 7, 4000};
    kvf__model model = {.desc = *d};
    const kvf_json *cos_rows = kvf_json_get(kase, "cos"), *sin_rows = kvf_json_get(kase, "sin");
    float want[256];
    size_t half = (size_t)d->D / 2;

    if (!cos_rows) return;
    ck_assert_int_eq(kvf__rope_tables(ctx, &model, 10), KVF_OK);
    ck_assert_int_eq(kvf__rope_tables(ctx, &model, 4001), KVF_OK); /* grows, keeps its rows */
    ck_assert_int_eq(model.rope.rows, 4001);
    for (size_t i = 0; i < 4; i++) {
        ck_assert_uint_eq(read_floats(kvf_json_at(cos_rows, i), want, 256), half);
        ck_close(model.rope.cos + (size_t)at[i] * half, want, half, 0, 1e-6);
        ck_assert_uint_eq(read_floats(kvf_json_at(sin_rows, i), want, 256), half);
        ck_close(model.rope.sin + (size_t)at[i] * half, want, half, 0, 1e-6);
    }
    ck_assert_int_eq(kvf__rope_tables(ctx, &model, d->position.max + 1), KVF_ESHAPE);
    kvf__free(model.rope.cos);
    kvf__free(model.rope.sin);
}

START_TEST(known_config)
{
    static const char *const forms[] = {"v4", "v5"};
    const kvf_json *cases = kvf_json_get(golden, "cases");
    const kvf_json *kase = kvf_json_at(cases, (size_t)_i);
    const char *name = kvf_json_str(kvf_json_get(kase, "name"), NULL);

    ck_assert_uint_eq(kvf_json_size(cases), N_CASES);
    for (int form = 0; form < 2; form++) {
        const kvf_json *config = kvf_json_get(kase, forms[form]);
        kvf__desc d = {0};
        ck_assert_msg(kvf__desc_from_hf(ctx, name, config, &d) == KVF_OK, "%s", kvf_ctx_error(ctx));
        ck_assert_str_eq(d.arch_name, kvf_json_str(kvf_json_get(config, "model_type"), NULL));
        check_numbers(&d, kvf_json_get(kase, "want"));
        check_rope(&d, kase);
        check_tables(&d, kase);
        kvf__desc_done(&d);
    }
    /* A note names the factor in use only if the factor and the ratio of lengths disagree. */
    ck_assert_int_eq(warning[0] != 0, !strcmp(name, "yarn_mscale"));
}
END_TEST

/* ---- core: details --------------------------------------------------------------------------- */

#define LLAMA                                                                                      \
    "{\"model_type\":\"llama\",\"hidden_size\":64,\"intermediate_size\":128,\"num_hidden_"         \
    "layers\":2,"                                                                                  \
    "\"num_attention_heads\":4,\"vocab_size\":100}"
#define MISTRAL                                                                                    \
    "{\"model_type\":\"mistral\",\"hidden_size\":64,\"intermediate_size\":128,"                    \
    "\"num_hidden_layers\":2,\"num_attention_heads\":8,\"vocab_size\":100}"
#define BERT                                                                                       \
    "{\"model_type\":\"bert\",\"hidden_size\":64,\"intermediate_size\":128,"                       \
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"vocab_size\":100}"
#define ROBERTA                                                                                    \
    "{\"model_type\":\"roberta\",\"hidden_size\":64,\"intermediate_size\":128,"                    \
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"vocab_size\":100}"
#define QWEN2                                                                                      \
    "{\"model_type\":\"qwen2\",\"hidden_size\":64,\"intermediate_size\":128,"                      \
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,"                 \
    "\"vocab_size\":100,\"sliding_window\":32}"
#define QWEN3                                                                                      \
    "{\"model_type\":\"qwen3\",\"hidden_size\":64,\"intermediate_size\":128,"                      \
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,"                 \
    "\"vocab_size\":100}"
#define DEBERTA                                                                                    \
    "{\"model_type\":\"deberta-v2\",\"hidden_size\":64,\"intermediate_size\":128,"                 \
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"vocab_size\":100,"                        \
    "\"relative_attention\":true,\"position_biased_input\":false,\"share_att_key\":true,"          \
    "\"pos_att_type\":[\"p2c\",\"c2p\"],\"norm_rel_ebd\":\"layer_norm\"}"
#define MODERNBERT                                                                                 \
    "{\"model_type\":\"modernbert\",\"hidden_size\":64,\"intermediate_size\":96,"                  \
    "\"num_hidden_layers\":5,\"num_attention_heads\":4,\"vocab_size\":100,"                        \
    "\"global_attn_every_n_layers\":3,\"global_rope_theta\":160000.0,\"local_attention\":128,"     \
    "\"local_rope_theta\":10000.0,\"norm_eps\":1e-05}"
#define GEMMA4                                                                                     \
    "{\"model_type\":\"gemma4_text\",\"hidden_size\":64,\"intermediate_size\":128,"                \
    "\"num_hidden_layers\":12,\"num_attention_heads\":8,\"num_key_value_heads\":4,"                \
    "\"head_dim\":16,\"global_head_dim\":32,\"num_global_key_value_heads\":2,"                     \
    "\"attention_k_eq_v\":true,\"num_kv_shared_layers\":4,\"use_double_wide_mlp\":true,"           \
    "\"vocab_size\":100,\"vocab_size_per_layer_input\":100}"
#define LFM2                                                                                       \
    "{\"model_type\":\"lfm2\",\"hidden_size\":64,\"intermediate_size\":128,"                       \
    "\"num_hidden_layers\":2,\"num_attention_heads\":8,\"vocab_size\":100}"
#define QWEN35                                                                                     \
    "{\"model_type\":\"qwen3_5_text\",\"hidden_size\":64,\"intermediate_size\":128,"               \
    "\"num_hidden_layers\":4,\"num_attention_heads\":4,\"vocab_size\":100}"
#define SMOLLM3                                                                                    \
    "{\"model_type\":\"smollm3\",\"hidden_size\":64,\"intermediate_size\":128,"                    \
    "\"num_hidden_layers\":5,\"num_attention_heads\":4,\"vocab_size\":100}"
/* with the keys of the published files */
#define OLMO3                                                                                      \
    "{\"model_type\":\"olmo3\",\"hidden_size\":64,\"intermediate_size\":128,"                      \
    "\"num_hidden_layers\":8,\"num_attention_heads\":4,\"vocab_size\":100,\"rope_theta\":500000,"  \
    "\"max_position_embeddings\":65536,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":8.0,"   \
    "\"attention_factor\":1.25,\"original_max_position_embeddings\":8192}}"
#define GRANITE                                                                                    \
    "{\"model_type\":\"granite\",\"hidden_size\":64,\"intermediate_size\":128,"                    \
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"vocab_size\":100,\"rms_norm_eps\":1e-5,"  \
    "\"embedding_multiplier\":12.0,\"residual_multiplier\":0.25,\"attention_multiplier\":0.01,"    \
    "\"logits_scaling\":8}"
#define GRANITE_HYBRID                                                                             \
    "{\"model_type\":\"granitemoehybrid\",\"hidden_size\":64,\"shared_intermediate_size\":128,"    \
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"vocab_size\":100,\"num_local_experts\":"  \
    "0,"                                                                                           \
    "\"layer_types\":[\"attention\",\"attention\"]}"
#define MINISTRAL3                                                                                 \
    "{\"model_type\":\"ministral3\",\"hidden_size\":64,\"intermediate_size\":128,"                 \
    "\"num_hidden_layers\":2,\"num_attention_heads\":8,\"vocab_size\":100,\"rope_parameters\":"    \
    "{\"type\":\"yarn\",\"rope_theta\":1e6,\"factor\":16.0,\"mscale\":1.0,\"mscale_all_dim\":1.0," \
    "\"original_max_position_embeddings\":16384,\"llama_4_scaling_beta\":0.1}}"
#define GPT2 "{\"model_type\":\"gpt2\",\"n_embd\":64,\"n_layer\":2,\"n_head\":4,\"vocab_size\":100}"

/* The base config with one key set; key NULL: unchanged. */
static kvf_status describe(const char *base, const char *key, const char *value, kvf__desc *d)
{
    kvf_json *root = parse(base);
    if (key) ck_assert(kvf_json_set(root, key, parse(value)));
    kvf_status st = kvf__desc_from_hf(ctx, "config.json", root, d);
    kvf_json_free(root);
    return st;
}

START_TEST(absent_keys_take_the_class_defaults)
{
    kvf__desc d = {0};

    ck_assert_int_eq(describe(LLAMA, NULL, NULL, &d), KVF_OK);
    ck_assert_int_eq(d.G, 4);
    ck_assert_int_eq(d.D, 16);
    ck_assert_int_eq(d.position.max, 2048);
    ck_assert(d.norm_eps == 1e-6f && d.block.gated && d.block.causal && !d.tied &&
              !d.block.qkv_bias);
    ck_assert_int_eq(d.block.norm, KVF__RMSNORM);
    ck_assert_int_eq(d.ids.bos, -1);
    ck_assert(d.position.rope.theta == 10000);
    kvf__desc_done(&d);
    ck_assert_int_eq(describe(MISTRAL, NULL, NULL, &d), KVF_OK);
    ck_assert_int_eq(d.G, 8);
    ck_assert_int_eq(d.position.window, 4096);
    ck_assert_int_eq(d.position.max, 131072);
    kvf__desc_done(&d);
    ck_assert_int_eq(describe(GPT2, NULL, NULL, &d), KVF_OK);
    ck_assert_int_eq(d.F, 256);
    ck_assert_int_eq(d.position.max, 1024);
    ck_assert(d.tied && d.block.qkv_bias && d.block.out_bias && d.block.mlp_bias && !d.block.gated);
    ck_assert_int_eq(d.block.norm, KVF__LAYERNORM);
    kvf__desc_done(&d);
    ck_assert_int_eq(describe(QWEN3, NULL, NULL, &d), KVF_OK);
    ck_assert_int_eq(d.D, 128);
    ck_assert_int_eq(d.position.max, 32768);
    ck_assert(d.block.qk_norm && !d.block.qkv_bias && !d.block.out_bias && d.block.causal);
    kvf__desc_done(&d);
    ck_assert_int_eq(describe(BERT, NULL, NULL, &d), KVF_OK);
    ck_assert_int_eq(d.position.max, 512);
    ck_assert_int_eq(d.types, 2);
    ck_assert(d.norm_eps == 1e-12f && d.block.act == KVF__GELU_ERF && d.block.post_norm &&
              !d.block.causal);
    ck_assert_int_eq(d.position.pad, -1);
    kvf__desc_done(&d);
    ck_assert_int_eq(describe(ROBERTA, NULL, NULL, &d), KVF_OK);
    ck_assert_int_eq(d.ids.pad, 1);
    ck_assert_int_eq(d.position.pad, 1);
    ck_assert_int_eq(d.position.max, 510);
    kvf__desc_done(&d);
}
END_TEST

/* The window is a number in every file; it takes effect only if a switch is set. */
START_TEST(window_with_a_switch)
{
    kvf__desc d = {0};

    ck_assert_int_eq(describe(QWEN2, NULL, NULL, &d), KVF_OK);
    ck_assert_int_eq(d.position.window, 0);
    ck_assert(d.block.qkv_bias && !d.block.out_bias && !d.block.mlp_bias && !d.block.qk_norm);
    kvf__desc_done(&d);
    ck_assert_int_eq(describe(QWEN2, "use_sliding_window", "true", &d), KVF_OK);
    ck_assert_int_eq(d.position.window, 32);
    kvf__desc_done(&d);
}
END_TEST

/* A list names the layers; without one they are every fourth. */
START_TEST(layers_without_rope)
{
    static const struct {
        const char *key, *value, *rotated; /* of the layers */
    } rows[] = {{NULL, NULL, "11101"},
                {"no_rope_layers", "null", "11101"},
                {"no_rope_layer_interval", "2", "10101"},
                {"no_rope_layers", "[0,1,1,1,0]", "01110"}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kvf__desc d = {0};
        ck_assert_int_eq(describe(SMOLLM3, rows[i].key, rows[i].value, &d), KVF_OK);
        ck_assert(d.position.rope.theta == 2e6 && d.G == 4 && d.tied);
        for (int64_t l = 0; l < d.L; l++)
            ck_assert_int_eq(kvf__desc_layer(&d, l).R, rows[i].rotated[l] == '1' ? 16 : 0);
        kvf__desc_done(&d);
    }
}
END_TEST

/* Every fourth layer is global, and only its rope is scaled. */
START_TEST(layers_of_olmo_3_differ)
{
    kvf__desc d = {0};

    ck_assert_int_eq(describe(OLMO3, NULL, NULL, &d), KVF_OK);
    for (int64_t l = 0; l < d.L; l++)
        ck_assert_int_eq(kvf__positions_window(&d.position, l), l % 4 == 3 ? 0 : 4096);
    ck_assert(d.position.rope.theta == 5e5 && d.position.local_theta == 5e5);
    ck_assert(d.position.rope.kind == KVF__ROPE_YARN && d.position.scale == 1.25f);
    ck_assert(d.position.local_inv_freq[7] > d.position.inv_freq[7]);
    kvf__desc_done(&d);
    ck_assert_int_eq(describe(OLMO3, "rope_theta", "700", &d), KVF_OK);
    ck_assert(d.position.rope.theta == 700 && d.position.local_theta == 700);
    kvf__desc_done(&d);
}
END_TEST

/* The stream is that of transformers divided by residual_multiplier. */
START_TEST(multipliers_of_granite)
{
    kvf__desc d = {0};

    ck_assert_int_eq(describe(GRANITE, NULL, NULL, &d), KVF_OK);
    ck_assert(d.factors.embed == 48 && d.factors.residual == 0.25f && d.factors.head == 0.125f);
    ck_assert(d.score_scale == 0.01f && d.norm_eps == 16e-5f);
    kvf__desc_done(&d);
    ck_assert_int_eq(describe(GRANITE_HYBRID, NULL, NULL, &d), KVF_OK);
    ck_assert(d.factors.embed == 1 && d.score_scale == 1 && d.F == 128);
    ck_assert_int_eq(kvf__desc_layer(&d, 1).R, 0);
    kvf__desc_done(&d);
    ck_assert_int_eq(describe(GRANITE_HYBRID, "position_embedding_type", "\"rope\"", &d), KVF_OK);
    ck_assert_int_eq(kvf__desc_layer(&d, 1).R, 16);
    kvf__desc_done(&d);
}
END_TEST

/* Queries after the original length grow. Of a model with towers the text model is read. */
START_TEST(queries_of_ministral_3_grow)
{
    kvf__desc d = {0};

    ck_assert_int_eq(describe("{\"model_type\":\"mistral3\",\"vision_config\":{}}", "text_config",
                              MINISTRAL3, &d),
                     KVF_OK);
    ck_assert_str_eq(d.arch_name, "ministral3");
    ck_assert(d.D == 128 && d.position.scale == 1 && d.position.window == 0);
    ck_assert(kvf__query_scale(&d.position, 16383) == 1);
    ck_assert(kvf__query_scale(&d.position, 16384) == (float)(1 + 0.1f * log(2)));
    ck_assert(kvf__query_scale(&d.position, 40000) == (float)(1 + 0.1f * log(3)));
    kvf__desc_done(&d);
}
END_TEST

/* Both forms: files on the Hub, and files written by transformers 5. */
START_TEST(two_sided_windows)
{
    kvf__desc d = {0};

    ck_assert_int_eq(describe(MODERNBERT, NULL, NULL, &d), KVF_OK);
    ck_assert_int_eq(d.position.window, 65);
    for (int64_t l = 0; l < 5; l++)
        ck_assert_int_eq(kvf__positions_window(&d.position, l), l % 3 ? 65 : 0);
    ck_assert(d.position.rope.theta == 160000 && d.position.local_theta == 10000);
    ck_assert(!d.block.causal && !kvf__desc_has(&d, KVF__W_NORM1, 0) && !d.mean_pooled &&
              d.norm_eps == 1e-5f);
    kvf__desc_done(&d);
    ck_assert_int_eq(describe(MODERNBERT, "rope_parameters",
                              "{\"full_attention\":{\"rope_theta\":8000.0},\"sliding_attention\":"
                              "{\"rope_theta\":700.0}}",
                              &d),
                     KVF_OK);
    ck_assert(d.position.rope.theta == 8000 && d.position.local_theta == 700);
    kvf__desc_done(&d);
    ck_assert_int_eq(describe(MODERNBERT, "layer_types",
                              "[\"sliding_attention\",\"full_attention\",\"full_attention\","
                              "\"full_attention\",\"full_attention\"]",
                              &d),
                     KVF_OK);
    ck_assert_int_eq(kvf__positions_window(&d.position, 0), 65);
    ck_assert_int_eq(kvf__positions_window(&d.position, 3), 0);
    kvf__desc_done(&d);
    ck_assert_int_eq(describe(MODERNBERT, "classifier_pooling", "\"mean\"", &d), KVF_OK);
    ck_assert(d.mean_pooled);
    kvf__desc_done(&d);
}
END_TEST

START_TEST(token_ids)
{
    kvf__desc d = {0};

    ck_assert_int_eq(describe(LLAMA, "eos_token_id", "[7,8]", &d), KVF_OK);
    ck_assert_int_eq(d.ids.eos, 7);
    kvf__desc_done(&d);
    ck_assert_int_eq(describe(LLAMA, "pad_token_id", "-1", &d), KVF_OK);
    ck_assert_int_eq(d.ids.pad, -1);
    kvf__desc_done(&d);
    ck_assert_int_eq(describe(LLAMA, "bos_token_id", "3", &d), KVF_OK);
    ck_assert_int_eq(d.ids.bos, 3);
    kvf__desc_done(&d);
}
END_TEST

START_TEST(class_name_stands_in_for_model_type)
{
    kvf__desc d = {0};
    kvf_json *root = parse("{\"architectures\":[\"GPT2LMHeadModel\"],\"n_embd\":64,\"n_layer\":2,"
                           "\"n_head\":4,\"vocab_size\":100}");

    ck_assert_int_eq(kvf__desc_from_hf(ctx, "config.json", root, &d), KVF_OK);
    ck_assert_str_eq(d.arch_name, "gpt2");
    kvf__desc_done(&d);
    kvf_json_free(root);
}
END_TEST

START_TEST(aliases_of_gpt2)
{
    kvf__desc d = {0};
    kvf_json *root = parse("{\"model_type\":\"gpt2\",\"hidden_size\":64,\"num_hidden_layers\":3,"
                           "\"num_attention_heads\":4,\"vocab_size\":100,\"n_ctx\":77}");

    ck_assert_int_eq(kvf__desc_from_hf(ctx, "config.json", root, &d), KVF_OK);
    ck_assert_int_eq(d.L, 3);
    ck_assert_int_eq(d.position.max, 77);
    kvf__desc_done(&d);
    kvf_json_free(root);
}
END_TEST

/* theta inside the dictionary overrides theta outside; rope_scaling overrides rope_parameters. */
START_TEST(precedence_of_rope_keys)
{
    kvf__desc d = {0};
    kvf_json *root = parse(LLAMA);

    kvf_json_set(root, "rope_theta", kvf_json_new_real(5000));
    kvf_json_set(root, "rope_parameters", parse("{\"rope_type\":\"default\",\"rope_theta\":700}"));
    ck_assert_int_eq(kvf__desc_from_hf(ctx, "config.json", root, &d), KVF_OK);
    ck_assert(d.position.rope.theta == 700);
    kvf__desc_done(&d);
    kvf_json_set(root, "rope_scaling", parse("{\"type\":\"linear\",\"factor\":2}"));
    ck_assert_int_eq(kvf__desc_from_hf(ctx, "config.json", root, &d), KVF_OK);
    ck_assert(d.position.rope.theta == 5000 && d.position.rope.kind == KVF__ROPE_LINEAR &&
              d.position.rope.factor == 2);
    kvf__desc_done(&d);
    kvf_json_free(root);
}
END_TEST

/* Every sixth layer is global; the last four layers reuse the K/V of layers 6, 7 (local) and 5. */
START_TEST(layers_of_gemma_4_differ)
{
    kvf__desc d = {0}, copy = {0};
    bool same = false;

    ck_assert_int_eq(describe(GEMMA4, NULL, NULL, &d), KVF_OK);
    const kvf__layer_shape local = kvf__desc_layer(&d, 0), global = kvf__desc_layer(&d, 5);
    ck_assert(local.G == 4 && local.D == 16 && local.R == 16 && local.F == 128 && !local.k_is_v);
    ck_assert(global.G == 2 && global.D == 32 && global.R == 32 && global.k_is_v);
    ck_assert_int_eq(kvf__desc_layer(&d, 8).from, 7);
    ck_assert_int_eq(kvf__desc_layer(&d, 11).from, 5);
    ck_assert_int_eq(kvf__desc_layer(&d, 11).F, 256);
    const kvf__kv_shape kv = kvf__desc_kv(&d);
    ck_assert(kv.L == 8 && kv.G == KVF__BY_LAYER && kvf__kv_at(&kv, 8).width == 8 * 64);
    ck_assert(kvf__kv_at(&kv, 8).heads == 7 * 4 + 2);
    ck_assert(d.score_scale == 1 && d.factors.embed == 8 && d.by_layer.inputs == 256);
    /* a quarter of a head of 32 is rotated: 4 of its 16 pairs */
    ck_assert(d.position.inv_freq[3] > 0 && d.position.inv_freq[4] == 0);
    ck_assert(d.position.local_inv_freq[7] > 0);
    ck_assert_int_eq(kvf__desc_copy(ctx, &d, &copy), KVF_OK);
    ck_assert_int_eq(kvf__desc_same(ctx, &d, &copy, &same), KVF_OK);
    ck_assert(same);
    copy.by_layer.shape[3].F++;
    ck_assert_int_eq(kvf__desc_same(ctx, &d, &copy, &same), KVF_OK);
    ck_assert(!same);
    kvf__desc_done(&copy);
    kvf__desc_done(&d);
    /* inside a model with towers, whose config names the end of text */
    ck_assert_int_eq(describe("{\"model_type\":\"gemma4\",\"eos_token_id\":[1,7],"
                              "\"vision_config\":{\"hidden_size\":1}}",
                              "text_config", GEMMA4, &d),
                     KVF_OK);
    ck_assert(d.L == 12 && kvf__ends_has(&d.ids.ends, 7) && kvf__desc_kv(&d).L == 8);
    ck_assert_str_eq(d.arch_name, "gemma4_text");
    kvf__desc_done(&d);
    /* heads of one size: only the prefix has fewer layers */
    ck_assert_int_eq(describe(GEMMA4, "per_layer_config", "{}", &d), KVF_OK);
    ck_assert(!d.by_layer.heads && kvf__desc_kv(&d).L == 8 && kvf__desc_kv(&d).D == 16);
    kvf__desc_done(&d);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

static const struct refusal {
    const char *base, *key, *value;
    kvf_status status;
    const char *line; /* part of the message */
} refusals[] = {
    {LLAMA, "model_type", "\"albert\"", KVF_EUNSUPPORTED,
     "\"albert\" is not supported (llama, mistral, ministral3"},
    {MODERNBERT, "norm_bias", "true", KVF_EUNSUPPORTED, "norm_bias is true, expected false"},
    {MODERNBERT, "attention_bias", "true", KVF_EUNSUPPORTED, "expected false"},
    {MODERNBERT, "local_attention", "0", KVF_EFORMAT, "a positive integer"},
    {DEBERTA, "relative_attention", "false", KVF_EUNSUPPORTED, "only true is supported"},
    {DEBERTA, "position_biased_input", "true", KVF_EUNSUPPORTED, "only false is supported"},
    {DEBERTA, "pos_att_type", "\"c2p\"", KVF_EUNSUPPORTED, "expected c2p and p2c"},
    {DEBERTA, "norm_rel_ebd", "\"none\"", KVF_EUNSUPPORTED, "expected \"layer_norm\""},
    {DEBERTA, "conv_kernel_size", "3", KVF_EUNSUPPORTED, "conv_kernel_size is 3"},
    {DEBERTA, "type_vocab_size", "2", KVF_EUNSUPPORTED, "type_vocab_size is 2"},
    {DEBERTA, "embedding_size", "32", KVF_EUNSUPPORTED, "embedding_size is 32"},
    {DEBERTA, "pooler_hidden_act", "\"tanh\"", KVF_EUNSUPPORTED, "expected \"gelu\""},
    {DEBERTA, "position_buckets", "2", KVF_EFORMAT,
     "position_buckets is 2 for distances up to 512"},
    {"[]", NULL, NULL, KVF_EFORMAT, "not a JSON object"},
    {"{}", NULL, NULL, KVF_EFORMAT, "model_type is missing"},
    {"{\"model_type\":\"llama\"}", NULL, NULL, KVF_EFORMAT, "hidden_size is missing"},
    {LLAMA, "hidden_size", "\"64\"", KVF_EFORMAT,
     "hidden_size is \"64\", expected a positive integer"},
    {LLAMA, "hidden_size", "0", KVF_EFORMAT, "hidden_size is 0"},
    {LLAMA, "hidden_size", "-64", KVF_EFORMAT, "hidden_size is -64"},
    {LLAMA, "hidden_size", "1e3", KVF_EFORMAT, "hidden_size is 1000.0"},
    {LLAMA, "hidden_size", "66", KVF_EFORMAT,
     "hidden_size 66 is not a multiple of num_attention_heads 4"},
    {LLAMA, "hidden_size", "2000000000", KVF_EFORMAT, "width 2000000000"},
    {LLAMA, "num_hidden_layers", "100000", KVF_EFORMAT, "layers 100000, expected 1 to 1024"},
    {LLAMA, "intermediate_size", "null", KVF_EFORMAT, "intermediate_size is null"},
    {LLAMA, "intermediate_size", "100000", KVF_EFORMAT, "feed-forward width 100000"},
    {LLAMA, "num_key_value_heads", "3", KVF_EFORMAT, "4 attention heads do not divide into 3"},
    {LLAMA, "num_key_value_heads", "[4,2]", KVF_EFORMAT, "num_key_value_heads is [4,2]"},
    {LLAMA, "head_dim", "15", KVF_EFORMAT, "head size 15 is odd"},
    {LLAMA, "hidden_act", "\"mish\"", KVF_EUNSUPPORTED, "hidden_act is \"mish\""},
    {LLAMA, "rms_norm_eps", "0", KVF_EFORMAT, "epsilon is 0"},
    {LLAMA, "rms_norm_eps", "\"small\"", KVF_EFORMAT,
     "rms_norm_eps is \"small\", expected a number"},
    {LLAMA, "attention_bias", "1", KVF_EFORMAT, "attention_bias is 1, expected true or false"},
    {LLAMA, "bos_token_id", "\"x\"", KVF_EFORMAT, "bos_token_id is \"x\""},
    {LLAMA, "is_encoder_decoder", "true", KVF_EUNSUPPORTED, "is_encoder_decoder is true"},
    {LLAMA, "quantization_config", "{\"bits\":4}", KVF_EUNSUPPORTED,
     "quantization_config is {\"bits\":4}"},
    {LLAMA, "layer_types", "[\"full_attention\",\"sliding_attention\"]", KVF_EUNSUPPORTED,
     "layer_types is \"sliding_attention\""},
    {LLAMA, "rope_theta", "-1", KVF_EFORMAT, "rope theta is -1"},
    {LLAMA, "rope_scaling", "\"linear\"", KVF_EFORMAT,
     "rope_scaling is \"linear\", expected an object"},
    {LLAMA, "rope_scaling", "{\"type\":\"dynamic\",\"factor\":2}", KVF_EUNSUPPORTED,
     "rope_type is \"dynamic\", expected default, linear, llama3, yarn or longrope"},
    {LLAMA, "rope_scaling", "{\"rope_type\":\"longrope\",\"short_factor\":[1]}", KVF_EFORMAT,
     "rope short_factor: want a list of"},
    {LLAMA, "rope_scaling", "{\"rope_type\":7}", KVF_EUNSUPPORTED, "rope_type is 7"},
    {LLAMA, "rope_scaling", "{\"type\":\"linear\"}", KVF_EFORMAT, "factor is missing"},
    {LLAMA, "rope_scaling", "{\"type\":\"linear\",\"factor\":0}", KVF_EFORMAT, "rope factor is 0"},
    {LLAMA, "rope_scaling", "{\"rope_type\":\"llama3\",\"factor\":8}", KVF_EFORMAT,
     "low_freq_factor is missing"},
    {LLAMA, "rope_scaling",
     "{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,\"high_freq_factor\":4}",
     KVF_EFORMAT, "expected 0 < low < high"},
    {LLAMA, "rope_parameters", "{\"full_attention\":{\"rope_type\":\"default\"}}", KVF_EUNSUPPORTED,
     "by layer type"},
    {LLAMA, "partial_rotary_factor", "0.5", KVF_EUNSUPPORTED, "partial_rotary_factor is 0.5"},
    {GPT2, "activation_function", "null", KVF_EUNSUPPORTED, "activation_function is null"},
    {GPT2, "add_cross_attention", "true", KVF_EUNSUPPORTED, "add_cross_attention is true"},
    {GPT2, "n_head", "5", KVF_EFORMAT, "n_embd 64 is not a multiple of n_head 5"},
    {MISTRAL, "sliding_window", "0", KVF_EFORMAT, "sliding_window is 0"},
    {QWEN2, "use_sliding_window", "1", KVF_EFORMAT, "use_sliding_window is 1"},
    {BERT, "position_embedding_type", "\"relative_key\"", KVF_EUNSUPPORTED,
     "position_embedding_type is \"relative_key\", expected \"absolute\""},
    {ROBERTA, "position_embedding_type", "\"relative_key_query\"", KVF_EUNSUPPORTED,
     "position_embedding_type is \"relative_key_query\""},
    {BERT, "is_decoder", "true", KVF_EUNSUPPORTED, "is_decoder is true"},
    {BERT, "type_vocab_size", "0", KVF_EFORMAT, "type_vocab_size is 0"},
    {BERT, "hidden_act", "\"mish\"", KVF_EUNSUPPORTED, "hidden_act is \"mish\""},
    {ROBERTA, "pad_token_id", "null", KVF_EFORMAT, "pad_token_id is -1, expected 0 to 510"},
    {ROBERTA, "pad_token_id", "511", KVF_EFORMAT, "pad_token_id is 511"},
    {"{\"model_type\":\"gemma4\"}", NULL, NULL, KVF_EUNSUPPORTED, "\"gemma4\" is not supported"},
    {GEMMA4, "enable_moe_block", "true", KVF_EUNSUPPORTED, "enable_moe_block is true"},
    {GEMMA4, "use_bidirectional_attention", "\"all\"", KVF_EFORMAT,
     "use_bidirectional_attention is \"all\""},
    {GEMMA4, "num_kv_shared_layers", "12", KVF_EFORMAT, "num_kv_shared_layers is 12"},
    {GEMMA4, "num_kv_shared_layers", "8", KVF_EFORMAT,
     "layer 5 has no earlier layer of its kind to share"},
    {GEMMA4, "num_global_key_value_heads", "3", KVF_EFORMAT,
     "layer 5 has 3 key/value heads of size 32 for 8"},
    {GEMMA4, "global_head_dim", "33", KVF_EFORMAT, "rope rotates 33 elements of a head of layer 5"},
    {GEMMA4, "per_layer_config", "{\"2\":{\"head_dim\":32}}", KVF_EUNSUPPORTED,
     "layer 2 has another head size than the layers of its kind"},
    {GEMMA4, "per_layer_config", "{\"5\":{\"hidden_size\":32}}", KVF_EUNSUPPORTED,
     "per_layer_config.5 is {\"hidden_size\":32}, expected only numbers of key/value heads"},
    {GEMMA4, "vocab_size_per_layer_input", "99", KVF_EUNSUPPORTED,
     "vocab_size_per_layer_input is 99, expected the vocabulary's 100"},
    {OLMO3, "layer_types", "[\"full_attention\"]", KVF_EFORMAT, "layer_types has 1 layers"},
    {LFM2, "layer_types", "[\"conv\",\"conv\"]", KVF_EUNSUPPORTED, "no layer has attention"},
    {LFM2, "layer_types", "[\"conv\",\"mamba\"]", KVF_EUNSUPPORTED,
     "layer_types is \"mamba\", expected \"full_attention\" or \"conv\""},
    {LFM2, "layer_types", "[\"full_attention\"]", KVF_EFORMAT, "layer_types has 1 layers"},
    {LFM2, "full_attn_idxs", "[2]", KVF_EFORMAT, "full_attn_idxs is 2, expected the number of"},
    {LFM2, "conv_L_cache", "65", KVF_EFORMAT, "conv_L_cache is 65, expected at most 64"},
    {LFM2, "conv_L_cache", "0", KVF_EFORMAT, "conv_L_cache is 0, expected a positive integer"},
    {LFM2, "conv_bias", "true", KVF_EUNSUPPORTED, "conv_bias is true, expected false"},
    {LFM2, "block_multiple_of", "0", KVF_EFORMAT, "block_multiple_of is 0, expected positive"},
    {QWEN35, "linear_num_value_heads", "3", KVF_EFORMAT,
     "3 value heads do not divide into 16 key heads"},
    {QWEN35, "linear_key_head_dim", "2048", KVF_EFORMAT, "linear_key_head_dim is 2048"},
    {QWEN35, "full_attention_interval", "0", KVF_EFORMAT, "full_attention_interval is 0"},
    {QWEN35, "full_attention_interval", "9", KVF_EUNSUPPORTED, "no layer has attention"},
    {QWEN35, "attention_bias", "true", KVF_EUNSUPPORTED, "attention_bias is true"},
    {GRANITE, "residual_multiplier", "0", KVF_EFORMAT, "residual_multiplier is 0, expected"},
    {GRANITE_HYBRID, "layer_types", "[\"attention\",\"mamba\"]", KVF_EUNSUPPORTED,
     "layer_types is \"mamba\", expected \"full_attention\" in every layer"},
    {GRANITE_HYBRID, "layer_types", "null", KVF_EFORMAT, "layer_types is missing"},
    {GRANITE_HYBRID, "layer_types", "[\"attention\"]", KVF_EFORMAT, "layer_types has 1 layers"},
    {GRANITE_HYBRID, "num_local_experts", "4", KVF_EUNSUPPORTED,
     "num_local_experts is 4, expected 0"},
    {MINISTRAL3, "rope_parameters", "null", KVF_EFORMAT, "llama_4_scaling_beta is missing"},
    {MINISTRAL3, "rope_parameters", "{\"llama_4_scaling_beta\":0.1}", KVF_EUNSUPPORTED,
     "llama_4_scaling_beta is 0.1, expected 0, or a positive number with rope_type yarn"},
    {"{\"model_type\":\"mistral3\"}", NULL, NULL, KVF_EUNSUPPORTED,
     "\"mistral3\" is not supported"},
    {SMOLLM3, "no_rope_layers", "[1,1,1,0]", KVF_EFORMAT,
     "no_rope_layers has 4 layers, expected 5"},
    {SMOLLM3, "no_rope_layer_interval", "0", KVF_EFORMAT, "no_rope_layer_interval is 0, expected"},
    {SMOLLM3, "use_sliding_window", "true", KVF_EUNSUPPORTED, "use_sliding_window is true"},
    {GEMMA4, "hidden_size_per_layer_input", "-1", KVF_EFORMAT, "hidden_size_per_layer_input is -1"},
};
#define N_REFUSALS (sizeof refusals / sizeof *refusals)

START_TEST(refused)
{
    const struct refusal *r = &refusals[_i];
    kvf__desc d = {.L = 123};

    ck_assert_int_eq(describe(r->base, r->key, r->value, &d), r->status);
    ck_assert_msg(strstr(kvf_ctx_error(ctx), r->line) != NULL, "got: %s, want: %s",
                  kvf_ctx_error(ctx), r->line);
    ck_assert_ptr_eq(strstr(kvf_ctx_error(ctx), "config.json: "), kvf_ctx_error(ctx));
    ck_assert_int_eq(d.L, 123); /* untouched */
}
END_TEST

START_TEST(every_allocation_can_fail)
{
    kvf_json *root = parse(LLAMA);
    kvf__desc d = {0};
    int64_t n = 0;

    for (;; n++) {
        kvf__ctx_fail_allocation(ctx, n);
        kvf_status st = kvf__desc_from_hf(ctx, "config.json", root, &d);
        if (!st) break;
        ck_assert_int_eq(st, KVF_ENOMEM);
    }
    kvf__ctx_fail_allocation(ctx, -1);
    ck_assert_int_gt(n, 0);
    kvf__desc_done(&d);
    kvf_json_free(root);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("config_hf");
    TCase *tc = tcase_create("golden");
    tcase_add_checked_fixture(tc, setup_golden, teardown_golden);
    tcase_add_loop_test(tc, known_config, 0, N_CASES);
    suite_add_tcase(suite, tc);

    tc = tcase_create("core");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, absent_keys_take_the_class_defaults);
    tcase_add_test(tc, token_ids);
    tcase_add_test(tc, window_with_a_switch);
    tcase_add_test(tc, layers_without_rope);
    tcase_add_test(tc, layers_of_olmo_3_differ);
    tcase_add_test(tc, multipliers_of_granite);
    tcase_add_test(tc, queries_of_ministral_3_grow);
    tcase_add_test(tc, two_sided_windows);
    tcase_add_test(tc, class_name_stands_in_for_model_type);
    tcase_add_test(tc, aliases_of_gpt2);
    tcase_add_test(tc, precedence_of_rope_keys);
    tcase_add_test(tc, layers_of_gemma_4_differ);
    suite_add_tcase(suite, tc);

    tc = tcase_create("errors");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, refused, 0, N_REFUSALS);
    tcase_add_test(tc, every_allocation_can_fail);
    suite_add_tcase(suite, tc);
    return ck_main(suite);
}
