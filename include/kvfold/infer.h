/* Generation: many prompts at once on one base, with or without a prefix.
 *
 *     const char *prompts[] = {"Internet:"};
 *     char *texts[1];
 *     kvf_generate_options options = kvf_generate_defaults();
 *     if (kvf_generate(ctx, base, prefix, prompts, 1, &options, texts, NULL)) return 1;
 *     puts(texts[0]);
 *     kvf_texts_free(texts, 1); */
#ifndef KVFOLD_INFER_H
#define KVFOLD_INFER_H

#include <kvfold/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Amount that is added to a token's logit. */
typedef struct kvf_token_bias {
    int32_t id;
    float bias;
} kvf_token_bias;

typedef struct kvf_generate_options {
    int64_t max_tokens; /* maximum number of new tokens per prompt */
    double temperature; /* 0: greedy */
    int64_t top_k;      /* 0: all */
    double top_p;       /* 1: all */
    double min_p; /* lowest probability of a candidate, as a fraction of the most likely token's; 0:
                     all */
    /* Divides positive logits, and multiplies negative ones, of tokens that occur in prompt or
     * completion (as transformers does). 0 or 1: none. */
    double repetition_penalty;
    /* Subtracted from the logits of tokens in the completion: presence once, frequency for each
     * occurrence (as OpenAI does). */
    double presence_penalty, frequency_penalty;
    const kvf_token_bias *logit_bias; /* [n_logit_bias] */
    size_t n_logit_bias;
    /* Number of beams. Above 1: beam search, which returns the completion with the highest sum of
     * log-probabilities divided by (number of tokens) ** length_penalty. The search follows
     * transformers with early_stopping False. temperature must be 0. */
    int64_t beams;
    double length_penalty;
    uint64_t seed; /* prompt i draws from (seed, i), so results do not depend on the batch */
    /* n_stop texts that end a completion; the stop text is not part of it */
    const char *const *stop;
    size_t n_stop;
    const char *chat_template; /* NULL: the template of the prefix, or none */
    int64_t batch_size;        /* prompts run together; 0: 16 */
    /* Streaming callback with the new text of a prompt in whole characters, without a final NUL;
     * may be NULL. Returning false ends the call with ESTOPPED. */
    bool (*token)(void *user, size_t prompt, const char *text, size_t bytes);
    void *token_user;
    /* n_more prefixes in addition to the one of the call, which must not be NULL. Each next token
     * is drawn from the mean of their probabilities. */
    const kvf_prefix *const *more;
    size_t n_more;
    /* Maximum number of tokens that are guessed from the row's own text and checked in one step.
     * The result is the same, and sooner where the text repeats itself or its prompt. 0: off. Needs
     * temperature 0, no beams and no `more`. */
    int64_t draft;
    uint64_t reserved[7];
} kvf_generate_options;
/* Returns the defaults: 64 tokens, greedy, top_p 1, no penalties, no beams, length_penalty 1. */
kvf_generate_options kvf_generate_defaults(void);

typedef struct kvf_generate_stats {
    int64_t prompt_tokens, new_tokens;
    double prefill_seconds, decode_seconds;
    uint64_t reserved[4];
} kvf_generate_stats;

/* Completes n prompts. texts[i] is the completion without its prompt in UTF-8, owned by the caller
 * (kvf_texts_free). prefix and stats may be NULL. EDATA, ESHAPE: a prompt exceeds the model's
 * positions. */
kvf_status kvf_generate(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                        const char *const *prompts, size_t n, const kvf_generate_options *options,
                        char **texts, kvf_generate_stats *stats);
void kvf_texts_free(char **texts, size_t n);
/* Returns the number of bytes of a completion, which may contain U+0000. */
size_t kvf_text_bytes(const char *text);

/* Completes every row of a data file: its prompt, its text, or its messages up to the last
 * assistant turn. map as in kvf_train_options. *texts [*n] is released with
 * kvf_text_list_free(). */
kvf_status kvf_generate_file(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                             const char *path, const char *map, const kvf_generate_options *options,
                             char ***texts, size_t *n, kvf_generate_stats *stats);
void kvf_text_list_free(char **texts, size_t n);

/* Computes the f32 logits [n, V] after each of a row's n tokens, which follow the prefix (NULL:
 * none). No special tokens are added. Negative ids are virtual tokens at the input: -1 is the
 * first. A prefix inside rows has one negative id at its place, with tokens before and after it;
 * the logits there are NaN. EUSAGE: base or prefix is not of a language model, or the place is
 * missing. ESHAPE: too many tokens, or an id outside the vocabulary. */
kvf_status kvf_logits(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix, const int32_t *ids,
                      size_t n, float *logits);

#ifdef __cplusplus
}
#endif
#endif
