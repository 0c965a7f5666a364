/* Tests of PEFT adapter folders. golden/peft_tiny was saved by PEFT 0.21.2 with L = 3, G = 2, D = 8
 * and P = 5. Element i of its prompt_embeddings is (i % 97) / 32 - 1.5. */
#include "file_int.h"
#include "h5_fixture.h"
#include "peft.h"

#include <sys/stat.h>

enum { L = 3, G = 2, P = 5, D = 8, WIDTH = 2 * L * G * D };

static const kvf__head_values none;

static float flat_value(int64_t i)
{
    return (float)(i % 97) / 32.0f - 1.5f;
}

static void make_tiny(kvf__prefix *prefix, kvf__identity *id)
{
    float flat[P * WIDTH];

    for (int64_t i = 0; i < P * WIDTH; i++)
        flat[i] = flat_value(i);
    ck_ok(kvf__prefix_init(ctx, prefix, L, G, P, D));
    kvf__prefix_from_flat(prefix, flat);
    *id = IDENTITY;
    id->L = L;
    id->D = D;
    id->position_start = P;
}

static kvf_status write_adapter(const char *path, bool force, const kvf__identity *id,
                                const kvf__prefix *prefix, const kvf__head_values *head)
{
    const kvf__peft_content what = {.id = id, .prefix = prefix, .head = head};
    return kvf__peft_write(ctx, path, force, &what);
}

static void ck_tiny(const kvf__peft *peft)
{
    ck_assert_int_eq(peft->P, P);
    ck_assert_int_eq(peft->L, L);
    ck_assert_int_eq(peft->heads, G);
    ck_assert_int_eq(peft->token_dim, G * D);
    ck_assert_int_eq(peft->width, WIDTH);
    for (int64_t i = 0; i < P * WIDTH; i++)
        ck_assert(peft->flat[i] == flat_value(i));
}

/* ---- core ------------------------------------------------------------------------------------ */

START_TEST(reads_what_peft_saved)
{
    kvf__peft peft = {0};

    ck_ok(kvf__peft_read(ctx, ck_source("tests/golden/peft_tiny"), &peft));
    ck_tiny(&peft);
    ck_assert_str_eq(peft.base_name, "");
    ck_assert_str_eq(peft.task_type, "CAUSAL_LM");
    kvf__peft_done(&peft);
}
END_TEST

START_TEST(writes_what_peft_saves)
{
    kvf__prefix prefix;
    kvf__identity id;
    kvf__peft peft = {0};

    make_tiny(&prefix, &id);
    ck_ok(write_adapter(in_dir("out"), false, &id, &prefix, &none));
    ck_same_bytes(in_dir("out/adapter_model.safetensors"),
                  ck_source("tests/golden/peft_tiny/adapter_model.safetensors"));
    ck_ok(kvf__peft_read(ctx, in_dir("out"), &peft));
    ck_tiny(&peft);
    ck_assert_str_eq(peft.base_name, IDENTITY.base_name);
    ck_assert_str_eq(peft.task_type, "CAUSAL_LM");
    kvf__peft_done(&peft);
    kvf__prefix_done(&prefix);
}
END_TEST

/* Heads: names that begin with "base_model.", listed by module in modules_to_save. */
static const struct {
    const char *task, *type, *weight, *modules;
} HEADS[] = {
    {"seq-cls", "SEQ_CLS", "classifier.out_proj.weight", "[\"classifier\",\"score\"]"},
    {"token-cls", "TOKEN_CLS", "score.weight", "[\"classifier\",\"score\"]"},
    {"qa", "QUESTION_ANS", "qa_outputs.weight", "[\"qa_outputs\"]"},
    {"lm", "CAUSAL_LM", "lm_head.weight", "[\"lm_head\"]"},
    {"seq-cls", "SEQ_CLS", "bert.pooler.dense.weight", "[\"classifier\",\"score\",\"pooler\"]"},
};

START_TEST(with_head)
{
    kvf__prefix prefix;
    kvf__identity id;
    kvf__peft peft = {0};
    kvf__params_owned params = {0};
    kvf__head_values head;
    kvf_json *config = NULL;

    make_tiny(&prefix, &id);
    id.task = (char *)HEADS[_i].task;
    add_param(&params, HEADS[_i].weight, 3, 16, 0.5f);
    if (kvf__task_has_head(id.task)) add_param(&params, "z.bias", 3, 0, 1);
    ck_ok(kvf__head_values_copy(ctx, &params.params, NULL, 0, false, &head));
    ck_ok(write_adapter(in_dir("out"), false, &id, &prefix, &head));
    ck_ok(kvf_json_load(ctx, in_dir("out/adapter_config.json"), &config));
    ck_json_eq(kvf_json_get(config, "modules_to_save"), HEADS[_i].modules);
    ck_ok(kvf__peft_read(ctx, in_dir("out"), &peft));
    ck_tiny(&peft);
    ck_assert_str_eq(peft.task_type, HEADS[_i].type);
    ck_assert_str_eq(kvf__peft_task(peft.task_type), HEADS[_i].task);
    ck_same_params(&peft.head.params.params, &params.params);
    kvf_json_free(config);
    kvf__params_owned_done(&params);
    kvf__head_values_done(&head);
    kvf__peft_done(&peft);
    kvf__prefix_done(&prefix);
}
END_TEST

/* Equal to the keys that PEFT wrote for the same adapter, except for the base's name and the keys
 * of recent releases. */
START_TEST(config_is_peft_s)
{
    kvf__prefix prefix;
    kvf__identity id;
    kvf_json *got = NULL, *want = NULL;

    make_tiny(&prefix, &id);
    id.base_name = NULL;
    ck_ok(write_adapter(in_dir("out/"), false, &id, &prefix, &none));
    ck_ok(kvf_json_load(ctx, in_dir("out/adapter_config.json"), &got));
    ck_ok(kvf_json_load(ctx, ck_source("tests/golden/peft_tiny/adapter_config.json"), &want));
    for (void *it = kvf_json_iter(want); it; it = kvf_json_next(want, it)) {
        const char *key = kvf_json_iter_key(it);
        bool recent = !strcmp(key, "init_weights") || !strcmp(key, "peft_version");
        char *a = kvf_json_text(kvf_json_get(got, key), 0),
             *b = kvf_json_text(kvf_json_iter_value(it), 0);
        if (recent)
            ck_assert_ptr_null(kvf_json_get(got, key));
        else
            ck_assert_msg(a && !strcmp(a, b), "%s is %s, want %s", key, a ? a : "absent", b);
        kvf_json_text_free(a);
        kvf_json_text_free(b);
    }
    ck_assert_uint_eq(kvf_json_size(got), kvf_json_size(want) - 2);
    kvf_json_free(got);
    kvf_json_free(want);
    kvf__prefix_done(&prefix);
}
END_TEST

START_TEST(replaces_only_its_own_files)
{
    kvf__prefix prefix;
    kvf__identity id;
    kvf__peft peft = {0};

    make_tiny(&prefix, &id);
    mkdir(in_dir("out"), 0777);
    write_bytes(in_dir("out/README.md"), "mine", 4);
    ck_fails(write_adapter(in_dir("out"), false, &id, &prefix, &none), KVF_EEXIST, "out: exists");
    for (int i = 0; i < 2; i++)
        ck_ok(write_adapter(in_dir("out"), true, &id, &prefix, &none));
    ck_ok(kvf__peft_read(ctx, in_dir("out"), &peft));
    ck_tiny(&peft);
    size_t n;
    free(read_bytes(in_dir("out/README.md"), &n));
    ck_assert_uint_eq(n, 4);
    ck_assert_int_eq(files_in_dir(), 1);
    kvf__peft_done(&peft);
    kvf__prefix_done(&prefix);
}
END_TEST

static char *text_of(const char *name)
{
    size_t n;
    uint8_t *bytes = read_bytes(in_dir(name), &n);
    char *text = strndup((const char *)bytes, n);
    free(bytes);
    return text;
}

/* Label names and lineage with any contents; the names of a replaced head are removed. */
START_TEST(labels_and_card)
{
    char *names[] = {(char *)"a \"b\"\n```\n# c", (char *)"\xc3\xa9"};
    kvf__prefix prefix;
    kvf__identity id;
    kvf__peft peft = {0};
    kvf__params_owned params = {0};
    kvf__head_values head;
    kvf_json *labels = NULL, *lineage = json("{\"run_hash\":\"00ff`\\n```\"}");

    make_tiny(&prefix, &id);
    id.task = (char *)"seq-cls";
    add_param(&params, "score.weight", 2, 16, 0.5f);
    ck_ok(kvf__head_values_copy(ctx, &params.params, names, 2, false, &head));
    kvf__peft_content what = {
        .id = &id, .prefix = &prefix, .head = &head, .base_id = "org/base", .lineage = lineage};
    ck_ok(kvf__peft_write(ctx, in_dir("out"), false, &what));
    ck_ok(kvf_json_load(ctx, in_dir("out/labels.json"), &labels));
    ck_json_eq(kvf_json_get(labels, "id2label"),
               "{\"0\":\"a \\\"b\\\"\\n```\\n# c\",\"1\":\"\xc3\xa9\"}");
    ck_json_eq(kvf_json_get(labels, "label2id"), "{\"a \\\"b\\\"\\n```\\n# c\":0,\"\xc3\xa9\":1}");
    ck_ok(kvf__peft_read(ctx, in_dir("out"), &peft));
    ck_assert_str_eq(peft.base_name, "org/base");
    ck_assert_uint_eq(peft.head.n_labels, 2);
    ck_assert_str_eq(peft.head.labels[0], names[0]);
    ck_assert_str_eq(peft.head.labels[1], names[1]);

    char *card = text_of("out/README.md");
    ck_assert_ptr_eq(strstr(card, "---\nbase_model: \"org/base\"\nlibrary_name: peft\n"), card);
    ck_assert_ptr_nonnull(strstr(card, "\npipeline_tag: text-classification\n"));
    ck_assert_ptr_nonnull(strstr(card, "AutoPeftModelForSequenceClassification.from_pretrained"));
    ck_assert_ptr_nonnull(strstr(card, "\"run_hash\": \"00ff`\\n```\""));
    ck_assert_ptr_null(strstr(card, "\n# c"));
    ck_assert_ptr_null(strstr(card, "generate")); /* classifiers do not generate */
    free(card);

    what.head = &none;
    what.base_id = NULL;
    id.task = (char *)"lm";
    ck_ok(kvf__peft_write(ctx, in_dir("out"), true, &what));
    ck_assert_int_ne(access(in_dir("out/labels.json"), F_OK), 0);
    write_bytes(in_dir("out/labels.json"), "{}", 2);
    ck_ok(kvf__peft_write(ctx, in_dir("out"), true, &what));
    what.head = &head;
    id.task = (char *)"seq-cls";
    ck_fails(kvf__peft_write(ctx, in_dir("out"), true, &what), KVF_EEXIST, "has no \"id2label\"");
    ck_assert_int_eq(access(in_dir("out/labels.json"), F_OK), 0);
    what.head = &none;
    id.task = (char *)"lm";
    card = text_of("out/README.md");
    ck_assert_ptr_null(strstr(card, "base_model:"));
    ck_assert_ptr_nonnull(strstr(card, "PeftModel.from_pretrained(AutoModelForCausalLM"));
    ck_assert_ptr_nonnull(strstr(card, "out = model.generate(**x"));
    free(card);
    kvf_json_free(labels);
    kvf_json_free(lineage);
    kvf__peft_done(&peft);
    kvf__params_owned_done(&params);
    kvf__head_values_done(&head);
    kvf__prefix_done(&prefix);
}
END_TEST

/* ---- limits ---------------------------------------------------------------------------------- */

START_TEST(refuses_to_write)
{
    kvf__prefix prefix;
    kvf__identity id;
    const char *out = in_dir("out");

    make_tiny(&prefix, &id);
    id.position_start = 0;
    ck_fails(write_adapter(out, false, &id, &prefix, &none), KVF_EUNSUPPORTED,
             "position_start is 0, but PEFT always starts tokens at P = 5");
    id.position_start = P;
    prefix.layer_mask[2] = 0;
    ck_fails(write_adapter(out, false, &id, &prefix, &none), KVF_EUNSUPPORTED,
             "layer 2 has no prefix");
    prefix.layer_mask[2] = 1;
    id.task = (char *)"multiple-choice";
    ck_fails(write_adapter(out, false, &id, &prefix, &none), KVF_EUNSUPPORTED,
             "PEFT has no type for task multiple-choice");
    id.task = (char *)"qa";
    ck_fails(write_adapter(out, false, &id, &prefix, &none), KVF_EUSAGE, "0 parameters");
    id.task = (char *)"lm";
    prefix.P = 0;
    ck_fails(write_adapter(out, false, &id, &prefix, &none), KVF_ESHAPE, "length 0");
    prefix.P = P;
    ck_fails(write_adapter(in_dir("no/out"), false, &id, &prefix, &none), KVF_EIO,
             "no/out: cannot make");
    write_bytes(out, "x", 1);
    ck_fails(write_adapter(out, true, &id, &prefix, &none), KVF_EIO, "is a file, want a folder");
    ck_assert_int_eq(files_in_dir(), 1);
    kvf__prefix_done(&prefix);
}
END_TEST

START_TEST(allocation_failures)
{
    kvf__prefix prefix;
    kvf__identity id;
    kvf__peft peft = {0};
    kvf_status st = KVF_ENOMEM;

    make_tiny(&prefix, &id);
    for (int n = 0; st; n++) {
        kvf__ctx_fail_allocation(ctx, n);
        st = write_adapter(in_dir("out"), false, &id, &prefix, &none);
        ck_assert(st == KVF_OK || st == KVF_ENOMEM);
        ck_assert_int_eq(files_in_dir(), st == KVF_OK);
    }
    st = KVF_ENOMEM;
    for (int n = 0; st; n++) {
        kvf__ctx_fail_allocation(ctx, n);
        st = kvf__peft_read(ctx, in_dir("out"), &peft);
        ck_assert(st == KVF_OK || st == KVF_ENOMEM);
        ck_assert(st == KVF_OK || !peft.flat);
    }
    kvf__ctx_fail_allocation(ctx, -1);
    ck_tiny(&peft);
    kvf__peft_done(&peft);
    kvf__prefix_done(&prefix);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

/* A folder with this config and one tensor; zero members are as in peft_tiny. */
typedef struct folder {
    const char *line; /* part of the error line; NULL: no error */
    kvf_status status;
    const char *config; /* NULL: GOOD_CONFIG */
    const char *tensor; /* its name; NULL: prompt_embeddings */
    const char *second; /* a second tensor */
    kvf__dtype dtype;
    int rank;
    int64_t rows, columns;
    float value;
} folder;

#define CONFIG(type, rest) "{\"peft_type\":\"" type "\",\"task_type\":\"CAUSAL_LM\"" rest "}"
#define SIZES                                                                                      \
    ",\"num_virtual_tokens\":5,\"num_layers\":3,\"token_dim\":16,\"num_attention_heads\":2"
#define GOOD_CONFIG CONFIG("PREFIX_TUNING", SIZES)

static const folder FOLDERS[] = {
    {.status = KVF_OK},
    {.dtype = KVF__F16},
    {.dtype = KVF__BF16},
    {.config = CONFIG("CARTRIDGE", SIZES ",\"num_frozen_tokens\":1")},
    {.config = CONFIG("PREFIX_TUNING", SIZES ",\"prefix_projection\":true,\"future\":[1]")},
    {.config = CONFIG("PREFIX_TUNING", ",\"num_virtual_tokens\":5,\"num_layers\":null")},
    {"peft_type is LORA, want PREFIX_TUNING, CARTRIDGE, PROMPT_TUNING or P_TUNING",
     KVF_EUNSUPPORTED, .config = CONFIG("LORA", "")},
    {"prompt_embeddings has rows of 96, but token_dim is 16", KVF_ESHAPE,
     .config = CONFIG("P_TUNING", SIZES)},
    {"no text \"peft_type\"", KVF_EFORMAT, .config = "{\"r\":8}"},
    {"no text \"peft_type\"", KVF_EFORMAT, .config = "[]"},
    {"adapter_config.json:1: ", KVF_EFORMAT, .config = "{\"peft_type\":"},
    {"\"num_layers\" is not a whole number", KVF_EFORMAT,
     .config = CONFIG("PREFIX_TUNING", ",\"num_layers\":3.0")},
    {"\"token_dim\" is not a whole number", KVF_EFORMAT,
     .config = CONFIG("PREFIX_TUNING", ",\"token_dim\":-16")},
    {"\"base_model_name_or_path\" is not a text", KVF_EFORMAT,
     .config = CONFIG("PREFIX_TUNING", SIZES ",\"base_model_name_or_path\":7")},
    {"num_transformer_submodules is 2", KVF_EUNSUPPORTED,
     .config = CONFIG("PREFIX_TUNING", SIZES ",\"num_transformer_submodules\":2")},
    {"task_type is DIFFUSION", KVF_EUNSUPPORTED,
     .config = "{\"peft_type\":\"PREFIX_TUNING\",\"task_type\":\"DIFFUSION\"" SIZES "}"},
    {"token_dim 16 is not a multiple of num_attention_heads 3", KVF_ESHAPE,
     .config = CONFIG("PREFIX_TUNING", ",\"token_dim\":16,\"num_attention_heads\":3")},
    {"rows of 96, but 2 * num_layers 4 * token_dim 16 want 128", KVF_ESHAPE,
     .config = CONFIG("PREFIX_TUNING", ",\"token_dim\":16,\"num_layers\":4")},
    {"has 4 rows, but num_virtual_tokens is 5", KVF_ESHAPE, .rows = 4},
    {"is [5, 95], want [P, 2 * layers * token_dim]", KVF_ESHAPE, .columns = 95},
    {"is [5], want [P, 2 * layers * token_dim]", KVF_ESHAPE, .rank = 1},
    {"is f64, want f32, f16 or bf16", KVF_EUNSUPPORTED, .dtype = KVF__F64},
    {"tensor \"prompt_embeddings\" is missing", KVF_EFORMAT, .tensor = "embeddings"},
    {"\"base_model.score.weight\" besides", KVF_EUNSUPPORTED, .second = "base_model.score.weight"},
    {"task_type is SEQ_CLS, but there is no head", KVF_EFORMAT,
     .config = "{\"peft_type\":\"PREFIX_TUNING\",\"task_type\":\"SEQ_CLS\"" SIZES "}"},
    {.second = "base_model.score.weight",
     .config = "{\"peft_type\":\"PREFIX_TUNING\",\"task_type\":\"SEQ_CLS\"" SIZES "}"},
    {"contains \"score.weight\" besides", KVF_EUNSUPPORTED, .second = "score.weight",
     .config = "{\"peft_type\":\"PREFIX_TUNING\",\"task_type\":\"SEQ_CLS\"" SIZES "}"},
    {"task_type is WORDS", KVF_EUNSUPPORTED,
     .config = "{\"peft_type\":\"PREFIX_TUNING\",\"task_type\":\"WORDS\"" SIZES "}"},
    {"prompt_embeddings[0, 0] is inf, want finite values", KVF_ENUMERIC, .value = INFINITY},
};

static void write_folder(const folder *f)
{
    static double values[P * WIDTH];
    int64_t rows = f->rows ? f->rows : P, columns = f->columns ? f->columns : WIDTH;
    const char *config = f->config ? f->config : GOOD_CONFIG;
    float flat[P * WIDTH];

    for (int64_t i = 0; i < P * WIDTH; i++)
        flat[i] = f->value != 0 ? f->value : flat_value(i);
    if (f->dtype == KVF__F64)
        memset(values, 0, sizeof values);
    else
        kvf__from_f32(f->dtype, flat, values, P * WIDTH);
    const kvf__view view = {
        .data = values, .dtype = f->dtype, .rank = f->rank ? f->rank : 2, .dim = {rows, columns}};
    const kvf__tensor tensors[] = {{(char *)(f->tensor ? f->tensor : "prompt_embeddings"), view},
                                   {(char *)f->second, view}};
    mkdir(in_dir("a"), 0777);
    write_bytes(in_dir("a/adapter_config.json"), config, strlen(config));
    ck_ok(kvf__safetensors_write(ctx, in_dir("a/adapter_model.safetensors"), true, tensors,
                                 f->second ? 2 : 1));
}

START_TEST(folders)
{
    const folder *f = &FOLDERS[_i];
    kvf__peft peft = {0};

    write_folder(f);
    if (f->line) {
        ck_fails(kvf__peft_read(ctx, in_dir("a"), &peft), f->status, f->line);
        ck_assert_ptr_null(peft.flat);
        return;
    }
    ck_ok(kvf__peft_read(ctx, in_dir("a"), &peft));
    ck_assert_int_eq(peft.P, P);
    ck_assert_int_eq(peft.width, WIDTH);
    for (int64_t i = 0; i < P * WIDTH; i++)
        ck_assert(peft.flat[i] == flat_value(i));
    kvf__peft_done(&peft);
}
END_TEST

START_TEST(missing_files)
{
    kvf__peft peft = {0};

    ck_fails(kvf__peft_read(ctx, in_dir("a"), &peft), KVF_EIO, "a: not a folder");
    mkdir(in_dir("a"), 0777);
    ck_fails(kvf__peft_read(ctx, in_dir("a"), &peft), KVF_EIO,
             "a: adapter_config.json is not there");
    write_bytes(in_dir("a/adapter_config.json"), GOOD_CONFIG, strlen(GOOD_CONFIG));
    ck_fails(kvf__peft_read(ctx, in_dir("a"), &peft), KVF_EIO,
             "adapter_model.safetensors is not there");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("peft");
    TCase *core = ck_case(suite, "core", setup, teardown, 30);
    TCase *limits = ck_case(suite, "limits", setup, teardown, 30);
    TCase *errors = ck_case(suite, "errors", setup, teardown, 30);

    tcase_add_test(core, reads_what_peft_saved);
    tcase_add_test(core, writes_what_peft_saves);
    tcase_add_test(core, config_is_peft_s);
    tcase_add_loop_test(core, with_head, 0, sizeof HEADS / sizeof HEADS[0]);
    tcase_add_test(core, replaces_only_its_own_files);
    tcase_add_test(core, labels_and_card);
    tcase_add_test(limits, refuses_to_write);
    tcase_add_test(limits, allocation_failures);
    tcase_add_loop_test(errors, folders, 0, sizeof FOLDERS / sizeof FOLDERS[0]);
    tcase_add_test(errors, missing_files);
    return ck_main(suite);
}
