/* A GGUF's tokenizer metadata (ggml's docs/gguf.md) as the description that src/text reads. */
#include "open_base.h"

#include <string.h>
#include <strings.h>

typedef struct arrays {
    const char *const *tokens, *const *merges;
    const size_t *token_bytes, *merge_bytes;
    float *scores;
    int32_t *types;
    uint8_t *charsmap;
    int64_t n_tokens, n_merges, n_scores, n_types, n_charsmap;
} arrays;

static void arrays_done(arrays *a)
{
    kvf__free((void *)a->tokens);
    kvf__free((void *)a->merges);
    kvf__free((void *)a->token_bytes);
    kvf__free((void *)a->merge_bytes);
    kvf__free(a->scores);
    kvf__free(a->types);
    kvf__free(a->charsmap);
}

/* Reads SentencePiece's table of characters, for Unigram. */
static kvf_status read_charsmap(kvf_ctx *ctx, const kvf__weights *w, arrays *a)
{
    int32_t *bytes = NULL;

    KVF_TRY(kvf__gguf_ints(ctx, w, "tokenizer.ggml.precompiled_charsmap", &bytes, &a->n_charsmap));
    if (a->n_charsmap <= 0) a->n_charsmap = 0;
    kvf_status st = kvf__alloc_array(ctx, (size_t)a->n_charsmap, 1, &a->charsmap);
    for (int64_t i = 0; !st && i < a->n_charsmap; i++)
        a->charsmap[i] = (uint8_t)bytes[i];
    kvf__free(bytes);
    return st;
}

static kvf_status read_arrays(kvf_ctx *ctx, const char *path, const kvf__weights *w, arrays *a)
{
    KVF_TRY(kvf__gguf_strings(ctx, w, "tokenizer.ggml.tokens", &a->tokens, &a->token_bytes,
                              &a->n_tokens));
    KVF_TRY(kvf__gguf_strings(ctx, w, "tokenizer.ggml.merges", &a->merges, &a->merge_bytes,
                              &a->n_merges));
    KVF_TRY(kvf__gguf_floats(ctx, w, "tokenizer.ggml.scores", &a->scores, &a->n_scores));
    KVF_TRY(kvf__gguf_ints(ctx, w, "tokenizer.ggml.token_type", &a->types, &a->n_types));
    KVF_TRY(read_charsmap(ctx, w, a));
    if (a->n_tokens <= 0)
        return kvf__fail(ctx, KVF_EFORMAT, "%s: tokenizer.ggml.tokens is missing", path);
    if (a->n_scores >= 0 && a->n_scores != a->n_tokens)
        return kvf__fail(ctx, KVF_EFORMAT,
                         "%s: tokenizer.ggml.scores has %lld entries, but there are %lld tokens",
                         path, (long long)a->n_scores, (long long)a->n_tokens);
    if (a->n_types >= 0 && a->n_types != a->n_tokens)
        return kvf__fail(
            ctx, KVF_EFORMAT,
            "%s: tokenizer.ggml.token_type has %lld entries, but there are %lld tokens", path,
            (long long)a->n_types, (long long)a->n_tokens);
    return KVF_OK;
}

static const kvf_json *key(const kvf__weights *w, const char *name)
{
    return kvf_json_get(w->meta, name);
}

static int32_t id_of(const kvf__weights *w, const char *name, int64_t n_tokens)
{
    int64_t id = kvf_json_int(key(w, name), -1);
    return id >= 0 && id < n_tokens ? (int32_t)id : -1;
}

static int flag_of(const kvf__weights *w, const char *name)
{
    const kvf_json *value = key(w, name);
    return value ? (int)kvf_json_bool(value, false) : -1;
}

/* Recognises Phi-3 and 3.5 by the name or by the family with SentencePiece, since a file does not
 * state it. */
static bool is_phi3(const kvf__weights *w)
{
    const char *model = kvf_json_str(key(w, "tokenizer.ggml.model"), NULL);
    const char *family = kvf_json_str(key(w, "general.architecture"), NULL);
    const char *name = kvf_json_str(key(w, "general.name"), NULL);

    if (!model || strcmp(model, "llama") != 0) return false;
    if (family && !strcmp(family, "phi3")) return true;
    for (; name && *name; name++)
        if (!strncasecmp(name, "phi-3", 5) || !strncasecmp(name, "phi3", 4)) return true;
    return false;
}

/* Converts a vocabulary. */
typedef kvf_status (*use_fn)(kvf_ctx *ctx, const kvf__vocab *vocab, void *out);

static kvf_status with_vocab(kvf_ctx *ctx, const char *path, const kvf__weights *w, use_fn use,
                             void *out)
{
    arrays a = {0};
    kvf_status st = read_arrays(ctx, path, w, &a);
    if (!st) {
        kvf__vocab vocab = {
            .where = path,
            .model = kvf_json_str(key(w, "tokenizer.ggml.model"), NULL),
            .pre = kvf_json_str(key(w, "tokenizer.ggml.pre"), NULL),
            .n_tokens = (size_t)a.n_tokens,
            .tokens = a.tokens,
            .token_bytes = a.token_bytes,
            .scores = a.scores,
            .types = a.types,
            .n_merges = a.n_merges > 0 ? (size_t)a.n_merges : 0,
            .merges = a.merges,
            .merge_bytes = a.merge_bytes,
            .bos = id_of(w, "tokenizer.ggml.bos_token_id", a.n_tokens),
            .eos = id_of(w, "tokenizer.ggml.eos_token_id", a.n_tokens),
            .unk = id_of(w, "tokenizer.ggml.unknown_token_id", a.n_tokens),
            .pad = id_of(w, "tokenizer.ggml.padding_token_id", a.n_tokens),
            .add_bos = flag_of(w, "tokenizer.ggml.add_bos_token"),
            .add_eos = flag_of(w, "tokenizer.ggml.add_eos_token"),
            .add_space_prefix = flag_of(w, "tokenizer.ggml.add_space_prefix"),
            .chat_template = kvf_json_str(key(w, "tokenizer.chat_template"), NULL),
            .strip_after = is_phi3(w),
        };
        if (vocab.model && !strcmp(vocab.model, "t5")) { /* Unigram, as in sentencepiece.c */
            vocab.charsmap = a.charsmap;
            vocab.charsmap_bytes = (size_t)a.n_charsmap;
            vocab.collapse_spaces = flag_of(w, "tokenizer.ggml.remove_extra_whitespaces") == 1;
            vocab.fuse_unk = true;
            if (vocab.add_bos < 0) vocab.add_bos = 0;
            if (vocab.add_eos < 0) vocab.add_eos = 0;
        }
        st = use(ctx, &vocab, out);
    }
    arrays_done(&a);
    return st;
}

static kvf_status make_tokenizer(kvf_ctx *ctx, const kvf__vocab *vocab, void *out)
{
    return kvf__tokenizer_from_vocab(ctx, vocab, out);
}

static kvf_status make_text(kvf_ctx *ctx, const kvf__vocab *vocab, void *out)
{
    return kvf__vocab_to_json(ctx, vocab, out);
}

kvf_status kvf__tokenizer_from_gguf(kvf_ctx *ctx, const char *path, const kvf__weights *w,
                                    kvf__tokenizer **out)
{
    return with_vocab(ctx, path, w, make_tokenizer, out);
}

kvf_status kvf__gguf_vocab_text(kvf_ctx *ctx, const char *path, const kvf__weights *w, char **out)
{
    return with_vocab(ctx, path, w, make_text, out);
}
