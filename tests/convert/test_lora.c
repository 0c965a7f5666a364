/* Tests of LoRAs folded into a base. tests/golden/lora holds adapters saved by PEFT, and the logits
 * of the models after its merge_and_unload() (make_lora_golden.py). */
#include "golden_base.h"
#include "golden_model.h"
#include "lora.h"
#include "open_base.h"
#include "toy_lora.h"

#include <kvfold/io.h>

static kvf_ctx *own;
static const char *place;

static void setup(void)
{
    const kvf_ctx_options options = {.threads = 2};
    place = ck_tmpdir();
    ck_assert_int_eq(kvf_ctx_create(&options, &own), KVF_OK);
}

static void teardown(void)
{
    kvf_ctx_free(own);
}

static const char *adapter(const char *name, char path[256])
{
    char below[200];
    snprintf(below, sizeof below, "tests/golden/lora/%s", name);
    snprintf(path, 256, "%s", ck_source(below));
    return path;
}

/* With a tokenizer smaller than the smallest vocabulary. */
static const char *small_base(const char *name, char path[512])
{
    static const char TOKENIZER[] =
        "{\"version\":\"1.0\",\"added_tokens\":[{\"id\":0,\"content\":\"<s>\",\"special\":true},"
        "{\"id\":1,\"content\":\"</"
        "s>\",\"special\":true}],\"pre_tokenizer\":{\"type\":\"ByteLevel\","
        "\"add_prefix_space\":false},\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":"
        "\"BPE\","
        "\"merges\":[],\"vocab\":{\"a\":2}}}";
    golden_base(own, place, name, path);
    toy_write(path, "tokenizer.json", TOKENIZER);
    return path;
}

static kvf_base *opened(const char *path, const kvf_base_options *how)
{
    kvf_base *base = NULL;
    ck_assert_msg(!kvf_base_open(own, path, how, &base), "%s", kvf_ctx_error(own));
    return base;
}

/* Logits at the labels of rows; the caller owns out [n_labels, V]. */
static float *logits_of(const kvf_base *base, const kvf__batch *batch, const kvf__prefix *prefix)
{
    const int64_t V = kvf__model_desc(base->model)->V;
    const kvf__pass_limits limits = {.rows = GOLDEN_ROWS,
                                     .tokens = batch->n_tokens,
                                     .row_len = 64,
                                     .labels = batch->n_labels,
                                     .P = prefix ? prefix->P : 0};
    const kvf__input input = {.batch = batch,
                              .condition.prefix = prefix,
                              .condition.position_start = prefix ? prefix->P : 0};
    float *logits = malloc((size_t)(batch->n_labels * V) * sizeof *logits);
    kvf__pass *pass = NULL;
    ck_assert_msg(!kvf__pass_create(own, base->model, &limits, &pass), "%s", kvf_ctx_error(own));
    ck_assert_msg(!kvf__pass_fwd(own, pass, &input), "%s", kvf_ctx_error(own));
    ck_assert_int_eq(kvf__pass_lm_logits(own, pass, logits), KVF_OK);
    kvf__pass_free(pass);
    return logits;
}

/* ---- golden ---------------------------------------------------------------------------------- */

static const char *const NAMES[] = {"llama_tied", "llama_untied", "gpt2", "gpt_neox", "phi3"};
enum { N_NAMES = sizeof NAMES / sizeof NAMES[0] };

START_TEST(computes_as_pefts_merged_model)
{
    char path[512], folder[256];
    const kvf_base_options how = {.precision = KVF_PRECISION_F32,
                                  .lora = adapter(NAMES[_i], folder)};
    kvf_base *base = opened(small_base(NAMES[_i], path), &how);
    kvf__weights want = {0};
    golden g;

    golden_load(&g, NAMES[_i], KVF__F32);
    ck_assert_int_eq(
        kvf__safetensors_open(own, ck_source("tests/golden/lora/want.safetensors"), &want), KVF_OK);
    const size_t n = (size_t)(g.batch.n_labels * kvf__model_desc(base->model)->V);
    for (int with = 0; with < 2; with++) {
        float *got = logits_of(base, &g.batch, with ? &g.prefix : NULL);
        ck_close(got, golden_stored(&want, NAMES[_i], with ? "logits" : "bare_logits"), n, 1e-4,
                 2e-5);
        free(got);
    }
    kvf__weights_close(&want);
    golden_unload(&g);
    kvf_base_free(base);
}
END_TEST

/* Packed once, copied in f32, or read layer by layer: the same bits. */
START_TEST(keeps_its_bits_however_weights_are_kept)
{
    char path[512], folder[256];
    golden g;
    kvf_base_options how = {.precision = KVF_PRECISION_F32, .lora = adapter(NAMES[_i], folder)};
    small_base(NAMES[_i], path);
    golden_load(&g, NAMES[_i], KVF__F32);
    kvf_base *base = opened(path, &how);
    const size_t bytes = (size_t)(g.batch.n_labels * kvf__model_desc(base->model)->V) *
                         sizeof(float);
    float *want = logits_of(base, &g.batch, &g.prefix);
    kvf_base_free(base);
    for (int i = 0; i < 2; i++) {
        how.weight_dtype = i ? KVF_WEIGHTS_AUTO : KVF_WEIGHTS_F32;
        how.stream_layers = i;
        base = opened(path, &how);
        float *got = logits_of(base, &g.batch, &g.prefix);
        ck_assert_mem_eq(got, want, bytes);
        free(got);
        kvf_base_free(base);
    }
    free(want);
    golden_unload(&g);
}
END_TEST

/* A copy that is trained itself begins with the folded weights. */
START_TEST(trained_weights_begin_folded)
{
    char path[512], folder[256];
    golden g;
    const kvf__train every = {.what = KVF__TRAIN_EVERYTHING};
    const kvf_base_options how = {
        .precision = KVF_PRECISION_F32, .backward = true, .lora = adapter(NAMES[_i], folder)};
    kvf_base *base = opened(small_base(NAMES[_i], path), &how), *copy = NULL;
    golden_load(&g, NAMES[_i], KVF__F32);
    const size_t n = (size_t)(g.batch.n_labels * kvf__model_desc(base->model)->V);
    ck_assert_int_eq(kvf__base_copy_as(own, base, &how, &every, &copy), KVF_OK);
    ck_assert_str_eq(kvf_base_hash(copy), kvf_base_hash(base));
    float *want = logits_of(base, &g.batch, NULL), *got = logits_of(copy, &g.batch, NULL);
    ck_close(got, want, n, 1e-4, 2e-5); /* norms are not folded there */
    free(want);
    free(got);
    golden_unload(&g);
    kvf_base_free(copy);
    kvf_base_free(base);
}
END_TEST

/* Rows of a GGUF are permuted and quantised: the result equals the base file of f32 values. */
START_TEST(folds_into_what_a_gguf_means)
{
    static const int32_t IDS[] = {5, 9, 33, 2, 17, 40, 8}, AT[] = {0, 1, 2, 3, 4, 5};
    static const int64_t START[] = {0, 7};
    const kvf__batch batch = {
        .n_rows = 1, .start = START, .n_tokens = 7, .ids = IDS, .n_labels = 6, .label_at = AT};
    char folder[512], h5[512], kind[16];
    const char *gguf = ck_source("tests/golden/gguf_spm.gguf");
    toy_path(folder, place, "lora");
    toy_path(h5, place, "base.h5");
    const kvf_import_options import = {.path = gguf, .out = h5};
    const kvf_base_options how = {.precision = KVF_PRECISION_F32, .lora = folder};
    ck_assert_msg(!toy_lora(own, folder, 3), "%s", kvf_ctx_error(own));
    ck_assert_msg(!kvf_import(own, &import, kind), "%s", kvf_ctx_error(own));

    kvf_base *bare = opened(gguf, &(kvf_base_options){.precision = KVF_PRECISION_F32});
    kvf_base *ours = opened(gguf, &how), *plain = opened(h5, &how);
    const size_t bytes = 6 * (size_t)kvf__model_desc(ours->model)->V * sizeof(float);
    float *got = logits_of(ours, &batch, NULL), *want = logits_of(plain, &batch, NULL);
    float *without = logits_of(bare, &batch, NULL);
    ck_assert_mem_eq(got, want, bytes);
    ck_assert_mem_ne(got, without, bytes);
    free(got);
    free(want);
    free(without);
    kvf_base_free(bare);
    kvf_base_free(ours);
    kvf_base_free(plain);
}
END_TEST

/* ---- identity -------------------------------------------------------------------------------- */

START_TEST(is_another_base_by_name_and_hash)
{
    char path[512], first[512], second[512], body[256], whole[256];
    char hash[3][33];
    golden_base(own, place, "gpt2", path);
    const char *const loras[] = {NULL, adapter("gpt2", whole), adapter("gpt2_body", body)};
    for (int i = 0; i < 3; i++) {
        kvf_base *base = opened(path, &(kvf_base_options){.lora = loras[i]});
        snprintf(hash[i], sizeof hash[i], "%s", kvf_base_hash(base));
        ck_assert_str_eq(kvf_base_name(base), i == 0   ? "model_gpt2"
                                              : i == 1 ? "model_gpt2+gpt2"
                                                       : "model_gpt2+gpt2_body");
        kvf_base_free(base);
    }
    ck_assert_str_ne(hash[0], hash[1]);
    ck_assert_str_eq(hash[1], hash[2]); /* for any prefix of its names */

    const char *gguf = ck_source("tests/golden/gguf_spm.gguf");
    toy_path(first, place, "first");
    toy_path(second, place, "second");
    ck_assert_int_eq(toy_lora(own, first, 1), KVF_OK);
    ck_assert_int_eq(toy_lora(own, second, 2), KVF_OK);
    kvf_base *one = opened(gguf, &(kvf_base_options){.lora = first});
    kvf_base *two = opened(gguf, &(kvf_base_options){.lora = second});
    ck_assert_str_ne(kvf_base_hash(one), kvf_base_hash(two));
    kvf_base_free(one);
    kvf_base_free(two);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

static void refused(const char *lora, kvf_status status, const char *want)
{
    char path[512];
    kvf_base *base = NULL;
    toy_path(path, place, "model_llama_tied");
    if (!kvf__exists(path)) golden_base(own, place, "llama_tied", path);
    ck_assert_int_eq(kvf_base_open(own, path, &(kvf_base_options){.lora = lora}, &base), status);
    ck_assert_msg(strstr(kvf_ctx_error(own), want) != NULL, "%s\nwant %s", kvf_ctx_error(own),
                  want);
}

static void copy_weights(const char *name, const char *dir)
{
    char from[320], to[640], folder[256];
    kvf__mapfile file = {0};
    snprintf(from, sizeof from, "%s/adapter_model.safetensors", adapter(name, folder));
    snprintf(to, sizeof to, "%s/adapter_model.safetensors", dir);
    ck_assert_int_eq(kvf__mapfile_open(own, from, &file), KVF_OK);
    ck_assert_int_eq(kvf__write_file(own, to, true, file.data, file.n), KVF_OK);
    kvf__mapfile_close(&file);
}

/* Replaces `"r":2` in the config. */
static const struct {
    const char *instead;
    kvf_status status;
    const char *want;
} CONFIGS[] = {
    {"\"r\":2,\"use_dora\":true", KVF_EUNSUPPORTED, "\"use_dora\" is set"},
    {"\"r\":2,\"bias\":\"lora_only\"", KVF_EUNSUPPORTED, "\"bias\" is set"},
    {"\"r\":2,\"lora_bias\":true", KVF_EUNSUPPORTED, "\"lora_bias\" is set"},
    {"\"r\":2,\"modules_to_save\":[\"norm\"]", KVF_EUNSUPPORTED, "\"modules_to_save\" is set"},
    {"\"r\":2,\"trainable_token_indices\":[3]", KVF_EUNSUPPORTED, "\"trainable_token_indices\""},
    {"\"r\":2,\"a_new_kind\":{\"k\":1}", KVF_EUNSUPPORTED, "\"a_new_kind\" is set"},
    {"\"r\":2,\"init_lora_weights\":\"pissa\"", KVF_EUNSUPPORTED, "init_lora_weights is \"pissa\""},
    {"\"r\":3", KVF_ESHAPE, "has rank 2, but the config says 3"},
    {"\"rank_pattern\":{\"q_proj\":2}", KVF_EFORMAT, "\"r\" is not a number"},
    {"\"r\":2,\"alpha_pattern\":{\"q_proj\":\"x\"}", KVF_EFORMAT, "alpha_pattern: \"q_proj\""},
    {"\"r\":2,\"alpha_pattern\":{\"q_(proj\":1}", KVF_EFORMAT, "regex"},
};
enum { N_CONFIGS = sizeof CONFIGS / sizeof CONFIGS[0] };

START_TEST(refuses_by_name_what_it_would_lose)
{
    char dir[512], config[512];
    toy_path(dir, place, "edited");
    ck_assert_int_eq(mkdir(dir, 0777), 0);
    copy_weights("llama_tied", dir);
    snprintf(config, sizeof config, "{\"peft_type\":\"LORA\",\"lora_alpha\":6,%s}",
             CONFIGS[_i].instead);
    toy_write(dir, "adapter_config.json", config);
    refused(dir, CONFIGS[_i].status, CONFIGS[_i].want);
}
END_TEST

START_TEST(refuses_other_modules_and_folders)
{
    char folder[256], dir[512];
    refused(adapter("embedding", folder), KVF_EUNSUPPORTED, "lora_embedding_");
    refused(adapter("gpt2", folder), KVF_EMISMATCH, "is not a separate linear layer");
    refused(adapter("llama_untied", folder), KVF_EMISMATCH,
            "lm_head is not a separate linear layer");
    toy_path(dir, place, "narrow");
    ck_assert_int_eq(toy_lora(own, dir, 1), KVF_OK);
    refused(dir, KVF_EMISMATCH, "the base's weight");
    refused("no/such/folder", KVF_EIO, "no/such/folder/adapter_config.json");
    refused(ck_source("tests/golden/peft_tiny"), KVF_EUNSUPPORTED,
            "peft_type is PREFIX_TUNING, want LORA");
}
END_TEST

/* A GGUF of Qwen3.5 with more value heads than key heads has them in another order. */
START_TEST(refuses_weights_that_a_gguf_reorders)
{
    static float values[64];
    static const char CONFIG[] = "{\"peft_type\":\"LORA\",\"r\":1,\"lora_alpha\":1}";
    static const char *const TENSORS[] = {
        "base_model.model.model.layers.0.linear_attn.out_proj.lora_A.weight",
        "base_model.model.model.layers.0.linear_attn.out_proj.lora_B.weight"};
    char dir[512], file[640];
    const char *gguf = ck_source("tests/golden/model_qwen3_5/model.gguf");
    kvf__weights weights = {0};
    kvf__desc desc = {0};
    kvf__table lora = {0};
    toy_path(dir, place, "reordered");
    ck_assert_int_eq(mkdir(dir, 0777), 0);
    toy_write(dir, "adapter_config.json", CONFIG);
    for (int b = 0; b < 2; b++) {
        const kvf__view view = {
            .data = values, .dtype = KVF__F32, .rank = 2, .dim = {b ? 16 : 1, b ? 1 : 36}};
        ck_assert_int_eq(kvf__table_add(own, &lora, TENSORS[b], view), KVF_OK);
    }
    snprintf(file, sizeof file, "%s/adapter_model.safetensors", dir);
    ck_assert_int_eq(kvf__safetensors_write(own, file, true, lora.items, lora.n), KVF_OK);

    kvf_base base = {.path = (char *)gguf, .lora = dir};
    ck_assert_int_eq(kvf__gguf_open(own, gguf, &weights), KVF_OK);
    ck_assert_int_eq(kvf__desc_from_gguf(own, gguf, weights.meta, &weights.table, &desc), KVF_OK);
    ck_assert_int_eq(kvf__bind(own, gguf, &desc, &weights.table, &base.slots), KVF_OK);
    ck_assert_int_eq(kvf__lora_fold(own, &desc, &base), KVF_EUNSUPPORTED);
    ck_assert_msg(strstr(kvf_ctx_error(own), "orders these values otherwise; use the folder"), "%s",
                  kvf_ctx_error(own));
    kvf__free(base.folds);
    kvf__slots_done(&base.slots);
    kvf__desc_done(&desc);
    kvf__weights_close(&weights);
    kvf__table_done(&lora);
}
END_TEST

/* Refused before the weights are read, with the option's name. */
START_TEST(refuses_ways_to_keep_weights)
{
    static const struct {
        kvf_base_options how;
        const char *want;
    } WAYS[] = {
        {{.weight_dtype = KVF_WEIGHTS_BF16, .stream_layers = true},
         "--stream-layers and --weight-dtype exclude each other"},
        {{.precision = KVF_PRECISION_INT8, .weight_dtype = KVF_WEIGHTS_F32},
         "--precision int8: not with --weight-dtype"},
        {{.precision = KVF_PRECISION_INT8, .stream_layers = true},
         "--precision int8: not with --stream-layers"},
    };
    char path[512];
    kvf_base *base = NULL, *copy = NULL;
    small_base("llama_tied", path);
    for (size_t i = 0; i < sizeof WAYS / sizeof WAYS[0]; i++) {
        ck_assert_int_eq(kvf_base_open(own, path, &WAYS[i].how, &base), KVF_EUSAGE);
        ck_assert_msg(strstr(kvf_ctx_error(own), WAYS[i].want), "%s", kvf_ctx_error(own));
        ck_assert_ptr_null(base);
    }

    /* frozen ways for a copy that is trained itself */
    const kvf__train every = {.what = KVF__TRAIN_EVERYTHING};
    const kvf_base_options streamed = {.stream_layers = true},
                           int8 = {.precision = KVF_PRECISION_INT8};
    base = opened(path, &(kvf_base_options){.precision = KVF_PRECISION_F32});
    ck_assert_int_eq(kvf__base_copy_as(own, base, &streamed, &every, &copy), KVF_EUSAGE);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(own), "those of this base are trained ones"));
    ck_assert_int_eq(kvf__base_copy_as(own, base, &int8, &every, &copy), KVF_EUSAGE);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(own), "--precision int8 is for frozen weights"));
    ck_assert_ptr_null(copy);
    kvf_base_free(base);
}
END_TEST

/* The line names the right use, if there is one. */
START_TEST(refuses_what_is_no_base)
{
    char folder[256];
    const struct {
        const char *path, *want;
    } OTHERS[] = {
        {adapter("gpt2", folder), "is a PEFT folder, not a base: `kvfold import` converts it"},
        {ck_source("tests/golden/h5_v110.h5"),
         "is a prefix file, not a base: use it with --prefix"},
        {ck_source("tests/coverage.txt"), "not a base: want a Hugging Face folder"},
    };
    for (size_t i = 0; i < sizeof OTHERS / sizeof OTHERS[0]; i++) {
        kvf_base *base = NULL;
        ck_assert_int_eq(kvf_base_open(own, OTHERS[i].path, NULL, &base), KVF_EFORMAT);
        ck_assert_msg(strstr(kvf_ctx_error(own), OTHERS[i].want), "%s", kvf_ctx_error(own));
        ck_assert_ptr_null(base);
    }
}
END_TEST

/* Weights that are cut at any byte are refused. */
START_TEST(refuses_a_file_cut_short)
{
    char dir[512], path[640];
    kvf__mapfile file = {0};
    toy_path(dir, place, "cut");
    ck_assert_int_eq(toy_lora(own, dir, 1), KVF_OK);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", dir);
    ck_assert_int_eq(kvf__mapfile_open(own, path, &file), KVF_OK);
    char *bytes = malloc(file.n);
    const size_t n = file.n;
    memcpy(bytes, file.data, n);
    kvf__mapfile_close(&file);
    for (size_t end = 0; end < n; end += end < 16 ? 1 : 211) {
        ck_assert_int_eq(kvf__write_file(own, path, true, bytes, end), KVF_OK);
        refused(dir, KVF_EFORMAT, "adapter_model.safetensors");
    }
    free(bytes);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lora");
    TCase *golden_case = ck_case(suite, "golden", setup, teardown, 60);
    TCase *identity = ck_case(suite, "identity", setup, teardown, 60);
    TCase *errors = ck_case(suite, "errors", setup, teardown, 60);

    tcase_add_loop_test(golden_case, computes_as_pefts_merged_model, 0, N_NAMES);
    tcase_add_loop_test(golden_case, keeps_its_bits_however_weights_are_kept, 0, N_NAMES);
    tcase_add_loop_test(golden_case, trained_weights_begin_folded, 0, N_NAMES);
    tcase_add_test(golden_case, folds_into_what_a_gguf_means);
    tcase_add_test(identity, is_another_base_by_name_and_hash);
    tcase_add_loop_test(errors, refuses_by_name_what_it_would_lose, 0, N_CONFIGS);
    tcase_add_test(errors, refuses_other_modules_and_folders);
    tcase_add_test(errors, refuses_weights_that_a_gguf_reorders);
    tcase_add_test(errors, refuses_what_is_no_base);
    tcase_add_test(errors, refuses_ways_to_keep_weights);
    tcase_add_test(errors, refuses_a_file_cut_short);
    return ck_main(suite);
}
