/* Tests of model descriptions read from GGUF metadata: numbers, values derived from tensor shapes,
 * rotary scaling, and the exact line of each refusal. */
#include "ck.h"
#include "slot.h"

#include <math.h>
#include <string.h>

static kvf_ctx *ctx;

static void setup(void)
{
    ck_assert_int_eq(kvf_ctx_create(NULL, &ctx), KVF_OK);
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

#define META                                                                                       \
    "{\"general.architecture\":\"llama\",\"llama.block_count\":30,\"llama.context_length\":8192,"  \
    "\"llama.embedding_length\":576,\"llama.feed_forward_length\":1536,"                           \
    "\"llama.attention.head_count\":9,\"llama.attention.head_count_kv\":3,"                        \
    "\"llama.rope.freq_base\":100000.0,\"llama.attention.layer_norm_rms_epsilon\":9."              \
    "999999747378752e-06,"                                                                         \
    "\"llama.rope.dimension_count\":64,\"tokenizer.ggml.bos_token_id\":1,"                         \
    "\"tokenizer.ggml.eos_token_id\":2}"

static const float divisors[32] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1.5f, 2, 2, 2, 2, 2,
                                   8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8,    8, 8, 8, 8, 8};

static kvf_status describe(const char *key, const char *value, const kvf__table *table,
                           kvf__desc *d)
{
    static const kvf__table none;
    kvf_json *root = parse(META);
    if (key) ck_assert(kvf_json_set(root, key, parse(value)));
    if (!key || strcmp(key, "llama.vocab_size")) {
        kvf_json *size = kvf_json_new_int(49152);
        ck_assert(kvf_json_set(root, "llama.vocab_size", size));
    }
    kvf_status st = kvf__desc_from_gguf(ctx, "m.gguf", root, table ? table : &none, d);
    kvf_json_free(root);
    return st;
}

/* Ends of text, turn and message all end generation. */
START_TEST(ends)
{
    kvf__desc d = {0};

    ck_assert_int_eq(describe("tokenizer.ggml.eot_token_id", "7", NULL, &d), KVF_OK);
    ck_assert_int_eq(d.ids.eos, 2);
    ck_assert(d.ids.ends.n == 2 && d.ids.ends.id[0] == 2 && d.ids.ends.id[1] == 7);
    kvf__desc_done(&d);
    ck_assert_int_eq(describe("tokenizer.ggml.eom_token_id", "2", NULL, &d), KVF_OK);
    ck_assert(d.ids.ends.n == 1 && d.ids.ends.id[0] == 2);
    kvf__desc_done(&d);
}
END_TEST

START_TEST(numbers)
{
    kvf__desc d = {0};

    ck_assert_msg(describe(NULL, NULL, NULL, &d) == KVF_OK, "%s", kvf_ctx_error(ctx));
    ck_assert(d.gguf && d.tied && !d.block.qkv_bias && d.block.gated);
    ck_assert_int_eq(d.L, 30);
    ck_assert_int_eq(d.D, 64);
    ck_assert_int_eq(d.G, 3);
    ck_assert_int_eq(d.V, 49152);
    ck_assert_int_eq(d.ids.bos, 1);
    ck_assert_int_eq(d.ids.pad, -1);
    ck_assert(d.norm_eps == 1e-5f && d.score_scale == 0.125f && d.position.rope.theta == 100000);
    kvf__desc_done(&d);
}
END_TEST

START_TEST(the_tensors_are_read)
{
    static const float any[4];
    kvf__table table = {0};
    kvf__desc plain = {0}, d = {0};
    kvf__view bias = {.data = any, .dtype = KVF__F32, .rank = 1, .dim = {576}};
    kvf__view freqs = {.data = divisors, .dtype = KVF__F32, .rank = 1, .dim = {32}};

    ck_assert_int_eq(describe(NULL, NULL, NULL, &plain), KVF_OK);
    ck_assert_int_eq(kvf__table_add(ctx, &table, "blk.0.attn_q.bias", bias), KVF_OK);
    ck_assert_int_eq(kvf__table_add(ctx, &table, "output.weight", bias), KVF_OK);
    ck_assert_int_eq(kvf__table_add(ctx, &table, "rope_freqs.weight", freqs), KVF_OK);
    ck_assert_int_eq(describe(NULL, NULL, &table, &d), KVF_OK);
    ck_assert(d.block.qkv_bias && !d.block.out_bias && !d.tied);
    for (int i = 0; i < 32; i++)
        ck_assert(d.position.inv_freq[i] == plain.position.inv_freq[i] / divisors[i]);
    kvf__desc_done(&d);

    table.items[2].view.dim[0] = 31;
    ck_assert_int_eq(describe(NULL, NULL, &table, &d), KVF_ESHAPE);
    ck_assert_str_eq(kvf_ctx_error(ctx), "m.gguf: rope_freqs.weight is [31], expected [32]");
    kvf__desc_done(&plain);
    kvf__table_done(&table);
}
END_TEST

START_TEST(rope_scaling)
{
    kvf__desc plain = {0}, d = {0};

    ck_assert_int_eq(describe(NULL, NULL, NULL, &plain), KVF_OK);
    ck_assert_int_eq(describe("llama.rope.scale_linear", "4.0", NULL, &d), KVF_OK);
    ck_assert_int_eq(d.position.rope.kind, KVF__ROPE_LINEAR);
    ck_assert(d.position.inv_freq[5] == plain.position.inv_freq[5] / 4);
    kvf__desc_done(&d);

    kvf_json *root = parse(META);
    kvf_json_set(root, "llama.vocab_size", kvf_json_new_int(49152));
    kvf_json_set(root, "llama.rope.scaling.type", kvf_json_new_str("yarn"));
    kvf_json_set(root, "llama.rope.scaling.factor", kvf_json_new_real(4));
    kvf_json_set(root, "llama.rope.scaling.original_context_length", kvf_json_new_int(2048));
    kvf__table none = {0};
    ck_assert_int_eq(kvf__desc_from_gguf(ctx, "m.gguf", root, &none, &d), KVF_OK);
    ck_assert_int_eq(d.position.rope.kind, KVF__ROPE_YARN);
    ck_assert(fabs(d.position.scale - (0.1 * log(4) + 1)) < 1e-6);
    ck_assert(d.position.inv_freq[0] == 1 && d.position.inv_freq[31] < plain.position.inv_freq[31]);
    kvf__desc_done(&d);
    kvf__desc_done(&plain);
    kvf_json_free(root);
}
END_TEST

/* A file of architecture olmo2 with a window is OLMo 3. */
START_TEST(windows_by_layer)
{
    static const char META_3[] =
        "{\"general.architecture\":\"olmo2\",\"olmo2.block_count\":4,\"olmo2.vocab_size\":9,"
        "\"olmo2.context_length\":64,\"olmo2.embedding_length\":16,\"olmo2.feed_forward_length\":8,"
        "\"olmo2.attention.head_count\":2,\"olmo2.attention.layer_norm_rms_epsilon\":1e-6}";
    static const struct {
        const char *pattern, *global; /* of the layers */
    } rows[] = {{NULL, "0001"}, {"2", "0101"}, {"[true,false,true,true]", "0100"}};
    static const kvf__table none;
    kvf__desc d = {0};
    char *config = NULL;

    kvf_json *root = parse(META_3);
    ck_assert_int_eq(kvf__desc_from_gguf(ctx, "m.gguf", root, &none, &d), KVF_OK);
    ck_assert_str_eq(d.arch_name, "olmo2");
    kvf__desc_done(&d);
    kvf_json_set(root, "olmo2.attention.sliding_window", kvf_json_new_int(7));
    kvf_json_set(root, "olmo2.rope.freq_base", kvf_json_new_real(500));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].pattern)
            kvf_json_set(root, "olmo2.attention.sliding_window_pattern", parse(rows[i].pattern));
        ck_assert_int_eq(kvf__desc_from_gguf(ctx, "m.gguf", root, &none, &d), KVF_OK);
        ck_assert_str_eq(d.arch_name, "olmo3");
        for (int64_t l = 0; l < d.L; l++)
            ck_assert_int_eq(kvf__positions_window(&d.position, l),
                             rows[i].global[l] == '1' ? 0 : 7);
        ck_assert_int_eq(kvf__desc_to_hf(ctx, "m.gguf", &d, &config), KVF_OK);
        kvf_json *written = parse(config);
        const kvf_json *rope = kvf_json_get(kvf_json_get(written, "rope_parameters"),
                                            "sliding_attention");
        ck_assert_double_eq(kvf_json_real(kvf_json_get(rope, "rope_theta"), 0), 500);
        kvf_json_free(written);
        kvf__free(config);
        kvf__desc_done(&d);
    }
    kvf_json_set(root, "olmo2.attention.sliding_window_pattern", parse("[true]"));
    ck_assert_int_eq(kvf__desc_from_gguf(ctx, "m.gguf", root, &none, &d), KVF_EFORMAT);
    ck_assert_str_eq(kvf_ctx_error(ctx), "m.gguf: olmo2.attention.sliding_window_pattern has 1 "
                                         "layers, expected 4");
    kvf_json_free(root);
}
END_TEST

static const struct refusal {
    const char *key, *value;
    kvf_status status;
    const char *line; /* part of the message */
} REFUSALS[] = {
    {"general.architecture", "\"gemma\"", KVF_EUNSUPPORTED,
     "\"gemma\" is not supported in a GGUF (llama"},
    {"general.architecture", "7", KVF_EFORMAT, "general.architecture is missing"},
    {"llama.block_count", "\"x\"", KVF_EFORMAT, "llama.block_count is \"x\""},
    {"llama.attention.head_count_kv", "[3,3,1]", KVF_EUNSUPPORTED, "head_count_kv is a list"},
    {"llama.feed_forward_length", "{\"array\":\"u32\",\"count\":100}", KVF_EUNSUPPORTED,
     "feed_forward_length is a list"},
    {"llama.residual_scale", "0.22", KVF_EUNSUPPORTED, "llama.residual_scale is 0.22"},
    {"general.architecture", "\"granitehybrid\"", KVF_EUNSUPPORTED, "\"granitehybrid\" is not"},
    {"llama.expert_count", "8", KVF_EUNSUPPORTED, "llama.expert_count is 8"},
    {"llama.attention.causal", "false", KVF_EUNSUPPORTED, "llama.attention.causal is false"},
    {"llama.attention.value_length", "32", KVF_EUNSUPPORTED, "keys 64, values 32"},
    {"llama.rope.dimension_count", "32", KVF_EUNSUPPORTED, "rotated 32"},
    {"llama.rope.scaling.type", "\"longrope\"", KVF_EUNSUPPORTED, "scaling.type is \"longrope\""},
    {"llama.embedding_length", "0", KVF_EFORMAT, "embedding_length is 0"},
    {"llama.attention.layer_norm_rms_epsilon", "null", KVF_EFORMAT, "epsilon is null"},
    {"llama.vocab_size", "-5", KVF_EFORMAT, "vocab_size is -5"},
};
enum { N_REFUSALS = sizeof REFUSALS / sizeof REFUSALS[0] };

static void check_refusal(const struct refusal *r, kvf_status status)
{
    ck_assert_int_eq(status, r->status);
    ck_assert_msg(strstr(kvf_ctx_error(ctx), r->line) != NULL, "got: %s, want: %s",
                  kvf_ctx_error(ctx), r->line);
}

START_TEST(refused)
{
    const struct refusal *r = &REFUSALS[_i];
    kvf__desc d = {0};

    check_refusal(r, describe(r->key, r->value, NULL, &d));
}
END_TEST

#define QWEN3_5                                                                                    \
    "{\"general.architecture\":\"qwen35\",\"qwen35.block_count\":9,\"qwen35.context_length\":64,"  \
    "\"qwen35.embedding_length\":16,\"qwen35.feed_forward_length\":24,"                            \
    "\"qwen35.attention.head_count\":4,\"qwen35.attention.head_count_kv\":2,"                      \
    "\"qwen35.attention.key_length\":8,\"qwen35.attention.value_length\":8,"                       \
    "\"qwen35.rope.dimension_count\":4,\"qwen35.attention.layer_norm_rms_epsilon\":1e-6,"          \
    "\"qwen35.vocab_size\":40,\"qwen35.ssm.conv_kernel\":4,\"qwen35.ssm.group_count\":2,"          \
    "\"qwen35.ssm.time_step_rank\":4,\"qwen35.ssm.state_size\":6,\"qwen35.ssm.inner_size\":36,"    \
    "\"qwen35.nextn_predict_layers\":1}"

static kvf_status describe_qwen3_5(const char *key, const char *value, kvf__desc *d)
{
    static const kvf__table none;
    kvf_json *root = parse(QWEN3_5);

    if (value) ck_assert(kvf_json_set(root, key, parse(value)));
    if (key && !value) kvf_json_remove(root, key);
    kvf_status st = kvf__desc_from_gguf(ctx, "m.gguf", root, &none, d);
    kvf_json_free(root);
    return st;
}

/* Every fourth layer has attention; the block that predicts more tokens is left out. */
START_TEST(layers_without_attention)
{
    kvf__desc d = {0};

    ck_assert_msg(!describe_qwen3_5(NULL, NULL, &d), "%s", kvf_ctx_error(ctx));
    ck_assert_int_eq(d.L, 8);
    for (int64_t l = 0; l < d.L; l++)
        ck_assert(kvf__layer_mixes(&d, l) == (l % 4 != 3));
    ck_assert_int_eq(d.mixer.key_heads, 2);
    ck_assert_int_eq(d.mixer.value_heads, 4);
    ck_assert_int_eq(d.mixer.key_dim, 6);
    ck_assert_int_eq(d.mixer.value_dim, 9);
    kvf__desc_done(&d);
}
END_TEST

static const struct refusal MIXERS[] = {
    {"qwen35.nextn_predict_layers", "9", KVF_EFORMAT,
     "nextn_predict_layers is 9, expected less than block_count"},
    {"qwen35.nextn_predict_layers", "-1", KVF_EFORMAT, "nextn_predict_layers is -1"},
    {"qwen35.ssm.inner_size", "35", KVF_EFORMAT,
     "ssm.inner_size is 35, expected 4 heads of at most 1024 values"},
    {"qwen35.ssm.inner_size", "2147483647", KVF_EFORMAT, "expected at most"},
    {"qwen35.ssm.state_size", "1025", KVF_EFORMAT, "state_size is 1025, expected at most 1024"},
    {"qwen35.ssm.group_count", "3", KVF_EFORMAT, "4 value heads do not divide into 3 key heads"},
    {"qwen35.ssm.conv_kernel", NULL, KVF_EFORMAT, "qwen35.ssm.conv_kernel is missing"},
};
enum { N_MIXERS = sizeof MIXERS / sizeof MIXERS[0] };

START_TEST(mixers_refused)
{
    const struct refusal *r = &MIXERS[_i];
    kvf__desc d = {0};

    check_refusal(r, describe_qwen3_5(r->key, r->value, &d));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("config_gguf");
    TCase *core = tcase_create("core"), *errors = tcase_create("errors");
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_test(core, ends);
    tcase_add_test(core, numbers);
    tcase_add_test(core, the_tensors_are_read);
    tcase_add_test(core, rope_scaling);
    tcase_add_test(core, windows_by_layer);
    tcase_add_test(core, layers_without_attention);
    suite_add_tcase(suite, core);
    tcase_add_checked_fixture(errors, setup, teardown);
    tcase_add_loop_test(errors, refused, 0, N_REFUSALS);
    tcase_add_loop_test(errors, mixers_refused, 0, N_MIXERS);
    suite_add_tcase(suite, errors);
    return ck_main(suite);
}
