/* Files of every format as rows of fields: accepted contents, recognition of the format, and the
 * error line of a bad file. Needs no tokenizer. */
#include "ck.h"
#include "loader.h"

#include <string.h>

static kvf_ctx *ctx;

static void setup(void)
{
    ck_assert_int_eq(kvf_ctx_create(NULL, &ctx), KVF_OK);
}

static void teardown(void)
{
    kvf_ctx_free(ctx);
}

/* Appends "LINE {json}\n"; then SQuAD's outer object. */
static kvf_status note_row(void *user, const kvf__file_row *row)
{
    char *fields = kvf_json_text(row->fields, KVF_JSON_COMPACT), *outer = NULL;
    if (row->outer) outer = kvf_json_text(kvf_json_get(row->outer, "context"), KVF_JSON_COMPACT);
    kvf_status st = kvf__buf_printf(ctx, user, "%d %s%s%s\n", (int)row->line, fields,
                                    outer ? " in " : "", outer ? outer : "");
    kvf_json_text_free(fields);
    kvf_json_text_free(outer);
    return st;
}

static kvf_status read_bytes(const char *path, const char *text, size_t bytes,
                             const kvf__dataset_options *options, kvf__buf *out)
{
    kvf__file file = {.ctx = ctx,
                      .path = path,
                      .text = text,
                      .bytes = bytes,
                      .options = options,
                      .row = note_row,
                      .user = out};
    ck_assert_int_eq(kvf__buf_add(ctx, out, "", 0), KVF_OK);
    return kvf__read_rows(&file);
}

typedef struct sample {
    const char *path, *text, *rows; /* rows: or the line of the error */
    kvf__dataset_options options;
} sample;

#define LM  .task = KVF__TASK_LM
#define SEQ .task = KVF__TASK_SEQ_CLS
#define TOK .task = KVF__TASK_TOKEN_CLS

static const sample GOOD[] = {
    {"a.jsonl", "{\"a\": 1}\n\n{\"b\": [2]}", "1 {\"a\":1}\n3 {\"b\":[2]}\n", {LM}},
    {"a",
     "\xEF\xBB\xBF{\"a\": 1}\r\n",
     "1 {\"a\":1}\n",
     {LM}}, /* mark, CRLF, recognised by content */
    {"a.tsv",
     "text\tlabel\nx y\t1\n\nz\t0",
     "2 {\"text\":\"x y\",\"label\":\"1\"}\n4 "
     "{\"text\":\"z\",\"label\":\"0\"}\n",
     {SEQ}},
    {"a.tsv",
     "say \"hi\"\t1\r\n\"oh\t0\r\n",
     "1 {\"text\":\"say \\\"hi\\\"\",\"label\":\"1\"}\n2 "
     "{\"text\":\"\\\"oh\",\"label\":\"0\"}\n",
     {SEQ}}, /* no header: the first line ends in a number */
    {"a.tsv",
     "good film\tpos\nbad\tneg\nfine\tpos\n",
     "1 {\"text\":\"good film\",\"label\":\"pos\"}\n2 "
     "{\"text\":\"bad\",\"label\":\"neg\"}\n3 {\"text\":\"fine\",\"label\":\"pos\"}\n",
     {SEQ}},
    {"a.csv",
     "text,label\n\"a, \"\"b\"\"\nc\",1\r\nd,\n",
     "2 {\"text\":\"a, \\\"b\\\"\\nc\",\"label\":"
     "\"1\"}\n4 {\"text\":\"d\",\"label\":\"\"}\n",
     {SEQ}},
    {"a.csv",
     "text\nx\n\"\"\ny",
     "2 {\"text\":\"x\"}\n3 {\"text\":\"\"}\n4 {\"text\":\"y\"}\n",
     {LM}},
    {"a.csv",
     "p,q\n1,2\n",
     "1 {\"prompt\":\"p\",\"completion\":\"q\"}\n2 "
     "{\"prompt\":\"1\",\"completion\":\"2\"}\n",
     {LM, .no_header = true}},
    {"a.csv",
     "p,q,r\n1,2,3\n",
     "2 {\"text\":\"1\",\"label\":\"3\"}\n",
     {SEQ, .columns = "text,-,label"}},
    {"a.txt",
     "p\tq\n",
     "1 {\"label\":\"p\",\"text\":\"q\"}\n",
     {SEQ, .no_header = true, .columns = "label,text"}},
    {"a.annotated",
     "It\tO\n#Rome\tB-loc\n\t\n#\tO\n",
     "1 {\"tokens\":[\"It\",\"#Rome\"],\"tags\":[\"O\","
     "\"B-loc\"]}\n4 {\"tokens\":[\"#\"],\"tags\":[\"O\"]}\n",
     {TOK}},
    {"a.txt",
     "-DOCSTART- -X- O O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\r\n\r\n-DOCSTART- -X- O O\n"
     "a DT I-NP O",
     "3 {\"tokens\":[\"EU\",\"rejects\"],\"tags\":[\"B-ORG\",\"O\"]}\n7 "
     "{\"tokens\":[\"a\"],\"tags\":[\"O\"]}\n",
     {TOK}},
    {"a.conll",
     "# text = go\n# id 7 x y\ngo _ _ VB\n# a b NN\n",
     "3 {\"tokens\":[\"go\",\"#\"],\"tags\":"
     "[\"VB\",\"NN\"]}\n",
     {TOK}}, /* a comment comes only before a sentence */
    {"a.conll",
     "one\ntwo\n\nthree\n",
     "1 {\"tokens\":[\"one\",\"two\"]}\n4 {\"tokens\":[\"three\"]}\n",
     {TOK, .unlabeled = true}},
    {"a.conll",
     "San Jos\xC3\xA9\tB-loc\n",
     "1 {\"tokens\":[\"San Jos\xC3\xA9\"],\"tags\":[\"B-loc\"]}\n",
     {TOK}},
    {"a.json",
     "{\"version\": \"1.1\", \"data\": [{\"title\": \"t\", \"paragraphs\": [\n{\"context\": "
     "\"c1\", "
     "\"qas\": [\n{\"id\": \"x\", \"question\": \"q\"},\n{\"question\": \"r\", \"id\": "
     "\"y\"}]}]}]}",
     "3 {\"id\":\"x\",\"question\":\"q\"} in \"c1\"\n4 {\"question\":\"r\",\"id\":\"y\"} in "
     "\"c1\"\n",
     {LM}},
    {"a", "{\"version\": \"2.0\",\n \"data\" : [ ]}", "", {LM}},
    {"a", "{\"data\": [1]}\n", "1 {\"data\":[1]}\n", {LM}},
    /* the file name's ending overrides recognition by content */
    {"a.jsonl",
     "{\"paragraphs\": [1], \"prompt\": \"a\"}\n{\"data\": [{\"paragraphs\": 2}]}\n",
     "1 {\"paragraphs\":[1],\"prompt\":\"a\"}\n2 {\"data\":[{\"paragraphs\":2}]}\n",
     {LM}},
    {"a.json",
     "{\"id\": \"\\\"data\", \"a\": {\"data\": [{\"paragraphs\": 1}]}}\n{\"paragraphs\": []}\n",
     "1 {\"id\":\"\\\"data\",\"a\":{\"data\":[{\"paragraphs\":1}]}}\n2 {\"paragraphs\":[]}\n",
     {LM}},
    {"a.tsv",
     "good\tO\nbad\tB-x\nfine\tO\n",
     "1 {\"text\":\"good\",\"label\":\"O\"}\n2 {\"text\":\"bad\",\"label\":\"B-x\"}\n3 "
     "{\"text\":\"fine\",\"label\":\"O\"}\n",
     {SEQ}},
    {"a.tsv",
     "go\tO\n\non\tB-x\n",
     "1 {\"tokens\":[\"go\"],\"tags\":[\"O\"]}\n3 "
     "{\"tokens\":[\"on\"],\"tags\":[\"B-x\"]}\n",
     {TOK}},
    {"a.tsv", "tokens\ttags\na b\tO O\n", "2 {\"tokens\":\"a b\",\"tags\":\"O O\"}\n", {TOK}},
    {"a.csv.gz", "{text,label\n\"{\",1\n", "2 {\"{text\":\"{\",\"label\":\"1\"}\n", {SEQ}},
    {"a.conll",
     "{ O\n\"x\" O\n",
     "1 {\"tokens\":[\"{\",\"\\\"x\\\"\"],\"tags\":[\"O\",\"O\"]}\n",
     {TOK}},
    /* JSON printed over several lines, or without separators between rows */
    {"a.jsonl",
     "{\n  \"a\": [\n    {\"b\": \"}\\\"\"}\n  ]\n}\n\n{\"c\": 1}",
     "1 {\"a\":[{\"b\":\"}\\\"\"}]}\n7 {\"c\":1}\n",
     {LM}},
    {"a", "{\"a\": 1}{\"b\":\n2} {}\r\n{}", "1 {\"a\":1}\n1 {\"b\":2}\n2 {}\n3 {}\n", {LM}},
    {"a.json", "{\n\"a\": 1\n}\n", "1 {\"a\":1}\n", {LM}},
    {"a.jsonl", "[\n{\n\"a\": 1\n}\n]\n", "2 {\"a\":1}\n", {LM}},
    {"a.txt", "{\"a\": 1}\n", "1 {\"a\":1}\n", {LM, .format = "superglue"}},
    {"a.txt", "{,label\n", "", {SEQ, .format = "csv"}}, /* a header and no row */
    {"a.csv", " \n\r\n", "", {LM}},
    {"a.json",
     "[\n {\"a\": [1, \"],\\\"\"]},{\n\"b\": {}}\n , {}\n]\n",
     "2 {\"a\":[1,\"],\\\"\"]}\n2 {\"b\":{}}\n4 {}\n",
     {LM}},
    {"a.jsonl", " [ ] ", "", {LM}},
    {"a.tsv", "[]", "", {LM, .format = "json"}},
    {"a.TSV.gz", "text\tlabel\nx\t1\n", "2 {\"text\":\"x\",\"label\":\"1\"}\n", {SEQ}},
    /* the separator of columns */
    {"a.csv",
     "text;label\nGood film, really;pos\n\"a;\";neg\n",
     "2 {\"text\":\"Good film, really\",\"label\":\"pos\"}\n3 "
     "{\"text\":\"a;\",\"label\":\"neg\"}\n",
     {SEQ, .delimiter = ";"}},
    {"a.csv", "sep=;\r\ntext;label\r\na,b;1\r\n", "3 {\"text\":\"a,b\",\"label\":\"1\"}\n", {SEQ}},
    {"a", "SEP=\t\ntext\tlabel\na\t1\n", "3 {\"text\":\"a\",\"label\":\"1\"}\n", {SEQ}},
    {"a.csv",
     "sep=;\ntext|label\na|1\n",
     "3 {\"text\":\"a\",\"label\":\"1\"}\n",
     {SEQ, .delimiter = "|"}},
    {"a.txt",
     "text label\na B-x\n",
     "2 {\"text\":\"a\",\"label\":\"B-x\"}\n",
     {TOK, .delimiter = " "}},
    {"a.csv",
     "text\tlabel\na\t1\n",
     "2 {\"text\":\"a\",\"label\":\"1\"}\n",
     {SEQ, .delimiter = "\\t"}},
    {"a.tsv",
     "tokens\ttags\na\tO\n",
     "2 {\"tokens\":\"a\",\"tags\":\"O\"}\n",
     {TOK, .delimiter = "\t"}},
    /* quotes as pandas writes them in TSV, and quotes that are text */
    {"a.tsv",
     "text\tlabel\n\"say \"\"hi\"\"\"\t1\n\"a\tb\"\t0\n",
     "2 {\"text\":\"say \\\"hi\\\"\",\"label\":\"1\"}\n3 {\"text\":\"a\\tb\",\"label\":\"0\"}\n",
     {SEQ}},
    {"a.tsv",
     "text\tlabel\n\"a\nb\"\t1\nc\t0\n",
     "2 {\"text\":\"a\\nb\",\"label\":\"1\"}\n4 {\"text\":\"c\",\"label\":\"0\"}\n",
     {SEQ}},
    {"a.tsv", "\"text\"\t\"label\"\n\"a\"\t\"1\"\n", "2 {\"text\":\"a\",\"label\":\"1\"}\n", {SEQ}},
    {"a.tsv",
     "text\tlabel\n\"a\"\t1\n\"b \"\"c\"\"\t0\nsay \"x\"\t1\n",
     "2 {\"text\":\"\\\"a\\\"\",\"label\":\"1\"}\n3 {\"text\":\"\\\"b "
     "\\\"\\\"c\\\"\\\"\",\"label\":\"0\"}\n4 {\"text\":\"say \\\"x\\\"\",\"label\":\"1\"}\n",
     {SEQ}},
    {"a.tsv",
     "text\tlabel\n\"a b\t1\nc d\"\t0\n",
     "2 {\"text\":\"\\\"a b\",\"label\":\"1\"}\n3 {\"text\":\"c d\\\"\",\"label\":\"0\"}\n",
     {SEQ}},
    {"a.tsv", "text\tlabel\n\"hi\"\t1\n", "2 {\"text\":\"\\\"hi\\\"\",\"label\":\"1\"}\n", {SEQ}},
    /* a counting column, per sentence or per file, with ranges and empty nodes */
    {"a.conllx",
     "1\tAnn\tNN\tB-x\n2\t3\tNN\tO\n\n1\tBo\tNN\tO\n",
     "1 {\"tokens\":[\"Ann\",\"3\"],\"tags\":[\"B-x\",\"O\"]}\n4 "
     "{\"tokens\":[\"Bo\"],\"tags\":[\"O\"]}\n",
     {TOK}},
    {"a.conllu",
     "# sent_id = 1\n1-2\tIm\t_\n1\tIn\tP\n2\tdem\tD\n2.1\te\tD\n\n1\tSo\tA\n",
     "3 {\"tokens\":[\"In\",\"dem\"],\"tags\":[\"P\",\"D\"]}\n7 "
     "{\"tokens\":[\"So\"],\"tags\":[\"A\"]}\n",
     {TOK}},
    {"a.conll",
     "0 a N O\n1 b N O\n\n2 c N O\n",
     "1 {\"tokens\":[\"a\",\"b\"],\"tags\":[\"O\",\"O\"]}\n4 "
     "{\"tokens\":[\"c\"],\"tags\":[\"O\"]}\n",
     {TOK}},
    {"a.conll",
     "1 N O\n2 N O\n7 N O\n",
     "1 {\"tokens\":[\"1\",\"2\",\"7\"],\"tags\":[\"O\",\"O\",\"O\"]}\n",
     {TOK}},
    {"a.conll", "1 O\n2 O\n", "1 {\"tokens\":[\"1\",\"2\"],\"tags\":[\"O\",\"O\"]}\n", {TOK}},
    /* white space after a tag */
    {"a.conll",
     "a\tO\t\nb\tO \nc\tB-x\xC2\xA0\n\xC2\xA0\nd\tO\r\n",
     "1 {\"tokens\":[\"a\",\"b\",\"c\"],\"tags\":[\"O\",\"O\",\"B-x\"]}\n5 "
     "{\"tokens\":[\"d\"],\"tags\":[\"O\"]}\n",
     {TOK}},
    /* headers, and columns by name */
    {"a.txt", "Token\tTag\nAnn\tB-x\n", "2 {\"tokens\":[\"Ann\"],\"tags\":[\"B-x\"]}\n", {TOK}},
    {"a.conll",
     "id form upos x\n1 go VB _\n",
     "2 {\"tokens\":[\"go\"],\"tags\":[\"VB\"]}\n",
     {TOK}},
    {"a.conll",
     "word tag\nx O\n",
     "1 {\"tokens\":[\"word\",\"x\"],\"tags\":[\"tag\",\"O\"]}\n",
     {TOK, .no_header = true}},
    {"a.conll",
     "7 go VB O _\n9 on P O _\n",
     "1 {\"tokens\":[\"go\",\"on\"],\"tags\":[\"VB\",\"P\"]}\n",
     {TOK, .columns = "-,tokens,tags,-,-"}},
    {"a.conll",
     "7 go O\n",
     "1 {\"tokens\":[\"go\"]}\n",
     {TOK, .columns = "-,word,-", .unlabeled = true}},
    /* comments */
    {"a.conll",
     "#go NN O\nx NN O\n\n# new\ny NN O\n",
     "1 {\"tokens\":[\"#go\",\"x\"],\"tags\":[\"O\",\"O\"]}\n5 "
     "{\"tokens\":[\"y\"],\"tags\":[\"O\"]}\n",
     {TOK}},
    {"a.conll",
     "x O\n\n# newdoc\ny O\n",
     "1 {\"tokens\":[\"x\"],\"tags\":[\"O\"]}\n4 "
     "{\"tokens\":[\"y\"],\"tags\":[\"O\"]}\n",
     {TOK}},
    {"a.conll", "[ O\n{ O\n", "1 {\"tokens\":[\"[\",\"{\"],\"tags\":[\"O\",\"O\"]}\n", {TOK}},
};

START_TEST(files_become_rows)
{
    const sample *s = &GOOD[_i];
    kvf__buf rows = {0};
    kvf_status st = read_bytes(s->path, s->text, strlen(s->text), &s->options, &rows);
    ck_assert_msg(st == KVF_OK, "%s", kvf_ctx_error(ctx));
    ck_assert_str_eq(rows.data, s->rows);
    kvf__buf_done(&rows);
}
END_TEST

static const sample BAD[] = {
    {"a.tsv", "text\tlabel\nx\t1\ny\n", "a.tsv:3: 1 column, want 2", {SEQ}},
    {"a.csv",
     "text,label\nx,1\n\"y\n\n,1\n",
     "a.csv:3: a quoted field that begins in this row has no "
     "closing quote",
     {SEQ}},
    {"a.csv",
     "text,label\n\"x\"y,1\n",
     "a.csv:2: text after a closing quote: a quote inside a quoted field must be doubled",
     {SEQ}},
    {"a.csv",
     "\"text\";\"label\"\nx;1\n",
     "a.csv:1: text after a closing quote: if this character separates columns, set it with "
     "--delimiter",
     {SEQ}},
    {"a.csv", "text,text\nx,1\n", "a.csv:1: two columns are named \"text\"", {SEQ}},
    {"a.csv",
     "mr,ref\nx,y\n",
     "a.csv:1: the first line has no known column name: give the names with --columns, and add "
     "--no-header if the line is a row; the row has mr, ref (map other names with --map)",
     {LM}},
    {"a.csv",
     "text;label\nx;1\n",
     "a.csv:1: the only column, \"text;label\", is not known: if ';' separates columns, set it "
     "with --delimiter",
     {SEQ}},
    {"a.csv",
     "text\tlabel\nx\t1\n",
     "a.csv:1: the only column, \"text label\", is not known: if '\\t' separates columns, set it "
     "with --delimiter",
     {SEQ}},
    {"a.csv",
     "x",
     "--delimiter \";;\": want one ASCII character other than a quote, or \\t",
     {SEQ, .delimiter = ";;"}},
    {"a.csv",
     "x",
     "--delimiter \"\"\": want one ASCII character other than a quote, or \\t",
     {SEQ, .delimiter = "\""}},
    {"a.conll",
     "a O\n",
     "--delimiter is for TSV and CSV, not CoNLL",
     {TOK, .format = "conll", .delimiter = ";"}},
    {"a.csv",
     "a,b,c\n",
     "a.csv:1: 3 columns without names: name them with --columns",
     {LM, .no_header = true}},
    {"a.conll", "a O\nb\n", "a.conll:2: 1 column, want a word and its tag", {TOK}},
    {"a.conll", "a N O\n\nb O\n", "a.conll:3: 2 columns, but the lines before have 3", {TOK}},
    {"a.conll", "\tO\n", "a.conll:1: the word is empty", {TOK}},
    {"a.conll",
     "1 x O\n",
     "a.conll:1: 3 columns, but --columns names 2",
     {TOK, .columns = "tokens,tags"}},
    {"a.conll",
     "1 x O\n",
     "--columns \"-,tokens,x\" names no column of tags: for CoNLL call the columns tokens and "
     "tags, and all others -",
     {TOK, .columns = "-,tokens,x"}},
    {"a.txt",
     "abc\n",
     "a.txt:1: cannot tell the format from name or content: set --format "
     "jsonl|tsv|csv|conll|squad, or --split-text N for plain text",
     {LM}},
    {"a.txt",
     "abc\n",
     "format \"xml\" is not known; known: auto, jsonl, json, tsv, csv, conll, squad, superglue, "
     "text",
     {LM, .format = "xml"}},
    {"a.csv", "\xFF\xFEt", "a.csv:1: the file is UTF-16, want UTF-8", {LM}},
    {"a.tsv",
     "text\tlabel\nb\xFF"
     "c\t1\n",
     "a.tsv:2: byte 2 of the line is 0xFF, want UTF-8",
     {SEQ}},
    {"a.csv",
     "text,label\nx,1\n\n\"y\nol\xE9\",1\n",
     "a.csv:5: byte 3 of the line is 0xE9, want UTF-8",
     {SEQ}},
    {"a.conll", "a O\r\n\xC3 O\n", "a.conll:2: byte 1 of the line is 0xC3, want UTF-8", {TOK}},
    {"a.jsonl",
     "\xEF\xBB\xBF{\"text\": \"\xC0\x80\"}",
     "a.jsonl:1: byte 11 of the line is 0xC0, want UTF-8",
     {LM}},
    {"a.json",
     "{\"data\": [\n{\"paragraphs\": \"\xED\xA0\x80\"}]}",
     "a.json:2: byte 17 of the line is 0xED, want UTF-8",
     {LM}},
    {"a.json", "[{\"a\": 1},\n\n{\"a\" 1}]", "a.json:3: ':' expected near '1'", {LM}},
    {"a.json", "[{\"a\": 1}\n", "a.json:2: ']' expected near end of file", {LM}},
    {"a.json", "[{}] x", "a.json:1: end of file expected near 'x'", {LM}},
    {"a.json", "[{},]", "a.json:1: unexpected token near ']'", {LM}},
    {"a.json", "{}", "a.json:1: want a JSON array of rows", {LM, .format = "json"}},
    {"a.parquet",
     "PAR1",
     "a.parquet: is Parquet; convert it: python3 -c \"import pandas; "
     "pandas.read_parquet('a.parquet').to_json('a.jsonl', orient='records', lines=True)\"",
     {LM}},
    {"a.txt",
     "abc",
     "a.txt: plain text needs --split-text N, the number of tokens in a row (2 or more)",
     {LM, .format = "text"}},
    {"a.txt", "abc", "--split-text is for task lm, not seq-cls", {SEQ, .split_text = 8}},
    {"a.jsonl", "{\"a\": 1}\n{\"a\" 1}\n", "a.jsonl:2: ':' expected near '1'", {LM}},
    {"a.jsonl", "{\"a\": 1\n{\"b\": 2}\n", "a.jsonl:1: '}' expected near end of file", {LM}},
    {"a.jsonl", "{}\n{\"a\": \"x\ny\"}\n", "a.jsonl:2: premature end of input near '\"x'", {LM}},
    {"a.jsonl", "{}\n{\n\"a\": 1,\n\"b\" 2\n}\n", "a.jsonl:4: ':' expected near '2'", {LM}},
    {"a.jsonl", "{\"a\": 1},\n{\"b\": 2}\n", "a.jsonl:1: unexpected token near ','", {LM}},
    {"a.csv",
     "{\"a\": 1}\n",
     "a.csv:1: the first line has no known column name: give the names with --columns, and add "
     "--no-header if the line is a row; the row has {\"a\": 1} (map other names with --map)",
     {LM}},
    {"a.json",
     "{\"data\": [\n{\"paragraphs\": [\n{}]}]}",
     "a.json:1: a paragraph at or after this line has no \"context\"",
     {LM}},
    {"a.json",
     "{\"data\": [{\"paragraphs\": [{\"context\": \"c\"}]}]}",
     "a.json:1: a paragraph at or after this line has no list \"qas\"",
     {LM}},
    {"a.json",
     "{\"paragraphs\": []}",
     "a.json:1: the file has no list \"data\" of documents",
     {LM, .format = "squad"}},
};

START_TEST(bad_files_get_one_line)
{
    const sample *s = &BAD[_i];
    kvf__buf rows = {0};
    kvf_status st = read_bytes(s->path, s->text, strlen(s->text), &s->options, &rows);
    ck_assert_int_ne(st, KVF_OK);
    ck_assert_str_eq(kvf_ctx_error(ctx), s->rows);
    kvf__buf_done(&rows);
}
END_TEST

static const struct {
    const char *path, *text;
    size_t bytes;
    const char *rows;
    kvf__task task;
} NULS[] = {
#define TEXT(t) t, sizeof t - 1
    {"a.tsv", TEXT("text\tlabel\na\0b\t1\n"), "2 {\"text\":\"a\\u0000b\",\"label\":\"1\"}\n",
     KVF__TASK_SEQ_CLS},
    {"a.csv", TEXT("text,label\n\"\0,\",\0\n"), "2 {\"text\":\"\\u0000,\",\"label\":\"\\u0000\"}\n",
     KVF__TASK_SEQ_CLS},
    {"a.conll", TEXT("a\0 O\n\0 B-x\n"),
     "1 {\"tokens\":[\"a\\u0000\",\"\\u0000\"],\"tags\":[\"O\",\"B-x\"]}\n", KVF__TASK_TOKEN_CLS},
#undef TEXT
};

START_TEST(nul_is_text)
{
    const kvf__dataset_options options = {.task = NULS[_i].task};
    kvf__buf rows = {0};
    kvf_status st = read_bytes(NULS[_i].path, NULS[_i].text, NULS[_i].bytes, &options, &rows);
    ck_assert_msg(st == KVF_OK, "%s", kvf_ctx_error(ctx));
    ck_assert_str_eq(rows.data, NULS[_i].rows);
    kvf__buf_done(&rows);
}
END_TEST

START_TEST(a_nul_byte_is_no_name)
{
    static const char TEXT[] = "te\0xt\tlabel\na\t1\n";
    const kvf__dataset_options options = {SEQ};
    kvf__buf rows = {0};
    ck_assert_int_eq(read_bytes("a.tsv", TEXT, sizeof TEXT - 1, &options, &rows), KVF_EDATA);
    ck_assert_str_eq(kvf_ctx_error(ctx), "a.tsv:1: a NUL byte in the name of a column");
    kvf__buf_done(&rows);
}
END_TEST

/* A header under mapped names. */
START_TEST(maps_name_columns)
{
    kvf__field_map map = {0};
    kvf__buf rows = {0};
    ck_assert_int_eq(kvf__field_map_init(ctx, "prompt=mr,completion=ref", &map), KVF_OK);
    const kvf__dataset_options options = {.render = {.map = &map}};
    kvf_status st = read_bytes("a.csv", "mr,ref\nx,y\n", 11, &options, &rows);
    ck_assert_msg(st == KVF_OK, "%s", kvf_ctx_error(ctx));
    ck_assert_str_eq(rows.data, "2 {\"mr\":\"x\",\"ref\":\"y\"}\n");
    kvf__buf_done(&rows);
    kvf__field_map_done(&map);
}
END_TEST

/* 100,000 characters in one field, quoted or bare, with a doubled quote at each hundredth. */
START_TEST(long_fields)
{
    enum { N = 100000 };
    kvf__buf text = {0}, rows = {0};
    const kvf__dataset_options options = {SEQ};
    ck_assert_int_eq(kvf__buf_add(ctx, &text, "text,label\n\"", 12), KVF_OK);
    for (int i = 0; i < N; i++)
        ck_assert_int_eq(kvf__buf_add(ctx, &text, i % 100 ? "x" : "\"\"", i % 100 ? 1 : 2), KVF_OK);
    ck_assert_int_eq(kvf__buf_add(ctx, &text, "\",1\n", 4), KVF_OK);
    for (int i = 0; i < N; i++)
        ck_assert_int_eq(kvf__buf_addc(ctx, &text, 'y'), KVF_OK);
    ck_assert_int_eq(kvf__buf_add(ctx, &text, ",0", 2), KVF_OK);
    kvf_status st = read_bytes("a.csv", text.data, text.n, &options, &rows);
    ck_assert_msg(st == KVF_OK, "%s", kvf_ctx_error(ctx));
    /* 2 rows: "2 {"text":"","label":"1"}\n" around the fields, quotes escaped */
    ck_assert_uint_eq(rows.n, 2 * 26 + 2 * N + N / 100);
    kvf__buf_done(&text);
    kvf__buf_done(&rows);
}
END_TEST

/* A file cut at any byte is read or refused and gains no rows; a refusal names the file. */
START_TEST(cut_anywhere)
{
    const sample *s = &GOOD[_i];
    size_t n = strlen(s->text);
    for (size_t cut = 0; cut < n; cut++) {
        kvf__buf rows = {0};
        char *text = NULL;
        ck_assert_int_eq(kvf__strndup(ctx, s->text, cut, &text), KVF_OK);
        kvf_status st = read_bytes(s->path, text, cut, &s->options, &rows);
        ck_assert_msg(!st || !strncmp(kvf_ctx_error(ctx), s->path, strlen(s->path)),
                      "cut at %zu: %s", cut, kvf_ctx_error(ctx));
        kvf__buf_done(&rows);
        kvf__free(text);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("formats");
    TCase *core = tcase_create("core"), *limits = tcase_create("limits"),
          *errors = tcase_create("errors");
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_checked_fixture(limits, setup, teardown);
    tcase_add_checked_fixture(errors, setup, teardown);
    tcase_add_loop_test(core, files_become_rows, 0, (int)(sizeof GOOD / sizeof GOOD[0]));
    tcase_add_test(core, maps_name_columns);
    tcase_add_test(limits, long_fields);
    tcase_add_loop_test(limits, cut_anywhere, 0, (int)(sizeof GOOD / sizeof GOOD[0]));
    tcase_add_loop_test(errors, bad_files_get_one_line, 0, (int)(sizeof BAD / sizeof BAD[0]));
    tcase_add_loop_test(core, nul_is_text, 0, (int)(sizeof NULS / sizeof NULS[0]));
    tcase_add_test(errors, a_nul_byte_is_no_name);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, limits);
    suite_add_tcase(suite, errors);
    return ck_main(suite);
}
