/* Converts rows to ids and labels (render.c). This is the one place where text becomes ids for
 * language models, in train, eval, generate and serve alike. Labels are unshifted, as in
 * transformers: label i is the id wanted at position i. */
#ifndef KVF_RENDER_H
#define KVF_RENDER_H

#include "row_template.h"
#include "task.h"
#include "text_int.h"

#define KVF__NO_LABEL   (-100)
#define KVF__NO_GOLD    (-1) /* the head reads the position, but the file has no gold label */
#define KVF__LABEL_NONE 1    /* qa: label of the "no answer" position; others have 0 */

/* Renames fields: "prompt=question,completion=answer" reads the columns question and answer as our
 * prompt and completion. {0}: no renaming. */
typedef struct kvf__field_map {
    char *text; /* owned, split into names */
    const char *ours[8], *theirs[8];
    size_t n;
    bool of_run; /* stored with the prefix: an absent column falls back to our own name */
} kvf__field_map;
kvf_status kvf__field_map_init(kvf_ctx *ctx, const char *text,
                               kvf__field_map *out); /* NULL or "": empty. EUSAGE */
void kvf__field_map_done(kvf__field_map *map);

/* Settings for converting text to ids. */
typedef struct kvf__render {
    const kvf__tokenizer *tokenizer;
    const kvf__chat *chat;     /* template for every row, or only for `messages` rows */
    bool wrap_prompts;         /* the template was named: prompt and completion become a user and an
                                  assistant turn */
    const kvf__field_map *map; /* may be NULL */
    const kvf__row_template *pattern; /* row template with virtual tokens; NULL: none */
    bool encoder; /* encoder-decoder: a row is the encoder's text and EOS, then the decoder's first
                     token and its target */
    int32_t start, pad; /* the decoder's first token; the one at unlabelled positions, -1: none */
    bool no_eos;        /* rows get no EOS; chat templates are unaffected */
} kvf__render;

/* Appends the ids and labels of one JSON row; before, both lists have the same length.
 *
 *   {"prompt", "completion"}   [bos] + ids(prompt) + ids(completion) + [eos]; completion and eos
 *                              carry loss. Encoder-decoders: [bos] + ids(prompt) + eos + start +
 *                              [bos] + ids(completion) + [eos]
 *   {"text"}                   all tokens but the first carry loss
 *   {"messages"}               assistant turns carry loss, except those of weight 0
 *   {"input_ids", "labels"[, "attention_mask"]}
 *                              unchanged, without masked ids
 *
 * Rows that a template has rendered get no bos and eos. prompt_only: stops before the completion,
 * or opens the assistant turn; all labels are -100. EDATA names `where`.
 *
 * Virtual tokens of render->pattern have ids -1 - p and no label. Virtual tokens in front of a row
 * leave the rest unchanged. The first token after them has no label either, so that a prefix can
 * take their place. */
kvf_status kvf__render_row(kvf_ctx *ctx, const kvf__render *render, const char *where,
                           const kvf_json *row, bool prompt_only, kvf__ids *ids, kvf__ids *labels);
/* The form of a data set's rows: how a prompt for them is rendered. */
typedef struct kvf__row_form {
    const char *name; /* "text", "pairs", "chat"; "": rows differ or are ids; NULL: no row yet */
    char example[KVF__MOST_EXAMPLE + 1]; /* first prompt that fits, of text the beginning; or "" */
} kvf__row_form;
/* Adds a row of this form. Prompts with U+0000 are no examples. */
void kvf__row_form_add(kvf__row_form *form, const char *name, const char *prompt, size_t bytes);
/* Adds a row that kvf__render_row has accepted. */
kvf_status kvf__render_form(kvf_ctx *ctx, const kvf__render *render, const kvf_json *row,
                            kvf__row_form *form);
/* Returns true if kvf__render_row reads this field of the row, given its name in the file. */
bool kvf__render_reads(const kvf__render *render, const kvf_json *row, const char *name);
/* Returns the row's list of messages; NULL: the row is of another kind. kvf__message_reads()
 * returns true if a field of a message is read. */
const kvf_json *kvf__render_messages(const kvf__render *render, const kvf_json *row);
bool kvf__message_reads(const char *name);
/* Reads the content of a message: a text, or parts of type text, which are joined in `parts`.
 * EDATA, without an error text: the content is neither. */
kvf_status kvf__message_content(kvf_ctx *ctx, const kvf_json *content, kvf__buf *parts,
                                kvf__message *out);
/* Appends the ids of a bare prompt. */
kvf_status kvf__render_prompt(kvf_ctx *ctx, const kvf__render *render, const char *prompt,
                              size_t bytes, kvf__ids *ids);
/* Appends a prompt that is given as ids, unchanged. If the template places virtual tokens among the
 * row's texts, the ids replace the prompt's tokens, including the blank before it. */
kvf_status kvf__render_prompt_ids(kvf_ctx *ctx, const kvf__render *render, const int32_t *prompt,
                                  size_t n, kvf__ids *ids);
/* Appends a chat that the assistant continues. EUSAGE: the row template has no place for a chat. */
kvf_status kvf__render_chat(kvf_ctx *ctx, const kvf__render *render, const kvf__message *messages,
                            size_t n, kvf__ids *ids);

/* ---- pieces of templates, for all tasks ------------------------------------------------------ */

/* Appends the ids of virtual tokens first .. first + n - 1. */
kvf_status kvf__add_virtual(kvf_ctx *ctx, int64_t first, int64_t n, kvf__ids *ids);
/* Appends the ids of a piece; for a field, the ids of its text. */
kvf_status kvf__add_piece(kvf_ctx *ctx, const kvf__tokenizer *tokenizer,
                          const kvf__template_piece *piece, const char *field, size_t bytes,
                          kvf__ids *ids);

#endif
