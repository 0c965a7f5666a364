/* Tests of the importers of other programs' prefixes. tests/golden/foreign_prefixes holds
 * checkpoints in their layouts, with the keys and values that torch emits of them and what a tiny
 * model computes under these (make_foreign_golden.py, make_adapterhub_golden.py). */
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

/* What is imported: path below tests/golden/foreign_prefixes, its model, the kind of file it
 * becomes. */
static const struct {
    const char *path, *model, *format, *kind, *task;
    int64_t position_start;
    const char *label; /* the second of its head's outputs; NULL: no head */
} CASES[] = {
    {"pt2_flat", "bert", "p-tuning-v2", "prefix", "token-cls", 5, "B-X"},
    {"pt2_mlp", "roberta", "p-tuning-v2", "run", "seq-cls", 5, "yes"},
    {"li_liang.safetensors", "gpt2", "prefixtuning", "run", "lm", 5, NULL},
    {"li_deep.safetensors", "gpt2", "prefixtuning", "prefix", "lm", 5, NULL},
    {"li_flat.safetensors", "gpt2", "prefixtuning", "prefix", "lm", 5, NULL},
    {"li_cache.safetensors", "gpt2", "prefixtuning", "prefix", "lm", 5, NULL},
    {"cartridge.safetensors", "llama_tied", "cartridges", "prefix", "lm", 5, NULL},
    {"cartridge_all.safetensors", "llama_tied", "cartridges", "prefix", "lm", 5, NULL},
    {"peft_cartridge", "llama_tied", "peft", "prefix", "lm", 5, NULL},
    {"ah_gpt2", "gpt2", "adapterhub", "run", "lm", 0, NULL},
    {"ah_bert", "bert", "adapterhub", "prefix", "seq-cls", 0, "LABEL_1"},
    {"ah_llama", "qwen2", "adapterhub", "prefix", "lm", 0, NULL},
};
enum { N_CASES = sizeof CASES / sizeof CASES[0] };

static const char *source(const char *path)
{
    char name[256];
    snprintf(name, sizeof name, "tests/golden/foreign_prefixes/%s", path);
    return ck_source(name);
}

/* <case>.<what> of the wanted tensors. */
static const kvf__view *want(int i, const char *what)
{
    char name[128];
    const char *path = CASES[i].path;
    bool hub = !strncmp(path, "ah_", 3);
    if (!wanted.table.n)
        ck_assert_int_eq(
            kvf__safetensors_open(own, source(hub ? "want_ah.safetensors" : "want.safetensors"),
                                  &wanted),
            KVF_OK);
    snprintf(name, sizeof name, "%.*s.%s", (int)strcspn(path, "."), path, what);
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

static kvf_prefix *imported(int i, const char *from)
{
    char path[512], kind[16];
    kvf_prefix *prefix = NULL;
    const kvf_import_options options = {.path = source(CASES[i].path),
                                        .out = out,
                                        .from = from,
                                        .base = golden_base(own, place, CASES[i].model, path)};
    ck_assert_msg(!import_as(&options, kind), "%s: %s", CASES[i].path, kvf_ctx_error(own));
    ck_assert_str_eq(kind, CASES[i].kind);
    ck_assert_msg(!kvf_prefix_open(own, out, KVF_CHECKPOINT_DEFAULT, &prefix), "%s",
                  kvf_ctx_error(own));
    return prefix;
}

/* ---- golden ---------------------------------------------------------------------------------- */

START_TEST(emits_what_torch_emits)
{
    kvf_prefix *prefix = imported(_i, NULL);
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
    ck_assert_int_eq(prefix->file.prefix.layer_mask[1], strcmp(CASES[_i].path, "ah_bert") != 0);
    kvf_prefix_free(prefix);
}
END_TEST

/* Named, a format is what it is found to be. */
START_TEST(the_word_finds_the_same)
{
    kvf_prefix *prefix = imported(_i, CASES[_i].format);
    ck_view(prefix->file.prefix.kv, want(_i, "prefix"), 0, 1e-6);
    kvf_prefix_free(prefix);
}
END_TEST

/* Logits, or final states, of the model under what was imported. */
START_TEST(conditions_as_there)
{
    kvf_prefix *prefix = imported(_i, NULL);
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
    kvf_prefix *prefix = imported(_i, NULL);
    ck_assert_uint_eq(prefix->file.head.params.params.n > 0, CASES[_i].label != NULL);
    if (CASES[_i].label) {
        ck_assert_str_eq(prefix->file.head.labels[1], CASES[_i].label);
        ck_view(prefix->file.head.params.params.item[0].value, want(_i, "head"), 0, 0);
    }
    kvf_prefix_free(prefix);
}
END_TEST

/* ---- limits ---------------------------------------------------------------------------------- */

START_TEST(the_caller_decides_task_and_labels)
{
    char path[512], kind[16];
    kvf_import_options options = {.path = source("pt2_flat"),
                                  .out = out,
                                  .base = golden_base(own, place, "bert", path),
                                  .task = "lm",
                                  .force = true};
    kvf_prefix *prefix = NULL;
    ck_assert_msg(!import_as(&options, kind), "%s", kvf_ctx_error(own));
    ck_assert_int_eq(kvf_prefix_open(own, out, KVF_CHECKPOINT_DEFAULT, &prefix), KVF_OK);
    ck_assert_uint_eq(prefix->file.head.params.params.n, 0);
    kvf_prefix_free(prefix);
    options.task = "token-cls";
    options.labels = "a,b,c";
    ck_assert_msg(!import_as(&options, kind), "%s", kvf_ctx_error(own));
    ck_assert_int_eq(kvf_prefix_open(own, out, KVF_CHECKPOINT_DEFAULT, &prefix), KVF_OK);
    ck_assert_str_eq(prefix->file.head.labels[2], "c");
    kvf_prefix_free(prefix);
}
END_TEST

/* A cartridge has its shape; without --base the base stays unnamed. */
START_TEST(cartridges_need_no_base)
{
    char kind[16];
    kvf_prefix *prefix = NULL;
    const kvf_import_options options = {.path = source("cartridge.safetensors"), .out = out};
    ck_assert_msg(!import_as(&options, kind), "%s", kvf_ctx_error(own));
    ck_assert_int_eq(kvf_prefix_open(own, out, KVF_CHECKPOINT_DEFAULT, &prefix), KVF_OK);
    ck_assert_str_eq(prefix->file.id.base_hash, "");
    ck_assert_int_eq(prefix->file.id.P, 5);
    kvf_prefix_free(prefix);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

/* A copy of a checkpoint that `edit` changes, as place/NAME.safetensors. */
typedef struct copy {
    kvf__weights from;
    kvf__tensor tensors[64];
    size_t n;
    char path[512];
} copy;

static void copy_begin(copy *c, const char *path)
{
    *c = (copy){0};
    ck_assert_int_eq(kvf__safetensors_open(own, source(path), &c->from), KVF_OK);
    ck_assert_uint_le(c->from.table.n, 60);
    c->n = c->from.table.n;
    memcpy(c->tensors, c->from.table.items, c->n * sizeof *c->tensors);
}

static kvf__tensor *copy_find(copy *c, const char *end)
{
    for (size_t i = 0; i < c->n; i++) {
        size_t n = strlen(c->tensors[i].name), m = strlen(end);
        if (n >= m && !strcmp(c->tensors[i].name + n - m, end)) return &c->tensors[i];
    }
    ck_abort_msg("no tensor %s", end);
    return NULL;
}

static const char *copy_write(copy *c, const char *name)
{
    toy_path(c->path, place, name);
    ck_assert_msg(!kvf__safetensors_write(own, c->path, true, c->tensors, c->n), "%s",
                  kvf_ctx_error(own));
    return c->path;
}

static void refused(const kvf_import_options *options, kvf_status status, const char *part)
{
    char kind[16];
    kvf_status st = import_as(options, kind);
    ck_assert_msg(st == status && strstr(kvf_ctx_error(own), part),
                  "status %s, line \"%s\", want %s and \"%s\"", kvf_status_name(st),
                  kvf_ctx_error(own), kvf_status_name(status), part);
    ck_assert_msg(!kvf__exists(options->out), "%s was written", options->out);
}

static const char *drop(copy *c, const char *end)
{
    *copy_find(c, end) = c->tensors[c->n - 1];
    c->n--;
    return copy_write(c, "copy.safetensors");
}

static const char *rename_to(copy *c, const char *end, const char *name)
{
    copy_find(c, end)->name = (char *)name;
    return copy_write(c, "copy.safetensors");
}

/* Checkpoint, tensor and what becomes of it (NULL: it is dropped; else its new name), the line. */
static const struct {
    const char *path, *model, *tensor, *name, *from;
    kvf_status status;
    const char *line;
} EDITS[] = {
    {"pt2_mlp/model.safetensors", "roberta", "trans.2.weight", NULL, NULL, KVF_EFORMAT,
     "tensor \"prefix_encoder.trans.2.weight\" is missing"},
    {"pt2_mlp/model.safetensors", "roberta", "trans.0.bias", NULL, NULL, KVF_EFORMAT,
     "tensor \"prefix_encoder.trans.0.bias\" is missing"},
    {"pt2_mlp/model.safetensors", "roberta", "trans.0.bias", "lora.weight", NULL, KVF_EUNSUPPORTED,
     "holds \"lora.weight\""},
    {"pt2_mlp/model.safetensors", "roberta", "embedding.weight", "prefix_encoder.weight", NULL,
     KVF_EUNSUPPORTED, "a prompt at the input"},
    {"pt2_mlp/model.safetensors", "roberta", "trans.2.bias", "prefix_encoder.trans.0.bias_2",
     "prefixtuning", KVF_EUNSUPPORTED, "holds \""},
    {"pt2_mlp/model.safetensors", "bert", "trans.0.weight", "prefix_encoder.trans.0.weight", NULL,
     KVF_EUSAGE, "has a classifier, but does not say for what"},
    {"li_liang.safetensors", "gpt2", "wte.weight", NULL, NULL, KVF_EFORMAT,
     "tensor \"wte.weight\" is missing"},
    {"li_liang.safetensors", "gpt2", "control_trans.0.bias", "wte2.weight", NULL, KVF_EUNSUPPORTED,
     "infix-tuning"},
    {"li_liang.safetensors", "gpt2", "control_trans.0.bias", "control_trans_enc.0.bias", NULL,
     KVF_EUNSUPPORTED, "encoder-decoder"},
    {"li_liang.safetensors", "gpt2", "wte.weight", "wte.weight", "cartridges", KVF_EFORMAT,
     "tensor \"trainable_keys.0\" is missing"},
    {"li_liang.safetensors", "gpt2", "wte.weight", "wte.weight", "adapterhub", KVF_EFORMAT,
     "no adapter_config.json of AdapterHub"},
    {"li_liang.safetensors", "gpt2", "wte.weight", "wte.weight", "p-tuning-v2", KVF_EUNSUPPORTED,
     "holds \"control_trans."},
    {"li_liang.safetensors", "bert", "wte.weight", "wte.weight", NULL, KVF_ESHAPE,
     "its last layer is 128 wide, but 2 * 3 layers * 4 heads * 8 of the base want 192"},
    {"li_flat.safetensors", "bert", "control_trans", "control_trans", NULL, KVF_ESHAPE,
     "its prefix has 640 elements, no multiple of"},
    {"li_cache.safetensors", "bert", "control_trans", "control_trans", NULL, KVF_ESHAPE,
     "is for L=2 G=2 D=16, the base has L=3 G=4 D=8"},
    {"cartridge.safetensors", "llama_tied", "trainable_values.1", NULL, NULL, KVF_EFORMAT,
     "tensors, want keys and values of 3 layers"},
    {"cartridge.safetensors", "llama_tied", "trainable_values.1", "other", NULL, KVF_EFORMAT,
     "tensor \"trainable_values.1\" is missing"},
    {"cartridge.safetensors", "gpt2", "trainable_values.1", "trainable_values.1", NULL, KVF_ESHAPE,
     "is for L=3 G=2 D=16, the base has L=2"},
};
enum { N_EDITS = sizeof EDITS / sizeof EDITS[0] };

START_TEST(refuses_other_layouts)
{
    copy c;
    char path[512];
    kvf_import_options options = {
        .out = out, .from = EDITS[_i].from, .base = golden_base(own, place, EDITS[_i].model, path)};
    copy_begin(&c, EDITS[_i].path);
    options.path = EDITS[_i].name ? rename_to(&c, EDITS[_i].tensor, EDITS[_i].name)
                                  : drop(&c, EDITS[_i].tensor);
    refused(&options, EDITS[_i].status, EDITS[_i].line);
    kvf__weights_close(&c.from);
}
END_TEST

/* Shapes that do not fit each other, values that are none, types that are no floats. */
START_TEST(refuses_other_shapes)
{
    static float values[4096];
    copy c;
    char path[512];
    kvf_import_options options = {.out = out, .base = golden_base(own, place, "gpt2", path)};
    copy_begin(&c, "li_liang.safetensors");
    kvf__tensor *bias = copy_find(&c, "control_trans.0.bias"), was = *bias;
    bias->view.data = values;
    bias->view.dim[0] = 8;
    options.path = copy_write(&c, "copy.safetensors");
    refused(&options, KVF_ESHAPE, "\"control_trans.0.bias\" has 8 elements, want 9");
    *bias = was;
    bias->view.data = values;
    bias->view.dtype = KVF__I32;
    copy_write(&c, "copy.safetensors");
    refused(&options, KVF_EUNSUPPORTED, "\"control_trans.0.bias\" is i32, want a float type");
    *bias = was;
    values[3] = NAN;
    bias->view.data = values;
    copy_write(&c, "copy.safetensors");
    refused(&options, KVF_ENUMERIC, "transform.0.bias[3] is nan, want finite values");
    *bias = was;
    kvf__tensor *wte = copy_find(&c, "wte.weight");
    wte->view.data = values;
    wte->view.dim[1] = 31;
    copy_write(&c, "copy.safetensors");
    refused(&options, KVF_ESHAPE, "\"control_trans.0.weight\" is [9, 32], want 31 columns");
    kvf__weights_close(&c.from);

    options.base = NULL;
    options.path = source("li_liang.safetensors");
    refused(&options, KVF_EUSAGE, "prefixtuning does not say L, G and D: name the base");
    options.from = "word2vec";
    refused(&options, KVF_EUSAGE, "known: auto, peft, encoder, base, p-tuning-v2, prefixtuning");
}
END_TEST

/* A folder of AdapterHub with a config or a tensor changed. */
START_TEST(refuses_other_adapters)
{
    static const char CONFIG[] = "{\"config\":{\"architecture\":\"%s\",\"flat\":%s,\"leave_out\":[%"
                                 "s],\"non_linearity\":\"%s\","
                                 "\"use_gating\":%s},\"model_class\":\"GPT2LMHeadModel\"}";
    static const struct {
        const char *architecture, *flat, *leave_out, *act, *gating;
        kvf_status status;
        const char *line;
    } BAD[] = {
        {"lora", "false", "", "tanh", "false", KVF_EUNSUPPORTED, "is \"lora\", want prefix_tuning"},
        {"prefix_tuning", "true", "", "tanh", "false", KVF_EFORMAT, "\"control_trans\" is missing"},
        {"prefix_tuning", "false", "0", "tanh", "false", KVF_ESHAPE, "2 * 1 layers"},
        {"prefix_tuning", "false", "2", "tanh", "false", KVF_EFORMAT, "leave_out[0]"},
        {"prefix_tuning", "false", "0,1", "tanh", "false", KVF_EFORMAT, "leaves no layer"},
        {"prefix_tuning", "false", "", "leakyrelu", "false", KVF_EUNSUPPORTED, "\"leakyrelu\""},
        {"prefix_tuning", "false", "", "tanh", "true", KVF_EUNSUPPORTED, "use_gating"},
    };
    static float other[4096];
    copy c;
    char path[512], folder[512], config[512];
    kvf_import_options options = {
        .out = out, .path = folder, .base = golden_base(own, place, "gpt2", path)};
    toy_path(folder, place, "adapter");
    ck_assert_int_eq(mkdir(folder, 0777), 0);
    copy_begin(&c, "ah_gpt2/adapter.safetensors");
    copy_write(&c, "adapter/adapter.safetensors");
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        snprintf(config, sizeof config, CONFIG, BAD[i].architecture, BAD[i].flat, BAD[i].leave_out,
                 BAD[i].act, BAD[i].gating);
        toy_write(folder, "adapter_config.json", config);
        refused(&options, BAD[i].status, BAD[i].line);
    }
    snprintf(config, sizeof config, CONFIG, "prefix_tuning", "false", "", "tanh", "false");
    toy_write(folder, "adapter_config.json", config);
    kvf__tensor *one = copy_find(&c, "wte.weight"), was = *one;
    one->view.data = other;
    copy_write(&c, "adapter/adapter.safetensors");
    refused(&options, KVF_EFORMAT, "differs from its copies");
    *one = was;
    one->name = (char *)"transformer.prefix_tuning.prefix_tunings.second.self_prefix.wte.weight";
    copy_write(&c, "adapter/adapter.safetensors");
    refused(&options, KVF_EUNSUPPORTED, "holds several prefixes");
    one->name = (char *)"transformer.prefix_tuning.prefix_tunings.tiny.cross_prefix.wte.weight";
    copy_write(&c, "adapter/adapter.safetensors");
    refused(&options, KVF_EUNSUPPORTED, "encoder-decoder");
    kvf__weights_close(&c.from);
}
END_TEST

/* A head whose file is missing, or still a pickle. */
START_TEST(heads_are_not_lost_without_a_word)
{
    copy c;
    char path[512], folder[512];
    kvf_import_options options = {
        .out = out, .path = folder, .base = golden_base(own, place, "bert", path)};
    toy_path(folder, place, "adapter");
    ck_assert_int_eq(mkdir(folder, 0777), 0);
    copy_begin(&c, "ah_bert/adapter.safetensors");
    copy_write(&c, "adapter/adapter.safetensors");
    toy_write(folder, "adapter_config.json",
              "{\"config\":{\"architecture\":\"prefix_tuning\",\"flat\":true,\"leave_out\":[1]},"
              "\"model_class\":\"BertForSequenceClassification\"}");
    refused(&options, KVF_EFORMAT, "no head for task seq-cls; --task lm imports the prefix alone");
    toy_write(folder, "head_config.json", "{\"label2id\":{\"a\":0,\"b\":1}}");
    toy_write(folder, "pytorch_model_head.bin", "PK\003\004 and so on");
    refused(&options, KVF_EUNSUPPORTED, "pytorch_model_head.bin: is a torch pickle");
    options.task = "lm";
    char kind[16];
    ck_assert_msg(!import_as(&options, kind), "%s", kvf_ctx_error(own));
    kvf__weights_close(&c.from);
}
END_TEST

/* Torch's own files: refused, with the command that converts them. */
START_TEST(pickles_are_told_how_to_convert)
{
    char path[512], folder[512];
    kvf_import_options options = {.out = out, .path = path};
    toy_path(folder, place, "checkpoint");
    ck_assert_int_eq(mkdir(folder, 0777), 0);
    toy_path(path, place, "cache.pt");
    toy_write(place, "cache.pt", "PK\003\004\024 and so on");
    refused(&options, KVF_EUNSUPPORTED, "is a torch pickle, want safetensors; this converts it: ");
    toy_write(place, "cache.pt", "no such thing");
    refused(&options, KVF_EFORMAT, "want a PEFT folder");
    options.path = folder;
    toy_write(folder, "config.json", "{}");
    toy_write(folder, "pytorch_model.bin", "PK\003\004\024 and so on");
    refused(&options, KVF_EUNSUPPORTED, "pytorch_model.bin: is a torch pickle");
}
END_TEST

/* Cut anywhere, a file is refused and nothing is written. */
START_TEST(refuses_a_file_cut_short)
{
    kvf__mapfile file = {0};
    char path[512];
    const kvf_import_options options = {.out = out, .path = path};
    toy_path(path, place, "cut.safetensors");
    ck_assert_int_eq(kvf__mapfile_open(own, source("cartridge.safetensors"), &file), KVF_OK);
    for (size_t n = 0; n < file.n; n += n < 64 ? 1 : 37) {
        char kind[16];
        ck_assert_int_eq(kvf__write_file(own, path, true, file.data, n), KVF_OK);
        ck_assert_msg(import_as(&options, kind) != KVF_OK, "accepted with %zu bytes", n);
        ck_assert(!kvf__exists(out));
    }
    kvf__mapfile_close(&file);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("import_foreign");
    TCase *golden_case = ck_case(suite, "golden", setup, teardown, 60);
    TCase *limits = ck_case(suite, "limits", setup, teardown, 60);
    TCase *errors = ck_case(suite, "errors", setup, teardown, 60);

    tcase_add_loop_test(golden_case, emits_what_torch_emits, 0, N_CASES);
    tcase_add_loop_test(golden_case, the_word_finds_the_same, 0, N_CASES);
    tcase_add_loop_test(golden_case, conditions_as_there, 0, N_CASES);
    tcase_add_loop_test(golden_case, heads_come_along, 0, N_CASES);
    tcase_add_test(limits, the_caller_decides_task_and_labels);
    tcase_add_test(limits, cartridges_need_no_base);
    tcase_add_loop_test(errors, refuses_other_layouts, 0, N_EDITS);
    tcase_add_test(errors, refuses_other_shapes);
    tcase_add_test(errors, refuses_other_adapters);
    tcase_add_test(errors, heads_are_not_lost_without_a_word);
    tcase_add_test(errors, pickles_are_told_how_to_convert);
    tcase_add_test(errors, refuses_a_file_cut_short);
    return ck_main(suite);
}
