/* A toy tokenizer and data sets of small texts, for the tests of task rows and their batches. */
#ifndef KVF_TASK_FX_H
#define KVF_TASK_FX_H

#include "ck.h"
#include "data_int.h"
#include "tok_json.h"

#include <string.h>

/* Letters a-h are ids 0-7, then a blank 8, a line feed 9, [CLS] 10, [SEP] 11, </s> 12,
 * U+0000 13. */
#define TOKENIZER(post)                                                                            \
    "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": ["          \
    "{\"id\": 10, \"content\": \"[CLS]\", \"single_word\": false, \"lstrip\": false, \"rstrip\": " \
    "false, \"normalized\": false, \"special\": true},"                                            \
    "{\"id\": 11, \"content\": \"[SEP]\", \"single_word\": false, \"lstrip\": false, \"rstrip\": " \
    "false, \"normalized\": false, \"special\": true},"                                            \
    "{\"id\": 12, \"content\": \"</s>\", \"single_word\": false, \"lstrip\": false, \"rstrip\": "  \
    "false, \"normalized\": false, \"special\": true}],"                                           \
    "\"normalizer\": null, \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": "    \
    "false, \"trim_offsets\": true, \"use_regex\": true}, \"post_processor\": " post               \
    ", \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": "      \
    "true, "                                                                                       \
    "\"use_regex\": true}, \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": "      \
    "null, "                                                                                       \
    "\"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, \"fuse_unk\": false, "     \
    "\"byte_fallback\": false, \"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"d\": 3, \"e\": 4, "     \
    "\"f\": 5, \"g\": 6, \"h\": 7, \"\xC4\xA0\": 8, \"\xC4\x8A\": 9, \"[CLS]\": 10, \"[SEP]\": "   \
    "11, "                                                                                         \
    "\"</s>\": 12, \"\xC4\x80\": 13}, \"merges\": []}}"
#define PIECE(id, type) "{\"SpecialToken\": {\"id\": \"" id "\", \"type_id\": " type "}}"
#define TEXT(id, type)  "{\"Sequence\": {\"id\": \"" id "\", \"type_id\": " type "}}"

static const char CAUSAL[] = TOKENIZER("null");
static const char BERT[] = TOKENIZER(
    "{\"type\": \"TemplateProcessing\", \"single\": [" PIECE("[CLS]", "0") "," TEXT("A", "0") "," PIECE("[SEP]", "0") "], \"pair\": [" PIECE(
        "[CLS]",
        "0") "," TEXT("A",
                      "0") "," PIECE("[SEP]",
                                     "0") "," TEXT("B",
                                                   "1") "," PIECE("[SEP]",
                                                                  "1") "], \"special_tokens\": "
                                                                       "{\"[CLS]\": {\"id\": "
                                                                       "\"[CLS]\", \"ids\": [10], "
                                                                       "\"tokens\": [\"[CLS]\"]}, "
                                                                       "\"[SEP]\": {\"id\": "
                                                                       "\"[SEP]\", \"ids\": [11], "
                                                                       "\"tokens\": "
                                                                       "[\"[SEP]\"]}}}");
static const char CONFIG[] =
    "{\"tokenizer_class\": \"GPT2TokenizerFast\", \"eos_token\": \"</s>\"}";

static kvf_ctx *ctx;
static kvf__tokenizer *bert, *causal;
static kvf__chat chat;

static kvf__tokenizer *tokenizer_of(const char *json)
{
    kvf__tokenizer *made = NULL;
    kvf_status st = tokenizer_from_json(ctx, "toy", json, strlen(json), CONFIG, strlen(CONFIG),
                                        &made);
    ck_assert_msg(st == KVF_OK, "%s", kvf_ctx_error(ctx));
    return made;
}

static void setup(void)
{
    ck_assert_int_eq(kvf_ctx_create(NULL, &ctx), KVF_OK);
    bert = tokenizer_of(BERT);
    causal = tokenizer_of(CAUSAL);
    ck_assert_int_eq(kvf__chat_init(ctx, causal, "none", &chat), KVF_OK);
}

static void teardown(void)
{
    kvf__chat_done(&chat);
    kvf__tokenizer_free(bert);
    kvf__tokenizer_free(causal);
    kvf_ctx_free(ctx);
}

/* Loads text as a file with that name; error lines lose the folder. */
static kvf_status load(const char *name, const char *text, kvf__dataset_options options,
                       kvf__dataset *out)
{
    const char *dir = ck_tmpdir();
    char path[512], plain[1024];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
    options.render.tokenizer = options.causal ? causal : bert;
    options.render.chat = &chat;
    options.vocab = 14;
    if (!options.max_length) options.max_length = 32;
    kvf_status st = kvf__dataset_load(ctx, path, &options, out);
    remove(path);
    const char *line = kvf_ctx_error(ctx);
    size_t n = strlen(dir);
    if (st && !strncmp(line, dir, n)) {
        snprintf(plain, sizeof plain, "%s", line + n + 1);
        kvf__fail(ctx, st, "%s", plain);
    }
    remove(dir);
    return st;
}

static kvf__dataset loaded(const char *name, const char *text, kvf__dataset_options options)
{
    kvf__dataset set = {0};
    kvf_status st = load(name, text, options, &set);
    ck_assert_msg(st == KVF_OK, "%s", kvf_ctx_error(ctx));
    return set;
}

/* The rows of a set as text, "10:1 0 1 11 | ...". Notation: ids, with ' for type 1, :label, =value,
 * [first last]. Rows of one group are separated by /, groups by |. */
static inline const char *rows_text(const kvf__dataset *set)
{
    static char text[4096];
    size_t at = 0;
    text[0] = 0;
#define PUT(...) at += (size_t)snprintf(text + at, sizeof text - at, __VA_ARGS__)
    for (int64_t r = 0; r < set->n; r++) {
        if (r) PUT(kvf__group_of(set, r) == kvf__group_of(set, r - 1) ? " / " : " | ");
        for (int64_t i = set->start[r]; i < set->start[r + 1]; i++) {
            PUT("%s%d%s", i > set->start[r] ? " " : "", (int)set->ids[i],
                set->types && set->types[i] ? "'" : "");
            if (set->labels[i] != KVF__NO_LABEL) PUT(":%d", (int)set->labels[i]);
        }
        if (set->values) PUT(" =%g", (double)set->values[r]);
        if (set->spans) PUT(" [%d %d]", (int)set->spans[2 * r], (int)set->spans[2 * r + 1]);
    }
#undef PUT
    return text;
}

/* The names of its labels, in the order of their ids. */
static inline const char *names_of(const kvf__dataset *set)
{
    static char text[256];
    size_t at = 0;
    text[0] = 0;
    for (size_t i = 0; i < set->names.n; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", i ? " " : "",
                               set->names.names[i]);
    return text;
}

#define SEQ    .task = KVF__TASK_SEQ_CLS
#define TOK    .task = KVF__TASK_TOKEN_CLS
#define QA     .task = KVF__TASK_QA
#define CHOICE .task = KVF__TASK_CHOICE
#define CAUSE  .causal = true

#endif
