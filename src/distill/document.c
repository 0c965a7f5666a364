/* The document of a distillation: its text, its tokens, and their keys and values. The base
 * computes these once, as a prefix at positions 0 to n - 1. A document longer than a window is read
 * in windows, each from position 0 on. A window begins with the last part of the previous one,
 * whose keys and values are stored once. Rows after the document begin where a window ends and
 * attend to the keys of all windows (parallel context windows; Ratner et al. 2023). */
#include "distill_int.h"

#include <string.h>

enum {
    LEAST_ROOM = 16,
    MOST_BYTES = 64 << 20,
    OVERLAP = 4 /* a window shares 1/OVERLAP of its tokens with the previous one */
};

static kvf_status check_text(kvf_ctx *ctx, const char *path, const kvf__buf *text)
{
    const char *zero = text->n ? memchr(text->data, 0, text->n) : NULL;
    if (zero)
        return kvf__fail(ctx, KVF_EDATA, "%s: byte %lld is 0: want UTF-8 text", path,
                         (long long)(zero - text->data));
    KVF_TRY(kvf__utf8_check(ctx, path, text->data, text->n, true));
    if (!text->n || strspn(text->data, " \t\r\n") == text->n)
        return kvf__fail(ctx, KVF_EDATA, "%s: the document is empty", path);
    return KVF_OK;
}

kvf__render kvf__document_render(const kvf__render *render)
{
    kvf__render plain = *render;
    static const kvf__chat none = {0};
    plain.chat = &none;
    plain.wrap_prompts = false;
    plain.pattern = NULL;
    return plain;
}

static kvf_status read_ids(kvf_ctx *ctx, const kvf__render *render, const char *text, size_t bytes,
                           kvf__ids *ids)
{
    const kvf__render plain = kvf__document_render(render);
    return kvf__render_prompt(ctx, &plain, text, bytes, ids);
}

/* Returns the window size: all tokens if positions for rows remain, else half of the model's
 * positions. */
static int64_t window_of(const kvf_base *base, int64_t n, int64_t asked)
{
    const int64_t half = kvf__longest_row(base, 0) / 2;
    if (asked) return asked < n ? asked : n;
    return kvf__longest_row(base, n) >= LEAST_ROOM || half >= n ? n : half;
}

static kvf_status check_capacity(kvf_ctx *ctx, const kvf_base *base, const char *path,
                                 kvf__document *document)
{
    const int64_t n = (int64_t)document->ids.n;
    document->row_capacity = kvf__longest_row(base, document->window);
    if (document->row_capacity >= LEAST_ROOM) return KVF_OK;
    if (document->window < n)
        return kvf__fail(ctx, KVF_ESHAPE,
                         "%s: windows of %lld tokens leave %lld of the model's positions for rows, "
                         "want %d or more: lower --window",
                         path, (long long)document->window, (long long)document->row_capacity,
                         LEAST_ROOM);
    return kvf__fail(ctx, KVF_ESHAPE,
                     "%s: the document has %lld tokens, which leaves %lld of the model's positions "
                     "for rows, want %d or more: set --window",
                     path, (long long)n, (long long)document->row_capacity, LEAST_ROOM);
}

/* Reads tokens first .. end - 1, of which those before `at` are stored already. If texts begin with
 * a start token, each window does too. */
static kvf_status read_window(kvf_ctx *ctx, kvf_base *base, int32_t bos, kvf__document *document,
                              int64_t first, int64_t at, int64_t end)
{
    kvf__prefix *to = &document->context->file.prefix, part = {0};
    kvf__ids ids = {0};
    kvf_status st = bos >= 0 && first ? kvf__ids_add(ctx, &ids, bos) : KVF_OK;
    const int64_t skipped = (int64_t)ids.n + at - first;
    if (!st) st = kvf__ids_append(ctx, &ids, document->ids.data + first, (size_t)(end - first));
    const kvf__kv_shape kv = kvf__prefix_shape(to);
    if (!st) st = kvf__prefix_create(ctx, &part, &kv, (int64_t)ids.n);
    if (!st) st = kvf__base_keys_values(ctx, base, ids.data, &part, NULL);
    if (!st) kvf__prefix_copy_tokens(to, at, &part, skipped, end - at);
    if (!st) st = kvf__prefix_set_state(ctx, to, part.state, part.states);
    for (int64_t t = at; !st && t < end; t++)
        st = kvf__ids_add(ctx, &document->positions, (int32_t)(skipped + t - at));
    kvf__prefix_done(&part);
    kvf__ids_done(&ids);
    return st;
}

static kvf_status read_windows(kvf_ctx *ctx, kvf_base *base, const kvf__render *render,
                               kvf__document *document)
{
    const int32_t bos = kvf__adds_bos(render->tokenizer) ? kvf__token_bos(render->tokenizer) : -1;
    const int64_t n = (int64_t)document->ids.n, again = document->window / OVERLAP;
    int64_t end = 0;
    while (end < n) {
        const int64_t at = end, first = at ? at - again : 0;
        end = first + document->window - (at && bos >= 0);
        if (end > n) end = n;
        KVF_TRY(read_window(ctx, base, bos, document, first, at, end));
    }
    return KVF_OK;
}

static kvf_status make_context(kvf_ctx *ctx, kvf_base *base, const kvf__render *render,
                               kvf__document *document)
{
    const kvf__kv_shape kv = kvf__desc_kv(kvf__model_desc(base->model));
    int64_t n = (int64_t)document->ids.n;
    KVF_TRY(kvf__alloc(ctx, sizeof *document->context, &document->context));
    kvf_prefix *context = document->context;
    context->task = KVF__TASK_LM;
    context->step = -1;
    context->file.id = (kvf__identity){.position_start = document->window, .P = n};
    KVF_TRY(kvf__identity_set_kv(ctx, &context->file.id, &kv));
    const bool named = render->wrap_prompts || render->chat->kind == KVF__CHAT_RENDERED;
    KVF_TRY(kvf__strdup(ctx, named ? render->chat->name : "none", &context->file.id.chat_template));
    KVF_TRY(kvf__prefix_create(ctx, &context->file.prefix, &kv, n));
    return read_windows(ctx, base, render, document);
}

kvf_status kvf__document_open(kvf_ctx *ctx, kvf_base *base, const char *path, bool system,
                              int64_t window, const kvf__render *render, kvf__document *out)
{
    *out = (kvf__document){0};
    KVF_TRY(kvf__read_file(ctx, path, MOST_BYTES, &out->text));
    KVF_TRY(check_text(ctx, path, &out->text));
    KVF_TRY(system ? kvf__system_turn(ctx, render, &out->text, &out->ids)
                   : read_ids(ctx, render, out->text.data, out->text.n, &out->ids));
    out->window = window_of(base, (int64_t)out->ids.n, window);
    KVF_TRY(check_capacity(ctx, base, path, out));
    return make_context(ctx, base, render, out);
}

void kvf__document_done(kvf__document *document)
{
    kvf__buf_done(&document->text);
    kvf__ids_done(&document->ids);
    kvf__ids_done(&document->positions);
    kvf_prefix_free(document->context);
    *document = (kvf__document){0};
}

kvf__subject kvf__document_subject(const kvf__document *document)
{
    return (kvf__subject){.condition.prefix = &document->context->file.prefix,
                          .condition.position_start = document->context->file.id.position_start};
}

kvf__match_source kvf__document_source(const kvf__document *document)
{
    return (kvf__match_source){.kv = &document->context->file.prefix,
                               .position = document->positions.data,
                               .start = document->window};
}

/* True if the first part of the text begins with the same n ids. */
static kvf_status same_head(kvf_ctx *ctx, const kvf__document *document, const kvf__render *render,
                            const char *head, size_t bytes, int64_t n, bool *same)
{
    kvf__ids ids = {0};
    kvf_status st = read_ids(ctx, render, head, bytes, &ids);
    *same = !st && (int64_t)ids.n >= n &&
            !memcmp(ids.data, document->ids.data, (size_t)n * sizeof *ids.data);
    kvf__ids_done(&ids);
    return st;
}

kvf_status kvf__document_head(kvf_ctx *ctx, const kvf__document *document,
                              const kvf__render *render, int64_t n, char **out)
{
    const kvf__buf *text = &document->text;
    size_t bytes = 8 * (size_t)n;
    for (bool same = false; !same; bytes *= 2) {
        char *head = NULL;
        size_t end = bytes < text->n ? bytes : text->n;
        while (end < text->n && kvf__utf8_continues(text->data[end]))
            end++; /* keeps characters whole */
        KVF_TRY(kvf__strndup(ctx, text->data, end, &head));
        kvf_status st = same_head(ctx, document, render, head, end, n, &same);
        same |= end == text->n;
        if (!st && same)
            *out = head;
        else
            kvf__free(head);
        KVF_TRY(st);
    }
    return KVF_OK;
}
