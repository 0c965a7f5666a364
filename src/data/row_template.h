/* Where virtual tokens and texts go in a row: --p-template (Liu et al. 2021; Schick and Schütze
 * 2021 for the texts around [MASK]).
 *
 *   {p} {p:3}             one virtual token, three; numbered through the template
 *   {text} {text_pair}    the row's fields; of language models {text}, or {prompt} {completion}
 *   [MASK]                the base's mask token, at which a class is then read
 *   anything else         text
 *
 * Virtual tokens that a template begins with go in front of the row: before what the tokenizer puts
 * first ([CLS], bos), as PEFT has them. A blank belongs to the text after it; blanks next to
 * virtual tokens, [MASK] and {completion} only separate. */
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
    int64_t first, n; /* virtual tokens */
    const char *text; /* name of the field, or the literal; NUL-terminated */
    bool blank;       /* a blank comes before it */
} kvf__template_piece;

typedef struct kvf__row_template {
    int64_t P;                   /* virtual tokens in all */
    int64_t front;               /* of them in front of the row */
    size_t n;                    /* pieces after these; 0: rows go on as without a template */
    kvf__template_piece *pieces; /* owned */
    char *texts;                 /* their memory */
    int mask;                    /* index of the piece [MASK], -1: there is none */
} kvf__row_template;

/* NULL or "": P virtual tokens in front of the row. Otherwise P is what the template has. EUSAGE
 * names what is wrong with it. */
kvf_status kvf__row_template_init(kvf_ctx *ctx, const char *text, int64_t P,
                                  kvf__row_template *out);
void kvf__row_template_done(kvf__row_template *pattern);
/* NULL: not in it. */
const kvf__template_piece *kvf__row_template_field(const kvf__row_template *pattern,
                                                   const char *name);
/* Are the virtual tokens all in front, and is the rest what rows are without a template? Then a
 * prefix can take their place. */
bool kvf__row_template_plain(const kvf__row_template *pattern);

#endif
