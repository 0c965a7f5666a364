/* A JSONL file as one packed list of ids and labels. Everything is rendered once, before training:
 * a bad row is found with its line number before the first step, and steps touch integers only. */
#include "data_int.h"

#include <string.h>

kvf_status kvf__overlong_parse(kvf_ctx *ctx, const char *name, kvf__overlong *out)
{
    static const char *const NAMES[] = {"stop", "truncate", "skip"};
    for (int i = 0; i < 3; i++)
        if (!strcmp(name, NAMES[i])) {
            *out = (kvf__overlong)i;
            return KVF_OK;
        }
    return kvf__fail(ctx, KVF_EUSAGE, "overlong \"%s\" is not known; known: stop, truncate, skip",
                     name);
}

typedef struct loader {
    kvf_ctx *ctx;
    const char *path;
    const kvf__dataset_options *options;
    kvf__ids ids, labels;
    int64_t *start;
    size_t cap;
    kvf__dataset set;
} loader;

static kvf_status mark_row(loader *load)
{
    if ((size_t)load->set.n + 2 > load->cap) {
        size_t cap = load->cap ? 2 * load->cap : 1024;
        KVF_TRY(kvf__grow(load->ctx, &load->start, load->cap * sizeof *load->start,
                          cap * sizeof *load->start));
        if (!load->cap) load->start[0] = 0;
        load->cap = cap;
    }
    load->start[++load->set.n] = (int64_t)load->ids.n;
    return KVF_OK;
}

static void drop_row(loader *load, size_t from)
{
    load->ids.n = load->labels.n = from;
    load->set.skipped++;
}

static kvf_status check_ids(loader *load, const char *where, size_t from)
{
    int32_t vocab = load->options->vocab;
    for (size_t i = from; i < load->ids.n; i++) {
        int32_t id = load->ids.data[i], label = load->labels.data[i];
        if (id < 0 || id >= vocab)
            return kvf__fail(load->ctx, KVF_EDATA, "%s: id %d is outside the vocabulary of %d",
                             where, (int)id, (int)vocab);
        if (label != KVF__NO_LABEL && (label < 0 || label >= vocab))
            return kvf__fail(load->ctx, KVF_EDATA, "%s: label %d is outside the vocabulary of %d",
                             where, (int)label, (int)vocab);
    }
    return KVF_OK;
}

static kvf_status add_row(loader *load, const char *where, const kvf_json *row)
{
    const kvf__dataset_options *o = load->options;
    size_t from = load->ids.n;
    KVF_TRY(kvf__render_row(load->ctx, &o->render, where, row, o->prompt_only, &load->ids,
                            &load->labels));
    KVF_TRY(check_ids(load, where, from));
    int64_t length = (int64_t)(load->ids.n - from);
    if (length == 0) return kvf__fail(load->ctx, KVF_EDATA, "%s: the row has no tokens", where);
    if (length > o->max_length) {
        if (o->overlong == KVF__OVERLONG_STOP)
            return kvf__fail(load->ctx, KVF_EDATA,
                             "%s: the row has %lld tokens, at most %lld fit (see --overlong)",
                             where, (long long)length, (long long)o->max_length);
        if (o->overlong == KVF__OVERLONG_SKIP) {
            drop_row(load, from);
            return KVF_OK;
        }
        load->ids.n = load->labels.n = from + (size_t)o->max_length;
        load->set.truncated++;
    }
    for (size_t i = from + 1; i < load->labels.n; i++)
        load->set.n_labels += load->labels.data[i] != KVF__NO_LABEL;
    return mark_row(load);
}

static bool blank(const char *text, size_t n)
{
    return strspn(text, " \t\r") >= n;
}

static kvf_status read_lines(loader *load, const char *text, size_t bytes)
{
    char where[512];
    int64_t line = 0;
    for (const char *at = text, *end = text + bytes; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t n = (size_t)((stop ? stop : end) - at);
        snprintf(where, sizeof where, "%s:%lld", load->path, (long long)++line);
        if (!blank(at, n)) {
            kvf_json *row = NULL;
            KVF_TRY(kvf_json_parse(load->ctx, where, at, n, &row));
            kvf_status st = add_row(load, where, row);
            kvf_json_free(row);
            if (st) return st;
        }
        at += n + 1;
    }
    return KVF_OK;
}

static kvf_status hash_text(kvf_ctx *ctx, const void *text, size_t n, char hex[33])
{
    kvf__hash *hash = NULL;
    KVF_TRY(kvf__hash_create(ctx, &hash));
    kvf__hash_add(hash, text, n);
    kvf__hash_hex(hash, hex);
    kvf__hash_free(hash);
    return KVF_OK;
}

static kvf_status check_set(const loader *load)
{
    if (!load->set.n)
        return kvf__fail(load->ctx, KVF_EDATA, "%s: no rows%s", load->path,
                         load->set.skipped ? " fit (all were longer than --max-length)" : "");
    if (!load->set.n_labels && !load->options->prompt_only)
        return kvf__fail(load->ctx, KVF_EDATA, "%s: no token of any row carries loss", load->path);
    return KVF_OK;
}

kvf_status kvf__dataset_load(kvf_ctx *ctx, const char *path, const kvf__dataset_options *options,
                             kvf__dataset *out)
{
    loader load = {.ctx = ctx, .path = path, .options = options};
    kvf__buf text = {0};
    kvf_status st;

    st = kvf__read_file(ctx, path, (size_t)1 << 40, &text);
    if (st) goto out;
    st = hash_text(ctx, text.data, text.n, load.set.hash);
    if (st) goto out;
    st = read_lines(&load, text.data, text.n);
    if (st) goto out;
    st = check_set(&load);
    if (st) goto out;
    *out = load.set;
    out->start = load.start;
    out->ids = load.ids.data;
    out->labels = load.labels.data;
    load.start = NULL;
    load.ids = load.labels = (kvf__ids){0};
out:
    kvf__buf_done(&text);
    kvf__ids_done(&load.ids);
    kvf__ids_done(&load.labels);
    kvf__free(load.start);
    return st;
}

void kvf__dataset_done(kvf__dataset *dataset)
{
    kvf__free(dataset->start);
    kvf__free(dataset->ids);
    kvf__free(dataset->labels);
    *dataset = (kvf__dataset){0};
}

int64_t kvf__example_length(const kvf__dataset *dataset, int64_t example)
{
    return dataset->start[example + 1] - dataset->start[example];
}

int64_t kvf__example_labels(const kvf__dataset *dataset, int64_t example)
{
    int64_t n = 0;
    for (int64_t i = dataset->start[example] + 1; i < dataset->start[example + 1]; i++)
        n += dataset->labels[i] != KVF__NO_LABEL;
    return n;
}
