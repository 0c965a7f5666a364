/* Rows of the tasks from a toy tokenizer: texts, pairs, sentences, questions and choices.
 * Bidirectional bases get [CLS] a [SEP] b [SEP]; causal ones get plain text. */
#include "task_fx.h"

#include <stdlib.h>

static char *const TWO[] = {"neg", "pos"};
static const kvf__label_set SIGNS = {.n = 2, .names = (char **)TWO};

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
     "{\"text\": \"a\", \"text_pair\": null, \"label\": 1}",
     "10:0 0 11",
     "1",
     {SEQ}}, /* null: missing */
    {"a.jsonl",
     "{\"tokens\": null, \"words\": [\"a\"], \"ner_tags\": [1], \"tags\": null}",
     "10 0:0 11",
     "1",
     {TOK}},
    /* values that mean no label, and where one is a label */
    {"a.csv", "text,label\na,pos \nb,\nc,\xC2\xA0pos\n", "10:0 0 11 | 10:0 2 11", "pos", {SEQ}},
    {"a.jsonl",
     "{\"text\": \"a\", \"label\": null}\n{\"text\": \"b\", \"label\": \"\"}\n{\"text\": \"c\", "
     "\"label\": \"x\"}",
     "10:0 2 11",
     "x",
     {SEQ}},
    {"a.tsv", "text\tlabel\na\t-\nb\tx\nc\ty\n", "10:0 1 11 | 10:1 2 11", "x y", {SEQ}},
    {"a.tsv", "text\tlabel\na\t-\nb\t+\n", "10:1 0 11 | 10:0 1 11", "+ -", {SEQ}},
    {"a.tsv", "text\tlabel\na\t1\nb\t-1\nc\t0\n", "10:1 0 11 | 10:0 2 11", "0 1", {SEQ}},
    {"a.tsv", "text\tlabel\na\t1\nb\t-1\n", "10:1 0 11 | 10:0 1 11", "-1 1", {SEQ}},
    {"a.tsv", "text\tlabel\na\t-\nb\tpos\n", "10:1 1 11", "neg pos", {SEQ, .label_set = &SIGNS}},
    {"a.tsv",
     "text\tlabel\na\t-\n",
     "10:-1 0 11",
     "neg pos",
     {SEQ, .label_set = &SIGNS, .unlabeled = true}},
    {"a.tsv", "text\tlabel\na\t\nb\t2\n", "10:0 1 11 =2", "", {SEQ, .regression = true}},
    /* numbers of the given names */
    {"a.tsv",
     "text\tlabel\na\t1\nb\t0\nc\t-1\n",
     "10:1 0 11 | 10:0 1 11",
     "neg pos",
     {SEQ, .label_set = &SIGNS}},
    {"a.jsonl",
     "{\"tokens\": [\"a\", \"b\"], \"tags\": [1, \" neg\"]}",
     "10 0:1 1:0 11",
     "neg pos",
     {TOK, .label_set = &SIGNS}},
    {"a.jsonl",
     "{\"text\": \"abcdef\", \"label\": 1}",
     "10:0 0 1 2 11",
     "1",
     {SEQ, .max_length = 5, .overlong = KVF_OVERLONG_TRUNCATE}},
    {"a.jsonl",
     "{\"text\": \"abcdef\", \"text_pair\": \"gh\", \"label\": 1}",
     "10:0 0 1 2 11 6' 7' 11'",
     "1",
     {SEQ, .max_length = 8, .overlong = KVF_OVERLONG_TRUNCATE}},
    {"a.jsonl",
     "{\"text\": \"abcdef\", \"text_pair\": \"ghgh\", \"label\": 1}",
     "10:0 0 1 2 11 6' 7' 11'",
     "1",
     {SEQ, .max_length = 8, .overlong = KVF_OVERLONG_TRUNCATE}},
    {"a.jsonl",
     "{\"text\": \"abcdef\", \"label\": 1}\n{\"text\": \"a\", \"label\": 2}",
     "10:1 0 11",
     "1 2",
     {SEQ, .max_length = 5, .overlong = KVF_OVERLONG_SKIP}},

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
     {TOK, .max_length = 7, .overlong = KVF_OVERLONG_TRUNCATE}}, /* not within "ef" */
    {"a.conll",
     "abcd O\ne O\n",
     "10 0:0 1 2 11",
     "O",
     {TOK, .max_length = 5, .overlong = KVF_OVERLONG_TRUNCATE}}, /* a web address */
    {"a.conll",
     "ab O\ncd O\nef O\ngh O\n",
     "10 0:0 1 2 3 11 | 10 2:0 3 4 5 11 | 10 4:0 5 6:0 7 11",
     "O",
     {TOK, .max_length = 6, .windows = true}}, /* edge words belong to other windows */
    {"a.conll",
     "ab O\ncd O\nef O\ngh O\n",
     "0:0 1 2:0 3 | 2 3 4:0 5 | 4 5 6:0 7",
     "O",
     {TOK, CAUSE, .max_length = 4, .windows = true}}, /* context comes only before a word */
    {"a.conll",
     "a O\nz O\nbcde O\nf O\nz O\n",
     "10 0:0 11 | 10 1:0 2 3 11 | 10 5:0 11",
     "O",
     {TOK, .max_length = 5, .overlong = KVF_OVERLONG_TRUNCATE, .windows = true}},
    {"a.conll", "ab O\nc O\n", "10 0:0 1 2:0 11", "O", {TOK, .max_length = 5, .windows = true}},

    {"a.jsonl",
     "{\"question\": \"h\", \"context\": \"abcd\", \"answers\": [{\"text\": \"bc\", \"start\": "
     "1}]}",
     "10:1 7:0 11:0 0':0 1':0 2':0 3':0 11':0 [4 5]",
     "",
     {QA}},
    {"a.jsonl",
     "{\"question\": \"h\", \"context\": \"abcd\", \"answers\": [{\"text\": \"bc\", \"start\": "
     "1}]}",
     "7:0 9:0 0:0 1:0 2:0 3:0 12:1 [3 4]",
     "",
     {QA, CAUSE}}, /* </s>: no answer */
    {"a.jsonl",
     "{\"question\": \"h\", \"context\": \"ab\", \"answers\": [], \"is_impossible\": true}",
     "10:1 7:0 11:0 0':0 1':0 11':0 [0 0]",
     "",
     {QA}},
    {"a.jsonl",
     "{\"question\": \"h\", \"context\": \"ab\", \"answers\": {\"text\": [\"b\"], "
     "\"answer_start\": "
     "[1]}}",
     "10:1 7:0 11:0 0':0 1':0 11':0 [4 4]",
     "",
     {QA}},
    {"a.json", /* a start as text, or as a real */
     "{\"data\": [{\"paragraphs\": [{\"context\": \"bab\", \"qas\": [{\"question\": \"h\", "
     "\"answers\": [{\"text\": \"b\", \"answer_start\": \"2\"}]}]}]}]}",
     "10:1 7:0 11:0 1':0 0':0 1':0 11':0 [5 5]",
     "",
     {QA}},
    {"a.jsonl",
     "{\"question\": \"h\", \"context\": \"bab\", \"answers\": {\"text\": [\"b\", \"a\"], "
     "\"answer_start\": [2.0, \"1\"]}}",
     "10:1 7:0 11:0 1':0 0':0 1':0 11':0 [5 5]",
     "",
     {QA}},
    {"a.jsonl",
     "{\"question\": \"h\", \"context\": \"ab\"}",
     "10:1 7:0 11:0 0':0 1':0 11':0 [-1 -1]",
     "",
     {QA, .unlabeled = true}},
    {"a.jsonl",
     "{\"question\": \"h\", \"context\": \"abcdef\", \"answers\": [{\"text\": \"ef\"}]}",
     "10:1 7:0 11:0 0':0 1':0 2':0 3':0 11':0 [0 0] / 10:1 7:0 11:0 2':0 3':0 4':0 5':0 11':0 [5 "
     "6]",
     "",
     {QA, .max_length = 8, .doc_stride = 2}},
    {"a.jsonl",
     "{\"question\": \"h\", \"context\": \"abcdef\", \"answers\": [{\"text\": \"f\"}]}",
     "10:1 7:0 11:0 0':0 1':0 2':0 3':0 11':0 [0 0] / 10:1 7:0 11:0 3':0 4':0 5':0 11':0 [5 5]",
     "",
     {QA, .max_length = 8, .doc_stride = 1}},

    {"a.jsonl",
     "{\"text\": \"a\", \"choices\": [\"b\", \"cd\"], \"label\": 1}",
     "10:0 0 11 1' 11' / 10:1 0 11 2' 3' 11'",
     "",
     {CHOICE}},

    /* names of choices and of the right one in data sets */
    {"ARC.jsonl",
     "{\"question\": \"a\", \"choices\": {\"text\": [\"b\", \"c\"], \"label\": [\"1\", \"2\"]}, "
     "\"answerKey\": \"1\"}\n{\"question\": \"a\", \"choices\": {\"label\": [\"A\", \"B\"], "
     "\"text\": "
     "[\"b\", \"c\"]}, \"answerKey\": \"B\"}",
     "10:1 0 11 1' 11' / 10:0 0 11 2' 11' | 10:0 0 11 1' 11' / 10:1 0 11 2' 11'",
     "",
     {CHOICE}},
    {"ARC.jsonl",
     "{\"id\": \"x\", \"question\": {\"stem\": \"a\", \"choices\": [{\"text\": \"b\", \"label\": "
     "\"A\"}, "
     "{\"text\": \"c\", \"label\": \"B\"}]}, \"answerKey\": \"B\"}",
     "10:0 0 11 1' 11' / 10:1 0 11 2' 11'",
     "",
     {CHOICE}},
    {"OpenBookQA.jsonl",
     "{\"question_stem\": \"a\", \"choices\": {\"text\": [\"b\", \"c\"], \"label\": [\"A\", "
     "\"B\"]}, "
     "\"answerKey\": \"\"}",
     "10:0 0 11 1' 11' / 10:0 0 11 2' 11'",
     "",
     {CHOICE, .unlabeled = true}},
    {"MMLU.jsonl",
     "{\"question\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": 1}\n{\"question\": \"a\", "
     "\"choices\": [\"b\", \"c\"], \"answer\": \"A\"}",
     "10:0 0 11 1' 11' / 10:1 0 11 2' 11' | 10:1 0 11 1' 11' / 10:0 0 11 2' 11'",
     "",
     {CHOICE}},
    {"a.jsonl", /* as the text of a choice; null is no label if another choice is labelled */
     "{\"question\": \"a\", \"choices\": [\"b\", \"c\"], \"label\": null, \"answer\": \"c\"}",
     "10:0 0 11 1' 11' / 10:1 0 11 2' 11'",
     "",
     {CHOICE}},
    {"RACE.jsonl",
     "{\"article\": \"a\", \"question\": \"b\", \"options\": [\"b\", \"c\"], \"answer\": \"B\"}",
     "10:0 0 8 1 11 1' 11' / 10:1 0 8 1 11 2' 11'",
     "",
     {CHOICE}},
    {"HellaSwag.jsonl",
     "{\"ind\": 1, \"ctx_a\": \"a\", \"ctx_b\": \"b\", \"ctx\": \"a\", \"endings\": [\"b\", "
     "\"c\"], "
     "\"label\": \"1\"}\n{\"ctx_a\": \"a\", \"ctx_b\": \"b\", \"endings\": [\"b\", \"c\"], "
     "\"label\": 0}",
     "10:0 0 11 1' 11' / 10:1 0 11 2' 11' | 10:1 0 8 1 11 1' 11' / 10:0 0 8 1 11 2' 11'",
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
     "10:1 13:0 7:0 11:0 0':0 13':0 1':0 11':0 [5 6]",
     "",
     {QA}},
    {"a.jsonl",
     "{\"text\": \"a\", \"choices\": [\"b\\u0000c\", \"\\u0000\"], \"label\": 1}",
     "10:0 0 11 1' 13' 2' 11' / 10:1 0 11 13' 11'",
     "",
     {CHOICE}},
    {"a.jsonl", /* each row shortens the same text */
     "{\"text\": \"abcdefgh\", \"choices\": [\"bb\", \"a\"], \"label\": 0}",
     "0 1 2 9 1 1:1 / 0 1 2 3 9 0:0",
     "",
     {CHOICE, CAUSE, .max_length = 6, .overlong = KVF_OVERLONG_TRUNCATE}},
    {"COPA.jsonl",
     "{\"premise\": \"a\", \"choice1\": \"b\", \"choice2\": \"c\", \"question\": \"cause\", "
     "\"label\": 0}\n{\"premise\": \"h\", \"choice1\": \"b\", \"choice2\": \"c\", \"question\": "
     "\"effect\"}\n",
     "0 8 1 4 2 0 4 9 1:1 / 0 8 1 4 2 0 4 9 2:0 | 7 8 9 1:0 / 7 8 9 2:0",
     "",
     {CHOICE, CAUSE, .unlabeled = true}}, /* letters outside the vocabulary give no tokens */
};

START_TEST(rows_of_tasks)
{
    kvf__dataset set = loaded(ROWS[_i].file, ROWS[_i].text, ROWS[_i].options);
    ck_assert_str_eq(rows_text(&set), ROWS[_i].rows);
    ck_assert_str_eq(names_of(&set), ROWS[_i].names);
    kvf__dataset_done(&set);
}
END_TEST

static const struct {
    const char *file, *text, *line;
    kvf__dataset_options options;
} BAD[] = {
    {"a.jsonl",
     "{\"text\": \"a\"}",
     "a.jsonl:1: \"label\" is missing; the row has text (map other names with --map)",
     {SEQ}},
    {"a.tsv",
     "text\tlable\na\t1\n",
     "a.tsv:2: \"label\" is missing; the row has text, lable (map other names with --map)",
     {SEQ}},
    {"a.tsv",
     "txt\tlabel\na\t1\n",
     "a.tsv:2: the row needs text, or text and text_pair; the row has txt, label (map other names "
     "with "
     "--map)",
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
     "a.jsonl:1: tag 0 is not a valid name",
     {TOK}},
    {"a.tsv",
     "text\tlabel\na\tpos\nb\tso\n",
     "a.tsv:3: label \"so\" is not one of neg, pos",
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
    {"a.tsv",
     "text\tlabel\na\t \n",
     "a.tsv:2: label \"\" means no label, and no row has another",
     {SEQ}},
    {"a.tsv",
     "text\tlabel\na\t1\n",
     "a.tsv:2: label \"1\" is not one of neg, pos, the labels of the training data: list all "
     "labels with --labels",
     {SEQ, .label_set = &SIGNS, .learnt = true}},
    {"a.tsv",
     "text\tlabel\na\t2\n",
     "a.tsv:2: label \"2\" is not one of neg, pos",
     {SEQ, .label_set = &SIGNS}},
    {"a.tsv", "text\tlabel\n", "a.tsv: no rows", {SEQ}},
    {"a.tsv",
     "text\tlabel\nabcd\t1\n",
     "a.tsv: no rows fit (all were longer than --max-length)",
     {SEQ, .max_length = 5, .overlong = KVF_OVERLONG_SKIP}},

    {"a.conll",
     "a pos\n\nb neg\nc so\n",
     "a.conll:4: label \"so\" is not one of neg, pos",
     {TOK, .label_set = &SIGNS}},
    {"a.jsonl",
     "{\"tokens\": [\"a\", \"b\"], \"tags\": [\"O\"]}",
     "a.jsonl:1: 1 tags, but 2 tokens",
     {TOK}},
    {"a.jsonl",
     "{\"tokens\": [\"a\"]}",
     "a.jsonl:1: \"tags\" is missing; the row has tokens (map other names with --map)",
     {TOK}},
    {"a.jsonl",
     "{\"text\": \"a\", \"label\": 1}",
     "a.jsonl:1: \"tokens\" is missing, and \"tags\" too; the row has text, label (map other names "
     "with --map)",
     {TOK}},
    {"a.jsonl",
     "{\"tokens\": [1], \"tags\": [\"O\"]}",
     "a.jsonl:1: token 0 is not a string",
     {TOK}},
    {"a.jsonl",
     "{\"tokens\": [\"a\"], \"tags\": [null]}",
     "a.jsonl:1: tag 0 is not a valid name",
     {TOK}},
    {"a.conll",
     "abcd O\n",
     "a.conll:1: a row of 2 tokens has no room for a word",
     {TOK, .max_length = 2, .overlong = KVF_OVERLONG_TRUNCATE}},
    {"a.conll",
     "abcd O\n",
     "a.conll:1: the row has 6 tokens, at most 5 fit (see --overlong)",
     {TOK, .max_length = 5}},

    {"a.jsonl",
     "{\"question\": \"a\", \"answers\": []}",
     "a.jsonl:1: \"context\" is missing; the row has question, answers (map other names with "
     "--map)",
     {QA}},
    {"a.jsonl",
     "{\"question\": \"a\", \"context\": \"b\"}",
     "a.jsonl:1: \"answers\" is missing or not a list; the row has question, context (map other "
     "names with --map)",
     {QA}},
    {"a.jsonl",
     "{\"q\": \"a\"}",
     "a.jsonl:1: \"question\" is missing, and \"context\" and \"answers\" too; the row has q (map "
     "other names with --map)",
     {QA}},
    {"a.jsonl",
     "{\"q\": \"a\"}",
     "a.jsonl:1: the row needs text, or text and text_pair, and label; the row has q (map other "
     "names with "
     "--map)",
     {SEQ}},
    {"a.json", "[[\"a\", 1]]", "a.json:1: want a JSON object", {SEQ}},
    {"a.jsonl",
     "{\"question\": \"a\", \"context\": \"b\", \"answers\": {\"text\": \"b\"}}",
     "a.jsonl:1: \"answers\" is missing or not a list; the row has question, context, answers.text "
     "(map other names with --map)",
     {QA}},
    {"a.jsonl",
     "{\"question\": \"a\", \"context\": \"\xC3\xA9\xC3\xA9\", \"answers\": [{\"text\": \"b\", "
     "\"start\": 1}]}",
     "a.jsonl:1: answer \"b\" is not at offset 1 of its context, which has \"\" there",
     {QA}},
    {"a.jsonl",
     "{\"question\": \"a\", \"context\": \"abc\", \"answers\": [{\"text\": \"b\", \"start\": 2}]}",
     "a.jsonl:1: answer \"b\" is not at offset 2 of its context, which has \"c\" there",
     {QA}},
    {"a.jsonl",
     "{\"question\": \"a\", \"context\": \"abc\", \"answers\": [{\"text\": \"b\", \"start\": 9}]}",
     "a.jsonl:1: answer \"b\" is not at offset 9 of its context, which has \"\" there",
     {QA}},
    {"a.jsonl",
     "{\"question\": \"a\", \"context\": \"abc\", \"answers\": [{\"text\": \"b\", \"start\": "
     "\"1b\"}]}",
     "a.jsonl:1: answers[0]: the start is not a character offset",
     {QA}},
    {"a.jsonl",
     "{\"question\": \"a\", \"context\": \"abc\", \"answers\": [{\"text\": \"b\", \"start\": "
     "1.5}]}",
     "a.jsonl:1: answers[0]: the start is not a character offset",
     {QA}},
    {"a.jsonl",
     "{\"question\": \"a\", \"context\": \"abc\", \"answers\": [\"d\"]}",
     "a.jsonl:1: answer \"d\" is not in its context",
     {QA}},
    {"a.json",
     "{\"data\": [{\"paragraphs\": [{\"context\": \"abc\", \"qas\": [\n{\"id\": \"q7\", "
     "\"question\": "
     "\"a\", \"answers\": [{\"text\": \"c\", \"answer_start\": 1}]}]}]}]}",
     "a.json:2: question q7: answer \"c\" is not at offset 1 of its context, which has \"b\" there",
     {QA}},
    {"a.jsonl",
     "{\"question\": \"abcdef\", \"context\": \"a\", \"answers\": [\"a\"]}",
     "a.jsonl:1: the row has 6 tokens, at most 3 fit (see --overlong)",
     {QA, .max_length = 9}},

    {"a.jsonl",
     "{\"text\": \"a\", \"choices\": [\"b\", \"c\"], \"label\": 2}",
     "a.jsonl:1: label 2 is not one of the row's 2 choices, counted from 0 or A",
     {CHOICE}},
    {"a.jsonl",
     "{\"question\": \"a\", \"choices\": {\"text\": [\"b\", \"c\"], \"label\": [\"A\", \"B\"]}, "
     "\"answerKey\": \"1\"}",
     "a.jsonl:1: label 1 is not one of the row's 2 choices, A, ...",
     {CHOICE}},
    {"a.jsonl",
     "{\"text\": \"a\", \"choices\": [\"b\"], \"label\": 0}",
     "a.jsonl:1: the row needs a list of two or more choices",
     {CHOICE}},
    {"a.jsonl",
     "{\"text\": \"a\", \"choices\": [\"b\", 1], \"label\": 0}",
     "a.jsonl:1: choice 1 is not a "
     "string",
     {CHOICE}},
    {"a.jsonl",
     "{\"text\": \"a\", \"label\": 0}",
     "a.jsonl:1: the row needs text and choices; the row has text, label (map other names with "
     "--map)",
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

#define ck_ok(call) ck_assert_int_eq(call, KVF_OK)

/* `item` n times, separated by commas, between `before` and `after`. */
static char *repeated(const char *before, const char *item, int n, const char *after)
{
    kvf__buf text = {0};
    ck_ok(kvf__buf_printf(ctx, &text, "%s%s", before, item));
    for (int i = 1; i < n; i++)
        ck_ok(kvf__buf_printf(ctx, &text, ",%s", item));
    ck_ok(kvf__buf_printf(ctx, &text, "%s", after));
    return text.data;
}

static bool always(void *user)
{
    return user != NULL;
}

START_TEST(rows_have_limits)
{
    const struct {
        char *text;
        kvf__dataset_options options;
        const char *line;
    } cases[] = {
        {repeated("{\"text\":\"a\",\"label\":0,\"choices\":[", "\"b\"", 1025, "]}"),
         {CHOICE},
         "a.jsonl:1: 1025 choices, want at most 1024"},
        {repeated("{\"question\":\"a\",\"context\":\"b\",\"answers\":[", "\"b\"", 1025, "]}"),
         {QA},
         "a.jsonl:1: 1025 answers, want at most 1024"},
        {repeated("{\"text\":\"a\",\"label\":0,\"choices\":[", "\"b\"", 1024, "]}"),
         {CHOICE, .most_tokens = 5119},
         "a.jsonl:1: the rows so far have more than 5119 tokens"},
        {repeated("{\"text\":\"a\",\"label\":0,\"choices\":[", "\"b\"", 1024, "]}"),
         {CHOICE, .most_grouped = 5119},
         "a.jsonl:1: the choices or windows of the row have 5120 tokens in total, want at most "
         "5119, because training computes them together: shorten or split the row"},
    };
    char *letters = malloc((65 << 20) + 1);
    memset(letters, 'a', 65 << 20);
    letters[65 << 20] = 0;
    kvf__dataset set = {0};
    ck_assert_int_eq(load("a.tsv", letters, (kvf__dataset_options){SEQ}, &set), KVF_EDATA);
    ck_assert_str_eq(kvf_ctx_error(ctx), "a.tsv:1: the row has 65 MiB, want at most 64");
    free(letters);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ck_assert_int_eq(load("a.jsonl", cases[i].text, cases[i].options, &set), KVF_EDATA);
        ck_assert_str_eq(kvf_ctx_error(ctx), cases[i].line);
    }
    ck_assert_int_eq(
        load("a.jsonl", cases[3].text, (kvf__dataset_options){CHOICE, .most_grouped = 5120}, &set),
        KVF_OK);
    kvf__dataset_done(&set);
    kvf__ctx_stop_when(ctx, always, ctx);
    ck_assert_int_eq(load("a.jsonl", cases[2].text, (kvf__dataset_options){CHOICE}, &set),
                     KVF_ESTOPPED);
    kvf__ctx_stop_when(ctx, NULL, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        kvf__free(cases[i].text);
}
END_TEST

/* Time must not be quadratic in the length; each case once took minutes. */
START_TEST(long_rows_take_linear_time)
{
    enum { N = 400000 };
    char *text = malloc(N + 1);
    memset(text, 'a', N);
    strcpy(text + N - 1, "b");
    kvf__buf qa = {0}, choice = {0};
    ck_ok(kvf__buf_printf(ctx, &qa, "{\"question\":\"a\",\"context\":\"%s\",\"answers\":[", text));
    ck_ok(kvf__buf_printf(ctx, &choice, "{\"text\":\"%s\",\"label\":0,\"choices\":[", text));
    for (int i = 0; i < 1000; i++) {
        ck_ok(kvf__buf_printf(ctx, &qa, "%s{\"text\":\"b\",\"answer_start\":%d}", i ? "," : "",
                              N - 1));
        ck_ok(kvf__buf_printf(ctx, &choice, "%s\"b\"", i ? "," : ""));
    }
    ck_ok(kvf__buf_printf(ctx, &qa, "]}\n"));
    ck_ok(kvf__buf_printf(ctx, &choice, "]}\n"));
    kvf__dataset set = loaded("a.jsonl", qa.data, (kvf__dataset_options){QA});
    ck_assert_int_eq(set.spans[2 * (set.n - 1)], set.spans[2 * (set.n - 1) + 1]);
    ck_assert_int_eq(set.ids[set.start[set.n - 1] + set.spans[2 * (set.n - 1)]], 1);
    kvf__dataset_done(&set);
    set = loaded("a.jsonl", choice.data,
                 (kvf__dataset_options){CHOICE, .overlong = KVF_OVERLONG_TRUNCATE});
    ck_assert_int_eq(set.n, 1000);
    kvf__dataset_done(&set);
    kvf__buf_done(&qa);
    kvf__buf_done(&choice);
    free(text);
}
END_TEST

/* An overlong row loses tokens of its fields, the longer first, and none of the template's own. */
START_TEST(rows_in_a_template)
{
    static const char ROW[] = "{\"text\": \"abcdef\", \"text_pair\": \"gg\", \"label\": 1}";
    kvf__row_template pattern;
    ck_ok(kvf__row_template_init(ctx, "{text_pair}h{text}", 0, &pattern));
    kvf__dataset_options options = {SEQ, .render.pattern = &pattern};
    kvf__dataset set = loaded("a.jsonl", ROW, options);
    ck_assert_str_eq(rows_text(&set), "10:0 6 6 7 0 1 2 3 4 5 11");
    kvf__dataset_done(&set);
    set = loaded("a.jsonl", "{\"text\": \"ab\", \"label\": 1}", options);
    ck_assert_str_eq(rows_text(&set), "10:0 7 0 1 11"); /* no second text */
    kvf__dataset_done(&set);
    options.overlong = KVF_OVERLONG_TRUNCATE;
    options.max_length = 7;
    set = loaded("a.jsonl", ROW, options);
    ck_assert_str_eq(rows_text(&set), "10:0 6 6 7 0 1 11");
    ck_assert_int_eq(set.truncated, 1);
    kvf__dataset_done(&set);
    options.max_length = 3;
    ck_assert_int_eq(load("a.jsonl", ROW, options, &set), KVF_EDATA);
    ck_assert_str_eq(kvf_ctx_error(ctx), "a.jsonl:1: a row of 3 tokens has no room for text");
    options.overlong = KVF_OVERLONG_SKIP;
    ck_assert_int_eq(load("a.jsonl", ROW, options, &set), KVF_EDATA);
    ck_assert_str_eq(kvf_ctx_error(ctx),
                     "a.jsonl: no rows fit (all were longer than --max-length)");
    kvf__row_template_done(&pattern);
}
END_TEST

START_TEST(given_labels_keep_their_order)
{
    static char *const NAMES[] = {"pos", "neg"};
    const kvf__label_set given = {.n = 2, .names = (char **)NAMES};
    kvf__dataset set = loaded("a.tsv", "text\tlabel\na\tneg\nb\t-1\n",
                              (kvf__dataset_options){SEQ, .label_set = &given, .unlabeled = true});
    ck_assert_str_eq(rows_text(&set),
                     "10:1 0 11 | 10:-1 1 11"); /* -1: GLUE's test sets have no label */
    ck_assert_str_eq(names_of(&set), "pos neg");
    kvf__dataset_done(&set);
}
END_TEST

/* Runs per task: the n-th allocation fails, n = 0, 1, ..., until none fails. */
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
         {TOK, .max_length = 4, .windows = true, .unlabeled = true, .overlong = KVF_OVERLONG_SKIP}},
    };
    kvf__dataset set = {0};
    kvf_status st;
    int64_t n = 0;
    do {
        kvf__ctx_fail_allocation(ctx, n++);
        st = load(FILES[_i].file, FILES[_i].text, FILES[_i].options, &set);
        ck_assert(st == KVF_OK || st == KVF_ENOMEM);
    } while (st);
    kvf__ctx_fail_allocation(ctx, -1);
    ck_assert_int_gt(n, 10);
    kvf__dataset_done(&set);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rows");
    TCase *core = tcase_create("core"), *errors = tcase_create("errors");
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_checked_fixture(errors, setup, teardown);
    tcase_add_loop_test(core, rows_of_tasks, 0, (int)(sizeof ROWS / sizeof ROWS[0]));
    tcase_add_test(core, rows_in_a_template);
    tcase_add_test(core, given_labels_keep_their_order);
    tcase_add_test(core, rows_have_limits);
    tcase_add_test(core, long_rows_take_linear_time);
    tcase_add_loop_test(errors, bad_rows_get_one_line, 0, (int)(sizeof BAD / sizeof BAD[0]));
    tcase_add_loop_test(errors, every_allocation_may_fail, 0, 5);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, errors);
    return ck_main(suite);
}
