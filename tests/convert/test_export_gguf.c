/* GGUFs written again. With virtual neurons the bytes of every old row are found again, and new
 * rows and columns hold the neurons within the error of their type, then zeros. With the weights of
 * a trained base the values are those, and unchanged tensors keep their bytes. cli_neurons_fold
 * compares losses. */
#include "ck.h"
#include "file_int.h"
#include "infile.h"
#include "open_prefix.h"
#include "slot.h"
#include "toy_lora.h"

#include <kvfold/io.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 5 };

static kvf_ctx *ctx;
static char out[512];

static void setup(void)
{
    ck_assert_int_eq(kvf_ctx_create(NULL, &ctx), KVF_OK);
    snprintf(out, sizeof out, "%s/wide.gguf", ck_tmpdir());
}

static void teardown(void)
{
    kvf_ctx_free(ctx);
}

static const struct {
    const char *base, *ffn_type;
    int64_t grown;
} CASES[] = {{"bpe", NULL, 32},
             {"bpe", "f32", 5},
             {"neox", NULL, 256},
             {"neox", "f16", 5},
             {"neox", "q8_0", 32}};

/* Makes neurons of a base. */
static void make_prefix(const char *base_path, kvf_prefix *out_prefix)
{
    kvf_base *base = NULL;
    kvf__artifact *file = &out_prefix->file;

    *out_prefix = (kvf_prefix){.path = (char *)"memory"};
    ck_assert_int_eq(kvf_base_open(ctx, base_path, NULL, &base), KVF_OK);
    const kvf__desc *d = kvf__model_desc(base->model);
    ck_assert_int_eq(kvf__import_stamp(ctx, base, "base", "direct", "lm", &file->id), KVF_OK);
    file->id.neurons = kvf__desc_neurons(d, N);
    ck_assert_int_eq(kvf__neurons_create(ctx, &file->prefix.neurons, &file->id.neurons), KVF_OK);
    const size_t n = kvf__neurons_count(&file->prefix.neurons);
    for (size_t i = 0; i < n; i++)
        file->prefix.neurons.w[i] = sinf((float)i) / (float)(1 + i % 7);
    kvf_base_free(base);
}

/* Compares the values from `at` on with those wanted, `stride` apart. */
static void same_values(const kvf__tensor *tensor, const float *values, int64_t at, int64_t n,
                        const float *want, int64_t stride)
{
    for (int64_t i = 0; i < n; i++)
        ck_assert_msg(fabsf(values[at + i] - want[i * stride]) < 0.13f, "%s: [%d] is %g, want %g",
                      tensor->name, (int)i, (double)values[at + i], (double)want[i * stride]);
}

/* Compares a matrix whose neurons are its last columns (a bias: its last elements), or rows. */
static void check_tensor(const kvf__tensor *old, const kvf__tensor *new, bool by_column,
                         const float *want, int64_t grown)
{
    const bool matrix = old->view.rank == 2;
    const int64_t R = matrix ? old->view.dim[0] : 1, C = old->view.dim[matrix],
                  wide = new->view.dim[matrix], tall = matrix ? new->view.dim[0] : 1;
    const size_t bytes = kvf__view_bytes(&old->view) / (size_t)R,
                 new_bytes = kvf__view_bytes(&new->view) / (size_t)tall;
    float *values = malloc((size_t)(wide * tall) * sizeof *values);

    ck_assert_int_eq(wide, by_column ? C + grown : C);
    ck_assert_int_eq(tall, by_column ? R : R + grown);
    for (int64_t r = 0; r < R && old->view.dtype == new->view.dtype; r++)
        ck_assert_mem_eq((const char *)new->view.data + (size_t)r *new_bytes,
                         (const char *)old->view.data + (size_t)r * bytes, bytes);
    kvf__to_f32(new->view.dtype, new->view.data, values, wide * tall);
    for (int64_t r = 0; by_column && r < R; r++)
        same_values(new, values, r * wide + C, N, want + r, R);
    if (!by_column) same_values(new, values, R * C, N * C, want, 1);
    for (int64_t i = (R + N) * C; !by_column && i < wide * tall; i++)
        ck_assert_msg(values[i] == 0, "%s: [%d] is %g, want 0", new->name, (int)i,
                      (double)values[i]);
    free(values);
}

START_TEST(old_bytes_stay_and_new_ones_are_the_neurons)
{
    char path[64], base[512];
    kvf__weights old, wide;
    kvf_prefix prefix;

    snprintf(path, sizeof path, "tests/golden/gguf_%s.gguf", CASES[_i].base);
    snprintf(base, sizeof base, "%s", ck_source(path));
    make_prefix(base, &prefix);
    const kvf_export_options options = {.out = out,
                                        .format = KVF_EXPORT_GGUF,
                                        .base = base,
                                        .ffn_type = CASES[_i].ffn_type,
                                        .force = true};
    ck_assert_msg(!kvf_prefix_export(ctx, &prefix, &options), "%s", kvf_ctx_error(ctx));
    ck_assert_int_eq(kvf__gguf_open(ctx, base, &old), KVF_OK);
    ck_assert_msg(!kvf__gguf_open(ctx, out, &wide), "%s", kvf_ctx_error(ctx));
    ck_assert_uint_eq(old.table.n, wide.table.n);
    for (size_t i = 0; i < old.table.n; i++) {
        const kvf__tensor *a = &old.table.items[i], *b = &wide.table.items[i];
        int layer = 0, end = 0;
        ck_assert_str_eq(a->name, b->name);
        sscanf(a->name, "blk.%d.ffn_%n", &layer, &end);
        const char *name = a->name + end;
        const kvf__neurons_layer at = kvf__neurons_at(&prefix.file.prefix.neurons, layer);
        if (end && !strcmp(name, "down.weight"))
            check_tensor(a, b, true, at.value, CASES[_i].grown);
        else if (end && !strcmp(name, "up.weight"))
            check_tensor(a, b, false, at.up ? at.up : at.key, CASES[_i].grown);
        else if (end && !strcmp(name, "gate.weight"))
            check_tensor(a, b, false, at.key, CASES[_i].grown);
        else if (end && !strcmp(name, "up.bias"))
            check_tensor(a, b, true, at.bias, CASES[_i].grown);
        else
            ck_assert_mem_eq(a->view.data, b->view.data, kvf__view_bytes(&a->view));
    }
    kvf__weights_close(&wide);
    kvf__weights_close(&old);
    kvf__neurons_done(&prefix.file.prefix.neurons);
    kvf__identity_done(&prefix.file.id);
}
END_TEST

/* ---- trained bases --------------------------------------------------------------------------- */

/* Reads a weight in Hugging Face's form as f32 [n]. */
static float *plain(const kvf__slot *slot, int64_t *n)
{
    void *memory = NULL;
    kvf__view view;

    ck_assert_int_eq(kvf__slot_plain(ctx, slot, &memory, &view), KVF_OK);
    *n = kvf__view_count(&view);
    float *values = malloc((size_t)*n * sizeof *values);
    kvf__to_f32(view.dtype, view.data, values, *n);
    kvf__free(memory);
    return values;
}

static kvf_base *open_base(const char *path, const char *lora)
{
    const kvf_base_options options = {.precision = KVF_PRECISION_F32, .lora = lora};
    kvf_base *base = NULL;

    ck_assert_msg(!kvf_base_open(ctx, path, &options, &base), "%s", kvf_ctx_error(ctx));
    return base;
}

/* GGUFs whose values have another order or form than in Hugging Face. */
static const char *const FORMS[] = {"gguf_bpe",      "gguf_neox",       "gguf_spm",
                                    "model_gemma3/", "model_gpt_neox/", "model_lfm2/",
                                    "model_phi3/",   "model_qwen3_5/",  "model_smollm3/",
                                    "model_t5/",     "model_granite/"};

START_TEST(order_and_form_of_the_file_come_back)
{
    char path[64];
    kvf__weights weights = {0};
    kvf__desc desc = {0};
    kvf__slots slots = {0};

    snprintf(path, sizeof path, "tests/golden/%s%s.gguf", FORMS[_i],
             strchr(FORMS[_i], '/') ? "model" : "");
    ck_assert_int_eq(kvf__gguf_open(ctx, ck_source(path), &weights), KVF_OK);
    ck_assert_int_eq(kvf__desc_from_gguf(ctx, path, weights.meta, &weights.table, &desc), KVF_OK);
    ck_assert_int_eq(kvf__bind(ctx, path, &desc, &weights.table, &slots), KVF_OK);
    for (size_t s = 0; s < slots.n; s++) {
        const kvf__slot *slot = &slots.items[s];
        int64_t n;
        float *values = plain(slot, &n), *in_file = malloc((size_t)n * sizeof *in_file),
              *want = malloc((size_t)n * sizeof *want);
        kvf__to_f32(slot->view.dtype, slot->view.data, want, n);
        kvf__slot_to_file(slot, values, in_file);
        for (int64_t i = 0; i < n; i++) /* an exponential and sums with 1 are rounded */
            ck_assert_msg(fabsf(in_file[i] - want[i]) <= 1e-6f * fabsf(want[i]) + 1e-7f,
                          "%s: [%d] is %g, want %g", slot->name, (int)i, (double)in_file[i],
                          (double)want[i]);
        free(values);
        free(in_file);
        free(want);
    }
    kvf__slots_done(&slots);
    kvf__desc_done(&desc);
    kvf__weights_close(&weights);
}
END_TEST

START_TEST(a_lora_is_folded_in)
{
    char lora[512];
    const char *path = ck_source("tests/golden/gguf_spm.gguf");

    snprintf(lora, sizeof lora, "%s/lora", ck_tmpdir());
    ck_assert_int_eq(toy_lora(ctx, lora, 5), KVF_OK);
    const kvf_export_options options = {.path = path,
                                        .out = out,
                                        .format = KVF_EXPORT_GGUF,
                                        .lora = lora,
                                        .ffn_type = "f32",
                                        .force = true};
    ck_assert_msg(!kvf_export(ctx, &options), "%s", kvf_ctx_error(ctx));
    kvf_base *with = open_base(path, lora), *written = open_base(out, NULL);
    for (size_t s = 0; s < with->slots.n; s++) {
        const kvf__slot *a = &with->slots.items[s], *b = &written->slots.items[s];
        int64_t n, m;
        float *want = plain(a, &n), *got = plain(b, &m);
        ck_assert_int_eq(n, m);
        ck_assert_mem_eq(got, want, (size_t)n * sizeof *got);
        if (!a->add) ck_assert_mem_eq(b->view.data, a->view.data, kvf__view_bytes(&a->view));
        free(want);
        free(got);
    }
    kvf_base_free(with);
    kvf_base_free(written);
}
END_TEST

START_TEST(an_unchanged_base_file_gives_the_same_gguf)
{
    char file[512], kind[16];
    kvf__buf want = {0}, got = {0};
    const char *path = ck_source("tests/golden/gguf_bpe.gguf");

    snprintf(file, sizeof file, "%s/base.h5", ck_tmpdir());
    const kvf_import_options import = {.path = path, .out = file, .force = true};
    ck_assert_msg(!kvf_import(ctx, &import, kind), "%s", kvf_ctx_error(ctx));
    const kvf_export_options options = {
        .path = file, .out = out, .format = KVF_EXPORT_GGUF, .base = path, .force = true};
    ck_assert_msg(!kvf_export(ctx, &options), "%s", kvf_ctx_error(ctx));
    ck_assert_int_eq(kvf__read_file(ctx, path, 1 << 20, &want), KVF_OK);
    ck_assert_int_eq(kvf__read_file(ctx, out, 1 << 20, &got), KVF_OK);
    ck_assert_uint_eq(got.n, want.n);
    ck_assert_mem_eq(got.data, want.data, want.n);
    kvf__buf_done(&want);
    kvf__buf_done(&got);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("export_gguf");
    TCase *core = ck_case(suite, "core", setup, teardown, 30);
    tcase_add_loop_test(core, old_bytes_stay_and_new_ones_are_the_neurons, 0,
                        sizeof CASES / sizeof CASES[0]);
    tcase_add_loop_test(core, order_and_form_of_the_file_come_back, 0,
                        sizeof FORMS / sizeof FORMS[0]);
    tcase_add_test(core, a_lora_is_folded_in);
    tcase_add_test(core, an_unchanged_base_file_gives_the_same_gguf);
    return ck_main(suite);
}
