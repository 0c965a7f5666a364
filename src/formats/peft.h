/* Adapter folders of PEFT, read and written. */
#ifndef KVF_PEFT_H
#define KVF_PEFT_H

#include "artifact.h"

/* A PREFIX_TUNING (or CARTRIDGE) adapter folder; at_input: a PROMPT_TUNING or
 * P_TUNING one, whose table is [P, C] and whose token_dim is C. */
typedef struct kvf__peft {
    int64_t P, L, token_dim, heads; /* token_dim = G*D; heads = G; 0 where the config has null */
    char *base_name, *task_type;    /* "" where null */
    kvf__head_values head;          /* parameters without label names; empty: none */
    float *flat;                    /* [P, width] */
    int64_t width;                  /* 2 * L * G * D, or C */
    bool at_input, at_0;            /* at_0: its rows start at position 0, not at P */
    kvf_json *config;
} kvf__peft;
kvf_status kvf__peft_read(kvf_ctx *ctx, const char *dir, kvf__peft *out);
void kvf__peft_done(kvf__peft *peft);
/* PEFT's task_type, our task, transformers' auto class and the Hub's word for it. */
typedef struct kvf__peft_row {
    const char *type, *task, *class_name, *pipeline;
} kvf__peft_row;
/* The task of a task_type, "lm" for "", CAUSAL_LM and others that save no head; NULL: it is not
 * known. */
const char *kvf__peft_task(const char *task_type);
/* Of the task of a prefix; NULL: PEFT has no type for it. */
const kvf__peft_row *kvf__peft_row_of(const kvf__identity *id);
bool kvf__peft_is_seq2seq(const char *task_type);
/* What an adapter folder is written of; all is viewed. */
typedef struct kvf__peft_content {
    const kvf__identity *id;
    const kvf__prefix *prefix;   /* PREFIX_TUNING; NULL: */
    const kvf__vectors *vectors; /* virtual tokens that lead the row, PROMPT_TUNING */
    const kvf__head_values *head;
    const char *base_id;               /* what transformers loads the base by; NULL: its name */
    const kvf_json *options, *lineage; /* for the card; NULL: none */
} kvf__peft_content;
/* Makes the folder with adapter_config.json and adapter_model.safetensors (PREFIX_TUNING,
 * prefix_projection false), the head in modules_to_save; and the model card README.md and,
 * where the head's outputs have names, labels.json. Refused with one line: a masked layer,
 * position_start != P (PEFT always starts at P), P = 0, a task without a task_type. */
kvf_status kvf__peft_write(kvf_ctx *ctx, const char *dir, bool force,
                           const kvf__peft_content *what);
/* The last line of a card of ours. One without it is somebody's own and stays as it is. */
#define KVF__PEFT_CARD_MARK                                                                        \
    "<!-- Written by kvfold export, which replaces it while this line stands. -->"
/* Their texts (peft_card.c), added to a buffer; no labels: they have no names. */
kvf_status kvf__peft_card(kvf_ctx *ctx, const kvf__peft_content *what, kvf__buf *card);
kvf_status kvf__peft_labels(kvf_ctx *ctx, const kvf__head_values *head, kvf__buf *labels);
kvf_json *kvf__peft_text_or_null(const char *text); /* NULL or "" is null */

#endif
