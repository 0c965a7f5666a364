/* Rows to ids and labels (render.c): the one place where text becomes ids for language models, in
 * train, eval, generate and serve alike. Labels are unshifted, as in transformers: for each id the
 * id to be predicted there. */
#ifndef KVF_RENDER_H
#define KVF_RENDER_H

#include "row_template.h"
#include "text_int.h"

#define KVF__NO_LABEL   (-100)
#define KVF__NO_GOLD    (-1) /* the head reads the position, but the file does not give the gold */
#define KVF__LABEL_NONE 1    /* qa: the position of "no answer"; 0: other tokens of the row */

/* Renames fields: "prompt=question,completion=answer" reads foreign fields under our names. {0}:
 * none. */
typedef struct kvf__field_map {
    char *text; /* owned, cut into pieces */
    const char *ours[8], *theirs[8];
    size_t n;
    bool of_run; /* stored with the prefix: where a column is not there our own name counts */
} kvf__field_map;
kvf_status kvf__field_map_init(kvf_ctx *ctx, const char *text,
                               kvf__field_map *out); /* NULL or "": empty. EUSAGE */
void kvf__field_map_done(kvf__field_map *map);

/* How text becomes ids. */
typedef struct kvf__render {
    const kvf__tokenizer *tokenizer;
    const kvf__chat *chat;     /* template that wraps every row, or that `messages` rows use */
    bool wrap_prompts;         /* the template was named: prompt and completion are one user and one
                                  assistant turn */
    const kvf__field_map *map; /* may be NULL */
    const kvf__row_template *pattern; /* virtual tokens and what else rows hold; NULL: none */
    bool encoder; /* of an encoder-decoder: a row is what its encoder reads, which ends in EOS, then
                     the decoder's first token and what that is to write */
    int32_t start, pad; /* that token; the one at positions without a label, -1: none */
    bool no_eos;        /* rows end where their text does (those of a chat template as it says) */
} kvf__render;

/* Appends ids and labels, of which there are as many before, of one JSON row: [bos] + ids(prompt) +
 * ids(completion) + [eos], completion and eos carrying loss (bos and eos are not added to rendered
 * rows; encoder-decoders: [bos] + ids(prompt) + eos + start + the same);
 * {"text"}: all but the first token; {"messages"}: assistant turns, but those of weight 0;
 * {"input_ids","labels"[,"attention_mask"]}: as they are, masked ids dropped. prompt_only: stops
 * before the completion (or opens the assistant turn), labels then all -100. EDATA names `where`.
 *
 * Virtual tokens of render->pattern come as ids -1 - p, never labelled, and tokens in front of
 * a row leave the rest as it is: the first token after them is not predicted either, so that a
 * prefix can take their place. */
kvf_status kvf__render_row(kvf_ctx *ctx, const kvf__render *render, const char *where,
                           const kvf_json *row, bool prompt_only, kvf__ids *ids, kvf__ids *labels);
/* Does kvf__render_row read this field of the row, under its name in the file? */
bool kvf__render_reads(const kvf__render *render, const kvf_json *row, const char *name);
/* The row's list of messages; NULL: it is of another kind. And is this field of one read? */
const kvf_json *kvf__render_messages(const kvf__render *render, const kvf_json *row);
bool kvf__message_reads(const char *name);
/* Content of a message into out: a text, or parts of type text, which `parts` then holds. EDATA, in
 * no words: it is neither. */
kvf_status kvf__message_content(kvf_ctx *ctx, const kvf_json *content, kvf__buf *parts,
                                kvf__message *out);
/* The same for a bare prompt. */
kvf_status kvf__render_prompt(kvf_ctx *ctx, const kvf__render *render, const char *prompt,
                              size_t bytes, kvf__ids *ids);
/* For one given as ids, as they are; where a template places virtual tokens among the row's texts,
 * in place of the prompt's own, a blank before it among them. */
kvf_status kvf__render_prompt_ids(kvf_ctx *ctx, const kvf__render *render, const int32_t *prompt,
                                  size_t n, kvf__ids *ids);
/* For a chat that the assistant goes on with. EUSAGE where such a template has no place for it. */
kvf_status kvf__render_chat(kvf_ctx *ctx, const kvf__render *render, const kvf__message *messages,
                            size_t n, kvf__ids *ids);

/* ---- pieces of templates, for all tasks ------------------------------------------------------ */

/* Ids of virtual tokens first .. first + n - 1. */
kvf_status kvf__add_virtual(kvf_ctx *ctx, int64_t first, int64_t n, kvf__ids *ids);
/* Ids of a piece; of a field those of its text. */
kvf_status kvf__add_piece(kvf_ctx *ctx, const kvf__tokenizer *tokenizer,
                          const kvf__template_piece *piece, const char *field, size_t bytes,
                          kvf__ids *ids);

#endif
