/* From a path to a prefix (read from its file, or emitted by the encoder of a run), with what came
 * along: a head, values for the base itself. And whether it belongs to a base. */
#ifndef KVF_OPEN_PREFIX_H
#define KVF_OPEN_PREFIX_H

#include "condition.h"
#include "head.h"
#include "open_base.h"

/* What conditions a base: a prefix, or vectors at its input. */
struct kvf_prefix {
    kvf__artifact
        file;        /* identity, prefix (P = 0: none) or vectors (P = 0: none) and pattern, head,
                        options, lineage; values: for what the model publishes, n = 0: none */
    kvf__train form; /* of the model that publishes the values */
    kvf__task task;  /* of file.id.task */
    char *path;
    bool from_run;
    int64_t step; /* of the state that was used; -1 for prefix files */
};

/* What rows see of a prefix; NULL: none. All is viewed. */
kvf__condition kvf__prefix_condition(const kvf_prefix *prefix);

/* What a file of that kind holds of a prefix; all is viewed. */
kvf__artifact kvf__prefix_view(const kvf_prefix *prefix, kvf__kind kind);

/* The form of a model that has the values of an adapter file. */
kvf_status kvf__block_form(kvf_ctx *ctx, const char *path, const kvf__artifact *adapter,
                           kvf__train *out);
/* Into a new prefix: the values of a run of port block, which are taken over. */
kvf_status kvf__block_from_run(kvf_ctx *ctx, const char *path, kvf__artifact *run, bool best,
                               kvf_prefix *prefix);
/* The base's part of a run that trained it together with an encoder (--unfreeze base): copies of
 * the values that are not the encoder's; none without that option. */
kvf_status kvf__block_beside(kvf_ctx *ctx, const kvf_json *options, const kvf__params *values,
                             const kvf__params *encoder, kvf_prefix *prefix);
/* Values for all that the model publishes, by name; EMISMATCH, ESHAPE if they are not. `where`
 * names the source. */
kvf_status kvf__block_load(kvf_ctx *ctx, const char *where, const kvf__params *values,
                           kvf__model *model);
/* Compares the base that a file names with this one, without heads and what the base carries; a
 * file that names none (base_hash empty: allow_other_base lets it pass) gets its stamp. */
kvf_status kvf__identity_check(kvf_ctx *ctx, const char *path, kvf__identity *id,
                               const kvf_base *base, bool allow_other_base);
/* The stamp alone: name, architecture and hash, in place of those there are. */
kvf_status kvf__identity_stamp(kvf_ctx *ctx, kvf__identity *id, const kvf_base *base);
/* L, G, D (with a base), texts, position_start = P of what comes from elsewhere. */
kvf_status kvf__import_stamp(kvf_ctx *ctx, const kvf_base *base, const char *base_name,
                             const char *method, const char *task, kvf__identity *id);
/* kvf_prefix_check but for what the base carries. */
kvf_status kvf__prefix_fits(kvf_ctx *ctx, const kvf_prefix *prefix, const kvf_base *base,
                            bool allow_other_base);
/* "base NAME". */
const char *kvf__base_words(const kvf__identity *id, char buf[256]);

/* Copies values into a head's parameters by name. EFORMAT, ESHAPE: the names or shapes are not the
 * head's; `where` names the source. */
kvf_status kvf__head_load(kvf_ctx *ctx, kvf__params *to, const char *where,
                          const kvf__params *from);
/* The head that came with a prefix on a base, dropout 0, a language model's without a gradient;
 * *out stays NULL where that is the base's own. */
kvf_status kvf__prefix_head(kvf_ctx *ctx, const kvf_base *base, const kvf_prefix *prefix,
                            kvf__head **out);

/* mask [L] is 1 for the layers of "2-5", "2" or a list of those ("0,2,4-7"), from 0 on, and else 0.
 * EUSAGE: it is no such text, or a layer comes twice; ESHAPE: there is no such layer. */
kvf_status kvf__layers_parse(kvf_ctx *ctx, const char *layers, int64_t L, uint8_t *mask);

/* After a prefix (NULL: none): most ids of a row, and most that are not virtual tokens. */
int64_t kvf__row_capacity(const kvf_base *base, const kvf_prefix *prefix);
int64_t kvf__text_capacity(const kvf_base *base, const kvf_prefix *prefix);
/* Are rows the same ids under both? */
bool kvf__prefix_same_rows(const kvf_prefix *a, const kvf_prefix *b);

#endif
