/* kvf_report(): opens the inputs, gathers facts as JSON, and writes the page. Facts that a method
 * or base cannot give are omitted with a note on the page. The facts of the file itself need no
 * base, except norms for methods that read the base to emit their prefix. */
#include "inspect_int.h"
#include "outfile.h"
#include "report_facts.h"

#include "method.h"
#include "report_int.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

kvf_report_options kvf_report_defaults(void)
{
    return (kvf_report_options){
        .precision = KVF_PRECISION_F32, .words = 3, .rows = 32, .samples = 4, .max_tokens = 48};
}

/* ---- norms ----------------------------------------------------------------------------------- */

/* Returns the norms [L][P] of the prefix in flat form: of keys (kv 0) or values (1); null for a
 * layer without prefix. */
static kvf_json *layer_norms(const kvf__prefix *prefix, const float *flat, int64_t kv)
{
    const kvf__kv_shape shape = kvf__prefix_shape(prefix);
    const int64_t row = 2 * kvf__kv_at(&shape, prefix->L).width;
    kvf_json *rows = kvf_json_array();
    for (int64_t l = 0; l < prefix->L; l++) {
        const kvf__kv_heads at = kvf__kv_at(&shape, l);
        const int64_t width = at.G * at.D;
        kvf_json_add(rows, prefix->layer_mask[l] ? kvf__norms_of(flat + 2 * at.width + kv * width,
                                                                 prefix->P, row, width)
                                                 : kvf_json_new_null());
    }
    return rows;
}

static kvf_status prefix_norms(kvf__report_facts *r, const kvf__prefix *prefix)
{
    float *flat = NULL;
    KVF_TRY(kvf__alloc_array(r->ctx, kvf__prefix_count(prefix), sizeof *flat, &flat));
    kvf__prefix_to_flat(prefix, flat);
    kvf_json_set(r->facts, "prefix",
                 kvf__json_of("keys:o values:o", layer_norms(prefix, flat, 0),
                              layer_norms(prefix, flat, 1)));
    kvf__free(flat);
    return KVF_OK;
}

/* Adds the norms [L][N] of the neurons by array; null for a layer without neurons. */
static void neuron_norms(kvf__report_facts *r, const kvf__neurons *neurons)
{
    const kvf__neuron_shape *s = &neurons->shape;
    kvf__neuron_array array[KVF__NEURON_ARRAYS];
    const int arrays = kvf__neuron_arrays(neurons, array);
    kvf_json *found = kvf_json_object();

    for (int i = 0; i < arrays; i++) {
        const int64_t width = array[i].columns;
        kvf_json *rows = kvf_json_array();
        for (int64_t l = 0; l < s->L; l++)
            kvf_json_add(rows,
                         neurons->layer_mask[l]
                             ? kvf__norms_of(array[i].at + l * s->N * width, s->N, width, width)
                             : kvf_json_new_null());
        kvf_json_set(found, array[i].name, rows);
    }
    kvf_json_set(r->facts, "neurons", found);
}

/* Adds norms of the values in the file. */
static kvf_status add_norms(kvf__report_facts *r)
{
    const kvf_prefix *prefix = r->prefix;

    if (!prefix) {
        kvf__report_note(r, "No norms: the method of this run needs the base to emit its virtual "
                            "tokens, so name it with --base.");
        return KVF_OK;
    }
    const kvf__neurons *neurons = &prefix->file.prefix.neurons;
    if (neurons->shape.N)
        neuron_norms(r, neurons);
    else if (!prefix->file.prefix.P && !prefix->file.vectors.P)
        kvf__report_note(r,
                         "Method %s trains parameters of the base and has no virtual tokens: the "
                         "norms of the trained parameters are listed with the tensors.",
                         prefix->file.id.method);
    if (prefix->file.vectors.P)
        kvf_json_set(r->facts, "virtual",
                     kvf__norms_of(prefix->file.vectors.x, prefix->file.vectors.P,
                                   prefix->file.vectors.C, prefix->file.vectors.C));
    return prefix->file.prefix.P ? prefix_norms(r, &prefix->file.prefix) : KVF_OK;
}

/* Returns the time of the last change of the file, in UTC. */
static kvf_json *written(const char *path)
{
    struct stat file;
    struct tm utc;
    char text[40];
    if (stat(path, &file) || !gmtime_r(&file.st_mtime, &utc)) return kvf_json_new_str("");
    strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &utc);
    return kvf_json_new_str(text);
}

/* ---- the file -------------------------------------------------------------------------------- */

static kvf_status check_options(kvf_ctx *ctx, const kvf_report_options *o)
{
    if (o->data && !o->base)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "--data needs --base, because the data is run on the base");
    if (o->words < 0 || o->rows < 0 || o->samples < 0 || o->max_tokens < 0)
        return kvf__fail(ctx, KVF_EUSAGE, "words, rows, samples and max-tokens cannot be negative");
    return KVF__NOT_INPUTS(ctx, o->out, o->path, o->base, o->data);
}

static kvf_status check_kind(kvf_ctx *ctx, const char *path)
{
    kvf__file_kind format = KVF__FILE_UNKNOWN;
    kvf__kind kind = KVF__KIND_ANY;

    KVF_TRY(kvf__file_kind_of(ctx, path, &format));
    if (format != KVF__FILE_HDF5)
        return kvf__fail(
            ctx, KVF_EFORMAT,
            "%s: is not a file of kvfold, want a run, prefix, embeddings or adapter file", path);
    KVF_TRY(kvf__kind_of(ctx, path, &kind));
    if (kind != KVF__KIND_BASE) return KVF_OK;
    return kvf__fail(ctx, KVF_EFORMAT,
                     "%s: is a base file, want a run, prefix, embeddings or adapter file", path);
}

static kvf_status read_file(kvf__report_facts *r)
{
    const kvf_report_options *o = r->options;

    KVF_TRY(check_kind(r->ctx, o->path));
    KVF_TRY(kvf_inspect(r->ctx, o->path, &r->facts));
    kvf__json_put(r->facts, "title:s written:o notes:o", kvf__path_end(o->path), written(o->path),
                  r->notes = kvf_json_array());
    if (strcmp(kvf_json_str(kvf_json_get(r->facts, "kind"), NULL), "run") == 0)
        return kvf__artifact_history(r->ctx, o->path, &r->history);
    return KVF_OK;
}

/* ---- prefix and base ------------------------------------------------------------------------- */

static kvf_status open_prefix(kvf__report_facts *r)
{
    const kvf_report_options *o = r->options;
    bool needs_base = false;

    KVF_TRY(kvf__prefix_needs_base(r->ctx, o->path, &needs_base));
    if (r->prefix || needs_base != (r->base != NULL)) return KVF_OK;
    KVF_TRY(kvf_prefix_open_on(r->ctx, o->path, r->base, o->checkpoint, &r->prefix));
    return o->head ? kvf_prefix_use_head(r->ctx, r->prefix, o->head) : KVF_OK;
}

/* Opens the prefix first, because it is small; but the base first if the method reads it. */
static kvf_status open_both(kvf__report_facts *r)
{
    const kvf_report_options *o = r->options;
    const kvf_base_options how = {.precision = o->precision, .lora = o->lora};

    KVF_TRY(open_prefix(r));
    if (!o->base) return KVF_OK;
    KVF_TRY(kvf_base_open_for(r->ctx, o->base, &how, r->prefix, &r->base));
    KVF_TRY(open_prefix(r));
    return kvf_prefix_check(r->ctx, r->prefix, r->base, o->allow_other_base);
}

static void facts_done(kvf__report_facts *r)
{
    kvf_base_free(r->base);
    kvf_prefix_free(r->prefix);
    kvf__history_done(&r->history);
    kvf_json_free(r->facts);
}

static kvf_status write_page(kvf__report_facts *r, int64_t *bytes)
{
    kvf__buf page = {0};
    kvf_status st = kvf__report_page(r->ctx, r->facts, &r->history, &page);

    if (!st) st = kvf__write_file(r->ctx, r->options->out, r->options->force, page.data, page.n);
    if (!st && bytes) *bytes = (int64_t)page.n;
    kvf__buf_done(&page);
    return st;
}

static kvf_status report(kvf_ctx *ctx, const kvf_report_options *options, int64_t *bytes)
{
    kvf__report_facts r = {.ctx = ctx, .options = options};

    KVF_TRY(check_options(ctx, options));
    KVF_TRY(kvf__check_output(ctx, options->out, options->force));
    kvf_status st = read_file(&r);
    if (!st) st = open_both(&r);
    if (!st) st = add_norms(&r);
    if (!st && r.base) st = kvf__report_with_base(&r);
    if (!st) st = write_page(&r, bytes);
    facts_done(&r);
    return st;
}

kvf_status kvf_report(kvf_ctx *ctx, const kvf_report_options *options, int64_t *bytes)
{
    KVF_TRY(KVF__NEED(ctx, options));
    KVF_TRY(KVF__NEED(ctx, options->path, options->out));
    KVF_TRY(KVF__CHECK_ENUM(ctx, options->checkpoint, KVF_CHECKPOINT_LAST));
    KVF_TRY(KVF__CHECK_ENUM(ctx, options->precision, KVF_PRECISION_INT8));
    KVF_TRY(KVF__CHECK_ENUM(ctx, options->overlong, KVF_OVERLONG_SKIP));
    KVF__RETURN(ctx, report(ctx, options, bytes));
}
