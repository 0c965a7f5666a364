/* The tokenizer in GGUF metadata (ggml's docs/gguf.md): a vocabulary, types, and the name of a
 * splitter.
 *
 * "gpt2" is byte-level BPE. `pre` names the regex that its merges were learned with. An unknown
 * name is refused, because any guess gives wrong ids for some text; without a name llama.cpp's
 * default is used, with a warning. "llama" is SentencePiece BPE by scores: spaces become U+2581,
 * one is put before each text between special tokens, and bytes have tokens. "bert" is WordPiece,
 * in which the converter has put U+2581 before the beginning of a word and removed the ## from the
 * rest. It does not store whether letters are lowercased; the vocabulary shows it. */
#include "tok_files.h"

#include <math.h>
#include <string.h>

#define UNDERLINE "\xE2\x96\x81" /* U+2581 */
static const kvf__gguf_splitter SPLITTERS[] = {
    {"gpt-2", NULL, false, false, false, false},
    {"roberta-bpe", NULL, false, false, false, false},
    {"olmo", NULL, false, true, false, false}, /* GPT-NeoX, Pythia and OLMo */
    {"smollm", NULL, true, false, false, false},
    {"refact", NULL, true, false, false, false}, /* Granite 3 */
    {"llama-bpe", "llama-bpe", false, false, true, true},
    {"llama3", "llama-bpe", false, false, true, true},
    {"llama-v3", "llama-bpe", false, false, true, true},
    {"lfm2", "llama-bpe", false, false, true, true},
    {"dbrx", "llama-bpe", false, false, false, false}, /* OLMo 2 and Phi-4 */
    {"smaug-bpe", "llama-bpe", false, false, false, false},
    {"qwen2", "qwen2", false, true, false, false},
    {"qwen35", "qwen35", false, true, false, false},
    {"deepseek-r1-qwen", "qwen2", false, true, false, false},
    {"gpt-4o", "gpt-4o", false, false, false, false}, /* Phi-4-mini */
    {"tekken", "tekken", false, false, true, true},   /* Mistral Nemo */
    {"default", "default", false, false, false, false},
};

/* ---- tokens ---------------------------------------------------------------------------------- */

static uint32_t flags_of(int32_t type)
{
    static const uint32_t flags[] = {[KVF__GGUF_UNKNOWN] = KVF__TOK_UNKNOWN,
                                     [KVF__GGUF_CONTROL] = KVF__TOK_SPECIAL,
                                     [KVF__GGUF_UNUSED] = KVF__TOK_UNUSED,
                                     [KVF__GGUF_BYTE] = KVF__TOK_BYTE};
    return type >= 0 && (size_t)type < sizeof flags / sizeof *flags ? flags[type] : 0;
}

const char kvf__gguf_ends[] =
    "</s> <|eot_id|> <|eom_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> "
    "<|end_of_text|> <|endoftext|> <end_of_turn> <end_of_utterance> <EOT> _<EOT> [EOT] [EOS] <eos> "
    "<turn|> <|tool_response> <|fim_pad|> <fim-pad> <fim_pad> <|fim_repo|> <|repo_name|> "
    "<fim-repo> <reponame> <|file_sep|>";

/* Returns whether a text is one of words with a space between them. */
static bool is_one_of(const char *words, const char *text, size_t n)
{
    for (const char *at = words; (at = memmem(at, strlen(at), text, n)); at++)
        if ((at == words || at[-1] == ' ') && (at[n] == ' ' || !at[n])) return true;
    return false;
}

int32_t kvf__gguf_type(const kvf__vocab *v, size_t id)
{
    /* Others that llama.cpp treats as special by their text. */
    static const char CONTROL[] = "<|fim_prefix|> <fim_prefix> <fim-prefix> <|fim_suffix|> "
                                  "<fim_suffix> <fim-suffix> <|fim_middle|> <fim_middle> "
                                  "<fim-middle>";
    const int32_t type = v->types ? v->types[id] : KVF__GGUF_NORMAL;
    const char *text = v->tokens[id];
    const size_t n = v->token_bytes[id];

    if (type != KVF__GGUF_NORMAL || !n || !strchr("<_[", text[0])) return type;
    /* "</s>" is special in SentencePiece only: a byte-level vocabulary may have learned it. */
    enum { FIRST = sizeof "</s> " - 1 };
    const bool special = is_one_of(kvf__gguf_ends + (v->scores ? 0 : FIRST), text, n) ||
                         is_one_of(CONTROL, text, n);
    return special ? KVF__GGUF_CONTROL : type;
}

/* Returns whether a token keeps the space after it: an exception among Phi-3's tokens. */
static bool keeps_spaces(const char *text, size_t n)
{
    return (n == 5 && !memcmp(text, "<unk>", n)) || (n == 3 && !memcmp(text, "<s>", n)) ||
           (n == 13 && !memcmp(text, "<|endoftext|>", n));
}

/* Adds a token. Control, user-defined and unknown tokens are matched as written; a SentencePiece
 * model never builds control and unknown tokens from pieces. */
static kvf_status put_token(kvf_ctx *ctx, const kvf__vocab *v, kvf__tokenizer *t, size_t id)
{
    const char *text = v->tokens[id];
    size_t n = v->token_bytes[id];
    const int32_t type = kvf__gguf_type(v, id);
    bool added = type == KVF__GGUF_CONTROL || type == KVF__GGUF_USER || type == KVF__GGUF_UNKNOWN;
    kvf__added token = {.text = (char *)text,
                        .n = n,
                        .rstrip = v->strip_after && !keeps_spaces(text, n),
                        .special = type == KVF__GGUF_CONTROL};

    if (kvf__utf8_valid(text, n) != n || memchr(text, '\0', n))
        return kvf__fail(ctx, KVF_EFORMAT, "%s: token %zu is not UTF-8 text", v->where, id);
    if (!(added && t->model.kind != KVF__MODEL_BPE && type != KVF__GGUF_USER))
        KVF_TRY(
            kvf__lexicon_put(ctx, &t->lex, v->where, text, n, (int64_t)id, flags_of(type), false));
    if (!added) return KVF_OK;
    KVF_TRY(kvf__add_token(ctx, t, v->where, &token, (int64_t)id));
    t->lex.v[id].flags |= flags_of(type);
    return KVF_OK;
}

/* Reads an id of the metadata, which must have a token. */
static kvf_status read_id(kvf_ctx *ctx, const kvf__vocab *v, const char *name, int32_t id,
                          int32_t *out)
{
    if (id >= 0 && (size_t)id >= v->n_tokens)
        return kvf__fail(ctx, KVF_EFORMAT, "%s: %s token id is %d, but there are %zu tokens",
                         v->where, name, id, v->n_tokens);
    if (id >= 0) *out = id;
    return KVF_OK;
}

static kvf_status put_tokens(kvf_ctx *ctx, const kvf__vocab *v, kvf__tokenizer *t)
{
    for (size_t id = 0; id < v->n_tokens; id++)
        KVF_TRY(put_token(ctx, v, t, id));
    KVF_TRY(read_id(ctx, v, "bos", v->bos, &t->bos));
    KVF_TRY(read_id(ctx, v, "eos", v->eos, &t->eos));
    if (v->pad >= 0 && (size_t)v->pad < v->n_tokens) t->pad = v->pad; /* no text gives it */
    return read_id(ctx, v, "unknown", v->unk, &t->model.unk);
}

/* ---- the two models -------------------------------------------------------------------------- */

const kvf__gguf_splitter *kvf__gguf_splitter_find(const char *pre)
{
    if (!pre) pre = "default";
    for (size_t i = 0; i < sizeof SPLITTERS / sizeof *SPLITTERS; i++)
        if (strcmp(SPLITTERS[i].pre, pre) == 0) return &SPLITTERS[i];
    return NULL;
}

/* unk of a byte-level vocabulary is unused: it names a token for other purposes. */
static kvf_status build_bpe(kvf_ctx *ctx, const kvf__vocab *v, kvf__tokenizer *t)
{
    const kvf__gguf_splitter *how = kvf__gguf_splitter_find(v->pre);
    kvf__tok_step digits = {.kind = KVF__STEP_DIGITS, .behavior = KVF__ISOLATED};
    kvf__tok_step nfc = {.kind = KVF__STEP_NFC};

    if (!how)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: tokenizer.ggml.pre is \"%s\", which is not supported", v->where,
                         v->pre);
    if (!v->pre)
        kvf__log(ctx, KVF_LOG_WARN,
                 "%s: tokenizer.ggml.pre is missing: words are split by llama.cpp's default, which "
                 "may not be the model's; convert the model with a newer converter",
                 v->where);
    if (v->n_merges == 0)
        return kvf__fail(ctx, KVF_EFORMAT, "%s: tokenizer.ggml.merges is missing", v->where);
    KVF_TRY(put_tokens(ctx, v, t));
    t->model.unk = -1;
    t->model.ignore_merges = how->ignore_merges;
    KVF_TRY(kvf__pairs_init(ctx, &t->model.pairs, v->n_merges));
    for (size_t i = 0; i < v->n_merges; i++)
        KVF_TRY(kvf__merge_line(ctx, t, v->where, i, v->merges[i], v->merge_bytes[i]));
    if (how->nfc) KVF_TRY(kvf__steps_add(ctx, &t->normalizer, &nfc));
    if (how->digits) KVF_TRY(kvf__steps_add(ctx, &t->pre, &digits));
    KVF_TRY(kvf__byte_level_steps(ctx, v->where, how->regex, false, t));
    return kvf__post_bos_eos(ctx, t, v->add_bos < 0 ? how->add_bos : v->add_bos, v->add_eos == 1);
}

static kvf_status add_text_step(kvf_ctx *ctx, kvf__tok_steps *steps, kvf__step_kind kind,
                                const char *pattern, const char *text)
{
    kvf__tok_step step = {.kind = kind, .text_n = strlen(text), .start = 1};
    kvf_status st = kvf__strdup(ctx, text, &step.text);

    if (!st && pattern) st = kvf__pattern_literal(ctx, pattern, strlen(pattern), &step.pattern);
    if (!st) st = kvf__steps_add(ctx, steps, &step);
    kvf__step_done(&step);
    return st;
}

static kvf_status set_scores(kvf_ctx *ctx, const kvf__vocab *v, kvf__tokenizer *t)
{
    enum { PENALTY = 10 }; /* distance of an unknown character's score below the lowest */
    kvf__tok_model *m = &t->model;
    double least = INFINITY;

    if (!v->scores)
        return kvf__fail(ctx, KVF_EFORMAT, "%s: tokenizer.ggml.scores is missing", v->where);
    KVF_TRY(kvf__alloc_array(ctx, v->n_tokens, sizeof *m->scores, &m->scores));
    m->n_scores = v->n_tokens;
    for (size_t i = 0; i < v->n_tokens; i++) {
        if (v->scores[i] != v->scores[i])
            return kvf__fail(ctx, KVF_EFORMAT, "%s: score of token %zu is not a number", v->where,
                             i);
        m->scores[i] = (double)v->scores[i];
        const bool ordinary = !v->types || v->types[i] == KVF__GGUF_NORMAL;
        if (ordinary && m->scores[i] < least) least = m->scores[i];
    }
    m->unk_score = least - PENALTY;
    return KVF_OK;
}

/* Adds the steps before all others. */
static kvf_status add_spm_steps(kvf_ctx *ctx, const kvf__vocab *v, kvf__tokenizer *t)
{
    kvf__tok_step map = {.kind = KVF__STEP_LONGEST_MAP};
    kvf__tok_step collapse = {.kind = KVF__STEP_COLLAPSE};

    if (v->charsmap_bytes) {
        kvf_status st = kvf__set_charsmap(ctx, v->where, v->charsmap, v->charsmap_bytes, &map);
        if (!st) st = kvf__steps_add(ctx, &t->normalizer, &map);
        kvf__step_done(&map);
        if (st) return st;
    }
    return v->collapse_spaces ? kvf__steps_add(ctx, &t->normalizer, &collapse) : KVF_OK;
}

static kvf_status build_spm(kvf_ctx *ctx, const kvf__vocab *v, bool unigram, kvf__tokenizer *t)
{
    kvf__tok_step bytes = {.kind = KVF__STEP_BYTE_FALLBACK}, fuse = {.kind = KVF__STEP_FUSE};
    bool prefix = v->add_space_prefix != 0;

    t->model.kind = unigram ? KVF__MODEL_UNIGRAM : KVF__MODEL_SCORES;
    t->model.fuse_unk = v->fuse_unk;
    t->model.byte_fallback = true; /* if there are such tokens */
    KVF_TRY(put_tokens(ctx, v, t));
    KVF_TRY(set_scores(ctx, v, t));
    KVF_TRY(add_spm_steps(ctx, v, t));
    if (prefix) KVF_TRY(add_text_step(ctx, &t->normalizer, KVF__STEP_PREPEND, NULL, UNDERLINE));
    KVF_TRY(add_text_step(ctx, &t->normalizer, KVF__STEP_REPLACE, " ", UNDERLINE));
    KVF_TRY(add_text_step(ctx, &t->decoder, KVF__STEP_REPLACE, UNDERLINE, " "));
    KVF_TRY(kvf__steps_add(ctx, &t->decoder, &bytes));
    KVF_TRY(kvf__steps_add(ctx, &t->decoder, &fuse));
    if (prefix) KVF_TRY(add_text_step(ctx, &t->decoder, KVF__STEP_STRIP, NULL, " "));
    return kvf__post_bos_eos(ctx, t, v->add_bos != 0, v->add_eos == 1);
}

/* Adds token `id` with the spelling of vocab.txt; special and other added tokens are unchanged. */
static kvf_status put_piece(kvf_ctx *ctx, const kvf__vocab *v, size_t id, kvf__buf *text,
                            kvf__tokenizer *t)
{
    const int32_t type = v->types ? v->types[id] : KVF__GGUF_NORMAL;
    const char *from = v->tokens[id];
    size_t n = v->token_bytes[id];
    const bool whole = type != KVF__GGUF_NORMAL, begins = !strncmp(from, UNDERLINE, 3);

    if (kvf__utf8_valid(from, n) != n || memchr(from, '\0', n))
        return kvf__fail(ctx, KVF_EFORMAT, "%s: token %zu is not UTF-8 text", v->where, id);
    text->n = 0;
    if (!whole && !begins) KVF_TRY(kvf__buf_add(ctx, text, "##", 2));
    const size_t skipped = !whole && begins ? 3 : 0;
    KVF_TRY(kvf__buf_add(ctx, text, from + skipped, n - skipped));
    return kvf__lexicon_put(ctx, &t->lex, v->where, text->data, text->n, (int64_t)id, 0, false);
}

static bool has_capital(const kvf__vocab *v, size_t id)
{
    if (v->types && v->types[id] != KVF__GGUF_NORMAL) return false;
    for (size_t i = 0; i < v->token_bytes[id]; i++)
        if (v->tokens[id][i] >= 'A' && v->tokens[id][i] <= 'Z') return true;
    return false;
}

static kvf_status build_wordpiece(kvf_ctx *ctx, const kvf__vocab *v, kvf__tokenizer *t)
{
    kvf__buf text = {0};
    bool lowercase = true;
    kvf_status st = KVF_OK;

    for (size_t id = 0; !st && id < v->n_tokens; id++) {
        st = put_piece(ctx, v, id, &text, t);
        if (has_capital(v, id)) lowercase = false;
    }
    kvf__buf_done(&text);
    return st ? st : kvf__bert_pipeline(ctx, v->where, lowercase, t);
}

kvf_status kvf__fill_from_vocab(kvf_ctx *ctx, const kvf__vocab *v, kvf__tokenizer *t)
{
    if (v->n_tokens == 0)
        return kvf__fail(ctx, KVF_EFORMAT, "%s: tokenizer.ggml.tokens is empty", v->where);
    if (v->model && strcmp(v->model, "gpt2") == 0)
        KVF_TRY(build_bpe(ctx, v, t));
    else if (v->model && strcmp(v->model, "llama") == 0)
        KVF_TRY(build_spm(ctx, v, false, t));
    else if (v->model && strcmp(v->model, "t5") == 0)
        KVF_TRY(build_spm(ctx, v, true, t));
    else if (v->model && strcmp(v->model, "bert") == 0)
        KVF_TRY(build_wordpiece(ctx, v, t));
    else
        return kvf__fail(
            ctx, KVF_EUNSUPPORTED,
            "%s: tokenizer.ggml.model \"%s\" is not supported, want gpt2, llama, t5 or bert",
            v->where, v->model ? v->model : "");
    t->has_decoder = true;
    return v->chat_template ? kvf__strdup(ctx, v->chat_template, &t->chat_template) : KVF_OK;
}

kvf_status kvf__tokenizer_from_vocab(kvf_ctx *ctx, const kvf__vocab *vocab, kvf__tokenizer **out)
{
    kvf__tokenizer *t = NULL;
    kvf_status st = kvf__tokenizer_create(ctx, &t);

    if (!st) st = kvf__fill_from_vocab(ctx, vocab, t);
    if (!st) st = kvf__tokenizer_finish(ctx, vocab->where, t);
    KVF__GIVE(st, out, t, kvf__tokenizer_free(t));
    return st;
}
