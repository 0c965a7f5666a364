/* The document of a distillation: its text, its tokens, and the keys and values that the base
 * computes for them, once, as a prefix at positions 0 to n - 1. */
#include "distill_int.h"

#include <string.h>

enum { LEAST_ROOM = 16, MOST_BYTES = 64 << 20 };

static kvf_status check_text(kvf_ctx *ctx, const char *path, const kvf__buf *text)
{
    const char *zero = text->n ? memchr(text->data, 0, text->n) : NULL;
    if (zero)
        return kvf__fail(ctx, KVF_EDATA, "%s: byte %lld is 0: want a text in UTF-8", path,
                         (long long)(zero - text->data));
    KVF_TRY(kvf__utf8_check(ctx, path, text->data, text->n, true));
    if (!text->n || strspn(text->data, " \t\r\n") == text->n)
        return kvf__fail(ctx, KVF_EDATA, "%s: the document is empty", path);
    return KVF_OK;
}

kvf__render kvf__document_render(const kvf__render *render)
{
    kvf__render plain = *render;
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

static kvf_status check_capacity(kvf_ctx *ctx, const kvf_base *base, const char *path,
                                 kvf__document *document)
{
    int64_t n = (int64_t)document->ids.n;
    document->row_capacity = kvf__longest_row(base, n, n);
    if (document->row_capacity >= LEAST_ROOM) return KVF_OK;
    return kvf__fail(ctx, KVF_ESHAPE,
                     "%s: the document has %lld tokens, which leaves %lld of the model's positions "
                     "for rows, want %d or more",
                     path, (long long)n, (long long)document->row_capacity, LEAST_ROOM);
}

static kvf_status make_context(kvf_ctx *ctx, kvf_base *base, const kvf__render *render,
                               kvf__document *document)
{
    const kvf__desc *d = kvf__model_desc(base->model);
    int64_t n = (int64_t)document->ids.n;
    KVF_TRY(kvf__alloc(ctx, sizeof *document->context, &document->context));
    kvf_prefix *context = document->context;
    context->task = KVF__TASK_LM;
    context->step = -1;
    context->file.id = (kvf__identity){
        .position_start = n, .L = d->L, .G = d->G, .P = n, .D = d->D, .chat_template = NULL};
    const char *chat = render->wrap_prompts ? kvf__chat_name(render->chat->kind) : "none";
    KVF_TRY(kvf__strdup(ctx, chat, &context->file.id.chat_template));
    KVF_TRY(kvf__prefix_init(ctx, &context->file.prefix, d->L, d->G, n, d->D));
    return kvf__base_keys_values(ctx, base, document->ids.data, &context->file.prefix, NULL);
}

kvf_status kvf__document_open(kvf_ctx *ctx, kvf_base *base, const char *path,
                              const kvf__render *render, kvf__document *out)
{
    *out = (kvf__document){0};
    KVF_TRY(kvf__read_file(ctx, path, MOST_BYTES, &out->text));
    KVF_TRY(check_text(ctx, path, &out->text));
    KVF_TRY(read_ids(ctx, render, out->text.data, out->text.n, &out->ids));
    KVF_TRY(check_capacity(ctx, base, path, out));
    return make_context(ctx, base, render, out);
}

void kvf__document_done(kvf__document *document)
{
    kvf__buf_done(&document->text);
    kvf__ids_done(&document->ids);
    kvf_prefix_free(document->context);
    *document = (kvf__document){0};
}

kvf__subject kvf__document_subject(const kvf__document *document)
{
    return (kvf__subject){.condition.prefix = &document->context->file.prefix,
                          .condition.position_start = document->context->file.id.position_start};
}

/* Does the first part of the text begin with the same n ids? */
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
            end++; /* whole characters */
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
