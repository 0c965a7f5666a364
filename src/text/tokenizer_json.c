/* tokenizer.json: one file with the whole pipeline.
 *
 * The models are BPE, WordPiece and Unigram. `truncation` and `padding` are ignored: the length of
 * rows is not the tokenizer's concern. The id in an added token's entry counts unless the model's
 * vocabulary has the text. */
#include "tok_files.h"

#include <math.h>
#include <string.h>

/* ---- model ----------------------------------------------------------------------------------- */

kvf_status kvf__read_vocab(kvf_ctx *ctx, const char *where, kvf_json *vocab, kvf__tokenizer *t)
{
    if (kvf_json_typeof(vocab) != KVF_JSON_OBJECT)
        return kvf__fail(ctx, KVF_EFORMAT, "%s: the vocabulary is not an object", where);
    for (void *it = kvf_json_iter(vocab); it; it = kvf_json_next(vocab, it)) {
        const char *text = kvf_json_iter_key(it);
        int64_t id = kvf_json_int(kvf_json_iter_value(it), -1);
        KVF_TRY(kvf__lexicon_put(ctx, &t->lex, where, text, strlen(text), id, 0, false));
    }
    return KVF_OK;
}

static kvf_status read_merge(kvf_ctx *ctx, const char *where, const kvf_json *merge, size_t rank,
                             kvf__tokenizer *t)
{
    size_t n = 0, left_n = 0, right_n = 0;
    const char *line = kvf_json_str(merge, &n);
    const char *left = kvf_json_str(kvf_json_at(merge, 0), &left_n);
    const char *right = kvf_json_str(kvf_json_at(merge, 1), &right_n);

    if (line) return kvf__merge_line(ctx, t, where, rank, line, n);
    if (!left || !right || kvf_json_size(merge) != 2)
        return kvf__fail(ctx, KVF_EFORMAT,
                         "%s: model.merges[%zu] is neither \"a b\" nor [\"a\", \"b\"]", where,
                         rank);
    return kvf__merge_put(ctx, t, where, rank, left, left_n, right, right_n);
}

/* Lines that begin with #version are skipped, as in the original files of these lists. */
static kvf_status read_merges(kvf_ctx *ctx, const char *where, const kvf_json *merges,
                              kvf__tokenizer *t)
{
    size_t rank = 0;

    if (kvf_json_typeof(merges) != KVF_JSON_ARRAY)
        return kvf__fail(ctx, KVF_EFORMAT, "%s: model.merges is not a list", where);
    KVF_TRY(kvf__pairs_init(ctx, &t->model.pairs, kvf_json_size(merges)));
    for (size_t i = 0; i < kvf_json_size(merges); i++) {
        const kvf_json *merge = kvf_json_at(merges, i);
        const char *line = kvf_json_str(merge, NULL);
        if (line && strncmp(line, "#version", 8) == 0) continue;
        KVF_TRY(read_merge(ctx, where, merge, rank++, t));
    }
    return KVF_OK;
}

/* Copies a string field; NULL if absent or empty. */
static kvf_status copy_affix(kvf_ctx *ctx, const char *where, const kvf_json *model,
                             const char *key, char **out)
{
    const char *text;

    KVF_TRY(kvf__want_str(ctx, where, model, key, &text, NULL));
    return text && *text ? kvf__strdup(ctx, text, out) : KVF_OK;
}

static kvf_status read_unk(kvf_ctx *ctx, const char *where, const kvf_json *json, kvf__tokenizer *t)
{
    const char *unk;
    size_t n;

    KVF_TRY(kvf__want_str(ctx, where, json, "unk_token", &unk, &n));
    if (!unk) return KVF_OK;
    t->model.unk = kvf__lexicon_model(&t->lex, unk, n);
    if (t->model.unk < 0)
        return kvf__fail(ctx, KVF_EFORMAT, "%s: model.unk_token \"%s\" is not in the vocabulary",
                         where, unk);
    return KVF_OK;
}

static kvf_status read_bpe(kvf_ctx *ctx, const char *where, const kvf_json *json, kvf__tokenizer *t)
{
    kvf__tok_model *m = &t->model;
    double dropout = kvf_json_real(kvf_json_get(json, "dropout"), 0);

    if (dropout != 0)
        return kvf__fail(ctx, KVF_EUNSUPPORTED, "%s: model.dropout is %g, want null", where,
                         dropout);
    KVF_TRY(kvf__want_bool(ctx, where, json, "byte_fallback", false, &m->byte_fallback));
    KVF_TRY(kvf__want_bool(ctx, where, json, "fuse_unk", false, &m->fuse_unk));
    KVF_TRY(kvf__want_bool(ctx, where, json, "ignore_merges", false, &m->ignore_merges));
    KVF_TRY(copy_affix(ctx, where, json, "continuing_subword_prefix", &m->prefix));
    KVF_TRY(copy_affix(ctx, where, json, "end_of_word_suffix", &m->suffix));
    KVF_TRY(kvf__read_vocab(ctx, where, kvf_json_get(json, "vocab"), t));
    KVF_TRY(read_merges(ctx, where, kvf_json_get(json, "merges"), t));
    return read_unk(ctx, where, json, t);
}

static kvf_status read_wordpiece(kvf_ctx *ctx, const char *where, const kvf_json *json,
                                 kvf__tokenizer *t)
{
    kvf__tok_model *m = &t->model;
    const kvf_json *most = kvf_json_get(json, "max_input_chars_per_word");

    m->kind = KVF__MODEL_WORDPIECE;
    m->max_chars = kvf_json_int(most, kvf_json_typeof(most) <= KVF_JSON_NULL ? 100 : -1);
    if (m->max_chars < 0)
        return kvf__fail(ctx, KVF_EFORMAT,
                         "%s: model.max_input_chars_per_word is not a number of 0 or more", where);
    if (kvf_json_get(json, "continuing_subword_prefix"))
        KVF_TRY(copy_affix(ctx, where, json, "continuing_subword_prefix", &m->prefix));
    else
        KVF_TRY(kvf__strdup(ctx, "##", &m->prefix));
    KVF_TRY(kvf__read_vocab(ctx, where, kvf_json_get(json, "vocab"), t));
    KVF_TRY(read_unk(ctx, where, json, t));
    if (m->unk < 0) return kvf__fail(ctx, KVF_EFORMAT, "%s: model has no \"unk_token\"", where);
    return KVF_OK;
}

/* Token `id`: [text, score]. */
static kvf_status read_scored(kvf_ctx *ctx, const char *where, const kvf_json *json, size_t id,
                              kvf__tokenizer *t)
{
    size_t n = 0;
    const char *text = kvf_json_str(kvf_json_at(json, 0), &n);
    const double score = kvf_json_real(kvf_json_at(json, 1), NAN);

    if (!text || !isfinite(score))
        return kvf__fail(ctx, KVF_EFORMAT, "%s: model.vocab[%zu] is not [\"token\", score]", where,
                         id);
    t->model.scores[id] = score;
    if (score < t->model.unk_score) t->model.unk_score = score;
    return kvf__lexicon_put(ctx, &t->lex, where, text, n, (int64_t)id, 0, false);
}

static kvf_status read_unigram(kvf_ctx *ctx, const char *where, const kvf_json *json,
                               kvf__tokenizer *t)
{
    enum { PENALTY = 10 }; /* distance of an unknown character's score below the lowest */
    const kvf_json *vocab = kvf_json_get(json, "vocab");
    const size_t n = kvf_json_typeof(vocab) == KVF_JSON_ARRAY ? kvf_json_size(vocab) : 0;
    kvf__tok_model *m = &t->model;

    m->kind = KVF__MODEL_UNIGRAM;
    m->unk_score = INFINITY;
    KVF_TRY(kvf__want_bool(ctx, where, json, "byte_fallback", false, &m->byte_fallback));
    KVF_TRY(kvf__alloc_array(ctx, n + 1, sizeof *m->scores, &m->scores));
    m->n_scores = n + 1;
    for (size_t id = 0; id < n; id++)
        KVF_TRY(read_scored(ctx, where, kvf_json_at(vocab, id), id, t));
    m->unk_score -= PENALTY;
    const int64_t unk = kvf_json_int(kvf_json_get(json, "unk_id"), -1);
    if (unk < 0 || unk >= (int64_t)n)
        return kvf__fail(ctx, KVF_EFORMAT, "%s: model.unk_id names none of the %zu tokens", where,
                         n);
    m->unk = (int32_t)unk;
    return KVF_OK;
}

/* Old files have no type, but a field that only this model has. */
static const struct {
    const char *type, *mark;
    kvf_status (*read)(kvf_ctx *ctx, const char *where, const kvf_json *json, kvf__tokenizer *t);
} MODELS[] = {
    {"BPE", "merges", read_bpe},
    {"WordPiece", "max_input_chars_per_word", read_wordpiece},
    {"Unigram", "unk_id", read_unigram},
};

static kvf_status read_model(kvf_ctx *ctx, const char *where, const kvf_json *json,
                             kvf__tokenizer *t)
{
    const char *type;

    if (kvf_json_typeof(json) != KVF_JSON_OBJECT)
        return kvf__fail(ctx, KVF_EFORMAT, "%s: \"model\" is not an object", where);
    KVF_TRY(kvf__want_str(ctx, where, json, "type", &type, NULL));
    for (size_t i = 0; i < sizeof MODELS / sizeof *MODELS; i++)
        if (type ? strcmp(type, MODELS[i].type) == 0 : kvf_json_get(json, MODELS[i].mark) != NULL)
            return MODELS[i].read(ctx, where, json, t);
    if (type)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: model.type \"%s\" is not supported, want BPE, WordPiece or Unigram",
                         where, type);
    return kvf__fail(ctx, KVF_EUNSUPPORTED,
                     "%s: model has neither a type nor merges, want BPE, WordPiece or Unigram",
                     where);
}

/* ---- added tokens ---------------------------------------------------------------------------- */

static kvf_status read_added(kvf_ctx *ctx, const char *where, const kvf_json *list,
                             kvf__tokenizer *t)
{
    for (size_t i = 0; i < kvf_json_size(list); i++) {
        const kvf_json *json = kvf_json_at(list, i);
        kvf__added token = {0};
        int64_t id = kvf_json_int(kvf_json_get(json, "id"), -1);

        KVF_TRY(kvf__read_added_token(ctx, where, json, &token));
        if (token.n == 0) continue;
        token.id = kvf__lexicon_model(&t->lex, token.text, token.n);
        KVF_TRY(kvf__add_token(ctx, t, where, &token, token.id >= 0 ? token.id : id));
    }
    return KVF_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static kvf_status check_post(kvf_ctx *ctx, const char *where, const kvf__tokenizer *t)
{
    const kvf__ids *lists[] = {&t->post.items, &t->pair.items};

    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < lists[k]->n; i++)
            if (lists[k]->data[i] >= 0 && !kvf__token_text(t, lists[k]->data[i]))
                return kvf__fail(ctx, KVF_EFORMAT, "%s: post_processor: id %d has no token", where,
                                 lists[k]->data[i]);
    return KVF_OK;
}

static kvf_status read_all(kvf_ctx *ctx, const char *where, const kvf_json *json, kvf__tokenizer *t)
{
    const char *version;

    if (kvf_json_typeof(json) != KVF_JSON_OBJECT)
        return kvf__fail(ctx, KVF_EFORMAT, "%s: not a JSON object", where);
    KVF_TRY(kvf__want_str(ctx, where, json, "version", &version, NULL));
    if (version && strcmp(version, "1.0") != 0)
        return kvf__fail(ctx, KVF_EUNSUPPORTED, "%s: version \"%s\", want 1.0", where, version);
    KVF_TRY(read_model(ctx, where, kvf_json_get(json, "model"), t));
    KVF_TRY(read_added(ctx, where, kvf_json_get(json, "added_tokens"), t));
    KVF_TRY(kvf__read_steps(ctx, where, json, t));
    t->has_decoder = kvf_json_typeof(kvf_json_get(json, "decoder")) == KVF_JSON_OBJECT;
    KVF_TRY(kvf__read_post(ctx, where, kvf_json_get(json, "post_processor"), t));
    return check_post(ctx, where, t);
}

kvf_status kvf__read_tokenizer_json(const kvf__tok_source *src, kvf__tokenizer *t)
{
    KVF_TRY(read_all(src->ctx, src->path[KVF__FILE_TOKENIZER], src->json[KVF__FILE_TOKENIZER], t));
    return kvf__bert_config(src, t);
}
