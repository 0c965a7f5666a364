/* Data files. Built once for each format (FUZZ_FORMAT). The first byte of the input selects the
 * task and the row options; the remaining bytes are the file. Rows become ids of a tokenizer of 30
 * words. */
#include "data_int.h"
#include "fuzz.h"
#include "tok_json.h"

#include <stdlib.h>
#include <string.h>

static const char TOKENIZER[] =
    "{\"version\":\"1.0\",\"added_tokens\":[{\"id\":0,\"content\":\"[CLS]\",\"special\":true},"
    "{\"id\":1,\"content\":\"[SEP]\",\"special\":true}],"
    "\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":true,\"handle_chinese_chars\":true,"
    "\"strip_accents\":null,\"lowercase\":true},\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},"
    "\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"[SEP]\",1],\"cls\":[\"[CLS]\",0]},"
    "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"continuing_subword_prefix\":\"##"
    "\","
    "\"max_input_chars_per_word\":100,\"vocab\":{\"[CLS]\":0,\"[SEP]\":1,\"[UNK]\":2,\"a\":3,"
    "\"b\":4,\"c\":5,\"##a\":6,\"##b\":7,\"the\":8,\"cat\":9,\".\":10,\",\":11,\"1\":12,\"##1\":13,"
    "\"s\":14,\"##s\":15}}}";

#ifndef FUZZ_SPLIT /* tokens of a row of plain text */
#define FUZZ_SPLIT 0
#endif

static const kvf__task TASKS[] = {KVF__TASK_LM, KVF__TASK_SEQ_CLS, KVF__TASK_TOKEN_CLS,
                                  KVF__TASK_QA, KVF__TASK_CHOICE};

static const kvf__tokenizer *tokenizer(void)
{
    static kvf__tokenizer *made;
    if (!made &&
        tokenizer_from_json(fuzz_context(), "t", TOKENIZER, sizeof TOKENIZER - 1, NULL, 0, &made))
        abort();
    return made;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const uint8_t choice = n ? data[0] : 0;
    const kvf__chat chat = {.kind = choice & 64 ? KVF__CHAT_CHATML : KVF__CHAT_NONE};
    kvf__dataset set = {0};
    const kvf__dataset_options options = {
        .render = {.tokenizer = tokenizer(), .chat = &chat},
        .max_length = 24,
        .overlong = (kvf_overlong)(1 + choice / 8 % 4),
        .vocab = 16,
        .format = FUZZ_FORMAT,
        .no_header = choice & 32,
        .columns = choice & 32 && choice & 128 ? "text,label" : NULL,
        .task = TASKS[(choice & 7) % 5],
        .causal = choice & 64,
        .regression = (choice & 7) == 6,
        .unlabeled = choice & 128,
        .doc_stride = 4,
        .references = choice & 32,
        .split_text = FUZZ_SPLIT,
        .limit = choice & 32 ? 3 : 0,
    };
    kvf__dataset held = {0};
    if (!kvf__dataset_load(fuzz_context(), fuzz_file(data + (n > 0), n - (n > 0)), &options,
                           &set)) {
        fuzz_touch(set.ids, sizeof *set.ids * (size_t)set.start[set.n]);
        if (!kvf__dataset_split(fuzz_context(), "x", &set, 0.3, 1, &held))
            fuzz_touch(held.ids, sizeof *held.ids * (size_t)held.start[held.n]);
    }
    kvf__dataset_done(&held);
    kvf__dataset_done(&set);
    return 0;
}
