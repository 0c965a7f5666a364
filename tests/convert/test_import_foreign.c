/* Tests of adapters that from_pickle.py converted from other programs' prefixes to PEFT's form.
 * tests/golden/foreign_prefixes/peft holds the adapters. want.safetensors holds torch's keys and
 * values and the outputs of a tiny model under them (make_foreign_golden.py,
 * make_adapterhub_golden.py). The Python tests make all of these files again. */
#include "artifact.h"
#include "golden_base.h"
#include "golden_model.h"
#include "model_priv.h"
#include "renderer.h"

#include <kvfold/io.h>

#include <unistd.h>

static kvf_ctx *own;
static const char *place;
static char out[512];
static kvf__weights wanted;

static void setup(void)
{
    const kvf_ctx_options options = {.threads = 2};
    place = ck_tmpdir();
    toy_path(out, place, "out.h5");
    ck_assert_int_eq(kvf_ctx_create(&options, &own), KVF_OK);
}

static void teardown(void)
{
    kvf__weights_close(&wanted);
    kvf_ctx_free(own);
}

/* An imported adapter: path below tests/golden/foreign_prefixes, and its model. */
static const struct {
    const char *path, *model, *task;
    int64_t position_start;
    const char *label; /* the second output of its head; NULL: no head */
} CASES[] = {
    {"peft/pt2_mlp", "roberta", "seq-cls", 5, "yes"},
    {"peft_cartridge", "llama_tied", "lm", 5, NULL},
    {"peft/ah_bert", "bert", "seq-cls", 0, "LABEL_1"},
};
enum { N_CASES = sizeof CASES / sizeof CASES[0] };

static const char *source(const char *path)
{
    char name[256];
    snprintf(name, sizeof name, "tests/golden/foreign_prefixes/%s", path);
    return ck_source(name);
}

/* <case>.<what> of the expected tensors. */
static const kvf__view *want(int i, const char *what)
{
    char name[128];
    const char *slash = strchr(CASES[i].path, '/'), *path = slash ? slash + 1 : CASES[i].path;
    bool hub = !strncmp(path, "ah_", 3);
    if (!wanted.table.n)
        ck_assert_int_eq(
            kvf__safetensors_open(own, source(hub ? "want_ah.safetensors" : "want.safetensors"),
                                  &wanted),
            KVF_OK);
    snprintf(name, sizeof name, "%s.%s", path, what);
    const kvf__view *view = kvf__table_find(&wanted.table, name);
    ck_assert_msg(view != NULL, "no tensor %s", name);
    return view;
}

static void ck_view(const float *got, const kvf__view *view, double rtol, double atol)
{
    int64_t n = kvf__view_count(view);
    float *values = malloc((size_t)n * sizeof *values);
    memcpy(values, view->data, (size_t)n * sizeof *values); /* may be unaligned there */
    ck_close(got, values, (size_t)n, rtol, atol);
    free(values);
}

static kvf_status import_as(const kvf_import_options *options, char kind[16])
{
    memset(kind, 0, 16);
    return kvf_import(own, options, kind);
}

static kvf_prefix *imported(int i)
{
    char path[512], kind[16];
    kvf_prefix *prefix = NULL;
    const kvf_import_options options = {.path = source(CASES[i].path),
                                        .out = out,
                                        .base = golden_base(own, place, CASES[i].model, path)};
    ck_assert_msg(!import_as(&options, kind), "%s: %s", CASES[i].path, kvf_ctx_error(own));
    ck_assert_str_eq(kind, "prefix");
    ck_assert_msg(!kvf_prefix_open(own, out, KVF_CHECKPOINT_DEFAULT, &prefix), "%s",
                  kvf_ctx_error(own));
    return prefix;
}

/* ---- golden ---------------------------------------------------------------------------------- */

START_TEST(emits_what_torch_emits)
{
    kvf_prefix *prefix = imported(_i);
    const kvf__view *view = want(_i, "prefix");

    ck_assert_int_eq(view->rank, 5);
    ck_assert_int_eq(prefix->file.id.L, view->dim[0]);
    ck_assert_int_eq(prefix->file.id.G, view->dim[2]);
    ck_assert_int_eq(prefix->file.id.P, view->dim[3]);
    ck_assert_int_eq(prefix->file.id.D, view->dim[4]);
    ck_view(prefix->file.prefix.kv, view, 0, 1e-6);
    ck_assert_str_eq(prefix->file.id.task, CASES[_i].task);
    ck_assert_int_eq(prefix->file.id.position_start, CASES[_i].position_start);
    ck_assert_uint_eq(strlen(prefix->file.id.base_hash), 32);
    ck_assert_int_eq(prefix->file.prefix.layer_mask[1], CASES[_i].position_start > 0);
    kvf_prefix_free(prefix);
}
END_TEST

/* Logits, or final states, of the model under the imported prefix. */
START_TEST(conditions_as_there)
{
    kvf_prefix *prefix = imported(_i);
    golden g;
    golden_load(&g, CASES[_i].model, KVF__F32);
    const kvf__input input = {.batch = &g.batch,
                              .condition.prefix = &prefix->file.prefix,
                              .condition.position_start = prefix->file.id.position_start};
    const kvf__view *view = want(_i, "out");
    ck_assert_msg(!kvf__pass_fwd(g.ctx, g.pass, &input), "%s", kvf_ctx_error(g.ctx));
    if (g.model->lm.n) {
        float *logits = malloc((size_t)kvf__view_count(view) * sizeof *logits);
        ck_assert_int_eq(kvf__pass_lm_logits(g.ctx, g.pass, logits), KVF_OK);
        ck_view(logits, view, 1e-4, 2e-5);
        free(logits);
    } else {
        const float *hidden = NULL;
        ck_assert_int_eq(kvf__pass_hidden(g.ctx, g.pass, &hidden), KVF_OK);
        ck_view(hidden, view, 1e-4, 2e-5);
    }
    golden_unload(&g);
    kvf_prefix_free(prefix);
}
END_TEST

START_TEST(heads_come_along)
{
    kvf_prefix *prefix = imported(_i);
    ck_assert_uint_eq(prefix->file.head.params.params.n > 0, CASES[_i].label != NULL);
    if (CASES[_i].label) {
        ck_assert_str_eq(prefix->file.head.labels[1], CASES[_i].label);
        ck_view(prefix->file.head.params.params.item[1].value, want(_i, "head"), 0, 0);
    }
    kvf_prefix_free(prefix);
}
END_TEST

/* ---- other files ----------------------------------------------------------------------------- */

enum { P = 2, M = 3 };

/* A folder or file of one tensor or more, each filled with its own values. */
static void write_tensors(const char *path, kvf__tensor *tensors, size_t n, float *values)
{
    for (size_t i = 0, at = 0; i < n; i++) {
        kvf__view *view = &tensors[i].view;
        view->data = values + at;
        view->dtype = KVF__F32;
        at += (size_t)kvf__view_count(view);
    }
    ck_assert_msg(!kvf__safetensors_write(own, path, true, tensors, n), "%s", kvf_ctx_error(own));
}

static kvf_shape shape_of(const char *base)
{
    kvf_base *opened = NULL;
    ck_assert_msg(!kvf_base_open(own, base, NULL, &opened), "%s", kvf_ctx_error(own));
    const kvf_shape shape = kvf_base_shape(opened);
    kvf_base_free(opened);
    return shape;
}

/* An MLP whose second layer is its bias alone: every token gets these keys and values. */
START_TEST(an_encoder_becomes_a_run)
{
    char path[512], file[512], kind[16];
    const kvf_import_options options = {
        .path = file, .out = out, .base = golden_base(own, place, "llama_tied", path)};
    const kvf_shape s = shape_of(path);
    const int64_t W = s.G * s.D, N = 2 * s.L * W;
    kvf__tensor tensors[] = {
        {(char *)"embedding.weight", {.rank = 2, .dim = {P, W}}},
        {(char *)"transform.0.weight", {.rank = 2, .dim = {M, W}}},
        {(char *)"transform.0.bias", {.rank = 1, .dim = {M}}},
        {(char *)"transform.2.weight", {.rank = 2, .dim = {N, M}}},
        {(char *)"transform.2.bias", {.rank = 1, .dim = {N}}},
    };
    const int64_t before = P * W + M * W + M + N * M;
    float *values = calloc((size_t)(before + N), sizeof *values),
          *flat = calloc((size_t)(P * N), sizeof *flat);
    kvf_prefix *prefix = NULL;
    kvf__prefix want = {0};

    for (int64_t i = 0; i < P * W + M * W + M; i++)
        values[i] = 0.25f;
    for (int64_t i = 0; i < P * N; i++)
        flat[i] = values[before + i % N] = (float)(i % N % 31) / 16;
    toy_path(file, place, "encoder.safetensors");
    write_tensors(file, tensors, 5, values);
    ck_assert_msg(!import_as(&options, kind), "%s", kvf_ctx_error(own));
    ck_assert_str_eq(kind, "run");
    ck_assert_msg(!kvf_prefix_open(own, out, KVF_CHECKPOINT_DEFAULT, &prefix), "%s",
                  kvf_ctx_error(own));
    ck_assert_str_eq(prefix->file.id.method, "mlp");
    ck_assert_int_eq(prefix->file.id.P, P);
    ck_assert_int_eq(kvf__prefix_init(own, &want, s.L, s.G, P, s.D), KVF_OK);
    kvf__prefix_from_flat(&want, flat);
    ck_assert_mem_eq(prefix->file.prefix.kv, want.kv, kvf__prefix_count(&want) * sizeof(float));
    kvf__prefix_done(&want);
    kvf_prefix_free(prefix);

    const kvf_import_options bare = {.path = file, .out = out, .force = true};
    ck_assert_int_eq(kvf_import(own, &bare, kind), KVF_EUSAGE);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(own), "does not contain L, G and D: name the base"));
    write_tensors(file, tensors + 1, 4, values + P * W);
    ck_assert_int_eq(kvf_import(own, &options, kind), KVF_EFORMAT);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(own), "is not the state dict of an MLP encoder"));
    free(values);
    free(flat);
}
END_TEST

/* The prompt_embeddings of PEFT's PROMPT_TUNING, [P, C]. */
START_TEST(tokens_at_the_input)
{
    static const char CONFIG[] =
        "{\"peft_type\":\"PROMPT_TUNING\",\"task_type\":\"CAUSAL_LM\",\"num_virtual_tokens\":2}";
    char path[512], folder[512], file[640], kind[16];
    kvf_import_options options = {
        .path = folder, .out = out, .base = golden_base(own, place, "llama_tied", path)};
    const kvf_shape s = shape_of(path);
    kvf__tensor tensor = {(char *)"prompt_embeddings", {.rank = 2, .dim = {P, s.C}}};
    float *values = malloc((size_t)(P * s.C) * sizeof *values);
    kvf__artifact read = {0};

    for (int64_t i = 0; i < P * s.C; i++)
        values[i] = (float)i / 16;
    toy_path(folder, place, "adapter");
    ck_assert_int_eq(mkdir(folder, 0777), 0);
    toy_write(folder, "adapter_config.json", CONFIG);
    snprintf(file, sizeof file, "%s/adapter_model.safetensors", folder);
    write_tensors(file, &tensor, 1, values);
    ck_assert_msg(!import_as(&options, kind), "%s", kvf_ctx_error(own));
    ck_assert_str_eq(kind, "embeddings");
    ck_assert_int_eq(kvf__artifact_read(own, out, KVF__KIND_EMBEDDINGS, &read), KVF_OK);
    ck_assert(read.vectors.P == P && read.vectors.C == s.C && read.id.position_start == 0);
    ck_assert_mem_eq(read.vectors.x, values, (size_t)(P * s.C) * sizeof *values);
    ck_assert_str_eq(read.id.method, "prompt");
    kvf__artifact_done(&read);

    options.force = true;
    tensor.view.dim[1] = s.C - 1;
    write_tensors(file, &tensor, 1, values);
    ck_assert_int_eq(kvf_import(own, &options, kind), KVF_ESHAPE);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(own), "prompt_embeddings is [2, "));
    options.base = NULL;
    ck_assert_int_eq(kvf_import(own, &options, kind), KVF_EUSAGE);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(own), "does not contain G and D: name the base"));
    free(values);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

static const struct {
    const char *path, *from, *labels; /* path in the source tree */
    bool based;
    kvf_status status;
    const char *line;
} MISUSED[] = {
    {"tests/golden/peft_tiny", "keras", NULL, false, KVF_EUSAGE,
     "--from: \"keras\" is not known; known: auto, peft, encoder, base"},
    {"tests/coverage.txt", NULL, NULL, false, KVF_EFORMAT, "want a PEFT folder"},
    {"tests/golden/gguf_bpe.gguf", NULL, NULL, true, KVF_EUSAGE,
     "--base is not for importing a base"},
    {"tests/golden/gguf_bpe.gguf", "base", "a,b", false, KVF_EUSAGE,
     "--labels is not for importing"},
    {"tests/golden/llama_states/v3.state", NULL, NULL, true, KVF_EUSAGE, "--base MODEL.gguf"},
    {"tests/golden/peft_tiny", "auto", NULL, true, KVF_ESHAPE,
     "prompt_embeddings is [5, 96], want"},
};

START_TEST(what_is_no_import)
{
    char path[512], kind[16] = "";
    const char *base = golden_base(own, place, "gpt2", path);
    const kvf_import_options options = {.path = ck_source(MISUSED[_i].path),
                                        .from = MISUSED[_i].from,
                                        .labels = MISUSED[_i].labels,
                                        .base = MISUSED[_i].based ? base : NULL,
                                        .out = out};
    ck_assert_int_eq(kvf_import(own, &options, kind), MISUSED[_i].status);
    ck_assert_msg(strstr(kvf_ctx_error(own), MISUSED[_i].line), "%s", kvf_ctx_error(own));
    ck_assert_str_eq(kind, "");
    ck_assert(!kvf__exists(out));
}
END_TEST

/* leave_out of the folder, with the base's three layers. */
static const struct {
    const char *leave_out;
    kvf_status status;
    const char *line;
} BAD[] = {
    {"[1]", KVF_OK, ""},
    {"[3]", KVF_EFORMAT, "leave_out[0] in adapter_config.json must be a layer from 0 to 2"},
    {"[1,-1]", KVF_EFORMAT, "leave_out[1]"},
    {"[1,1]", KVF_EFORMAT, "leave_out[1]"},
    {"[1.5]", KVF_EFORMAT, "leave_out[0]"},
    {"[0,1,2]", KVF_EFORMAT, "leave_out[2]"},
    {"[0]", KVF_EFORMAT, "layer 0"}, /* its values are not zeros */
};

START_TEST(refuses_other_layers)
{
    char path[512], folder[512], config[256], tensors[640], kind[16] = "";
    const kvf_import_options options = {
        .path = folder, .out = out, .base = golden_base(own, place, "bert", path)};
    toy_path(folder, place, "adapter");
    snprintf(tensors, sizeof tensors, "%s/adapter_model.safetensors", folder);
    ck_assert_int_eq(mkdir(folder, 0777), 0);
    ck_assert_int_eq(symlink(source("peft/ah_bert/adapter_model.safetensors"), tensors), 0);
    snprintf(config, sizeof config,
             "{\"peft_type\":\"ADAPTERHUB\",\"task_type\":\"SEQ_CLS\",\"leave_out\":%s}",
             BAD[_i].leave_out);
    toy_write(folder, "adapter_config.json", config);
    ck_assert_int_eq(kvf_import(own, &options, kind), BAD[_i].status);
    ck_assert_msg(strstr(kvf_ctx_error(own), BAD[_i].line), "%s", kvf_ctx_error(own));
    ck_assert_int_eq(kvf__exists(out), BAD[_i].status == KVF_OK);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("import_foreign");
    TCase *golden_case = ck_case(suite, "golden", setup, teardown, 60);
    TCase *errors = ck_case(suite, "errors", setup, teardown, 60);

    tcase_add_loop_test(golden_case, emits_what_torch_emits, 0, N_CASES);
    tcase_add_loop_test(golden_case, conditions_as_there, 0, N_CASES);
    tcase_add_loop_test(golden_case, heads_come_along, 0, N_CASES);
    TCase *others = ck_case(suite, "others", setup, teardown, 60);
    tcase_add_test(others, an_encoder_becomes_a_run);
    tcase_add_test(others, tokens_at_the_input);
    tcase_add_loop_test(errors, what_is_no_import, 0, sizeof MISUSED / sizeof MISUSED[0]);
    tcase_add_loop_test(errors, refuses_other_layers, 0, sizeof BAD / sizeof BAD[0]);
    return ck_main(suite);
}
