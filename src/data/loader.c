/* Row handling shared by all tasks: ends and groups rows, cuts or leaves out overlong ones, and
 * puts special tokens around one text or two. */
#include "loader.h"

#include <string.h>

/* Reserves memory for one more item of a list of n. */
#define RESERVE_ONE(load, v, cap, n)                                                               \
    KVF_TRY(kvf__reserve((load)->ctx, &(v), &(cap), (size_t)(n) + 1, sizeof *(v)))

kvf_status kvf__loader_fail(const kvf__loader *load, const char *fmt, ...)
{
    char text[2048];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return kvf__fail(load->ctx, KVF_EDATA, "%s: %s", load->row->where, text);
}

kvf_status kvf__loader_field_fail(const kvf__loader *load, const char *name, const char *what)
{
    char has[KVF__ROW_HAS_MAX];
    kvf__row_has(load->options.render.map, load->row->fields, load->row->outer, has);
    return kvf__loader_fail(load, "\"%s\" is %s; %s", name, what, has);
}

const kvf_json *kvf__loader_field(const kvf__loader *load, const char *name)
{
    return kvf__field(load->options.render.map, load->row->fields, name);
}

kvf_status kvf__alloc_items(kvf__loader *load, kvf__source *source, size_t n)
{
    source->n = (int64_t)n;
    KVF_TRY(kvf__pool_alloc(load->ctx, &load->pool, n, sizeof *source->items, &source->items));
    return kvf__pool_alloc(load->ctx, &load->pool, n, sizeof *source->item_bytes,
                           &source->item_bytes);
}

kvf_status kvf__put_item(kvf__loader *load, kvf__source *source, size_t i, const char *text,
                         size_t bytes)
{
    source->item_bytes[i] = bytes;
    return kvf__pool_text(load->ctx, &load->pool, text, bytes, &source->items[i]);
}

int64_t kvf__loader_row_start(const kvf__loader *load)
{
    return load->rows.n ? load->rows.v[load->rows.n - 1].start : 0;
}

kvf_status kvf__loader_end_row(kvf__loader *load, const kvf__row_info *info)
{
    kvf__made_rows *rows = &load->rows;
    const int64_t most = load->options.most_tokens;
    if (most && (int64_t)rows->ids.n > most)
        return kvf__loader_fail(load, "the rows so far have more than %lld tokens",
                                (long long)most);
    KVF_TRY(kvf__ctx_check_stop(load->ctx));
    RESERVE_ONE(load, rows->v, rows->cap, rows->n);
    rows->v[rows->n] = *info;
    rows->v[rows->n++].start = (int64_t)rows->ids.n; /* start of the next row */
    return KVF_OK;
}

void kvf__loader_drop_group(kvf__loader *load)
{
    kvf__made_rows *rows = &load->rows;
    rows->n = load->groups.n ? load->groups.end[load->groups.n - 1] : 0;
    rows->ids.n = rows->labels.n = (size_t)kvf__loader_row_start(load);
    if (rows->types.n > rows->ids.n) rows->types.n = rows->ids.n;
    load->cut = false;
    load->counts.skipped++;
}

void kvf__loader_no_label(kvf__loader *load, const char *text, bool *stays)
{
    *stays = load->options.unlabeled;
    load->counts.no_gold += *stays;
    if (*stays || load->counts.none++) return;
    load->counts.none_line = load->row->line;
    snprintf(load->counts.none_text, sizeof load->counts.none_text, "%s", text);
}

/* Reads the row's id as text into *out, which stays unchanged if the row has none. */
static kvf_status keep_id(kvf__loader *load, const char *name, const char **out)
{
    char id[256];
    size_t n = 0;
    const kvf_json *value = kvf__loader_field(load, name);
    const char *text = kvf_json_str(value, &n);
    if (text && memchr(text, 0, n))
        return kvf__loader_fail(load, "the row's \"%s\" holds U+0000", name);
    if (!kvf__label_text(value, id, sizeof id)) return KVF_OK;
    return kvf__pool_text(load->ctx, &load->pool, id, strlen(id), out);
}

/* Copies a source and adds the row's line and id. */
static kvf_status keep_source(kvf__loader *load, const kvf__source *source, kvf__source *kept)
{
    *kept = *source;
    kept->line = load->row->line;
    KVF_TRY(keep_id(load, "id", &kept->id));
    return kept->id ? KVF_OK : keep_id(load, "idx", &kept->id);
}

kvf_status kvf__loader_leave_out(kvf__loader *load, const kvf__source *source)
{
    kvf__made_groups *groups = &load->groups;
    kvf__loader_drop_group(load);
    if (!load->options.unlabeled) return KVF_OK;
    RESERVE_ONE(load, groups->left, groups->left_cap, groups->n_left);
    groups->left[groups->n_left].before = groups->n;
    return keep_source(load, source, &groups->left[groups->n_left++].source);
}

static kvf_status check_group(const kvf__loader *load)
{
    const kvf__made_groups *groups = &load->groups;
    const int64_t from = groups->n ? groups->end[groups->n - 1] : 0,
                  tokens = (int64_t)load->rows.ids.n - (from ? load->rows.v[from - 1].start : 0),
                  most = load->options.most_grouped;
    if (!most || tokens <= most || load->rows.n - from < 2) return KVF_OK;
    return kvf__loader_fail(
        load,
        "the choices or windows of the row have %lld tokens in total, want at most %lld, because "
        "training computes them together: shorten or split the row",
        (long long)tokens, (long long)most);
}

kvf_status kvf__loader_end_group(kvf__loader *load, const kvf__source *source)
{
    kvf__made_groups *groups = &load->groups;
    KVF_TRY(check_group(load));
    KVF_TRY(kvf__ctx_check_stop(load->ctx));
    RESERVE_ONE(load, groups->end, groups->end_cap, groups->n);
    if (load->keeps) {
        RESERVE_ONE(load, groups->v, groups->cap, groups->n);
        KVF_TRY(keep_source(load, source, &groups->v[groups->n]));
    }
    groups->end[groups->n++] = load->rows.n;
    load->counts.truncated += load->cut;
    load->cut = false;
    return KVF_OK;
}

kvf_status kvf__loader_overlong(kvf__loader *load, int64_t tokens, int64_t capacity, bool *cut)
{
    if (load->options.overlong <= KVF_OVERLONG_STOP)
        return kvf__loader_fail(load, "the row has %lld tokens, at most %lld fit (see --overlong)",
                                (long long)tokens, (long long)capacity);
    *cut = load->options.overlong != KVF_OVERLONG_SKIP;
    return KVF_OK;
}

int64_t kvf__loader_stride(const kvf__loader *load, int64_t capacity)
{
    enum { DOC_STRIDE = 128 };
    int64_t stride = load->options.doc_stride > 0 ? load->options.doc_stride : DOC_STRIDE;
    return stride < capacity / 2 ? stride : capacity / 2;
}

int64_t kvf__loader_front(const kvf__loader *load)
{
    return load->options.render.pattern ? load->options.render.pattern->front : 0;
}

int64_t kvf__loader_cost(const kvf__loader *load, bool pair)
{
    return (int64_t)kvf__specials_cost(load->options.render.tokenizer, pair) +
           kvf__loader_front(load) + (pair ? (int64_t)load->glue.separator.n : 0);
}

kvf_status kvf__loader_join(kvf__loader *load, bool pair, int64_t *a_at, int64_t *b_at)
{
    kvf_ctx *ctx = load->ctx;
    size_t from = load->rows.ids.n, a = 0, b = 0, own = load->a.n;
    KVF_TRY(kvf__add_virtual(ctx, 0, kvf__loader_front(load), &load->rows.ids));
    while (load->rows.types.n < load->rows.ids.n)
        KVF_TRY(kvf__ids_add(ctx, &load->rows.types, 0));
    if (pair)
        KVF_TRY(kvf__ids_append(ctx, &load->a, load->glue.separator.data, load->glue.separator.n));
    kvf_status st = kvf__add_specials(ctx, load->options.render.tokenizer, &load->a,
                                      pair ? &load->b : NULL, &load->rows.ids, &load->rows.types,
                                      &a, &b);
    load->a.n = own;
    while (!st && load->rows.labels.n < load->rows.ids.n)
        st = kvf__ids_add(ctx, &load->rows.labels, KVF__NO_LABEL);
    *a_at = (int64_t)(a - from);
    *b_at = pair ? (int64_t)(b - from) : *a_at;
    return st;
}

kvf_status kvf__loader_add_id(kvf__loader *load, int32_t id)
{
    KVF_TRY(kvf__ids_add(load->ctx, &load->rows.ids, id));
    KVF_TRY(kvf__ids_add(load->ctx, &load->rows.types, 0));
    return kvf__ids_add(load->ctx, &load->rows.labels, KVF__NO_LABEL);
}

/* Determines whether a blank before a letter is part of its token, and not added by the tokenizer
 * itself. */
static kvf_status plan_blanks(kvf__loader *load)
{
    const kvf__tokenizer *tokenizer = load->options.render.tokenizer;
    kvf__ids plain = {0}, spaced = {0};
    kvf_status st = kvf__encode(load->ctx, tokenizer, "a", 1, false, &plain);
    if (!st) st = kvf__encode(load->ctx, tokenizer, " a", 2, false, &spaced);
    load->glue.spaced = !st && plain.n == 1 && spaced.n == 1 && plain.data[0] != spaced.data[0];
    kvf__ids_done(&plain);
    kvf__ids_done(&spaced);
    return st;
}

/* Joins two texts of one token each, to find out what the post-processor puts between and after
 * them. */
kvf_status kvf__loader_plan_joins(kvf__loader *load)
{
    const kvf__tokenizer *tokenizer = load->options.render.tokenizer;
    kvf__ids one = {0}, ids = {0}, types = {0};
    size_t a = 0, b = 0;
    kvf_status st = kvf__ids_add(load->ctx, &one, 0);
    if (!st) st = kvf__add_specials(load->ctx, tokenizer, &one, &one, &ids, &types, &a, &b);
    load->glue.tail = -1;
    if (!st && b == a + 1)
        st = kvf__encode(load->ctx, tokenizer, "\n", 1, false, &load->glue.separator);
    if (!st && load->options.task == KVF__TASK_QA && load->options.causal && ids.n == b + 1) {
        load->glue.tail = kvf__token_eos(tokenizer);
        if (load->glue.tail < 0) load->glue.tail = kvf__token_bos(tokenizer);
        if (load->glue.tail < 0)
            st = kvf__fail(
                load->ctx, KVF_EUNSUPPORTED,
                "%s: the tokenizer has no end-of-text token, which task qa needs for \"no answer\"",
                load->path);
    }
    if (!st) st = plan_blanks(load);
    kvf__ids_done(&one);
    kvf__ids_done(&ids);
    kvf__ids_done(&types);
    return st;
}

int64_t kvf__loader_read_at(const kvf__loader *load)
{
    return load->options.causal ? (int64_t)load->rows.ids.n - 1
                                : kvf__loader_row_start(load) + kvf__loader_front(load);
}
