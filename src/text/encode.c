/* Text to ids: the pipeline of INTEROP 6.1, run over one text.
 *
 * Sections between added tokens go through it one after the other with the same buffers. A text may
 * be one part of a larger one (chat turns are encoded in parts): kvf__place says what stands before
 * it. */
#include "tok_int.h"

void kvf__work_done(kvf__work *w)
{
    kvf__buf_done(&w->text);
    kvf__buf_done(&w->normal);
    kvf__buf_done(&w->scratch);
    kvf__pieces_done(&w->pieces);
    kvf__pieces_done(&w->spare);
    kvf__free(w->events);
    kvf__word_done(&w->word);
    kvf__free(w->points);
    kvf__match_free(w->match);
    *w = (kvf__work){0};
}

static kvf_status encode_plain(kvf__work *w, const char *s, size_t n, bool head, bool bare)
{
    kvf__pieces_clear(&w->pieces);
    w->pieces.head = head;
    KVF_TRY(kvf__buf_add(w->ctx, &w->pieces.text, s, n));
    KVF_TRY(kvf__pieces_add(w->ctx, &w->pieces, 0, n));
    KVF_TRY(kvf__pre_tokenize(w, bare));
    for (size_t i = 0; i < w->pieces.n; i++) {
        const char *piece = w->pieces.text.data + w->pieces.v[i].at;
        if (w->t->model.by_score)
            KVF_TRY(kvf__spm_encode(w, piece, w->pieces.v[i].n));
        else
            KVF_TRY(kvf__bpe_encode(w, piece, w->pieces.v[i].n));
    }
    return KVF_OK;
}

/* One section of raw text: normalised, then cut at the normalised added tokens. */
static kvf_status encode_section(kvf__work *w, const char *s, size_t n, bool head, bool bare)
{
    kvf__cut cut = {0};

    KVF_TRY(kvf__normalize(w, s, n, bare));
    cut.s = w->normal.data;
    cut.n = w->normal.n;
    while (kvf__added_next(&w->t->added, &w->t->added.normal, &cut)) {
        w->ended_in_token = cut.token != NULL;
        if (cut.token)
            KVF_TRY(kvf__ids_add(w->ctx, w->out, cut.token->id));
        else
            KVF_TRY(encode_plain(w, cut.s + cut.start, cut.end - cut.start, head && cut.start == 0,
                                 bare && cut.start == 0));
    }
    return KVF_OK;
}

static kvf_status encode_text(kvf__work *w, kvf__place place)
{
    kvf__cut cut = {.s = w->text.data, .n = w->text.n};

    while (kvf__added_next(&w->t->added, &w->t->added.raw, &cut)) {
        w->ended_in_token = cut.token != NULL;
        if (cut.token)
            KVF_TRY(kvf__ids_add(w->ctx, w->out, cut.token->id));
        else
            KVF_TRY(encode_section(w, cut.s + cut.start, cut.end - cut.start,
                                   cut.start == 0 && !place.inside,
                                   cut.start == 0 && place.continues));
    }
    return KVF_OK;
}

kvf_status kvf__encode_part(kvf__work *w, const char *text, size_t bytes, bool add_special,
                            kvf__place place)
{
    const kvf__ids *post = &w->t->post;

    w->text.n = 0;
    KVF_TRY(kvf__utf8_repair(w->ctx, text, bytes, &w->text));
    for (size_t i = 0; i < post->n; i++) {
        if (post->data[i] == KVF__POST_TEXT)
            KVF_TRY(encode_text(w, place));
        else if (add_special)
            KVF_TRY(kvf__ids_add(w->ctx, w->out, post->data[i]));
    }
    return KVF_OK;
}

kvf_status kvf__encode(kvf_ctx *ctx, const kvf__tokenizer *tokenizer, const char *text,
                       size_t bytes, bool add_special, kvf__ids *out)
{
    kvf__work w = {.ctx = ctx, .t = tokenizer, .out = out};
    size_t before = out->n;
    kvf_status st = kvf__encode_part(&w, text, bytes, add_special, (kvf__place){0});

    if (st) out->n = before;
    kvf__work_done(&w);
    return st;
}
