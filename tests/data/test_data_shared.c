/* Real data sets, if available: recognised without options, with the published number of rows, and
 * with gold answers found in the text. Tokenizers: RoBERTa's for bidirectional rows, GPT-2's for
 * causal ones. */
#include "ck.h"
#include "data_int.h"

#include <math.h>
#include <string.h>

static kvf_ctx *ctx;
static kvf__tokenizer *tokenizers[2]; /* bidirectional, causal */
static kvf__chat chat;
static bool there;

static void setup(void)
{
    const char *dirs[2] = {ck_shared("data/tokenizers/roberta-base"),
                           ck_shared("data/tokenizers/gpt2")};
    ck_assert_int_eq(kvf_ctx_create(NULL, &ctx), KVF_OK);
    there = dirs[0] && dirs[1];
    for (int i = 0; there && i < 2; i++) {
        kvf_status st = kvf__tokenizer_from_dir(ctx, dirs[i], &tokenizers[i]);
        ck_assert_msg(st == KVF_OK, "%s", kvf_ctx_error(ctx));
    }
    if (there) /* the type in config.json */
        kvf__tokenizer_set_eos(tokenizers[1], kvf__token_id(tokenizers[1], "<|endoftext|>"));
    if (there) ck_assert_int_eq(kvf__chat_init(ctx, tokenizers[1], "none", &chat), KVF_OK);
}

static void teardown(void)
{
    kvf__chat_done(&chat);
    for (int i = 0; i < 2; i++)
        kvf__tokenizer_free(tokenizers[i]);
    kvf_ctx_free(ctx);
}

/* False, after one line, if the file is missing. */
static bool load(const char *name, kvf__dataset_options options, kvf__dataset *out)
{
    const char *path = there ? ck_shared(name) : NULL;
    *out = (kvf__dataset){0};
    if (!path) return false;
    options.render.tokenizer = tokenizers[options.causal];
    options.render.chat = &chat;
    options.vocab = kvf__vocab_size(options.render.tokenizer);
    if (!options.max_length) options.max_length = 1 << 20;
    kvf_status st = kvf__dataset_load(ctx, path, &options, out);
    ck_assert_msg(st == KVF_OK, "%s", kvf_ctx_error(ctx));
    return true;
}

#define SEQ    .task = KVF__TASK_SEQ_CLS
#define TOK    .task = KVF__TASK_TOKEN_CLS
#define CHOICE .task = KVF__TASK_CHOICE

/* Rows, groups and labels of the files (SOURCE.md in their folder, and the papers of the data
 * sets). */
static const struct {
    const char *file;
    int64_t rows, groups, labels, names;
    kvf__dataset_options options;
} FILES[] = {
    {"data/sst2/train.tsv", 6920, 6920, 6920, 2, {SEQ}},
    {"data/sst2/dev.tsv", 872, 872, 872, 2, {SEQ}},
    {"data/sst2/test.tsv", 1821, 1821, 1821, 2, {SEQ, .causal = true}},
    {"data/wnut17/wnut17train.conll", 3394, 3394, 62730, 13, {TOK}},
    {"data/wnut17/emerging.dev.conll", 1009, 1009, 15733, 13, {TOK}},
    {"data/wnut17/emerging.test.annotated", 1287, 1287, 23394, 13, {TOK, .causal = true}},
    {"data/superglue/RTE/train.jsonl", 2490, 2490, 2490, 2, {SEQ}},
    {"data/superglue/RTE/val.jsonl", 277, 277, 277, 2, {SEQ, .causal = true}},
    {"data/superglue/RTE/test.jsonl", 3000, 3000, 3000, 0, {SEQ, .unlabeled = true}},
    {"data/superglue/CB/train.jsonl", 250, 250, 250, 3, {SEQ}},
    {"data/superglue/CB/val.jsonl", 56, 56, 56, 3, {SEQ}},
    {"data/superglue/COPA/train.jsonl", 800, 400, 800, 0, {CHOICE}},
    {"data/superglue/COPA/val.jsonl", 200, 100, 200, 0, {CHOICE, .causal = true}},
    {"data/superglue/COPA/test.jsonl", 1000, 500, 1000, 0, {CHOICE, .unlabeled = true}},
};

START_TEST(counts)
{
    kvf__dataset set;
    ck_need(load(FILES[_i].file, FILES[_i].options, &set), "the shared data are not there");
    ck_assert_int_eq(set.n, FILES[_i].rows);
    ck_assert_int_eq(kvf__group_count(&set), FILES[_i].groups);
    ck_assert_int_eq(set.n_labels, FILES[_i].labels);
    ck_assert_uint_eq(set.names.n, (size_t)FILES[_i].names);
    ck_assert_int_eq(set.sources->labelled, !FILES[_i].options.unlabeled);
    kvf__dataset_done(&set);
}
END_TEST

START_TEST(labels_of_superglue)
{
    kvf__dataset set;
    ck_need(load("data/superglue/CB/train.jsonl", (kvf__dataset_options){SEQ}, &set),
            "the shared data are not there");
    ck_assert_str_eq(set.names.names[0], "contradiction");
    ck_assert_str_eq(set.names.names[1], "entailment");
    ck_assert_str_eq(set.names.names[2], "neutral");
    ck_assert_int_eq(set.sources->group[0].gold, 1);
    ck_assert_str_eq(set.sources->group[0].pair, "the language was peeled down");
    ck_assert_str_eq(set.sources->group[0].id, "0");
    kvf__dataset_done(&set);
    ck_need(load("data/superglue/COPA/train.jsonl", (kvf__dataset_options){CHOICE}, &set),
            "the shared data are not there");
    ck_assert_str_eq(set.sources->group[0].text, "My body cast a shadow over the grass. because");
    ck_assert_str_eq(set.sources->group[0].items[1], "The grass was cut.");
    kvf__dataset_done(&set);
}
END_TEST

/* Every answer is in a window whose tokens hold it and little more. A question has as many windows
 * as its context needs. Runs once bidirectional and once causal. */
START_TEST(answers_lead_back)
{
    kvf__dataset set;
    int64_t found = 0, exact = 0, rows = 0;
    const kvf__dataset_options options = {
        .task = KVF__TASK_QA, .causal = _i, .max_length = 128, .doc_stride = 32};
    ck_need(load("data/xquad_en/xquad.en.json", options, &set), "the shared data are not there");
    ck_assert_int_eq(set.n_groups, 1190);
    for (int64_t g = 0; g < set.n_groups; g++) {
        const kvf__source *s = &set.sources->group[g];
        int64_t from = 0, to = 0, held = 0;
        for (int64_t r = set.group[g]; r < set.group[g + 1]; r++, rows++) {
            ck_assert_int_le(kvf__example_length(&set, r), 128);
            if (!kvf__context_bytes(&set, r, set.spans[2 * r], set.spans[2 * r + 1], &from, &to))
                continue;
            held++;
            ck_assert_int_le(from, s->spans[0]);
            ck_assert_int_ge(to, s->spans[1]);
            exact += from == s->spans[0] && to == s->spans[1];
        }
        found += held > 0;
        ck_assert_str_eq(set.sources->group[g].items[0], s->items[0]);
    }
    ck_assert_int_eq(rows, set.n);
    ck_assert_int_gt(set.n, 2 * set.n_groups);
    ck_assert_int_ge(found, 1185); /* all except answers longer than the windows' overlap */
    ck_assert_int_ge(exact, found * 9 / 10);
    kvf__dataset_done(&set);
}
END_TEST

START_TEST(e2e_by_map)
{
    static const struct {
        const char *file;
        int64_t rows, prompts;
    } CSV[] = {{"data/e2e/devset.csv", 4672, 547}, {"data/e2e/testset_w_refs.csv", 4693, 630}};
    kvf__field_map map = {0};
    kvf__dataset set;
    ck_assert_int_eq(kvf__field_map_init(ctx, "prompt=mr,completion=ref", &map), KVF_OK);
    for (size_t i = 0; i < 2; i++) {
        kvf__dataset_options options = {.causal = true, .render = {.map = &map}};
        if (!load(CSV[i].file, options, &set)) break;
        ck_assert_int_eq(set.n, CSV[i].rows);
        kvf__dataset_done(&set);
        options.prompt_only = options.references = true;
        if (!load(CSV[i].file, options, &set)) break;
        int64_t references = 0;
        ck_assert_int_eq(set.n, CSV[i].prompts);
        for (int64_t g = 0; g < set.n; g++)
            references += set.sources->group[g].n;
        ck_assert_int_eq(references, CSV[i].rows);
        kvf__dataset_done(&set);
    }
    kvf__field_map_done(&map);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("data_shared");
    TCase *core = tcase_create("core");
    tcase_add_unchecked_fixture(core, setup, teardown); /* reads files only */
    tcase_set_timeout(core, 60);
    tcase_add_loop_test(core, counts, 0, (int)(sizeof FILES / sizeof FILES[0]));
    tcase_add_test(core, labels_of_superglue);
    tcase_add_loop_test(core, answers_lead_back, 0, 2);
    tcase_add_test(core, e2e_by_map);
    suite_add_tcase(suite, core);
    return ck_main(suite);
}
