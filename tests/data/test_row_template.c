/* Virtual tokens in rows: parsing of --p-template, and the resulting ids, labels and positions for
 * each task. */
#include "task_fx.h"

#define NO KVF__NO_LABEL

/* ---- reading --------------------------------------------------------------------------------- */

static kvf__row_template pattern_of(const char *text, int64_t P)
{
    kvf__row_template pattern;
    kvf_status st = kvf__row_template_init(ctx, text, P, &pattern);
    ck_assert_msg(!st, "%s", kvf_ctx_error(ctx));
    return pattern;
}

START_TEST(pieces_are_read)
{
    kvf__row_template p = pattern_of("{p:3} {text} It was {p:2} [MASK] .", 0);
    const kvf__template_piece *piece = p.pieces;
    ck_assert_int_eq(p.P, 5);
    ck_assert_int_eq(p.front, 3);
    ck_assert_uint_eq(p.n, 5);
    ck_assert_int_eq(p.mask, 3);
    ck_assert(piece[0].kind == KVF__PIECE_FIELD && !strcmp(piece[0].text, "text"));
    ck_assert(piece[1].kind == KVF__PIECE_LITERAL && piece[1].blank);
    ck_assert_str_eq(piece[1].text, "It was");
    ck_assert(piece[2].kind == KVF__PIECE_VIRTUAL && piece[2].first == 3 && piece[2].n == 2);
    ck_assert(piece[3].kind == KVF__PIECE_MASK);
    ck_assert(piece[4].kind == KVF__PIECE_LITERAL && !piece[4].blank);
    ck_assert(!kvf__row_template_plain(&p));
    kvf__row_template_done(&p);

    p = pattern_of("a [b] {text}{p} {text_pair}", 0); /* brackets are text, nothing comes first */
    ck_assert_str_eq(p.pieces[0].text, "a [b]");
    ck_assert(p.front == 0 && p.P == 1 && p.pieces[1].blank && !p.pieces[3].blank);
    kvf__row_template_done(&p);
}
END_TEST

START_TEST(what_a_prefix_can_replace)
{
    static const struct {
        const char *text;
        bool plain;
    } CASES[] = {{NULL, true},
                 {"{p:4} {text}", true},
                 {"{p:2}{p:2} {prompt} {completion}", true},
                 {"{p:4} {text} {text_pair}", false}, /* pairs are joined differently */
                 {"{p:3} {text} {p}", false},
                 {"{p:4} so {text}", false}};
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        kvf__row_template p = pattern_of(CASES[i].text, 4);
        ck_assert_int_eq(p.P, 4);
        ck_assert_msg(kvf__row_template_plain(&p) == CASES[i].plain, "%s", CASES[i].text);
        kvf__row_template_done(&p);
    }
}
END_TEST

START_TEST(bad_templates)
{
    static const char *const CASES[][2] = {
        {"{p:3}", "it needs {text}, or {prompt} and {completion}"},
        {"{p:0} {text}", "N in {p:N} must be a number of virtual tokens, at least 1"},
        {"{p:x} {text}", "N in {p:N} must be a number"},
        {"{p:} {text}", "N in {p:N} must be a number"},
        {"{text", "a { is not closed"},
        {"{words}", "braces may contain p, p:N, text, text_pair, prompt or completion"},
        {"{text} {text}", "a field is used twice"},
        {"{text} {prompt} {completion}", "{text} and {prompt} exclude each other"},
        {"{prompt}", "{prompt} and {completion} need each other"},
        {"{completion} {prompt}", "{completion} must come last"},
        {"{text} [MASK] [MASK]", "[MASK] is used twice"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        kvf__row_template p;
        ck_assert_int_eq(kvf__row_template_init(ctx, CASES[i][0], 0, &p), KVF_EUSAGE);
        ck_assert_msg(strstr(kvf_ctx_error(ctx), CASES[i][1]) != NULL, "%s: %s", CASES[i][0],
                      kvf_ctx_error(ctx));
    }
}
END_TEST

/* ---- rows ------------------------------------------------------------------------------------ */

/* A file of one or more rows under a template. */
static kvf__dataset rows_of(const char *text, const char *pattern, int64_t P,
                            kvf__dataset_options options)
{
    kvf__row_template p = pattern_of(pattern, P);
    options.render.pattern = &p;
    kvf__dataset set = loaded("a.jsonl", text, options);
    kvf__row_template_done(&p);
    return set;
}

static void expect(const kvf__dataset *set, const int32_t *ids, const int32_t *labels, int64_t n)
{
    ck_assert_int_eq(set->start[set->n], n);
    for (int64_t i = 0; i < n; i++) {
        ck_assert_msg(set->ids[i] == ids[i], "id %d is %d, want %d", (int)i, set->ids[i], ids[i]);
        ck_assert_msg(set->labels[i] == labels[i], "label %d is %d, want %d", (int)i,
                      set->labels[i], labels[i]);
    }
}
#define EXPECT(set, ids, labels)                                                                   \
    do {                                                                                           \
        _Static_assert(sizeof(ids) == sizeof(labels), "as many");                                  \
        expect(&(set), ids, labels, (int64_t)(sizeof(ids) / sizeof(ids)[0]));                      \
        kvf__dataset_done(&(set));                                                                 \
    } while (0)

static const char PROMPT[] = "{\"prompt\": \"ab\", \"completion\": \"cd\"}\n";

START_TEST(rows_of_language_models)
{
    static const int32_t common[] = {-1, -2, 0, 1, 2, 3, 12},
                         common_labels[] = {NO, NO, NO, NO, 2, 3, 12};
    kvf__dataset set = rows_of(PROMPT, NULL, 2, (kvf__dataset_options){CAUSE});
    EXPECT(set, common, common_labels);
    set = rows_of(PROMPT, "{p:2} {prompt} {completion}", 0, (kvf__dataset_options){CAUSE});
    EXPECT(set, common, common_labels);

    static const int32_t mixed[] = {-1, 0, 1, 8, 4, -2, 2, 3, 12};
    static const int32_t mixed_labels[] = {NO, NO, NO, NO, NO, NO, 2, 3, 12};
    set = rows_of(PROMPT, "{p} {prompt} e {p}{completion}", 0, (kvf__dataset_options){CAUSE});
    EXPECT(set, mixed, mixed_labels);

    /* The first token after a common prefix is not predicted, like the first one after a prefix. */
    static const int32_t text[] = {-1, -2, 0, 1, 12}, text_labels[] = {NO, NO, NO, 1, 12};
    set = rows_of("{\"text\": \"ab\"}\n", NULL, 2, (kvf__dataset_options){CAUSE});
    EXPECT(set, text, text_labels);
    static const int32_t inner[] = {0, 1, -1, 12}, inner_labels[] = {0, 1, NO, 12};
    set = rows_of("{\"text\": \"ab\"}\n", "{text} {p}", 0, (kvf__dataset_options){CAUSE});
    EXPECT(set, inner, inner_labels);

    static const int32_t given[] = {-1, 3, 4}, given_labels[] = {NO, NO, 4};
    set = rows_of("{\"input_ids\": [3, 4], \"labels\": [3, 4]}\n", NULL, 1,
                  (kvf__dataset_options){CAUSE});
    EXPECT(set, given, given_labels);
}
END_TEST

START_TEST(prompts_to_be_completed)
{
    static const int32_t want[] = {-1, 0, 1, 8, 4, -2};
    kvf__row_template p = pattern_of("{p} {prompt} e {p}{completion}", 0);
    const kvf__render render = {.tokenizer = causal, .chat = &chat, .pattern = &p};
    kvf__ids ids = {0};
    ck_assert_int_eq(kvf__render_prompt(ctx, &render, "ab", 2, &ids), KVF_OK);
    ck_assert_uint_eq(ids.n, 6);
    ck_assert_mem_eq(ids.data, want, sizeof want);
    kvf__ids_done(&ids);
    kvf__row_template_done(&p);
    kvf__dataset set = rows_of(PROMPT, "{p} {prompt} e {p}{completion}", 0,
                               (kvf__dataset_options){CAUSE, .prompt_only = true});
    ck_assert_int_eq(set.start[1], 6);
    ck_assert_mem_eq(set.ids, want, sizeof want);
    kvf__dataset_done(&set);
}
END_TEST

START_TEST(rows_of_texts)
{
    static const char ROW[] = "{\"text\": \"ab\", \"label\": \"x\"}\n";
    static const int32_t common[] = {-1, -2, 10, 0, 1, 11}, at_cls[] = {NO, NO, 0, NO, NO, NO};
    kvf__dataset set = rows_of(ROW, NULL, 2, (kvf__dataset_options){SEQ});
    EXPECT(set, common, at_cls);
    static const int32_t last[] = {-1, -2, 0, 1}, at_last[] = {NO, NO, NO, 0};
    set = rows_of(ROW, NULL, 2, (kvf__dataset_options){SEQ, CAUSE});
    EXPECT(set, last, at_last);

    static const int32_t inner[] = {-1, 10, 0, 1, -2, -3, 2, 11};
    static const int32_t inner_labels[] = {NO, 0, NO, NO, NO, NO, NO, NO};
    set = rows_of(ROW, "{p}{text} {p:2} c", 0, (kvf__dataset_options){SEQ});
    EXPECT(set, inner, inner_labels);

    static const char PAIR[] = "{\"text\": \"abab\", \"text_pair\": \"cd\", \"label\": \"x\"}\n";
    static const int32_t pair[] = {-1, 10, 0, 1, 0, 1, 11, 2, 3, 11};
    static const int32_t pair_labels[] = {NO, 0, NO, NO, NO, NO, NO, NO, NO, NO};
    static const int32_t types[] = {0, 0, 0, 0, 0, 0, 0, 1, 1, 1};
    set = rows_of(PAIR, NULL, 1, (kvf__dataset_options){SEQ});
    ck_assert_mem_eq(set.types, types, sizeof types);
    EXPECT(set, pair, pair_labels);
}
END_TEST

/* Fields are cut, the template's text around them stays; virtual tokens do not count as length. */
START_TEST(long_texts_are_cut)
{
    static const char PAIR[] =
        "{\"text\": \"abcdefgh\", \"text_pair\": \"cd\", \"label\": \"x\"}\n";
    static const int32_t want[] = {-1, 10, 0, 1, 2, -2, -3, 2, 3, 7, 11};
    static const int32_t labels[] = {NO, 0, NO, NO, NO, NO, NO, NO, NO, NO, NO};
    kvf__dataset set = rows_of(
        PAIR, "{p}{text}{p:2}{text_pair}h", 0,
        (kvf__dataset_options){SEQ, .max_length = 8, .overlong = KVF_OVERLONG_TRUNCATE});
    ck_assert_int_eq(set.truncated, 1);
    EXPECT(set, want, labels);

    static const int32_t lm[] = {-1, -2, 0, 1, 2}, lm_labels[] = {NO, NO, NO, NO, 2};
    set = rows_of(
        PROMPT, NULL, 2,
        (kvf__dataset_options){CAUSE, .max_length = 3, .overlong = KVF_OVERLONG_TRUNCATE_END});
    EXPECT(set, lm, lm_labels);
    static const int32_t tail[] = {-1, -2, 2, 3, 12}, tail_labels[] = {NO, NO, 2, 3, 12};
    set = rows_of(
        PROMPT, NULL, 2,
        (kvf__dataset_options){CAUSE, .max_length = 3, .overlong = KVF_OVERLONG_TRUNCATE});
    EXPECT(set, tail, tail_labels);
}
END_TEST

START_TEST(rows_of_words_and_spans)
{
    static const int32_t words[] = {-1, -2, 10, 0, 1, 11};
    static const int32_t tags[] = {NO, NO, NO, 0, 1, NO};
    kvf__dataset set = rows_of("{\"tokens\": [\"a\", \"b\"], \"tags\": [\"O\", \"X\"]}\n", NULL, 2,
                               (kvf__dataset_options){TOK});
    EXPECT(set, words, tags);

    static const int32_t qa[] = {-1, 10, 0, 11, 1, 2, 3, 11}, read[] = {NO, 1, 0, 0, 0, 0, 0, 0};
    set = rows_of("{\"context\": \"bcd\", \"question\": \"a\", \"answers\": [{\"text\": \"c\", "
                  "\"start\": 1}]}\n",
                  NULL, 1, (kvf__dataset_options){QA});
    ck_assert_int_eq(set.spans[0], 5);
    ck_assert_int_eq(set.spans[1], 5);
    int64_t from = 0, to = 0;
    ck_assert(kvf__context_bytes(&set, 0, 5, 5, &from, &to) && from == 1 && to == 2);
    EXPECT(set, qa, read);
}
END_TEST

START_TEST(refused_rows)
{
    kvf__row_template p = pattern_of("{p} {prompt} {completion}", 0);
    const kvf__dataset_options options = {CAUSE, .render.pattern = &p};
    kvf__dataset set;
    ck_assert_int_eq(load("a.jsonl", "{\"text\": \"ab\"}\n", options, &set), KVF_EDATA);
    ck_assert_str_eq(
        kvf_ctx_error(ctx),
        "a.jsonl:1: \"prompt\" is missing; the row has text (map other names with --map)");
    kvf__row_template_done(&p);
    p = pattern_of(NULL, 1); /* only the template defines virtual tokens */
    ck_assert_int_eq(
        load("a.jsonl", "{\"input_ids\": [3, -1], \"labels\": [3, 4]}\n", options, &set),
        KVF_EDATA);
    ck_assert_str_eq(kvf_ctx_error(ctx), "a.jsonl:1: id -1 is outside the vocabulary of 14");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("row_template");
    TCase *core = tcase_create("core"), *limits = tcase_create("limits");
    TCase *errors = tcase_create("errors"), *cases[] = {core, limits, errors};

    tcase_add_test(core, pieces_are_read);
    tcase_add_test(core, what_a_prefix_can_replace);
    tcase_add_test(core, rows_of_language_models);
    tcase_add_test(core, prompts_to_be_completed);
    tcase_add_test(core, rows_of_texts);
    tcase_add_test(core, rows_of_words_and_spans);
    tcase_add_test(limits, long_texts_are_cut);
    tcase_add_test(errors, bad_templates);
    tcase_add_test(errors, refused_rows);
    for (int i = 0; i < 3; i++) {
        tcase_add_checked_fixture(cases[i], setup, teardown);
        suite_add_tcase(suite, cases[i]);
    }
    return ck_main(suite);
}
