/* Properties of a prefix that its array of keys and values lacks: layers without prefix, and T5's
 * relative bias. A copy that sets them has the losses of its original, bit for bit. */
#include <kvfold/kvfold.h>

#include "ck.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static kvf_ctx *ctx;

static void setup(void)
{
    ck_assert_int_eq(kvf_ctx_create(&(kvf_ctx_options){.threads = 2}, &ctx), KVF_OK);
}

static void teardown(void)
{
    kvf_ctx_free(ctx);
}

/* A base of tests/golden with a prefix trained by kvfold with --places peft. */
static kvf_session *open_trained(const char *folder, const char *family)
{
    const kvf_session_options options = {.base.precision = KVF_PRECISION_F32};
    kvf_session *session = NULL;
    char prefix[512], base[512];

    snprintf(prefix, sizeof prefix, "tests/golden/peft_trained/%s/prefix.h5", family);
    snprintf(prefix, sizeof prefix, "%s", ck_source(prefix));
    snprintf(base, sizeof base, "tests/golden/%s", folder);
    ck_assert_msg(!kvf_session_open(ctx, ck_source(base), prefix, &options, &session), "%s",
                  kvf_ctx_error(ctx));
    return session;
}

static kvf_prefix *copy_of(const kvf_session *session, const kvf_prefix *prefix)
{
    int64_t shape[6];
    const float *kv = kvf_prefix_kv(prefix, shape);
    kvf_prefix *copy = NULL;

    ck_assert_int_eq(kvf_prefix_from_array(ctx, kvf_session_base(session), kv, shape,
                                           kvf_prefix_position_start(prefix), &copy),
                     KVF_OK);
    return copy;
}

static double loss_of(const kvf_session *session, kvf_prefix *prefix)
{
    const char *data = ck_source("tests/golden/peft_trained/rows.jsonl");
    const kvf_eval_options eval = {.data = data};
    kvf_eval_result result;

    ck_assert_msg(!kvf_eval(ctx, kvf_session_base(session), &prefix, 1, &eval, &result), "%s",
                  kvf_ctx_error(ctx));
    return result.loss;
}

START_TEST(mask_and_bias_make_the_copy_the_same)
{
    kvf_session *session = open_trained("model_t5", "t5");
    kvf_prefix *trained = kvf_session_prefix(session), *copy = copy_of(session, trained);
    kvf_prefix *read = NULL;
    int64_t L;
    const uint8_t *mask = kvf_prefix_layer_mask(trained, &L);
    const double want = loss_of(session, trained);
    char path[512];

    ck_assert(kvf_prefix_relative_bias(trained) && !kvf_prefix_relative_bias(copy));
    ck_assert(!mask[0] && mask[2] && kvf_prefix_layer_mask(copy, NULL)[0]);
    ck_assert(loss_of(session, copy) != want);
    ck_assert_int_eq(kvf_prefix_set_layer_mask(ctx, copy, mask, L), KVF_OK);
    ck_assert(loss_of(session, copy) != want);
    ck_assert_int_eq(kvf_prefix_set_relative_bias(ctx, copy, true), KVF_OK);
    ck_assert(loss_of(session, copy) == want);
    snprintf(path, sizeof path, "%s/copy.h5", ck_tmpdir());
    ck_assert_msg(!kvf_prefix_save(ctx, copy, path, KVF_DTYPE_F32, false), "%s",
                  kvf_ctx_error(ctx));
    ck_assert_int_eq(kvf_prefix_open(ctx, path, KVF_CHECKPOINT_DEFAULT, &read), KVF_OK);
    ck_assert(kvf_prefix_relative_bias(read) && loss_of(session, read) == want);
    ck_assert_int_eq(kvf_prefix_set_relative_bias(ctx, read, false), KVF_OK);
    ck_assert(!kvf_prefix_relative_bias(read) && loss_of(session, read) != want);
    kvf_prefix_free(read);
    kvf_prefix_free(copy);
    kvf_session_close(session);
}
END_TEST

/* A masked layer loses its values: unmasking it does not bring them back. */
START_TEST(layers_left_out_are_zeros)
{
    kvf_session *session = open_trained("bart", "bart");
    kvf_prefix *copy = copy_of(session, kvf_session_prefix(session));
    int64_t L, shape[6];
    kvf_prefix_layer_mask(copy, &L);
    const float *kv = kvf_prefix_kv(copy, shape);
    const int64_t n = 2 * shape[3] * shape[4] * shape[5], weights[3] = {L, shape[3], shape[4]};
    float *ones = calloc((size_t)(L * shape[3] * shape[4]), sizeof *ones);
    uint8_t mask[16] = {0};

    for (int64_t i = 0; i < L * shape[3] * shape[4]; i++)
        ones[i] = 1;
    mask[4] = 1;
    ck_assert_int_eq(kvf_prefix_set_log_weights(ctx, copy, ones, weights), KVF_OK);
    ck_assert_int_eq(kvf_prefix_set_layer_mask(ctx, copy, mask, L), KVF_OK);
    const float *w = kvf_prefix_log_weights(copy, NULL);
    for (int64_t l = 0; l < L; l++) {
        ck_assert((kv[l * n] != 0) == (l == 4));
        ck_assert(w[l * shape[3] * shape[4]] == (l == 4 ? 1.0f : 0.0f));
    }
    free(ones);
    kvf_prefix_free(copy);
    kvf_session_close(session);
}
END_TEST

static void refused(kvf_status got, kvf_status want, const char *message)
{
    ck_assert_int_eq(got, want);
    ck_assert_msg(strstr(kvf_ctx_error(ctx), message) != NULL, "%s", kvf_ctx_error(ctx));
}

START_TEST(what_does_not_fit_is_refused)
{
    kvf_session *session = open_trained("bart", "bart");
    kvf_prefix *prefix = kvf_session_prefix(session);
    uint8_t mask[8] = {0};

    refused(kvf_prefix_set_relative_bias(ctx, prefix, true), KVF_EUNSUPPORTED,
            "its base is not an encoder-decoder with a relative bias such as t5");
    refused(kvf_prefix_set_layer_mask(ctx, prefix, mask, 7), KVF_ESHAPE,
            "the layer mask is [7], want [8]");
    refused(kvf_prefix_set_layer_mask(ctx, prefix, mask, 8), KVF_EUSAGE, "excludes all layers");
    mask[3] = 2;
    refused(kvf_prefix_set_layer_mask(ctx, prefix, mask, 8), KVF_EUSAGE, "layer_mask[3] is 2");
    ck_assert(kvf_prefix_layer_mask(prefix, NULL)[2]);
    kvf_session_close(session);
}
END_TEST

/* Bytes of the file DIR/NAME. */
static size_t bytes_of(const char *dir, const char *name, char *bytes, size_t most)
{
    char path[600];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    const size_t n = fread(bytes, 1, most, file);
    fclose(file);
    return n;
}

START_TEST(an_open_prefix_is_exported_as_its_file)
{
    enum { MOST = 1 << 20 };
    static char a[MOST], b[MOST];
    static const char NAME[] = "adapter_model.safetensors";
    kvf_session *session = open_trained("bart", "bart");
    char folder[2][512], path[512];
    const char *dir = ck_tmpdir();

    for (int i = 0; i < 2; i++)
        snprintf(folder[i], sizeof folder[i], "%s/%d", dir, i);
    snprintf(path, sizeof path, "%s", ck_source("tests/golden/peft_trained/bart/prefix.h5"));
    kvf_export_options options = {.path = path, .out = folder[0]};
    ck_assert_msg(!kvf_export(ctx, &options), "%s", kvf_ctx_error(ctx));
    options.out = folder[1];
    refused(kvf_prefix_export(ctx, kvf_session_prefix(session), &options), KVF_EUSAGE, "for files");
    options.path = NULL;
    ck_assert_msg(!kvf_prefix_export(ctx, kvf_session_prefix(session), &options), "%s",
                  kvf_ctx_error(ctx));
    const size_t n = bytes_of(folder[0], NAME, a, MOST);
    ck_assert_uint_eq(n, bytes_of(folder[1], NAME, b, MOST));
    ck_assert(n > 1000 && !memcmp(a, b, n));
    kvf_session_close(session);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("prefix_array");
    TCase *cases = tcase_create("core");

    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, mask_and_bias_make_the_copy_the_same);
    tcase_add_test(cases, layers_left_out_are_zeros);
    tcase_add_test(cases, what_does_not_fit_is_refused);
    tcase_add_test(cases, an_open_prefix_is_exported_as_its_file);
    suite_add_tcase(suite, cases);
    return ck_main(suite);
}
