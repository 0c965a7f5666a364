/* The inside of a tokenizer: a pipeline of data, as in `tokenizers`. Private to src/text, everyone
 * else goes through text_int.h. It is immutable once finished; what changes while a text goes
 * through it is a kvf__work (tok_work.h). */
#ifndef KVF_TOK_INT_H
#define KVF_TOK_INT_H

#include "added.h"
#include "chars.h"
#include "lexicon.h"
#include "text_int.h"
#include "tok_model.h"
#include "tok_steps.h"

enum { KVF__POST_TEXT = -1, KVF__POST_PAIR = -2 };

/* Special ids, with KVF__POST_TEXT and KVF__POST_PAIR where the texts go; and the token type of
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
    kvf__post_template post, pair;        /* around one text, around two */
    bool trim_offsets, trim_prefix_space; /* offsets leave out spaces, but not one put in front */
    int32_t bos, eos, pad, cls, mask;     /* -1: none */
    char *chat_template;
};
kvf_status kvf__tokenizer_create(kvf_ctx *ctx, kvf__tokenizer **out); /* empty */
/* Fills the indexes once lexicon, added tokens and normalizer are complete. EFORMAT: a token is too
 * long to look for. */
kvf_status kvf__tokenizer_finish(kvf_ctx *ctx, const char *where, kvf__tokenizer *t);
/* Pre-tokenizers and decoder of byte-level BPE, cut by the regex of this name (tok_steps.h), NULL:
 * the byte-level step's own. */
kvf_status kvf__byte_level_steps(kvf_ctx *ctx, const char *where, const char *splitter,
                                 bool prefix_space, kvf__tokenizer *t);
/* post := text; [bos] text [eos]; cls text sep. pair: the same for two. */
kvf_status kvf__post_bare(kvf_ctx *ctx, kvf__tokenizer *t);
kvf_status kvf__post_bos_eos(kvf_ctx *ctx, kvf__tokenizer *t, bool bos, bool eos);
kvf_status kvf__post_cls_sep(kvf_ctx *ctx, kvf__tokenizer *t, int32_t cls, int32_t sep,
                             bool roberta);
/* An added token of this id, which goes into token->id; where names the source of a bad one. */
kvf_status kvf__add_token(kvf_ctx *ctx, kvf__tokenizer *t, const char *where, kvf__added *token,
                          int64_t id);

#endif
