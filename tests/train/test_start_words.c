/* Real words on bidirectional bases: their keys and values between the start and end tokens,
 * against transformers (tests/golden/make_words_golden.py). Also tests runs that start from them,
 * and their nearest vocabulary items. */
#include "encoder_int.h"
#include "golden_base.h"
#include "renderer.h"

#include <kvfold/kvfold.h>
#include <string.h>

static const char *const MODELS[] = {"bert", "roberta"};
static const char *const POST[] = {"BertProcessing", "RobertaProcessing"};
static const char WORD[] = "fold9";
enum { N_MODELS = 2, P = 5, L = 3, G = 4, D = 8, COUNT = L * 2 * G * P * D };

static kvf_ctx *ctx;
static char folder[512], data[512], out[512];
static kvf__weights golden_file;

static void setup(void)
{
    ck_assert_int_eq(kvf_ctx_create(&(kvf_ctx_options){.threads = 2}, &ctx), KVF_OK);
    ck_assert_int_eq(
        kvf__safetensors_open(ctx, ck_source("tests/golden/words.safetensors"), &golden_file),
        KVF_OK);
}

static void teardown(void)
{
    kvf__weights_close(&golden_file);
    kvf_ctx_free(ctx);
}

/* The base whose tokenizer puts <s> and </s> around a text, and rows to learn. */
static void make_base(int model)
{
    static const char NONE[] = "\"post_processor\":null";
    const char *dir = ck_tmpdir();
    char plain[2048], wrapped[2560];

    golden_base(ctx, dir, MODELS[model], folder);
    toy_tokenizer(plain, sizeof plain);
    const char *at = strstr(plain, NONE);
    ck_assert_ptr_nonnull(at);
    snprintf(wrapped, sizeof wrapped,
             "%.*s\"post_processor\":{\"type\":\"%s\",\"cls\":[\"<s>\",59],\"sep\":[\"</s>\",60],"
             "\"trim_offsets\":true,\"add_prefix_space\":false}%s",
             (int)(at - plain), plain, POST[model], at + strlen(NONE));
    toy_write(folder, "tokenizer.json", wrapped);
    toy_write(dir, "rows.jsonl",
              "{\"text\":\"g\",\"label\":\"yes\"}\n{\"text\":\"b\",\"label\":\"no\"}\n");
    toy_path(data, dir, "rows.jsonl");
    toy_path(out, dir, "run.h5");
}

static const void *stored(int model, const char *what)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%s", MODELS[model], what);
    const kvf__view *view = kvf__table_find(&golden_file.table, name);
    ck_assert_msg(view != NULL, "no tensor %s", name);
    return view->data;
}

static kvf_base *open_base(void)
{
    const kvf_base_options exact = {.precision = KVF_PRECISION_F32};
    kvf_base *base = NULL;
    ck_assert_msg(!kvf_base_open(ctx, folder, &exact, &base), "%s", kvf_ctx_error(ctx));
    return base;
}

static kvf_train_options start_from(const char *method, const char *text)
{
    kvf_train_options o = kvf_train_defaults();
    o.base = folder;
    o.data = data;
    o.out = out;
    o.task = "seq-cls";
    o.method = method;
    ck_assert(!kvf_train_set(ctx, &o, "init", *text ? "text" : "vocab"));
    o.init_text = text;
    o.prefix_length = *text ? (int64_t)strlen(text) : P;
    o.steps = 1;
    o.batch_size = 2;
    o.precision = KVF_PRECISION_F32;
    o.lr = o.head_lr = 1e-30;
    o.force = true;
    return o;
}

/* The prefix emitted by an untrained run. */
static kvf_prefix *started(kvf_base *base, kvf_train_options o)
{
    kvf_train_result result;
    kvf_prefix *prefix = NULL;
    ck_assert_msg(!kvf_train(ctx, &o, &result), "%s", kvf_ctx_error(ctx));
    ck_assert_msg(!kvf_prefix_open_on(ctx, out, base, KVF_CHECKPOINT_LAST, &prefix), "%s",
                  kvf_ctx_error(ctx));
    return prefix;
}

/* ---- core ------------------------------------------------------------------------------------ */

/* f32 sums of 32 in another order than torch's. */
START_TEST(keys_and_values_are_transformers)
{
    kvf__prefix kv = {0};
    float inputs[L * P * 32];
    make_base(_i);
    kvf_base *base = open_base();
    const int32_t *ids = stored(_i, "ids");

    ck_assert_int_eq(kvf__prefix_init(ctx, &kv, L, G, P, D), KVF_OK);
    ck_assert_msg(!kvf__base_keys_values(ctx, base, ids + 1, &kv, inputs), "%s",
                  kvf_ctx_error(ctx));
    ck_close(kv.kv, stored(_i, "kv"), COUNT, 0, 2e-5);
    ck_close(inputs, stored(_i, "inputs"), L * P * 32, 0, 2e-5);
    kvf__prefix_done(&kv);
    kvf_base_free(base);
}
END_TEST

/* direct copies them, mlp solves its last layer for them, projected starts from the inputs of the
 * layers. Rows begin at P, as with any prefix. */
START_TEST(runs_start_from_words)
{
    static const struct {
        const char *method;
        double most;
    } METHODS[] = {{"direct", 1e-6}, {"mlp", 1e-4}, {"projected", 1e-5}};
    make_base(_i % N_MODELS);
    kvf_base *base = open_base();
    kvf_prefix *prefix = started(base, start_from(METHODS[_i / N_MODELS].method, WORD));

    ck_assert_double_le(ck_rel_l2(prefix->file.prefix.kv, stored(_i % N_MODELS, "kv"), COUNT),
                        METHODS[_i / N_MODELS].most);
    ck_assert_int_eq(prefix->file.id.position_start, P);
    kvf_prefix_free(prefix);
    kvf_base_free(base);
}
END_TEST

/* Vocabulary words: another seed draws others, and they are not random weights. */
START_TEST(vocabulary_words_start_a_run)
{
    make_base(_i);
    kvf_base *base = open_base();
    kvf_train_options o = start_from("direct", "");
    kvf_prefix *a = started(base, o), *b = started(base, o);
    o.seed = 1;
    kvf_prefix *c = started(base, o);

    ck_assert_mem_eq(a->file.prefix.kv, b->file.prefix.kv, COUNT * sizeof(float));
    ck_assert_double_gt(ck_rel_l2(a->file.prefix.kv, c->file.prefix.kv, COUNT), 0.1);
    ck_assert_double_gt(ck_rel_l2(a->file.prefix.kv, (float[COUNT]){0}, COUNT), 0.5);
    kvf_prefix_free(a);
    kvf_prefix_free(b);
    kvf_prefix_free(c);
    kvf_base_free(base);
}
END_TEST

/* A single word is its own nearest item in every layer. */
START_TEST(words_name_the_word)
{
    static const int64_t CHUNKS[] = {0, 7, 60};
    make_base(_i % N_MODELS);
    kvf_base *base = open_base();
    kvf_prefix *prefix = started(base, start_from("direct", "k"));
    const kvf_words_options options = {.top = 2, .chunk = CHUNKS[_i / N_MODELS]};
    kvf_json *found = NULL;

    ck_assert_msg(!kvf_words(ctx, base, prefix, &options, NULL, &found), "%s", kvf_ctx_error(ctx));
    const kvf_json *layers = kvf_json_get(found, "layers");
    ck_assert_uint_eq(kvf_json_size(layers), L);
    for (size_t l = 0; l < L; l++)
        for (int value = 0; value < 2; value++) {
            const kvf_json *token = kvf_json_at(kvf_json_get(kvf_json_at(layers, l), "tokens"), 0);
            const kvf_json *best = kvf_json_at(kvf_json_get(token, value ? "value" : "key"), 0);
            ck_assert_str_eq(kvf_json_str(kvf_json_get(best, "text"), NULL), "k");
            ck_assert_double_eq_tol(kvf_json_real(kvf_json_get(best, "cosine"), 0), 1, 1e-5);
        }
    kvf_json_free(found);
    kvf_prefix_free(prefix);
    kvf_base_free(base);
}
END_TEST

/* ---- limits ---------------------------------------------------------------------------------- */

/* 40 positions: 37 words between two tokens, and a row of three after them. */
START_TEST(the_longest_prefix_starts)
{
    make_base(_i);
    kvf_base *base = open_base();
    kvf_train_options o = start_from("direct", "");
    o.prefix_length = 37;
    kvf_prefix_free(started(base, o));
    kvf_base_free(base);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("start_words");
    TCase *core = ck_case(suite, "core", setup, teardown, 60);
    TCase *limits = ck_case(suite, "limits", setup, teardown, 60);

    tcase_add_loop_test(core, keys_and_values_are_transformers, 0, N_MODELS);
    tcase_add_loop_test(core, runs_start_from_words, 0, 3 * N_MODELS);
    tcase_add_loop_test(core, vocabulary_words_start_a_run, 0, N_MODELS);
    tcase_add_loop_test(core, words_name_the_word, 0, 3 * N_MODELS);
    tcase_add_loop_test(limits, the_longest_prefix_starts, 0, N_MODELS);
    return ck_main(suite);
}
