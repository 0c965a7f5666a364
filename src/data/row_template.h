/* Row templates (--p-template): positions of virtual tokens and texts in a row (Liu et al. 2021;
 * Schick and Schütze 2021 for the texts around [MASK]).
 *
 *   {p} {p:3}             one virtual token, three; numbered through the template
 *   {text} {text_pair}    the row's fields; for language models {text}, or {prompt} {completion}
 *   [MASK]                the base's mask token, at which the class is read
 *   anything else         text
 *
 * Virtual tokens at the beginning of a template precede the whole row, even [CLS] or bos, as in
 * PEFT. A blank belongs to the text after it. Blanks next to virtual tokens, [MASK] and
 * {completion} only separate. */
#ifndef KVF_ROW_TEMPLATE_H
#define KVF_ROW_TEMPLATE_H

#include "base_int.h"

typedef enum kvf__template_piece_kind {
    KVF__PIECE_VIRTUAL,
    KVF__PIECE_FIELD,
    KVF__PIECE_LITERAL,
    KVF__PIECE_MASK
} kvf__template_piece_kind;

typedef struct kvf__template_piece {
    kvf__template_piece_kind kind;
    int64_t first, n; /* first virtual token, and their number */
    const char *text; /* name of the field, or the literal; NUL-terminated */
    bool blank;       /* a blank precedes it */
} kvf__template_piece;

typedef struct kvf__row_template {
    int64_t P;                   /* virtual tokens in all */
    int64_t front;               /* virtual tokens in front of the row */
    size_t n;                    /* pieces after these; 0: rows as without a template */
    kvf__template_piece *pieces; /* owned */
    char *texts;                 /* memory of the pieces' texts */
    int mask;                    /* index of the piece [MASK]; -1: none */
} kvf__row_template;

/* Parses a template and counts its virtual tokens. NULL or "": P virtual tokens in front of the
 * row. EUSAGE names the error. */
kvf_status kvf__row_template_init(kvf_ctx *ctx, const char *text, int64_t P,
                                  kvf__row_template *out);
void kvf__row_template_done(kvf__row_template *pattern);
/* Returns the piece of a field; NULL: the template does not contain it. */
const kvf__template_piece *kvf__row_template_field(const kvf__row_template *pattern,
                                                   const char *name);
/* Returns true if all virtual tokens are in front and the rest equals a row without a template. A
 * prefix can then take their place. */
bool kvf__row_template_plain(const kvf__row_template *pattern);

#endif
