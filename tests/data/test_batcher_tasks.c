/* Batches of task rows: positions read by the head, groups that stay together, common prefixes, and
 * the order of steps (--group-by prefix). */
#include "task_fx.h"

static const char CHOICES[] =
    "{\"text\": \"abcdefghabcdefgh\", \"choices\": [\"b\", \"cd\"], \"label\": 1}\n"
    "{\"text\": \"abcdefghabcdefgh\", \"choices\": [\"e\", \"ba\"], \"label\": 0}\n"
    "{\"text\": \"g\", \"choices\": [\"b\", \"cd\", \"cdc\"], \"label\": 2}\n";

static void fill(kvf__batcher *batcher, const kvf__dataset *set, bool causal_base, bool share)
{
    int64_t order[16];
    const kvf__batch_rules rules = {.causal = causal_base, .share = share};
    for (int64_t i = 0; i < set->n; i++)
        order[i] = i;
    ck_assert_int_eq(
        kvf__batcher_init(ctx, batcher, rules, set->n, set->start[set->n], set->n_labels), KVF_OK);
    kvf__batcher_fill(batcher, set, order, set->n);
}

START_TEST(premises_become_common_rows)
{
    static const int64_t EXAMPLES[] = {-1, 0, 0, 1, 1, 2, 2, 2};
    static const int32_t PARENT[] = {-1, 0, 0, 0, 0, -1, -1, -1}, ID[] = {0, 1, 1, 0, 0, 0, 1};
    kvf__batcher batcher = {0};
    kvf__dataset set = loaded("a.jsonl", CHOICES, (kvf__dataset_options){CHOICE, CAUSE});
    fill(&batcher, &set, true, true);
    const kvf__batch *b = &batcher.batch;
    ck_assert_int_eq(b->n_rows, 8);
    ck_assert_mem_eq(b->example, EXAMPLES, sizeof EXAMPLES);
    ck_assert_mem_eq(b->parent, PARENT, sizeof PARENT);
    ck_assert_int_eq(b->start[1], 17); /* the premise and the line feed */
    ck_assert_int_eq(b->n_labels, 7);
    ck_assert_mem_eq(b->label_id, ID, sizeof ID);
    for (int64_t j = 0; j < 7; j++) /* each row's last token */
        ck_assert_int_eq(b->label_at[j], b->start[j + 2] - 1);
    kvf__batcher_done(&batcher);
    kvf__dataset_done(&set);
}
END_TEST

/* Common prefixes come before all rows, so that rows of a group stay adjacent. */
START_TEST(groups_stay_together)
{
    kvf__batcher batcher = {0};
    kvf__dataset set = loaded(
        "a.jsonl",
        "{\"text\": \"a\", \"choices\": [\"b\", \"cdefghabcdefgh\", \"cdefghabcdefga\"], "
        "\"label\": 0}\n"
        "{\"text\": \"a\", \"choices\": [\"cdefghabcdefgc\", \"b\"], \"label\": 1}\n",
        (kvf__dataset_options){CHOICE, CAUSE, .max_length = 32});
    fill(&batcher, &set, true, true);
    const kvf__batch *b = &batcher.batch;
    int64_t common_rows = 0;
    while (b->example[common_rows] < 0)
        common_rows++;
    ck_assert_int_gt(common_rows, 0);
    ck_assert_int_eq(b->n_rows, common_rows + 5);
    for (int64_t r = common_rows; r < b->n_rows; r++)
        ck_assert_int_eq(b->example[r], r - common_rows < 3 ? 0 : 1);
    kvf__batcher_done(&batcher);
    kvf__dataset_done(&set);
}
END_TEST

/* A question before a long context is repeated with each window: the head reads its tokens, too. */
START_TEST(windows_have_their_question)
{
    static const char TEXT[] =
        "{\"question\": \"abcdefghabcd\", \"context\": \"hgfedcbahgfedcba\", \"answers\": "
        "[{\"text\": \"ed\", \"start\": 11}]}";
    kvf__batcher batcher = {0};
    kvf__dataset set = loaded("a.jsonl", TEXT,
                              (kvf__dataset_options){QA, CAUSE, .max_length = 26, .doc_stride = 2});
    ck_assert_int_eq(set.n, 2);
    ck_assert_int_eq(set.n_groups, 1);
    fill(&batcher, &set, true, true);
    const kvf__batch *b = &batcher.batch;
    ck_assert_int_eq(b->n_rows, 2);
    ck_assert_int_eq(b->n_labels, b->n_tokens);
    ck_assert_int_eq(b->spans[0], b->start[1] - 1); /* no answer here: the last token */
    const int32_t *answer = b->ids + b->start[1] + b->spans[2];
    ck_assert_int_eq(answer[0], 4);
    ck_assert_int_eq(b->ids[b->start[1] + b->spans[3]], 3);
    kvf__batcher_done(&batcher);
    kvf__dataset_done(&set);
}
END_TEST

START_TEST(bidirectional_batches)
{
    kvf__batcher batcher = {0};
    kvf__dataset set = loaded("sts.csv", "sentence1,sentence2,score\na,b,2.5\nab,c,-1\n",
                              (kvf__dataset_options){SEQ, .regression = true});
    fill(&batcher, &set, false, true);
    const kvf__batch *b = &batcher.batch;
    ck_assert_int_eq(b->n_tokens, 11);
    ck_assert_int_eq(b->label_at[1], 5);
    ck_assert_int_eq(b->types[3], 1);
    ck_assert_int_eq(b->types[5], 0);
    ck_assert_float_eq(b->values[1], -1);
    ck_assert_ptr_null(b->parent);
    ck_assert_ptr_null(b->spans);
    kvf__batcher_done(&batcher);
    kvf__dataset_done(&set);
}
END_TEST

START_TEST(steps_count_groups)
{
    int64_t n = 0, seen[7] = {0};
    bool last = false;
    kvf__sampler sampler;
    kvf__dataset set = loaded("a.jsonl", CHOICES, (kvf__dataset_options){CHOICE});
    ck_assert_int_eq(kvf__sampler_init(ctx, &sampler, &set, true, 3, 2, 0), KVF_OK);
    for (int step = 0; step < 2; step++) {
        const int64_t *rows = kvf__sampler_next(&sampler, &n, &last);
        for (int64_t i = 0; i < n; i++) {
            seen[rows[i]]++;
            if (i && kvf__group_of(&set, rows[i]) == kvf__group_of(&set, rows[i - 1]))
                ck_assert_int_eq(rows[i], rows[i - 1] + 1);
        }
        ck_assert_int_eq(last, step == 1);
        ck_assert_int_le(kvf__whole_groups(&set, rows, n, 3), 3);
        ck_assert_int_ge(kvf__whole_groups(&set, rows, n, 1), 2);
        ck_assert_int_eq(kvf__whole_groups(&set, rows, n, n), n);
    }
    for (int r = 0; r < 7; r++)
        ck_assert_int_eq(seen[r], 1);
    kvf__sampler_done(&sampler);
    kvf__dataset_done(&set);
}
END_TEST

/* ---- --group-by prefix -------------------------------------------------------------------------
 */

enum { DOCUMENTS = 12, QUESTIONS = 5, STEP = 8 };

/* DOCUMENTS QUESTIONS prompts: a document of 24 letters, of which the first two are unique, then
 * its question. Prompts of one document are far apart. */
static void write_questions(kvf__buf *out)
{
    for (int q = 0; q < QUESTIONS; q++)
        for (int d = 0; d < DOCUMENTS; d++)
            ck_assert_int_eq(
                kvf__buf_printf(ctx, out, "{\"prompt\": \"%c%c%s%c\", \"completion\": \"a\"}\n",
                                'a' + d % 8, 'a' + d / 8, "abcdefghabcdefghabcdef", 'a' + q),
                KVF_OK);
}

/* Tokens saved by common prefixes in an epoch. seen counts each row; divided counts documents in
 * two steps. */
static int64_t saved_in_epoch(kvf__sampler *sampler, kvf__batcher *batcher, int *seen)
{
    int64_t saved = 0, n = 0;
    for (bool last = false; !last;) {
        int64_t tokens = 0;
        const int64_t *rows = kvf__sampler_next(sampler, &n, &last);
        for (int64_t i = 0; i < n; i++) {
            seen[rows[i]]++;
            tokens += kvf__example_length(sampler->dataset, rows[i]) -
                      1; /* the last token is only predicted */
        }
        ck_assert(n == STEP || last);
        kvf__batcher_fill(batcher, sampler->dataset, rows, n);
        saved += tokens - batcher->batch.n_tokens;
    }
    return saved;
}

START_TEST(grouped_questions_save_more)
{
    kvf__buf text = {0};
    kvf__batcher batcher = {0};
    int64_t saved[2] = {0}, first[STEP] = {0}, n = 0;
    bool last = false;
    const kvf__batch_rules rules = {.causal = true, .share = true};
    write_questions(&text);
    kvf__dataset set = loaded("a.jsonl", text.data, (kvf__dataset_options){CAUSE});
    ck_assert_int_eq(set.n, DOCUMENTS * QUESTIONS);
    ck_assert_int_eq(kvf__batcher_init(ctx, &batcher, rules, STEP, STEP * 32, STEP * 32), KVF_OK);
    for (int grouped = 0; grouped < 2; grouped++) {
        kvf__sampler sampler;
        int seen[DOCUMENTS * QUESTIONS] = {0};
        ck_assert_int_eq(kvf__sampler_init(ctx, &sampler, &set, true, 7, STEP, 0), KVF_OK);
        if (grouped) ck_assert_int_eq(kvf__sampler_group_by_common(ctx, &sampler), KVF_OK);
        for (int epoch = 0; epoch < 3; epoch++)
            saved[grouped] += saved_in_epoch(&sampler, &batcher, seen);
        for (int r = 0; r < DOCUMENTS * QUESTIONS; r++)
            ck_assert_int_eq(seen[r], 3);
        kvf__sampler_rewind(&sampler); /* the same order again */
        memcpy(first, kvf__sampler_next(&sampler, &n, &last), sizeof first);
        kvf__sampler_rewind(&sampler);
        ck_assert_mem_eq(kvf__sampler_next(&sampler, &n, &last), first, sizeof first);
        kvf__sampler_done(&sampler);
    }
    ck_assert_msg(saved[1] > 2 * saved[0], "saved %d tokens grouped, %d not", (int)saved[1],
                  (int)saved[0]);
    kvf__batcher_done(&batcher);
    kvf__dataset_done(&set);
    kvf__buf_done(&text);
}
END_TEST

/* Another epoch or seed gives another order, and rows with equal beginnings are still shuffled. */
START_TEST(one_cluster_is_shuffled)
{
    kvf__buf text = {0};
    int64_t order[3][16];
    for (int i = 0; i < 16; i++)
        ck_assert_int_eq(kvf__buf_printf(ctx, &text,
                                         "{\"prompt\": \"abcdefghabcdefgh%c%c\", \"completion\": "
                                         "\"a\"}\n",
                                         'a' + i % 8, 'a' + i / 8),
                         KVF_OK);
    kvf__dataset set = loaded("a.jsonl", text.data, (kvf__dataset_options){CAUSE});
    kvf__sampler sampler;
    ck_assert_int_eq(kvf__sampler_init(ctx, &sampler, &set, true, 1, 16, 0), KVF_OK);
    ck_assert_int_eq(kvf__sampler_group_by_common(ctx, &sampler), KVF_OK);
    for (int epoch = 0; epoch < 2; epoch++) {
        int64_t n = 0;
        bool last = false;
        memcpy(order[epoch], kvf__sampler_next(&sampler, &n, &last), sizeof order[epoch]);
        ck_assert(last);
    }
    for (int64_t i = 0; i < 16; i++)
        order[2][i] = i;
    ck_assert_mem_ne(order[0], order[1], sizeof order[0]);
    ck_assert_mem_ne(order[0], order[2], sizeof order[0]);
    kvf__sampler_done(&sampler);
    kvf__dataset_done(&set);
    kvf__buf_done(&text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("batcher_tasks");
    TCase *core = tcase_create("core");
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_test(core, premises_become_common_rows);
    tcase_add_test(core, groups_stay_together);
    tcase_add_test(core, windows_have_their_question);
    tcase_add_test(core, bidirectional_batches);
    tcase_add_test(core, steps_count_groups);
    tcase_add_test(core, grouped_questions_save_more);
    tcase_add_test(core, one_cluster_is_shuffled);
    suite_add_tcase(suite, core);
    return ck_main(suite);
}
