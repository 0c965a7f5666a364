/* Distillation: a prefix that replaces a document or a system prompt.
 *
 *     kvf_distill_options options = kvf_distill_defaults();
 *     kvf_distill_result result;
 *     options.train.base = "SmolLM2-135M";
 *     options.train.out = "notes.h5";
 *     options.document = "notes.txt";
 *     if (kvf_distill(ctx, &options, &result)) return 1;
 *     printf("KL to the base with the document in context: %g nats per token\n", result.kl_prefix);
 */
#ifndef KVFOLD_DISTILL_H
#define KVFOLD_DISTILL_H

#ifndef KVF_EXPERIMENTAL
#error "kvfold/distill.h may change in every release; to use it, define KVF_EXPERIMENTAL first"
#endif

#include <kvfold/train.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kvf_distill_options {
    kvf_train_options train; /* of the run; method direct and 200 steps unless set. data: rows about
                                the document, NULL: made from it; valid: rows to measure by, NULL:
                                one in eight of those; init NULL or as by default: the document's
                                own keys and values */
    const char *document;    /* path of a text in UTF-8; or: */
    const char *system_prompt; /* path of one that the prefix replaces as the system turn of the
                                  base's chat template. Rows are answers to user turns: data and
                                  valid give these, NULL: the base writes them */
    int64_t window;        /* tokens of it that are read at a time, from 4; 0: all, or where they
                              do not fit half of the model's positions */
    int64_t top_k;         /* items of the teacher at each label, at most 256; 0: 20 */
    int64_t self_study;    /* prompts that the base answers with the document in context; -1: 96, or
                              0 with data */
    int64_t answer_tokens; /* most in such an answer; 0: 64 */
    double temperature;    /* at which they are drawn */
    int64_t chunk;  /* tokens of the pieces of the document that are rows too; 0: none; -1: 128, or
                       none with data */
    bool on_policy; /* system_prompt: the student's answers, of every step, in place of those of the
                       base with the prompt */
    const char *kl; /* "forward": KL(teacher || student); "reverse"; NULL: forward */
} kvf_distill_options;
kvf_distill_options kvf_distill_defaults(void);

typedef struct kvf_distill_result {
    kvf_train_result train;
    int64_t document_tokens, prefix_length;
    int64_t held_out_rows, held_out_labels;
    double teacher_seconds; /* the document, the rows and the teacher's targets */
    /* On the held-out rows, nats per label token: of the bare base, with the prefix (the best
     * checkpoint), with the document in context; and KL to the last of the other two over the
     * teacher's items. NaN: dry run, or stopped. */
    double loss_base, loss_prefix, loss_document;
    double kl_base, kl_prefix;
    double kl_start; /* system_prompt: of the prefix before the first step; else NaN */
} kvf_distill_result;

/* Trains a prefix that replaces a document, and writes an ordinary run to train.out. EUSAGE: an
 * option that this has no use for; EDATA, ESHAPE: the document is no text or leaves no positions.
 * ESTOPPED as kvf_train. */
kvf_status kvf_distill(kvf_ctx *ctx, const kvf_distill_options *options,
                       kvf_distill_result *result);

#ifdef __cplusplus
}
#endif

#endif
