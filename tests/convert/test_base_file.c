/* Tests of base files: contents read back unchanged from a memory map, hashes equal to those of the
 * folder, and refusal of files with false contents. */
#include "toy_base.h"

#include "h5_fixture.h"
#include "renderer.h"

#include <kvfold/io.h>

static kvf_base *open_base(const char *path)
{
    const kvf_base_options options = {.precision = KVF_PRECISION_F32};
    kvf_base *base = NULL;
    ck_assert_msg(!kvf_base_open(ctx, path, &options, &base), "%s", kvf_ctx_error(ctx));
    return base;
}

/* The toy folder as base.h5. */
static const char *imported(void)
{
    const char *folder = in_dir("folder"), *path = in_dir("base.h5");
    char kind[16];
    mkdir(folder, 0700);
    toy_folder(folder, 3, 0);
    const kvf_import_options options = {.path = folder, .out = path};
    ck_assert_msg(!kvf_import(ctx, &options, kind), "%s", kvf_ctx_error(ctx));
    ck_assert_str_eq(kind, "base");
    return path;
}

START_TEST(a_folder_and_its_file_are_one)
{
    const char *path = imported();
    kvf_base *file = open_base(path), *folder = open_base(in_dir("folder"));

    ck_assert_str_eq(kvf_base_hash(file), kvf_base_hash(folder));
    ck_assert_str_eq(kvf_base_name(file), "base");
    ck_assert_str_eq(kvf_base_architecture(file), "llama");
    ck_assert_int_eq(kvf__token_eos(file->tokenizer), 60);
    for (size_t i = 0; i < file->weights.table.n; i++) {
        const kvf__tensor *one = &file->weights.table.items[i];
        const kvf__view *two = kvf__table_find(&folder->weights.table, one->name);
        ck_assert_msg(two != NULL, "%s", one->name);
        ck_assert_uint_eq((uintptr_t)one->view.data % 64, 0);
        ck_assert_mem_eq(one->view.data, two->data, kvf__view_bytes(two));
    }
    ck_assert_uint_eq(file->weights.table.n, folder->weights.table.n);
    kvf_base_free(file);
    kvf_base_free(folder);
}
END_TEST

/* Texts of a base file are written to folders under their stored names. */
START_TEST(texts_are_files_of_a_tokenizer)
{
    static const char *const NAMES[] = {".bashrc", "evil.py", "config.json"};
    float x[1] = {1};
    kvf__tensor tensor = {.name = (char *)"x",
                          .view = {.data = x, .dtype = KVF__F32, .rank = 1, .dim = {1}}};
    char config[] = "{}";
    kvf__base_text text = {(char *)NAMES[_i], (char *)"owned"};
    const kvf__base_file file = {
        .config = config, .texts = &text, .n_texts = 1, .tensors = &tensor, .n = 1};
    const kvf_export_options options = {.path = in_dir("base.h5"),
                                        .out = in_dir("out"),
                                        .format = KVF_EXPORT_TOKENIZER,
                                        .force = true};
    ck_assert_int_eq(kvf__base_file_write(ctx, options.path, false, &file), KVF_OK);
    ck_assert_int_eq(mkdir(options.out, 0700), 0);
    ck_fails(kvf_export(ctx, &options), KVF_EFORMAT, "is not a tokenizer file");
    ck_assert_int_eq(rmdir(options.out), 0); /* it is empty */
}
END_TEST

/* Equal inputs give equal bytes, for every type of weights. */
START_TEST(types_and_bytes)
{
    const uint16_t half[4] = {0x3c00, 0x4000, 0xbc00, 0x0001};
    const float f32[4] = {1, 2, -1, 3};
    const double f64[2] = {1, 2};
    const int64_t i64[2] = {7, -7};
    kvf__tensor tensors[] = {
        {"a.f16", {.data = half, .dtype = KVF__F16, .rank = 1, .dim = {4}}},
        {"b.bf16", {.data = half, .dtype = KVF__BF16, .rank = 2, .dim = {2, 2}}},
        {"c.f32", {.data = f32, .dtype = KVF__F32, .rank = 2, .dim = {1, 4}}},
        {"d.f64", {.data = f64, .dtype = KVF__F64, .rank = 1, .dim = {2}}},
        {"e.i64", {.data = i64, .dtype = KVF__I64, .rank = 1, .dim = {2}}},
    };
    char config[] = "{\"key\": \"\xC3\xA4\"}";
    kvf__base_file file = {.config = config, .tensors = tensors, .n = 5}, back = {0};
    size_t n[2];
    uint8_t *bytes[2];

    for (int i = 0; i < 2; i++) {
        const char *path = in_dir(i ? "two.h5" : "one.h5");
        ck_assert_msg(!kvf__base_file_write(ctx, path, false, &file), "%s", kvf_ctx_error(ctx));
        bytes[i] = read_bytes(path, &n[i]);
    }
    ck_assert_uint_eq(n[0], n[1]);
    ck_assert_mem_eq(bytes[0], bytes[1], n[0]);
    free(bytes[0]);
    free(bytes[1]);
    ck_assert_msg(!kvf__base_file_open(ctx, in_dir("one.h5"), true, &back), "%s",
                  kvf_ctx_error(ctx));
    ck_assert_str_eq(back.config, config);
    ck_assert_uint_eq(back.table.n, 5);
    for (size_t i = 0; i < 5; i++) {
        const kvf__view *got = &back.table.items[i].view, *want = &tensors[i].view;
        ck_assert_str_eq(back.table.items[i].name, tensors[i].name);
        ck_assert_int_eq(got->dtype, want->dtype);
        ck_assert_int_eq(got->rank, want->rank);
        ck_assert_mem_eq(got->dim, want->dim, (size_t)want->rank * sizeof *want->dim);
        ck_assert_mem_eq(got->data, want->data, kvf__view_bytes(want));
    }
    kvf__base_file_done(&back);
}
END_TEST

START_TEST(inspect_knows_it)
{
    kvf_json *tree = NULL;
    ck_assert_msg(!kvf_inspect(ctx, imported(), &tree), "%s", kvf_ctx_error(ctx));
    ck_assert_str_eq(kvf_json_str(kvf_json_get(tree, "kind"), NULL), "base");
    const kvf_json *config = kvf_json_get(tree, "attributes");
    ck_assert_str_eq(kvf_json_str(kvf_json_get(config, "model_type"), NULL), "llama");
    ck_assert_int_eq((int)kvf_json_size(kvf_json_get(tree, "tokenizer")), 2);
    ck_assert_int_gt((int)kvf_json_size(kvf_json_get(tree, "tensors")), 20);
    kvf_json_free(tree);
}
END_TEST

static kvf_status try_open(const char *path)
{
    const kvf_base_options options = {.precision = KVF_PRECISION_F32};
    kvf_base *base = NULL;
    kvf_status st = kvf_base_open(ctx, path, &options, &base);
    kvf_base_free(base);
    return st;
}

/* The seal covers every byte; without it, HDF5's own metadata is checked. */
START_TEST(damage_is_refused)
{
    size_t n;
    uint8_t *bytes = read_bytes(imported(), &n);
    const char *path = in_dir("bad.h5");

    for (size_t at = 48; at < n; at += n / 61) {
        bytes[at] ^= 0x10;
        write_bytes(path, bytes, n);
        ck_assert_int_ne(try_open(path), KVF_OK);
        ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "bad.h5"));
        bytes[at] ^= 0x10;
    }
    for (size_t cut = 0; cut < n; cut += n / 37) {
        write_bytes(path, bytes, cut);
        ck_assert_int_ne(try_open(path), KVF_OK);
    }
    free(bytes);
}
END_TEST

/* Refuses other kinds of files, and weights that do not fit the model. */
START_TEST(misfits_are_refused)
{
    const float one = 1;
    kvf__tensor small = {"model.norm.weight",
                         {.data = &one, .dtype = KVF__F32, .rank = 1, .dim = {1}}};
    kvf__tensor odd = {"x", {.data = &one, .dtype = KVF__BOOL, .rank = 1, .dim = {4}}};
    char config[2048];
    kvf__base_file file = {.config = config, .tensors = &small, .n = 1};

    snprintf(config, sizeof config, "%s", toy_llama);
    ck_assert_int_eq(kvf__base_file_write(ctx, in_dir("few.h5"), false, &file), KVF_OK);
    ck_assert_int_eq(try_open(in_dir("few.h5")), KVF_EUNSUPPORTED); /* no tokenizer */
    file.tensors = &odd;
    ck_assert_int_eq(kvf__base_file_write(ctx, in_dir("odd.h5"), false, &file), KVF_EUNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "x has type bool"));
    strcpy(config, "{");
    file.tensors = &small;
    ck_assert_int_eq(kvf__base_file_write(ctx, in_dir("json.h5"), false, &file), KVF_OK);
    ck_assert_int_ne(try_open(in_dir("json.h5")), KVF_OK);
    ck_fails(kvf__base_text_add(ctx, &file, "t", "a\0b", 3), KVF_EFORMAT, "zero byte");
}
END_TEST

/* ---- new bases ------------------------------------------------------------------------------- */

static const char *const CONFIGS[] = {
    "{\"model_type\":\"openai-gpt\",\"vocab_size\":61,\"n_embd\":16,\"n_layer\":2,\"n_head\":2,"
    "\"n_positions\":32,\"tie_word_embeddings\":false,\"lm_head_bias\":true,"
    "\"initializer_range\":0.1}",
    "{\"model_type\":\"gpt2\",\"vocab_size\":61,\"n_embd\":16,\"n_layer\":2,\"n_head\":2,"
    "\"n_positions\":32}",
    "{\"model_type\":\"bert\",\"vocab_size\":61,\"hidden_size\":16,\"intermediate_size\":24,"
    "\"num_hidden_layers\":2,\"num_attention_heads\":2,\"max_position_embeddings\":32}",
    "{\"model_type\":\"qwen3\",\"vocab_size\":61,\"hidden_size\":16,\"intermediate_size\":24,"
    "\"num_hidden_layers\":2,\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":8,"
    "\"hidden_act\":\"silu\",\"tie_word_embeddings\":true,\"max_position_embeddings\":32}"};

static kvf_status new_base(const char *name, uint64_t seed, kvf_new_base_result *result)
{
    char tokenizer[2048];
    toy_tokenizer(tokenizer, sizeof tokenizer);
    toy_write(dir, "tokenizer.json", tokenizer);
    const kvf_new_base_options options = {.config = in_dir("config.json"),
                                          .tokenizer = in_dir("tokenizer.json"),
                                          .out = in_dir(name),
                                          .seed = seed,
                                          .force = true};
    return kvf_new_base(ctx, &options, result);
}

START_TEST(new_bases_open)
{
    kvf_new_base_result result = {0};
    char hash[2][33];

    toy_write(dir, "config.json", CONFIGS[_i]);
    for (uint64_t seed = 0; seed < 2; seed++) {
        ck_assert_msg(!new_base("new.h5", seed, &result), "%s", kvf_ctx_error(ctx));
        kvf_base *base = open_base(in_dir("new.h5"));
        ck_assert_str_eq(kvf_base_architecture(base), result.architecture);
        snprintf(hash[seed], sizeof hash[seed], "%s", kvf_base_hash(base));
        int64_t total = 0;
        for (size_t i = 0; i < base->weights.table.n; i++) {
            const kvf__tensor *t = &base->weights.table.items[i];
            const float *values = t->view.data;
            int64_t n = kvf__view_count(&t->view);
            double square = 0;
            for (int64_t j = 0; j < n; j++)
                square += (double)values[j] * (double)values[j];
            double rms = sqrt(square / (double)n), want = _i == 0 ? 0.1 : 0.02;
            double scatter = want / sqrt(2 * (double)n); /* standard deviation of rms */
            bool bias = strstr(t->name, ".bias") != NULL;
            if (t->view.rank == 1)
                ck_assert_double_eq(rms, bias ? 0 : 1);
            else
                ck_assert_double_eq_tol(rms, want, 4 * scatter);
            total += n;
        }
        ck_assert_int_eq(total, result.parameters);
        kvf_base_free(base);
    }
    ck_assert_str_ne(hash[0], hash[1]);
}
END_TEST

START_TEST(new_bases_refused)
{
    kvf_new_base_result result;
    toy_write(dir, "config.json", "{\"model_type\":\"mamba\"}");
    ck_assert_int_eq(new_base("new.h5", 0, &result), KVF_EUNSUPPORTED);
    toy_write(dir, "config.json",
              "{\"model_type\":\"gpt2\",\"vocab_size\":10,\"n_embd\":16,\"n_layer\":2,"
              "\"n_head\":2}");
    ck_assert_int_eq(new_base("new.h5", 0, &result), KVF_ESHAPE);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "61 tokens, but vocab_size is 10"));
    ck_assert(!kvf__exists(in_dir("new.h5")));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("base_file");
    TCase *core = tcase_create("core"), *errors = tcase_create("errors");
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, errors);
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_checked_fixture(errors, setup, teardown);
    tcase_set_timeout(core, 60);
    tcase_set_timeout(errors, 60);
    tcase_add_test(core, a_folder_and_its_file_are_one);
    tcase_add_test(core, types_and_bytes);
    tcase_add_loop_test(core, texts_are_files_of_a_tokenizer, 0, 3);
    tcase_add_test(core, inspect_knows_it);
    tcase_add_loop_test(core, new_bases_open, 0, 4);
    tcase_add_test(errors, damage_is_refused);
    tcase_add_test(errors, misfits_are_refused);
    tcase_add_test(errors, new_bases_refused);
    return ck_main(suite);
}
