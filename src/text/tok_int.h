/* The inside of a tokenizer: a pipeline of data, as in `tokenizers`. Private to src/text; other
 * folders use text_int.h. It is immutable once finished; the state of an encoding is a kvf__work
 * (tok_work.h). */
#ifndef KVF_TOK_INT_H
#define KVF_TOK_INT_H

#include "added.h"
#include "chars.h"
#include "lexicon.h"
#include "text_int.h"
#include "tok_model.h"
#include "tok_steps.h"

enum { KVF__POST_TEXT = -1, KVF__POST_PAIR = -2 };

/* Special ids, with KVF__POST_TEXT and KVF__POST_PAIR in place of the texts; and the token type of
 * each item. */
typedef struct kvf__post_template {
    kvf__ids items, types;
} kvf__post_template;
kvf_status kvf__template_add(kvf_ctx *ctx, kvf__post_template *to, int32_t item, int32_t type);
void kvf__template_done(kvf__post_template *template);

struct kvf__tokenizer {
    kvf__lexicon lex;
    kvf__added_list added;
    kvf__tok_steps normalizer, pre, decoder;
    bool has_decoder;
    kvf__tok_model model;
    kvf__post_template post, pair;        /* for one text, for two */
    bool trim_offsets, trim_prefix_space; /* offsets omit spaces, except an inserted one */
    int32_t bos, eos, pad, cls, mask;     /* -1: none */
    char *chat_template;
};
kvf_status kvf__tokenizer_create(kvf_ctx *ctx, kvf__tokenizer **out); /* empty */
/* Builds the indexes of a complete tokenizer. EFORMAT: a token is too long for the search. */
kvf_status kvf__tokenizer_finish(kvf_ctx *ctx, const char *where, kvf__tokenizer *t);
/* Sets pre-tokenizers and decoder of byte-level BPE, with the named split regex (tok_steps.h);
 * NULL: that of the byte-level step. */
kvf_status kvf__byte_level_steps(kvf_ctx *ctx, const char *where, const char *splitter,
                                 bool prefix_space, kvf__tokenizer *t);
/* Set the post-processor: text; [bos] text [eos]; cls text sep; and the pair forms. */
kvf_status kvf__post_bare(kvf_ctx *ctx, kvf__tokenizer *t);
kvf_status kvf__post_bos_eos(kvf_ctx *ctx, kvf__tokenizer *t, bool bos, bool eos);
kvf_status kvf__post_cls_sep(kvf_ctx *ctx, kvf__tokenizer *t, int32_t cls, int32_t sep,
                             bool roberta);
/* Adds an added token with this id, which is stored in token->id; where names the source in
 * errors. */
kvf_status kvf__add_token(kvf_ctx *ctx, kvf__tokenizer *t, const char *where, kvf__added *token,
                          int64_t id);

#endif
