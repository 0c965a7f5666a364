/* Vocabularies of tiktoken: lines with a token's bytes in base64 and its rank, which is its id.
 *
 * There is no merge list. Neighbours whose joined bytes are a token are joined, lowest rank first
 * (tiktoken's lib.rs); a piece that is itself a token stays whole. The file does not name its split
 * regex: vocabularies of known size have their own, others that of cl100k_base, as in transformers'
 * TikTokenConverter. Special tokens are in tokenizer_config.json. */
#include "tok_files.h"

#include <string.h>

enum { MOST_TOKEN_BYTES = 1024, LEAST_TOKENS = 256 };

typedef struct tiktoken {
    kvf_ctx *ctx;
    const char *where;
    kvf__tokenizer *t;
    size_t line, n;
} tiktoken;

static kvf_status bad_line(const tiktoken *k, const char *what)
{
    return kvf__fail(k->ctx, KVF_EFORMAT, "%s:%zu: %s, want base64 of a token, and its rank",
                     k->where, k->line, what);
}

/* Decodes n base64 characters, of which the last one or two may be padding. */
static bool decode(const char *s, size_t n, char *out, size_t *out_n)
{
    if (n == 0 || n % 4 || n / 4 * 3 > MOST_TOKEN_BYTES || s[n - 3] == '=') return false;
    return kvf__base64(s, n, out, out_n) && *out_n > 0;
}

/* Adds a token in the written form of byte-level steps. */
static kvf_status put_token(tiktoken *k, const char *bytes, size_t n, int64_t rank)
{
    char text[2 * MOST_TOKEN_BYTES];
    size_t at = 0, length;
    kvf__tokenizer *t = k->t;

    for (size_t i = 0; i < n; i++, at += length)
        kvf__byte_char((uint8_t)bytes[i], text + at, &length);
    if (kvf__lexicon_model(&t->lex, text, at) >= 0)
        return bad_line(k, "the token is already defined");
    if ((size_t)rank < t->lex.n && t->lex.v[rank].n) return bad_line(k, "the rank is already used");
    KVF_TRY(kvf__lexicon_put(k->ctx, &t->lex, k->where, text, at, rank, 0, false));
    k->n++;
    return KVF_OK;
}

static kvf_status read_line(tiktoken *k, const char *line, size_t n)
{
    char bytes[MOST_TOKEN_BYTES + 3];
    const char *space = memchr(line, ' ', n);
    size_t bytes_n = 0;
    int64_t rank = 0;

    if (!space || !decode(line, (size_t)(space - line), bytes, &bytes_n))
        return bad_line(k, "no base64");
    if (space + 1 == line + n || line + n - space > 10) return bad_line(k, "no rank");
    for (const char *c = space + 1; c < line + n; c++) {
        if (*c < '0' || *c > '9') return bad_line(k, "no rank");
        rank = rank * 10 + (*c - '0');
    }
    return put_token(k, bytes, bytes_n, rank);
}

static kvf_status read_lines(tiktoken *k, const char *text, size_t n)
{
    for (size_t at = 0, length; at < n; at += length + 1) {
        const char *end = memchr(text + at, '\n', n - at);
        length = end ? (size_t)(end - text) - at : n - at;
        const size_t bytes = length && text[at + length - 1] == '\r' ? length - 1 : length;
        k->line++;
        if (bytes) KVF_TRY(read_line(k, text + at, bytes));
    }
    return KVF_OK;
}

static kvf_status check_bytes(const tiktoken *k)
{
    char text[2];
    size_t n;

    for (int byte = 0; byte < 256; byte++) {
        kvf__byte_char((uint8_t)byte, text, &n);
        if (kvf__lexicon_model(&k->t->lex, text, n) < 0)
            return kvf__fail(k->ctx, KVF_EFORMAT, "%s: no token for the byte 0x%02X", k->where,
                             (unsigned)byte);
    }
    return KVF_OK;
}

/* Returns the name of the split regex for a vocabulary of n tokens. */
static const char *regex_for(size_t n)
{
    if (n == 50256 || n == 50280) return "gpt-2"; /* r50k_base, p50k_base */
    if (n == 199998) return "gpt-4o";             /* o200k_base */
    return n == 151643 ? "qwen2" : "llama-bpe";   /* Qwen; cl100k_base and Llama 3 */
}

static kvf_status set_scores(tiktoken *k)
{
    kvf__tok_model *m = &k->t->model;

    KVF_TRY(kvf__alloc_array(k->ctx, k->t->lex.n, sizeof *m->scores, &m->scores));
    m->n_scores = k->t->lex.n;
    for (size_t i = 0; i < k->t->lex.n; i++)
        m->scores[i] = -(double)i;
    m->kind = KVF__MODEL_SCORES;
    m->unk = -1;
    m->ignore_merges = true;
    return KVF_OK;
}

static kvf_status check_known(const tiktoken *k)
{
    if (k->n != 199998) return KVF_OK;
    return kvf__fail(k->ctx, KVF_EUNSUPPORTED,
                     "%s: has %zu ranks like o200k_base, whose regex is not supported", k->where,
                     k->n);
}

kvf_status kvf__read_tiktoken(kvf_ctx *ctx, const char *where, const char *text, size_t n,
                              kvf__tokenizer *t)
{
    tiktoken k = {.ctx = ctx, .where = where, .t = t};

    KVF_TRY(read_lines(&k, text, n));
    KVF_TRY(check_bytes(&k));
    KVF_TRY(check_known(&k));
    KVF_TRY(set_scores(&k));
    KVF_TRY(kvf__byte_level_steps(ctx, where, regex_for(k.n), false, t));
    return kvf__post_bare(ctx, t);
}
