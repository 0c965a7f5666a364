/* Loads a data file once for several runs on one base. Rows depend on the file and on the options
 * for reading and rendering it, which form a cache key. They depend on --max-length only if it
 * truncated or skipped rows, or if the task cuts texts by it (windows of qa). */
#include "hash.h"
#include "train_rows.h"

#include <string.h>

typedef struct known_set {
    char key[33];
    int64_t max_length; /* --max-length of the load */
    int64_t longest;    /* longest row; max_length if another value would change the rows */
    kvf__dataset set;
} known_set;

struct kvf__reads {
    size_t n;
    known_set *item; /* [n] owned */
};

kvf_status kvf__reads_create(kvf_ctx *ctx, kvf__reads **out)
{
    return kvf__alloc(ctx, sizeof **out, out);
}

void kvf__reads_free(kvf__reads *reads)
{
    for (size_t i = 0; reads && i < reads->n; i++)
        kvf__dataset_done(&reads->item[i].set);
    if (reads) kvf__free(reads->item);
    kvf__free(reads);
}

static void add_text(kvf__hash *hash, const char *text)
{
    kvf__hash_add(hash, text ? text : "", text ? strlen(text) + 1 : 1);
}

/* Makes the key of all options that affect the rows, except base and --max-length. */
static kvf_status make_key(kvf_ctx *ctx, const kvf_train_options *o, const char *path,
                           const kvf__dataset_options *how, char key[33])
{
    const kvf__row_template *pattern = how->render.pattern;
    const int64_t numbers[] = {how->overlong,   how->no_header,           how->task,
                               how->causal,     how->regression,          how->doc_stride,
                               how->vocab,      pattern ? pattern->P : 0, how->limit,
                               how->split_text, how->most_grouped,        how->render.wrap_prompts};
    kvf__hash *hash = NULL;
    KVF_TRY(kvf__hash_create(ctx, &hash));
    add_text(hash, path);
    add_text(hash, how->format);
    add_text(hash, how->columns);
    add_text(hash, how->delimiter);
    add_text(hash, o->chat_template);
    add_text(hash, o->map);
    add_text(hash, o->p_template);
    kvf__hash_add(hash, numbers, sizeof numbers);
    for (size_t i = 0; how->label_set && i < how->label_set->n; i++)
        add_text(hash, how->label_set->names[i]);
    for (int64_t i = 0; how->phrases && i < how->phrases->n; i++)
        kvf__hash_add(hash, how->phrases->ids + how->phrases->start[i],
                      (size_t)(how->phrases->start[i + 1] - how->phrases->start[i]) *
                          sizeof *how->phrases->ids);
    kvf__hash_hex(hash, key);
    kvf__hash_free(hash);
    return KVF_OK;
}

/* Returns the largest --max-length at which the rows could differ. */
static int64_t longest_of(const kvf__dataset *set, const kvf__dataset_options *how)
{
    if (set->skipped || set->truncated || set->task == KVF__TASK_QA || how->render.pattern)
        return how->max_length;
    return kvf__longest_example(set);
}

static bool fits(const known_set *r, const char *key, int64_t max_length)
{
    if (strcmp(r->key, key)) return false;
    return r->max_length == max_length || (r->longest < r->max_length && max_length >= r->longest);
}

/* Keeps a loaded data set for later runs. */
static kvf_status keep(kvf_ctx *ctx, kvf__reads *reads, const known_set *made, kvf__dataset *out)
{
    size_t bytes = reads->n * sizeof *reads->item;
    KVF_TRY(kvf__grow(ctx, &reads->item, bytes, bytes + sizeof *reads->item));
    known_set *r = &reads->item[reads->n];
    *r = *made;
    KVF_TRY(kvf__dataset_share(ctx, &r->set, out));
    reads->n++;
    return KVF_OK;
}

kvf_status kvf__reads_load(kvf_ctx *ctx, kvf__reads *reads, const kvf_train_options *run,
                           const char *path, const kvf__dataset_options *options, kvf__dataset *out)
{
    known_set made = {.max_length = options->max_length};
    KVF_TRY(make_key(ctx, run, path, options, made.key));
    for (size_t i = 0; i < reads->n; i++)
        if (fits(&reads->item[i], made.key, options->max_length))
            return kvf__dataset_share(ctx, &reads->item[i].set, out);
    KVF_TRY(kvf__dataset_load(ctx, path, options, &made.set));
    made.longest = longest_of(&made.set, options);
    kvf_status st = keep(ctx, reads, &made, out);
    if (st) kvf__dataset_done(&made.set);
    return st;
}
