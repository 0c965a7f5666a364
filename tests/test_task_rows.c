/* Rows of the tasks: what a toy tokenizer makes of texts, pairs, sentences, questions and choices,
 * for bidirectional bases ([CLS] a [SEP] b [SEP]) and causal ones (texts as they are). */
#include "task_fx.h"

/* "10:1 0 1 11 | ...": ids, with ' for type 1, :label where one is set, =value, [first last];
 * rows of one group are parted by /, groups by |. */
static const char *dump(const kvf__dataset *set)
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

static const char *names_of(const kvf__dataset *set)
{
    static char text[256];
    size_t at = 0;
    text[0] = 0;
    for (size_t i = 0; i < set->names.n; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", i ? " " : "",
                               set->names.names[i]);
    return text;
}

static const struct {
    const char *file, *text, *rows, *names;
    kvf__dataset_options options;
} ROWS[] = {
    {"a.tsv", "ab\tpos\nc\tneg\n", "10:1 0 1 11 | 10:0 2 11", "neg pos", {SEQ, .no_header = true}},
    {"a.tsv", "ab\tpos\nc\tneg\n", "0 1:1 | 2:0", "neg pos", {SEQ, CAUSE, .no_header = true}},
    {"a.jsonl",
     "{\"text\": \"a\", \"text_pair\": \"bc\", \"label\": 10}\n{\"text\": \"\", \"text_pair\": "
     "\"\", \"label\": 9}\n",
     "10:1 0 11 1' 2' 11' | 10:0 11 11'",
     "9 10",
     {SEQ}},
    {"a.jsonl",
     "{\"text\": \"a\", \"text_pair\": \"bc\", \"label\": true}\n",
     "0 9 1 2:0",
     "true",
     {SEQ, CAUSE}}, /* a line feed between */
    {"RTE.jsonl",
     "{\"premise\": \"a\", \"hypothesis\": \"b\", \"label\": \"not_entailment\", \"idx\": 0}\n"
     "{\"premise\": \"b\", \"hypothesis\": \"a\", \"label\": \"entailment\", \"idx\": 1}\n",
     "10:1 0 11 1' 11' | 10:0 1 11 0' 11'",
     "entailment not_entailment",
     {SEQ}},
    {"BoolQ.jsonl",
     "{\"question\": \"a\", \"passage\": \"b\", \"label\": false}\n",
     "10:0 0 11 1' 11'",
     "false",
     {SEQ}},
    {"MultiRC.tsv",
     "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tx\n",
     "10:0 0 11 1' 11'",
     "x",
     {SEQ}},
    {"sst.tsv", "sentence\tlabel\nab\t1\n", "10:0 0 1 11", "1", {SEQ}},
    {"sts.csv",
     "sentence1,sentence2,score\na,b,2.5\na,c,-1\n",
     "10:0 0 11 1' 11' =2.5 | 10:0 0 11 2' 11' "
     "=-1",
     "",
     {SEQ, .regression = true}},
    {"a.tsv", "text\na\n", "10:-1 0 11", "", {SEQ, .unlabeled = true}},
    {"a.jsonl",
     "{\"text\": \"abcdef\", \"label\": 1}",
     "10:0 0 1 2 11",
     "1",
     {SEQ, .max_length = 5, .overlong = KVF__OVERLONG_TRUNCATE}},
    {"a.jsonl",
     "{\"text\": \"abcdef\", \"text_pair\": \"gh\", \"label\": 1}",
     "10:0 0 1 2 11 6' 7' 11'",
     "1",
     {SEQ, .max_length = 8, .overlong = KVF__OVERLONG_TRUNCATE}},
    {"a.jsonl",
     "{\"text\": \"abcdef\", \"text_pair\": \"ghgh\", \"label\": 1}",
     "10:0 0 1 2 11 6' 7' 11'",
     "1",
     {SEQ, .max_length = 8, .overlong = KVF__OVERLONG_TRUNCATE}},
    {"a.jsonl",
     "{\"text\": \"abcdef\", \"label\": 1}\n{\"text\": \"a\", \"label\": 2}",
     "10:1 0 11",
     "1 2",
     {SEQ, .max_length = 5, .overlong = KVF__OVERLONG_SKIP}},

    {"a.conll", "ab\tO\nc\tB-x\n\nd\tO\n", "10 0:1 1 2:0 11 | 10 3:1 11", "B-x O", {TOK}},
    {"a.jsonl",
     "{\"tokens\": [\"ab\", \"c\"], \"tags\": [2, 0]}",
     "0:1 1 2:0",
     "0 2",
     {TOK, CAUSE}},
    {"a.csv", "words,tags\nab c,x y\n", "10 0:0 1 2:1 11", "x y", {TOK}},
    {"a.conll", "ab\nc\n", "10 0:-1 1 2:-1 11", "", {TOK, .unlabeled = true}},
    {"a.conll",
     "ab O\ncd O\nef O\n",
     "10 0:0 1 2:0 3 11",
     "O",
     {TOK, .max_length = 7, .overlong = KVF__OVERLONG_TRUNCATE}}, /* not within "ef" */
    {"a.conll",
     "abcd O\ne O\n",
     "10 0:0 1 2 11",
     "O",
     {TOK, .max_length = 5, .overlong = KVF__OVERLONG_TRUNCATE}}, /* a web address */
    {"a.conll",
     "ab O\ncd O\nef O\ngh O\n",
     "10 0:0 1 2 3 11 | 10 2:0 3 4 5 11 | 10 4:0 5 6:0 7 11",
     "O",
     {TOK, .max_length = 6, .windows = true}}, /* words at an end are labelled elsewhere */
    {"a.conll",
     "ab O\ncd O\nef O\ngh O\n",
     "0:0 1 2:0 3 | 2 3 4:0 5 | 4 5 6:0 7",
     "O",
     {TOK, CAUSE, .max_length = 4, .windows = true}}, /* what is before a word is all it sees */
    {"a.conll",
     "a O\nz O\nbcde O\nf O\nz O\n",
     "10 0:0 11 | 10 1:0 2 3 11 | 10 5:0 11",
     "O",
     {TOK, .max_length = 5, .overlong = KVF__OVERLONG_TRUNCATE, .windows = true}},
    {"a.conll", "ab O\nc O\n", "10 0:0 1 2:0 11", "O", {TOK, .max_length = 5, .windows = true}},

    {"a.jsonl",
     "{\"question\": \"h\", \"context\": \"abcd\", \"answers\": [{\"text\": \"bc\", \"start\": "
     "1}]}",
     "10:0 7 11 0':0 1':0 2':0 3':0 11' [4 5]",
     "",
     {QA}},
    {"a.jsonl",
     "{\"question\": \"h\", \"context\": \"abcd\", \"answers\": [{\"text\": \"bc\", \"start\": "
     "1}]}",
     "7 9 0:0 1:0 2:0 3:0 12:0 [3 4]",
     "",
     {QA, CAUSE}}, /* </s> stands for no answer */
    {"a.jsonl",
     "{\"question\": \"h\", \"context\": \"ab\", \"answers\": [], \"is_impossible\": true}",
     "10:0 7 11 0':0 1':0 11' [0 0]",
     "",
     {QA}},
    {"a.jsonl",
     "{\"question\": \"h\", \"context\": \"ab\", \"answers\": {\"text\": [\"b\"], "
     "\"answer_start\": "
     "[1]}}",
     "10:0 7 11 0':0 1':0 11' [4 4]",
     "",
     {QA}},
    {"a.jsonl",
     "{\"question\": \"h\", \"context\": \"ab\"}",
     "10:0 7 11 0':0 1':0 11' [-1 -1]",
     "",
     {QA, .unlabeled = true}},
    {"a.jsonl",
     "{\"question\": \"h\", \"context\": \"abcdef\", \"answers\": [{\"text\": \"ef\"}]}",
     "10:0 7 11 0':0 1':0 2':0 3':0 11' [0 0] / 10:0 7 11 2':0 3':0 4':0 5':0 11' [5 6]",
     "",
     {QA, .max_length = 8, .doc_stride = 2}},
    {"a.jsonl",
     "{\"question\": \"h\", \"context\": \"abcdef\", \"answers\": [{\"text\": \"f\"}]}",
     "10:0 7 11 0':0 1':0 2':0 3':0 11' [0 0] / 10:0 7 11 3':0 4':0 5':0 11' [5 5]",
     "",
     {QA, .max_length = 8, .doc_stride = 1}},

    {"a.jsonl",
     "{\"text\": \"a\", \"choices\": [\"b\", \"cd\"], \"label\": 1}",
     "10:0 0 11 1' 11' / 10:1 0 11 2' 3' 11'",
     "",
     {CHOICE}},

    /* U+0000 is text */
    {"a.jsonl",
     "{\"text\": \"\\u0000a\", \"text_pair\": \"b\\u0000\", \"label\": 1}",
     "10:0 13 0 11 1' 13' 11'",
     "1",
     {SEQ}},
    {"a.jsonl", "{\"tokens\": [\"a\\u0000b\"], \"tags\": [\"O\"]}", "10 0:0 13 1 11", "O", {TOK}},
    {"a.jsonl",
     "{\"tokens\": \"a\\u0000b \\u0000\", \"tags\": \"O O\"}",
     "10 0:0 13 1 13:0 11",
     "O",
     {TOK}},
    {"a.jsonl",
     "{\"question\": \"\\u0000h\", \"context\": \"a\\u0000b\", \"answers\": [{\"text\": "
     "\"\\u0000b\", \"start\": 1}]}",
     "10:0 13 7 11 0':0 13':0 1':0 11' [5 6]",
     "",
     {QA}},
    {"a.jsonl",
     "{\"text\": \"a\", \"choices\": [\"b\\u0000c\", \"\\u0000\"], \"label\": 1}",
     "10:0 0 11 1' 13' 2' 11' / 10:1 0 11 13' 11'",
     "",
     {CHOICE}},
    {"COPA.jsonl",
     "{\"premise\": \"a\", \"choice1\": \"b\", \"choice2\": \"c\", \"question\": \"cause\", "
     "\"label\": 0}\n{\"premise\": \"h\", \"choice1\": \"b\", \"choice2\": \"c\", \"question\": "
     "\"effect\"}\n",
     "0 8 1 4 2 0 4 9 1:1 / 0 8 1 4 2 0 4 9 2:0 | 7 8 9 1:0 / 7 8 9 2:0",
     "",
     {CHOICE, CAUSE, .unlabeled = true}}, /* letters outside the vocabulary leave nothing */
};

START_TEST(rows_of_tasks)
{
    kvf__dataset set = loaded(ROWS[_i].file, ROWS[_i].text, ROWS[_i].options);
    ck_assert_str_eq(dump(&set), ROWS[_i].rows);
    ck_assert_str_eq(names_of(&set), ROWS[_i].names);
    kvf__dataset_done(&set);
}
END_TEST

static char *const TWO[] = {"neg", "pos"};
static const kvf__label_set SIGNS = {.n = 2, .names = (char **)TWO};

static const struct {
    const char *file, *text, *line;
    kvf__dataset_options options;
} BAD[] = {
    {"a.jsonl",
     "{\"text\": \"a\"}",
     "a.jsonl:1: \"label\" is missing; the row has text (name others with "
     "--map)",
     {SEQ}},
    {"a.tsv",
     "text\tlable\na\t1\n",
     "a.tsv:2: \"label\" is missing; the row has text, lable (name others "
     "with --map)",
     {SEQ}},
    {"a.tsv",
     "txt\tlabel\na\t1\n",
     "a.tsv:2: found the fields txt, label, want text, or text and text_pair "
     "(name others with --map)",
     {SEQ}},
    {"a.jsonl", "{\"text\": 3, \"label\": 1}", "a.jsonl:1: \"text\" is not a string", {SEQ}},
    {"a.jsonl", "[1]", "a.jsonl:1: want a JSON object", {SEQ, .format = "jsonl"}},
    {"a.jsonl",
     "{\"text\": \"a\", \"label\": \"x\\u0000y\"}",
     "a.jsonl:1: the label holds U+0000",
     {SEQ}},
    {"a.jsonl",
     "{\"text\": \"a\", \"label\": \"x\", \"id\": \"\\u0000\"}",
     "a.jsonl:1: the row's \"id\" holds U+0000",
     {SEQ}},
    {"a.jsonl",
     "{\"tokens\": [\"a\"], \"tags\": [\"B-\\u0000\"]}",
     "a.jsonl:1: tag 0 is not a name",
     {TOK}},
    {"a.tsv",
     "text\tlabel\na\tpos\nb\tso\n",
     "a.tsv:3: label \"so\" is not in the task's set (neg, pos)",
     {SEQ, .label_set = &SIGNS}},
    {"a.tsv",
     "text\tlabel\na\t1e\n",
     "a.tsv:2: label \"1e\" is not a number",
     {SEQ, .regression = true}},
    {"a.tsv",
     "text\tlabel\nabcd\t1\n",
     "a.tsv:2: the row has 6 tokens, at most 5 fit (see --overlong)",
     {SEQ, .max_length = 5}},
    {"a.tsv", "text\tlabel\n\t1\n", "a.tsv:2: the row has no tokens", {SEQ, CAUSE}},
    {"a.tsv", "", "a.tsv: no rows", {SEQ}},
    {"a.tsv", "text\tlabel\n", "a.tsv: no rows", {SEQ}},
    {"a.tsv",
     "text\tlabel\nabcd\t1\n",
     "a.tsv: no rows fit (all were longer than --max-length)",
     {SEQ, .max_length = 5, .overlong = KVF__OVERLONG_SKIP}},

    {"a.conll",
     "a pos\n\nb neg\nc so\n",
     "a.conll:4: label \"so\" is not in the task's set (neg, pos)",
     {TOK, .label_set = &SIGNS}},
    {"a.jsonl",
     "{\"tokens\": [\"a\", \"b\"], \"tags\": [\"O\"]}",
     "a.jsonl:1: 1 tags, but 2 tokens",
     {TOK}},
    {"a.jsonl",
     "{\"tokens\": [\"a\"]}",
     "a.jsonl:1: \"tags\" is missing; the row has tokens (name others "
     "with --map)",
     {TOK}},
    {"a.jsonl",
     "{\"text\": \"a\", \"label\": 1}",
     "a.jsonl:1: \"tokens\" is missing; the row has text, label "
     "(name others with --map)",
     {TOK}},
    {"a.jsonl",
     "{\"tokens\": [1], \"tags\": [\"O\"]}",
     "a.jsonl:1: token 0 is not a string",
     {TOK}},
    {"a.jsonl", "{\"tokens\": [\"a\"], \"tags\": [null]}", "a.jsonl:1: tag 0 is not a name", {TOK}},
    {"a.conll",
     "abcd O\n",
     "a.conll:1: no word fits into 2 tokens",
     {TOK, .max_length = 2, .overlong = KVF__OVERLONG_TRUNCATE}},
    {"a.conll",
     "abcd O\n",
     "a.conll:1: the row has 6 tokens, at most 5 fit (see --overlong)",
     {TOK, .max_length = 5}},

    {"a.jsonl",
     "{\"question\": \"a\", \"answers\": []}",
     "a.jsonl:1: \"context\" is missing; the row has "
     "question, answers (name others with --map)",
     {QA}},
    {"a.jsonl",
     "{\"question\": \"a\", \"context\": \"b\"}",
     "a.jsonl:1: \"answers\" is missing or no list",
     {QA}},
    {"a.jsonl",
     "{\"question\": \"a\", \"context\": \"b\", \"answers\": {\"text\": \"b\"}}",
     "a.jsonl:1: \"answers\" is missing or no list",
     {QA}},
    {"a.jsonl",
     "{\"question\": \"a\", \"context\": \"\xC3\xA9\xC3\xA9\", \"answers\": [{\"text\": \"b\", "
     "\"start\": 1}]}",
     "a.jsonl:1: answer \"b\" is not in its context at 1, where \"\" stands",
     {QA}},
    {"a.jsonl",
     "{\"question\": \"a\", \"context\": \"abc\", \"answers\": [{\"text\": \"b\", \"start\": 2}]}",
     "a.jsonl:1: answer \"b\" is not in its context at 2, where \"c\" stands",
     {QA}},
    {"a.jsonl",
     "{\"question\": \"a\", \"context\": \"abc\", \"answers\": [{\"text\": \"b\", \"start\": 9}]}",
     "a.jsonl:1: answer \"b\" is not in its context at 9, where \"\" stands",
     {QA}},
    {"a.jsonl",
     "{\"question\": \"a\", \"context\": \"abc\", \"answers\": [\"d\"]}",
     "a.jsonl:1: answer \"d\" is not in its context",
     {QA}},
    {"a.json",
     "{\"data\": [{\"paragraphs\": [{\"context\": \"abc\", \"qas\": [\n{\"id\": \"q7\", "
     "\"question\": "
     "\"a\", \"answers\": [{\"text\": \"c\", \"answer_start\": 1}]}]}]}]}",
     "a.json:2: question q7: answer \"c\" is not in its context at 1, where \"b\" stands",
     {QA}},
    {"a.jsonl",
     "{\"question\": \"abcdef\", \"context\": \"a\", \"answers\": [\"a\"]}",
     "a.jsonl:1: the row has 6 tokens, at most 3 fit (see --overlong)",
     {QA, .max_length = 9}},

    {"a.jsonl",
     "{\"text\": \"a\", \"choices\": [\"b\", \"c\"], \"label\": 2}",
     "a.jsonl:1: label 2 is not one of the row's 2 choices, counted from 0",
     {CHOICE}},
    {"a.jsonl",
     "{\"text\": \"a\", \"choices\": [\"b\"], \"label\": 0}",
     "a.jsonl:1: want a list of two or more choices",
     {CHOICE}},
    {"a.jsonl",
     "{\"text\": \"a\", \"choices\": [\"b\", 1], \"label\": 0}",
     "a.jsonl:1: choice 1 is not a "
     "string",
     {CHOICE}},
    {"a.jsonl",
     "{\"text\": \"a\", \"label\": 0}",
     "a.jsonl:1: found the fields text, label, want text and "
     "choices (name others with --map)",
     {CHOICE}},
};

START_TEST(bad_rows_get_one_line)
{
    kvf__dataset set = {0};
    ck_assert_int_eq(load(BAD[_i].file, BAD[_i].text, BAD[_i].options, &set), KVF_EDATA);
    ck_assert_str_eq(kvf_ctx_error(ctx), BAD[_i].line);
    ck_assert_ptr_null(set.ids);
}
END_TEST

/* ---- sources --------------------------------------------------------------------------------- */

START_TEST(sources_of_sentences)
{
    kvf__dataset set = loaded(
        "a.conll", "ab O\ncd B-x\nef O\n",
        (kvf__dataset_options){TOK, .max_length = 7, .overlong = KVF__OVERLONG_TRUNCATE});
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

/* A word of which normalisation leaves nothing has no label; the others keep theirs. */
START_TEST(words_without_tokens)
{
    kvf__dataset set = loaded(
        "a.jsonl", "{\"tokens\": [\"a\", \"z\", \"b\"], \"tags\": [\"x\", \"y\", \"x\"]}",
        (kvf__dataset_options){TOK});
    ck_assert_str_eq(dump(&set), "10 0:0 1:0 11");
    ck_assert_int_eq(set.sources->group[0].label_of[1], -1);
    ck_assert_int_eq(set.sources->group[0].label_of[2], 1);
    kvf__dataset_done(&set);
}
END_TEST

/* Every word has its label in some row of its own. */
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

/* What is left out is listed for who wants all rows, with its place and all that its file said. */
START_TEST(left_out_rows_are_listed)
{
    kvf__dataset set = loaded(
        "a.jsonl",
        "{\"id\": 7, \"text\": \"a\", \"choices\": [\"b\", \"bcdefgh\"], \"label\": 1}\n"
        "{\"text\": \"a\", \"choices\": [\"b\", \"c\"], \"label\": 0}\n"
        "{\"text\": \"abcdefgh\", \"choices\": [\"b\", \"c\"]}\n",
        (kvf__dataset_options){CHOICE, .max_length = 8, .overlong = KVF__OVERLONG_SKIP,
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

/* A question with two long choices is one row cut. */
START_TEST(cut_groups_are_counted)
{
    kvf__dataset set = loaded(
        "a.jsonl", "{\"text\": \"a\", \"choices\": [\"bcdefgh\", \"bcdefgh\"], \"label\": 1}\n",
        (kvf__dataset_options){CHOICE, .max_length = 8, .overlong = KVF__OVERLONG_TRUNCATE});
    ck_assert(set.n == 2 && set.truncated == 1 && !set.sources->n_left);
    kvf__dataset_done(&set);
}
END_TEST

/* Code points are not bytes, and tokens lead back to the text. */
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
                                                     .overlong = KVF__OVERLONG_SKIP});
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

/* Prompts that come again right away are one row with all their references. */
START_TEST(references_of_prompts)
{
    static const char TEXT[] = "mr,ref\na,b\na,c\nb,d\na,e\n";
    kvf__field_map map = {0};
    ck_assert_int_eq(kvf__field_map_init(ctx, "prompt=mr,completion=ref", &map), KVF_OK);
    kvf__dataset set = loaded(
        "a.csv", TEXT,
        (kvf__dataset_options){
            .prompt_only = true, .references = true, .causal = true, .render = {.map = &map}});
    ck_assert_str_eq(dump(&set), "0 | 1 | 0");
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

START_TEST(given_labels_keep_their_order)
{
    static char *const NAMES[] = {"pos", "neg"};
    const kvf__label_set given = {.n = 2, .names = (char **)NAMES};
    kvf__dataset set = loaded("a.tsv", "text\tlabel\na\tneg\nb\t-1\n",
                              (kvf__dataset_options){SEQ, .label_set = &given, .unlabeled = true});
    ck_assert_str_eq(dump(&set), "10:1 0 11 | 10:-1 1 11"); /* -1: GLUE's test sets have no label */
    ck_assert_str_eq(names_of(&set), "pos neg");
    kvf__dataset_done(&set);
}
END_TEST

/* Runs per task: the n-th allocation fails, n = 0, 1, ..., until all succeed. */
START_TEST(every_allocation_may_fail)
{
    static const struct {
        const char *file, *text;
        kvf__dataset_options options;
    } FILES[] = {
        {"a.tsv", "text\tlabel\nab\tx\nc\ty\n", {SEQ}},
        {"a.conll", "ab O\nc B-x\n\nd O\n", {TOK}},
        {"a.jsonl",
         "{\"question\": \"h\", \"context\": \"abcdef\", \"answers\": [{\"text\": \"ef\"}]}",
         {QA, CAUSE, .max_length = 8}},
        {"a.jsonl", "{\"text\": \"a\", \"choices\": [\"b\", \"cd\"], \"label\": 1}", {CHOICE}},
        {"a.conll",
         "ab O\nc B-x\n\nd O\ne O\n\nabcdef O\n",
         {TOK, .max_length = 4, .windows = true, .unlabeled = true,
          .overlong = KVF__OVERLONG_SKIP}},
    };
    kvf__dataset set = {0};
    kvf_status st;
    int64_t n = 0;
    do {
        kvf_ctx_fail_allocation(ctx, n++);
        st = load(FILES[_i].file, FILES[_i].text, FILES[_i].options, &set);
        ck_assert(st == KVF_OK || st == KVF_ENOMEM);
    } while (st);
    kvf_ctx_fail_allocation(ctx, -1);
    ck_assert_int_gt(n, 10);
    kvf__dataset_done(&set);
}
END_TEST

/* ---- parts ----------------------------------------------------------------------------------- */

/* Of a question the answers stay together, and with what the file said of it. */
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
    /* a share of none or all still leaves a row on each side */
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
    Suite *suite = suite_create("task_rows");
    TCase *core = tcase_create("core"), *errors = tcase_create("errors");
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_checked_fixture(errors, setup, teardown);
    tcase_add_loop_test(core, rows_of_tasks, 0, (int)(sizeof ROWS / sizeof ROWS[0]));
    tcase_add_test(core, sources_of_sentences);
    tcase_add_test(core, words_without_tokens);
    tcase_add_test(core, sentences_in_windows);
    tcase_add_test(core, left_out_rows_are_listed);
    tcase_add_test(core, cut_groups_are_counted);
    tcase_add_test(core, sources_of_questions);
    tcase_add_test(core, sources_of_choices);
    tcase_add_test(core, references_of_prompts);
    tcase_add_test(core, given_labels_keep_their_order);
    tcase_add_test(core, a_share_is_drawn);
    tcase_add_loop_test(errors, bad_rows_get_one_line, 0, (int)(sizeof BAD / sizeof BAD[0]));
    tcase_add_loop_test(errors, every_allocation_may_fail, 0, 5);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, errors);
    return ck_main(suite);
}
