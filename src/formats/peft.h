/* Reading and writing adapter folders of PEFT. */
#ifndef KVF_PEFT_H
#define KVF_PEFT_H

#include "artifact.h"
#include "outfolder.h"

/* A PREFIX_TUNING (or CARTRIDGE) adapter folder; at_input: a PROMPT_TUNING or P_TUNING one, with a
 * table [P, C] and token_dim C. */
typedef struct kvf__peft {
    int64_t P, L, token_dim, heads; /* token_dim = G*D; heads = G; 0 if null in the config */
    char *base_name, *task_type;    /* "" if null */
    kvf__head_values head;          /* parameters without label names; empty: none */
    float *flat;                    /* [P, width] */
    int64_t width;                  /* 2 * L * G * D, or C */
    bool at_input, at_0;            /* at_0: its rows start at position 0, not at P */
    kvf_json *config;
} kvf__peft;
kvf_status kvf__peft_read(kvf_ctx *ctx, const char *dir, kvf__peft *out);
void kvf__peft_done(kvf__peft *peft);
/* PEFT's task_type, our task, transformers' auto class and the Hub's task name. */
typedef struct kvf__peft_row {
    const char *type, *task, *class_name, *pipeline;
} kvf__peft_row;
/* Returns the task of a task_type, "lm" for "", CAUSAL_LM and others without a saved head; NULL:
 * unknown. */
const char *kvf__peft_task(const char *task_type);
/* Returns the row for the task of a prefix; NULL: PEFT has no such type. */
const kvf__peft_row *kvf__peft_row_of(const kvf__identity *id);
bool kvf__peft_is_seq2seq(const char *task_type);
/* Contents of an adapter folder, all borrowed. */
typedef struct kvf__peft_content {
    const kvf__identity *id;
    const kvf__prefix *prefix;   /* PREFIX_TUNING; NULL: vectors */
    const kvf__vectors *vectors; /* PROMPT_TUNING: virtual tokens that lead the row; NULL beside
                                  * NULL: the card of a folder without an adapter */
    const char *own_file;        /* kvfold's file in the folder, for the model card; NULL: none */
    const kvf__head_values *head;
    const char *base_id;               /* id by which transformers loads the base; NULL: its name */
    const kvf_json *options, *lineage; /* for the model card; NULL: none */
} kvf__peft_content;
/* Refuses with one line, as kvf__peft_write does. */
kvf_status kvf__peft_check(kvf_ctx *ctx, const char *dir, const kvf__peft_content *what);
/* Files of the folder, without the model card; content: a kvf__peft_content. */
enum { KVF__PEFT_FILES = 3 };
extern const kvf__folder_file kvf__peft_files[KVF__PEFT_FILES];
kvf_status kvf__peft_write_card(kvf_ctx *ctx, const char *path, bool force, const void *content);
/* Writes the folder with adapter_config.json and adapter_model.safetensors (PREFIX_TUNING,
 * prefix_projection false), the head in modules_to_save, the model card README.md and, if the
 * head's outputs have names, labels.json. Refused with one line: a masked layer, position_start !=
 * P (PEFT always starts at P), P = 0, a task without a task_type. */
kvf_status kvf__peft_write(kvf_ctx *ctx, const char *dir, bool force,
                           const kvf__peft_content *what);
/* Last line of our model cards. A card without it belongs to the user and is kept. */
#define KVF__PEFT_CARD_MARK                                                                        \
    "<!-- Written by kvfold export, which replaces it while this line stands. -->"
/* Append the texts of both files (peft_card.c) to a buffer; without label names labels is empty. */
kvf_status kvf__peft_card(kvf_ctx *ctx, const kvf__peft_content *what, kvf__buf *card);
kvf_status kvf__peft_labels(kvf_ctx *ctx, const kvf__head_values *head, kvf__buf *labels);
kvf_json *kvf__peft_text_or_null(const char *text); /* NULL or "" becomes null */

#endif
