/* Text to ids: the pipeline of tok_int.h.
 *
 * Sections between added tokens pass through it one after the other with the same buffers. A text
 * may be part of a larger one (chat turns are encoded in parts); kvf__text_part describes the
 * preceding text. */
#include "tok_work.h"

/* Merging takes some 70 times the bytes of a word. */
enum { LONGEST_WORD = 4 << 20 };

void kvf__work_done(kvf__work *w)
{
    kvf__traced_done(&w->text);
    kvf__traced_done(&w->normal);
    kvf__traced_done(&w->scratch);
    kvf__pretokens_done(&w->pieces);
    kvf__pretokens_done(&w->spare);
    kvf__free(w->events);
    kvf__word_done(&w->word);
    kvf__free(w->points);
    kvf__match_free(w->match);
    *w = (kvf__work){0};
}

static kvf_status (*const MODELS[])(kvf__work *work, const char *text, size_t n) = {
    [KVF__MODEL_BPE] = kvf__bpe_encode,
    [KVF__MODEL_SCORES] = kvf__spm_encode,
    [KVF__MODEL_WORDPIECE] = kvf__wordpiece_encode,
    [KVF__MODEL_UNIGRAM] = kvf__unigram_encode,
};

/* Returns the least number of ids for so many bytes: if each byte has a token, nothing is omitted
 * or fused, and no id covers more than the longest token. 0: unknown. */
static size_t least_ids(const kvf__tokenizer *t, size_t bytes)
{
    const bool falls_back = t->model.kind == KVF__MODEL_SCORES ||
                            (t->model.kind == KVF__MODEL_BPE && t->model.byte_fallback);
    for (size_t i = 0; i < 256 && falls_back; i++)
        if (t->lex.bytes[i] < 0) return 0;
    return falls_back && t->lex.longest ? bytes / t->lex.longest : 0;
}

/* Encodes a part of work->normal without added tokens. */
static kvf_status encode_plain(kvf__work *w, size_t at, size_t n, bool head, bool bare)
{
    kvf__pretokens_clear(&w->pieces);
    w->pieces.head = head;
    w->pieces.text.most = w->spare.text.most = kvf__trace_room(n);
    KVF_TRY(kvf__trace_copy(w, &w->pieces.text, &w->normal, at, n));
    KVF_TRY(kvf__pretokens_add(w->ctx, &w->pieces, 0, n));
    KVF_TRY(kvf__pre_tokenize(w, bare));
    for (w->piece = 0; w->piece < w->pieces.n; w->piece++) {
        const kvf__pretoken *piece = &w->pieces.v[w->piece];
        const char *text = w->pieces.text.buf.data + piece->at;
        if (piece->n > LONGEST_WORD && !w->long_words)
            return kvf__fail(w->ctx, KVF_EDATA,
                             "tokenizer: a word of %u bytes, want at most %d MiB", piece->n,
                             LONGEST_WORD >> 20);
        if (w->out->most) KVF_TRY(kvf__ids_allow(w->ctx, w->out, least_ids(w->t, piece->n)));
        KVF_TRY(MODELS[w->t->model.kind](w, text, piece->n));
    }
    return KVF_OK;
}

/* Encodes one section of work->text: normalised, then cut at the normalised added tokens. */
static kvf_status encode_section(kvf__work *w, size_t at, size_t n, bool head, bool bare)
{
    kvf__cut cut = {0};

    KVF_TRY(kvf__ctx_check_stop(w->ctx));
    KVF_TRY(kvf__normalize(w, &w->text, at, n, bare));
    cut.s = w->normal.buf.data;
    cut.n = w->normal.buf.n;
    while (kvf__added_next(&w->t->added, &w->t->added.normal, &cut)) {
        size_t bytes = cut.end - cut.start;
        w->ended_in_token = cut.token != NULL;
        w->strips_next = cut.token && cut.token->rstrip;
        if (cut.token)
            KVF_TRY(kvf__emit_added(w, &w->normal, cut.start, bytes, cut.token->id));
        else
            KVF_TRY(encode_plain(w, cut.start, bytes, head && cut.start == 0 && !w->trimmed,
                                 bare && cut.start == 0));
    }
    return KVF_OK;
}

static kvf_status encode_text(kvf__work *w, kvf__text_part part)
{
    kvf__cut cut = {.s = w->text.buf.data, .n = w->text.buf.n};

    while (kvf__added_next(&w->t->added, &w->t->added.raw, &cut)) {
        size_t bytes = cut.end - cut.start;
        w->ended_in_token = cut.token != NULL;
        w->strips_next = cut.token && cut.token->rstrip;
        if (cut.token)
            KVF_TRY(kvf__emit_added(w, &w->text, cut.start, bytes, cut.token->id));
        else
            KVF_TRY(encode_section(w, cut.start, bytes, cut.start == 0 && !part.inside,
                                   cut.start == 0 && part.continues));
    }
    return KVF_OK;
}

kvf_status kvf__encode_part(kvf__work *w, const char *text, size_t bytes, bool add_special,
                            kvf__text_part part)
{
    const kvf__ids *post = &w->t->post.items;

    KVF_TRY(kvf__trace_text(w, text, bytes));
    for (size_t i = 0; i < post->n; i++) {
        if (post->data[i] == KVF__POST_TEXT)
            KVF_TRY(encode_text(w, part));
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
    kvf_status st = kvf__encode_part(&w, text, bytes, add_special, (kvf__text_part){0});

    if (st) out->n = before;
    kvf__work_done(&w);
    return st;
}

kvf_status kvf__encode_offsets(kvf_ctx *ctx, const kvf__tokenizer *tokenizer, const char *text,
                               size_t bytes, kvf__ids *out, kvf__ids *offsets)
{
    kvf__ids found = {0}; /* relative to 0, independent of the contents of `offsets` */
    kvf__work w = {.ctx = ctx, .t = tokenizer, .out = out, .offsets = &found, .long_words = true};
    size_t before = out->n;
    kvf_status st = kvf__trace_text(&w, text, bytes);

    if (!st) st = encode_text(&w, (kvf__text_part){0});
    if (!st) st = kvf__ids_append(ctx, offsets, found.data, found.n);
    if (st) out->n = before;
    kvf__ids_done(&found);
    kvf__work_done(&w);
    return st;
}
