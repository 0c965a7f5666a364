/* Lists of pipeline steps and pieces, the byte alphabet of byte-level steps, and the regexes of
 * split steps.
 *
 * The alphabet: printable bytes map to themselves, the other 68 in increasing order to U+0100 and
 * up, so that every byte is one visible character. */
#include "tok_work.h"

#include <string.h>

void kvf__step_done(kvf__tok_step *step)
{
    kvf__pattern_free(step->pattern);
    kvf__free(step->text);
    *step = (kvf__tok_step){0};
}

kvf_status kvf__steps_add(kvf_ctx *ctx, kvf__tok_steps *steps, kvf__tok_step *step)
{
    enum { MOST_STEPS = 256 }; /* limit, since each step is another pass over every text */
    kvf_status st = kvf__reserve(ctx, &steps->v, &steps->cap, steps->n + 1, sizeof *steps->v);

    if (!st && steps->n == MOST_STEPS)
        st = kvf__fail(ctx, KVF_EFORMAT, "tokenizer: more than %d steps", MOST_STEPS);
    if (st) {
        kvf__step_done(step);
        return st;
    }
    steps->v[steps->n++] = *step;
    *step = (kvf__tok_step){0};
    return KVF_OK;
}

void kvf__steps_done(kvf__tok_steps *steps)
{
    for (size_t i = 0; i < steps->n; i++)
        kvf__step_done(&steps->v[i]);
    kvf__free(steps->v);
    *steps = (kvf__tok_steps){0};
}

kvf_status kvf__pretokens_add(kvf_ctx *ctx, kvf__pretokens *pieces, size_t at, size_t n)
{
    if (n == 0) return KVF_OK;
    if (n > INT32_MAX || at > UINT32_MAX - n)
        return kvf__fail(ctx, KVF_EDATA, "a text is too long to tokenize");
    KVF_TRY(kvf__reserve(ctx, &pieces->v, &pieces->cap, pieces->n + 1, sizeof *pieces->v));
    pieces->v[pieces->n++] = (kvf__pretoken){.at = (uint32_t)at, .n = (uint32_t)n};
    return KVF_OK;
}

void kvf__pretokens_clear(kvf__pretokens *pieces)
{
    pieces->n = 0;
    pieces->text.buf.n = 0;
    pieces->head = false;
}

void kvf__pretokens_done(kvf__pretokens *pieces)
{
    kvf__traced_done(&pieces->text);
    kvf__free(pieces->v);
    *pieces = (kvf__pretokens){0};
}

static bool is_printable(unsigned byte)
{
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

/* Non-printable bytes: 0x00-0x20 -> U+0100, 0x7F-0xA0 -> U+0121, 0xAD -> U+0143. */
void kvf__byte_char(uint8_t byte, char out[2], size_t *n)
{
    uint32_t cp = byte;
    char bytes[4];

    if (!is_printable(byte))
        cp = byte <= 0x20 ? 0x100u + byte : byte == 0xAD ? 0x143 : 0x121u + (byte - 0x7Fu);
    *n = kvf__utf8_put(bytes, cp);
    out[0] = bytes[0];
    if (*n > 1) out[1] = bytes[1];
}

int kvf__char_byte(uint32_t cp)
{
    if (cp < 0x100) return is_printable(cp) ? (int)cp : -1;
    if (cp <= 0x120) return (int)(cp - 0x100);
    if (cp <= 0x142) return (int)(cp - 0x121 + 0x7F);
    return cp == 0x143 ? 0xAD : -1;
}

/* ---- splitting ------------------------------------------------------------------------------- */

#define R_SPACES "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define R_TAIL   "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" R_SPACES
#define R_ENDING "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define R_BEFORE "[^\\r\\n\\p{L}\\p{N}]?"
#define R_HEAD   R_ENDING "|" R_BEFORE "\\p{L}+|"
/* Words are cut between a lower-case and an upper-case letter. */
#define R_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define R_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define R_CASED(ending)                                                                            \
    R_BEFORE R_UPPER "*" R_LOWER "+" ending "|" R_BEFORE R_UPPER "+" R_LOWER "*" ending "|"
#define R_MARKS      "\\p{P}$+<=>^~|"
#define R_CASED_TAIL "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" R_SPACES

const char *kvf__split_regex(const char *name)
{
    if (strcmp(name, "gpt-2") == 0)
        return "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
    if (strcmp(name, "llama-bpe") == 0) return R_HEAD "\\p{N}{1,3}" R_TAIL;
    if (strcmp(name, "qwen2") == 0) return R_HEAD "\\p{N}" R_TAIL;
    if (strcmp(name, "qwen35") == 0) /* a letter's marks belong to the word */
        return R_ENDING "|" R_BEFORE
                        "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" R_SPACES;
    if (strcmp(name, "gpt-4o") == 0) return R_CASED(R_ENDING "?") "\\p{N}{1,3}" R_CASED_TAIL;
    if (strcmp(name, "default") == 0) /* llama.cpp's four regexes, applied in turn */
        return "[" R_MARKS
               "]+| ?\\p{L}+|[0-9]{3}|(?:(?![0-9]{3})\\p{N})+| ?[^\\s\\p{L}\\p{N}" R_MARKS
               "]+|\\s+(?![^\\s" R_MARKS "])|\\s";
    if (strcmp(name, "tekken") == 0) return R_CASED("") "\\p{N}" R_CASED_TAIL;
    return NULL;
}

kvf_status kvf__byte_level_steps(kvf_ctx *ctx, const char *where, const char *splitter,
                                 bool prefix_space, kvf__tokenizer *t)
{
    kvf__tok_step split = {.kind = KVF__STEP_SPLIT, .behavior = KVF__ISOLATED};
    kvf__tok_step bytes = {.kind = KVF__STEP_BYTE_LEVEL, .prefix_space = prefix_space};
    kvf__tok_step decoder = {.kind = KVF__STEP_BYTE_LEVEL};
    const char *regex = kvf__split_regex(splitter ? splitter : "gpt-2");

    KVF_TRY(kvf__pattern_regex(ctx, splitter ? where : "byte level", regex, strlen(regex),
                               splitter ? &split.pattern : &bytes.pattern));
    if (splitter) KVF_TRY(kvf__steps_add(ctx, &t->pre, &split));
    KVF_TRY(kvf__steps_add(ctx, &t->pre, &bytes));
    t->has_decoder = true;
    return kvf__steps_add(ctx, &t->decoder, &decoder);
}
