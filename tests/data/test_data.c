/* Rows to ids and labels, data sets, packed batches, the order of steps. The toy tokenizer: a = 0
 * ... e = 4, space = 5, <s> = 6, </s> = 7, U+0000 = 8. */
#include "ck.h"
#include "data_int.h"
#include "tok_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENIZER(post)                                                                            \
    "{\"version\": \"1.0\", \"added_tokens\": ["                                                   \
    "{\"id\": 6, \"content\": \"<s>\", \"single_word\": false, \"lstrip\": false, \"rstrip\": "    \
    "false, \"normalized\": false, \"special\": true},"                                            \
    "{\"id\": 7, \"content\": \"</s>\", \"single_word\": false, \"lstrip\": false, \"rstrip\": "   \
    "false, \"normalized\": false, \"special\": true}],"                                           \
    "\"normalizer\": null, \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": "    \
    "false, \"trim_offsets\": true, \"use_regex\": true},"                                         \
    "\"post_processor\": " post                                                                    \
    ", \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "                        \
    "\"trim_offsets\": true, \"use_regex\": true},"                                                \
    "\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "                      \
    "\"continuing_subword_prefix\": null, \"end_of_word_suffix\": null,"                           \
    "\"fuse_unk\": false, \"byte_fallback\": false, \"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, "    \
    "\"d\": 3, \"e\": 4, \"\xC4\xA0\": 5, \"<s>\": 6, \"</s>\": 7, \"\xC4\x80\": 8},"              \
    "\"merges\": []}}"
static const char NO_BOS[] = TOKENIZER("null");
static const char WITH_BOS[] = TOKENIZER(
    "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\", "
    "\"type_id\": 0}}, "
    "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"pair\": [], \"special_tokens\": "
    "{\"<s>\": {\"id\": \"<s>\", \"ids\": [6], \"tokens\": [\"<s>\"]}}}");
static const char CONFIG[] =
    "{\"tokenizer_class\": \"GPT2TokenizerFast\", \"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}";

static kvf_ctx *ctx;
static kvf__tokenizer *tokenizer;
static kvf__chat chat;

static void load_tokenizer(const char *json)
{
    ck_assert_int_eq(kvf_ctx_create(NULL, &ctx), KVF_OK);
    kvf_status st = tokenizer_from_json(ctx, "toy", json, strlen(json), CONFIG, strlen(CONFIG),
                                        &tokenizer);
    ck_assert_msg(st == KVF_OK, "%s", kvf_ctx_error(ctx));
    ck_assert_int_eq(kvf__chat_init(ctx, tokenizer, "none", &chat), KVF_OK);
}

static void setup(void)
{
    load_tokenizer(NO_BOS);
}

static void setup_bos(void)
{
    load_tokenizer(WITH_BOS);
}

static void teardown(void)
{
    kvf__chat_done(&chat);
    kvf__tokenizer_free(tokenizer);
    kvf_ctx_free(ctx);
}

static bool wrap;    /* prompts and completions */
static bool encoder; /* the base is an encoder-decoder, whose decoder begins with </s> */
static const kvf__row_template *pattern;

static kvf__render render_with(const kvf__field_map *map)
{
    return (kvf__render){.tokenizer = tokenizer,
                         .chat = &chat,
                         .wrap_prompts = wrap,
                         .map = map,
                         .pattern = pattern,
                         .encoder = encoder,
                         .start = 7};
}

/* "0 1:1 7:7" : ids, with :label where one is set. */
static char *row_text(const char *json, bool prompt_only, const kvf__field_map *map)
{
    static char text[256];
    kvf_json *row = NULL;
    kvf__ids ids = {0}, labels = {0};
    kvf__render render = render_with(map);
    ck_assert_int_eq(kvf_json_parse(ctx, "row", json, strlen(json), &row), KVF_OK);
    kvf_status st = kvf__render_row(ctx, &render, "row", row, prompt_only, &ids, &labels);
    ck_assert_msg(st == KVF_OK, "%s", kvf_ctx_error(ctx));
    ck_assert_uint_eq(ids.n, labels.n);
    text[0] = 0;
    for (size_t i = 0; i < ids.n; i++) {
        size_t at = strlen(text);
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%d", i ? " " : "", (int)ids.data[i]);
        if (labels.data[i] != KVF__NO_LABEL)
            snprintf(text + at, sizeof text - at, ":%d", (int)labels.data[i]);
    }
    kvf__ids_done(&ids);
    kvf__ids_done(&labels);
    kvf_json_free(row);
    return text;
}

static const struct {
    const char *json, *all, *prompt;
} ROWS[] = {
    {"{\"prompt\": \"ab\", \"completion\": \" c\"}", "0 1 5:5 2:2 7:7", "0 1"},
    {"{\"prompt\": \"ab\", \"completion\": \"\"}", "0 1 7:7", "0 1"},
    {"{\"text\": \"abc\"}", "0:0 1:1 2:2 7:7", "0 1 2"},
    {"{\"input_ids\": [3, 4, 5], \"labels\": [-100, 4, 1]}", "3 4:4 5:1", "3 4 5"},
    {"{\"input_ids\": [3, 4, 5], \"labels\": [-100, 4, 5], \"attention_mask\": [0, 1, 1]}",
     "4:4 5:5", "4 5"},
};

START_TEST(rows_without_bos)
{
    ck_assert_str_eq(row_text(ROWS[_i].json, false, NULL), ROWS[_i].all);
    ck_assert_str_eq(row_text(ROWS[_i].json, true, NULL), ROWS[_i].prompt);
}
END_TEST

/* A row that ends in EOS gets no second one; the existing EOS carries loss. */
static const struct {
    const char *json, *want, *pattern;
    bool encoder;
} ENDED[] = {
    {"{\"text\": \"ab</s>\"}", "0:0 1:1 7:7", NULL, false},
    {"{\"text\": \"ab</s> \"}", "0:0 1:1 7:7 5:5 7:7", NULL, false},
    {"{\"text\": \"</s>\"}", "7:7", NULL, false},
    {"{\"prompt\": \"a\", \"completion\": \"b</s>\"}", "0 1:1 7:7", NULL, false},
    {"{\"prompt\": \"a</s>\", \"completion\": \"\"}", "0 7 7:7", NULL, false},
    {"{\"text\": \"ab\"}", "0:0 1:1 7:7", "{text}</s>", false},
    {"{\"prompt\": \"a</s>\", \"completion\": \"\"}", "0 7 7:7", "{prompt}{completion}", false},
    {"{\"prompt\": \"a\", \"completion\": \"b\"}", "0 7 7 1:1 7:7", NULL, true},
    {"{\"prompt\": \"a</s>\", \"completion\": \"b</s>\"}", "0 7 7 1:1 7:7", NULL, true},
    {"{\"prompt\": \"a\", \"completion\": \"\"}", "0 7 7 7:7", NULL, true},
};

START_TEST(eos_is_not_doubled)
{
    kvf__row_template own = {0};
    if (ENDED[_i].pattern) {
        ck_assert_int_eq(kvf__row_template_init(ctx, ENDED[_i].pattern, 0, &own), KVF_OK);
        pattern = &own;
    }
    encoder = ENDED[_i].encoder;
    ck_assert_str_eq(row_text(ENDED[_i].json, false, NULL), ENDED[_i].want);
    encoder = false;
    pattern = NULL;
    kvf__row_template_done(&own);
}
END_TEST

/* Nothing is added around a template's output; special tokens in it are special tokens. */
START_TEST(rendered_rows_are_whole)
{
    chat.kind = KVF__CHAT_RENDERED;
    ck_assert_str_eq(row_text("{\"prompt\": \"a\", \"completion\": \"b\"}", false, NULL), "0 1:1");
    ck_assert_str_eq(row_text("{\"prompt\": \"a\", \"completion\": \"b\"}", true, NULL), "0");
    ck_assert_str_eq(row_text("{\"text\": \"ab\", \"messages\": []}", false, NULL), "0:0 1:1");
}
END_TEST

/* U+0000 is text in every kind of row. */
START_TEST(nul_is_text)
{
    const kvf__chat chatml = {.kind = KVF__CHAT_CHATML};
    ck_assert_str_eq(
        row_text("{\"prompt\": \"a\\u0000b\", \"completion\": \"\\u0000c\"}", false, NULL),
        "0 8 1 8:8 2:2 7:7");
    ck_assert_str_eq(row_text("{\"text\": \"\\u0000a\"}", false, NULL), "8:8 0:0 7:7");
    /* of <|im_start|>, <|im_end|>, user and assistant, the toy vocabulary has a, d and e */
    chat.kind = chatml.kind;
    ck_assert_str_eq(row_text("{\"messages\": [{\"role\": \"user\", \"content\": \"b\\u0000c\"},"
                              "{\"role\": \"assistant\", \"content\": \"\\u0000\"}]}",
                              false, NULL),
                     "0 4 1 8 2 4 3 0 0 0 8:8 4:4 3:3");
    ck_assert_str_eq(
        row_text("{\"messages\": [{\"role\": \"user\", \"content\": \"\\u0000\"}]}", true, NULL),
        "0 4 8 4 3 0 0 0");
}
END_TEST

/* Text of the template around messages, and the messages that carry loss. The toy vocabulary has
 * only a, d and e of ChatML's marks: "a d" stand for <|im_start|> and the following text. */
#define TALK(more)                                                                                 \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"b\"}, {\"role\": \"assistant\", "         \
    "\"content\": "                                                                                \
    "\"c\"" more                                                                                   \
    "}, {\"role\": \"user\", \"content\": \"b\"}, {\"role\": \"assistant\", \"content\": "         \
    "\"a\"}]}"
#define SYSTEM(more) "{\"system\": \"c\", " more "}"
#define TURNS                                                                                      \
    "{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}"
static const struct {
    const char *json, *same; /* a row with the same ids and labels */
    bool mute;               /* likewise, with the first answer's labels off */
} CHATS[] = {
    {TALK(", \"weight\": 0"), TALK(""), true},
    {TALK(", \"weight\": 0.0"), TALK(""), true},
    {TALK(", \"train\": false"), TALK(""), true},
    {TALK(", \"training\": false"), TALK(""), true},
    {TALK(", \"loss\": false"), TALK(""), true},
    {TALK(", \"loss_mask\": 0"), TALK(""), true},
    {TALK(", \"weight\": 1, \"train\": null, \"training\": true"), TALK(""), false},
    {TALK(", \"tool_calls\": [], \"reasoning_content\": \"\""), TALK(""), false},
    {SYSTEM("\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, {\"from\": \"gpt\", "
            "\"value\": \"b\"}]"),
     "{\"messages\": [{\"role\": \"system\", \"content\": \"c\"}, " TURNS "]}", false},
    {SYSTEM("\"messages\": [" TURNS "]"),
     "{\"messages\": [{\"role\": \"system\", \"content\": \"c\"}, " TURNS "]}", false},
    {SYSTEM("\"prompt\": \"a\", \"completion\": \"b\""),
     "{\"messages\": [{\"role\": \"system\", \"content\": \"c\"}, " TURNS "]}", false},
    {SYSTEM("\"instruction\": \"a\", \"output\": \"b\", \"history\": []"),
     "{\"messages\": [{\"role\": \"system\", \"content\": \"c\"}, " TURNS "]}", false},
    {"{\"instruction\": \"a\", \"output\": \"b\", \"history\": [[\"a\", \"b\"]]}",
     "{\"messages\": [" TURNS ", " TURNS "]}", false},
    {"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}]}, "
     "{\"role\": \"assistant\", \"content\": [{\"type\": \"text\", \"text\": \"b\"}, {\"type\": "
     "\"text\", \"text\": \"\"}]}]}",
     "{\"messages\": [" TURNS "]}", false},
};

/* Removes the first run of labels. */
static void mute_first(char *text)
{
    char *to = text, *at = text;
    bool on = true, seen = false;
    for (char *word = strtok(at, " "); word; word = strtok(NULL, " ")) {
        char *colon = strchr(word, ':');
        if (!colon && seen) on = false;
        seen = seen || colon;
        if (colon && on) *colon = 0;
        const size_t n = strlen(word);
        if (to != text) *to++ = ' ';
        memmove(to, word, n);
        to += n;
    }
    *to = 0;
}

START_TEST(chats_are_what_their_fields_say)
{
    char want[256];
    chat.kind = KVF__CHAT_CHATML;
    wrap = true;
    snprintf(want, sizeof want, "%s", row_text(CHATS[_i].same, false, NULL));
    if (CHATS[_i].mute) mute_first(want);
    ck_assert_str_eq(row_text(CHATS[_i].json, false, NULL), want);
    wrap = false;
}
END_TEST

/* The row, and its error line if the chat has a template. */
static const struct {
    const char *json, *line;
} BAD_CHATS[] = {
    {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"id\": "
     "1}]}]}",
     "row: messages[0]: \"tool_calls\" is not supported by the known templates: remove the row, or "
     "render it yourself (--chat-template rendered)"},
    {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"reasoning_content\": "
     "\"b\"}]}",
     "row: messages[0]: \"reasoning_content\" is not supported by the known templates: remove the "
     "row, or render it yourself (--chat-template rendered)"},
    {"{\"tools\": [{\"name\": \"f\"}], \"messages\": [" TURNS "]}",
     "row: \"tools\" is not supported by the known templates: remove the row, or render it "
     "yourself (--chat-template rendered)"},
    {TALK(", \"weight\": 0.5"), "row: messages[1]: \"weight\": want 0, 1, false or true"},
    {TALK(", \"train\": \"no\""), "row: messages[1]: \"train\": want 0, 1, false or true"},
    {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\", \"weight\": 1}]}",
     "row: messages[0]: \"weight\" is 1 for a turn of role \"user\", but only assistant turns can "
     "have loss: set it to 0"},
    {SYSTEM("\"messages\": [{\"role\": \"system\", \"content\": \"a\"}, " TURNS "]"),
     "row: the row has two system turns, messages[0] and \"system\""},
    {"{\"instruction\": \"a\", \"output\": \"b\", \"history\": [[\"a\"]]}",
     "row: \"history\": want a list of [\"question\", \"answer\"]"},
    {"{\"instruction\": \"a\", \"output\": \"b\", \"history\": \"a\"}",
     "row: \"history\": want a list of [\"question\", \"answer\"]"},
    {SYSTEM("\"prompt\": \"a\", \"completion\": \"b\""),
     "row: \"system\" is a chat turn, but this row is plain text: set --chat-template, or move the "
     "turn into the prompt"},
    {"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]}",
     "row: messages[0]: want {\"role\": text, \"content\": text, or parts of type text}"},
    {"{\"conversations\": [{\"from\": \"human\", \"value\": 3}]}",
     "row: conversations[0]: want {\"from\": text, \"value\": text, or parts of type text}"},
};

START_TEST(bad_chats_get_one_line)
{
    kvf_json *row = NULL;
    kvf__ids ids = {0}, labels = {0};
    chat.kind = KVF__CHAT_CHATML;
    const char *json = BAD_CHATS[_i].json;
    const kvf__render render = render_with(NULL);
    ck_assert_int_eq(kvf_json_parse(ctx, "row", json, strlen(json), &row), KVF_OK);
    ck_assert_int_eq(kvf__render_row(ctx, &render, "row", row, false, &ids, &labels), KVF_EDATA);
    ck_assert_str_eq(kvf_ctx_error(ctx), BAD_CHATS[_i].line);
    kvf__ids_done(&ids);
    kvf__ids_done(&labels);
    kvf_json_free(row);
}
END_TEST

#define PAIR "{\"prompt\": \"ab\", \"completion\": \"c\"}"

/* Rows, and the form and example that a run stores. */
static const struct {
    const char *rows[2], *form, *example;
    bool chat, wrap;
} FORMS[] = {
    {{PAIR}, "pairs", "ab", false, false},
    {{PAIR}, "chat", "ab", true, true},
    {{"{\"messages\": [{\"role\": \"system\", \"content\": \"c\"}, " TURNS "]}"},
     "chat",
     "a",
     true,
     false},
    {{"{\"conversations\": [{\"from\": \"human\", \"value\": \"b\"}]}"}, "chat", "b", true, false},
    {{"{\"instruction\": \"a\", \"input\": \"b\", \"output\": \"c\"}"},
     "chat",
     "a\n\nb",
     true,
     false},
    {{"{\"instruction\": \"a\", \"output\": \"c\"}"},
     "pairs",
     "Below is an instruction that describes a task. Write a response that appropriately completes "
     "the request.\n\n### Instruction:\na\n\n### Response:",
     false,
     false},
    {{"{\"text\": \"ab cd ef gh\"}"}, "text", "ab cd", false, false},
    {{"{\"text\": \"\u00e9\u00e9\u00e9\"}"}, "text", "\u00e9", false, false},
    {{"{\"prompt\": \"a\\u0000b\", \"completion\": \"c\"}", PAIR}, "pairs", "ab", false, false},
    {{"{\"text\": \"abcd\"}", PAIR}, "", "ab", false, false},
    {{"{\"input_ids\": [0], \"labels\": [0]}"}, "", "", false, false},
};

START_TEST(rows_have_a_form)
{
    kvf__row_form form = {0};
    char longest[KVF__MOST_EXAMPLE + 1];
    chat.kind = FORMS[_i].chat ? KVF__CHAT_CHATML : KVF__CHAT_NONE;
    wrap = FORMS[_i].wrap;
    const kvf__render render = render_with(NULL);
    memset(longest, 'a', sizeof longest);
    for (int i = 0; i < 2 && FORMS[_i].rows[i]; i++) {
        kvf_json *row = NULL;
        const char *json = FORMS[_i].rows[i];
        ck_assert_int_eq(kvf_json_parse(ctx, "row", json, strlen(json), &row), KVF_OK);
        ck_assert_int_eq(kvf__render_form(ctx, &render, row, &form), KVF_OK);
        kvf_json_free(row);
    }
    ck_assert_str_eq(form.name, FORMS[_i].form);
    if (*form.name) ck_assert_str_eq(form.example, FORMS[_i].example);
    form = (kvf__row_form){0};
    kvf__row_form_add(&form, "pairs", longest, sizeof longest);
    ck_assert_str_eq(form.example, "");
    kvf__row_form_add(&form, "pairs", longest, KVF__MOST_EXAMPLE);
    ck_assert_uint_eq(strlen(form.example), KVF__MOST_EXAMPLE);
    wrap = false;
}
END_TEST

START_TEST(rows_with_bos)
{
    ck_assert_str_eq(row_text("{\"prompt\": \"ab\", \"completion\": \" c\"}", false, NULL),
                     "6 0 1 5:5 2:2 7:7");
    ck_assert_str_eq(row_text("{\"text\": \"a\"}", false, NULL), "6 0:0 7:7");
    ck_assert_str_eq(row_text("{\"input_ids\": [3], \"labels\": [3]}", false, NULL),
                     "3:3"); /* ids are taken as they are */
}
END_TEST

/* The ids of a row read with a field map, or its error line. */
static const struct {
    const char *map, *json, *want;
} MAPPED[] = {
    {"prompt=q,completion=a", "{\"q\": \"a\", \"a\": \"b\"}", "0 1:1 7:7"},
    {"prompt=t.en,completion=t.de", "{\"t\": {\"en\": \"a\", \"de\": \"b\"}}", "0 1:1 7:7"},
    {"prompt=t.0,completion=t.1.x", "{\"t\": [\"a\", {\"x\": \"b\"}]}", "0 1:1 7:7"},
    {"prompt=t.en,completion=a.b.c", "{\"t.en\": \"a\", \"a\": {\"b.c\": \"b\"}}", "0 1:1 7:7"},
    {"prompt=t.en,completion=t.fr", "{\"t\": {\"en\": \"a\", \"de\": \"b\"}}",
     "row: \"completion\" is missing; the row has t.en, t.de; it has no \"t.fr\", which --map "
     "names for completion"},
    /* a mapped field overrides the row's own field of that name */
    {"prompt=messages.0.content,completion=c",
     "{\"messages\": [{\"content\": \"a\"}], \"c\": \"b\"}", "0 1:1 7:7"},
    {"text=c", "{\"prompt\": \"b\", \"completion\": \"b\", \"c\": \"a\"}", "0:0 7:7"},
    {"prompt=q,completion=a", "{\"question\": \"a\", \"answer\": \"b\"}",
     "row: none of the fields prompt, text, messages, input_ids; the row has question, answer; it "
     "has no \"q\", which --map names for prompt, no \"a\", which --map names for completion"},
    {"question=prompt", "{\"question\": \"a\", \"answer\": \"b\"}",
     "row: none of the fields prompt, text, messages, input_ids; the row has question, answer; it "
     "has no \"prompt\", which --map names for question (did you mean prompt=question?)"},
    /* null means a missing field */
    {"", "{\"messages\": null, \"text\": null, \"prompt\": \"a\", \"completion\": \"b\"}",
     "0 1:1 7:7"},
    {"", "{\"input_ids\": [0, 1], \"labels\": [0, 1], \"attention_mask\": null}", "0:0 1:1"},
};

START_TEST(foreign_fields)
{
    kvf__field_map map = {0};
    kvf_json *row = NULL;
    kvf__ids ids = {0}, labels = {0};
    const char *json = MAPPED[_i].json;
    ck_assert_int_eq(kvf__field_map_init(ctx, MAPPED[_i].map, &map), KVF_OK);
    const kvf__render render = render_with(&map);
    ck_assert_int_eq(kvf_json_parse(ctx, "row", json, strlen(json), &row), KVF_OK);
    if (kvf__render_row(ctx, &render, "row", row, false, &ids, &labels))
        ck_assert_str_eq(kvf_ctx_error(ctx), MAPPED[_i].want);
    else
        ck_assert_str_eq(row_text(json, false, &map), MAPPED[_i].want);
    kvf__ids_done(&ids);
    kvf__ids_done(&labels);
    kvf_json_free(row);
    kvf__field_map_done(&map);
}
END_TEST

/* The row, and its only error line. */
static const struct {
    const char *json, *line;
} BAD[] = {
    {"{\"prompt\": \"a\"}",
     "x.jsonl:2: \"completion\" is missing; the row has prompt (map other names with --map)"},
    {"{\"prompt\": 3, \"completion\": \"b\"}", "x.jsonl:2: \"prompt\" is not a string; the row has "
                                               "prompt, completion (map other names with --map)"},
    {"{\"input_ids\": [1, 2], \"labels\": [1]}",
     "x.jsonl:2: \"labels\" has 1 entries, \"input_ids\" has 2"},
    {"{\"input_ids\": [1, 8], \"labels\": [1, 1]}",
     "x.jsonl:2: id 8 is outside the vocabulary of 8"},
    {"{\"input_ids\": [1, 1], \"labels\": [1, -1]}",
     "x.jsonl:2: label -1 is outside the vocabulary of 8"},
    {"{\"input_ids\": [1.5], \"labels\": [1]}", "x.jsonl:2: input_ids[0] is not a 32-bit integer"},
    {"{\"input_ids\": [], \"labels\": []}", "x.jsonl:2: the row has no tokens"},
    {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}",
     "x.jsonl:2: \"messages\" needs a chat template, and the base has none: set one with "
     "--chat-template"},
    {"{\"sentence\": \"a\"}", "x.jsonl:2: none of the fields prompt, text, messages, input_ids; "
                              "the row has sentence (map other names with --map)"},
    {"[1]", "x.jsonl:2: want a JSON object"},
    {"{\"text\": \"abcdeabcde\"}",
     "x.jsonl:2: the row has 11 tokens, at most 8 fit (see --overlong)"},
};

static const kvf__field_map *mapping; /* of load() */
static bool prompts;                  /* of load(): prompts with references */

static kvf_status load(const char *content, kvf_overlong overlong, kvf__dataset *out)
{
    const char *dir = ck_tmpdir();
    char path[512], plain[512];
    snprintf(path, sizeof path, "%s/x.jsonl", dir);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(content, file);
    fclose(file);
    kvf__dataset_options options = {.render = render_with(mapping),
                                    .max_length = 8,
                                    .overlong = overlong,
                                    .vocab = 8,
                                    .prompt_only = prompts,
                                    .references = prompts};
    kvf_status st = kvf__dataset_load(ctx, path, &options, out);
    remove(path);
    remove(dir);
    /* Errors are compared without the folder. */
    const char *line = kvf_ctx_error(ctx);
    size_t n = strlen(dir) + 1;
    if (st && !strncmp(line, dir, n - 1)) {
        snprintf(plain, sizeof plain, "%s", line + n);
        kvf__fail(ctx, st, "%s", plain);
    }
    return st;
}

START_TEST(bad_rows_get_one_line)
{
    char content[512];
    kvf__dataset set = {0};
    snprintf(content, sizeof content, "{\"text\": \"ab\"}\n%s\n", BAD[_i].json);
    ck_assert_int_eq(load(content, KVF_OVERLONG_STOP, &set), KVF_EDATA);
    ck_assert_str_eq(kvf_ctx_error(ctx), BAD[_i].line);
}
END_TEST

static void keep_line(void *user, kvf_log_level level, const char *line)
{
    snprintf(user, 256, "%d %s", (int)level, strrchr(line, '/') + 1);
}

/* Unread fields of rows and messages are listed once, with their counts. */
START_TEST(unread_fields_are_listed)
{
    char said[256] = "";
    kvf__dataset set = {0};
    const kvf_ctx_options options = {.log = keep_line, .log_user = said};
    kvf_ctx_free(ctx);
    ck_assert_int_eq(kvf_ctx_create(&options, &ctx), KVF_OK);
    chat.kind = KVF__CHAT_CHATML;
    ck_assert_int_eq(
        load("{\"text\": \"ab\", \"id\": 3, \"prompts\": 1, \"url\": null}\n{\"messages\": "
             "[{\"role\": \"assistant\", \"content\": \"a\", \"weight\": 1, \"name\": "
             "\"b\"}], \"system\": \"\", \"url\": \"c\"}\n",
             KVF_OVERLONG_TRUNCATE, &set),
        KVF_OK);
    ck_assert_str_eq(said, "0 x.jsonl: ignored fields: prompts (1), url (2), messages' name (1)");
    kvf__dataset_done(&set);
    kvf__field_map map = {0};
    ck_assert_int_eq(kvf__field_map_init(ctx, "text=a.b,references=refs", &map), KVF_OK);
    mapping = &map;
    ck_assert_int_eq(load("{\"a\": {\"b\": \"ab\"}}\n", KVF_OVERLONG_STOP, &set), KVF_OK);
    ck_assert_str_eq(said,
                     "0 x.jsonl: no row has the field \"refs\", which --map names for references");
    mapping = NULL;
    kvf__field_map_done(&map);
    kvf__dataset_done(&set);
}
END_TEST

START_TEST(bad_files_get_one_line)
{
    kvf__dataset set = {0};
    ck_assert_int_eq(load("", KVF_OVERLONG_STOP, &set), KVF_EDATA);
    ck_assert_str_eq(kvf_ctx_error(ctx), "x.jsonl: no rows");
    ck_assert_int_eq(load("{\"text\": \"abcdeabcde\"}\n", KVF_OVERLONG_SKIP, &set), KVF_EDATA);
    ck_assert_str_eq(kvf_ctx_error(ctx),
                     "x.jsonl: no rows fit (all were longer than --max-length)");
    ck_assert_int_eq(
        load("{\"input_ids\": [1, 2], \"labels\": [-100, -100]}\n", KVF_OVERLONG_STOP, &set),
        KVF_EDATA);
    ck_assert_str_eq(kvf_ctx_error(ctx), "x.jsonl: no token of any row has a label");
    ck_assert_int_eq(load("{\"text\": \"ab\"}\n{\"text\": \n", KVF_OVERLONG_STOP, &set),
                     KVF_EFORMAT);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "x.jsonl:2"));
    kvf__dataset_options options = {.render = render_with(NULL), .max_length = 8, .vocab = 8};
    ck_assert_int_eq(kvf__dataset_load(ctx, "/nonexistent/x.jsonl", &options, &set), KVF_EIO);
    ck_assert_ptr_null(set.ids);
}
END_TEST

static const char FOUR[] = "{\"text\": \"ab\"}\n\n{\"prompt\": \"abc\", \"completion\": "
                           "\"d\"}\r\n{\"text\": \"abcdeabcde\"}\n{\"text\": \"e\"}";

START_TEST(overlong_rows_are_cut_or_left_out)
{
    kvf__dataset cut = {0}, left = {0};
    ck_assert_int_eq(load(FOUR, KVF_OVERLONG_TRUNCATE, &cut), KVF_OK);
    ck_assert_int_eq(cut.n, 4);
    ck_assert_int_eq(cut.truncated, 1);
    ck_assert_int_eq(kvf__example_length(&cut, 2), 8);
    ck_assert_int_eq(load(FOUR, KVF_OVERLONG_SKIP, &left), KVF_OK);
    ck_assert_int_eq(left.n, 3);
    ck_assert_int_eq(left.skipped, 1);
    ck_assert_int_eq(left.n_labels, 2 + 2 + 1);
    ck_assert_int_eq(kvf__example_labels(&left, 1), 2);
    kvf__dataset_done(&cut);
    kvf__dataset_done(&left);
}
END_TEST

/* Adjacent equal prompts are one row with all their references: a list, one text, or the
 * completion. */
START_TEST(references_of_prompts)
{
    static const char ROWS_OF_TWO[] = "{\"prompt\": \"ab\", \"references\": [\"c\", \"d\"]}\n"
                                      "{\"prompt\": \"ab\", \"completion\": \"e\"}\n"
                                      "{\"prompt\": \"abcdeabcde\", \"references\": \"a\"}\n"
                                      "{\"prompt\": \"abcdeabcde\", \"references\": \"b\"}\n";
    static const int64_t NUMBERS[] = {3, 2};
    static const char *const ITEMS[] = {"c", "d", "e", "a", "b"};
    kvf__dataset set = {0};
    prompts = true;
    ck_assert_int_eq(load(ROWS_OF_TWO, KVF_OVERLONG_TRUNCATE, &set), KVF_OK);
    ck_assert_int_eq(set.n, 2);
    ck_assert_int_eq(kvf__example_length(&set, 1), 8);
    ck_assert_int_eq(set.truncated, 2);
    for (int64_t g = 0, at = 0; g < 2; g++) {
        const kvf__source *source = &set.sources->group[g];
        ck_assert_int_eq(source->n, NUMBERS[g]);
        ck_assert_str_eq(source->text, g ? "abcdeabcde" : "ab");
        for (int64_t i = 0; i < source->n; i++)
            ck_assert_str_eq(source->items[i], ITEMS[at++]);
    }
    kvf__dataset_done(&set);
    ck_assert_int_eq(
        load("{\"prompt\": \"a\", \"references\": [\"b\", 1]}\n", KVF_OVERLONG_STOP, &set),
        KVF_EDATA);
    ck_assert_str_eq(kvf_ctx_error(ctx), "x.jsonl:1: references[1] is not a string");
    prompts = false;
}
END_TEST

#define LONG_PROMPT "{\"prompt\": \"abcdeabcde\", \"completion\": \"ab\"}\n"
#define LONG_ANSWER "{\"prompt\": \"abc\", \"completion\": \"abcdeabcde\"}\n"

/* The first row cut to 8 tokens: without and with BOS, and at its end. */
static const struct {
    const char *json, *plain, *bos, *end;
} CUTS[] = {
    {LONG_PROMPT, "0 1 2 3 4 0:0 1:1 7:7", "6 1 2 3 4 0:0 1:1 7:7", "0 1 2 3 4 0 1 2"},
    {LONG_ANSWER, "0:0 1:1 2:2 3:3 4:4 0:0 1:1 2:2", "6 0:0 1:1 2:2 3:3 4:4 0:0 1:1",
     "0 1 2 0:0 1:1 2:2 3:3 4:4"},
    {"{\"text\": \"abcdeabcde\"}\n", "0:0 1:1 2:2 3:3 4:4 0:0 1:1 2:2",
     "6 0:0 1:1 2:2 3:3 4:4 0:0 1:1", "0:0 1:1 2:2 3:3 4:4 0:0 1:1 2:2"},
    {"{\"input_ids\": [0, 1, 2, 3, 4, 0, 1, 2, 3], \"labels\": "
     "[-100, -100, -100, -100, -100, -100, -100, 2, 3]}\n",
     "1 2 3 4 0 1 2:2 3:3", "1 2 3 4 0 1 2:2 3:3", "0 1 2 3 4 0 1 2:2"},
};

static const char *first_row(const kvf__dataset *set)
{
    static char text[128];
    size_t at = 0;
    for (int64_t i = set->start[0]; i < set->start[1]; i++) {
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%d", i ? " " : "", (int)set->ids[i]);
        if (set->labels[i] != KVF__NO_LABEL)
            at += (size_t)snprintf(text + at, sizeof text - at, ":%d", (int)set->labels[i]);
    }
    return text;
}

static void check_cut(const char *json, kvf_overlong overlong, const char *want)
{
    char content[256];
    kvf__dataset set = {0};
    snprintf(content, sizeof content, "%s{\"text\": \"ab\"}\n", json);
    kvf_status st = load(content, overlong, &set);
    ck_assert_msg(st == KVF_OK, "%s", kvf_ctx_error(ctx));
    ck_assert_str_eq(first_row(&set), want);
    ck_assert_int_eq(set.truncated, 1);
    ck_assert_int_eq(set.without_label, strchr(want, ':') == NULL);
    kvf__dataset_done(&set);
}

START_TEST(prompts_are_cut_at_their_left)
{
    check_cut(CUTS[_i].json, KVF_OVERLONG_TRUNCATE, CUTS[_i].plain);
    check_cut(CUTS[_i].json, KVF_OVERLONG_TRUNCATE_END, CUTS[_i].end);
}
END_TEST

START_TEST(bos_is_not_cut)
{
    check_cut(CUTS[_i].json, KVF_OVERLONG_TRUNCATE, CUTS[_i].bos);
}
END_TEST

START_TEST(batches_are_packed_and_labels_shifted)
{
    static const int64_t EXAMPLES[] = {1, 0};
    static const int32_t IDS[] = {0, 1, 2, 3, 7, 0, 1, 7}, AT[] = {2, 3, 5, 6}, TO[] = {3, 7, 1, 7};
    static const int64_t START[] = {0, 5, 8};
    kvf__dataset set = {0};
    kvf__batcher batcher = {0};
    const kvf__batch_rules rules = {.causal = false};
    ck_assert_int_eq(load(FOUR, KVF_OVERLONG_SKIP, &set), KVF_OK);
    ck_assert_int_eq(kvf__batcher_init(ctx, &batcher, rules, 2, 8, 4), KVF_OK);
    kvf__batcher_fill(&batcher, &set, EXAMPLES, 2);
    const kvf__batch *b = &batcher.batch;
    ck_assert_int_eq(b->n_rows, 2);
    ck_assert_int_eq(b->n_tokens, 8);
    ck_assert_int_eq(b->n_labels, 4);
    ck_assert_mem_eq(b->start, START, sizeof START);
    ck_assert_mem_eq(b->ids, IDS, sizeof IDS);
    ck_assert_mem_eq(b->label_at, AT, sizeof AT);
    ck_assert_mem_eq(b->label_id, TO, sizeof TO);
    ck_assert_mem_eq(b->example, EXAMPLES, sizeof EXAMPLES);
    kvf__batcher_done(&batcher);
    kvf__dataset_done(&set);
}
END_TEST

/* A data set of n rows of the given lengths, for the sampler only. */
static kvf__dataset lengths_only(int64_t *start, const int64_t *lengths, int64_t n)
{
    start[0] = 0;
    for (int64_t i = 0; i < n; i++)
        start[i + 1] = start[i] + lengths[i];
    return (kvf__dataset){.n = n, .start = start};
}

START_TEST(an_epoch_sees_every_row_once)
{
    static const int64_t LENGTHS[] = {1, 1, 1, 1, 1, 1, 1};
    int64_t start[8], n, first_epoch[7];
    kvf__dataset set = lengths_only(start, LENGTHS, 7);
    kvf__sampler sampler;
    ck_assert_int_eq(kvf__sampler_init(ctx, &sampler, &set, true, 5, 3, 0), KVF_OK);
    for (int epoch = 0; epoch < 3; epoch++) {
        int seen[7] = {0}, steps = 0;
        bool last = false;
        for (int64_t at = 0; !last; steps++) {
            const int64_t *examples = kvf__sampler_next(&sampler, &n, &last);
            for (int64_t i = 0; i < n; i++, at++) {
                seen[examples[i]]++;
                if (!epoch) first_epoch[at] = examples[i];
            }
        }
        ck_assert_int_eq(steps, 3); /* 3 + 3 + 1 rows */
        for (int i = 0; i < 7; i++)
            ck_assert_int_eq(seen[i], 1);
    }
    kvf__sampler_rewind(&sampler);
    bool last = false;
    const int64_t *again = kvf__sampler_next(&sampler, &n, &last);
    ck_assert_mem_eq(again, first_epoch, 3 * sizeof *again);
    kvf__sampler_done(&sampler);
}
END_TEST

START_TEST(steps_by_tokens)
{
    static const int64_t LENGTHS[] = {4, 4, 4, 20, 1, 1};
    static const int64_t WANT[] = {2, 1, 1, 2};
    int64_t start[7], n;
    bool last = false;
    kvf__dataset set = lengths_only(start, LENGTHS, 6);
    kvf__sampler sampler;
    ck_assert_int_eq(kvf__sampler_init(ctx, &sampler, &set, false, 0, 0, 10), KVF_OK);
    for (int i = 0; i < 4; i++) {
        kvf__sampler_next(&sampler, &n, &last);
        ck_assert_int_eq(n, WANT[i]);
        ck_assert_int_eq(last, i == 3);
    }
    kvf__sampler_done(&sampler);
}
END_TEST

START_TEST(maps_are_checked)
{
    static const char *const MAPS[] = {"prompt", "prompt=", "=q", "text=a,text=b", "a=b,c"};
    kvf__field_map map = {0};
    for (size_t i = 0; i < sizeof MAPS / sizeof MAPS[0]; i++)
        ck_assert_msg(kvf__field_map_init(ctx, MAPS[i], &map) == KVF_EUSAGE, "\"%s\" passed",
                      MAPS[i]);
    ck_assert_int_eq(kvf__field_map_init(ctx, "answer=completion", &map), KVF_EUSAGE);
    ck_assert_str_eq(kvf_ctx_error(ctx), "map \"answer=completion\": the field comes first, the "
                                         "column second: write completion=answer");
    ck_assert_int_eq(kvf__field_map_init(ctx, NULL, &map), KVF_OK);
    ck_assert_uint_eq(map.n, 0);
}
END_TEST

START_TEST(every_allocation_may_fail)
{
    kvf__dataset set = {0};
    kvf_status st;
    int64_t n = 0;
    do {
        kvf__ctx_fail_allocation(ctx, n++);
        st = load(FOUR, KVF_OVERLONG_SKIP, &set);
        ck_assert(st == KVF_OK || st == KVF_ENOMEM);
    } while (st);
    kvf__ctx_fail_allocation(ctx, -1);
    ck_assert_int_gt(n, 3);
    kvf__dataset_done(&set);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("data");
    TCase *core = tcase_create("core"), *bos = tcase_create("bos"),
          *errors = tcase_create("errors");
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_checked_fixture(bos, setup_bos, teardown);
    tcase_add_checked_fixture(errors, setup, teardown);
    tcase_add_loop_test(core, rows_without_bos, 0, (int)(sizeof ROWS / sizeof ROWS[0]));
    tcase_add_loop_test(core, eos_is_not_doubled, 0, (int)(sizeof ENDED / sizeof ENDED[0]));
    tcase_add_test(bos, rows_with_bos);
    tcase_add_loop_test(core, foreign_fields, 0, (int)(sizeof MAPPED / sizeof MAPPED[0]));
    tcase_add_test(core, rendered_rows_are_whole);
    tcase_add_test(core, nul_is_text);
    tcase_add_loop_test(core, chats_are_what_their_fields_say, 0,
                        (int)(sizeof CHATS / sizeof *CHATS));
    tcase_add_loop_test(core, bad_chats_get_one_line, 0,
                        (int)(sizeof BAD_CHATS / sizeof *BAD_CHATS));
    tcase_add_loop_test(core, rows_have_a_form, 0, (int)(sizeof FORMS / sizeof *FORMS));
    tcase_add_test(core, overlong_rows_are_cut_or_left_out);
    tcase_add_test(core, references_of_prompts);
    tcase_add_loop_test(core, prompts_are_cut_at_their_left, 0,
                        (int)(sizeof CUTS / sizeof CUTS[0]));
    tcase_add_loop_test(bos, bos_is_not_cut, 0, (int)(sizeof CUTS / sizeof CUTS[0]));
    tcase_add_test(core, batches_are_packed_and_labels_shifted);
    tcase_add_test(core, an_epoch_sees_every_row_once);
    tcase_add_test(core, steps_by_tokens);
    tcase_add_test(errors, unread_fields_are_listed);
    tcase_add_loop_test(errors, bad_rows_get_one_line, 0, (int)(sizeof BAD / sizeof BAD[0]));
    tcase_add_test(errors, bad_files_get_one_line);
    tcase_add_test(errors, maps_are_checked);
    tcase_add_test(errors, every_allocation_may_fail);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, bos);
    suite_add_tcase(suite, errors);
    return ck_main(suite);
}
