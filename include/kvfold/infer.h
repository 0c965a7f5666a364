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

/* What a token's logit is raised by. */
typedef struct kvf_token_bias {
    int32_t id;
    float bias;
} kvf_token_bias;

typedef struct kvf_generate_options {
    int64_t max_tokens; /* most new tokens per prompt */
    double temperature; /* 0: greedy */
    int64_t top_k;      /* 0: all */
    double top_p;       /* 1: all */
    double min_p;       /* least share of the likeliest token's probability; 0: all */
    /* Of tokens in prompt or completion, positive logits are divided by it and others multiplied
     * (as transformers does); 0 or 1: none. */
    double repetition_penalty;
    /* Taken off the logits of tokens in the completion, once and for each time they are there (as
     * OpenAI does). */
    double presence_penalty, frequency_penalty;
    const kvf_token_bias *logit_bias; /* [n_logit_bias] */
    size_t n_logit_bias;
    /* Above 1: beam search with so many rows, whose best completion is the answer: that of the
     * highest sum of log-probabilities, divided by (number of tokens) ** length_penalty. As
     * transformers searches with early_stopping False; temperature must be 0. */
    int64_t beams;
    double length_penalty;
    uint64_t seed;           /* prompt i draws from (seed, i): results do not depend on the batch */
    const char *const *stop; /* n_stop texts that end a completion (and are left out) */
    size_t n_stop;
    const char *chat_template; /* NULL: the prefix's own, else none */
    int64_t batch_size;        /* prompts run together; 0: 16 */
    /* streaming: new text of a prompt, whole characters, not ended by NUL; may be NULL. false ends
     * the call, which returns ESTOPPED */
    bool (*token)(void *user, size_t prompt, const char *text, size_t bytes);
    void *token_user;
    /* n_more prefixes besides that of the call, which must be there: every next token is drawn from
     * the mean of the probabilities after each. */
    const kvf_prefix *const *more;
    size_t n_more;
    /* Up to so many tokens are guessed from the row's own text and checked in one step: the same
     * text, sooner where it repeats itself or its prompt. 0: off; temperature must be 0, without
     * beams and `more`. */
    int64_t draft;
    uint64_t reserved[7];
} kvf_generate_options;
/* 64 tokens, greedy, top_p 1, no penalties, no beams, length_penalty 1 */
kvf_generate_options kvf_generate_defaults(void);

typedef struct kvf_generate_stats {
    int64_t prompt_tokens, new_tokens;
    double prefill_seconds, decode_seconds;
    uint64_t reserved[4];
} kvf_generate_stats;

/* texts[i]: the completion alone, UTF-8, owned by the caller (kvf_texts_free). prefix may be NULL,
 * stats too. EDATA, ESHAPE: a prompt that does not fit the model's positions. */
kvf_status kvf_generate(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                        const char *const *prompts, size_t n, const kvf_generate_options *options,
                        char **texts, kvf_generate_stats *stats);
void kvf_texts_free(char **texts, size_t n);
/* Bytes of such a text, which may contain a U+0000 of the model's. */
size_t kvf_text_bytes(const char *text);

/* The same for every row of a data file: its prompt, its text, or its messages up to the last
 * assistant turn. map as in kvf_train_options. *texts is an array of *n texts, released with
 * kvf_text_list_free(). */
kvf_status kvf_generate_file(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                             const char *path, const char *map, const kvf_generate_options *options,
                             char ***texts, size_t *n, kvf_generate_stats *stats);
void kvf_text_list_free(char **texts, size_t n);

/* Logits [n, V], f32, after each of a row's n tokens, which follow the prefix (NULL: none) and are
 * given as they are. Below 0 are the ids of virtual tokens at the input: -1 is the first; and of a
 * prefix inside rows one id, which says where it stands, with tokens before and after it: in its
 * place logits are NaN. EUSAGE: the base or prefix is no language model's, or nothing says where;
 * ESHAPE: an id outside the vocabulary, or too many. */
kvf_status kvf_logits(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix, const int32_t *ids,
                      size_t n, float *logits);

#ifdef __cplusplus
}
#endif
#endif
