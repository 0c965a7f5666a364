/* Origins of rows: words, answers, choices and references of each example, its windows, and skipped
 * examples. Also splits off a held-out part of a data set with the same records. */
#include "task_fx.h"

START_TEST(sources_of_sentences)
{
    kvf__dataset set = loaded(
        "a.conll", "ab O\ncd B-x\nef O\n",
        (kvf__dataset_options){TOK, .max_length = 7, .overlong = KVF_OVERLONG_TRUNCATE});
    const kvf__source *s = &set.sources->group[0];
    ck_assert_int_eq(set.n_groups, 1);
    ck_assert_int_eq(set.truncated, 1);
    ck_assert(set.sources->labelled);
    ck_assert_int_eq(s->n, 3);
    ck_assert_str_eq(s->items[2], "ef");
    ck_assert_int_eq(s->tags[1], 0); /* B-x before O */
    ck_assert_int_eq(s->tags[2], 1);
    ck_assert_int_eq(s->label_of[0], 0);
    ck_assert_int_eq(s->label_of[1], 1);
    ck_assert_int_eq(s->label_of[2], -1);
    kvf__dataset_done(&set);
}
END_TEST

/* A word that normalisation removes has no label; the others keep theirs. */
START_TEST(words_without_tokens)
{
    kvf__dataset set = loaded(
        "a.jsonl", "{\"tokens\": [\"a\", \"z\", \"b\"], \"tags\": [\"x\", \"y\", \"x\"]}",
        (kvf__dataset_options){TOK});
    ck_assert_str_eq(rows_text(&set), "10 0:0 1:0 11");
    ck_assert_int_eq(set.sources->group[0].label_of[1], -1);
    ck_assert_int_eq(set.sources->group[0].label_of[2], 1);
    kvf__dataset_done(&set);
}
END_TEST

/* Every word is labelled in one of its rows. */
START_TEST(sentences_in_windows)
{
    kvf__dataset set = loaded("a.conll", "a O\n\nab O\nz O\ncd B-x\nef O\n\nb O\n",
                              (kvf__dataset_options){TOK, .max_length = 6, .windows = true});
    const kvf__sources *s = set.sources;
    ck_assert_int_eq(set.n, 4);
    ck_assert_int_eq(kvf__group_count(&set), 3);
    ck_assert(s->first_row[0] == 0 && s->first_row[1] == 1 && s->first_row[2] == 3);
    ck_assert_int_eq(s->group[1].label_of[0], 0);
    ck_assert_int_eq(s->group[1].label_of[1], -1);
    ck_assert_int_eq(s->group[1].label_of[2], 1);
    ck_assert_int_eq(s->group[1].label_of[3], 2);
    ck_assert_int_eq(set.n_labels, 5);
    ck_assert_int_eq(set.truncated, 0);
    kvf__dataset_done(&set);
}
END_TEST

/* Skipped rows are listed with their place and all their fields, for callers that need all rows. */
START_TEST(left_out_rows_are_listed)
{
    kvf__dataset set = loaded(
        "a.jsonl",
        "{\"id\": 7, \"text\": \"a\", \"choices\": [\"b\", \"bcdefgh\"], \"label\": 1}\n"
        "{\"text\": \"a\", \"choices\": [\"b\", \"c\"], \"label\": 0}\n"
        "{\"text\": \"abcdefgh\", \"choices\": [\"b\", \"c\"]}\n",
        (kvf__dataset_options){CHOICE, .max_length = 8, .overlong = KVF_OVERLONG_SKIP,
                               .unlabeled = true});
    const kvf__left_out *left = set.sources->left;
    ck_assert(set.n_groups == 1 && set.skipped == 2 && set.sources->n_left == 2);
    ck_assert(left[0].before == 0 && left[1].before == 1);
    ck_assert_str_eq(left[0].source.id, "7");
    ck_assert_str_eq(left[0].source.items[1], "bcdefgh");
    ck_assert(left[0].source.gold == 1 && left[1].source.gold == -1);
    ck_assert_int_eq(left[1].source.line, 3);
    kvf__dataset_done(&set);
}
END_TEST

/* A question with two long choices is one row that is cut. */
START_TEST(cut_groups_are_counted)
{
    kvf__dataset set = loaded(
        "a.jsonl", "{\"text\": \"a\", \"choices\": [\"bcdefgh\", \"bcdefgh\"], \"label\": 1}\n",
        (kvf__dataset_options){CHOICE, .max_length = 8, .overlong = KVF_OVERLONG_TRUNCATE});
    ck_assert(set.n == 2 && set.truncated == 1 && !set.sources->n_left);
    kvf__dataset_done(&set);
}
END_TEST

/* Code points are not bytes; tokens map back to the text. */
START_TEST(sources_of_questions)
{
    static const char TEXT[] =
        "{\"data\": [{\"paragraphs\": [{\"context\": \"\xC3\xA9 ab\xE2\x82\xAC"
        "cd\", \"qas\": ["
        "{\"id\": \"q1\", \"question\": \"h\", \"answers\": [{\"text\": \"cd\", \"answer_start\": "
        "5}, "
        "{\"text\": \"b\", \"answer_start\": 3}]},\n{\"id\": \"q2\", \"question\": \"g\", "
        "\"answers\": [], "
        "\"is_impossible\": true, \"plausible_answers\": []}]}]}]}";
    int64_t from = 0, to = 0;
    kvf__dataset set = loaded("a.json", TEXT, (kvf__dataset_options){QA});
    const kvf__source *s = &set.sources->group[0];
    ck_assert_int_eq(set.n, 2);
    ck_assert_int_eq(set.n_groups, 2);
    ck_assert_str_eq(s->id, "q1");
    ck_assert_int_eq(set.sources->group[1].line, 2);
    ck_assert_str_eq(s->pair, "h");
    ck_assert_int_eq(s->n, 2);
    ck_assert_str_eq(s->items[1], "b");
    ck_assert_uint_eq(s->item_bytes[0], 2);
    ck_assert_uint_eq(s->text_bytes, 10);
    ck_assert_uint_eq(s->pair_bytes, 1);
    ck_assert_int_eq(s->spans[0], 8); /* e acute 2, blank, a, b, euro 3 */
    ck_assert_int_eq(s->spans[1], 10);
    ck_assert_ptr_eq(s->text, set.sources->group[1].text); /* one copy of the context */
    ck_assert(kvf__context_bytes(&set, 0, set.spans[0], set.spans[1], &from, &to));
    ck_assert_int_eq(from, 8);
    ck_assert_int_eq(to, 10);
    ck_assert(!kvf__context_bytes(&set, 0, 0, 0, &from, &to));
    ck_assert_int_eq(set.spans[2], 0);
    ck_assert(set.sources->group[1].answered);
    ck_assert_int_eq(set.sources->group[1].n, 0);
    kvf__dataset_done(&set);
}
END_TEST

START_TEST(sources_of_choices)
{
    kvf__dataset set = loaded("a.jsonl",
                              "{\"text\": \"a\", \"choices\": [\"b\", \"c\"], \"label\": "
                              "1}\n{\"text\": \"abcdef\", \"choices\": "
                              "[\"b\", \"c\"], \"label\": 0}\n{\"idx\": 7, \"text\": \"d\", "
                              "\"choices\": [\"e\", \"f\", \"g\"]}\n",
                              (kvf__dataset_options){CHOICE, .unlabeled = true, .max_length = 8,
                                                     .overlong = KVF_OVERLONG_SKIP});
    ck_assert_int_eq(set.n_groups, 2);
    ck_assert_int_eq(set.n, 5);
    ck_assert_int_eq(set.skipped, 1);
    ck_assert_int_eq(set.group[1], 2);
    ck_assert_int_eq(set.group[2], 5);
    ck_assert(!set.sources->labelled);
    ck_assert_int_eq(set.sources->group[0].gold, 1);
    ck_assert_int_eq(set.sources->group[1].gold, -1);
    ck_assert_str_eq(set.sources->group[1].id, "7");
    ck_assert_int_eq(set.sources->group[1].line, 3);
    ck_assert_str_eq(set.sources->group[1].items[2], "g");
    kvf__dataset_done(&set);
}
END_TEST

/* Adjacent equal prompts are one row with all their references. */
START_TEST(references_of_prompts)
{
    static const char TEXT[] = "mr,ref\na,b\na,c\nb,d\na,e\n";
    kvf__field_map map = {0};
    ck_assert_int_eq(kvf__field_map_init(ctx, "prompt=mr,completion=ref", &map), KVF_OK);
    kvf__dataset set = loaded(
        "a.csv", TEXT,
        (kvf__dataset_options){
            .prompt_only = true, .references = true, .causal = true, .render = {.map = &map}});
    ck_assert_str_eq(rows_text(&set), "0 | 1 | 0");
    ck_assert_int_eq(set.sources->group[0].n, 2);
    ck_assert_str_eq(set.sources->group[0].items[1], "c");
    ck_assert_uint_eq(set.sources->group[0].item_bytes[1], 1);
    ck_assert_str_eq(set.sources->group[0].text, "a");
    ck_assert_int_eq(set.sources->group[1].n, 1);
    kvf__dataset_done(&set);
    set = loaded("a.jsonl", "{\"prompt\": \"a\", \"references\": [\"b\", \"c\"]}",
                 (kvf__dataset_options){.prompt_only = true, .references = true, .causal = true});
    ck_assert_int_eq(set.sources->group[0].n, 2);
    kvf__dataset_done(&set);
    kvf__field_map_done(&map);
}
END_TEST

/* ---- split ----------------------------------------------------------------------------------- */

/* The answers to a question stay together, with the fields of the file. */
static void check_part(const kvf__dataset *set, int64_t groups, bool seen[10])
{
    int64_t labels = 0;
    ck_assert_int_eq(set->n_groups, groups);
    ck_assert_int_eq(set->n, 2 * groups);
    ck_assert_int_eq(set->group[groups], set->n);
    for (int64_t g = 0; g < groups; g++) {
        const kvf__source *s = &set->sources->group[g];
        const int64_t row = set->group[g], from = set->start[row];
        ck_assert_int_eq(set->group[g + 1] - row, 2);
        ck_assert(!seen[s->line - 1]);
        seen[s->line - 1] = true;
        ck_assert_int_eq(set->ids[from + 1], s->text[0] - 'a');
        ck_assert_int_eq(set->labels[from], s->gold == 0);
        ck_assert_str_eq(s->items[1], "b");
        labels += 2;
    }
    ck_assert_int_eq(set->n_labels, labels);
}

START_TEST(a_share_is_drawn)
{
    kvf__buf text = {0};
    kvf__dataset held = {0}, again = {0}, other = {0};
    bool seen[10] = {false};
    for (int i = 0; i < 10; i++)
        ck_assert_int_eq(
            kvf__buf_printf(ctx, &text,
                            "{\"text\": \"%c\", \"choices\": [\"a\", \"b\"], \"label\": %d}\n",
                            'a' + i % 8, i % 2),
            KVF_OK);
    kvf__dataset set = loaded("a.jsonl", text.data, (kvf__dataset_options){CHOICE});
    kvf__dataset same = loaded("a.jsonl", text.data, (kvf__dataset_options){CHOICE});
    ck_assert_int_eq(kvf__dataset_split(ctx, "a", &set, 0.3, 7, &held), KVF_OK);
    check_part(&held, 3, seen);
    check_part(&set, 7, seen);
    ck_assert_int_eq(kvf__dataset_split(ctx, "a", &same, 0.3, 7, &again), KVF_OK);
    for (int64_t g = 0; g < 3; g++)
        ck_assert_int_eq(again.sources->group[g].line, held.sources->group[g].line);
    /* a share of 0 or 1 still leaves a row on each side */
    ck_assert_int_eq(kvf__dataset_split(ctx, "a", &again, 0.999, 0, &other), KVF_OK);
    ck_assert_int_eq(again.n_groups, 1);
    ck_assert_int_eq(kvf__dataset_split(ctx, "a", &again, 0.5, 0, &other), KVF_EDATA);
    kvf__dataset_done(&other);
    kvf__dataset_done(&again);
    kvf__dataset_done(&same);
    kvf__dataset_done(&held);
    kvf__dataset_done(&set);
    kvf__buf_done(&text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sources");
    TCase *core = tcase_create("core");
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_test(core, sources_of_sentences);
    tcase_add_test(core, words_without_tokens);
    tcase_add_test(core, sentences_in_windows);
    tcase_add_test(core, left_out_rows_are_listed);
    tcase_add_test(core, cut_groups_are_counted);
    tcase_add_test(core, sources_of_questions);
    tcase_add_test(core, sources_of_choices);
    tcase_add_test(core, references_of_prompts);
    tcase_add_test(core, a_share_is_drawn);
    suite_add_tcase(suite, core);
    return ck_main(suite);
}
