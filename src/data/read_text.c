/* Reads plain text. For language models (--split-text N) the text is tokenised as a whole, with EOS
 * at the end, and cut into rows of N tokens. The last row may be shorter. A row is like one of
 * JSONL with input_ids and labels: BOS first if the tokenizer adds one, and loss on every other
 * token. For other tasks each line is a row with a field "text"; blank lines are skipped. */
#include "file_rows.h"
#include "json_pack.h"

#include <string.h>

/* Returns n ids as a list, with `first` before them if wanted. */
static kvf_json *id_list(int32_t first, bool wanted, const int32_t *ids, size_t n)
{
    kvf_json *list = kvf_json_array();
    if (wanted) kvf_json_add(list, kvf_json_new_int(first));
    for (size_t i = 0; i < n; i++)
        kvf_json_add(list, kvf_json_new_int(ids[i]));
    return list;
}

static kvf_status put_row(const kvf__file *file, const int32_t *ids, size_t n, int64_t line)
{
    const kvf__tokenizer *tokenizer = file->options->render.tokenizer;
    bool bos = kvf__adds_bos(tokenizer);
    kvf_json *fields = kvf__json_pack("{s:o, s:o}", "input_ids",
                                      id_list(kvf__token_bos(tokenizer), bos, ids, n), "labels",
                                      id_list(KVF__NO_LABEL, bos, ids, n));
    return kvf__give_row(file, line, fields, fields != NULL);
}

/* Passes on rows of --split-text tokens. offsets: bytes of each token in the text, for line
 * numbers. */
static kvf_status put_rows(const kvf__file *file, const kvf__ids *ids, const kvf__ids *offsets)
{
    size_t each = (size_t)file->options->split_text -
                  kvf__adds_bos(file->options->render.tokenizer);
    int64_t line = 1;
    size_t at = 0;
    for (size_t i = 0; i < ids->n; i += each) {
        for (; 2 * i < offsets->n && at < (size_t)offsets->data[2 * i]; at++)
            line += file->text[at] == '\n';
        KVF_TRY(put_row(file, ids->data + i, ids->n - i < each ? ids->n - i : each, line));
    }
    return KVF_OK;
}

static kvf_status read_lines(const kvf__file *file)
{
    const char *line = NULL;
    size_t at = 0, n = 0;
    for (int64_t i = 1; kvf__next_line(file->text, file->bytes, &at, &line, &n); i++) {
        if (kvf__is_blank_line(line, n)) continue;
        KVF_TRY(kvf__check_row_bytes(file, i, n));
        kvf_json *fields = kvf__json_pack("{s:o}", "text", kvf_json_new_strn(line, n));
        KVF_TRY(kvf__give_row(file, i, fields, fields != NULL));
    }
    return KVF_OK;
}

kvf_status kvf__read_text(const kvf__file *file)
{
    const kvf__dataset_options *o = file->options;
    kvf__ids ids = {0}, offsets = {0};
    if (o->task != KVF__TASK_LM && o->split_text)
        return kvf__fail(file->ctx, KVF_EUSAGE, "--split-text is for task lm, not %s",
                         kvf__task_name(o->task));
    if (o->task != KVF__TASK_LM) return read_lines(file);
    if (o->split_text < 2)
        return kvf__fail(
            file->ctx, KVF_EUSAGE,
            "%s: plain text needs --split-text N, the number of tokens in a row (2 or more)",
            file->path);
    kvf_status st = kvf__encode_offsets(file->ctx, o->render.tokenizer, file->text, file->bytes,
                                        &ids, &offsets);
    int32_t eos = kvf__token_eos(o->render.tokenizer);
    if (!st && eos >= 0 && ids.n && ids.data[ids.n - 1] != eos)
        st = kvf__ids_add(file->ctx, &ids, eos);
    if (!st) st = put_rows(file, &ids, &offsets);
    kvf__ids_done(&ids);
    kvf__ids_done(&offsets);
    return st;
}
