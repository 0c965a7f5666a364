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
    /* Options of the run. Method direct and 200 steps unless set. data: rows about the document;
     * NULL: made from it. valid: validation rows; NULL: one in eight of the rows. init NULL or at
     * its default: the document's own keys and values. */
    kvf_train_options train;
    const char *document;      /* path of a UTF-8 text, or use system_prompt */
    const char *system_prompt; /* path of a text that the prefix replaces as the system turn of the
                                  base's chat template. Rows are answers to the user turns in data
                                  and valid; NULL: the base writes these turns */
    int64_t window; /* window size in tokens, from 4; 0: the whole document, or if it is too long
                       half of the model's positions */
    int64_t top_k;  /* teacher probabilities kept for each label, at most 256; 0: 20 */
    int64_t self_study; /* number of prompts that the base answers with the document in context; -1:
                           96, or 0 with data */
    int64_t answer_tokens; /* maximum tokens of such an answer; 0: 64 */
    double temperature;    /* sampling temperature of the answers */
    int64_t chunk;  /* tokens in each piece of the document that is used as a row; 0: no such rows;
                       -1: 128, or none with data */
    bool on_policy; /* system_prompt: train on the student's answers, drawn anew in every step,
                       instead of the base's answers with the prompt */
    const char *const *distractors; /* [n_distractors] paths of prefixes of other documents. In
                                       every other step rows read them all beside the prefix, as
                                       after kvf_compose in parallel; the teacher reads the document
                                       alone */
    size_t n_distractors;           /* at most 64 */
    const char *kl; /* "forward": KL(teacher || student); "reverse"; NULL: forward */
} kvf_distill_options;
kvf_distill_options kvf_distill_defaults(void);

typedef struct kvf_distill_result {
    kvf_train_result train;
    int64_t document_tokens, prefix_length;
    int64_t held_out_rows, held_out_labels;
    double teacher_seconds; /* time for the document, the rows and the teacher's targets */
    /* Results on the held-out rows, in nats per label token. Losses: of the bare base, with the
     * prefix (best checkpoint), and with the document in context. KL to the teacher: of the bare
     * base, and of the prefix. NaN: dry run, or stopped. */
    double loss_base, loss_prefix, loss_document;
    double kl_base, kl_prefix;
    double kl_start; /* system_prompt: KL of the initial prefix; else NaN */
} kvf_distill_result;

/* Trains a prefix that replaces a document, and writes an ordinary run to train.out. EUSAGE: an
 * option does not apply to distillation. EDATA, ESHAPE: the document is no text or leaves no
 * positions. ESTOPPED as in kvf_train. */
kvf_status kvf_distill(kvf_ctx *ctx, const kvf_distill_options *options,
                       kvf_distill_result *result);

#ifdef __cplusplus
}
#endif

#endif
